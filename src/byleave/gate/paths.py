"""Check paths by syntax alone: they must stay inside the workspace and use accepted names.

Nothing here touches the disk. The client checks the real file system when it opens the file (links, mounts, races);
a path refused here is refused whatever the disk holds. Windows spellings are refused on every system, so one call
means the same everywhere.
"""

import re
from typing import NamedTuple

from byleave.gate.text.characters import LOOKALIKE_SLASHES, escaped, hidden_in, plain_form
from byleave.gate.text.secrets import cover_inert, mask_text
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
    hidden = hidden_in(path)
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


def quoted(text: str, limit: int = 120) -> str:
    """Quote a name for a sentence: visible, shortened, masked as in a question; the record masks more."""
    masked = mask_text(text[:MAX_PATH_BYTES], cover_inert)
    shown = masked[:limit]
    if hidden_in(shown) is not None:
        shown = "".join(escaped(c) if hidden_in(c) else c for c in shown)
    return f"'{shown}'" if len(masked) <= limit else f"'{shown}…'"


def _finding(rule: str, reason: str, instead: str | None = None) -> Finding:
    return Finding(level=VerdictLevel.REFUSE, reason=reason, rule=f"paths.{rule}", instead=instead)


def _refused(path: str, rule: str, reason: str, instead: str | None = None) -> PathFinding:
    return PathFinding(path, _finding(rule, reason, instead))
