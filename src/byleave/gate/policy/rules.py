"""How rules see a call, and whether a pattern fits it: shared by the policy and by grants.

There are two ways to look. Strictly, for what loosens: the line must begin with the rule's words, one for one, and a
path must be spelled plainly. Leniently, for what tightens: options before a subcommand, abbreviations, clusters and
every argument that could be a path count too, and what only may fit is said to fit perhaps.
Both are pure, and a pattern that does not understand a call does not fit it strictly.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, cast

from byleave.gate.commands.tables import load_tables
from byleave.gate.commands.validator import ALIASES, reach_of
from byleave.gate.paths import check_path
from byleave.protocol.wire import JsonObject

from .globs import directory_of, first_fixed, first_names, path_above, path_fits

FILE_TOOLS = frozenset({"read_file", "write_file", "list_directory", "search_files"})
MAX_MENTIONS = 512
MAX_PIECES = 4 * MAX_MENTIONS
MAX_MENTION_CHARACTERS = 16 * 1024
"""More than this is not looked through: the call then counts as one that may reach everything."""

_CHANGES_DIRECTORY = frozenset({"-C", "--directory", "--prefix", "--cwd", "--work-tree", "--git-dir", "--rootdir"})
_INNER = re.compile(r"[=,:;@]+")
_BROKEN = re.compile(r"[\s'\"()\[\]{}<>|&;=,:@]+")


class Fit(IntEnum):
    """How sure it is that a call is one of those a rule is about."""

    NO = 0
    PERHAPS = 1
    YES = 2


@dataclass(frozen=True, slots=True)
class Call:
    """One call as rules see it."""

    tool: str
    argv: tuple[str, ...] = ()
    """The command and its arguments as they will run; an alias under its own name's."""
    words: tuple[str, ...] = ()
    """Leniently: the command, its subcommands and operands, without the options between them."""
    options: tuple[str, ...] = ()
    """Every option as it was spelled, clusters taken apart."""
    path: str | None = None
    """The path of a file tool, from the workspace, without `.` and `..`; None where that is not certain."""
    mentions: tuple[str, ...] = ()
    """Everything that could be a path, from the workspace."""
    spelled: tuple[str, ...] = ()
    """The line with clusters and glued values taken apart."""
    hints: tuple[str, ...] = ()
    """Pieces of longer texts that could be paths."""
    reach: tuple[str, ...] = ()
    """Directories the call may look through."""
    firsts: frozenset[str] = frozenset()
    """The first names of mentions and hints: most rules are about another directory, and these tell."""
    read: bool = False
    """Whether a table understood the arguments."""
    doubtful: bool = False
    """Whether its subcommand is not known: it may be another name for any of them."""
    also: "Call | None" = None
    """The same call under another name: `python -m pip list` is `pip list` too."""

    @property
    def names(self) -> int:
        """How many names of files there are to compare."""
        return sum(text.count("/") + 1 for texts in (self.mentions, self.hints) for text in texts)

    def cut(self, names: int) -> "Call":
        """As much of it as may be looked at; what is left out may be anything, so it then may reach everything."""
        kept: list[str] = []
        for mention in self.mentions:
            names -= mention.count("/") + 1
            if names < 0:
                break
            kept.append(mention)
        firsts = first_names(kept)
        return replace(self, mentions=tuple(kept), hints=(), reach=(".",), firsts=firsts)


def call_of(tool: str, params: JsonObject, understood: JsonObject | None, workspace: str | None = None) -> Call:
    """Look at a validated call."""
    if tool == "execute_command":
        return _command(params["command"], params["args"], understood, workspace)
    if tool not in FILE_TOOLS:
        return Call(tool)
    relative, refusal = check_path(params["path"], workspace=workspace)
    if refusal is not None:
        return Call(tool)
    plain = posixpath.normpath(relative)
    # `a/../b` may lead elsewhere when `a` is a link, so it is certain for nobody.
    certain = ".." not in relative.split("/")
    mentions, reach = (plain,), ()
    if tool in ("search_files", "list_directory"):
        glob = params["glob"] if tool == "search_files" else params["pattern"]
        walks = tool == "search_files" or params["recursive"] or "/" in glob or "**" in glob
        mentions = (plain, posixpath.normpath(posixpath.join(plain, glob))) if glob else mentions
        reach = (_top(relative, workspace),) if walks else ()
    hints = () if certain else _behind_parents(relative)
    firsts = first_names((*mentions, *hints))
    return Call(tool, path=plain if certain else None, mentions=mentions, hints=hints, reach=reach, firsts=firsts)


def _command(command: str, args: Sequence[str], understood: JsonObject | None, workspace: str | None) -> Call:
    argv = (ALIASES.get(command, command), *args)
    seen = _Seen(argv[0])
    if understood is None:
        seen.words += [arg for arg in args if not arg.startswith("-")]
    else:
        seen.read(understood, args)
    # What the table did not understand counts as it stands, and a cluster letter by letter.
    seen.options += [arg.partition("=")[0] for arg in args if arg.startswith("-")]
    for cluster in (re.match(r"-([A-Za-z]{2,})", arg) for arg in args):
        seen.options += [f"-{letter}" for letter in dict.fromkeys(cluster.group(1))] if cluster else []
    mentions, crowded = _few(_mentions(seen, args, workspace))
    hints, too_crowded = _few(_hints(args, workspace))
    options = tuple(dict.fromkeys(seen.options))
    subs = _subcommands(argv[0])
    reach = (".",) if crowded or too_crowded else reach_of(argv, options, seen.operands, mentions, understood)
    module = seen.module
    return Call(
        "execute_command",
        argv,
        tuple(_mention(word, workspace) if word.startswith("/") else word for word in seen.words),
        options,
        mentions=mentions,
        spelled=tuple(seen.spelled),
        hints=hints,
        reach=tuple(_top(top, workspace) for top in reach),
        firsts=first_names((*mentions, *hints)),
        read=understood is not None,
        doubtful=bool(subs and len(seen.words) > 1 and seen.words[1] not in subs),
        also=_command(module, _behind_module(args), None, workspace) if module else None,
    )


class _Seen:
    """What a table's reading of a line amounts to."""

    def __init__(self, command: str) -> None:
        self.words = [command]
        self.spelled = [command]
        self.options: list[str] = []
        self.values: list[str] = []
        self.bases: list[str] = []
        """Directories the command changes to first."""
        self.operands: list[str] = []
        self.module: str | None = None
        """What `python -m` runs."""

    def read(self, understood: JsonObject, args: Sequence[str]) -> None:
        reading: Mapping[str, Any] | None = understood
        while reading is not None:
            self._options(reading)
            inner = cast("Mapping[str, Any] | None", reading.get("subcommand"))
            self.operands = list(reading.get("operands", ()))
            kept = self.operands[:1] if inner is not None else self.operands
            self.words += kept
            self.spelled += kept
            reading = inner
        # What follows the script of an interpreter is the script's, and no part of the reading.
        if len(self.words) == 2 and self.words[1] in args:
            self.words += args[args.index(self.words[1]) + 1 :]

    def _options(self, reading: Mapping[str, Any]) -> None:
        for spelled, value in reading.get("options", ()):
            self.options.append(spelled)
            self.spelled.append(spelled)
            if value is not None:
                self.values.append(value)
                self.spelled.append(value)
                if spelled in _CHANGES_DIRECTORY:
                    self.bases.append(value)
                if spelled == "-m" and self.words[0] == "python":
                    self._module(value)

    def _module(self, name: str) -> None:
        """`python -m a.b` runs a/b.py, or whatever the package `a` makes of it."""
        self.module = name.partition(".")[0]
        path = name.replace(".", "/")
        self.values += [path, f"{path}.py"]
        self.spelled += ["-m", self.module]


def _mentions(seen: _Seen, args: Sequence[str], workspace: str | None) -> Iterable[str]:
    for text in (*seen.words[1:], *seen.values, *args):
        pieces = [text, *_INNER.split(text)[1:]]
        if text.startswith("-") and not text.startswith("--"):
            pieces.append(text[2:])  # a value glued to an option nobody knows
        for piece in pieces:
            mention = _mention(piece, workspace)
            yield mention
            yield from (posixpath.normpath(posixpath.join(base, mention)) for base in seen.bases if piece)


def _hints(args: Sequence[str], workspace: str | None) -> Iterable[str]:
    for arg in args:
        for piece in _BROKEN.split(arg):
            yield _mention(piece, workspace)
            if ".." in piece:
                yield from _behind_parents(piece)


def _behind_parents(path: str) -> tuple[str, ...]:
    """Where `a/../b` may lead when `a` is a link: to `b`, from some directory."""
    return (posixpath.normpath(path.rpartition("../")[2] or "."),) if ".." in path.split("/") else ()


def _top(path: str, workspace: str | None) -> str:
    """A directory that is looked through. Behind a link `..` may be any."""
    return "." if ".." in path.split("/") else _mention(path, workspace)


def _behind_module(args: Sequence[str]) -> Sequence[str]:
    """What follows `-m module`, or `-Xmmodule`."""
    at = next((index for index, arg in enumerate(args) if arg.startswith("-") and "m" in arg), len(args))
    return args[at + 2 :] if at < len(args) and args[at].endswith("m") else args[at + 1 :]


def _mention(text: str, workspace: str | None) -> str:
    if workspace and (text == workspace or text.startswith(workspace.rstrip("/") + "/")):
        text = text[len(workspace.rstrip("/")) :].lstrip("/") or "."
    return posixpath.normpath(text) if text else ""


def _few(texts: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Each once; and whether there were too many to look at."""
    kept: dict[str, None] = {}
    characters = 0
    for number, text in enumerate(texts):
        if number > MAX_PIECES:
            return tuple(kept), True
        if text and text not in kept:
            characters += len(text)
            if characters > MAX_MENTION_CHARACTERS or len(kept) >= MAX_MENTIONS:
                return tuple(kept), True
            kept[text] = None
    return tuple(kept), False


def _subcommands(command: str) -> Mapping[str, Any]:
    table = load_tables().get(command)
    return table.subs if table is not None else {}


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which calls a rule is about. Empty parts do not narrow it."""

    tool: str | None = None
    command: tuple[tuple[str, ...], ...] = ()
    """Words the line begins with; each may have alternatives."""
    exact: bool = False
    """Whether nothing may follow them."""
    options: tuple[str, ...] = ()
    """Any of these options, anywhere. For rules that tighten."""
    paths: tuple[str, ...] = ()

    def fits_strictly(self, call: Call) -> bool:
        """For an allow or a grant: every part must fit plainly."""
        if self.options or (self.tool is not None and self.tool != call.tool):
            return False
        if self.command:
            if call.tool != "execute_command" or not _begins(call.argv, self.command):
                return False
            if self.exact and len(call.argv) != len(self.command):
                return False
        if self.paths:
            return call.path is not None and any(path_fits(glob, call.path) for glob in self.paths)
        return True

    def fit(self, call: Call) -> Fit:
        """For an ask or a deny: any way of looking at the call counts, and the least sure part decides."""
        if self.tool is not None and self.tool != call.tool:
            return Fit.NO
        if call.also is not None and self.command and call.also.argv[0] in self.command[0]:
            call = call.also
        sure = self._command_fit(call) if self.command else Fit.YES
        if sure and self.options and not _has_option(self.options, call.options):
            return Fit.NO
        return min(sure, self._paths_fit(call)) if sure and self.paths else sure

    def fits_leniently(self, call: Call) -> bool:
        """Whether the call surely is one of those meant."""
        return self.fit(call) is Fit.YES

    def reaches_into(self, call: Call) -> bool:
        """Whether the call may be one of those meant, or may reach what the paths protect."""
        return self.fit(call) is Fit.PERHAPS

    def _command_fit(self, call: Call) -> Fit:
        command = self.command
        if call.tool != "execute_command" or call.argv[0] not in command[0]:
            return Fit.NO
        if self.exact and len(call.words) > len(command):
            return Fit.NO
        if any(_begins(line, command, loosely=True) for line in (call.argv, call.words)):
            return Fit.YES
        skipping = _begins_skipping(call.argv, command)
        about_options = any(word.startswith("-") for words in command[1:] for word in words)
        if about_options and (skipping or _begins_skipping(call.spelled, command)):
            return Fit.YES
        if skipping:
            return Fit.PERHAPS if call.read else Fit.YES
        return Fit.PERHAPS if call.doubtful else Fit.NO

    def _paths_fit(self, call: Call) -> Fit:
        sure = Fit.NO
        for glob in self.paths:
            sure = max(sure, _path_fit(glob, call))
            if sure is Fit.YES:
                break
        return sure


def _path_fit(glob: str, call: Call) -> Fit:
    first = first_fixed(glob)
    if first is None or first in call.firsts:
        if any(path_fits(glob, mention, careless=True) for mention in call.mentions):
            return Fit.YES
        if any(directory_of(mention, glob) for mention in call.mentions):
            # A file tool's path is a path; a word of a command may be anything.
            return Fit.YES if call.tool in FILE_TOOLS else Fit.PERHAPS
        if any(path_fits(glob, hint, careless=True) for hint in call.hints):
            return Fit.PERHAPS
    return Fit.PERHAPS if any(path_above(top, glob) for top in call.reach) else Fit.NO


def _begins(words: Sequence[str], command: Sequence[tuple[str, ...]], *, loosely: bool = False) -> bool:
    if len(words) < len(command):
        return False
    return all(
        word in wanted or (loosely and "/" in word and posixpath.normpath(word) in wanted)
        for word, wanted in zip(words, command, strict=False)
    )


def _begins_skipping(words: Sequence[str], command: Sequence[tuple[str, ...]]) -> bool:
    """Whether the line begins so when options, each with or without a value, may stand between the words."""
    if not words or words[0] not in command[0]:
        return False
    places = {1}
    for wanted in command[1:]:
        reached: set[int] = set()
        for place in sorted(places):
            reached |= _behind_options(words, place, reached)
        places = {at + 1 for at in reached if at < len(words) and words[at] in wanted}
    return bool(places)


def _behind_options(words: Sequence[str], place: int, known: set[int]) -> set[int]:
    found: set[int] = set()
    waiting = [place]
    while waiting:
        at = waiting.pop()
        if at in found or at in known:
            continue
        found.add(at)
        if at < len(words) and words[at].startswith("-"):
            waiting += [at + 1, at + 2]
    return found


def _has_option(wanted: Iterable[str], given: Iterable[str]) -> bool:
    return any(_is_option(one, other) for one in wanted for other in given)


def _is_option(wanted: str, given: str) -> bool:
    if given == wanted:
        return True
    # `--forc` may be read as `--force`.
    given = given.replace("_", "-")
    return wanted.startswith("--") and len(given) > 2 and given.startswith("--") and wanted.startswith(given)
