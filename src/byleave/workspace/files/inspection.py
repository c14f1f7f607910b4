"""Read the files that a call would run or replace before a person is asked: digest, size, age and text.

`look_at` reads one file once, so all it returns is of the same bytes. It opens as the file tools do, so a link that
leads out, a pipe or a device is never read. The file that a write would replace is found without opening it, refused
if no write could replace it, and only then opened, by the same descriptor. The reported path is the real one, after all
links. `inspect` and `inspect_write` never raise: if they cannot look, they say why.

`check_bound` compares the file to be replaced on open descriptors, never by name. `refuse_irreplaceable` holds for the
look and for the write itself. Nothing here runs or writes anything.
"""

import codecs
import errno
import hashlib
import json
import os
import posixpath
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, cast

from byleave.gate import UnderstoodCommand, cover_key, mask_text, secret_name
from byleave.gate.commands.scripts import NODE_FILES, UNKNOWN, local_package
from byleave.gate.commands.tables import all_names
from byleave.gate.text.characters import whole_characters
from byleave.protocol.approvals import MAX_SEEN_TEXT, Inspection, SeenFile, SeenRole
from byleave.protocol.changes import MAX_SHOWN_TEXT
from byleave.protocol.errors import ByleaveError, PathValidationError, ToolFailure
from byleave.protocol.tools import MAX_FILE_BYTES
from byleave.protocol.wire import JsonObject, plain_json, timestamp
from byleave.workspace.paths import PathValidator, names_directory, path_error, refuse_odd_kind, visible
from byleave.workspace.sandbox.environment import find_program
from byleave.workspace.stopping import MISSING, drifted

from .drafts import reopen
from .links import real_name, refuse_hidden_target, refuse_protected

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK = 1 << 20
_HEAD = 256 * 1024
"""Enough for every real package.json."""
_NPMRC_CHOOSES = re.compile(
    r"^(?!\s*[;#])[^=\n]*(?:[$\\]|(?<![\w-])(?:workspaces?|global|location|node-options|node-gyp|python)(?![\w-]))",
    re.MULTILINE,
)
"""A setting by which npm runs another package's scripts or another program, or whose name is not as it is written."""
_MAX_SENT_TEXT = MAX_SEEN_TEXT + 4096
"""More than is shown: the server masks before it cuts, and half a secret no longer looks like one."""
_MAX_PROBLEM = 400
_MAX_NAMED = 8
_NOT_TEXT = "It is not text."
_OTHER_CODE = "It declares an encoding in which its text would mean other code than could be shown."
_LINE_END = re.compile(rb"[\r\n]")
_COMMENT = re.compile(rb"[ \t\f]*#(.*)", re.DOTALL)
_CODING = re.compile(rb"coding[:=][ \t]*([-\w.]+)")
"""As in PEP 263, but anywhere in the comment: Python takes the first one that has a name."""
_UTF8 = frozenset({b"utf-8", b"utf8", b"ascii", b"us-ascii"})
_LATIN = frozenset({b"latin-1", b"latin1", b"iso-8859-1", b"iso8859-1"})
_UNKNOWN_FILES = "It cannot be told which files this would run, so nobody can be asked."
_UNKNOWN_OTHERS = f"{_UNKNOWN_FILES} Name fewer files, leave out unusual options, or spell them in full."
_UNKNOWN_NPM = (
    f"{_UNKNOWN_FILES} Spell each option in full and its value behind '=', name a directory once and without '..' "
    "(--prefix=app), and a package by its directory (-w packages/a)."
)


@dataclass(frozen=True, slots=True)
class Look:
    """One file as it was when it was read."""

    path: str
    sha256: str
    """`missing` if there is no file; a directory counts as none."""
    real: str | None = None
    """Real path, after all links."""
    size: int | None = None
    mode: int = 0
    modified_at: str | None = None
    head: bytes = b""
    is_binary: bool = False
    """True if a NUL is anywhere in it: text may have an archive behind it, which Python runs instead."""
    is_directory: bool = False


def look_at(
    paths: PathValidator,
    path: str,
    *,
    max_bytes: int = MAX_FILE_BYTES,
    keep: Callable[[bytes], object] | None = None,
) -> Look:
    """Read one file to its end. `keep` gets the same bytes that are hashed. Raises if it may not or cannot."""
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
        digest, head, size, is_binary = hashlib.sha256(), b"", 0, False
        while piece := os.read(fd, _CHUNK):
            size += len(piece)
            if size > max_bytes:
                raise ToolFailure(f"{path!r} is larger than {max_bytes} bytes.")
            digest.update(piece)
            head += piece[: max(_HEAD - len(head), 0)]
            is_binary = is_binary or b"\x00" in piece
            if keep is not None:
                keep(piece)
        modified = _time(os.fstat(fd).st_mtime)
        real = paths.real_path(fd)
        return Look(path, digest.hexdigest(), real, size, info.st_mode, modified, head, is_binary)
    except OSError as error:
        raise path_error(path, error) from error
    finally:
        os.close(fd)


def refuse_stand_in(paths: PathValidator, look: Look, among: Collection[str]) -> None:
    """Refuse what would run instead of the file: a directory, unless what runs in it is named too; compiled code."""
    inner = (posixpath.normpath(posixpath.join(look.path, name)) for name in ("__main__.py", "index.js"))
    if look.is_directory and not any(name in among for name in inner):
        raise ToolFailure(f"{look.path!r} is a directory, so what it would run cannot be shown.")
    directory, module = posixpath.split(look.path.removesuffix(".py"))
    is_module = module in ("__init__", "__main__") or posixpath.join(directory, module, "__init__.py") in among
    for name in _names_in(paths, directory) if is_module and look.path.endswith(".py") else ():
        compiled = posixpath.join(directory, name)
        if name.startswith(f"{module}.") and name.endswith((".pyc", ".so")) and compiled not in among:
            raise ToolFailure(f"{compiled!r} is compiled code that Python may run, and it cannot be shown.")


def _names_in(paths: PathValidator, directory: str) -> list[str]:
    try:
        fd = paths.open_raw(paths.relative(directory or "."), _READ | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise path_error(directory, error) from error
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def inspect(paths: PathValidator, command: UnderstoodCommand, *, max_bytes: int = MAX_FILE_BYTES) -> Inspection:
    """Inspect the files that a command runs; a problem if its program is not installed."""
    try:
        find_program(command.program, paths.root)
        if command.runs == UNKNOWN:
            raise ToolFailure(_UNKNOWN_NPM if command.program == "npm" else _UNKNOWN_OTHERS)
        call = _Call(command, paths)
        looks = [look_at(paths, path, max_bytes=max_bytes) for path in command.runs]
        for look in looks:
            refuse_stand_in(paths, look, command.runs)
        call.refuse_unseen(looks)
        return Inspection(files=[call.seen(look) for look in looks])
    except ByleaveError as error:
        return Inspection(files=[], problem=mask_text(error.message)[:_MAX_PROBLEM])
    except Exception as error:  # noqa: BLE001 - a boundary: a fault of ours must say that nothing is known
        return Inspection(files=[], problem=f"The files could not be looked at ({type(error).__name__}).")


class _Call:
    """The command whose files are inspected."""

    def __init__(self, command: UnderstoodCommand, paths: PathValidator) -> None:
        self._paths = paths
        self._program = command.program
        self._runs = command.runs
        self._scripts = command.package_scripts
        self._shows_scripts = self._program == "npm" or self._scripts is not None
        words = () if command.reading is None else command.reading.operands
        self._installs_all = self._program == "npm" and len(words) == 1 and words[0] in _npm_installs()
        """True if it installs what package.json names."""

    def refuse_unseen(self, looks: Sequence[Look]) -> None:
        """Refuse a command that would run something that is not among the files."""
        is_script = self._program in ("python", "node") and bool(looks)
        is_module = any(path.endswith("__init__.py") for path in self._runs)
        tests = self._program == "node" and any(look.is_directory for look in looks)
        if is_script and not is_module and not tests and all(look.sha256 == MISSING for look in looks):
            raise ToolFailure(f"There is no {self._runs[0]!r} in the workspace.")
        for look in looks:
            directory, _, name = look.path.rpartition("/")
            if self._program == "npm" and self._scripts and look.path == "package.json" and look.sha256 == MISSING:
                raise ToolFailure("There is no 'package.json' in the workspace, so npm has nothing to run.")
            if self._installs_all and look is looks[0] and look.sha256 == MISSING:
                raise ToolFailure(f"There is no {look.path!r} in the workspace, so npm has nothing to install.")
            if self._program == "npm" and directory and name == "package.json" and look.sha256 == MISSING:
                self._refuse_no_package(look)
            if self._program == "npm" and name == ".npmrc":
                _refuse_choosing_settings(look)
            is_within = (directory or ".") in self._runs
            is_only = not is_within and look.path.rpartition(".")[0] not in self._runs
            if self._program == "node" and is_only and look.sha256 == MISSING and name.endswith(NODE_FILES):
                raise ToolFailure(f"There is no {look.path!r}, so node would look for another file.")
            if self._program == "node" and name == "package.json" and is_within and look.head:
                self._refuse_other_main(directory, look, {file.path for file in looks if file.sha256 != MISSING})

    def _refuse_no_package(self, look: Look) -> None:
        # Without package.json among the files, it is of --prefix, where an install may make one.
        if "package.json" in self._runs or self._scripts is not None:
            raise ToolFailure(f"There is no {look.path!r}, so which package npm would choose cannot be told.")

    def _refuse_other_main(self, directory: str, look: Look, there: Collection[str]) -> None:
        """Refuse a `main` that is not itself one of the files: node would try other endings first."""
        package = _package(look.head)
        main = None if package is None else package.get("main", "index.js")
        named = posixpath.normpath(posixpath.join(directory, main)) if isinstance(main, str) else ""
        if named not in there and (package is None or "main" in package):
            raise ToolFailure(
                f"{look.path!r} says which file would run, and it is not one that is shown.",
                hint="Name the file itself.",
            )

    def seen(self, look: Look) -> SeenFile:
        # Shown whatever its name: .npmrc names a shell, `client_secret_check.py` is a script like any other.
        text = None if look.sha256 == MISSING else self._text(look)
        why_not = _NOT_TEXT if look.is_binary else _OTHER_CODE
        return SeenFile(
            path=look.path,
            sha256=look.sha256,
            size=look.size,
            modified_at=look.modified_at,
            text=None if text is None else whole_characters(text[:_MAX_SENT_TEXT]),
            shortened=text is not None and len(text) > _MAX_SENT_TEXT,
            note=why_not if text is None and look.sha256 != MISSING else None,
        )

    def _is_package(self, look: Look) -> bool:
        return self._shows_scripts and posixpath.basename(look.path) == "package.json"

    def _text(self, look: Look) -> str | None:
        if self._is_package(look):
            package = _package(look.head)
            if package is not None and self._scripts is not None:
                return _script_lines(package, self._scripts)
            if package is not None:
                return "\n".join([_script_lines(package, None), *self._also_run(look.path, package)])
        if look.is_binary or (look.head.count(b"\n") < 2 and len(look.head) == _HEAD):
            return None  # the second line may lie beyond
        encoding = _encoding(look.head)
        return None if encoding is None else look.head.decode(encoding, "replace")

    def _also_run(self, path: str, package: JsonObject) -> list[str]:
        """Packages of the workspace whose scripts an install runs too. The approval is not bound to them."""
        lines: list[str] = []
        if package.get("workspaces"):
            lines.append(f"Scripts of its workspaces may run too: {plain_json(package['workspaces'])}")
        for name, spec in _local_dependencies(package)[:_MAX_NAMED]:
            directory = posixpath.normpath(posixpath.join(posixpath.dirname(path), local_package(spec) or ""))
            lines.append(f"Scripts of {json.dumps(name)} may run too, from {json.dumps(spec)}:")
            try:
                inner = _package(look_at(self._paths, posixpath.join(directory, "package.json")).head)
            except ByleaveError as error:
                lines.append(f"  {error.message}")
            else:
                shown = "(they cannot be shown)" if inner is None else _script_lines(inner, None)
                lines += [f"  {line}" for line in shown.split("\n")]
        if len(_local_dependencies(package)) > _MAX_NAMED:
            lines.append("Scripts of further packages of the workspace may run too.")
        return lines


def _encoding(data: bytes) -> str | None:
    """The encoding to show a file in; None if it declares one, as Python files may, that would run as other code.

    A declaration counts wherever Python could find it: in a comment of the first two lines, however they end.
    """
    lines = _LINE_END.split(b"\n".join(data.removeprefix(codecs.BOM_UTF8).split(b"\n", 2)[:2]))
    names = {name.lower().replace(b"_", b"-") for line in lines for name in _declared(line)}
    if names <= _LATIN and names:
        return "latin-1"
    return "utf-8" if all(name in _UTF8 or name.startswith(b"utf-8-") for name in names) else None


def _declared(line: bytes) -> list[bytes]:
    comment = _COMMENT.match(line)
    return [] if comment is None else _CODING.findall(comment[1])


def _npm_installs() -> tuple[str, ...]:
    return (*all_names("npm", "install"), *all_names("npm", "ci"))


def _refuse_choosing_settings(npmrc: Look) -> None:
    found = _NPMRC_CHOOSES.search(npmrc.head.decode("utf-8", "replace").replace("\r", "\n"))
    if found is not None or len(npmrc.head) < (npmrc.size or 0):
        setting = "too much" if found is None else repr(found[0].strip())
        raise ToolFailure(f"{npmrc.path!r} sets {setting}, so it cannot be told what npm would run.")


def _local_dependencies(package: JsonObject) -> list[tuple[str, str]]:
    """Dependencies that are files or directories, with what is said of them."""
    found: list[tuple[str, str]] = []
    for kind in ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies"):
        named: Any = package.get(kind)
        for name, spec in cast("dict[str, Any]", named).items() if isinstance(named, dict) else ():
            if isinstance(spec, str) and local_package(spec) is not None:
                found.append((name, spec))
    return found


def _package(data: bytes) -> JsonObject | None:
    """Parse a package.json as npm does; None if it is no object."""
    with suppress(ValueError, RecursionError):
        value: object = json.loads(data.decode("utf-8-sig"))
        if isinstance(value, dict):
            return cast("JsonObject", value)
    return None


def _script_lines(package: JsonObject, wanted: Sequence[str] | None) -> str:
    """The scripts that would run, as written; all of them if it is uncertain which."""
    scripts: Any = package.get("scripts")
    if scripts and not isinstance(scripts, dict):
        return plain_json(scripts)  # npm finds scripts in a list by their number
    known: dict[str, Any] = cast("dict[str, Any]", scripts or {})
    names = known if wanted is None else [name for name in wanted if name in known]
    lines = [f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(known[name], ensure_ascii=False)}" for name in names]
    return "\n".join(lines) or "(no script of this name)"


def _time(seconds: float) -> str | None:
    with suppress(ValueError, OverflowError, OSError):
        return timestamp(datetime.fromtimestamp(seconds, UTC))
    return None


NOTHING = "nothing was written"
NOT_AS_SHOWN = "It is not what was shown; nothing was written."
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


def refuse_irreplaceable(fd: int, info: os.stat_result, path: str) -> None:
    """Refuse a file that no write may replace: not regular, read-only, or with other names."""
    if stat.S_ISDIR(info.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    # Renaming over a file ignores the file's own permissions, so they are checked here. Root may write
    # anything; the owner's bit says whether this file is meant to change.
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
    """As requested."""
    real: str
    old_fd: int | None
    new_fd: int
    data: bytes
    copied: int | None
    """Number of bytes of the old file that the new one begins with; None if it takes none over."""


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
        if before.st_size > max_bytes:  # no inspection reads that far
            return False
        there = digest_of(fd, before.st_size)
        if write.copied is not None:
            # Check the copied bytes too: the old file may have been put back just for this check.
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
"""A shown text has at most this many bytes."""
_MAX_SENT = 640 * 1024
"""As JSON: it fits into an ordinary request body of the server."""


def inspect_write(
    paths: PathValidator,
    path: str,
    *,
    max_bytes: int = MAX_FILE_BYTES,
    unreadable: Callable[[str], bool] = lambda real: False,
) -> Inspection:
    """Inspect the file at `path`. `unreadable`: True for a real path that may not be read; its text is left out."""
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
        _refuse_read_only_directory(paths, path, real)
        return SeenFile(path=real, role=SeenRole.REPLACES, sha256=MISSING)
    try:
        real = _checked(path, relative, paths.real_path(fd))
        info = os.fstat(fd)
        paths.refuse_out_of_reach(fd)
        refuse_irreplaceable(fd, info, path)
        _refuse_read_only_directory(paths, path, real)
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
    """Refuse a name that is taken after all: by a dangling link, or by a file that appeared just now."""
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


def _refuse_read_only_directory(paths: PathValidator, path: str, real: str) -> None:
    """Refuse a file whose directory, or the nearest one above that exists, takes no new names."""
    above = posixpath.dirname(real)
    while above and not os.path.lexists(paths.root / above):
        above = posixpath.dirname(above)
    directory = paths.open_raw(above or ".", os.O_PATH)
    try:
        if not os.access(f"/proc/self/fd/{directory}", os.W_OK | os.X_OK, effective_ids=True):
            raise ToolFailure(f"No permission to write {path!r}: its directory {above or '.'!r} is read-only.")
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
    """The whole text with secrets masked, or why it is not shown. Never a part: half a file is no difference."""
    if secret_name(path) or secret_name(real):
        return None, "Its name says that it may hold secrets, so its content is not shown."
    if b"\x00" in data:
        return None, _NOT_TEXT
    try:
        text = data.decode("utf-8") if len(data) <= _KEPT else ""
    except UnicodeDecodeError:
        # With replacement characters, different bytes would look the same.
        return None, "It is not text in UTF-8."
    if len(data) > _KEPT or len(text) > MAX_SHOWN_TEXT:
        return None, "It is too long to be shown here."
    masked = mask_text(text, cover_key)
    if len(masked) > 2 * MAX_SHOWN_TEXT or len(plain_json(masked).encode()) > _MAX_SENT:
        return None, "It is too long to be shown here."
    return masked, None


def _too_large(path: str, max_bytes: int) -> ToolFailure:
    return ToolFailure(f"{path!r} is larger than {max_bytes} bytes, so what would be replaced cannot be shown.")
