"""New files before they have their name, and what a killed writer left of them.

A draft is a file without a name in the directory where it will get one; so the kernel removes it with its writer,
however that ends. To replace another file it needs a name of its own for the moment between two system calls (on a file
system without nameless files: while it is written). Its writer holds a lock on it, so `remove_drafts` can tell a draft
that was left from one that is in use. Nothing here follows a link, and nothing but drafts is ever removed.

Putting a file where another is, without losing one that somebody else puts there at the same moment.

A check before a rename leaves a gap. So the new file and the old one change places in one step, and what came out is
looked at afterwards: if it is not what was expected, they change places again. The same for taking a file away. All by
names in a directory that is already open. Where the kernel or the file system cannot swap, the check comes before.
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
"""Names that only Byleave gives, for a moment: drafts, and what an undo holds between two renames."""
# A file system that knows no files without a name says one of these; EPERM is ext4's word for a directory that is gone.
_NO_NAMELESS = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EPERM})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP})
_ACCESS_LIST = "system.posix_acl_access"
_UNVISITED = frozenset({".git", ".byleave"})  # never written


def create_draft(dir_fd: int, mode: int) -> tuple[int, str | None]:
    """A new file, open and locked, and its name where it had to be given one. The caller closes the descriptor."""
    flags, name = os.O_RDWR | os.O_CLOEXEC, None
    try:
        fd = os.open(".", flags | os.O_TMPFILE, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
        name = _draft_name()
        fd = os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=dir_fd)
    fcntl.flock(fd, fcntl.LOCK_EX)  # free, since nobody else knows it: says that its writer lives
    return fd, name


def put_in_place(fd: int, draft: str | None, dir_fd: int, name: str) -> None:
    """Let a draft take the name of a file that is there, in one step."""
    if draft is None:
        draft = _draft_name()
        _name_nameless(fd, dir_fd, draft)
    try:
        os.rename(draft, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        discard(draft, dir_fd)
        raise


def put_new(fd: int, draft: str | None, dir_fd: int, name: str) -> None:
    """Let a draft take a name that is free; FileExistsError when it is not. Never replaces anything."""
    if draft is None:
        _name_nameless(fd, dir_fd, name)
        return
    try:
        os.link(draft, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without hard links: the next best is a look right before.
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(draft, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    else:
        discard(draft, dir_fd)


def discard(draft: str | None, dir_fd: int) -> None:
    """Remove a draft that has a name."""
    if draft is not None:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=dir_fd)


def take_attributes(old: int, new: int) -> None:
    """Give a draft the access list and the user's own attributes of the file it replaces. Its mode is set already.

    Where there is a list, the group's part of the mode is only a bound of it, and alone would open the file to the
    group. What makes a program mighty (capabilities) is not taken over.
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
    """`take_attributes` of a file by its name, where there is one."""
    with suppress(OSError):
        old = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            take_attributes(old, new)
        finally:
            os.close(old)


def sync_directory(dir_fd: int) -> bool:
    """True if the disk took the directory's names; True also where a file system has nothing to say about it."""
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
    """The very file behind a descriptor, opened anew."""
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)


def remove_drafts(root: Path) -> int:
    """Remove the drafts that killed clients left below `root`, and say how many. Takes as long as a look at it all."""
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
        # It may have become the real file meanwhile; then another bears its name, or none.
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
"""True if what has a name in the directory is what was expected there."""


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
