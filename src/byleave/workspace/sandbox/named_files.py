"""Finding files by what their names say: those that hold secrets, and those that something executes or trusts.

`find` walks directories by descriptors and steps through the gate's names one at a time (`denials`), so that it costs
about as much as listing them. A link is not walked: what it leads to counts, where that lies in the workspace. A
directory that cannot be looked into counts as a whole. It opens no file and decides nothing.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from byleave.gate import NameGlobs, secret_globs, secret_name, trusted_globs, trusted_name
from byleave.protocol.errors import ToolFailure

from .denied_patterns import Denials, Spot

MAX_SECONDS = 20.0
MAX_DEPTH = 256
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, eq=False)
class Sort:
    """One sort of names."""

    directories: Denials
    files: Denials
    maybe: Callable[[str], bool]
    """Whether a file's name is worth a closer look; most are not, and are told at once."""
    holds: Callable[[str], bool]
    """The gate's own answer for a path that fits: it knows the exceptions."""
    by_file: bool
    """Whether each file counts, and a link by its own name; else a directory does as a whole, and a link's target."""


def _sort(globs: NameGlobs, holds: Callable[[str], bool], *, by_file: bool = False) -> Sort:
    return Sort(Denials(globs.directories), Denials(globs.files), _maybe(globs.files), holds, by_file)


def _maybe(globs: Iterable[str]) -> Callable[[str], bool]:
    """A name fits one of the globs only if it is so, begins so, ends so or holds so. A path is not looked at."""
    pieces = [(glob.partition("*")[0], glob.rpartition("*")[2], glob) for glob in globs if "/" not in glob]
    exact = frozenset(glob for _, _, glob in pieces if "*" not in glob)
    starts = tuple(start for start, _, glob in pieces if "*" in glob and start)
    ends = tuple(end for start, end, glob in pieces if "*" in glob and not start and glob.count("*") == 1)
    inside = tuple(max(glob.split("*"), key=len) for start, _, glob in pieces if not start and glob.count("*") > 1)
    # Other file systems drop what stands at the end, and take what follows a colon for something else.
    ends = (*ends, ".", " ")

    def maybe(name: str) -> bool:
        plain = name.lower()
        if plain in exact or plain.startswith(starts) or plain.endswith(ends) or ":" in plain or not plain.isascii():
            return True
        return any(piece in plain for piece in inside)

    return maybe


@cache
def secrets() -> Sort:
    """Files that usually hold secrets."""
    return _sort(secret_globs(), secret_name)


@cache
def trusted() -> Sort:
    """Files that someone executes or obeys, but for installed code."""
    return _sort(trusted_globs(), lambda path: trusted_name(path) is not None, by_file=True)


@cache
def installed() -> Sort:
    """Directories of installed code."""
    return _sort(trusted_globs(installed=True), lambda path: False)


def find(root: str, tops: Iterable[str], sort: Sort, *, passing: Sort | None = None) -> list[str]:
    """What lies below `tops` and is of a sort: paths from the workspace, each at its real place.

    `passing`: directories of this sort are passed over. Raises ToolFailure where there is too much to look at.
    """
    walk = _Walk(os.path.realpath(root), sort, passing)
    for top in tops:
        walk.take(os.path.realpath(os.path.join(walk.root, top)))
    walk.run()
    return sorted(walk.found)


def outermost(paths: Iterable[str], sort: Sort) -> list[str]:
    """Files of a sort, with each directory of it in place of what lies below."""
    found: dict[str, None] = {}
    for path in paths:
        names = path.split("/")
        above = ("/".join(names[:depth]) for depth in range(1, len(names)))
        found[next((one for one in above if sort.directories.forbid(one)), path)] = None
    return list(found)


def _always(name: str) -> bool:
    return True


class _Walk:
    """One look through the workspace."""

    def __init__(self, root: str, sort: Sort, passing: Sort | None) -> None:
        self.root = root
        self.found: set[str] = set()
        self._sort, self._passing = sort, passing
        self._deadline = time.monotonic() + MAX_SECONDS
        self._tops: list[str] = []
        self._seen: set[str] = set()

    def take(self, real: str, *, is_one: bool = False) -> None:
        """Note a real path to look at, if it lies in the workspace: what the names on the way say counts too."""
        if real != self.root and not real.startswith(f"{self.root}/"):
            return
        path = real[len(self.root) + 1 :]
        if is_one and path and os.path.lexists(real):
            self.found.add(path)
        elif os.path.isdir(real) and (self._sort.by_file or not self._sort.directories.forbid(path)):
            self._tops.append(path)
        elif os.path.lexists(real) and (self._sort.directories.forbid(path) or self._sort.holds(path)):
            self.found.add(path)

    def run(self) -> None:
        while self._tops:
            path = self._tops.pop()
            if path in self._seen:
                continue
            directories, files = self._sort.directories.top, self._sort.files.top
            for name in path.split("/") if path else ():
                directories, files = directories.below(name), self._file_spot(files, name)
            with suppress(FileNotFoundError, NotADirectoryError):
                fd = os.open(os.path.join(self.root, path), _DIRECTORY)
                self._enter(fd, f"{path}/" if path else "", directories, files, 0)

    def _file_spot(self, files: Spot, name: str) -> Spot:
        below = files.below(name)
        # A directory that bears a file's name (a virtual environment called .env) says nothing of what is in it.
        return self._sort.files.top if below.forbidden else below

    def _enter(self, fd: int, prefix: str, directories: Spot, files: Spot, depth: int) -> None:
        self._seen.add(prefix[:-1])
        inside: list[str] = []
        all_below = directories.forbidden
        # On the way to a path of several names, each name has to be compared.
        maybe = self._sort.maybe if files is self._sort.files.top else _always
        try:
            if depth > MAX_DEPTH or time.monotonic() > self._deadline:
                raise ToolFailure(
                    "There is too much here to look through for names that must be kept apart; nothing was run.",
                    hint="Name a smaller directory.",
                )
            with os.scandir(fd) as entries:
                for entry in entries:
                    name = entry.name
                    if entry.is_dir(follow_symlinks=False):
                        inside.append(name)
                        continue
                    is_one = all_below or (
                        maybe(name) and files.below(name).forbidden and self._sort.holds(prefix + name)
                    )
                    if entry.is_symlink():
                        is_one = is_one or self._leads_in(directories, name)
                        self.take(os.path.realpath(f"{self.root}/{prefix}{name}"), is_one=is_one)
                        is_one = is_one and self._sort.by_file
                    if is_one:
                        self.found.add(prefix + name)
            for name in inside:
                self._descend(fd, name, prefix, directories.below(name), files, depth)
        finally:
            os.close(fd)

    def _leads_in(self, directories: Spot, name: str) -> bool:
        """Whether a link bears a directory's name, or the first of several (`.github`) where its own name counts."""
        below = directories.below(name)
        return below.forbidden or (self._sort.by_file and below is not self._sort.directories.top)

    def _descend(self, fd: int, name: str, prefix: str, directories: Spot, files: Spot, depth: int) -> None:
        if self._passing is not None and self._passing.directories.forbid(name):
            return
        if directories.forbidden and not self._sort.by_file:
            self.found.add(prefix + name)
            return
        try:
            child = os.open(name, _DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            return
        except OSError:
            self.found.add(prefix + name)  # what is in it cannot be told
            return
        self._enter(child, f"{prefix}{name}/", directories, self._file_spot(files, name), depth + 1)
