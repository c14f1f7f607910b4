"""Call: a tool call as rules see it, with every word that could be a path.

For rules that tighten, options before a subcommand, abbreviations, clusters and glued values count too, as does each
directory a command may walk. `grep -r x .` opens everything below, `cat a.txt` only that file. Programs that run code
are left to the approval that shows the code: their line does not tell what they open. A command that is not listed here
may walk everything.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from byleave.gate.paths import check_path, first_names
from byleave.protocol.wire import JsonObject

from .options import Reading
from .tables import ALIASES, load_tables
from .understood import GIVE_PATTERN, RUN_CODE, UnderstoodCommand

FILE_TOOLS = frozenset({"read_file", "write_file", "list_directory", "search_files"})
MAX_MENTIONS = 512
MAX_PIECES = 4 * MAX_MENTIONS
MAX_MENTION_CHARACTERS = 16 * 1024
"""A call beyond these limits is not searched further and counts as one that may reach everything."""

_CHANGES_DIRECTORY = frozenset({"-C", "--directory", "--prefix", "--cwd", "--work-tree", "--git-dir", "--rootdir"})
_INNER = re.compile(r"[=,:;@]+")
_BROKEN = re.compile(r"[\s'\"()\[\]{}<>|&;=,:@]+")
_EVERYTHING = (".",)
_NAMES_ONLY = frozenset(
    ("cat", "head", "tail", "wc", "date", "pwd", "whoami", "echo", "sed", "sort", "cut", "uniq", "tr", "stat", "file")
) | frozenset(("touch", "mkdir"))
"""Commands that open only what the line names, nothing below a directory."""
_WALK_WITH = {
    "grep": ("-r", "-R", "-d", "--r", "--d"),
    "ls": ("-R", "--r"),
    "diff": ("-r", "--r"),
    "cp": ("-r", "-R", "-a", "--r", "--a"),
    "rm": ("-r", "-R", "--r"),
}
"""Commands that walk directories only with one of these options, or one that begins so."""
_WALK = frozenset({"find", "du", "tree", "mv"})
_ABOUT_HISTORY = frozenset(
    ("status", "branch", "tag", "remote", "fetch", "rev-parse", "rev-list", "config", "version", "help", "init")
) | frozenset(("describe", "shortlog", "reflog", "push", "ls-remote", "merge-base", "symbolic-ref", "for-each-ref"))
"""Subcommands of git that show or change no file's content."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as rules see it."""

    tool: str
    argv: tuple[str, ...] = ()
    """The command, with an alias resolved, and its arguments as they will run."""
    words: tuple[str, ...] = ()
    """The command, its subcommands and operands without options, for lenient matching."""
    options: tuple[str, ...] = ()
    """Every option as it was spelled, clusters taken apart."""
    path: str | None = None
    """Workspace-relative, normalized path of a file tool; None if it is uncertain."""
    mentions: tuple[str, ...] = ()
    """Everything that could be a path, workspace-relative."""
    spelled: tuple[str, ...] = ()
    """The line with clusters and glued values taken apart."""
    hints: tuple[str, ...] = ()
    """Pieces of longer texts that could be paths."""
    reach: tuple[str, ...] = ()
    """Directories the call may walk."""
    firsts: frozenset[str] = frozenset()
    """First names of mentions and hints: they quickly rule out rules about other directories."""
    read: bool = False
    """True if a table understood the arguments."""
    doubtful: bool = False
    """True if its subcommand is unknown: it may be an alias of any."""
    also: "Call | None" = None
    """The same call under another name: `python -m pip list` is `pip list` too."""

    @property
    def program(self) -> str | None:
        """The first word of a command; None for any other tool."""
        return self.argv[0] if self.argv else None

    def after(self, count: int) -> tuple[str, ...]:
        """The arguments after the line's first `count` words."""
        return self.argv[count:]

    def up_to(self, is_last: Callable[[str], bool]) -> tuple[str, ...]:
        """The line's words up to the first that satisfies `is_last`; empty if none does."""
        found = next((at for at, word in enumerate(self.argv) if is_last(word)), -1)
        return self.argv[: found + 1]

    @property
    def names(self) -> int:
        """Number of file names to compare."""
        return sum(text.count("/") + 1 for texts in (self.mentions, self.hints) for text in texts)

    def cut(self, names: int) -> "Call":
        """Keep at most `names` names; the rest may be anything, so the call may then reach everything."""
        kept: list[str] = []
        for mention in self.mentions:
            names -= mention.count("/") + 1
            if names < 0:
                break
            kept.append(mention)
        firsts = first_names(kept)
        return replace(self, mentions=tuple(kept), hints=(), reach=(".",), firsts=firsts)


def call_of(tool: str, params: JsonObject, understood: UnderstoodCommand | None, workspace: str | None = None) -> Call:
    """Make the `Call` of a validated call; a recorded command comes without `understood`, to be matched strictly."""
    if tool == "execute_command":
        reading = None if understood is None else understood.reading
        return _command(params["command"], params["args"], reading, workspace)
    if tool not in FILE_TOOLS:
        return Call(tool)
    relative, refusal = check_path(params["path"], workspace=workspace)
    if refusal is not None:
        return Call(tool)
    plain = posixpath.normpath(relative)
    # `a/../b` may lead elsewhere if `a` is a link, so it is never certain.
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


def _command(command: str, args: Sequence[str], reading: Reading | None, workspace: str | None) -> Call:
    argv = (ALIASES.get(command, command), *args)
    seen = _Seen(argv[0])
    if reading is None:
        seen.words += [arg for arg in args if not arg.startswith("-")]
    else:
        seen.read(reading, args)
    # Options the table did not understand count as written, and clusters letter by letter.
    seen.options += [arg.partition("=")[0] for arg in args if arg.startswith("-")]
    for cluster in (re.match(r"-([A-Za-z]{2,})", arg) for arg in args):
        seen.options += [f"-{letter}" for letter in dict.fromkeys(cluster.group(1))] if cluster else []
    mentions, crowded = _few(_mentions(seen, args, workspace))
    hints, too_crowded = _few(_hints(args, workspace))
    options = tuple(dict.fromkeys(seen.options))
    table = load_tables().get(argv[0])
    reach = _EVERYTHING if crowded or too_crowded else _reach(argv[0], options, seen.operands, mentions, reading)
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
        read=reading is not None,
        doubtful=bool(table and table.subs and len(seen.words) > 1 and seen.words[1] not in table.subs),
        also=_command(module, _behind_module(args), None, workspace) if module else None,
    )


class _Seen:
    """Facts about a line, from its table's reading."""

    def __init__(self, command: str) -> None:
        self.words = [command]
        self.spelled = [command]
        self.options: list[str] = []
        self.values: list[str] = []
        self.bases: list[str] = []
        """Directories the command changes to first."""
        self.operands: list[str] = []
        self.module: str | None = None
        """The module that `python -m` runs."""

    def read(self, reading: Reading, args: Sequence[str]) -> None:
        part: Reading | None = reading
        while part is not None:
            self._options(part)
            self.operands = list(part.operands)
            kept = self.operands[:1] if part.sub is not None else self.operands
            self.words += kept
            self.spelled += kept
            part = part.sub
        # Arguments after an interpreter's script belong to the script and are not in the reading.
        if len(self.words) == 2 and self.words[1] in args:
            self.words += args[args.index(self.words[1]) + 1 :]

    def _options(self, reading: Reading) -> None:
        for said in reading.said:
            spelled, value = said.spelled, said.value
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
            pieces.append(text[2:])  # a value glued to an unknown option
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
    """The part after the last `..`: if `a` is a link, `a/../b` is a `b` in some other directory."""
    return (posixpath.normpath(path.rpartition("../")[2] or "."),) if ".." in path.split("/") else ()


def _top(path: str, workspace: str | None) -> str:
    """A directory that is walked; `.` if it contains `..`, which behind a link may be any directory."""
    return "." if ".." in path.split("/") else _mention(path, workspace)


def _behind_module(args: Sequence[str]) -> Sequence[str]:
    """The arguments after `-m module`, or `-Xmmodule`."""
    at = next((index for index, arg in enumerate(args) if arg.startswith("-") and "m" in arg), len(args))
    return args[at + 2 :] if at < len(args) and args[at].endswith("m") else args[at + 1 :]


def _mention(text: str, workspace: str | None) -> str:
    if workspace and (text == workspace or text.startswith(workspace.rstrip("/") + "/")):
        text = text[len(workspace.rstrip("/")) :].lstrip("/") or "."
    return posixpath.normpath(text) if text else ""


def _few(texts: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Return the distinct texts, and True if there were too many."""
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


def _reach(
    command: str,
    options: Sequence[str],
    operands: Sequence[str],
    mentions: tuple[str, ...],
    reading: Reading | None,
) -> tuple[str, ...]:
    """The directories it may walk; none if it opens only named files."""
    if command in RUN_CODE:
        return mentions
    if reading is None:
        return _EVERYTHING
    if any(option.startswith("--f") for option in options) and command in ("wc", "sort", "du"):
        return _EVERYTHING  # --files0-from: the names are in a file
    if command in _NAMES_ONLY:
        return ()
    if command == "git":
        quiet = reading.sub is not None and reading.sub.table.name.partition(" ")[2] in _ABOUT_HISTORY
        return () if quiet else _EVERYTHING
    if command in _WALK_WITH or command in _WALK:
        if command in _WALK_WITH and not any(option.startswith(_WALK_WITH[command]) for option in options):
            return ()
        # The operands, without grep's pattern.
        has_pattern = command == "grep" and all(said.spelled not in GIVE_PATTERN for said in reading.said)
        return tuple(operands[1:] if has_pattern else operands) or _EVERYTHING
    return _EVERYTHING
