"""The command tables: what each allowed command's options and operands mean, read once from `tables/*.toml`.

A table says of every option how many values it takes, what kind of value, and what it does. Nothing here judges;
`commands` does, with these tables. An option that is not in its table is never guessed at.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

from assent.protocol.verdicts import VerdictLevel


class Kind(StrEnum):
    """What a value is."""

    TEXT = "text"
    """Words for the command itself: a pattern, a message. Never a path."""
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
    GLOB = "glob"
    """A pattern of file names whose content is read."""
    SOURCE = "source"
    """A file to compile; `@file` would hold further arguments."""


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
    digits: str | None = None
    """Letters that may follow `-NUM`; None: there is no `-NUM`."""
    plus_follows: bool = False
    """Whether `+NUMf` follows a file without end, as old `tail` has it."""
    dashes_end: bool = True
    """Whether `--` ends the options."""
    stops_at_operand: bool = False
    because: str | None = None
    instead: str | None = None
    network: bool = False
    always_asks: bool = False
    after: Kind = Kind.LOOSE
    subs: Mapping[str, "CommandTable"] = field(default_factory=dict[str, "CommandTable"])
    modules: Mapping[str, Option] = field(default_factory=dict[str, Option])
    settings: frozenset[str] = frozenset()
    match: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    not_match: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


Shared = Mapping[str, Mapping[str, Any]]


@cache
def load_tables() -> Mapping[str, CommandTable]:
    """Read every packaged table, once."""
    tables: dict[str, CommandTable] = {}
    for entry in sorted(
        resources.files(__name__.rpartition(".")[0]).joinpath("tables").iterdir(), key=lambda item: item.name
    ):
        if entry.name.endswith(".toml"):
            data = tomllib.loads(entry.read_text("utf-8"))
            shared: Shared = data.pop("shared", {})
            tables.update({name: build_table(name, raw, shared) for name, raw in data.items()})
    return tables


def build_table(name: str, raw: Mapping[str, Any], shared: Shared, above: CommandTable | None = None) -> CommandTable:
    """Turn one TOML table into a command table; a subcommand takes level and style from the command above it."""
    options: dict[str, Option] = {}
    for source in (*(shared[key] for key in raw.get("uses", ())), raw):
        options.update(_options(source))
    level = VerdictLevel(raw["level"]) if "level" in raw else above.level if above else VerdictLevel.HIGH
    operands, repeats = _operands(raw.get("operands", ["loose*"]))
    table = CommandTable(
        name=name,
        does=raw.get("does", above.does if above else ""),
        level=level,
        style=Style(raw.get("style", above.style if above else Style.GNU)),
        options=options,
        long_names=tuple(sorted(spelled for spelled in options if spelled.startswith("--"))),
        operands=operands,
        repeats=repeats,
        least=raw.get("least", 0),
        lacking=raw.get("lacking"),
        lacking_level=VerdictLevel(raw.get("lacking_level", "HIGH")),
        answers=frozenset(raw.get("answers", "").split()),
        most=raw.get("most"),
        beyond=raw.get("beyond"),
        first_given_by=frozenset(raw.get("first_given_by", "").split()),
        digits=raw.get("digits"),
        plus_follows=raw.get("plus_follows", False),
        dashes_end=raw.get("dashes_end", True),
        stops_at_operand=raw.get("stops_at_operand", False),
        because=raw.get("because"),
        instead=raw.get("instead"),
        network=raw.get("network", False),
        always_asks=raw.get("always_asks", False),
        after=Kind(raw.get("after", Kind.LOOSE)),
        settings=frozenset(raw.get("settings", "").split()),
        match={key: tuple(lines) for key, lines in raw.get("match", {}).items()},
        not_match={key: tuple(lines) for key, lines in raw.get("not_match", {}).items()},
        modules={key: option for entry in raw.get("modules", ()) for key, option in _risky(entry)},
    )
    return _with_subs(table, raw, shared)


def _with_subs(table: CommandTable, raw: Mapping[str, Any], shared: Shared) -> CommandTable:
    subs: dict[str, CommandTable] = {}
    for names, entry in raw.get("subs", {}).items():
        first, *others = names.split()
        sub = build_table(f"{table.name} {first}", entry, shared, table)
        subs.update(dict.fromkeys((first, *others), sub))
    for entry in raw.get("plain_subs", ()):
        for name in entry["names"].split():
            subs[name] = build_table(f"{table.name} {name}", entry, shared, table)
    if not subs:
        return table
    return replace(table, subs=subs)


def _options(raw: Mapping[str, Any]) -> dict[str, Option]:
    """Options of a table: plain flags, options with values, and those that need a word of warning."""
    options = {name: Option(name) for name in raw.get("flags", "").split()}
    for kind, names in raw.get("takes", {}).items():
        options.update({name: Option(name, Kind(kind)) for name in names.split()})
    for kind, names in raw.get("may_take", {}).items():
        options.update({name: Option(name, Kind(kind), glued_only=True) for name in names.split()})
    for entry in raw.get("risky", ()):
        options.update(_risky(entry))
    return options


def _risky(entry: Mapping[str, Any]) -> Iterable[tuple[str, Option]]:
    kind = entry.get("takes") or entry.get("may_take")
    for name in entry["options"].split():
        yield (
            name,
            Option(
                name=name,
                kind=Kind(kind) if kind else None,
                glued_only="may_take" in entry,
                level=VerdictLevel(entry.get("level", "LOW")),
                because=entry.get("because"),
                instead=entry.get("instead"),
                network=entry.get("network", False),
                always_asks=entry.get("always_asks", False),
                stops=entry.get("stops", False),
                until=entry.get("until", False),
                offline_with=frozenset(entry.get("offline_with", "").split()),
            ),
        )


def _operands(shape: list[str]) -> tuple[tuple[Kind, ...], bool]:
    repeats = bool(shape) and shape[-1].endswith("*")
    return tuple(Kind(item.rstrip("*")) for item in shape), repeats
