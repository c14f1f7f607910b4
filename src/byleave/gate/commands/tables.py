"""Command tables: the meaning of each command's options and operands.

A table gives every option's number and kind of values, and its effect. Tables are read once from `tables/*.toml`. An
unknown key, kind or level, or an option with two meanings, is an error that names the file and the command, so that a
typo is never a hole. Nothing here judges. An option that is not in its table is never guessed at.

Subcommands may have several names: a rule against `npm install` means `npm i` too.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

from byleave.protocol.verdicts import VerdictLevel

ALIASES = {"python3": "python"}
"""Programs that share the table of another."""


class Kind(StrEnum):
    """The kind of a value."""

    TEXT = "text"
    """Words for the command itself: a pattern, a message. Never a path."""
    MESSAGE = "message"
    """Text of an option that every version has: it is text even if it looks like another option."""
    PATTERN = "pattern"
    """A regular expression."""
    FORMAT = "format"
    """Text with fields such as `%10s`, filled up to the width that they name."""
    SUFFIX = "suffix"
    """Suffix of the backup that is made of each written file."""
    NUMBER = "number"
    WORD = "word"
    """One of a few plain words, such as `never` or `full-iso`."""
    PATH_READ = "path-read"
    """A file whose content is shown or used."""
    PATH_NAME = "path-name"
    """A file whose name and times alone are used."""
    PATH_WRITE = "path-write"
    PROGRAM = "program"
    """Something that would be run."""
    LOOSE = "loose"
    """Perhaps a path: refused if it would lead out, asked about if it may name secrets, otherwise text."""
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
    """Branches to send, and their names elsewhere."""
    FETCHED = "fetched"
    """Branches to get, and their names here."""
    TARGET = "target"
    """A repository to send to."""
    GLOB = "glob"
    """A pattern of file names whose content is read."""
    SOURCE = "source"
    """A file to compile; `@file` would hold further arguments."""
    PATHSPEC = "pathspec"
    """Something shown or packed: a file, perhaps of some revision (`HEAD:a`), a directory, a branch."""
    TREE = "tree"
    """Something restored, replaced or removed: a file, a directory, a branch."""
    ORIGIN = "origin"
    """A repository that is cloned into a directory of its name."""
    SED_SCRIPT = "sed-script"
    """A program for sed, which can write files and run programs."""
    PATH_MAKE = "path-make"
    """A directory or name that is created."""
    PATH_CHANGE = "path-change"
    """A file that is created or changed: its name decides the level, as for write_file."""
    PATH_REMOVE = "path-remove"
    """A file that is removed or moved away."""
    URL = "url"
    """Something to fetch: http and https only."""
    REQUIREMENT = "requirement"
    """A Python package: a name from the index is usual; a URL, an archive or a repository is not."""


class Style(StrEnum):
    """Style in which a command reads its arguments."""

    GNU = "gnu"
    FIND = "find"
    TAR = "tar"
    """GNU, but a first argument without a dash is a cluster too."""
    ECHO = "echo"
    PREFIX = "prefix"
    """Long options with one dash and glued values, as in gcc."""
    CONFIG = "config"
    """Any `--key value` is a setting, as in npm."""
    SINGLE = "single"
    """`-name`, `--name`, `-name=value`, `-name value`; no clusters, as in Go's programs."""
    APART = "apart"
    """Clusters whose values follow as arguments of their own, in order, as in tree."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option under all its names."""

    name: str
    kind: Kind | None = None
    """None if it takes no value."""
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
    """A value that fully matches this is harmless: level and warning do not count."""
    never: re.Pattern[str] | None = None
    """A value that contains this is refused, because of `never_because`."""
    never_because: str | None = None
    operands: Kind | None = None
    """The kind of operands that would be read, once this option is given: with sed -i they are written."""
    same_as: str | None = None
    """A module that reads its arguments as this command does."""


@dataclass(frozen=True, slots=True, eq=False)
class CommandTable:
    """Everything known of one command or subcommand."""

    name: str
    does: str = ""
    level: VerdictLevel = VerdictLevel.HIGH
    style: Style = Style.GNU
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    long_names: tuple[str, ...] = ()
    operands: tuple[Kind, ...] = ()
    repeats: bool = False
    """True if the last operand may come again."""
    least: int = 0
    """With fewer operands a line has `lacking_level`: the command would read its input."""
    lacking: str | None = None
    """The reason to show then."""
    lacking_level: VerdictLevel = VerdictLevel.HIGH
    answers: frozenset[str] = frozenset()
    """Options that make the command answer and exit, so that `least` does not matter."""
    most: int | None = None
    """More operands than this are HIGH, because of `beyond`."""
    beyond: str | None = None
    first_given_by: frozenset[str] = frozenset()
    """Options that stand in for the first operand."""
    last: Kind | None = None
    """The kind of the last of several operands: the destination of the others."""
    last_given_by: frozenset[str] = frozenset()
    """Options that name the destination instead."""
    never: re.Pattern[str] | None = None
    """An operand that contains this is refused, because of `never_because`."""
    never_because: str | None = None
    digits: str | None = None
    """Letters that may follow `-NUM`; None if there is no `-NUM`."""
    plus_follows: bool = False
    """True if `+NUMf` follows a file without end, as in old `tail`."""
    dashes_end: bool = True
    """True if `--` ends the options."""
    equals: bool = False
    """True if a short option's glued value may follow `=`, as in zip."""
    stops_at_operand: bool = False
    because: str | None = None
    instead: str | None = None
    network: bool = False
    always_asks: bool = False
    after: Kind = Kind.LOOSE
    subs: Mapping[str, "CommandTable"] = field(default_factory=dict[str, "CommandTable"])
    synonyms: tuple[tuple[str, ...], ...] = ()
    """Subcommands under all their names."""
    modules: Mapping[str, Option] = field(default_factory=dict[str, Option])
    settings: frozenset[str] = frozenset()
    bounded: frozenset[str] = frozenset()
    """Options with which matching ends in time even if a pattern refers back to a group; without one it is asked."""
    match: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    not_match: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


Raw = Mapping[str, Any]
Shared = Mapping[str, dict[str, Option]]
"""Options that several subcommands have."""

_OPTION_KEYS = frozenset({"flags", "takes", "may_take", "risky"})
_RISKY_KEYS = {one.name for one in fields(Option)} - {"name", "kind", "glued_only"} | {"options", "takes", "may_take"}
_BUILT = {"operands", "modules", "subs"}
"""Keys of a table whose values are built from several."""
_TABLE_VALUES = {one.name for one in fields(CommandTable)} - {"name", "options", "long_names", "repeats"} - _BUILT
_TABLE_KEYS = _TABLE_VALUES | _BUILT | _OPTION_KEYS | {"uses", "plain_subs", "names"}
_HEADING = re.compile(r"^\[([A-Za-z0-9_+-]+)\]", re.MULTILINE)


class TableError(ValueError):
    """A packaged table is wrong: a mistake of ours."""


class Tables(Mapping[str, CommandTable]):
    """Every table by the name of its command. A file is parsed when the first of its commands is asked for."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)
        self._files: dict[str, str] = {}
        for file, text in texts.items():
            for name in dict.fromkeys(_HEADING.findall(text)):
                if name in self._files:
                    raise TableError(f"{file}: [{name}] has a table in {self._files[name]} already.")
                self._files[name] = file
        self._read: dict[str, CommandTable] = {}

    def __getitem__(self, name: str) -> CommandTable:
        found = self._read.get(name)
        if found is None:
            file = self._files[name]
            self._read.update(read_tables(self._texts[file], file))
            found = self._read[name]
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def file_of(self, name: str) -> str:
        return self._files[name]


@cache
def load_tables() -> Tables:
    """Every packaged table."""
    folder = resources.files(__name__.rpartition(".")[0]).joinpath("tables")
    entries = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda item: item.name)
    return Tables({entry.name: entry.read_text("utf-8") for entry in entries})


def read_tables(text: str, file: str) -> dict[str, CommandTable]:
    """Parse the tables of one file; raise a `TableError` that names the file and the command."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"{file}: {error}") from error
    name = "shared"
    try:
        shared: Shared = {key: _shared(key, raw) for key, raw in data.pop("shared", {}).items()}
        tables: dict[str, CommandTable] = {}
        for name, raw in data.items():
            tables[name] = build_table(name, raw, shared)
    except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
        raise TableError(f"{file}: [{name}]: {reason}") from error
    return tables


def _shared(name: str, raw: Raw) -> dict[str, Option]:
    _known_keys(raw, _OPTION_KEYS, name)
    return _options(raw, name)


def _known_keys(raw: Raw, known: Set[str], where: str) -> None:
    unknown = sorted(set(raw) - known)
    if unknown:
        raise TableError(f"{where}: {', '.join(map(repr, unknown))} is not a word of the tables.")


def build_table(name: str, raw: Raw, shared: Shared, above: CommandTable | None = None) -> CommandTable:
    """Turn one TOML table into a command table; a subcommand takes level and style from the command above it."""
    _known_keys(raw, _TABLE_KEYS, name)
    options: dict[str, Option] = {}
    for key in raw.get("uses", ()):
        options.update(shared[key])
    options.update(_options(raw, name))
    shape: list[str] = raw.get("operands", ["loose*"])
    values: dict[str, Any] = {} if above is None else {"does": above.does, "level": above.level, "style": above.style}
    values |= {key: _value(key, raw[key]) for key in raw if key in _TABLE_VALUES}
    table = CommandTable(
        name,
        options=options,
        long_names=tuple(sorted(spelled for spelled in options if spelled.startswith("--"))),
        operands=tuple(Kind(item.rstrip("*")) for item in shape),
        repeats=bool(shape) and shape[-1].endswith("*"),
        modules={key: option for entry in raw.get("modules", ()) for key, option in _risky(entry)},
        **values,
    )
    subs = [*raw.get("subs", {}).items(), *((entry["names"], entry) for entry in raw.get("plain_subs", ()))]
    return replace(table, subs=dict(_subs(table, subs, shared))) if subs else table


def _subs(
    above: CommandTable, entries: Iterable[tuple[str, Raw]], shared: Shared
) -> Iterator[tuple[str, CommandTable]]:
    for spelled, entry in entries:
        names = spelled.split()
        table = build_table(f"{above.name} {names[0]}", entry, shared, above)
        yield from ((name, replace(table, name=f"{above.name} {name}")) for name in names)


def _options(raw: Raw, where: str) -> dict[str, Option]:
    """Options of a table: plain flags, options with values, and risky ones."""
    flags: str = raw.get("flags", "")
    options = {name: Option(name) for name in flags.split()}
    for kind, names in raw.get("takes", {}).items():
        _add(options, {name: Option(name, Kind(kind)) for name in names.split()}, where)
    for kind, names in raw.get("may_take", {}).items():
        _add(options, {name: Option(name, Kind(kind), glued_only=True) for name in names.split()}, where)
    for entry in raw.get("risky", ()):
        _add(options, dict(_risky(entry)), where)
    odd = [name for name in options if not name.startswith("-")]
    if odd:
        raise TableError(f"{where}: {', '.join(map(repr, odd))} is not an option.")
    return options


def _add(options: dict[str, Option], more: Mapping[str, Option], where: str) -> None:
    """Add options; one that is there already is an error, because the weaker meaning could win."""
    twice = sorted(options.keys() & more.keys())
    if twice:
        raise TableError(f"{where}: {', '.join(twice)} stands there twice.")
    options.update(more)


def _risky(entry: Raw) -> Iterable[tuple[str, Option]]:
    _known_keys(entry, _RISKY_KEYS, f"the options {entry.get('options', '')[:60]!r}")
    takes = entry.get("takes", entry.get("may_take"))
    values = {key: _value(key, entry[key]) for key in entry if key not in ("options", "takes", "may_take")}
    for name in entry["options"].split():
        yield name, Option(name, None if takes is None else Kind(takes), glued_only="may_take" in entry, **values)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _examples(raw: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {VerdictLevel(level).value: tuple(lines) for level, lines in raw.items()}


_TYPES: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(("level", "lacking_level"), VerdictLevel),
    **dict.fromkeys(("last", "after", "operands"), Kind),
    **dict.fromkeys(("never", "unless"), re.compile),
    **dict.fromkeys(("match", "not_match"), _examples),
    **dict.fromkeys(("answers", "first_given_by", "last_given_by", "settings", "bounded", "offline_with"), _words),
    "style": Style,
    "synonyms": lambda groups: tuple(tuple(group.split()) for group in groups),
}


def _value(key: str, raw: Any) -> Any:
    return _TYPES[key](raw) if key in _TYPES else raw


def all_names(command: str, sub: str) -> tuple[str, ...]:
    """All names of a subcommand; only `sub` itself if it has no other."""
    table = load_tables().get(command)
    groups = () if table is None else table.synonyms
    # An alias stands for the first group that has it.
    own = (group for group in groups if group[0] == sub)
    return next(own, None) or next((group for group in groups if sub in group), (sub,))
