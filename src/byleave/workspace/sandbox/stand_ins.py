"""Stand-ins: empty directories in place of missing protected names, while commands run.

A missing name cannot be mounted read-only, so a command could create it. A stand-in takes its place and is removed when
the last command that needs it has ended, by rmdir alone: files that somebody put into it stay. It is a directory even
if the name belongs to a file, because git does not see an empty directory. Each holder locks it, so that a second
client on the same workspace does not remove it, and stamps it, so that one left by a killed client is recognised and
removed. Before the stamp, its mode identifies it.
"""

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from byleave.protocol.errors import ToolFailure

_STAMP = 1_000_000_007
"""Its modification time in seconds. It is set once; creating a file in it changes it."""
STAMP_NS = _STAMP * 10**9
_MODE = 0o755 | stat.S_ISVTX
"""With the sticky bit, which no other directory of these names has."""
_TRIES = 20
_PAUSE_SECONDS = 0.001


@dataclass(slots=True)
class _Held:
    fd: int
    users: int = 1


class StandIns:
    """The stand-ins of one workspace, shared by the commands of this client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    @contextmanager
    def placed(self, root_fd: int, names: Sequence[str]) -> Generator[None]:
        """Keep a stand-in at each of `names` that is free, for the time of the block."""
        mine: list[str] = []
        try:
            with self._lock:
                for name in names:
                    if self._take(root_fd, name):
                        mine.append(name)
            yield
        finally:
            with self._lock:
                freed = [fd for name in mine if (fd := self._release(root_fd, name)) is not None]
            for fd in freed:
                os.close(fd)

    @property
    def names(self) -> frozenset[str]:
        """Names that have a stand-in of this client; if its stamp (`STAMP_NS`) is gone, somebody uses it."""
        with self._lock:
            return frozenset(self._held)

    def _take(self, root_fd: int, name: str) -> bool:
        held = self._held.get(name)
        if held is not None and _is_at(root_fd, name, held.fd):
            held.users += 1
            return True
        fd = self._placed(root_fd, name)
        if fd is None:
            return False
        if held is not None:  # somebody outside removed it while a command still runs
            os.close(held.fd)
            held.fd = fd
            held.users += 1
        else:
            self._held[name] = _Held(fd)
        return True

    def _placed(self, root_fd: int, name: str) -> int | None:
        """Create a stand-in or take over an existing one; None if something else is there or it cannot be created."""
        for _ in range(_TRIES):
            made = _made(root_fd, name)
            if made is None:
                return None
            try:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
            except FileNotFoundError:
                continue  # another client removed it just now
            except OSError:
                return None  # not a directory, so not a stand-in
            taken = None
            try:
                taken = _taken(root_fd, name, fd, made=made)
            finally:
                if not taken:
                    os.close(fd)
            if taken is not None:
                return fd if taken else None
        raise ToolFailure(f"{name!r} could not be protected from the command: it comes and goes, or is held.")

    def remove_left(self, root_fd: int, names: Sequence[str]) -> None:
        """Remove the stand-ins of killed clients. Call it before the first command."""
        for name in names:
            try:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
            except OSError:
                continue
            if _is_ours(os.fstat(fd)):
                _remove(root_fd, name, fd)
            os.close(fd)

    def _release(self, root_fd: int, name: str) -> int | None:
        """Remove the stand-in if this was its last user; return the descriptor to close then."""
        held = self._held[name]
        held.users -= 1
        if held.users:
            return None
        del self._held[name]
        _remove(root_fd, name, held.fd)
        return held.fd


def _remove(root_fd: int, name: str, fd: int) -> None:
    try:
        # Only the last client on this workspace may remove it: rmdir would end the others' mounts too.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(root_fd, name, fd):
            os.rmdir(name, dir_fd=root_fd)
    except OSError:
        pass  # another client holds it, or somebody outside put a file into it


def _taken(root_fd: int, name: str, fd: int, *, made: bool) -> bool | None:
    """Lock and stamp the opened directory, whoever made it. False: no stand-in. None: it is being removed; retry."""
    # One made just now is not checked: not every file system keeps modes and owners.
    ours = made or _is_ours(os.fstat(fd))
    try:
        # Lock only stand-ins, and never wait: a command can lock any file it can open, and keep the lock.
        if ours:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        # Another client is removing it, which takes less than this pause. Nothing else is waited for.
        time.sleep(_PAUSE_SECONDS)
        return None
    if not _is_at(root_fd, name, fd):
        return None
    if not ours or os.listdir(fd):
        return False
    if not _stamped(os.fstat(fd)):
        os.utime(fd, (_STAMP, _STAMP))
    return True


def is_stand_in(root_fd: int, name: str) -> bool:
    """True if the name is a stand-in: stamped and empty."""
    try:
        if not _stamped(os.stat(name, dir_fd=root_fd, follow_symlinks=False)):
            return False
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
    except OSError:
        return False
    try:
        return not os.listdir(fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def _stamped(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_mtime_ns == STAMP_NS


def _is_ours(found: os.stat_result) -> bool:
    """True if it was made as a stand-in: by its stamp, or by its mode, which it has from the start."""
    made = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and found.st_uid == os.geteuid()
    return bool(made) or _stamped(found)


def _made(root_fd: int, name: str) -> bool | None:
    """True: created. False: something is there. None: it cannot be created, not even by the command."""
    try:
        os.mkdir(name, _MODE, dir_fd=root_fd)
    except FileExistsError:
        return False
    except OSError as error:
        # The directory's owner could restore its own write permission.
        if error.errno == errno.EROFS or (error.errno == errno.EACCES and os.fstat(root_fd).st_uid != os.geteuid()):
            return None
        if error.errno == errno.EACCES:
            raise ToolFailure(
                f"{name!r} could not be protected from the command, because nothing can be made in the workspace.",
                hint="Give the workspace's directory back its right to write: chmod u+wx",
            ) from error
        raise ToolFailure(f"{name!r} could not be protected from the command: {error.strerror}.") from error
    return True


def _is_at(root_fd: int, name: str, fd: int) -> bool:
    try:
        found = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return False
    own = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)
