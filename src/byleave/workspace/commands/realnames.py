"""A call as it would be spelled if there were no links: for rules, which know names only.

A rule about `private/**` must also meet a link that leads there. What cannot be resolved keeps its spelling: opening it
later fails or is checked by the kernel. Nothing here opens a file's content.
"""

import os

from byleave.protocol.errors import PathValidationError
from byleave.protocol.wire import JsonObject
from byleave.workspace.paths import PathValidator

_MAX_MISSING = 65
"""Names at the end of a path that are not there yet; no write makes more."""


def under_real_names(paths: PathValidator, params: JsonObject) -> JsonObject:
    """The parameters of a call with every name of the workspace replaced by the real one."""
    changed = dict(params)
    path, args = params.get("path"), params.get("args")
    if isinstance(path, str):
        changed["path"] = _real(paths, path)
    if isinstance(args, list):
        changed["args"] = [_real_argument(paths, arg) if isinstance(arg, str) else arg for arg in args]  # pyright: ignore[reportUnknownVariableType] - judged again as any call is
    return changed


def _real_argument(paths: PathValidator, arg: str) -> str:
    """A name, or the value glued to an option."""
    name, equals, value = arg.partition("=")
    if arg.startswith("-"):
        return f"{name}={_real(paths, value)}" if equals and value else arg
    return _real(paths, arg)


def _real(paths: PathValidator, name: str) -> str:
    try:
        relative = paths.relative(name)
    except PathValidationError:
        return name
    real = real_name(paths, relative)
    # The same place under another spelling is no reason to judge again.
    return name if real is None or real == os.path.normpath(relative) else real


def real_name(paths: PathValidator, relative: str) -> str | None:
    """Where a path really lies, or would; None where that cannot be told."""
    real = _resolved(paths, relative)
    above, rest = relative, ""
    # What is not there yet lies below the last directory that is, and that may be behind a link.
    for _ in range(_MAX_MISSING):
        if real is not None or above == "." or above.rpartition("/")[2] == "..":
            break
        above, _, last = above.rpartition("/")
        above, rest = above or ".", f"/{last}{rest}"
        real = _resolved(paths, above)
    return None if real is None else f"{real}{rest}".removeprefix("./")


def _resolved(paths: PathValidator, relative: str) -> str | None:
    try:
        fd = paths.open_raw(relative, os.O_PATH)
    except OSError:
        return None
    try:
        return paths.real_path(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
