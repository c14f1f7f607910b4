"""read_file, write_file and list_directory on the real file system.

`FileSystemExecutor` runs the blocking work in a small pool of its own threads, so that a slow disk never stops the
client. A cancelled call waits for its thread, which gives up before it changes anything. Every open goes through the
`PathValidator`; no name is looked at first and opened later. Whether a call may run was decided before.
"""

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

from byleave.protocol.errors import InvalidParameters, ToolFailure
from byleave.protocol.tools import (
    MAX_FILE_BYTES,
    ListDirectoryParams,
    ListDirectoryResult,
    ReadFileParams,
    ReadFileResult,
    WriteFileParams,
    WriteFileResult,
)
from byleave.workspace.paths import PathValidator, names_directory, told_of
from byleave.workspace.stopping import Stop, outlast
from byleave.workspace.undo.recorder import KeptWrite

from .contents import count_lines, cut_lines, read_content
from .link_checks import refuse_hidden_secret
from .listing import Listing
from .writing import Replacing, write_beneath

T = TypeVar("T")

_THREADS = 4
_SMALL = 256 * 1024
# O_NONBLOCK: opening a FIFO must not wait for a writer.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


class FileSystemExecutor:
    """The file tools of one workspace."""

    def __init__(self, paths: PathValidator, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._paths = paths
        self._max_file_bytes = max_file_bytes
        self._small = min(_SMALL, max_file_bytes)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="byleave-files")

    async def read_file(self, params: ReadFileParams) -> ReadFileResult:
        cached = self._read_cached(params)
        return cached or await self._in_thread(lambda _: self.read_now(params))

    async def write_file(
        self,
        params: WriteFileParams,
        recording: AbstractContextManager[KeptWrite] | None = None,
        bound: Mapping[str, str] | None = None,
        *,
        until: float | None = None,
    ) -> WriteFileResult:
        """`until`: nothing is written after it (seconds since 1970)."""
        if recording is None:
            return await self._written(lambda stop: self.write_now(params, stop, bound=bound), until)
        return await self._written(lambda stop: self._write_recorded(params, stop, recording, bound), until)

    def _write_recorded(
        self,
        params: WriteFileParams,
        stop: threading.Event,
        recording: AbstractContextManager[KeptWrite],
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
        """A write that was done before it was called off, or before its time was up, is told as done."""
        stop = Stop(until)
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, stop)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError as cancelled:
            # The thread cannot be ended from outside; it sees `stop` and leaves nothing behind.
            stop.set()
            try:
                return await outlast(future)
            except Exception:  # noqa: BLE001 - whatever went wrong: nothing was done, and that it was called off is why
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
                future.exception()  # looked at, so that it is not reported as forgotten
            raise

    def _read_cached(self, params: ReadFileParams) -> ReadFileResult | None:
        """A small file that lies in the kernel's memory is read without a thread, ten times faster, and never waits."""
        if names_directory(params.path):
            return None
        fd = self._paths.open_cached(self._paths.relative(params.path), _READ)
        if fd is None:
            return None
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_size > self._small:
                return None  # what is wrong with it is told by the other way
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
        # One byte more than its size: a short answer proves the end, and the cap holds while the file grows.
        data = os.read(fd, info.st_size + 1)
        return data if len(data) == info.st_size else self._read_rest(fd, path, data)

    def _read_rest(self, fd: int, path: str, data: bytes) -> bytes:
        """For a file whose size was not what it said: read on to its end, within the limit."""
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
        keep: Callable[[Replacing], None] | None = None,
        bound: Mapping[str, str] | None = None,
    ) -> WriteFileResult:
        """write_file, in this thread. `bound`: only where this (one file and its digest) is what it replaces."""
        try:
            data = params.content.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidParameters("The content holds half a surrogate pair, which is no text.") from error
        return write_beneath(
            self._paths,
            params.path,
            data,
            append=params.mode == "append",
            max_bytes=self._max_file_bytes,
            stop=stop or threading.Event(),
            keep=keep,
            bound=bound,
        )


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
    cut = cut_lines(content.text, first, params.end_line)
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


def refuse_odd_kind(info: os.stat_result, path: str) -> None:
    """Only regular files are read: a FIFO blocks, a device never ends."""
    if stat.S_ISREG(info.st_mode):
        return
    if stat.S_ISDIR(info.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    kind = kinds.get(stat.S_IFMT(info.st_mode), "something else")
    raise ToolFailure(f"{path!r} is {kind}, not a regular file.")
