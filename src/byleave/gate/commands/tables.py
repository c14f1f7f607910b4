"""The command tables: what each allowed command's options and operands mean.

A table says of every option how many values it takes, what kind of value, and what it does. `table_files` reads them
from `tables/*.toml`; nothing here judges, `commands` does. An option that is not in its table is never guessed at.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from byleave.protocol.verdicts import VerdictLevel


class Kind(StrEnum):
    """What a value is."""

    TEXT = "text"
    """Words for the command itself: a pattern, a message. Never a path."""
    MESSAGE = "message"
    """Text of an option that every version has, so that what looks like another option is the text as well."""
    PATTERN = "pattern"
    """A regular expression."""
    SUFFIX = "suffix"
    """The end of the name under which the old content of a file that is written is kept."""
    NUMBER = "number"
    WORD = "word"
    """One of a few plain words, such as `never` or `full-iso`."""
    PATH_READ = "path-read"
    """A file whose content is shown or used."""
    PATH_NAME = "path-name"
    """A file of which only name and times are used."""
    PATH_WRITE = "path-write"
    PROGRAM = "program"
    """Something that would be run."""
    LOOSE = "loose"
    """Could be a path or not: refused where it would lead out, otherwise let be."""
    REMOTE = "remote"
    """A repository: a URL, a name, or a path."""
    FILE_LIST = "file-list"
    """A file that names further files."""
    DATE_FORMAT = "date-format"
    MODULE = "module"
    PACKAGE = "package"
    SETTING = "setting"
    """`name=value` of git's configuration."""
    LINKER = "linker"
    """Comma-separated arguments for another program of the compiler."""
    CHECKPOINT = "checkpoint"
    ARCHIVE = "archive"
    DATE = "date"
    SCRIPT = "script"
    """A file that the command runs."""
    REFSPEC = "refspec"
    TARGET = "target"
    """A repository to send to."""
    GLOB = "glob"
    """A pattern of file names whose content is read."""
    SOURCE = "source"
    """A file to compile; `@file` would hold further arguments."""
    PATHSPEC = "pathspec"
    """What is shown or packed: a file, perhaps of some revision (`HEAD:a`), a directory, a branch."""
    TREE = "tree"
    """What is put back, replaced or removed: a file, a directory, a branch."""
    ORIGIN = "origin"
    """A repository that is copied into a directory of its name."""
    SED_SCRIPT = "sed-script"
    """A program for sed, which can write files and run programs."""
    PATH_MAKE = "path-make"
    """A directory that is made, or a name that is taken."""
    PATH_CHANGE = "path-change"
    """A file that is made or changed: its level goes by its name, as for write_file."""
    PATH_REMOVE = "path-remove"
    """A file that is gone afterwards."""
    URL = "url"
    """Something to fetch: http and https only."""
    REQUIREMENT = "requirement"
    """A Python package: a name from the index is usual; a URL, an archive or a repository is not."""


class Style(StrEnum):
    """How a command reads its arguments."""

    GNU = "gnu"
    FIND = "find"
    TAR = "tar"
    """GNU, but a first argument without a dash is a cluster too."""
    ECHO = "echo"
    PREFIX = "prefix"
    """Long options with one dash and values glued on, as gcc has."""
    CONFIG = "config"
    """Any `--key value` is a setting, as npm has it."""
    SINGLE = "single"
    """`-name`, `--name`, `-name=value`, `-name value`; no clusters, as Go's programs have it."""
    APART = "apart"
    """Clusters whose values follow as arguments of their own, in order, as tree has it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option under all its names."""

    name: str
    kind: Kind | None = None
    """None: it takes no value."""
    glued_only: bool = False
    """The value is optional and only taken when written in the same argument."""
    level: VerdictLevel = VerdictLevel.LOW
    because: str | None = None
    instead: str | None = None
    network: bool = False
    always_asks: bool = False
    """Asked about in `full` mode too."""
    stops: bool = False
    """Everything after it belongs to the program it starts."""
    offline_with: frozenset[str] = frozenset()
    """First arguments with which a module needs no network."""
    until: bool = False
    """Takes all arguments up to `;` or `+`."""
    unless: re.Pattern[str] | None = None
    """A value that fits all of this is harmless: level and warning do not count."""
    never: re.Pattern[str] | None = None
    """A value in which this is found is refused, because of `never_because`."""
    never_because: str | None = None
    operands: Kind | None = None
    """What every operand is once this option is given, such as written instead of read."""
    same_as: str | None = None
    """A module that reads its arguments as this command does."""


@dataclass(frozen=True, slots=True)
class CommandTable:
    """What is known of one command or subcommand."""

    name: str
    does: str
    level: VerdictLevel
    style: Style
    options: Mapping[str, Option]
    long_names: tuple[str, ...]
    operands: tuple[Kind, ...] = ()
    repeats: bool = False
    """Whether the last operand may come again."""
    least: int = 0
    """Fewer operands than this is `lacking_level`: the command would take its input."""
    lacking: str | None = None
    """What it means to give fewer."""
    lacking_level: VerdictLevel = VerdictLevel.HIGH
    answers: frozenset[str] = frozenset()
    """Options that make the command answer and end, so that `least` does not matter."""
    most: int | None = None
    """More operands than this is HIGH, because of `beyond`."""
    beyond: str | None = None
    first_given_by: frozenset[str] = frozenset()
    """Options that stand in for the first operand."""
    last: Kind | None = None
    """What the last of several operands is: where the others go."""
    last_given_by: frozenset[str] = frozenset()
    """Options that name that place instead."""
    never: re.Pattern[str] | None = None
    """An operand in which this is found is refused, because of `never_because`."""
    never_because: str | None = None
    digits: str | None = None
    """Letters that may follow `-NUM`; None: there is no `-NUM`."""
    plus_follows: bool = False
    """Whether `+NUMf` follows a file without end, as old `tail` has it."""
    dashes_end: bool = True
    """Whether `--` ends the options."""
    equals: bool = False
    """Whether the value glued to a short option may stand behind `=`, as zip has it."""
    stops_at_operand: bool = False
    because: str | None = None
    instead: str | None = None
    network: bool = False
    always_asks: bool = False
    after: Kind = Kind.LOOSE
    subs: Mapping[str, "CommandTable"] = field(default_factory=dict[str, "CommandTable"])
    modules: Mapping[str, Option] = field(default_factory=dict[str, Option])
    settings: frozenset[str] = frozenset()
    backtracks: frozenset[str] = frozenset()
    """Options with which matching a pattern can take time beyond all bounds."""
    match: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    not_match: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
