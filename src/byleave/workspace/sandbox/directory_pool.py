"""Empty directories kept ready outside the workspace, to be moved in where a stand-in is wanted.

To make a directory takes a disk many times longer than to move one, and a command waits for up to fourteen of them. So
they are made while nobody waits, in Byleave's own home, and only where that lies on the workspace's disk. They are
moved one way only: what stands in the workspace is removed there, by a call that spares what somebody put into it. Each
is looked at before it is moved, and what is no empty directory of ours is left where it is. Where anything does not
work, there are none, and stand-ins are made on the spot. Nothing of the workspace is ever replaced.
"""

import ctypes
import errno
import os
import re
import stat
import threading
from contextlib import suppress
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_AT_CWD = -100
_NO_REPLACE = 1
KEPT = 14
_OURS = re.compile(r"[0-9]+-[0-9]+")
# A directory can pass its group on to those that are made in it.
_MODE, _MAY_HAVE = 0o755, stat.S_ISGID
_Seen = tuple[int, int]
"""Inode, and the time of its last change, which nobody can set: where it is equal, nothing was changed or put in."""


class Spares:
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
                    os.mkdir(spare, _MODE)
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
        if not _is_ours(place) or place.st_dev != os.stat(self._workspace).st_dev:
            self._move = None
            return
        with os.scandir(self._place) as found:
            named = [each.path for each in found if _OURS.fullmatch(each.name)]
        self._ready = [(spare, seen) for spare in named if (seen := self._fits(spare)) is not None]

    def _fits(self, spare: str) -> _Seen | None:
        """Where it is still as it was made: what it is now."""
        try:
            found = os.lstat(spare)
            fits = _is_ours(found) and found.st_mtime_ns == self._stamp * 10**9 and not os.listdir(spare)
        except OSError:
            return None
        return (found.st_ino, found.st_ctime_ns) if fits else None


def _seen(spare: str) -> _Seen | None:
    try:
        found = os.lstat(spare)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _is_ours(found: os.stat_result) -> bool:
    """A directory of our own that nobody else can change, and we can."""
    mode = stat.S_IMODE(found.st_mode) & ~_MAY_HAVE
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and mode | _MODE == _MODE and mode >= 0o700
