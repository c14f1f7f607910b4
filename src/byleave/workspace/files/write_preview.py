"""What a write would replace, looked at before a person is asked: its digest, its size and age, and its text.

The file is found without opening it, refused where no write could replace it, and only then opened, by the very
descriptor: a pipe or a device is never opened, a link that leads out never followed. All that is said of the content is
of the same bytes. The path that is told is the real one, after all links, so a link turned elsewhere is another file.
`inspect_write` never raises: where it cannot look it says why, and then nothing is known. Nothing is changed here.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

from byleave.gate import cover_inert, mask_text, secret_name
from byleave.protocol.changes import MAX_SHOWN_TEXT
from byleave.protocol.digests import plain_json
from byleave.protocol.errors import ByleaveError, PathValidationError, ToolFailure
from byleave.protocol.inspections import Inspection, SeenFile, SeenRole
from byleave.protocol.tools import MAX_FILE_BYTES
from byleave.protocol.wire import timestamp
from byleave.workspace.commands.realnames import real_name
from byleave.workspace.paths import PathValidator, names_directory, path_error, visible

from .binding import READ, refuse_irreplaceable
from .drafts import reopen
from .drift import MISSING
from .link_checks import refuse_hidden_target, refuse_protected

_CHUNK = 1 << 20
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
