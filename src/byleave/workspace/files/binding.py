"""What a write may replace: what was shown when somebody said yes, and nothing that no write may touch.

Compared on open descriptors, never by name: what was compared is what is replaced. Nothing here writes, and nothing
follows a link.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from byleave.protocol.errors import PathValidationError, ToolFailure

from .drafts import reopen
from .drift import MISSING, drifted

NOTHING = "nothing was written"
NOT_AS_SHOWN = "It is not what was shown; nothing was written."
_CHUNK = 1 << 20
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


def refuse_irreplaceable(fd: int, info: os.stat_result, path: str) -> None:
    """Refuse what no write may replace: anything but a regular file, one that is read-only, one with other names."""
    if stat.S_ISDIR(info.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    # Renaming over a file asks nothing of the file itself, so its own permissions are asked here. Root may
    # write anything; the owner's bit says whether this file is meant to change.
    if not info.st_mode & stat.S_IWUSR or not os.access(f"/proc/self/fd/{fd}", os.W_OK, effective_ids=True):
        raise ToolFailure(f"No permission to write {path!r}: the file is read-only.")
    if info.st_nlink > 1:
        raise PathValidationError(
            f"{path!r} has another name, which may lie outside the workspace, so it is not written.",
            hint="Write to a new file; a hard link would be torn from its other names.",
        )


@dataclass(frozen=True, slots=True)
class Written:
    """A write right before its rename."""

    path: str
    """As it was asked for."""
    real: str
    old_fd: int | None
    new_fd: int
    data: bytes
    copied: int | None
    """How much of the old file the new one begins with; None when it takes nothing over."""


def check_bound(bound: Mapping[str, str], write: Written, *, max_bytes: int) -> None:
    """Refuse to replace anything but what was shown: one real path, and its SHA-256 or `missing`."""
    [(real, shown)] = bound.items()
    if write.real != real or (write.old_fd is None and shown != MISSING):
        raise drifted(write.path, NOTHING)
    if write.old_fd is not None and not _is_shown(write, write.old_fd, shown, max_bytes):
        raise drifted(write.path, NOTHING)


def _is_shown(write: Written, old_fd: int, shown: str, max_bytes: int) -> bool:
    try:
        fd = reopen(old_fd, READ)
    except PermissionError:
        return False
    try:
        before = os.fstat(fd)
        if before.st_size > max_bytes:  # no look reads so far
            return False
        there = digest_of(fd, before.st_size)
        if write.copied is not None:
            # What was copied counts too, not only what was put back for this look.
            same = there == shown and digest_of(write.new_fd, write.copied) == shown
        else:
            # A file that already is what it was approved to become is no surprise to anybody.
            same = there in (shown, hashlib.sha256(write.data).hexdigest())
        after = os.fstat(fd)
        return same and (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    finally:
        os.close(fd)


def digest_of(fd: int, size: int) -> str:
    """SHA-256 of the first bytes of a file."""
    digest, at = hashlib.sha256(), 0
    while piece := os.pread(fd, min(_CHUNK, size - at), at):
        digest.update(piece)
        at += len(piece)
    return digest.hexdigest()
