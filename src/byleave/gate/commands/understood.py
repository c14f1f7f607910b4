"""UnderstoodCommand: a command line, parsed once; code after the gate asks it and never parses argv again.

`CommandValidator.judge` makes it from the one reading of the arguments. Each fact is computed on first use and cached.
A line that the tables could not read (`reading` is None) is never LOW and gets no privilege. Pure: callers add what
only the disk can tell (links, directories, repositories).
"""

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from byleave.protocol.verdicts import Finding, VerdictLevel
from byleave.protocol.wire import JsonObject

from . import scripts
from .options import Reading
from .tables import ALIASES, Kind

RUN_CODE = frozenset({"python", "node", "npm", "gcc", "make", "pytest", "cargo", "go", "pip"})
"""Programs that run code of the workspace or of packages."""
_READERS = frozenset({"ls", "cat", "head", "tail", "wc", "grep", "echo", "date", "pwd", "whoami", "locate", "true"})
_FIND_WRITES = ("-delete", "-fprint", "-fls", "-exec", "-ok")
_GIT_READS = frozenset(
    {
        *("annotate", "blame", "cat-file", "check-attr", "check-ignore", "cherry", "count-objects", "describe", "diff"),
        *("diff-files", "diff-index", "diff-tree", "for-each-ref", "grep", "log", "ls-files", "ls-tree", "merge-base"),
        *("name-rev", "rev-list", "rev-parse", "shortlog", "show", "show-branch", "show-ref", "status", "var"),
        *("verify-commit", "verify-tag", "version", "whatchanged"),
    }
)
_GIT_KEEPS_TREE = frozenset(
    {
        *("add", "branch", "commit-tree", "fetch", "gc", "hash-object", "ls-remote", "mktag", "mktree", "notes"),
        *("pack-refs", "reflog", "remote", "stage", "symbolic-ref", "tag", "update-index", "update-ref", "write-tree"),
    }
)
"""They change the repository only, and run no program that may change more."""
_GIT_WRITES = "--ou"
"""The shortest beginning of `--output`."""
_MAKES_REPOSITORY = frozenset({"init", "init-db", "clone"})
_GIT_SETTINGS = frozenset({"config", "remote"})
_GIT_APART = frozenset({"--git-dir", "--work-tree", "--bare"})
"""With these the repository is not the one that the working tree belongs to."""

# A bare repository in the workspace has its own configuration, which can name programs: git uses one only if named.
_GIT_SAFETY = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "safe.bareRepository=explicit", "--no-pager"),
)
# A local repository that git pushes to, or asks for an archive, runs the hooks and commands of its own configuration.
# The options above do not reach it. Fetching from one runs nothing.
_NO_OTHER_REPOSITORY = ("-c", "protocol.file.allow=never")
_GIT_FETCHES = frozenset({"clone", "fetch", "fetch-pack", "ls-remote", "pull", "remote", "submodule"})
# With -u it would try to remove `.byleave`, and stop half-way. A file that is not there excludes nothing.
_STASH_LEAVES = ("-c", "core.excludesFile=~/.stash-ignore")
# The variable that keeps Python from compiled files of the workspace does not reach a line with one of these.
_IGNORE_ENVIRONMENT = frozenset({"-E", "-I"})
_NO_COMPILED = ("-X", "pycache_prefix=/dev/null")
_TAMED_BY = {
    **dict.fromkeys(("diff", "log", "show"), ("--no-ext-diff", "--no-textconv")),
    # Only its owner can remove it, so git would fail each time.
    "clean": ("--exclude=/.byleave",),
}

_SHOW_CONTENT = frozenset(
    {"cat", "cp", "head", "tail", "wc", "grep", "date", "sed", "sort", "diff", "cut", "uniq", "tree"}
)
_LIST_NAMES = frozenset({"ls", "find", "stat", "file", "du"})
_NOT_NAMES = frozenset(
    {Kind.PATTERN, Kind.TEXT, Kind.FORMAT, Kind.NUMBER, Kind.WORD, Kind.GLOB, Kind.DATE, Kind.DATE_FORMAT}
    | {Kind.SED_SCRIPT}
)
_OPEN_DIRECTORIES = frozenset({"grep", "diff"})
"""Commands that can be LOW and open the files in a directory."""
_MOVES = frozenset({("mv",), ("cp",), ("git", "mv")})
_ALL_MOVE = frozenset({"-t", "--target-directory", "--exchange", "-b", "--backup", "-S", "--suffix"})
"""With these the last name is no place, or what is there moves as well."""
AMOUNT_RULE = "commands.amount"
GIVE_PATTERN = frozenset({"-e", "-f", "--regexp", "--file"})

_OPEN_NOTHING = frozenset({"echo", "true", "whoami"})
_FIND_PLAIN = """-name -iname -path -ipath -regex -iregex -type -size -empty -perm -mtime -mmin -maxdepth -mindepth
-prune -not -and -or -a -o -print -print0"""
# Not -F and -p of ls: they follow links. Not cp and mv: without /proc they cannot copy a read-only directory.
_PLAIN_LETTERS = {
    "cat": ("AbeEnstTuv", ""),
    "date": ("duIR", "--utc"),
    "find": ("", _FIND_PLAIN),
    "grep": ("aABbcCeEFGhHiIlLmnoPqrsTvwxyzZ", "--include --exclude --exclude-dir"),
    "head": ("cnqvz", ""),
    "ls": ("aAbBcCdfgGhiklmnNoqQrRsStuUvxX", ""),
    "mkdir": ("mpv", "--parents --verbose"),
    "pwd": ("LP", ""),
    "rm": ("dfirRv", "--force --recursive --verbose"),
    "tail": ("cnqvz", ""),
    "touch": ("acdmt", ""),
    "wc": ("clLmw", ""),
}
_PLAIN_OPTIONS = {
    program: frozenset((*(f"-{letter}" for letter in f"{letters}0123456789"), *words.split()))
    for program, (letters, words) in _PLAIN_LETTERS.items()
}
"""Options that follow no link, open nothing, start nothing and ask the kernel for nothing."""


class Subcommand(NamedTuple):
    """A subcommand as it was written, and under its own name."""

    spelled: str
    name: str


class OpenedName(NamedTuple):
    """An argument that could be the name of a file."""

    spelled: str
    opened: bool
    """True if its content is read; else it is only listed."""


@dataclass(frozen=True)
class UnderstoodCommand:
    """One command line and what it means."""

    command: str
    """As it was given."""
    args: tuple[str, ...] = ()
    workspace: str | None = None
    findings: tuple[Finding, ...] = ()
    """Findings of the tables, without the owner's rules."""
    network: bool = False
    reading: Reading | None = None
    """None if the tables do not know the program or could not read its arguments."""
    written: tuple[str, ...] = ()
    """Names under which it may write a file, as far as the line says."""

    def to_json(self) -> JsonObject | None:
        """The reading, for `byleave check`."""
        return None if self.reading is None else _shown(self.reading)

    @property
    def program(self) -> str:
        """The program, with an alias resolved."""
        return ALIASES.get(self.command, self.command)

    @cached_property
    def is_low(self) -> bool:
        """True if the tables know it to be harmless."""
        return bool(self.findings) and all(finding.level is VerdictLevel.LOW for finding in self.findings)

    @cached_property
    def subcommand(self) -> Subcommand | None:
        """Its subcommand, wherever options stand."""
        reading = self.reading
        if reading is None or reading.sub is None:
            return None
        return Subcommand(reading.operands[0], reading.sub.table.name.rpartition(" ")[2])

    @property
    def too_much(self) -> Finding | None:
        """The finding that its arguments are too many or too long."""
        refused = (one for one in self.findings if one.rule == AMOUNT_RULE and one.level is VerdictLevel.REFUSE)
        return next(refused, None)

    @cached_property
    def named(self) -> tuple[str, ...]:
        """The program and its subcommand, without options and operands."""
        return (self.program,) if self.subcommand is None else (self.program, self.subcommand.name)

    @cached_property
    def essence(self) -> tuple[object, ...]:
        """The line without what only respells it: order and clusters of options, other ways to write a path."""
        if self.reading is None:
            return (self.program, *map(self._plain, self.args))
        return (self.program, *self._essence_of(self.reading))

    def _essence_of(self, reading: Reading) -> tuple[object, ...]:
        said = {(one.option.name, self._plain(one.value or "")) for one in reading.said}
        said |= {(name, self._plain(value or "")) for name, value in reading.unknown}
        said.discard(("-C", "."))  # where it is anyway
        sub = None if reading.sub is None else self._essence_of(reading.sub)
        rest = reading.rest if sub is None else ()
        return tuple(sorted(said)), tuple(map(self._plain, (*reading.operands, *rest))), sub

    def _plain(self, word: str) -> str:
        root = (self.workspace or "").rstrip("/")
        path = posixpath.normpath(word) if word else ""
        return posixpath.relpath(path, root) if root and f"{path}/".startswith(f"{root}/") else path

    # Effects

    @cached_property
    def starts_nothing(self) -> bool:
        """True if it only reads and never starts another program."""
        if self.command == "find":
            return not any(arg.startswith(_FIND_WRITES) for arg in self.args)
        return self.command in _READERS

    @cached_property
    def only_reads(self) -> bool:
        """True if it can do its work without writing to the workspace."""
        if not self.is_git:
            return self.starts_nothing
        return self._git_word in _GIT_READS and not self._git_writes

    @cached_property
    def keeps_tree(self) -> bool:
        """True for a git command that can do its work without changing the working tree."""
        return self.is_git and self._git_word in _GIT_KEEPS_TREE and not self._git_writes

    @cached_property
    def uses_index(self) -> bool:
        """True for a git command that may record or write out what is staged."""
        if not self.is_git or self.only_reads or self.makes_repository or self._git_word == "reset":
            return False  # reset only changes what is staged
        return not self.keeps_tree or self._git_word == "write-tree"

    @cached_property
    def _git_writes(self) -> bool:
        return any(arg.startswith(_GIT_WRITES) for arg in self.args)

    @cached_property
    def runs_code(self) -> bool:
        """True for programs that run code of the workspace or of packages; what gcc makes runs later, if at all."""
        return self.program in RUN_CODE and self.program != "gcc"

    @property
    def _line(self) -> scripts.Line | None:
        """The line, of a program that may run files of the workspace."""
        reading = self.reading if self.program in scripts.RUN_FILES else None
        return None if reading is None else scripts.line_of(self.args, reading)

    @cached_property
    def runs(self) -> tuple[str, ...]:
        """Files of the workspace whose content it would run."""
        return () if self._line is None else scripts.runs(self.program, self._line, self.workspace)

    @cached_property
    def changes_what_it_runs(self) -> bool:
        """True if it rewrites the files it runs, as `npm install` does package.json."""
        return self._line is not None and scripts.changes_what_it_runs(self.program, self._line)

    @cached_property
    def package_scripts(self) -> tuple[str, ...] | None:
        """The scripts of package.json that it would run, in order; None if uncertain."""
        return None if self._line is None else scripts.package_scripts(self.program, self._line)

    # git

    @cached_property
    def is_git(self) -> bool:
        return self.command == "git"

    @cached_property
    def _git_word(self) -> str:
        """The subcommand as git sees it, known to the tables or not."""
        return self.reading.operands[0] if self.reading is not None and self.reading.operands else ""

    @cached_property
    def makes_repository(self) -> bool:
        """True if the command creates a repository."""
        return self.is_git and self._git_word in _MAKES_REPOSITORY

    @cached_property
    def changes_settings(self) -> bool:
        """True if changing the repository's settings is what it is for; that is always asked about."""
        asks = any(finding.always_asks for finding in self.findings)
        return self.is_git and self._git_word in _GIT_SETTINGS and asks

    @cached_property
    def git_directories(self) -> tuple[str, ...]:
        """Directories that git changes to first, in order, by -C."""
        return self._values("-C")

    @cached_property
    def git_repository(self) -> tuple[str, ...] | None:
        """Options with which another git command looks at the same repository and working tree, and nothing but these.

        None if the line takes them apart: what is staged for one working tree says nothing about another.
        """
        if self.reading is None or any(one.option.name in _GIT_APART for one in self.reading.said):
            return None
        return tuple(word for place in self.git_directories for word in ("-C", place))

    @cached_property
    def git_named(self) -> tuple[str, ...]:
        """What its subcommand is given, as paths from the workspace."""
        sub = None if self.reading is None else self.reading.sub
        operands = () if sub is None else sub.operands
        return tuple(self._plain(posixpath.join(*self.git_directories, operand)) for operand in operands)

    @cached_property
    def git_dir(self) -> str | None:
        """The repository that --git-dir names."""
        given = self._values("--git-dir")
        return given[-1] if given else None

    def _values(self, name: str) -> tuple[str, ...]:
        said = () if self.reading is None else self.reading.said
        return tuple(one.value for one in said if one.option.name == name and one.value is not None)

    # Files

    @cached_property
    def names(self) -> tuple[OpenedName, ...]:
        """Arguments of a reading command that could be names of files."""
        shows = self.command in _SHOW_CONTENT
        if not shows and self.command not in _LIST_NAMES:
            return ()
        if self.reading is None:  # refused as unreadable; if it ever runs, every word counts
            return tuple(OpenedName(arg, opened=True) for arg in self.args)
        table = self.reading.table
        found: list[OpenedName] = []
        for one in self.reading.said:
            option = table.options.get(one.spelled)
            if one.value and (option is None or option.kind not in _NOT_NAMES):
                # Opened even by a command that only lists, such as find -samefile.
                found.append(OpenedName(one.value, opened=True))
        given = {one.spelled for one in self.reading.said}
        kinds = table.operands if table.first_given_by.isdisjoint(given) else table.operands[1:]
        for index, operand in enumerate(self.reading.operands):
            if not (index < len(kinds) and kinds[index] in _NOT_NAMES):
                found.append(OpenedName(operand, opened=shows))
        return tuple(dict.fromkeys(found))

    @cached_property
    def moved(self) -> tuple[str, ...]:
        """Names of what it moves or copies, directories as a whole."""
        reading = self.reading.sub or self.reading if self.reading is not None else None
        if reading is None or self.named not in _MOVES:
            return ()
        all_move = any(one.option.name in _ALL_MOVE for one in reading.said)
        return reading.operands if all_move else reading.operands[:-1]

    @cached_property
    def walked(self) -> tuple[str, ...]:
        """Words that a LOW command may open as directories, whatever their role."""
        if self.command not in _OPEN_DIRECTORIES:
            return ()
        words = {piece for arg in self.args for piece in (arg, arg.partition("=")[2]) if piece and "\0" not in piece}
        return (*sorted(words), *([] if self.command != "grep" or self._grep_names_places else ["."]))

    @cached_property
    def _grep_names_places(self) -> bool:
        if self.reading is None:
            return False
        by_option = any(one.option.name in GIVE_PATTERN for one in self.reading.said)
        return bool(self.reading.operands if by_option else self.reading.operands[1:])

    @cached_property
    def plain_operands(self) -> tuple[str, ...] | None:
        """Operands of a line that needs only the system's programs and the workspace; None for any other line."""
        if self.command in _OPEN_NOTHING:
            return ()
        known, reading = _PLAIN_OPTIONS.get(self.command), self.reading
        if known is None or reading is None or reading.unknown or "-" in reading.operands:
            return None
        plain = all(one.spelled in known and not one.abbreviated for one in reading.said)
        return reading.operands if plain else None

    # Starting it

    @cached_property
    def safe_args(self) -> tuple[str, ...]:
        """The arguments, hardened so that the command runs and reads no more than it says."""
        args = self.args
        if self.is_git:
            at = len(args) if self.reading is None else len(args) - len(self.reading.rest)
            others = () if self._git_word in _GIT_FETCHES else _NO_OTHER_REPOSITORY
            others += _STASH_LEAVES if self._git_word == "stash" else ()
            return (*_GIT_SAFETY, *others, *args[:at], *_TAMED_BY.get(self._git_word, ()), *args[at:])
        if self.command == "zip":
            return ("-y", *args)  # store links as links; following them would pack files outside
        if self.command == "diff":
            return ("--no-dereference", *args)
        if self.program == "python" and self._ignores_environment:
            return (*_NO_COMPILED, *args)
        return self._grep_without_links() if self.command == "grep" else args

    @property
    def _ignores_environment(self) -> bool:
        return self.reading is None or any(one.spelled in _IGNORE_ENVIRONMENT for one in self.reading.said)

    def _grep_without_links(self) -> tuple[str, ...]:
        """The arguments of grep with -R as -r, which follows no links found in directories."""
        changed = list(self.args)
        for one in () if self.reading is None else self.reading.said:
            if one.option.name == "-R":
                # Flags precede a value in their cluster, so the first R is the flag.
                changed[one.at] = changed[one.at].replace("R", "r", 1)
            elif one.option.name == "--dereference-recursive":
                changed[one.at] = "-r"
        return tuple(changed)


def _shown(reading: Reading) -> JsonObject:
    shown: JsonObject = {
        "command": reading.table.name,
        "options": [[said.spelled, said.value] for said in reading.said],
        "operands": list(reading.operands),
    }
    return shown if reading.sub is None else {**shown, "subcommand": _shown(reading.sub)}


UNKNOWN_COMMAND = UnderstoodCommand("")
"""Stands for an unknown program: it may write, and gets every protection."""


def with_names(args: Sequence[object], real: Callable[[str], str]) -> list[object]:
    """Replace each operand, and each value after an option's `=`, by its `real` name."""
    return [_with_name(arg, real) if isinstance(arg, str) else arg for arg in args]


def _with_name(arg: str, real: Callable[[str], str]) -> str:
    if not arg.startswith("-"):
        return real(arg)
    name, equals, value = arg.partition("=")
    return f"{name}={real(value)}" if equals and value else arg
