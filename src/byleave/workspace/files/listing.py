"""list_directory: sorted, bounded, and never through a link.

Directories are read by descriptor and their children opened from it, so a directory that is swapped for a link while
the listing runs is not entered. A link is listed as what it leads to inside the workspace; one that leads outside or
nowhere is listed as a file with its own size, and nothing about its target is told. What the owner has ruled out is
neither listed nor entered. Bounds: entries, depth, time. What does not fit is counted all the same, for a while.
"""

import fnmatch
import os
import re
import stat
import threading
import time
from datetime import UTC, datetime

from byleave.protocol.errors import InvalidParameters
from byleave.protocol.tools import MAX_LISTING, DirectoryEntry, ListDirectoryParams, ListDirectoryResult
from byleave.protocol.wire import timestamp
from byleave.workspace.paths import PathValidator, is_open, told_of, visible
from byleave.workspace.sandbox.rulings import Forbidden, Rulings
from byleave.workspace.search.terms import expand_glob

_MAX_DEPTH = 64
_MAX_NAMES = 100_000
_MAX_SECONDS = 10.0
_COUNTING_SECONDS = 2.0
_LOOK_EVERY = 1024
_FIRST_SECOND = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK


class Listing:
    """One listing, from its parameters to its result."""

    def __init__(
        self,
        paths: PathValidator,
        params: ListDirectoryParams,
        stop: threading.Event,
        *,
        forbidden: Forbidden | None = None,
    ) -> None:
        pattern = params.pattern.removeprefix("**/") if params.recursive else params.pattern
        if "/" in pattern or "\x00" in pattern:
            raise InvalidParameters(
                f"The pattern {params.pattern!r} is for names and cannot hold a '/'.",
                hint="Name the directory in 'path'.",
            )
        self._paths = paths
        self._params = params
        self._stop = stop
        self._rulings = Rulings(forbidden)
        globs = expand_glob(pattern) if "{" in pattern or pattern.startswith("!") else [pattern]
        self._fits = re.compile("|".join(fnmatch.translate(glob) for glob in globs)).match
        self._hidden = any(glob.startswith(".") for glob in globs)
        self._deadline = time.monotonic() + _MAX_SECONDS
        self._entries: list[DirectoryEntry] = []
        self._count = 0
        self._at_least = False

    def run(self) -> ListDirectoryResult:
        path = self._params.path
        with told_of(path):
            fd = self._paths.open_raw(self._paths.relative(path), _READ_DIRECTORY)
            try:
                base = self._paths.real_path(fd)
                self._paths.refuse_closed(fd, os.fstat(fd))
                self._rulings.refuse(path, base)
                self._read(fd, "" if base == "." else base + "/", 0)
            finally:
                os.close(fd)
        return ListDirectoryResult(
            files=self._entries,
            total_count=self._count,
            truncated=self._at_least or self._count > len(self._entries),
            at_least=self._at_least,
        )

    def _read(self, fd: int, prefix: str, depth: int) -> None:
        for name in self._names(fd):
            if self._over():
                return
            if self._rulings.rules_out(prefix + name):
                continue
            try:
                info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except (FileNotFoundError, PermissionError):
                continue  # gone since it was named, or in a directory that tells names and nothing else
            is_directory = stat.S_ISDIR(info.st_mode)
            if self._fits(name):
                self._take(name, prefix, info)
            if self._params.recursive and is_directory and not name.startswith("."):
                self._descend(fd, name, prefix, depth + 1)

    def _take(self, name: str, prefix: str, info: os.stat_result) -> None:
        self._count += 1
        if self._count <= MAX_LISTING:
            self._entries.append(self._entry(name, prefix, info))
        elif self._count == MAX_LISTING + 1:
            self._deadline = min(self._deadline, time.monotonic() + _COUNTING_SECONDS)

    def _names(self, fd: int) -> list[str]:
        names: list[str] = []
        with os.scandir(fd) as entries:
            for number, entry in enumerate(entries, 1):
                if self._wanted(entry):
                    names.append(entry.name)
                if len(names) >= _MAX_NAMES or (number % _LOOK_EVERY == 0 and self._over()):
                    self._at_least = True
                    break
        names.sort()
        return names

    def _wanted(self, entry: os.DirEntry[str]) -> bool:
        if entry.name.startswith(".") and not self._hidden:
            return False
        return bool(self._fits(entry.name)) or (self._params.recursive and entry.is_dir(follow_symlinks=False))

    def _over(self) -> bool:
        over = time.monotonic() > self._deadline or self._stop.is_set()
        self._at_least = self._at_least or over
        return over

    def _descend(self, fd: int, name: str, prefix: str, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._at_least = True
            return
        try:
            child = self._paths.open_child(fd, name, _READ_DIRECTORY)
        except OSError:
            return  # no permission, another mount, or swapped for a link: its entry is listed, its inside is not
        try:
            if is_open(os.fstat(child)):
                self._read(child, f"{prefix}{name}/", depth)
        finally:
            os.close(child)

    def _entry(self, name: str, prefix: str, info: os.stat_result) -> DirectoryEntry:
        if stat.S_ISLNK(info.st_mode):
            info = self._behind(prefix + name) or info
        return DirectoryEntry(
            name=visible(name),
            path=visible(prefix + name),
            type="directory" if stat.S_ISDIR(info.st_mode) else "file",
            size=0 if stat.S_ISDIR(info.st_mode) else info.st_size,
            modified=_modified(info),
        )

    def _behind(self, relative: str) -> os.stat_result | None:
        try:
            fd = self._paths.open_raw(relative, os.O_PATH)
        except OSError:
            return None
        try:
            ruled_out = self._rulings.rules_out(self._paths.real_path(fd))
            return None if ruled_out else os.fstat(fd)
        except OSError:
            return None  # moved away since
        finally:
            os.close(fd)


def _modified(info: os.stat_result) -> str:
    """A file may bear any time; one that no calendar holds becomes the nearest that one does."""
    seconds = min(max(info.st_mtime, _FIRST_SECOND), _LAST_SECOND)
    return timestamp(datetime.fromtimestamp(seconds, UTC))
