"""Findings for a value of each kind: a path that leads out, a program to run, a file with secrets, a sed script.

Each `Kind` has a small judge, which gets the value and its position and returns findings; none means harmless. Text is
never searched for words that look dangerous: only its kind decides.

Only the plain part of sed is certain: addresses with `p d q s y =` and the like. Whatever versions of sed read
differently is never called certain.
"""

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from byleave.gate.names import MEDIUM_EXTENSIONS, asks_for_secrets, protected_name, secret_name, trusted_name
from byleave.gate.paths import RELATIVE_HINT, check_path, climbs_out
from byleave.gate.text.characters import deceptive_in
from byleave.gate.text.render import quoted
from byleave.protocol.verdicts import Finding, VerdictLevel

from .tables import CommandTable, Kind

_PLAIN = frozenset("=dDgGhHnNpPxz")
_WITH_NUMBER = frozenset("qQlL")
_UNCERTAIN_LINES = frozenset("aicbtTv:")
"""Commands that take the rest of the line, or not, depending on the sed."""
_NAMES_FILE = frozenset("rRwW")
_ADDRESS = re.compile(r"\s*(?:[0-9]+(?:~[0-9]+)?|[$]|[+~][0-9]+)")
_ADDRESS_FLAGS = re.compile(r"[IM]*")
_COMMA = re.compile(r"[ \t]*,?[ \t]*")
_SED_NUMBER = re.compile(r"[ \t]*[0-9]*")
_BLANK = re.compile(r"[\s;]*")
_NEGATED = re.compile(r"[! \t]*")
_LINE = re.compile(r"[^\n]*")
_LABEL = re.compile(r"[^\n;}]*")
"""Some seds end a label at `;`: the rest is read as commands, which is stricter."""
_END = re.compile(r"[ \t]*(?=[\n;}#]|\Z)")
_DELIMITERS = frozenset("/,|#@!:%_~+=^.-")
_TERMINALS = frozenset(("/dev/stdout", "/dev/stderr"))


@cache
def _up_to(delimiter: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A regular expression and a replacement of sed, each with the delimiter that ends it.

    A delimiter within brackets is unclear, because seds disagree about it: neither pattern fits then.
    """
    end = re.escape(delimiter)
    # No group may be captured: within a possessive repetition `re` fails on it.
    kinds = "|".join(rf"\[[{kind}](?:(?![{kind}]\]|{end})[\s\S])*+[{kind}]\]" for kind in ":.=" if kind != delimiter)
    brackets = rf"\[\^?+\]?+(?:[^]\\\[\n{end}]|\\[^\n]|{kinds}|\[(?![:.=]))*+\]"
    expression = rf"(?:[^\\\[\n{end}]|\\[^\n]|{brackets})*+{end}"
    return re.compile(expression), re.compile(rf"(?:[^\\\n{end}]|\\[^\n])*+{end}")


class _Unclear(Exception):
    """The script cannot be read any further."""


@dataclass(slots=True)
class SedScript:
    """Effects of a sed script."""

    certain: bool = True
    """Every part was understood, and every sed understands it so."""
    readable: bool = True
    """False if the rest of the script could not be read."""
    runs: bool = False
    writes: list[str] = field(default_factory=list[str])
    reads: list[str] = field(default_factory=list[str])


def read_script(text: str) -> SedScript:
    """Read one script, or one of several pieces of it."""
    reader = _SedReader(text)
    try:
        reader.read()
    except _Unclear:
        reader.script.readable = False
    return reader.script


class _SedReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.script = SedScript()

    def read(self) -> None:
        while True:
            self._take(_BLANK)
            if self.at >= len(self.text):
                return
            if self._address() and "," in self._take(_COMMA) and not self._address():
                raise _Unclear
            self._take(_NEGATED)
            self._command(self._next())

    def _take(self, pattern: re.Pattern[str]) -> str:
        """Pass over the text that a pattern fits here, and return it."""
        found = pattern.match(self.text, self.at)
        if found is None:
            raise _Unclear
        self.at = found.end()
        return found.group()

    def _next(self) -> str:
        if self.at >= len(self.text):
            raise _Unclear
        self.at += 1
        return self.text[self.at - 1]

    def _delimiter(self) -> str:
        character = self._next()
        if character not in _DELIMITERS:
            raise _Unclear
        return character

    def _address(self) -> bool:
        if _ADDRESS.match(self.text, self.at):
            self._take(_ADDRESS)
            return True
        first = self.text[self.at : self.at + 1]
        if first not in ("/", "\\"):
            return False
        self.at += 1
        expression, _ = _up_to("/" if first == "/" else self._delimiter())
        self._take(expression)
        self._take(_ADDRESS_FLAGS)
        return True

    def _command(self, command: str) -> None:
        if command == "#":
            self._take(_LINE)
        elif command in _PLAIN:
            self._take(_END)
        elif command in _WITH_NUMBER:
            self._take(_SED_NUMBER)
            self._take(_END)
        elif command == "s":
            self._substitute()
        elif command == "y":
            _, text = _up_to(self._delimiter())
            self._take(text)
            self._take(text)
            self._take(_END)
        elif command not in ("{", "}"):
            self._doubtful(command)

    def _substitute(self) -> None:
        for piece in _up_to(self._delimiter()):
            self._take(piece)
        while (flag := self.text[self.at : self.at + 1]) and (flag in "gpiImM" or flag.isdigit()):
            self.at += 1
        if flag == "e":
            self.script.certain = False
            self.script.runs = True
            raise _Unclear
        if flag == "w":
            self.at += 1
            self._doubtful("w")
            return
        self._take(_END)

    def _doubtful(self, command: str) -> None:
        script = self.script
        script.certain = False
        if command == "e":
            script.runs = True
            self._take(_LINE)
        elif command in _NAMES_FILE:
            name = self._take(_LINE).strip()
            if name not in _TERMINALS:
                (script.reads if command in "rR" else script.writes).append(name)
        elif command == "F":
            self._take(_END)
        elif command not in _UNCERTAIN_LINES or (command in "aic" and self.text.find("\\", self.at) >= 0):
            raise _Unclear
        else:
            self._take(_LINE if command in "aic" else _LABEL)


_NUMBER = re.compile(r"[+-]?[0-9]{1,19}(?:\.[0-9]{1,9})?[A-Za-z]{0,3}")
_WORD = re.compile(r"[A-Za-z0-9_+:.,%-]*")
_GLUED = re.compile(r"-[A-Za-z](?=/|~/|\.\.(?:/|$))")
_VARIABLE = re.compile(r"\$(?:[A-Z_{(]|env:)|%[A-Za-z_]+%")
# Neither scans beyond its next possible start, so a text full of starts takes linear time.
_EXPANDS = re.compile(r"`|\$[({]|\{(?:[^{}]*,)?(?:/|~|\.\.)")
_ZONE_FILE = re.compile(r"TZ=[\"']?:?(?:/|(?:(?!TZ=)[^\"'])*\.\.)")
_WIDE = re.compile(r"(?<!%)(?:%%)*%[^A-Za-z%]*?[0-9]{5}")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(::|://)")
_SCP = re.compile(r"[^/\s:]+:(?!/?\d+$).+")  # no colon before the first: one way to match, so linear
_MAGIC = re.compile(r":(?:\([^)]*\)|[!^/]*)")
_NETWORK_SCHEMES = frozenset({"http", "https", "ssh", "git", "git+ssh", "git+https", "ftp", "ftps", "git+http"})
_SAFE_CHECKPOINTS = frozenset({"dot", ".", "echo", "bell", "totals", "ttyout", "sleep"})
_WEB = re.compile(r"(?:https?://)?[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?(?:[/?#][^\s\\{}\[\]]*)?", re.IGNORECASE)
_WHEEL = (".whl", ".zip", ".egg", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_LINKER_PROGRAMS = ("-plugin", "--plugin", "-dynamic-linker", "--dynamic-linker", "-I", "-fuse-ld", "@")
_MEDIUM, _HIGH, _REFUSE = VerdictLevel.MEDIUM, VerdictLevel.HIGH, VerdictLevel.REFUSE


class Argument(NamedTuple):
    """The place of a value: its table and option."""

    table: CommandTable
    workspace: str | None
    option: str | None = None
    """The option it belongs to; None for an operand."""

    @property
    def rule(self) -> str:
        return f"commands.{self.table.name.replace(' ', '.')}.{self.option or 'operand'}"

    def finding(
        self, level: VerdictLevel, reason: str, instead: str | None = None, *, always_asks: bool = False
    ) -> Finding:
        return Finding(level=level, reason=reason, rule=self.rule, instead=instead, always_asks=always_asks)


Findings = list[Finding]
NOTHING: Findings = []


def judge_value(kind: Kind, value: str, place: Argument) -> Findings:
    """Findings for one value; an empty list when it is harmless."""
    return _JUDGES[kind](value, place)


def _text(value: str, place: Argument) -> Findings:
    if deceptive_in(value) is None:
        return NOTHING
    return [place.finding(_MEDIUM, f"{quoted(value, 60)} holds an invisible character.")]


def _format(value: str, place: Argument) -> Findings:
    if _WIDE.search(value) is None:
        return _text(value, place)
    return [place.finding(_MEDIUM, f"{quoted(value, 60)} has a field that is very wide.")]


def _number(value: str, place: Argument) -> Findings:
    if _NUMBER.fullmatch(value):
        return NOTHING
    return [place.finding(_MEDIUM, f"{quoted(value, 60)} is not a number."), *_loose(value, place)]


def _word(value: str, place: Argument) -> Findings:
    if _WORD.fullmatch(value) and ".." not in value:
        return NOTHING
    return [place.finding(_MEDIUM, f"{quoted(value, 60)} is not a plain word."), *_loose(value, place)]


def _refused(value: str, place: Argument, *, writes: bool = False) -> Findings:
    """The reason a path may not be used by a command; nothing if it may."""
    if value.startswith("~") or (value.startswith(("$", "%")) and _VARIABLE.match(value)) or _EXPANDS.search(value):
        # We would take it literally, but its author meant a place outside.
        return [place.finding(_REFUSE, f"{quoted(value)} names a home directory or variable.", RELATIVE_HINT)]
    relative, refusal = check_path(value, workspace=place.workspace)
    reason = protected_name(relative) if refusal is None and writes else None
    if reason is not None:
        return [place.finding(_REFUSE, f"{quoted(value)} may not be written. {reason}")]
    return NOTHING if refusal is None else [refusal]


def _path_name(value: str, place: Argument) -> Findings:
    return NOTHING if value == "-" else _refused(value, place)


def _path_read(value: str, place: Argument) -> Findings:
    if value == "-":
        return [place.finding(_MEDIUM, "Reads its input, which is empty.")]
    return _refused(value, place) or _secret(value, place)


def _secret(name: str, place: Argument) -> Findings:
    if not secret_name(name):
        return NOTHING
    return [place.finding(_MEDIUM, f"{quoted(name)} usually holds secrets.", always_asks=True)]


def _path_make(value: str, place: Argument, does: str = "Changes") -> Findings:
    found = _refused(value, place, writes=True)
    trusted = None if found else trusted_name(value)
    return found if trusted is None else [place.finding(_HIGH, f"{does} {quoted(value)}. {trusted}", always_asks=True)]


def _path_write(value: str, place: Argument) -> Findings:
    return _path_make(value, place, "Writes") or [place.finding(_HIGH, f"Writes {quoted(value)}.")]


def _program(value: str, place: Argument) -> Findings:
    return [place.finding(_REFUSE, f"{place.option or 'An argument'} would run another program: {quoted(value, 80)}.")]


def _loose(value: str, place: Argument) -> Findings:
    """Refuse a value that leads out of the workspace, alone or after `name=`; otherwise judge it as text."""
    for piece in _pieces(value):
        if piece.startswith(("/", "~", "$", "\\", "file:", "@/")) or ".." in piece:
            refused = _leads_out(piece.removeprefix("@").removeprefix("file:"), place)
            if refused:
                return refused
    return _text(value, place)


def _pieces(value: str) -> tuple[str, ...]:
    plain = _GLUED.sub("", value, count=1) if value.startswith("-") else value
    return (plain, *plain.split("=")[1:]) if "=" in plain else (plain,)


def _perhaps_read(value: str, place: Argument) -> Findings:
    """As `_loose`, for what may be the name of a file that is read. An option or a bare word means something else."""
    named = (piece for piece in _pieces(value) if not piece.startswith("-") and not piece.isalpha())
    secrets = (found for piece in named for found in _secret(piece.removeprefix("@").removeprefix("file:"), place))
    return _loose(value, place) or [*secrets]


def _leads_out(piece: str, place: Argument) -> Findings:
    if piece.startswith(("/", "~/", "\\\\", "$")) or piece == "~":
        return _refused(piece, place)
    if climbs_out(piece.replace("\\", "/")):
        return [place.finding(_REFUSE, f"{quoted(piece)} leads out of the workspace.", RELATIVE_HINT)]
    return NOTHING


def _remote(value: str, place: Argument) -> Findings:
    """A repository: by URL, by `host:path`, by the name of a remote, or a directory."""
    found = _URL.match(value)
    if found is not None:
        if found.group(1).lower() not in _NETWORK_SCHEMES or found.group(2) == "::":
            return [place.finding(_REFUSE, f"{quoted(value)} uses a transport that may run programs or read any file.")]
        return _dashed(value[found.end() :], value, place)
    if _SCP.fullmatch(value) and not value.startswith(("/", ".")):
        return _dashed(value, value, place)
    return _loose(value, place)


def _dashed(host: str, value: str, place: Argument) -> Findings:
    """Refuse a host that ssh would take for an option, which can name a program."""
    if host.startswith("-") or host.partition("/")[0].rpartition("@")[2].startswith("-"):
        return [place.finding(_REFUSE, f"{quoted(value)} would be read as an option, not as a host.")]
    return NOTHING


def is_remote(value: str) -> bool:
    """True if a repository lies on another machine."""
    return bool(_URL.match(value) or (_SCP.fullmatch(value) and not value.startswith(("/", "."))))


def _target(value: str, place: Argument) -> Findings:
    """The target of a push: one of the repository's remotes is usual, an address is not."""
    findings = _remote(value, place)
    if not findings and is_remote(value):
        return [place.finding(_HIGH, f"Sends to {quoted(value)}, which is none of the remotes.", always_asks=True)]
    return findings


def _file_list(value: str, place: Argument) -> Findings:
    if value == "-":
        return [place.finding(_REFUSE, "There is no input to read names from.")]
    return _refused(value, place) or [
        place.finding(_HIGH, f"The files that {quoted(value)} names are used, wherever they lie.")
    ]


def _date_format(value: str, place: Argument) -> Findings:
    if value.startswith("+"):
        return _format(value, place)
    return [place.finding(_REFUSE, f"{quoted(value)} would set the system clock.", "write a format as +%Y-%m-%d")]


def _date(value: str, place: Argument) -> Findings:
    if _ZONE_FILE.search(value):
        return [place.finding(_REFUSE, f"{quoted(value)} names a file outside as time zone.")]
    if "TZ=" in value:
        return [place.finding(_MEDIUM, f"{quoted(value)} names a time zone file.")]
    return _text(value, place)


def _module(value: str, place: Argument) -> Findings:
    option = place.table.modules.get(value.partition(".")[0])
    if option is None:
        return _loose(value, place)
    because = option.because or f"Runs the module {quoted(value)}."
    return [place.finding(option.level, because, always_asks=option.always_asks)]


def _package(value: str, place: Argument) -> Findings:
    """An npm package: a name from the registry is usual; a URL, an archive or a repository is not."""
    refused = _loose(value.rpartition("@")[2] if value.rpartition("@")[2].startswith("file:") else value, place)
    if refused:
        return refused
    spec = value[1:].partition("@")[2] or value
    shorthand = "/" in spec and not spec.startswith(("@", ".", "/"))  # owner/repository on GitHub
    if shorthand or ":" in value or value.endswith((".tgz", ".tar.gz")):
        return [place.finding(_HIGH, f"{quoted(value)} is fetched from outside the registry.")]
    return NOTHING


def _setting(value: str, place: Argument) -> Findings:
    name = value.partition("=")[0].lower()
    if name in place.table.settings or name.startswith(("color.", "advice.")):
        return _loose(value.partition("=")[2], place)
    return [place.finding(_REFUSE, f"The setting {quoted(name)} could make git run a program.", "leave it out")]


def _linker(value: str, place: Argument) -> Findings:
    for piece in (pieces := value.split(",")):
        if piece.startswith(_LINKER_PROGRAMS):
            return [place.finding(_REFUSE, f"{quoted(piece)} would make the compiler load another program.")]
    return next((found for piece in pieces if (found := _perhaps_read(piece, place))), NOTHING)


def _checkpoint(value: str, place: Argument) -> Findings:
    if value.partition("=")[0] in _SAFE_CHECKPOINTS:
        return NOTHING
    return [place.finding(_REFUSE, f"A checkpoint could run {quoted(value)}.")]


def _archive(value: str, place: Argument) -> Findings:
    if value == "-":
        return NOTHING
    if ":" in value:
        return [place.finding(_REFUSE, f"{quoted(value)} is an archive on another machine.")]
    if _path_make(value, place):
        return _path_write(value, place)
    return [place.finding(_HIGH, f"Reads or writes the archive {quoted(value)}.")]


def _script(value: str, place: Argument) -> Findings:
    if value == "-":
        return [place.finding(_HIGH, "Runs what it is given as input.")]
    return [*_module(value, place), *_path_read(value, place)]


def _glob(value: str, place: Argument) -> Findings:
    if asks_for_secrets(value, value):
        return [place.finding(_MEDIUM, f"{quoted(value)} asks for files that usually hold secrets.", always_asks=True)]
    return _text(value, place)


def _refspec(value: str, place: Argument) -> Findings:
    if value.startswith(("+", ":")):
        return [place.finding(_HIGH, f"{quoted(value)} overwrites or deletes a branch elsewhere.", always_asks=True)]
    return _loose(value, place)


def _fetched(value: str, place: Argument) -> Findings:
    written = value.partition(":")[2]
    is_special = written.startswith("refs/") and not written.startswith(("refs/heads/", "refs/tags/", "refs/remotes/"))
    # Without a plus git only moves a branch forward; with --prune it deletes what fits a pattern.
    overwrites = (value.startswith("+") or "*" in value) and not written.startswith("refs/remotes/")
    if written and (is_special or overwrites):
        return [place.finding(_HIGH, f"{quoted(value)} overwrites or deletes branches here.", always_asks=True)]
    return _loose(value, place)


def _source(value: str, place: Argument) -> Findings:
    if value.startswith("@"):
        return [place.finding(_REFUSE, f"{quoted(value)} holds arguments that cannot be seen.", "give them one by one")]
    return _loose(value, place) or _secret(value, place)


def _pathspec(value: str, place: Argument) -> Findings:
    return [*_loose(value, place), *_secret(value.rpartition(":")[2], place)]


def _tree(value: str, place: Argument) -> Findings:
    protected, trusted = protected_name(_MAGIC.sub("", value)), trusted_name(_MAGIC.sub("", value))
    if protected is not None:
        return [place.finding(_REFUSE, f"{quoted(value)} may not be changed. {protected}")]
    if trusted is not None:
        return [place.finding(_MEDIUM, f"Changes {quoted(value)}. {trusted}", always_asks=True), *_loose(value, place)]
    return _loose(value, place)


def _origin(value: str, place: Argument) -> Findings:
    """As `_remote`; the last part of the address also names a new directory."""
    name = value.rstrip("/").removesuffix("/.git").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")
    return [*_remote(value, place), *(_path_make(name, place) if name.strip(".") else NOTHING)]


def _sed_script(value: str, place: Argument) -> Findings:
    script = read_script(value)
    findings: Findings = []
    if script.runs:
        findings.append(place.finding(_REFUSE, f"The script {quoted(value, 80)} would run a program."))
    for name in script.writes:
        findings += _path_write(name, place)
    for name in script.reads:
        findings += _path_read(name, place)
    if not script.readable:
        reason = f"What the script {quoted(value, 80)} does cannot be told; sed can write files and run programs."
        findings.append(place.finding(_HIGH, reason))
    elif not script.certain:
        findings.append(place.finding(_MEDIUM, f"The script {quoted(value, 80)} does more than show lines."))
    return findings or _text(value, place)


def _is_root(relative: str) -> bool:
    """True if the spelling names the workspace itself."""
    return posixpath.normpath(relative) == "."


def _path_change(value: str, place: Argument) -> Findings:
    findings = _path_make(value, place)
    if findings or value.endswith("/") or _is_root(check_path(value, workspace=place.workspace).relative):
        return findings
    stem, dot, ending = value.rpartition("/")[2].rpartition(".")
    if dot and stem and f".{ending}" in MEDIUM_EXTENSIONS:
        return NOTHING
    what = f".{ending} file" if dot and stem else "file without an extension, or into a directory"
    return [place.finding(_HIGH, f"Writes a {what}: {quoted(value)}.")]


def _path_remove(value: str, place: Argument) -> Findings:
    findings = _path_make(value, place)
    if not findings and _is_root(check_path(value, workspace=place.workspace).relative):
        return [place.finding(_REFUSE, f"{quoted(value)} is the workspace itself.")]
    if not findings and secret_name(value):
        reason = f"{quoted(value)} usually holds secrets; its name would no longer say so."
        return [place.finding(_HIGH, reason, always_asks=True)]
    return findings


def _url(value: str, place: Argument) -> Findings:
    if _WEB.fullmatch(value):
        return NOTHING
    instead = "give a full URL that begins with https://"
    return [place.finding(_REFUSE, f"{quoted(value)} is not the plain address of a web page.", instead)]


def _requirement(value: str, place: Argument) -> Findings:
    """A package for pip; `.` and directories of the workspace are the project's own."""
    refused = _loose(value, place) or _loose(value.partition("@")[2].strip(), place)
    if refused:
        return refused
    if ":" in value or " @ " in value or value.endswith(_WHEEL):
        return [place.finding(_HIGH, f"{quoted(value)} does not come from the package index.", always_asks=True)]
    return NOTHING


_JUDGES: dict[Kind, Callable[[str, Argument], Findings]] = {
    **dict.fromkeys((Kind.TEXT, Kind.MESSAGE, Kind.PATTERN, Kind.SUFFIX), _text),
    Kind.FORMAT: _format,
    Kind.NUMBER: _number,
    Kind.WORD: _word,
    Kind.PATH_READ: _path_read,
    Kind.PATH_NAME: _path_name,
    Kind.PATH_WRITE: _path_write,
    Kind.PROGRAM: _program,
    Kind.LOOSE: _perhaps_read,
    Kind.REMOTE: _remote,
    Kind.FILE_LIST: _file_list,
    Kind.DATE_FORMAT: _date_format,
    Kind.DATE: _date,
    Kind.MODULE: _module,
    Kind.PACKAGE: _package,
    Kind.SETTING: _setting,
    Kind.LINKER: _linker,
    Kind.CHECKPOINT: _checkpoint,
    Kind.ARCHIVE: _archive,
    Kind.SCRIPT: _script,
    Kind.REFSPEC: _refspec,
    Kind.FETCHED: _fetched,
    Kind.SOURCE: _source,
    Kind.TARGET: _target,
    Kind.GLOB: _glob,
    Kind.PATHSPEC: _pathspec,
    Kind.TREE: _tree,
    Kind.ORIGIN: _origin,
    Kind.SED_SCRIPT: _sed_script,
    Kind.PATH_MAKE: _path_make,
    Kind.PATH_CHANGE: _path_change,
    Kind.PATH_REMOVE: _path_remove,
    Kind.URL: _url,
    Kind.REQUIREMENT: _requirement,
}
