"""Stand-ins for protected names that are missing: empty directories, there for the time of a command.

A name that is not there cannot be mounted read-only, so a command could make it. A stub takes its place and is removed
when the last command that needs it has ended, by rmdir alone: what somebody put into it stays. It is a directory also
where a file belongs, because git does not see an empty directory. Each holder locks it, so that a second client on the
same workspace never takes it away, and stamps it, so that one left by a client that was killed is known and removed;
until it is stamped, its mode tells.

Empty directories kept ready outside the workspace, to be moved in where a stand-in is wanted.

To make a directory takes a disk many times longer than to move one, and a command waits for up to fourteen of them. So
they are made while nobody waits, in Byleave's own home, and only where that lies on the workspace's disk. They are
moved one way only: what stands in the workspace is removed there, by a call that spares what somebody put into it. Each
is looked at before it is moved, and what is no empty directory of ours is left where it is. Where anything does not
work, there are none, and stand-ins are made on the spot. Nothing of the workspace is ever replaced.
"""

import _thread
import ctypes
import errno
import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from byleave.protocol.errors import ToolFailure

_libc = ctypes.CDLL(None, use_errno=True)
_AT_CWD = -100
_NO_REPLACE = 1
KEPT = 14
_OURS = re.compile(r"[0-9]+-[0-9]+")
# A directory can pass its group on to those that are made in it.
_POOL_MODE, _MAY_HAVE = 0o755, stat.S_ISGID
_Seen = tuple[int, int]
"""Inode, and the time of its last change, which nobody can set: where it is equal, nothing was changed or put in."""


class DirectoryPool:
    """Those of one client for one workspace. Several clients may share a place: one spare serves one of them."""

    def __init__(self, place: Path, workspace: Path, stamp: int) -> None:
        """`stamp`: when they are said to have been changed last, by which a stand-in is known."""
        self._place = place
        self._workspace = workspace
        self._stamp = stamp
        self._lock = threading.Lock()
        self._filling = threading.Lock()
        self._ready: list[tuple[str, _Seen]] = []
        self._wanted = 0
        self._made = 0
        # glibc has it since 2.28; other C libraries need not.
        self._move = getattr(_libc, "renameat2", None)

    def move_in(self, root_fd: int, name: str) -> bool:
        """Put a spare at `name` where nothing is; False when that is not how it came about."""
        with self._lock:
            self._wanted += 1
            while self._ready and self._move is not None:
                spare, seen = self._ready.pop()
                if _seen(spare) != seen:
                    continue  # another client took it, or somebody else has a use for it
                if self._move(_AT_CWD, os.fsencode(spare), root_fd, os.fsencode(name), _NO_REPLACE) == 0:
                    return True
                code = ctypes.get_errno()
                if code == errno.EEXIST:
                    self._ready.append((spare, seen))
                    return False
                if code != errno.ENOENT:  # ENOENT: another client took it
                    self._move = None  # another disk after all, or a system that cannot
            return False

    def refill(self) -> None:
        """Make what is missing, from the second command on: who starts only one has no use for more."""
        with suppress(OSError), self._filling:
            while self._lacks():
                with self._lock:
                    self._made += 1
                    spare = str(self._place / f"{os.getpid()}-{self._made}")
                try:
                    os.mkdir(spare, _POOL_MODE)
                except FileExistsError:
                    continue  # not made by us just now, so it is not for us to stamp
                os.utime(spare, (self._stamp, self._stamp))
                with self._lock:
                    seen = self._fits(spare)
                    if seen is not None:
                        self._ready.append((spare, seen))
                    else:
                        self._move = None  # a disk that keeps no modes or times: none would ever fit
                        os.rmdir(spare)

    def close(self) -> None:
        """Make no more; what is being made is there when this returns."""
        with self._lock:
            self._move = None
        with self._filling:
            pass

    def _lacks(self) -> bool:
        with self._lock:
            if self._move is None or self._wanted <= KEPT or len(self._ready) >= KEPT:
                return False
            if self._made == 0 and not self._ready:
                self._open()
            return self._move is not None and len(self._ready) < KEPT

    def _open(self) -> None:
        """Take over what clients that are gone left; none where the place is on another disk."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = os.lstat(self._place)
        if not _is_plain(place) or place.st_dev != os.stat(self._workspace).st_dev:
            self._move = None
            return
        with os.scandir(self._place) as found:
            named = [each.path for each in found if _OURS.fullmatch(each.name)]
        self._ready = [(spare, seen) for spare in named if (seen := self._fits(spare)) is not None]

    def _fits(self, spare: str) -> _Seen | None:
        """Where it is still as it was made: what it is now."""
        try:
            found = os.lstat(spare)
            fits = _is_plain(found) and found.st_mtime_ns == self._stamp * 10**9 and not os.listdir(spare)
        except OSError:
            return None
        return (found.st_ino, found.st_ctime_ns) if fits else None


def _seen(spare: str) -> _Seen | None:
    try:
        found = os.lstat(spare)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _is_plain(found: os.stat_result) -> bool:
    """A directory of our own that nobody else can change, and we can."""
    mode = stat.S_IMODE(found.st_mode) & ~_MAY_HAVE
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and mode | _POOL_MODE == _POOL_MODE
        and mode >= 0o700
    )


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
        self._spares: DirectoryPool | None = None

    def keep_spares(self, place: Path, workspace: Path) -> None:
        """Take them from directories kept ready at `place`, as far as there are any."""
        self._spares = DirectoryPool(place, workspace, _STAMP)

    def close(self) -> None:
        """Nothing more is written at the place of the spares after this."""
        if self._spares is not None:
            self._spares.close()

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
            _aside(lambda: self._tidy(freed))

    def _tidy(self, fds: list[int]) -> None:
        """What no command has to wait for: the disk frees directories that are gone, and makes others ready."""
        for fd in fds:
            os.close(fd)
        if fds and self._spares is not None:
            self._spares.refill()

    def hold(self, name: str, found: os.stat_result) -> bool:
        """Whether what was found at this name is a stub that a command of this client keeps there."""
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
            made = False if self._moved_in(root_fd, name) else _made(root_fd, name)
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

    def _moved_in(self, root_fd: int, name: str) -> bool:
        return self._spares is not None and self._spares.move_in(root_fd, name)

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


def _aside(work: Callable[[], None]) -> None:
    try:
        _thread.start_new_thread(work, ())  # threading would wait until it runs
    except RuntimeError:  # no more threads, or the program is about to end
        work()


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
    """Whether what is there is only a stand-in: one that holds something is not, whatever its stamp says."""
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
    """Whether it was made as a stand-in: it has the stamp, or at least the mode, which it has from the first moment."""
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
