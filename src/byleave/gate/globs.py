"""Patterns of paths: `*` and `?` within a name, `**` across directories, a bare name anywhere, `dir/` all below it.

Rules come from files that others write, so matching takes time in proportion to pattern and path, whatever they hold:
no regular expression is made of them. Nothing here looks at a disk.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from byleave.gate.text.characters import plain_form

from .names import names_of
from .paths import MAX_NAME_BYTES

T = TypeVar("T")
Spellings = tuple[str, ...]
"""One name as a careless file system compares it, and as it stands where that differs: `end` and `end.`."""

DEEP = "**"
BELOW = (DEEP, "*")


def path_fits(glob: str, path: str, *, careless: bool = False) -> bool:
    """True if a pattern fits a path from the workspace.

    `careless` is for what tightens: case and look-alikes do not matter, and what lies below a fitting name fits too.
    """
    if not careless:
        return _walk(_parts(glob), path.split("/"), DEEP, _name_fits)
    parts, names = _plain_parts(glob), _names(path)
    return _all_fit(parts, names) or _all_fit((*parts, *BELOW), names)


def path_above(path: str, glob: str) -> bool:
    """True if a directory lies above what a pattern fits, so that looking through it may reach that."""
    names = _names(path)
    if names == ((".",),):
        return True
    for part, name in zip(_plain_parts(glob), names, strict=False):
        if part == DEEP:
            return True
        if not _spelled_fits(part, name):
            return False
    return True


def directory_of(path: str, glob: str) -> bool:
    """True if a path is the very directory whose content a pattern is about: `secret` for `secret/**`."""
    parts = _plain_parts(glob)
    return len(parts) > 2 and parts[-2:] == BELOW and _all_fit(parts[:-2], _names(path))


def first_names(paths: Iterable[str]) -> frozenset[str]:
    """The first names of paths, in each of the spellings that a careless look sees."""
    return frozenset(name for path in paths for name in _names(path)[0])


@lru_cache(maxsize=2048)
def first_fixed(glob: str) -> str | None:
    """The first name of every path that fits; None when it may be any."""
    first = _plain_parts(glob)[0]
    return None if "*" in first or "?" in first else first


def plain_parts(glob: str) -> tuple[str, ...]:
    """A pattern's names one by one, as a careless look compares them; `**` stands for any number of names."""
    return _plain_parts(glob)


def part_fits(part: str, name: str) -> bool:
    """True if one name of a pattern, not `**`, fits one name of a path in its plain form."""
    return _name_fits(part, name)


@lru_cache(maxsize=4096)
def _names(path: str) -> tuple[Spellings, ...]:
    careless = names_of(path)
    spelled = [part for part in plain_form(path).replace("\\", "/").split("/") if part not in ("", ".")] or ["."]
    return tuple((one,) if one == other else (one, other) for one, other in zip(careless, spelled, strict=True))


@lru_cache(maxsize=2048)
def _plain_parts(glob: str) -> tuple[str, ...]:
    return _parts(plain_form(glob))


@lru_cache(maxsize=2048)
def _parts(glob: str) -> tuple[str, ...]:
    anchored = glob.startswith(("/", "./"))
    plain = glob.removeprefix("./").lstrip("/")
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    bare = len(parts) == 1 and not anchored and parts[0] != DEEP
    if plain.endswith("/"):
        parts.append(DEEP)
    if bare:
        parts.insert(0, DEEP)
    if len(parts) > 1 and parts[-1] == DEEP:
        parts[-1:] = BELOW  # `dir/**` is what lies in the directory, never the directory itself
    return tuple(parts)


def _all_fit(parts: Sequence[str], names: Sequence[Spellings]) -> bool:
    return _walk(parts, names, DEEP, _spelled_fits)


@lru_cache(maxsize=8192)
def _spelled_fits(part: str, spellings: Spellings) -> bool:
    return any(_name_fits(part, name) for name in spellings)


@lru_cache(maxsize=8192)
def _name_fits(part: str, name: str) -> bool:
    if "*" not in part and "?" not in part:
        return part == name
    if len(name) > MAX_NAME_BYTES:
        return False  # no file is called that
    if "?" in part:
        return _walk(part, name, "*", _letter_fits)
    first, *others = part.split("*")
    last = others.pop()
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for piece in others:  # each as early as possible: what is left is then the most
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _letter_fits(wanted: str, letter: str) -> bool:
    return wanted in ("?", letter)


def _walk(pattern: Sequence[str], given: Sequence[T], star: str, fits: Callable[[str, T], bool]) -> bool:
    """One pass with a step back to the last star only: what an earlier one took can stay as it is."""
    at = here = 0
    back: tuple[int, int] | None = None
    while here < len(given):
        if at < len(pattern) and pattern[at] == star:
            back = (at, here)
            at += 1
        elif at < len(pattern) and fits(pattern[at], given[here]):
            at += 1
            here += 1
        elif back is not None:
            back = (back[0], back[1] + 1)
            at, here = back[0] + 1, back[1]
        else:
            return False
    while at < len(pattern) and pattern[at] == star:
        at += 1
    return at == len(pattern)
