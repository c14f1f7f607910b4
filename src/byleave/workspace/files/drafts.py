"""New files before they have their name, and what a killed writer left of them.

A draft is a file without a name in the directory where it will get one; so the kernel removes it with its writer,
however that ends. To replace another file it needs a name of its own for the moment between two system calls (on a file
system without nameless files: while it is written). Its writer holds a lock on it, so `remove_drafts` can tell a draft
that was left from one that is in use. Nothing here follows a link, and nothing but drafts is ever removed.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
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
    """Whether the disk took the directory's names; True also where a file system has nothing to say about it."""
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
