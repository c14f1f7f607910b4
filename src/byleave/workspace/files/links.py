"""Checks on symlinks: the gate judged the requested name, but the kernel opens the link's target.

If the two differ, the real name is judged by the gate's own tables too. A file must not be read or written under a name
that looks more harmless than its own: it has to be requested by its own name, and so judged by it. Files that the gate
lets nobody write are refused here again, whatever the gate said. `under_real_names` resolves the links in a call's
parameters, because a rule about `private/**` must also match a link that leads there. A name that cannot be resolved
keeps its spelling: opening it later fails or is checked by the kernel. Nothing here opens a file's content.
"""

import os
from functools import partial
from typing import cast

from byleave.gate import RiskAssessor, protected_name, secret_name, trusted_name
from byleave.gate.commands.understood import with_names
from byleave.protocol.errors import PathValidationError
from byleave.protocol.verdicts import VerdictLevel
from byleave.protocol.wire import JsonObject
from byleave.workspace.paths import PathValidator, visible

from .drafts import PASSING

_PROTECTED = frozenset({".git", ".byleave", "git~1", "byleave~1"})
_FORBIDDEN_ENDINGS = (".exe", ".bin", ".so", ".dll", ".dylib", ".sys")
_HINT = "Ask for the file by its own name."


def refuse_hidden_secret(asked: str, real: str) -> None:
    """Refuse to read a secret file through a link whose name does not show it."""
    if asked != real and secret_name(real) and not secret_name(asked):
        raise PathValidationError(f"{asked!r} is a link to {visible(real)!r}, which may hold secrets.", hint=_HINT)


def refuse_hidden_target(asked: str, real: str) -> None:
    """Refuse to write a file through a link whose name is judged less strictly."""
    if asked == real:
        return
    before, after = _level(asked), _level(real)
    if after.rank > before.rank or (trusted_name(real) is not None and trusted_name(asked) is None):
        raise PathValidationError(
            f"{asked!r} is a link to {visible(real)!r}, which is judged more strictly.", hint=_HINT
        )


def refuse_protected_directory(real: str, path: str) -> None:
    """Refuse a real path (links resolved) that runs through `.git` or `.byleave`, however they are spelled."""
    for part in real.split("/"):
        # Some file systems drop trailing dots and spaces and ignore case.
        plain = part.casefold().rstrip(". ")
        if plain in _PROTECTED or PASSING.fullmatch(plain) or protected_name(part) is not None:
            raise PathValidationError(f"{path!r} lies in {visible(part)!r}, which is never written.")


def refuse_protected(real: str, path: str) -> None:
    """Refuse a file in a protected directory, and one that would be a program or library."""
    refuse_protected_directory(real, path)
    if real.casefold().rstrip(". ").endswith(_FORBIDDEN_ENDINGS) or _level(real) is VerdictLevel.REFUSE:
        raise PathValidationError(f"{path!r} would be a program or library; such files are never written.")


def _level(path: str) -> VerdictLevel:
    findings = RiskAssessor().assess_write(path, "")
    return max((finding.level for finding in findings), key=lambda level: level.rank)


_MAX_MISSING = 65
"""Most missing names at the end of a path; no write creates more."""


def under_real_names(paths: PathValidator, params: JsonObject) -> JsonObject:
    """Return a call's parameters with every workspace path replaced by its real path."""
    changed = dict(params)
    path, args = params.get("path"), params.get("args")
    if isinstance(path, str):
        changed["path"] = _real(paths, path)
    if isinstance(args, list):
        changed["args"] = with_names(cast("list[object]", args), partial(_real, paths))
    return changed


def _real(paths: PathValidator, name: str) -> str:
    try:
        relative = paths.relative(name)
    except PathValidationError:
        return name
    real = real_name(paths, relative)
    # Another spelling of the same path need not be judged again.
    return name if real is None or real == os.path.normpath(relative) else real


def real_name(paths: PathValidator, relative: str) -> str | None:
    """Return the real path of an existing or future file; None if it cannot be resolved."""
    real = _resolved(paths, relative)
    above, rest = relative, ""
    # A missing path lies below its last existing directory, which may be a link.
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
