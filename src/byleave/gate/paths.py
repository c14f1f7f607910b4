"""Paths by their spelling alone: checked, split as a careless file system reads them, and matched with globs.

Nothing here touches the disk. The client checks the real file system when it opens the file (links, mounts, races);
a path refused here is refused whatever the disk holds. Windows spellings are refused on every system, so one call
means the same everywhere.

In a glob `*` and `?` match within a name, `**` across directories, a bare name matches anywhere, `dir/` all below it.
Globs come from rules that others write, so they never become regular expressions: matching takes at most time in
proportion to glob times path.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from byleave.gate.text.characters import LOOKALIKE_SLASHES, escaped, hidden_in
from byleave.gate.text.render import quoted
from byleave.protocol.verdicts import Finding, VerdictLevel

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4096

RELATIVE_HINT = "use a path relative to the workspace"

SYSTEM_DIRECTORIES = ("/proc", "/sys", "/dev", "/boot", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr/bin")
_SYSTEM_PREFIXES = tuple(f"{directory}/" for directory in SYSTEM_DIRECTORIES)

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|clock\$|com[0-9¹²³]|lpt[0-9¹²³])", re.IGNORECASE)
_DEVICE_FILE = re.compile(rf"{_DEVICE.pattern}[ .]*(?:[.:].*)?", re.IGNORECASE | re.DOTALL)
_SHORT_NAME = re.compile(r"[^.~]{1,6}~[0-9]{1,6}(?:\.[^.]{0,3})?")


class PathFinding(NamedTuple):
    """Result of checking the syntax of a path."""

    relative: str
    """Relative to the workspace, otherwise as written: `..` stays, since a link may stand before it."""
    refusal: Finding | None


def check_path(path: str, *, workspace: str | None = None, writes: bool = False) -> PathFinding:
    """Judge one path. `writes` adds the rules for names that would be created."""
    relative, refusal = _locate(path, workspace)
    if refusal is None:
        refusal = _check_names(relative)
    if refusal is None and writes:
        refusal = _check_new_name(relative)
    return PathFinding(relative, refusal)


def _locate(path: str, workspace: str | None) -> PathFinding:
    """Strip the workspace from an absolute path; refuse one that cannot lie inside it."""
    if not path:
        return _refused(path, "empty", "A path is empty.", RELATIVE_HINT)
    hidden = None if path.isascii() and path.isprintable() else hidden_in(path)
    if hidden is not None:
        return _refused(path, "characters", f"{quoted(path)} holds the invisible character {escaped(hidden)}.")
    if "\\" in path:
        return _refused(path, "backslash", f"{quoted(path)} holds a backslash.", "separate names with /")
    if ":" in path and (_DRIVE.match(path) or _URL.match(path) or ":$" in path):
        return _refused(path, "form", f"{quoted(path)} is a URL, drive or stream, not a path.", RELATIVE_HINT)
    if not path.startswith("/"):
        return PathFinding(path, None)
    root = workspace.rstrip("/") if workspace else ""
    if not root or not (path == root or path.startswith(root + "/")):
        return _refused(path, "outside", f"{quoted(path)} is outside the workspace.", RELATIVE_HINT)
    if (path + "/").startswith(_SYSTEM_PREFIXES):
        return _refused(path, "system", f"{quoted(path)} is a system file.")
    return PathFinding(path[len(root) :].lstrip("/") or ".", None)


def _check_names(relative: str) -> Finding | None:
    if not relative.isascii():
        if LOOKALIKE_SLASHES.search(relative):
            return _finding("separator", f"{quoted(relative)} holds a character that only looks like a separator.")
        plain = plain_form(relative)
        climbs = sum(name.strip() == ".." for name in plain.split("/")) != relative.split("/").count("..")
        if plain.count("/") != relative.count("/") or climbs:
            return _finding("separator", f"{quoted(relative)} holds characters that only look like dots or separators.")
    if len(relative) > MAX_NAME_BYTES // 4 and _too_long(relative):
        return _finding("length", f"A name in {quoted(relative)} is longer than a file system takes.")
    if ".." in relative and climbs_out(relative):
        return _finding("outside", f"{quoted(relative)} leads out of the workspace.", RELATIVE_HINT)
    last = relative.rsplit("/", 1)[-1]
    if len(last) <= 8 and _DEVICE.fullmatch(last):
        return _finding("device", f"{quoted(last)} is the name of a device.")
    return None


def climbs_out(relative: str) -> bool:
    """True if the path climbs above its start at any point, even if it comes back."""
    depth = 0
    for name in relative.split("/"):
        if name.strip(" ") == "..":
            depth -= 1
            if depth < 0 or name != "..":
                return True
        elif name and name != ".":
            depth += 1
    return False


def _too_long(relative: str) -> bool:
    raw = relative.encode("utf-8", "surrogatepass")
    return len(raw) >= MAX_PATH_BYTES or any(len(name) > MAX_NAME_BYTES for name in raw.split(b"/"))


def _check_new_name(relative: str) -> Finding | None:
    """Refuse new names that do not mean the same on every system."""
    names = [name for name in relative.split("/") if name not in ("", ".", "..")]
    if not names or relative.endswith(("/", "/.", "/..")):
        return _finding("directory", f"{quoted(relative)} names a directory, not a file.")
    for name in names:
        if ":" in name:
            return _finding("stream", f"{quoted(name)} holds a colon, which names a stream on some systems.")
        if name[-1] in " .":
            return _finding("trailing", f"{quoted(name)} ends with a dot or space, which some systems drop.")
        if _DEVICE_FILE.fullmatch(name):
            return _finding("device", f"{quoted(name)} is the name of a device on some systems.")
        if "~" in name and _SHORT_NAME.fullmatch(name):
            return _finding("short-name", f"{quoted(name)} is a short name that may stand for another file.")
    return None


def _finding(rule: str, reason: str, instead: str | None = None) -> Finding:
    return Finding(level=VerdictLevel.REFUSE, reason=reason, rule=f"paths.{rule}", instead=instead)


def _refused(path: str, rule: str, reason: str, instead: str | None = None) -> PathFinding:
    return PathFinding(path, _finding(rule, reason, instead))


def plain_form(text: str) -> str:
    """Fold compatibility forms and case, as a careless reader or file system would."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def names_of(path: str) -> tuple[str, ...]:
    """Split a path as a careless file system compares it: no case, trailing dots or spaces, or streams (`x:y`)."""
    return tuple(
        part if part == ".." else part.partition(":")[0].rstrip(" .") or part
        for part in plain_form(path).replace("\\", "/").split("/")
        if part not in ("", ".")
    ) or (".",)


# Globs

T = TypeVar("T")
Spellings = tuple[str, ...]
"""One name as a careless file system compares it, and its own spelling if that differs: `end` and `end.`."""

DEEP = "**"
BELOW = (DEEP, "*")


def path_fits(glob: str, path: str, *, careless: bool = False) -> bool:
    """True if a glob fits a path from the workspace.

    `careless` is for rules that tighten: it ignores case and look-alikes, and fits everything below a fitting name.
    """
    if not careless:
        return _walk(_parts(glob), path.split("/"), DEEP, part_fits)
    parts, names = plain_parts(glob), _names(path)
    return _all_fit(parts, names) or _all_fit((*parts, *BELOW), names)


def path_above(path: str, glob: str) -> bool:
    """True if a directory may contain a path that the glob fits."""
    names = _names(path)
    if names == ((".",),):
        return True
    for part, name in zip(plain_parts(glob), names, strict=False):
        if part == DEEP:
            return True
        if not _spelled_fits(part, name):
            return False
    return True


def directory_of(path: str, glob: str) -> bool:
    """True if a path is the directory whose content a glob fits: `secret` for `secret/**`."""
    parts = plain_parts(glob)
    return len(parts) > 2 and parts[-2:] == BELOW and _all_fit(parts[:-2], _names(path))


def first_names(paths: Iterable[str]) -> frozenset[str]:
    """The first name of each path, in every spelling that a careless comparison sees."""
    return frozenset(name for path in paths for name in _names(path)[0])


@lru_cache(maxsize=2048)
def first_fixed(glob: str) -> str | None:
    """The first name that all fitting paths share; None if it may be any."""
    first = plain_parts(glob)[0]
    return None if "*" in first or "?" in first else first


@lru_cache(maxsize=4096)
def _names(path: str) -> tuple[Spellings, ...]:
    careless = names_of(path)
    spelled = [part for part in plain_form(path).replace("\\", "/").split("/") if part not in ("", ".")] or ["."]
    return tuple((one,) if one == other else (one, other) for one, other in zip(careless, spelled, strict=True))


@lru_cache(maxsize=2048)
def plain_parts(glob: str) -> tuple[str, ...]:
    """The names of a glob for careless comparison; `**` stands for any number of names."""
    return _parts(plain_form(glob))


@lru_cache(maxsize=2048)
def _parts(glob: str) -> tuple[str, ...]:
    anchored = glob.startswith(("/", "./"))
    plain = glob.removeprefix("./").lstrip("/")
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    bare = len(parts) == 1 and not anchored and parts[0] != DEEP
    if plain.endswith("/"):
        parts.append(DEEP)
    if bare:
        parts.insert(0, DEEP)
    if len(parts) > 1 and parts[-1] == DEEP:
        parts[-1:] = BELOW  # `dir/**` fits the content of a directory, never the directory itself
    return tuple(parts)


def _all_fit(parts: Sequence[str], names: Sequence[Spellings]) -> bool:
    return _walk(parts, names, DEEP, _spelled_fits)


@lru_cache(maxsize=8192)
def _spelled_fits(part: str, spellings: Spellings) -> bool:
    return any(part_fits(part, name) for name in spellings)


@lru_cache(maxsize=8192)
def part_fits(part: str, name: str) -> bool:
    """True if one name of a glob, not `**`, fits one name of a path in its plain form."""
    if "*" not in part and "?" not in part:
        return part == name
    if len(name) > MAX_NAME_BYTES:
        return False  # no file name is that long
    if "?" in part:
        return _walk(part, name, "*", _letter_fits)
    first, *others = part.split("*")
    last = others.pop()
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for piece in others:  # the earliest match leaves the most for the rest
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _letter_fits(wanted: str, letter: str) -> bool:
    return wanted in ("?", letter)


def _walk(pattern: Sequence[str], given: Sequence[T], star: str, fits: Callable[[str, T], bool]) -> bool:
    """Match in one pass, backtracking to the last star only: earlier stars never need to take more."""
    at = here = 0
    back: tuple[int, int] | None = None
    while here < len(given):
        if at < len(pattern) and pattern[at] == star:
            back = (at, here)
            at += 1
        elif at < len(pattern) and fits(pattern[at], given[here]):
            at += 1
            here += 1
        elif back is not None:
            back = (back[0], back[1] + 1)
            at, here = back[0] + 1, back[1]
        else:
            return False
    while at < len(pattern) and pattern[at] == star:
        at += 1
    return at == len(pattern)
