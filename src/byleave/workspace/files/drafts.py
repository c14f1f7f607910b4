"""Drafts: new files before they take their name, and the renames that put them in place.

A draft is an unnamed file (`O_TMPFILE`) in the target's directory, so the kernel removes it however its writer ends.
To replace another file it needs a name for the moment between two system calls; on a file system without unnamed files,
while it is written. Its writer holds a lock on it, so `remove_drafts` can tell an orphaned draft from one in use;
it removes nothing else.

An undo must not lose a file that somebody else puts there at the same moment, and a check before a rename leaves a gap.
So `swap` exchanges the new file and the old one in one step and checks the old one afterwards: if it is not the
expected one, they are exchanged back. `take_away` removes a file in the same way. If the kernel or the file system
cannot exchange, the check comes before the rename. Names are relative to an open directory, and no link is followed.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

DRAFT = re.compile(r"\.byleave-[0-9a-f]{16}\.tmp")
PASSING = re.compile(r"\.byleave-[0-9a-f]{16}\.(?:tmp|undo)")
"""Temporary names that only Byleave gives: drafts, and files that an undo holds between two renames."""
# Errors of a file system without unnamed files; ext4 says EPERM for a removed directory.
_NO_NAMELESS = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EPERM})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP})
_ACCESS_LIST = "system.posix_acl_access"
_UNVISITED = frozenset({".git", ".byleave"})  # no draft is ever written there


def create_draft(dir_fd: int, mode: int) -> tuple[int, str | None]:
    """Create a locked file; return its descriptor, which the caller closes, and its name if it needed one."""
    flags, name = os.O_RDWR | os.O_CLOEXEC, None
    try:
        fd = os.open(".", flags | os.O_TMPFILE, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
        name = _draft_name()
        fd = os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=dir_fd)
    fcntl.flock(fd, fcntl.LOCK_EX)  # never blocks: nobody else knows the file; shows that its writer lives
    return fd, name


def put_in_place(fd: int, draft: str | None, dir_fd: int, name: str) -> None:
    """Rename a draft over an existing file, in one step."""
    if draft is None:
        draft = _draft_name()
        _name_nameless(fd, dir_fd, draft)
    try:
        os.rename(draft, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        discard(draft, dir_fd)
        raise


def put_new(fd: int, draft: str | None, dir_fd: int, name: str) -> None:
    """Give a draft a free name; FileExistsError if it is taken. Never replaces a file."""
    if draft is None:
        _name_nameless(fd, dir_fd, name)
        return
    try:
        os.link(draft, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without hard links: the next best is a check right before.
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(draft, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    else:
        discard(draft, dir_fd)


def discard(draft: str | None, dir_fd: int) -> None:
    """Remove a draft, if it has a name."""
    if draft is not None:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=dir_fd)


def take_attributes(old: int, new: int) -> None:
    """Copy the access list (ACL) and the user attributes of the replaced file to a draft. Its mode is set already.

    With an ACL, the group bits of the mode are only a mask; without it, they would open the file to the group.
    Capabilities are not copied.
    """
    source = f"/proc/self/fd/{old}"
    try:
        names = os.listxattr(source)
    except OSError:
        return  # a file system without attributes
    for name in names:
        if name.startswith("user."):
            with suppress(OSError):
                os.setxattr(new, name, os.getxattr(source, name))
    if _ACCESS_LIST in names:
        try:
            os.setxattr(new, _ACCESS_LIST, os.getxattr(source, _ACCESS_LIST))
        except OSError:
            os.fchmod(new, stat.S_IMODE(os.fstat(new).st_mode) & ~0o070)


def take_attributes_of(name: str, dir_fd: int, new: int) -> None:
    """`take_attributes` from a file by its name, if it exists."""
    with suppress(OSError):
        old = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            take_attributes(old, new)
        finally:
            os.close(old)


def sync_directory(dir_fd: int) -> bool:
    """Sync a directory's names to disk; False on failure. True if the file system does not support it."""
    try:
        fd = reopen(dir_fd, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        return error.errno == errno.EINVAL
    return True


def reopen(fd: int, flags: int) -> int:
    """Open the file behind a descriptor again, with other flags."""
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)


def remove_drafts(root: Path) -> int:
    """Remove the drafts that killed clients left below `root`; return their number. Walks the whole tree."""
    removed = 0
    # fwalk goes by descriptor and enters no link.
    for _, directories, names, dir_fd in os.fwalk(root, follow_symlinks=False):
        directories[:] = [name for name in directories if name not in _UNVISITED]
        for name in names:
            if DRAFT.fullmatch(name):
                with suppress(OSError):
                    removed += _remove_left(name, dir_fd)
    return removed


def _remove_left(name: str, dir_fd: int) -> bool:
    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its writer lives
        # It may have become the real file meanwhile; then another file has its name, or none.
        if os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_ino != info.st_ino:
            return False
        os.unlink(name, dir_fd=dir_fd)
        return True
    finally:
        os.close(fd)


def _draft_name() -> str:
    return f".byleave-{secrets.token_hex(8)}.tmp"


def _name_nameless(fd: int, dir_fd: int, name: str) -> None:
    os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=dir_fd, follow_symlinks=True)


_NO_REPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
_libc = ctypes.CDLL(None, use_errno=True)

Expected = Callable[[str], bool]
"""True if the file with this name is the expected one."""


class Unexpected(OSError):
    """Another file than the expected one was there; it is still there."""


def new_name() -> str:
    """A temporary name for an undo; snapshots skip such names.

    Not the name of a write's draft, which any client may remove: between two renames it holds the old file.
    """
    return f".byleave-{secrets.token_hex(8)}.undo"


def place(dir_fd: int, draft: str, name: str) -> None:
    """Give `draft` a free name. Raises Unexpected if it is taken; the draft stays."""
    try:
        _rename(dir_fd, draft, name, _NO_REPLACE)
    except FileExistsError as error:
        raise Unexpected(errno.EEXIST, "something is there") from error


def swap(dir_fd: int, draft: str, name: str, expected: Expected) -> None:
    """Replace the expected file `name` by `draft`. Raises Unexpected if another is there; then nothing has changed."""
    if not expected(name):
        raise Unexpected(errno.EBUSY, "it changed")
    ours = os.open(draft, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)  # open: its inode is not reused
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
    finally:  # also if the check fails
        if not as_expected:
            _swap_back(dir_fd, draft, name, ours)
    if not as_expected:
        raise Unexpected(errno.EBUSY, "it changed")
    os.unlink(draft, dir_fd=dir_fd)


def _swap_back(dir_fd: int, draft: str, name: str, ours: int) -> None:
    try:
        _rename(dir_fd, draft, name, _EXCHANGE)
    except OSError:  # ours was removed meanwhile: do not lose theirs
        _move_back(dir_fd, draft, name)
        return
    if os.stat(draft, dir_fd=dir_fd, follow_symlinks=False).st_ino != ours:
        _set_aside(dir_fd, draft, name)


def take_away(dir_fd: int, name: str, expected: Expected) -> None:
    """Remove the expected file `name`. Raises Unexpected if another is there; then it is still there."""
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
    finally:  # also if the check fails
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
    """Two others wrote the file in that moment: keep both, one under a visible name."""
    os.rename(draft, f"{name}.{secrets.token_hex(4)}.saved", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def _rename(dir_fd: int, old: str, new: str, flags: int) -> None:
    # glibc has it since 2.28; other C libraries may lack it.
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
