"""The directory a command has for itself where the sandbox cannot give it one of its own: HOME and temporary files.

It is gone when the command is, however deep what was left in it is nested, and one that a killed client left is removed
by the next. Who uses one holds a lock on it. Nothing but such directories of our own user is ever removed, and no link
is followed.
"""

import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "assent-home-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def own_home() -> Generator[Path]:
    """An empty directory for the time of the block."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        fd = os.open(path, _DIRECTORY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink > 0:
            break
        os.close(fd)  # somebody cleared away, and it looked left
    try:
        yield path
    finally:
        remove_tree(path)
        os.close(fd)


def remove_left() -> None:
    """Remove what clients left that were killed."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        for path in [each.path for each in found if each.name.startswith(_PREFIX)]:
            with suppress(OSError):
                _remove_if_left(path)


def _remove_if_left(path: str) -> None:
    fd = os.open(path, _DIRECTORY)
    try:
        if os.geteuid() in (0, os.fstat(fd).st_uid):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where somebody uses it
            remove_tree(path)
    finally:
        os.close(fd)


def remove_tree(path: str | Path) -> None:
    """Remove a directory and all in it. What cannot be removed stays, and is no error.

    Directories are moved up before they are emptied: a path that leads down could be longer than the kernel takes, and
    to follow it step by step could take more descriptors, or more stack, than there are.
    """
    with suppress(OSError):
        top = os.open(path, _DIRECTORY)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def _empty(top: int) -> None:
    token = secrets.token_hex(8)
    moved = 0
    stays: set[str] = set()
    while names := [name for name in os.listdir(top) if name not in stays]:
        for name in names:
            stays.add(name)
            with suppress(OSError):
                if _unlinked(top, name):
                    continue
                child = _opened(top, name)
                try:
                    for inner in os.listdir(child):
                        if not _unlinked(child, inner):
                            os.close(_opened(child, inner))  # to be moved, a directory must be writable itself
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


def _opened(directory: int, name: str) -> int:
    """A directory, which its owner may have closed to itself."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        place = f"/proc/self/fd/{fd}"
        os.chmod(place, 0o700)
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(fd)
