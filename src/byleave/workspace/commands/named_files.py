"""Files found by their names: with secrets, compiled for Python, or such that something executes or trusts them.

`find` walks directories by descriptor and steps through the gate's names one at a time (`Denials`), so it costs about
as much as listing them. It does not walk a link: the target counts, if it lies in the workspace. If each file counts, a
directory that a link leads to is searched under the link's name too (`.vscode -> tools/editor`), and so are the links
on the way. A directory that cannot be read counts as a whole. It opens no file and decides nothing.
"""

import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from byleave.gate import NameGlobs, secret_globs, secret_name, trusted_globs, trusted_name
from byleave.gate.paths import names_of
from byleave.protocol.errors import ToolFailure
from byleave.workspace.denied_paths import Denials, Live, Spot
from byleave.workspace.paths import parents_of

MAX_SECONDS = 20.0
MAX_DEPTH = 256
_MOST_LINKS = 40
"""The kernel follows no more."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, eq=False)
class Sort:
    """A category of names."""

    directories: Denials
    files: Denials
    maybe: Callable[[str], bool]
    """Quick filter: False for a file name that cannot fit, as most cannot."""
    holds: Callable[[str], bool]
    """The gate's own answer for a path that fits: it knows the exceptions."""
    by_file: bool
    """True if each file counts, and a link by its own name; else directories count whole, and a link by its target."""
    holding: frozenset[str]
    """Below one of these directories `holds` is asked about every file."""


def _sort(globs: NameGlobs, holds: Callable[[str], bool], *, by_file: bool = False) -> Sort:
    files = Denials(globs.files)
    return Sort(Denials(globs.directories), files, _maybe(globs.files), holds, by_file, frozenset(globs.holding))


def _maybe(globs: Iterable[str]) -> Callable[[str], bool]:
    """Filter for names that equal, begin, end with or hold a fixed part of a glob; globs of paths are left out."""
    pieces = [(glob.partition("*")[0], glob.rpartition("*")[2], glob) for glob in globs if "/" not in glob]
    exact = frozenset(glob for _, _, glob in pieces if "*" not in glob)
    starts = tuple(start for start, _, glob in pieces if "*" in glob and start)
    ends = tuple(end for start, end, glob in pieces if "*" in glob and not start and glob.count("*") == 1)
    held = {max(glob.split("*"), key=len) for start, _, glob in pieces if not start and glob.count("*") > 1}
    inside = re.compile("|".join(map(re.escape, sorted(held))) or r"(?!)").search
    # Other file systems drop final dots and blanks, and take what follows a colon for a stream.
    ends = (*ends, ".", " ")

    def maybe(name: str) -> bool:
        plain = name.lower()
        if plain in exact or plain.startswith(starts) or plain.endswith(ends) or ":" in plain or not plain.isascii():
            return True
        return inside(plain) is not None

    return maybe


@cache
def secrets() -> Sort:
    """Files that usually hold secrets."""
    return _sort(secret_globs(), secret_name)


@cache
def trusted() -> Sort:
    """Files that someone executes or obeys, except installed code."""
    return _sort(trusted_globs(), lambda path: trusted_name(path) is not None, by_file=True)


@cache
def trusted_or_head() -> Sort:
    """The same, and every file that could make its directory a repository."""
    globs = trusted_globs()
    return _sort(replace(globs, files=(*globs.files, "head")), lambda path: True, by_file=True)


@cache
def installed() -> Sort:
    """Directories of installed code."""
    return _sort(trusted_globs(installed=True), lambda path: False)


@cache
def compiled() -> Sort:
    """Compiled files that Python imports by themselves; those in `__pycache__` have a second ending before it."""
    return _sort(NameGlobs((), ("*.pyc",)), lambda path: path.rpartition("/")[2].count(".") == 1, by_file=True)


@cache
def repositories() -> Sort:
    """Directories of git and Byleave as a whole, and the `.git` file that points git to its directory."""
    names = (".git", ".byleave")
    return _sort(NameGlobs(names, names), lambda path: path.rpartition("/")[2].lower() in names)


def find(
    root: str,
    tops: Iterable[str],
    sort: Sort,
    *,
    passing: Sort | None = None,
    thorough: bool = False,
    links: dict[str, str] | None = None,
) -> list[str]:
    """Find workspace-relative real paths below `tops` that are of a sort.

    `passing`: directories of this sort are skipped. `links`: gets each link and its target as it is written. Raises
    ToolFailure if there is too much to search, unless `thorough`: then it takes as long as it takes, and directories
    that are too deep for anybody are skipped.
    """
    walk = _Walk(os.path.realpath(root), sort, passing, thorough=thorough, links=links)
    for top in tops:
        walk.take(os.path.realpath(os.path.join(walk.root, top)))
    walk.run()
    return sorted(walk.found)


def outermost(paths: Iterable[str], sort: Sort, also: Collection[str] = ()) -> list[str]:
    """Replace files below a directory of the sort, or one of `also`, by that directory."""
    found: dict[str, None] = {}
    for path in paths:
        above = parents_of(path)
        found[next((one for one in above if one in also or sort.directories.forbid(one)), path)] = None
    return list(found)


def links_on_the_way(root: str, path: str) -> list[str]:
    """The links in the workspace that a path leads through, workspace-relative; the path itself is left out."""
    found: list[str] = []
    at, rest = root, path.split("/")
    while rest and len(found) < _MOST_LINKS:
        at = os.path.normpath(os.path.join(at, rest.pop(0)))
        with suppress(OSError):
            text = os.readlink(at)
            found.append(os.path.relpath(at, root))
            at = "/" if text.startswith("/") else os.path.dirname(at)
            rest = text.split("/") + rest
    return [link for link in found if link != path and not link.startswith("../")]


def _always(name: str) -> bool:
    return True


def _prefix(path: str) -> str:
    return f"{path}/" if path else ""


@dataclass(frozen=True, slots=True, eq=False)
class _Top:
    """A directory to search."""

    path: str
    named: str
    """The path that its content is judged by: its own, or that of a link to it."""
    directories: Spot
    files: Spot


class _Walk:
    """One search through the workspace."""

    def __init__(
        self, root: str, sort: Sort, passing: Sort | None, *, thorough: bool, links: dict[str, str] | None
    ) -> None:
        self.root = root
        self._links = links
        self.found: set[str] = set()
        self._sort, self._passing = sort, passing
        self._thorough = thorough
        self._deadline = math.inf if thorough else time.monotonic() + MAX_SECONDS
        self._tops: list[_Top] = []
        self._seen: set[tuple[str, bool, Live, Live]] = set()

    def take(self, real: str, *, is_one: bool = False) -> None:
        """Add a real path to the search, if it lies in the workspace; the names on the way count too."""
        if real != self.root and not real.startswith(f"{self.root}/"):
            return
        path = real[len(self.root) + 1 :]
        if is_one and path and os.path.lexists(real) and not (self._sort.by_file and os.path.isdir(real)):
            self.found.add(path)
        elif os.path.isdir(real) and (self._sort.by_file or not self._sort.directories.forbid(path)):
            directories, files = self._sort.directories.top, self._sort.files.top
            for name in path.split("/") if path else ():
                directories, files = directories.below(name), self._file_spot(files, name)
            self._tops.append(_Top(path, path, directories, files))
        elif os.path.lexists(real) and (self._sort.directories.forbid(path) or self._sort.holds(path)):
            self.found.add(path)

    def run(self) -> None:
        while self._tops:
            top = self._tops.pop()
            try:
                fd = os.open(os.path.join(self.root, top.path), _DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError:
                if not top.path:
                    raise
                self.found.add(top.path)  # its content is unknown
                continue
            self._enter(fd, _prefix(top.path), _prefix(top.named), top.directories, top.files, 0)

    def _file_spot(self, files: Spot, name: str) -> Spot:
        below = files.below(name)
        # A directory with a file's name (a virtual environment called .env) says nothing about its content.
        return self._sort.files.top if below.forbidden else below

    def _enter(self, fd: int, prefix: str, named: str, directories: Spot, files: Spot, depth: int) -> None:
        """Search one directory. `prefix`: its real path; `named`: the path that its content is judged by."""
        inside: list[str] = []
        all_below = directories.forbidden
        # Within a pattern of several names, each name has to be compared.
        maybe = self._sort.maybe if files is self._sort.files.top else _always
        each = not self._sort.holding.isdisjoint(names_of(named))
        try:
            if depth > MAX_DEPTH and self._thorough:
                return
            if depth > MAX_DEPTH or time.monotonic() > self._deadline:
                raise ToolFailure(
                    "There is too much here to look through for names that must be kept apart; nothing was run.",
                    hint="Name a smaller directory.",
                )
            as_seen = prefix, all_below, directories.live, files.live
            if as_seen in self._seen:
                return
            self._seen.add(as_seen)  # one that is too deep may be reached by a link, too
            with os.scandir(fd) as entries:
                for entry in entries:
                    name = entry.name
                    if entry.is_dir(follow_symlinks=False):
                        inside.append(name)
                        continue
                    is_one = all_below or (
                        (each or (maybe(name) and files.below(name).forbidden)) and self._sort.holds(named + name)
                    )
                    if entry.is_symlink():
                        if self._links is not None:
                            with suppress(OSError):
                                self._links[prefix + name] = os.readlink(name, dir_fd=fd)
                        is_one = is_one or self._leads_in(directories, name)
                        real = os.path.realpath(f"{self.root}/{prefix}{name}")
                        self.take(real, is_one=is_one)
                        is_one = is_one and self._sort.by_file
                        if is_one:
                            self.found.update(links_on_the_way(self.root, prefix + name))
                            spots = directories.below(name), self._file_spot(files, name)
                            self._take_as(real, named + name, *spots)
                    if is_one:
                        self.found.add(prefix + name)
            for name in inside:
                self._descend(fd, name, prefix, named, directories.below(name), files, depth)
        finally:
            os.close(fd)

    def _leads_in(self, directories: Spot, name: str) -> bool:
        """True if a link has a directory's name, or the first of several (`.github`) if its own name counts."""
        below = directories.below(name)
        return below.forbidden or (self._sort.by_file and below is not self._sort.directories.top)

    def _take_as(self, real: str, named: str, directories: Spot, files: Spot) -> None:
        """Add the directory that a link leads to under the link's name, if it lies in the workspace."""
        if os.path.isdir(real) and f"{real}/".startswith(f"{self.root}/"):
            self._tops.append(_Top(real[len(self.root) + 1 :], named, directories, files))

    def _descend(self, fd: int, name: str, prefix: str, named: str, directories: Spot, files: Spot, depth: int) -> None:
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
            self.found.add(prefix + name)  # its content is unknown
            return
        spots = directories, self._file_spot(files, name)
        self._enter(child, f"{prefix}{name}/", f"{named}{name}/", *spots, depth + 1)
