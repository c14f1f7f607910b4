"""Getting many files onto the disk together, before any of them takes its name.

A sync for each of thousands of files takes longer than anybody waits. `Settling` takes what was written and syncs all
of it at once: each by itself where there are few, the file system where there are many and the system can do that.
What was added is on the disk when the block ends, or the block raises. Nothing here gives a file the name it will have.
"""

import contextlib
import ctypes
import os
from types import TracebackType

from byleave.workspace.undo.snapshots import State

from .drafts import take_attributes_of
from .swapping import new_name

FEW = 16
"""Up to so many are synced one by one: that does not wait for what others wrote to the disk."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


class Settling:
    """Open files and directories whose content is on the disk when the block ends."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._devices: dict[int, int] = {}
        """By file system, one of them that is open."""
        self._count = 0

    def add(self, fd: int) -> None:
        self._count += 1
        if not hasattr(_libc, "syncfs"):
            os.fsync(fd)
            return
        if self._count <= FEW:
            self._first.append(os.dup(fd))
        device = os.fstat(fd).st_dev
        if device not in self._devices:
            self._devices[device] = os.dup(fd)

    def __enter__(self) -> "Settling":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None and self._count <= FEW:
                for fd in self._first:
                    os.fsync(fd)
            elif kind is None:
                for fd in self._devices.values():
                    _sync_file_system(fd)
        finally:
            for fd in (*self._first, *self._devices.values()):
                os.close(fd)


def _sync_file_system(fd: int) -> None:
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def write_draft(dir_fd: int, name: str, state: State, data: bytes, settling: Settling) -> str:
    """A file beside the one it will replace, with its content, mode and owner; its name for the time between."""
    draft = new_name()
    fd = os.open(draft, _CREATE, 0o600, dir_fd=dir_fd)
    try:
        give(fd, state)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fchmod(fd, state.mode & 0o777)  # never set-uid
        take_attributes_of(name, dir_fd, fd)
        settling.add(fd)
    except BaseException:
        os.unlink(draft, dir_fd=dir_fd)
        raise
    finally:
        os.close(fd)
    return draft


def give(name: str | int, state: State, dir_fd: int | None = None) -> None:
    """To its old owner; only root may give files away."""
    with contextlib.suppress(PermissionError):
        if isinstance(name, int):
            os.fchown(name, *state.owner)
        else:
            os.chown(name, *state.owner, dir_fd=dir_fd, follow_symlinks=False)
