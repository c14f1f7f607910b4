"""read_file, write_file and list_directory on the real file system.

`FileSystemExecutor` runs the blocking work in a small pool of its own threads, so that a slow disk never stops the
client. A cancelled call waits for its thread, which stops before it changes anything. Every open goes through the
`PathValidator`; no name is checked first and opened later. Nothing here decides whether a call may run.

A listing is sorted, bounded in entries, depth and time, and never follows a link into a directory. Directories are read
by descriptor and their children opened from it, so a directory swapped for a link meanwhile is not entered. A link is
listed as its target if that is inside the workspace; otherwise as a file with the link's own size, and nothing about
the target is revealed. Denied paths are neither listed nor entered. Entries over the limit are only counted, for a
limited time.
"""

import asyncio
import fnmatch
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from byleave.gate import mask_across_lines
from byleave.protocol.errors import InvalidParameters, PathValidationError, ToolFailure
from byleave.protocol.tools import (
    MAX_FILE_BYTES,
    MAX_LISTING,
    DirectoryEntry,
    ListDirectoryParams,
    ListDirectoryResult,
    ReadFileParams,
    ReadFileResult,
    WriteFileParams,
    WriteFileResult,
)
from byleave.protocol.wire import timestamp
from byleave.workspace.denied_paths import Forbidden, Rulings
from byleave.workspace.paths import PathValidator, is_open, names_directory, refuse_odd_kind, told_of, visible
from byleave.workspace.stopping import Stop, outlast

from .contents import count_lines, cut_lines, read_content
from .links import refuse_hidden_secret

if TYPE_CHECKING:
    from byleave.workspace.undo.recorder import KeptWrite

    from .writing import Replacing

_MAX_DEPTH = 64
_MAX_NAMES = 100_000
_MAX_SECONDS = 10.0
_COUNTING_SECONDS = 2.0
_LOOK_EVERY = 1024
_FIRST_SECOND = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK

Keep = Callable[["Replacing"], None]
AroundWrite = Callable[[Keep | None], AbstractContextManager[Keep]]
"""Entered while a file is written; what it gives is called right before the rename."""


def _without_braces(pattern: str) -> list[str]:
    """Expand a pattern as a search does. Imported here because few listings need it."""
    from byleave.workspace.search.executor import expand_glob

    return expand_glob(pattern)


class Listing:
    """One listing, from its parameters to its result."""

    def __init__(self, paths: PathValidator, params: ListDirectoryParams, stop: threading.Event) -> None:
        pattern = params.pattern.removeprefix("**/") if params.recursive else params.pattern
        if "/" in pattern or "\x00" in pattern:
            raise InvalidParameters(
                f"The pattern {params.pattern!r} is for names and cannot hold a '/'.",
                hint="Name the directory in 'path'.",
            )
        self._paths = paths
        self._params = params
        self._stop = stop
        self._rulings = Rulings(paths.forbidden)
        globs = _without_braces(pattern) if "{" in pattern or pattern.startswith("!") else [pattern]
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
                continue  # removed meanwhile, or in a directory that is readable but not searchable
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
            return  # no permission, another mount, or swapped for a link: listed but not entered
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
            return None  # moved out of the workspace meanwhile
        finally:
            os.close(fd)


def _modified(info: os.stat_result) -> str:
    """Format the modification time, clamped to the years that datetime supports."""
    seconds = min(max(info.st_mtime, _FIRST_SECOND), _LAST_SECOND)
    return timestamp(datetime.fromtimestamp(seconds, UTC))


T = TypeVar("T")

_THREADS = 4
_SMALL = 256 * 1024
# O_NONBLOCK: opening a FIFO must not wait for a writer.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


class FileSystemExecutor:
    """The file tools of one workspace."""

    def __init__(
        self, paths: PathValidator, *, max_file_bytes: int = MAX_FILE_BYTES, around_write: AroundWrite | None = None
    ) -> None:
        self._paths = paths
        self._around_write = around_write
        self._max_file_bytes = max_file_bytes
        self._small = min(_SMALL, max_file_bytes)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="byleave-files")

    async def read_file(self, params: ReadFileParams) -> ReadFileResult:
        cached = self._read_cached(params)
        return cached or await self._in_thread(lambda _: self.read_now(params))

    async def write_file(
        self,
        params: WriteFileParams,
        recording: "AbstractContextManager[KeptWrite] | None" = None,
        bound: Mapping[str, str] | None = None,
        *,
        until: float | None = None,
    ) -> WriteFileResult:
        """Write a file. `until`: nothing is written after this time (seconds since 1970)."""
        if recording is None:
            return await self._written(lambda stop: self.write_now(params, stop, bound=bound), until)
        return await self._written(lambda stop: self._write_recorded(params, stop, recording, bound), until)

    def _write_recorded(
        self,
        params: WriteFileParams,
        stop: threading.Event,
        recording: "AbstractContextManager[KeptWrite]",
        bound: Mapping[str, str] | None,
    ) -> WriteFileResult:
        with recording as kept:
            result = self.write_now(params, stop, kept.keep, bound)
            if kept.warning is None:
                return result
            return result.model_copy(update={"warnings": [*result.warnings, kept.warning]})

    async def list_directory(self, params: ListDirectoryParams) -> ListDirectoryResult:
        return await self._in_thread(lambda stop: Listing(self._paths, params, stop).run())

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _written(self, work: Callable[[threading.Event], T], until: float | None) -> T:
        """Run a write. If it took effect before it was cancelled, its result is returned."""
        stop = Stop(until)
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, stop)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError as cancelled:
            # The thread cannot be killed; it sees `stop` and leaves nothing behind.
            stop.set()
            try:
                return await outlast(future)
            except Exception:  # noqa: BLE001 - nothing was written, and the cancellation is the reason
                raise cancelled from None

    async def _in_thread(self, work: Callable[[threading.Event], T]) -> T:
        stop = Stop()
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, stop)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # retrieved, so that asyncio does not log it as never retrieved
            raise

    def _read_cached(self, params: ReadFileParams) -> ReadFileResult | None:
        """Read a small file from the page cache without a thread: ten times faster, and it never blocks."""
        if names_directory(params.path):
            return None
        fd = self._paths.open_cached(self._paths.relative(params.path), _READ)
        if fd is None:
            return None
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_size > self._small:
                return None  # read_now raises the right error
            self._paths.refuse_closed(fd, info)
            buffer = bytearray(info.st_size + 1)
            if os.preadv(fd, [buffer], 0, os.RWF_NOWAIT) != info.st_size:
                return None
        except OSError:
            return None
        finally:
            os.close(fd)
        del buffer[-1]
        return _result(params, bytes(buffer))

    def read_now(self, params: ReadFileParams) -> ReadFileResult:
        """read_file, in this thread."""
        if names_directory(params.path):
            raise ToolFailure(f"{params.path!r} names a directory, not a file.", hint="Use list_directory.")
        relative = self._paths.relative(params.path)
        with told_of(params.path):
            fd = self._paths.open_raw(relative, _READ)
            try:
                refuse_hidden_secret(relative, self._paths.real_path(fd))
                data = self._read_all(fd, params.path)
            finally:
                os.close(fd)
        return _result(params, data)

    def _read_all(self, fd: int, path: str) -> bytes:
        info = os.fstat(fd)
        refuse_odd_kind(info, path)
        self._paths.refuse_closed(fd, info)
        if info.st_size > self._max_file_bytes:
            raise self._too_large(path)
        # One byte more than its size: a short read proves the end, and the limit holds while the file grows.
        data = os.read(fd, info.st_size + 1)
        return data if len(data) == info.st_size else self._read_rest(fd, path, data)

    def _read_rest(self, fd: int, path: str, data: bytes) -> bytes:
        """Read on to the end of a file whose size was wrong, within the limit."""
        pieces, size = [data], len(data)
        while piece := os.read(fd, 1 << 20):
            pieces.append(piece)
            size += len(piece)
            if size > self._max_file_bytes:
                raise self._too_large(path)
        return b"".join(pieces)

    def _too_large(self, path: str) -> ToolFailure:
        return ToolFailure(
            f"{path!r} is larger than {self._max_file_bytes} bytes.", hint="Use search_files, or a command like head."
        )

    def write_now(
        self,
        params: WriteFileParams,
        stop: threading.Event | None = None,
        keep: Keep | None = None,
        bound: Mapping[str, str] | None = None,
    ) -> WriteFileResult:
        """write_file, in this thread. `bound`: the one file it may replace, with its digest."""
        from .writing import write_beneath

        try:
            data = params.content.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidParameters("The content holds half a surrogate pair, which is no text.") from error
        if self._paths.forbidden is not None:
            keep = partial(_keep_allowed, self._paths.forbidden, params.path, keep)
        with nullcontext(keep) if self._around_write is None else self._around_write(keep) as keep_old:
            return write_beneath(
                self._paths,
                params.path,
                data,
                append=params.mode == "append",
                max_bytes=self._max_file_bytes,
                stop=stop or threading.Event(),
                keep=keep_old,
                bound=bound,
            )


def _keep_allowed(forbidden: Forbidden, path: str, keep: Keep | None, replacing: "Replacing") -> None:
    """Refuse a denied path right before the rename: a new file has no descriptor to check before."""
    if forbidden(replacing.real):
        raise PathValidationError(f"{path!r} leads to {visible(replacing.real)!r}, which is denied.")
    if keep is not None:
        keep(replacing)


def _result(params: ReadFileParams, data: bytes) -> ReadFileResult:
    path = params.path
    content = read_content(data, path)
    if params.start_line is None and params.end_line is None:
        lines = None if content.encoding == "base64" else count_lines(content.text)
        return ReadFileResult(content=content.text, encoding=content.encoding, size=len(data), total_lines=lines)
    if content.encoding == "base64":
        raise InvalidParameters(f"{path!r} has no lines: it is a PDF or a picture.", hint="Leave out the range.")
    first = params.start_line or 1
    if params.end_line is not None and params.end_line < first:
        raise InvalidParameters(f"end_line {params.end_line} comes before start_line {first}.")
    # Masked before it is cut: a key's line alone does not look like one.
    cut = cut_lines(mask_across_lines(content.text), first, params.end_line)
    if cut.first > max(cut.total, 1):
        count = "1 line" if cut.total == 1 else f"{cut.total} lines"
        raise ToolFailure(f"{path!r} has {count}; there is no line {cut.first}.")
    return ReadFileResult(
        content=cut.text,
        encoding=content.encoding,
        size=len(data),
        start_line=cut.first,
        end_line=cut.last,
        total_lines=cut.total,
    )
