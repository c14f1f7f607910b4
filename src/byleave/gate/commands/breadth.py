"""Beginnings of command lines that may be granted as a class, from `broad.toml`.

A program that runs no code of its own choosing may be granted by its first words; one that runs code only where the
data says, option for option, what may follow. It reads words and never a disk, and what it does not know it does not
let pass: an option that is not listed is not harmless.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from byleave.gate.paths import check_path

Words = tuple[str, ...]

_WORD = re.compile(r"[A-Za-z0-9_.,:%+][A-Za-z0-9_.,:%+-]*")
_NUMBER = re.compile(r"[0-9]{1,6}|auto|logical")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_PACKAGE = re.compile(r"(?:@[A-Za-z0-9_.-]+/)?[A-Za-z0-9_][A-Za-z0-9_.-]*(?:@[A-Za-z0-9_.~^-]+)?")
_PATH = re.compile(r"[A-Za-z0-9_.][^\0-\x1f\\:*?\"<>|@]*")


def _is_path(value: str) -> bool:
    return bool(_PATH.fullmatch(value)) and ".." not in value.split("/") and check_path(value).refusal is None


def _is_test(value: str) -> bool:
    """A file or directory, perhaps with the name of a test in it."""
    return _is_path(value.partition("::")[0])


_FITS: dict[str, Callable[[str], bool]] = {
    "text": lambda value: bool(value),
    "word": lambda value: _WORD.fullmatch(value) is not None,
    "number": lambda value: _NUMBER.fullmatch(value) is not None,
    "name": lambda value: _NAME.fullmatch(value) is not None and ".." not in value,
    "package": lambda value: _PACKAGE.fullmatch(value) is not None and ".." not in value,
    "path": _is_path,
    "test": _is_test,
    "none": lambda value: False,
}
_TAKES = ("text", "word", "number", "path")


@dataclass(frozen=True, slots=True)
class Opening:
    """A beginning that runs code, and what may follow it."""

    words: Words
    what: str
    widest: str
    runs: bool
    """True if code of the workspace runs, and not merely is looked at."""
    flags: frozenset[str]
    takes: Mapping[str, str]
    """Options with a value, and of which kind."""
    operands: str

    def lets(self, rest: Sequence[str]) -> bool:
        """True if every argument after the beginning is one of those that may follow."""
        waiting: str | None = None
        for arg in rest:
            if waiting is not None:
                if arg.startswith("-") or not _FITS[waiting](arg):
                    return False
                waiting = None
            elif not arg.startswith("-"):
                if not _FITS[self.operands](arg):
                    return False
            elif arg in self.takes:
                waiting = self.takes[arg]
            elif not self._is_option(arg):
                return False
        return waiting is None

    def _is_option(self, arg: str) -> bool:
        if arg in self.flags:
            return True
        name, equals, value = arg.partition("=")
        if equals:
            return name in self.takes and _FITS[self.takes[name]](value)
        if arg.startswith("--"):
            return False
        if all(f"-{letter}" in self.flags for letter in arg[1:]):
            return len(arg) > 2  # a cluster: -xvs
        kind = self.takes.get(arg[:2])
        return kind is not None and _FITS[kind](arg[2:])


@dataclass(frozen=True, slots=True)
class Breadth:
    """`broad.toml`, ready to be asked."""

    plain: frozenset[str]
    never: Mapping[str, str]
    runners: Mapping[str, str]
    openings: tuple[Opening, ...]
    apart: tuple[Words, ...]
    brings: tuple[Words, ...]
    widest: Mapping[Words, str]

    def opening(self, words: Sequence[str]) -> Opening | None:
        """The beginning that these words start with."""
        return next((one for one in self.openings if begins(words, one.words)), None)

    def is_apart(self, words: Sequence[str]) -> bool:
        """True if only the exact line may be granted, wherever the options stand."""
        return any(begins(words, one) for one in self.apart)

    def is_plain(self, words: Sequence[str]) -> bool:
        """True if the program runs nothing of the workspace and leaves only the files its line names."""
        return words[0] in self.plain

    def is_runner(self, words: Sequence[str]) -> bool:
        """True if the program runs code of the workspace with most of its lines."""
        return words[0] in self.runners

    def runs_code(self, words: Sequence[str]) -> bool:
        """True if a line runs code of the workspace, and does not merely look at it."""
        opening = self.opening(words)
        harmless = opening is not None and not opening.runs and opening.lets(words[len(opening.words) :])
        return self.is_runner(words) and not harmless

    def brings_unseen(self, words: Sequence[str]) -> bool:
        return any(begins(words, one) for one in self.brings)


def begins(words: Sequence[str], beginning: Words) -> bool:
    """True if the words start with these, one for one."""
    return tuple(words[: len(beginning)]) == beginning


@cache
def breadth() -> Breadth:
    """Read the packaged data, once."""
    text = resources.files(__name__.rpartition(".")[0]).joinpath("broad.toml").read_text("utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    return Breadth(
        plain=frozenset(data["plain"]["programs"].split()),
        never={program: entry["because"] for entry in data["never"] for program in entry["programs"].split()},
        runners={entry["program"]: entry["runs"] for entry in data["runner"]},
        openings=tuple(one for entry in data["open"] for one in _openings(entry)),
        apart=_lines(data["apart"]["commands"]),
        brings=_lines(data["brings"]["commands"]),
        widest={words: entry["text"] for entry in data["widest"] for words in _lines(entry["commands"])},
    )


def _lines(commands: Iterable[str]) -> tuple[Words, ...]:
    return tuple(tuple(command.split()) for command in commands)


def _openings(entry: Mapping[str, Any]) -> list[Opening]:
    return [
        Opening(
            words=words,
            what=entry["what"],
            widest=entry["widest"],
            runs=entry["runs"],
            flags=frozenset(entry.get("flags", "").split()),
            takes={option: kind for kind in _TAKES for option in entry.get(kind, "").split()},
            operands=entry["operands"],
        )
        for words in _lines(entry["commands"])
    ]
