"""What a write would replace, looked at before a person is asked: its digest, its size and age, and its text.

The file is found without opening it, refused where no write could replace it, and only then opened, by the very
descriptor: a pipe or a device is never opened, a link that leads out never followed. All that is said of the content is
of the same bytes. The path that is told is the real one, after all links, so a link turned elsewhere is another file.
`inspect_write` never raises: where it cannot look it says why, and then nothing is known. Nothing is changed here.

What a write may replace: what was shown when somebody said yes, and nothing that no write may touch.

Compared on open descriptors, never by name: what was compared is what is replaced. Nothing here writes, and nothing
follows a link.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

from byleave.gate import cover_inert, mask_text, secret_name
from byleave.protocol.approvals import plain_json
from byleave.protocol.changes import MAX_SHOWN_TEXT
from byleave.protocol.errors import ByleaveError, PathValidationError, ToolFailure
from byleave.protocol.inspections import Inspection, SeenFile, SeenRole
from byleave.protocol.tools import MAX_FILE_BYTES
from byleave.protocol.wire import timestamp
from byleave.workspace.paths import PathValidator, names_directory, path_error, visible
from byleave.workspace.stopping import MISSING, drifted

from .drafts import reopen
from .links import real_name, refuse_hidden_target, refuse_protected

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


_KEPT = 4 * MAX_SHOWN_TEXT
"""No text that is shown has more bytes."""
_MAX_SENT = 640 * 1024
"""As JSON: an ordinary body of the server's holds it."""
_MAX_PROBLEM = 400


def inspect_write(
    paths: PathValidator,
    path: str,
    *,
    max_bytes: int = MAX_FILE_BYTES,
    unreadable: Callable[[str], bool] = lambda real: False,
) -> Inspection:
    """What stands at `path` now. `unreadable`: whether a real path may not be read, so that its text is not told."""
    try:
        return Inspection(files=[_look(paths, path, max_bytes, unreadable)])
    except ByleaveError as error:
        return Inspection(files=[], problem=mask_text(error.message)[:_MAX_PROBLEM])
    except OSError as error:
        return Inspection(files=[], problem=mask_text(path_error(path, error).message)[:_MAX_PROBLEM])
    except Exception as error:  # noqa: BLE001 - a boundary: a fault of ours must say that nothing is known
        return Inspection(files=[], problem=f"The file could not be looked at ({type(error).__name__}).")


def _look(paths: PathValidator, path: str, max_bytes: int, unreadable: Callable[[str], bool]) -> SeenFile:
    relative = paths.relative(path)
    if names_directory(path) or relative == ".":
        raise ToolFailure(f"{path!r} names a directory, not a file.")
    try:
        fd = paths.open_raw(relative, os.O_PATH)
    except FileNotFoundError:
        real = _checked(path, relative, real_name(paths, relative))
        _refuse_dead_link(paths, path, real)
        return SeenFile(path=real, role=SeenRole.REPLACES, sha256=MISSING)
    try:
        real = _checked(path, relative, paths.real_path(fd))
        info = os.fstat(fd)
        paths.refuse_out_of_reach(fd)
        refuse_irreplaceable(fd, info, path)
        if info.st_size > max_bytes:
            raise _too_large(path, max_bytes)
        if not info.st_mode & 0o444:  # root could read it all the same; its owner said nobody may
            raise ToolFailure(f"No permission to read {path!r}, so what would be replaced cannot be shown.")
        source = reopen(fd, READ)
    finally:
        os.close(fd)
    try:
        return _seen(source, path, real, max_bytes, None if not unreadable(real) else "A rule denies reading it.")
    finally:
        os.close(source)


def _checked(path: str, relative: str, real: str | None) -> str:
    if real is None or visible(real) != real:
        raise PathValidationError(f"Where {path!r} really lies cannot be told.")
    refuse_protected(real, path)
    refuse_hidden_target(relative, real)
    return real


def _refuse_dead_link(paths: PathValidator, path: str, real: str) -> None:
    """Nothing is there, but the name may be taken: by a link to nothing, or by a file that came just now."""
    parent, _, name = real.rpartition("/")
    try:
        directory = paths.open_raw(parent or ".", os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise PathValidationError(f"{path!r} is a link to something that is not there.")
            raise ToolFailure(f"{path!r} appeared while it was looked at.", hint="Try again.")
    finally:
        os.close(directory)


def _seen(fd: int, path: str, real: str, max_bytes: int, note: str | None) -> SeenFile:
    digest, head, size = sha256(), bytearray(), 0
    while piece := os.read(fd, _CHUNK):
        size += len(piece)
        if size > max_bytes:
            raise _too_large(path, max_bytes)
        digest.update(piece)
        head += piece[: max(_KEPT + 1 - len(head), 0)]
    text = None
    if note is None:
        text, note = _text(bytes(head), path, real)
    return SeenFile(
        path=real,
        role=SeenRole.REPLACES,
        sha256=digest.hexdigest(),
        size=size,
        modified_at=_time(os.fstat(fd).st_mtime),
        text=text,
        shortened=text is None and size > 0,
        note=note,
    )


def _text(data: bytes, path: str, real: str) -> tuple[str | None, str | None]:
    """All of a text with its secrets masked, or why it is not shown. Never a part: half a file is no difference."""
    if secret_name(path) or secret_name(real):
        return None, "Its name says that it may hold secrets, so its content is not shown."
    if b"\x00" in data:
        return None, "It is not text."
    try:
        text = data.decode("utf-8") if len(data) <= _KEPT else ""
    except UnicodeDecodeError:
        # Read with replacements, different bytes would look the same.
        return None, "It is not text in UTF-8."
    if len(data) > _KEPT or len(text) > MAX_SHOWN_TEXT:
        return None, "It is too long to be shown here."
    masked = mask_text(text, cover_inert)
    if len(masked) > 2 * MAX_SHOWN_TEXT or len(plain_json(masked).encode()) > _MAX_SENT:
        return None, "It is too long to be shown here."
    return masked, None


def _too_large(path: str, max_bytes: int) -> ToolFailure:
    return ToolFailure(f"{path!r} is larger than {max_bytes} bytes, so what would be replaced cannot be shown.")


def _time(seconds: float) -> str | None:
    with suppress(ValueError, OverflowError, OSError):
        return timestamp(datetime.fromtimestamp(seconds, UTC))
    return None
