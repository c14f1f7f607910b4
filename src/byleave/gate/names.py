"""Names of files that someone else executes, trusts or keeps secrets in.

The lists are data (`names.toml`); this module turns them into lookups. It answers questions about a spelling and
never looks at a file: a link to a protected file is the workspace's to find, by asking here again with the real name.
"""

import fnmatch
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from byleave.gate.text.characters import plain_form


@dataclass(frozen=True, slots=True)
class NameGroup:
    """Names that share a reason."""

    because: str
    directories: frozenset[str]
    files: frozenset[str]
    patterns: str
    """A regular expression; empty: none."""
    paths: tuple[str, ...]

    def holds(self, names: tuple[str, ...]) -> bool:
        last = names[-1]
        if last in self.files or not self.directories.isdisjoint(names):
            return True
        if self.patterns and _compiled(self.patterns).fullmatch(last):
            return True
        whole = f"/{'/'.join(names)}/"
        return any(path in whole for path in self.paths)


def _group(entry: dict[str, Any]) -> NameGroup:
    return NameGroup(
        because=entry.get("because", ""),
        directories=frozenset(entry.get("directories", ())),
        files=frozenset(entry.get("files", ())),
        patterns="|".join(f"(?:{fnmatch.translate(pattern)})" for pattern in entry.get("patterns", ())),
        paths=tuple(f"/{path}/" for path in entry.get("paths", ())),
    )


@cache
def _compiled(patterns: str) -> re.Pattern[str]:
    # When it is first asked for: compiling all of them takes longer than reading the lists.
    return re.compile(patterns)


_DATA: dict[str, Any] = tomllib.loads(
    resources.files(__name__.rpartition(".")[0]).joinpath("names.toml").read_text("utf-8")
)
_PROTECTED = tuple(_group(entry) for entry in _DATA["protected"])
_TRUSTED = tuple(_group(entry) for entry in _DATA["trusted"])
_SECRET = _group(_DATA["secrets"])
_SECRET_STEMS: frozenset[str] = frozenset(_DATA["secrets"]["data_stems"])
_SECRET_ENDINGS: frozenset[str] = frozenset(_DATA["secrets"]["data_endings"])
_NEVER_SECRET: frozenset[str] = frozenset(_DATA["secrets"]["never"])
_NEVER_ENDINGS: tuple[str, ...] = tuple(_DATA["secrets"]["never_endings"])
_AMBIGUOUS: frozenset[str] = frozenset(_DATA["secrets"]["ambiguous"])
_UNLESS_BELOW: frozenset[str] = frozenset(_DATA["secrets"]["unless_below"])
_UNLESS_WITHIN: frozenset[str] = frozenset(_DATA["secrets"]["unless_within"])
_COPIES: tuple[str, ...] = tuple(_DATA["secrets"]["copies"])


@dataclass(frozen=True, slots=True)
class NameGlobs:
    """A sort of names as globs, for a walk that steps through many; each fits at any depth."""

    directories: tuple[str, ...]
    """All below one is of the sort."""
    files: tuple[str, ...]


def secret_globs() -> NameGlobs:
    """Names of files that usually hold secrets, or may be copies of such; `secret_name` knows which do."""
    entry = _DATA["secrets"]
    stems = (name for stem in entry["data_stems"] for name in (stem, f"{stem}.*"))
    globs = _globs([entry])
    copies = (f"*{ending}" for ending in entry["copies"])
    return NameGlobs(globs.directories, (*globs.files, *stems, *entry["ambiguous"], *copies, "#*#"))


def trusted_globs(*, installed: bool = False) -> NameGlobs:
    """Names that someone executes or obeys, without those of installed code; or those alone."""
    return _globs([entry for entry in _DATA["trusted"] if entry.get("installed", False) is installed])


def _globs(entries: Iterable[dict[str, Any]]) -> NameGlobs:
    directories: list[str] = []
    files: list[str] = []
    for entry in entries:
        paths = [f"**/{path}" for path in entry.get("paths", ())]
        directories += [*entry.get("directories", ()), *paths]
        files += [*entry.get("files", ()), *entry.get("patterns", ()), *paths]
    return NameGlobs(tuple(directories), tuple(files))


def names_of(path: str) -> tuple[str, ...]:
    """The parts of a path as a careless file system would compare them: case, trailing dots and spaces,
    and what names a stream of a file (`x:y`) dropped."""
    return tuple(
        part if part == ".." else part.partition(":")[0].rstrip(" .") or part
        for part in plain_form(path).replace("\\", "/").split("/")
        if part not in ("", ".")
    ) or (".",)


@lru_cache(maxsize=4096)
def protected_name(path: str) -> str | None:
    """Why nothing but its owner may write here, or None."""
    names = names_of(path)
    return next((group.because for group in _PROTECTED if group.holds(names)), None)


@lru_cache(maxsize=4096)
def trusted_name(path: str) -> str | None:
    """Who executes or obeys this file, or None."""
    names = names_of(path)
    return next((group.because for group in _TRUSTED if group.holds(names)), None)


@lru_cache(maxsize=4096)
def secret_name(path: str) -> bool:
    """True if a file of this name usually holds secrets."""
    *above, last = names_of(path)
    return any(_holds_secrets((*above, name)) for name in (last, *_copied(last)))


def _copied(name: str) -> Iterator[str]:
    """Names of which this may be a copy: `a.key.bak`, `a.key~`, and the editors' own `#a.key#`, `.a.key.swp`."""
    bare = name.strip("#")
    while bare.endswith(_COPIES):
        bare = bare.removesuffix(next(ending for ending in _COPIES if bare.endswith(ending)))
    if bare and bare != name:
        yield from (bare, bare.removeprefix(".") or bare)


def _holds_secrets(names: tuple[str, ...]) -> bool:
    last = names[-1]
    if last in _NEVER_SECRET or last.endswith(_NEVER_ENDINGS):
        return False
    if _SECRET.holds(names) or (last in _AMBIGUOUS and _UNLESS_BELOW.isdisjoint(names[:-1])):
        return True
    stem, *within = last.lstrip(".").split(".")
    ending = within.pop() if within else ""
    return stem in _SECRET_STEMS and ending in _SECRET_ENDINGS and _UNLESS_WITHIN.isdisjoint(within)
