"""The directory a command has for itself where the sandbox cannot give it one of its own: HOME and temporary files.

It goes when the command does, however deep what was left in it is nested: at once, or where that takes long in a thread
beside what comes next, for the client does nothing else meanwhile. One that a killed client left is removed by the
next. Who uses one holds a lock on it. Nothing but such directories of our own user, or where we are root of the
workspace's owner, is ever removed; no link is followed, and what is mounted in one is left alone.
"""

import _thread
import errno
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "byleave-home-"
_PATIENCE_SECONDS = 0.1
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def own_home() -> Generator[Path]:
    """An empty directory for the time of the block."""
    path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    while (fd := _taken(path)) is None:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        yield path
    finally:
        until = time.monotonic() + _PATIENCE_SECONDS
        steps = _removing(path)
        if all(time.monotonic() < until for _ in steps):
            os.close(fd)
        else:
            _beside(steps, fd)


def _beside(steps: Generator[None], fd: int) -> None:
    def go_on() -> None:
        for _ in steps:
            pass
        os.close(fd)

    try:
        _thread.start_new_thread(go_on, ())
    except RuntimeError:  # no more threads, or the program is about to end
        go_on()


def _taken(path: Path) -> int | None:
    """Lock what was made, and never wait for it. None: somebody clears away, and to them it looks left."""
    fd = os.open(path, _DIRECTORY)
    taken = False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.fstat(fd).st_nlink > 0
    finally:
        if not taken:
            os.close(fd)
    return fd if taken else None


def remove_left(workspace: Path) -> None:
    """Remove what clients left that were killed: ours, and where we are root those of the workspace's owner."""
    users = {os.geteuid()}
    with suppress(OSError):
        users |= {workspace.stat().st_uid} if os.geteuid() == 0 else set[int]()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        for path in [each.path for each in found if each.name.startswith(_PREFIX)]:
            with suppress(OSError):
                _remove_if_left(path, users)


def _remove_if_left(path: str, users: set[int]) -> None:
    fd = os.open(path, _DIRECTORY)
    try:
        if os.fstat(fd).st_uid in users:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where somebody uses it
            remove_tree(path)
    finally:
        os.close(fd)


def remove_tree(path: str | Path) -> None:
    """Remove a directory and all in it. What cannot be removed stays, and is no error."""
    for _ in _removing(path):
        pass


def _removing(path: str | Path) -> Generator[None]:
    """`remove_tree`, step by step.

    Directories are moved up before they are emptied: a path that leads down could be longer than the kernel takes, and
    to follow it step by step could take more descriptors, or more stack, than there are.
    """
    with suppress(OSError):
        top = os.open(path, _DIRECTORY)
        try:
            yield from _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def _empty(top: int) -> Generator[None]:
    token, mount = secrets.token_hex(8), _mount(top)
    moved = 0
    stays: set[str] = set()
    while names := [name for name in os.listdir(top) if name not in stays]:
        for name in names:
            stays.add(name)
            yield
            with suppress(OSError):
                if _unlinked(top, name):
                    continue
                child = _opened(top, name, mount)
                try:
                    for inner in os.listdir(child):
                        yield
                        if not _unlinked(child, inner):
                            os.close(_opened(child, inner, mount))  # to be moved, a directory must be writable itself
                            os.rename(inner, f"{token}-{moved}", src_dir_fd=child, dst_dir_fd=top)
                            moved += 1
                finally:
                    os.close(child)
                os.rmdir(name, dir_fd=top)


def _unlinked(directory: int, name: str) -> bool:
    """Whether it is gone; a directory is not."""
    if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=directory)
    return True


def _opened(directory: int, name: str, mount: bytes) -> int:
    """A directory, which its owner may have closed to itself. OSError where something else is mounted there."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if _mount(fd) != mount:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        place = f"/proc/self/fd/{fd}"
        os.chmod(place, 0o700)
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(fd)


def _mount(fd: int) -> bytes:
    """Which mount a descriptor lies in; a device would not tell one directory that is mounted twice."""
    with open(f"/proc/self/fdinfo/{fd}", "rb", buffering=0) as file:
        return file.read().partition(b"mnt_id:")[2].partition(b"\n")[0]
