"""Bound files: the files an approval is tied to, held from the last check to the command's start.

The files are watched, then read and compared, and the compared bytes are kept; the sandbox mounts these bytes over the
files, so that a later write changes nothing. A mount cannot hold a name: renaming another file over it removes the
mount. So for the first seconds, while a command reads what it runs, a change of any name on the path is drift: the
command is killed and its output is withheld. One gap remains: a process that already runs in the same workspace can,
in the milliseconds until the kill, get its own content started, in the same sandbox it has itself. Only bubblewrap
covers the files, and only if no other command that could write runs; else the watch alone is left. Files that were
missing are only checked before the start, as are files that the command itself is meant to rewrite (`npm install`).
"""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from byleave.protocol.errors import ByleaveError, DriftedError, ToolFailure
from byleave.protocol.tools import MAX_FILE_BYTES
from byleave.workspace.files.inspection import Look, look_at, refuse_stand_in
from byleave.workspace.paths import PathValidator, path_error
from byleave.workspace.sandbox.sandbox import BoundFile
from byleave.workspace.stopping import MISSING, drifted

START_SECONDS = 10.0
"""Time for a command to read the files it runs."""

_MODIFY = 0x2
_NAMES = 0x40 | 0x80 | 0x100 | 0x200  # moved from, moved to, created, deleted
_OVERFLOW, _IGNORED, _UNMOUNT = 0x4000, 0x8000, 0x2000
_ONLY_DIRECTORIES, _ADD = 0x01000000, 0x20000000
_EVENT = struct.Struct("iIII")
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors that say that the file is not what was shown; any other says nothing about it."""
_libc = ctypes.CDLL(None, use_errno=True)


def _unusable(path: str, error: OSError) -> ByleaveError:
    """The error for a bound file that cannot be opened or read."""
    if error.errno in _GONE:
        return drifted(path)
    told = path_error(path, error)
    return type(told)(f"{told.message} Nothing was run.", hint=told.hint)


class Holding:
    """The bound files of one command, while it starts."""

    def __init__(self, paths: PathValidator, bound: Mapping[str, str], *, watch: bool, max_bytes: int) -> None:
        self._paths = paths
        self._bound = bound
        self._watches = watch
        self._watch: _Watch | None = None
        self._max_bytes = max_bytes
        self.bound_files: list[BoundFile] = []
        self.covered = False
        """True if the sandbox mounted the approved bytes over the files; else a write to one is drift too."""
        self.drifted: str | None = None
        self.over = asyncio.Event()
        """Set when the files may change again."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def real(self) -> set[str]:
        return {file.path for file in self.bound_files}

    def take(self) -> None:
        """Compare every file with its approved digest, and keep the compared bytes."""
        for path, digest in self._bound.items():
            before = self._real(path) if digest != MISSING else None
            if before is not None and self._watches:
                self._watch = self._watch or _Watch(self._paths)
                self._watch.add(self._paths.relative(path), path)
                self._watch.add(before, path)
            try:
                look = self._take(path)
                refuse_stand_in(self._paths, look, self._bound)
            except OSError as error:
                raise _unusable(path, error) from error
            except ByleaveError as error:
                if isinstance(error.__cause__, OSError) and error.__cause__.errno not in _GONE:
                    raise _unusable(path, error.__cause__) from error
                raise DriftedError(f"{error.message} Nothing was run.", hint=error.hint) from error
            if look.sha256 != digest or (digest != MISSING and look.real != before):
                raise drifted(path)

    def _real(self, path: str) -> str:
        try:
            fd = self._paths.open_raw(self._paths.relative(path), os.O_PATH)
            try:
                return self._paths.real_path(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise _unusable(path, error) from error

    def _take(self, path: str) -> Look:
        fd = os.memfd_create("bound", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(fd), "wb") as copy:
                look = look_at(self._paths, path, max_bytes=self._max_bytes, keep=copy.write)
            os.lseek(fd, 0, os.SEEK_SET)
        except BaseException:
            os.close(fd)
            raise
        if self._watch is None or look.real is None or look.is_directory:
            os.close(fd)
        else:
            self.bound_files.append(BoundFile(look.real, fd, look.mode & 0o777 | 0o400))
        return look

    def check(self) -> None:
        """Raise DriftedError if anything changed since the comparison. Call it right before the start."""
        if self.changed():
            raise drifted(self.drifted or "")

    def changed(self) -> bool:
        """True if a file or a name on its path changed since the comparison."""
        if self._watch is not None and not self.over.is_set():
            self.drifted = self.drifted or self._watch.changed(covered=self.covered)
        return self.drifted is not None

    def begin(self, kill: Callable[[], object]) -> None:
        """Watch the start: call `kill` at a change, until `end` or until the start is over."""
        if self._watch is None:
            return

        def look(*, last: bool = False) -> None:
            if self.changed():
                kill()
            elif last:
                self.end()

        loop = asyncio.get_running_loop()
        loop.add_reader(self._watch.fd, look)
        self._timer = loop.call_later(START_SECONDS, lambda: look(last=True))

    def end(self) -> None:
        """The start is over; the files may change again."""
        if self._timer is not None and self._watch is not None:
            self._timer.cancel()
            self._timer = None
            asyncio.get_running_loop().remove_reader(self._watch.fd)
        self.over.set()

    def close(self) -> None:
        self.end()
        for file in self.bound_files:
            os.close(file.fd)
        if self._watch is not None:
            self._watch.close()


class HeldFiles:
    """All holdings of one workspace."""

    def __init__(self, paths: PathValidator, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._paths = paths
        self._max_bytes = max_bytes
        self._holdings: set[Holding] = set()

    @asynccontextmanager
    async def hold(self, bound: Mapping[str, str], *, watch: bool = True) -> AsyncGenerator[Holding]:
        """Compare files with their digests and hold them while a command starts. Raises DriftedError."""
        holding = Holding(self._paths, bound, watch=watch, max_bytes=self._max_bytes)
        self._holdings.add(holding)
        try:
            await asyncio.to_thread(holding.take)
            yield holding
        finally:
            self._holdings.discard(holding)
            holding.close()

    async def free(self, path: str) -> None:
        """Wait until no starting command holds the file at `path`: our own write must not count as drift."""
        while self._holdings:
            try:
                fd = self._paths.open_raw(self._paths.relative(path), os.O_PATH)
            except (OSError, ByleaveError):
                return  # the write itself raises the error
            try:
                real = self._paths.real_path(fd)
            except OSError:
                return
            finally:
                os.close(fd)
            holding = next((one for one in self._holdings if real in one.real and not one.over.is_set()), None)
            if holding is None:
                return
            await holding.over.wait()


class _Watch:
    """inotify watches on every directory of the files' paths."""

    def __init__(self, paths: PathValidator) -> None:
        self._paths = paths
        self.fd = int(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self.fd < 0:
            raise ToolFailure(
                f"The files it would run cannot be watched: {os.strerror(ctypes.get_errno())}.",
                hint="raise fs.inotify.max_user_instances, or close programs that watch files",
            )
        self._names: dict[tuple[int, bytes], tuple[str, bool]] = {}
        """From a watched directory and a name in it to the bound path, and True if the name is the file itself."""

    def add(self, way: str, path: str) -> None:
        """Watch each name on `way`, one spelling of `path`."""
        parts = way.split("/")
        for index, name in enumerate(parts):
            if name == "..":
                continue
            try:
                directory = self._paths.open_raw("/".join(parts[:index]) or ".", os.O_PATH | os.O_DIRECTORY)
            except OSError as error:
                raise _unusable(path, error) from error
            try:
                watch = self._add(directory)
            finally:
                os.close(directory)
            self._names[watch, os.fsencode(name)] = (path, index == len(parts) - 1)

    def _add(self, directory: int) -> int:
        mask = _NAMES | _MODIFY | _ONLY_DIRECTORIES | _ADD
        watch = int(_libc.inotify_add_watch(self.fd, f"/proc/self/fd/{directory}".encode(), mask))
        if watch < 0:
            raise ToolFailure(
                f"The files it would run cannot be watched: {os.strerror(ctypes.get_errno())}.",
                hint="raise fs.inotify.max_user_watches, or close programs that watch files",
            )
        return watch

    def changed(self, *, covered: bool) -> str | None:
        """Return the first path that changed since the last call. Writes count unless the files are `covered`."""
        found: str | None = None
        while True:
            try:
                data = os.read(self.fd, 64 * 1024)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                at += _EVENT.size + length
                found = found or self._meaning(watch, mask, name, covered=covered)

    def _meaning(self, watch: int, mask: int, name: bytes, *, covered: bool) -> str | None:
        if mask & (_OVERFLOW | _UNMOUNT | _IGNORED):
            return next(iter(self._names.values()))[0]  # events were lost, so it counts as a change
        path, is_file = self._names.get((watch, name), (None, False))
        if path is None or (mask & _MODIFY and (covered or not is_file)):
            return None
        return path

    def close(self) -> None:
        os.close(self.fd)
