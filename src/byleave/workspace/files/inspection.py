"""Looking at what a call would run: its digest, its size and age, and its beginning, before a person is asked.

`look_at` reads one file once: what it says of the content is all of the same bytes. It opens as the file tools do, so
a link that leads out, a pipe or a device is never read. `inspect` looks at all files of a call and never raises: where
it cannot see what would run it says why, and then nothing is known. Nothing here decides or runs anything.
"""

import hashlib
import json
import os
import posixpath
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from byleave.gate import UnderstoodCommand, cover_inert, mask_text, secret_name
from byleave.protocol.errors import ByleaveError, ToolFailure
from byleave.protocol.inspections import MAX_SEEN_TEXT, Inspection, SeenFile
from byleave.protocol.tools import MAX_FILE_BYTES
from byleave.protocol.wire import JsonObject, timestamp
from byleave.workspace.paths import PathValidator, path_error, refuse_odd_kind
from byleave.workspace.sandbox.environment import find_program
from byleave.workspace.stopping import MISSING

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK = 1 << 20
_KEPT = 256 * 1024
"""Enough for every package.json that is one."""
_MAX_PROBLEM = 400


@dataclass(frozen=True, slots=True)
class Look:
    """One file as it was when it was read."""

    path: str
    sha256: str
    """`missing` where there is no file; a directory counts as none."""
    real: str | None = None
    """Where it really lies, after all links."""
    size: int | None = None
    mode: int = 0
    modified_at: str | None = None
    head: bytes = b""
    is_directory: bool = False


def look_at(
    paths: PathValidator,
    path: str,
    *,
    max_bytes: int = MAX_FILE_BYTES,
    keep: Callable[[bytes], object] | None = None,
) -> Look:
    """Read one file to its end. `keep` gets the very bytes that are counted. Raises when it may not or cannot."""
    try:
        fd = paths.open_raw(paths.relative(path), _READ)
    except (FileNotFoundError, NotADirectoryError):
        return Look(path, MISSING)
    except OSError as error:
        raise path_error(path, error) from error
    try:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            return Look(path, MISSING, paths.real_path(fd), is_directory=True)
        refuse_odd_kind(info, path)
        digest, head, size = hashlib.sha256(), b"", 0
        while piece := os.read(fd, _CHUNK):
            size += len(piece)
            if size > max_bytes:
                raise ToolFailure(f"{path!r} is larger than {max_bytes} bytes.")
            digest.update(piece)
            head += piece[: max(_KEPT - len(head), 0)]
            if keep is not None:
                keep(piece)
        modified = _time(os.fstat(fd).st_mtime)
        return Look(path, digest.hexdigest(), paths.real_path(fd), size, info.st_mode, modified, head)
    except OSError as error:
        raise path_error(path, error) from error
    finally:
        os.close(fd)


def refuse_directory(look: Look, among: Collection[str]) -> None:
    """A directory may stand where a file could, when what would run in it is named too."""
    inner = (posixpath.normpath(posixpath.join(look.path, name)) for name in ("__main__.py", "index.js"))
    if look.is_directory and not any(name in among for name in inner):
        raise ToolFailure(f"{look.path!r} is a directory, so what it would run cannot be shown.")


def inspect(paths: PathValidator, command: UnderstoodCommand, *, max_bytes: int = MAX_FILE_BYTES) -> Inspection:
    """The files that a command runs, as they are now; refused where its program is not installed."""
    try:
        find_program(command.program, paths.root)
        call = _Call(command)
        looks = [look_at(paths, path, max_bytes=max_bytes) for path in command.runs]
        for look in looks:
            refuse_directory(look, command.runs)
        call.refuse_unseen(looks)
        return Inspection(files=[call.seen(look) for look in looks])
    except ByleaveError as error:
        return Inspection(files=[], problem=mask_text(error.message)[:_MAX_PROBLEM])
    except Exception as error:  # noqa: BLE001 - a boundary: a fault of ours must say that nothing is known
        return Inspection(files=[], problem=f"The files could not be looked at ({type(error).__name__}).")


class _Call:
    """The command whose files are looked at."""

    def __init__(self, command: UnderstoodCommand) -> None:
        self._program = command.program
        self._runs = command.runs
        self._scripts = command.package_scripts
        self._shows_scripts = self._program == "npm" or self._scripts is not None

    def refuse_unseen(self, looks: Sequence[Look]) -> None:
        """Refuse what would run something that is not among the files."""
        is_script = self._program in ("python", "node") and bool(looks)
        is_module = any(path.endswith("__init__.py") for path in self._runs)
        if is_script and not is_module and all(look.sha256 == MISSING for look in looks):
            raise ToolFailure(f"There is no {self._runs[0]!r} in the workspace.")
        for look in looks:
            directory, _, name = look.path.rpartition("/")
            if self._program == "node" and name == "package.json" and (directory or ".") in self._runs and look.head:
                self._refuse_other_main(directory, look)

    def _refuse_other_main(self, directory: str, look: Look) -> None:
        package = _package(look.head)
        main = None if package is None else package.get("main", "index.js")
        named = posixpath.normpath(posixpath.join(directory, main)) if isinstance(main, str) else ""
        if named not in self._runs and f"{named}.js" not in self._runs:
            raise ToolFailure(
                f"{look.path!r} says which file would run, and it is not one that is shown.",
                hint="Name the file itself.",
            )

    def seen(self, look: Look) -> SeenFile:
        text = None
        if look.sha256 != MISSING and not secret_name(look.path) and not secret_name(look.real or ""):
            text = self._text(look)
        # Masked in more than is shown: half a secret no longer looks like one.
        shown = None if text is None else mask_text(text[: 4 * MAX_SEEN_TEXT], cover_inert)
        return SeenFile(
            path=look.path,
            sha256=look.sha256,
            size=look.size,
            modified_at=look.modified_at,
            text=None if shown is None else shown[:MAX_SEEN_TEXT],
            shortened=shown is not None and len(shown) > MAX_SEEN_TEXT,
        )

    def _is_package(self, look: Look) -> bool:
        return self._shows_scripts and posixpath.basename(look.path) == "package.json"

    def _text(self, look: Look) -> str | None:
        if self._is_package(look):
            package = _package(look.head)
            if package is not None:
                return _script_lines(package, self._scripts)
        if b"\x00" in look.head:
            return None
        return look.head.decode("utf-8", "replace")


def _package(data: bytes) -> JsonObject | None:
    """A package.json, read as npm does; None where that is no object."""
    with suppress(ValueError, RecursionError):
        value: object = json.loads(data.decode("utf-8-sig"))
        if isinstance(value, dict):
            return cast("JsonObject", value)
    return None


def _script_lines(package: JsonObject, wanted: Sequence[str] | None) -> str:
    """The scripts that would run, as they are written; all of them where it is not certain which."""
    scripts: Any = package.get("scripts")
    known: dict[str, Any] = cast("dict[str, Any]", scripts) if isinstance(scripts, dict) else {}
    names = known if wanted is None else [name for name in wanted if name in known]
    lines = [f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(known[name], ensure_ascii=False)}" for name in names]
    return "\n".join(lines) or "(no script of this name)"


def _time(seconds: float) -> str | None:
    with suppress(ValueError, OverflowError, OSError):
        return timestamp(datetime.fromtimestamp(seconds, UTC))
    return None
