"""Grants: the calls a saved rule covers, the rules to offer, those that reach too far, and each in words.

A class covers MEDIUM calls: never HIGH or refused ones, secrets, or calls that a rule asks about. The one exception is
a write of source code, which is HIGH by its extension alone: a rule that names the extension (`src/**/*.go`) covers it.
Code runs only bound to the content a person was shown, or as the project's own tests with options that load nothing
else. A rule's text is made from the rule alone and is safe to show: the ends of each word are visible, secrets are
masked, and nothing moves the cursor. Everything here is pure: grants are saved, counted and ended elsewhere.

    covers(rule, call, …)     does this rule let this call run without asking?
    suggest(tool, params, …)  rules to offer, narrow to wide
    problem_with(rule)        the reason a rule may not be saved, or None
    text_of, widest_of        the rule, and the most that could run without asking, in words
    leaves_unseen(call)       paths a covered call changes that nobody is shown
"""

import posixpath
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from pydantic import ValidationError

from byleave.gate.commands.arguments import is_remote
from byleave.gate.commands.calls import Call, call_of
from byleave.gate.commands.tables import ALIASES, load_tables
from byleave.gate.commands.validator import understood_line
from byleave.gate.names import MEDIUM_EXTENSIONS, SOURCE_EXTENSIONS, protected_name, secret_name, source_kind
from byleave.gate.paths import check_path
from byleave.gate.text.characters import hidden_in
from byleave.gate.text.render import quote, safe_text
from byleave.gate.text.secrets import mask_arguments
from byleave.protocol.grants import GrantRule, Suggestion
from byleave.protocol.tools import TOOLS
from byleave.protocol.verdicts import Verdict, VerdictLevel
from byleave.protocol.wire import JsonObject

from .rules import Pattern

_MISSING = "missing"
_MOST_SHOWN = 3
_ENDING = re.compile(r"\.\w+$", re.ASCII)
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


def words_of(rule: GrantRule) -> tuple[str, ...]:
    """The words a line must begin with, with an alias resolved."""
    return (ALIASES.get(rule.command[0], rule.command[0]), *rule.command[1:]) if rule.command else ()


def text_of(rule: GrantRule) -> str:
    """Describe what a rule covers, in one sentence that is safe to show."""
    if rule.tool == "search_web":
        return "Search the web for anything."
    if rule.tool != "execute_command":
        where = " or ".join(_shown_path(path) for path in rule.paths) or "anything"
        return f"Write {where}." if rule.tool == "write_file" else f"Use {quote(rule.tool)} on {where}."
    line = line_of(words_of(rule)) or "any command"
    while_same = f", while {_shown_files(rule)} stays as it is now" if rule.files else ""
    if rule.exact:
        return f"Run exactly {line}{while_same}."
    opening = breadth().opening(words_of(rule))
    follows = "with anything after it" if opening is None else f"({opening.what}) with usual options"
    return f"Run {line} {follows}{while_same}."


def widest_of(rule: GrantRule) -> str:
    """Describe the most that could then run without asking."""
    if rule.tool == "search_web":
        return "Any text of up to 400 characters is sent to the search service outside, also text from your files."
    if rule.tool != "execute_command":
        return _widest_write(rule.paths)
    words = words_of(rule)
    opening = breadth().opening(words)
    if opening is not None and not rule.exact:
        return opening.widest
    if rule.files:
        how = "This very line" if rule.exact else "This script, with whatever arguments"
        return f"{how}, any number of times, until {_shown_files(rule)} changes. What it reads or imports may change."
    if rule.exact:
        return "This very line, any number of times."
    said = breadth().widest.get(understood_line(words).named) if words else None
    line = line_of(words) or "command"
    return said or f"Any {line} that the gate calls MEDIUM; what is HIGH is asked about all the same."


def _widest_write(paths: Sequence[str]) -> str:
    if not any(set("*?") & set(path) or path.endswith("/") or "/" not in path for path in paths):
        return "It is replaced or emptied any number of times, without its content being shown to you."
    found = [_ENDING.search(path.rpartition("/")[2]) for path in paths]
    # A rule that names its extensions covers no others.
    only = {match[0].lower() for match in found if match} if all(found) else set[str]()
    named = {match[0].lower() for match in found if match} & SOURCE_EXTENSIONS
    endings = " ".join(sorted((MEDIUM_EXTENSIONS & only) | named if all(found) else MEDIUM_EXTENSIONS | named))
    return (
        f"Any such file that ends with {endings} is made, replaced or emptied without its content being shown to you. "
        "Files that tools run or trust, such as package.json or conftest.py, are asked about all the same."
    )


def line_of(words: Sequence[str]) -> str:
    """Join words, secrets masked; those that are not plain are quoted, so that their ends are visible."""
    return " ".join(word if _PLAIN_WORD.fullmatch(word) else quote(word) for word in mask_arguments(list(words)))


def _shown_path(glob: str) -> str:
    if "/" not in glob.rstrip("/") and not set("*?") & set(glob):
        # A bare name matches in any directory.
        return (
            f"any file {quote(glob)}, in whatever directory"
            if "/" not in glob
            else f"text files below any {quote(glob)}"
        )
    directory, _, name = glob.removeprefix("./").rpartition("/")
    below = f"below {quote(directory)}" if directory else "in the project root"
    if name == "**" or glob.endswith("/"):
        return f"text files {below}" if name == "**" else f"text files below {quote(glob.rstrip('/'))}"
    if re.fullmatch(r"\*\.\w+", name) and directory.endswith("/**") and "*" not in directory[:-3]:
        return f"{quote(name)} files below {quote(directory[:-3])}"
    if re.fullmatch(r"\*\.\w+", name) and "*" not in directory:
        inside = f"directly in {quote(directory)}" if directory else "in the project root"
        anywhere = "/" not in glob
        return f"{quote(name)} files {'anywhere' if anywhere else inside}"
    return quote(glob.removeprefix("./")) if "*" not in glob and "?" not in glob else f"files that fit {quote(glob)}"


def _shown_files(rule: GrantRule) -> str:
    there = [f"{quote(path)} ({digest[:12]})" for path, digest in rule.files.items() if digest != _MISSING]
    if len(there) > _MOST_SHOWN:
        there = [*there[:_MOST_SHOWN], f"{len(there) - _MOST_SHOWN} more"]
    return " and ".join(there) or "what it runs"


__all__ = [
    "MOST_SUGGESTIONS",
    "could_run",
    "covers",
    "covers_everything",
    "leaves_unseen",
    "may_be_granted",
    "problem_with",
    "suggest",
    "text_of",
    "widest_of",
]

MOST_SUGGESTIONS = 4
_NOWHERE = "."
"""Stands for files that the line does not reveal (`scripts.UNKNOWN`)."""
_MEDIUM, _HIGH = VerdictLevel.MEDIUM, VerdictLevel.HIGH
_NO_CODE_OF = {"python": (".md",), "pytest": (".md",)}
"""Endings of files that a program does not run unless it is told to, in its settings or by name."""


def covers_everything(*, level: VerdictLevel, always_asks: bool) -> bool:
    """True if a session-wide grant covers a call: one that asks by its risk alone."""
    return level in (_MEDIUM, _HIGH) and not always_asks


def covers(
    rule: GrantRule,
    call: Call,
    *,
    level: VerdictLevel,
    always_asks: bool,
    network: bool,
    bound: Mapping[str, str],
    unseen: Collection[str] = (),
) -> bool:
    """True if a class lets a call run without asking.

    `bound`: the files of the workspace whose content would run, with their digests. `unseen`: paths changed by calls
    that did not ask (`leaves_unseen`) and not shown to a person since; while one of them may be code that the call
    runs (`could_run`), no rule covers it.
    """
    if not may_be_granted(call, level=level, always_asks=always_asks) or problem_with(rule) is not None:
        return False
    pattern = _pattern(rule)
    if level is _HIGH:  # only paths that name the file's extension
        kind = source_kind(call.path or "") or "/"
        pattern = replace(pattern, paths=tuple(path for path in rule.paths if path.lower().endswith(kind)))
    if not pattern.fits_strictly(call) or (level is _HIGH and not pattern.paths):
        return False
    if call.tool != "execute_command":
        return True
    if network and any(is_remote(word) for word in call.after(len(rule.command))):
        return False  # an address that the rule does not name
    if not rule.exact and breadth().is_apart(understood_line(call.argv).named):
        return False
    return _code_is_seen(rule, call, network=network, bound=bound, unseen=unseen)


def may_be_granted(call: Call, *, level: VerdictLevel, always_asks: bool) -> bool:
    """True if any class may cover a call of this risk."""
    if always_asks or level not in (_MEDIUM, _HIGH):
        return False
    # Any other reason that makes a write HIGH always asks.
    is_source = call.tool == "write_file" and call.path is not None and source_kind(call.path) is not None
    return level is _MEDIUM or is_source


def _code_is_seen(
    rule: GrantRule, call: Call, *, network: bool, bound: Mapping[str, str], unseen: Collection[str]
) -> bool:
    """True if only code that a person was shown, or the project's own tests, would run."""
    if _NOWHERE in bound or (rule.files and dict(bound) != rule.files):
        return False
    if call.program not in breadth().runners:
        return not bound
    hidden = could_run(call, unseen)
    opening = breadth().opening(call.argv)
    if opening is None:
        # Code from the network, and files that a module from elsewhere is pointed at, cannot be bound.
        return not network and not hidden and _is_there(rule.files)
    in_its_place = not rule.files and _is_there(bound)  # `pytest.py` in the workspace would run as `-m pytest`
    return opening.lets(call.after(len(opening.words))) and not in_its_place and not (opening.runs and hidden)


def could_run(call: Call, paths: Iterable[str]) -> bool:
    """True if a call that runs code of the workspace could run one of these files."""
    return any(not path.lower().endswith(_NO_CODE_OF.get(call.program or "", ())) for path in paths)


def _is_there(files: Mapping[str, str]) -> bool:
    return any(digest != _MISSING for digest in files.values())


def leaves_unseen(call: Call) -> tuple[str, ...]:
    """Paths that this call changes without a person being shown the result; `**` for any."""
    if call.tool == "write_file":
        return (call.path if call.path is not None else "**",)
    if call.tool == "execute_command" and breadth().brings_unseen(understood_line(call.argv).named):
        return ("**",)
    return ()


def _pattern(rule: GrantRule) -> Pattern:
    return Pattern(
        tool=rule.tool, command=tuple((word,) for word in words_of(rule)), exact=rule.exact, paths=tuple(rule.paths)
    )


# Rules that reach too far


def problem_with(rule: GrantRule) -> str | None:
    """The reason a rule may not be saved, in words; None if it may."""
    return _problem(rule.tool, words_of(rule), rule.exact, tuple(rule.paths), tuple(rule.files))


@lru_cache(maxsize=2048)
def _problem(
    tool: str, words: tuple[str, ...], exact: bool, paths: tuple[str, ...], files: tuple[str, ...]
) -> str | None:
    if tool not in TOOLS:
        return f"There is no tool {quote(tool)}."
    if tool == "execute_command":
        return _command_problem(words, exact, paths, files)
    if words or exact or files:
        return f"Words of a command and files that run have no meaning for {tool}."
    if tool == "search_web":
        return "search_web has no path." if paths else None
    if tool != "write_file":
        return f"{tool} asks only about files that usually hold secrets, and those are asked about each time."
    if not paths:
        return "It would cover every write: name the files or the directory, such as src/**."
    return next((problem for path in paths if (problem := _path_problem(path)) is not None), None)


def _path_problem(glob: str) -> str | None:
    shown = quote(glob)
    plain = glob.removeprefix("./")
    if plain.startswith("/") or check_path(plain or ".").refusal is not None or ".." in plain.split("/"):
        return f"The pattern {shown} does not stay inside the workspace."
    names = plain.rstrip("/").split("/")
    if protected_name(plain) is not None:
        return f"Nothing below {shown} may ever be written."
    if all(not name.strip("*?.") for name in names):
        return f"The pattern {shown} covers the whole workspace: name a directory or a kind of file."
    return None


def _command_problem(words: tuple[str, ...], exact: bool, paths: tuple[str, ...], files: tuple[str, ...]) -> str | None:
    if not words:
        return "It would cover every command: say how the line begins."
    if paths:
        return "Patterns of paths have no meaning for commands."
    known, program = breadth(), words[0]
    line = quote(line_of(words))
    because = known.never.get(program)
    if because is not None:
        return f"{quote(program)} {because}."
    if program in known.runners:
        return _runner_problem(words, exact, files) or _judged_problem(words, exact)
    judged = _judged_problem(words, exact)
    if judged is not None:
        return judged
    if files:
        return f"{quote(program)} runs no files of the workspace that it could be bound to."
    if exact:
        return None
    if program not in known.plain:
        return f"{line} with anything after it reaches too far: it can only be granted as an exact line."
    return f"{line} can only be granted as an exact line." if known.is_apart(understood_line(words).named) else None


def _runner_problem(words: tuple[str, ...], exact: bool, files: tuple[str, ...]) -> str | None:
    line, runs = quote(line_of(words)), breadth().runners[words[0]]
    opening = breadth().opening(words)
    if opening is not None:
        if opening.lets(words[len(opening.words) :]):
            return None
        return f"{line} has options with which more could run than {opening.what}."
    if not files:
        hint = "bind it to the content of what it runs" if len(words) > 1 else "name what it runs"
        return f"{line} could run {runs} that nobody has seen: {hint}."
    if not exact and not any(_names_file(words[-1], file) for file in files):
        return f"{line} with anything after it could run {runs}: let the words end with the file, or be the whole line."
    if understood_line(words).network:
        return f"{line} runs code that comes over the network, which nobody has seen."
    return None


def _names_file(word: str, file: str) -> bool:
    plain = posixpath.normpath(word)
    return plain == file or (plain.startswith("/") and plain.endswith("/" + file))


def _judged_problem(words: tuple[str, ...], exact: bool) -> str | None:
    """The tables' objection to the words, or None. A beginning may lack operands."""
    if words[0] not in load_tables():
        return f"Nothing is known of the arguments of {quote(words[0])}, so each use of it is asked about."
    absolute = any(word.startswith("/") for word in words)
    for finding in understood_line(words).findings:
        if not exact and finding.rule.endswith(".operands"):
            continue
        if absolute and finding.rule == "paths.outside":
            continue  # perhaps inside the workspace; judged with the call
        if finding.level is VerdictLevel.REFUSE:
            return safe_text(f"It would never be allowed: {finding.reason}")
        if finding.level is _HIGH or finding.always_asks:
            return safe_text(f"It is asked about each time: {finding.reason}")
    return None


# Suggestions


def suggest(
    tool_name: str,
    params: JsonObject | None,
    verdict: Verdict,
    bound: Mapping[str, str],
    workspace: str | None = None,
) -> list[Suggestion]:
    """Rules to offer with a question about this call, narrow to wide; each covers the call itself."""
    if params is None or verdict.level not in (_MEDIUM, _HIGH) or verdict.always_asks:
        return []
    call = call_of(tool_name, params, None, workspace)
    if not may_be_granted(call, level=verdict.level, always_asks=False):
        return []
    offered: list[Suggestion] = []
    for rule in _rules_for(call, bound):
        if rule is None or any(rule == one.rule for one in offered):
            continue
        fits = covers(
            rule, call, level=verdict.level, always_asks=verdict.always_asks, network=verdict.network, bound=bound
        )
        if fits:
            offered.append(Suggestion(rule=rule, text=text_of(rule), widest=widest_of(rule)))
    return offered[:MOST_SUGGESTIONS]


def _rules_for(call: Call, bound: Mapping[str, str]) -> Iterable[GrantRule | None]:
    if call.tool == "write_file":
        return _write_rules(call.path)
    if call.tool == "search_web":
        return [GrantRule(tool="search_web")]
    return _command_rules(call, bound) if call.tool == "execute_command" else []


def _write_rules(path: str | None) -> Iterable[GrantRule | None]:
    """Yield rules for the file, for its extension beside it, for its directory and for the topmost directory."""
    if path is None or set("*?") & set(path):
        return  # no pattern matches this name alone
    directory, _, name = path.rpartition("/")
    ending = posixpath.splitext(name)[1]
    yield _rule("write_file", paths=(path if directory else f"./{path}",))
    yield _rule("write_file", paths=(f"{directory or '.'}/*{ending}",))
    for top in (directory, directory.partition("/")[0]) if directory else ():
        # Besides text, source code with the extension that was asked about.
        named = () if source_kind(path) is None else (f"{top}/**/*{ending}",)
        yield _rule("write_file", paths=(f"{top}/**", *named))


def _command_rules(call: Call, bound: Mapping[str, str]) -> Iterable[GrantRule | None]:
    """Yield a rule for the exact line, then for its shortest beginning that is not too broad."""
    files = dict(bound) if _is_there(bound) else {}
    yield _rule("execute_command", call.argv, exact=True, files=files)
    opening = breadth().opening(call.argv)
    if opening is not None:
        yield _rule("execute_command", opening.words, files=files)
    elif call.program in breadth().runners:
        script = call.up_to(lambda word: any(_names_file(word, file) for file in files))
        yield _rule("execute_command", script, files=files) if script else None
    else:
        subcommand = understood_line(call.argv).subcommand
        words = () if subcommand is None else call.up_to(lambda word: word == subcommand.spelled)
        yield _rule("execute_command", words) if words else None
        yield _rule("execute_command", call.up_to(lambda word: True))


def _rule(
    tool: str,
    command: Sequence[str] = (),
    *,
    exact: bool = False,
    paths: tuple[str, ...] = (),
    files: dict[str, str] | None = None,
) -> GrantRule | None:
    if mask_arguments(list(command)) != list(command) or any(hidden_in(word) is not None for word in command):
        return None  # a rule keeps no secret, and nobody can agree to invisible characters
    try:
        return GrantRule(tool=tool, command=tuple(command), exact=exact, paths=paths, files=files or {})
    except ValidationError:  # a word that is empty or too long to be part of a rule
        return None


# Lines that may be granted as a class

Words = tuple[str, ...]

_PATH = re.compile(r"[A-Za-z0-9_.][^\0-\x1f\\:*?\"<>|@]*")


def _is_path(value: str) -> bool:
    # A program may print the lines that it cannot read, and a secret is no code.
    fits = bool(_PATH.fullmatch(value)) and ".." not in value.split("/") and not secret_name(value)
    return fits and check_path(value).refusal is None


_FITS: dict[str, Callable[[str], object]] = {
    "text": bool,
    "word": re.compile(r"[A-Za-z0-9_.,:%+][A-Za-z0-9_.,:%+-]*").fullmatch,
    "number": re.compile(r"[0-9]{1,6}|auto|logical").fullmatch,
    "name": re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]*").fullmatch,
    "package": re.compile(
        r"(?!.*\.\.)(?:@[A-Za-z0-9_.-]+/)?[A-Za-z0-9_][A-Za-z0-9_.-]*(?:@[A-Za-z0-9_.~^-]+)?"
    ).fullmatch,
    "path": _is_path,
    "test": lambda value: _is_path(value.partition("::")[0]),  # perhaps with the name of a test in it
    "none": lambda value: False,
}
_TAKES = ("text", "word", "number", "path")


@dataclass(frozen=True, slots=True)
class Opening:
    """A beginning of a line that runs code, and the arguments that may follow it."""

    words: Words
    what: str
    widest: str
    runs: bool
    """True if code of the workspace runs and is not merely inspected."""
    flags: frozenset[str]
    takes: Mapping[str, str]
    """Options with a value, and its kind."""
    operands: str

    def lets(self, rest: Sequence[str]) -> bool:
        """True if every argument after the beginning may follow it."""
        waiting: str | None = None
        for arg in rest:
            if waiting is not None:
                if arg.startswith("-") or not _FITS[waiting](arg):
                    return False
                waiting = None
            elif not arg.startswith("-"):
                if not _FITS[self.operands](arg):
                    return False
            elif arg in self.takes:
                waiting = self.takes[arg]
            elif not self._is_option(arg):
                return False
        return waiting is None

    def _is_option(self, arg: str) -> bool:
        if arg in self.flags:
            return True
        name, equals, value = arg.partition("=")
        if equals:
            return name in self.takes and bool(_FITS[self.takes[name]](value))
        if arg.startswith("--"):
            return False
        if all(f"-{letter}" in self.flags for letter in arg[1:]):
            return len(arg) > 2  # a cluster: -xvs
        kind = self.takes.get(arg[:2])
        return kind is not None and bool(_FITS[kind](arg[2:]))


@dataclass(frozen=True, slots=True)
class Breadth:
    """`broad.toml`, parsed."""

    plain: frozenset[str]
    never: Mapping[str, str]
    runners: Mapping[str, str]
    openings: tuple[Opening, ...]
    apart: tuple[Words, ...]
    brings: tuple[Words, ...]
    widest: Mapping[Words, str]

    def opening(self, words: Sequence[str]) -> Opening | None:
        """The opening that these words begin with, or None."""
        return next((one for one in self.openings if begins(words, one.words)), None)

    def is_apart(self, words: Sequence[str]) -> bool:
        """True if only the exact line may be granted, wherever the options stand."""
        return any(begins(words, one) for one in self.apart)

    def is_plain(self, words: Sequence[str]) -> bool:
        """True if the program runs nothing of the workspace and writes only the files its line names."""
        return words[0] in self.plain

    def is_runner(self, words: Sequence[str]) -> bool:
        """True if the program runs code of the workspace with most of its lines."""
        return words[0] in self.runners

    def runs_code(self, words: Sequence[str]) -> bool:
        """True if a line runs code of the workspace and does not merely inspect it."""
        opening = self.opening(words)
        harmless = opening is not None and not opening.runs and opening.lets(words[len(opening.words) :])
        return self.is_runner(words) and not harmless

    def brings_unseen(self, words: Sequence[str]) -> bool:
        return any(begins(words, one) for one in self.brings)


def begins(words: Sequence[str], beginning: Words) -> bool:
    """True if the words start with these, one for one."""
    return tuple(words[: len(beginning)]) == beginning


@cache
def breadth() -> Breadth:
    """Read the packaged data, once."""
    text = resources.files(__name__.rpartition(".")[0]).joinpath("broad.toml").read_text("utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    return Breadth(
        plain=frozenset(data["plain"]["programs"].split()),
        never={program: entry["because"] for entry in data["never"] for program in entry["programs"].split()},
        runners={entry["program"]: entry["runs"] for entry in data["runner"]},
        openings=tuple(one for entry in data["open"] for one in _openings(entry)),
        apart=_lines(data["apart"]["commands"]),
        brings=_lines(data["brings"]["commands"]),
        widest={words: entry["text"] for entry in data["widest"] for words in _lines(entry["commands"])},
    )


def _lines(commands: Iterable[str]) -> tuple[Words, ...]:
    return tuple(tuple(command.split()) for command in commands)


def _openings(entry: Mapping[str, Any]) -> list[Opening]:
    return [
        Opening(
            words=words,
            what=entry["what"],
            widest=entry["widest"],
            runs=entry["runs"],
            flags=frozenset(entry.get("flags", "").split()),
            takes={option: kind for kind in _TAKES for option in entry.get(kind, "").split()},
            operands=entry["operands"],
        )
        for words in _lines(entry["commands"])
    ]
