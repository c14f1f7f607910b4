"""Stand-ins for protected names that are missing: empty directories, there for the time of a command.

A name that is not there cannot be mounted read-only, so a command could make it. A stub takes its place and is removed
when the last command that needs it has ended, by rmdir alone: what somebody put into it stays. It is a directory also
where a file belongs, because git does not see an empty directory. Each holder locks it, so that a second client on the
same workspace never takes it away, and stamps it, so that one left by a client that was killed is known and removed;
until it is stamped, its mode tells.
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
"""Seconds of its modification time; set once, and changed by whatever is put into it."""
STAMP_NS = _STAMP * 10**9
_MODE = 0o755 | stat.S_ISVTX
"""As no directory of these names is made otherwise."""
_TRIES = 20
_PAUSE_SECONDS = 0.001


@dataclass(slots=True)
class _Held:
    fd: int
    users: int = 1


class StandIns:
    """The stubs of one workspace, shared by the commands of this client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    @contextmanager
    def placed(self, root_fd: int, names: Sequence[str]) -> Generator[None]:
        """Keep a stub at each of `names` where nothing else is, for the time of the block."""
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

    def hold(self, name: str, found: os.stat_result) -> bool:
        """True if what was found at this name is a stub that a command of this client keeps there."""
        with self._lock:
            return name in self._held and _stamped(found)

    def _take(self, root_fd: int, name: str) -> bool:
        held = self._held.get(name)
        if held is not None and _is_at(root_fd, name, held.fd):
            held.users += 1
            return True
        fd = self._placed(root_fd, name)
        if fd is None:
            return False
        if held is not None:  # somebody outside took it away, under a command that still runs
            os.close(held.fd)
            held.fd = fd
            held.users += 1
        else:
            self._held[name] = _Held(fd)
        return True

    def _placed(self, root_fd: int, name: str) -> int | None:
        """Make a stub or take over one that was left; None when something else is there."""
        for _ in range(_TRIES):
            made = _made(root_fd, name)
            if made is None:
                return None
            try:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
            except FileNotFoundError:
                continue  # another client removed it just now
            except OSError:
                return None  # it is no directory, so it is no stub
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
        """Take away what clients that were killed left; before the first command."""
        for name in names:
            try:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
            except OSError:
                continue
            if _is_ours(os.fstat(fd)):
                _remove(root_fd, name, fd)
            os.close(fd)

    def _release(self, root_fd: int, name: str) -> int | None:
        """Take the stub away where this was the last that needed it; gives what is then to be closed."""
        held = self._held[name]
        held.users -= 1
        if held.users:
            return None
        del self._held[name]
        _remove(root_fd, name, held.fd)
        return held.fd


def _remove(root_fd: int, name: str, fd: int) -> None:
    try:
        # Only the last client on this workspace may take it away: rmdir would end the others' mounts too.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(root_fd, name, fd):
            os.rmdir(name, dir_fd=root_fd)
    except OSError:
        pass  # another client holds it, or it is no longer empty: somebody outside took it into use


def _taken(root_fd: int, name: str, fd: int, *, made: bool) -> bool | None:
    """Lock and stamp what was opened, whoever made it. False: it is no stub. None: it is on its way out."""
    # Of what was made just now nothing else is asked: not every disk keeps modes and owners.
    ours = made or _is_ours(os.fstat(fd))
    try:
        # Only a stub is locked, and never waited for: a command can lock whatever it can open, and keep it so.
        if ours:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        # Another client is taking it away, which is over sooner than this; whatever else holds it is not waited for.
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
    """True if what is there is only a stand-in: one that holds something is not, whatever its stamp says."""
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
    """True if it was made as a stand-in: it has the stamp, or at least the mode, which it has from the first moment."""
    made = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and found.st_uid == os.geteuid()
    return bool(made) or _stamped(found)


def _made(root_fd: int, name: str) -> bool | None:
    """True: made. False: there is something already. None: it cannot be made, by the command neither."""
    try:
        os.mkdir(name, _MODE, dir_fd=root_fd)
    except FileExistsError:
        return False
    except OSError as error:
        # Whoever owns the directory can give the right to write back to itself.
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
