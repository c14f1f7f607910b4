"""Putting a file where another is, without losing one that somebody else puts there at the same moment.

A check before a rename leaves a gap. So the new file and the old one change places in one step, and what came out is
looked at afterwards: if it is not what was expected, they change places again. The same for taking a file away. All by
names in a directory that is already open. Where the kernel or the file system cannot swap, the check comes before.
"""

import contextlib
import ctypes
import errno
import os
import secrets
from collections.abc import Callable

_NO_REPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
_libc = ctypes.CDLL(None, use_errno=True)

Expected = Callable[[str], bool]
"""Whether what has a name in the directory is what was expected there."""


class Unexpected(OSError):
    """Something else was there; it is there still."""


def new_name() -> str:
    """A name for the time between; looks at a workspace pass over such names.

    Not that of a write's draft, which any client may clear away: between two renames this one bears what was there.
    """
    return f".byleave-{secrets.token_hex(8)}.undo"


def place(dir_fd: int, draft: str, name: str) -> None:
    """Give `draft` a name that is free. Raises Unexpected where it is not; the draft stays."""
    try:
        _rename(dir_fd, draft, name, _NO_REPLACE)
    except FileExistsError as error:
        raise Unexpected(errno.EEXIST, "something is there") from error


def swap(dir_fd: int, draft: str, name: str, expected: Expected) -> None:
    """Put `draft` in the place of what is expected under `name`. Raises Unexpected; then nothing has changed."""
    if not expected(name):
        raise Unexpected(errno.EBUSY, "it changed")
    ours = os.open(draft, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)  # open: its number stays its own
    try:
        _exchange(dir_fd, draft, name, expected, os.fstat(ours).st_ino)
    finally:
        os.close(ours)


def _exchange(dir_fd: int, draft: str, name: str, expected: Expected, ours: int) -> None:
    try:
        _rename(dir_fd, draft, name, _EXCHANGE)
    except FileNotFoundError as error:
        raise Unexpected(errno.ENOENT, "it is gone") from error
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        os.rename(draft, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        return
    as_expected = False
    try:
        as_expected = expected(draft)
    finally:  # also where it cannot be looked at
        if not as_expected:
            _swap_back(dir_fd, draft, name, ours)
    if not as_expected:
        raise Unexpected(errno.EBUSY, "it changed")
    os.unlink(draft, dir_fd=dir_fd)


def _swap_back(dir_fd: int, draft: str, name: str, ours: int) -> None:
    try:
        _rename(dir_fd, draft, name, _EXCHANGE)
    except OSError:  # somebody took ours away meanwhile: theirs must not go with it
        _move_back(dir_fd, draft, name)
        return
    if os.stat(draft, dir_fd=dir_fd, follow_symlinks=False).st_ino != ours:
        _set_aside(dir_fd, draft, name)


def take_away(dir_fd: int, name: str, expected: Expected) -> None:
    """Remove what is expected under `name`. Raises Unexpected; then it is still there."""
    if not expected(name):
        raise Unexpected(errno.EBUSY, "it changed")
    aside = new_name()
    try:
        _rename(dir_fd, name, aside, _NO_REPLACE)
    except FileNotFoundError as error:
        raise Unexpected(errno.ENOENT, "it is gone") from error
    as_expected = False
    try:
        as_expected = expected(aside)
    finally:  # also where it cannot be looked at
        if not as_expected:
            _move_back(dir_fd, aside, name)
    if not as_expected:
        raise Unexpected(errno.EBUSY, "it changed")
    os.unlink(aside, dir_fd=dir_fd)


def _move_back(dir_fd: int, aside: str, name: str) -> None:
    try:
        _rename(dir_fd, aside, name, _NO_REPLACE)
    except FileExistsError:
        _set_aside(dir_fd, aside, name)


def _set_aside(dir_fd: int, draft: str, name: str) -> None:
    """Saved twice in that moment: both stay, one of them under a name that can be seen."""
    os.rename(draft, f"{name}.{secrets.token_hex(4)}.saved", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def _rename(dir_fd: int, old: str, new: str, flags: int) -> None:
    # glibc has it since 2.28; other C libraries need not.
    call = getattr(_libc, "renameat2", None)
    code = errno.ENOSYS
    if call is not None:
        if call(dir_fd, os.fsencode(old), dir_fd, os.fsencode(new), flags) == 0:
            return
        code = ctypes.get_errno()
    if code not in _UNSUPPORTED or flags == _EXCHANGE:
        raise OSError(code, os.strerror(code), new)
    with contextlib.suppress(FileNotFoundError):
        os.stat(new, dir_fd=dir_fd, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
    os.rename(old, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
