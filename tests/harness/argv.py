"""Command lines made from the gate's tables: options, values of each kind, operands, and what a clever agent would try.

`lines` is a stream without end, the same for the same seed. Half of it is made new from a table, half is a known line
with something changed. `every_option` is the part that leaves nothing to chance. Nothing here runs anything.
"""

import itertools
import random
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from byleave.gate.commands.tables import CommandTable, Kind, Style

Line = tuple[str, ...]

_VALUES: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("values.toml").read_text("utf-8"))
INSIDE, TRAPS, OUTSIDE, ODD = (_VALUES[name] for name in ("inside", "traps", "outside", "odd"))
TEXTS = [*_VALUES["texts"], *_VALUES["scripts"]]
_PATHS = (INSIDE, INSIDE, TRAPS)
POOLS: Mapping[Kind, Sequence[Sequence[str]]] = {
    Kind.TEXT: (TEXTS,),
    Kind.NUMBER: (_VALUES["numbers"],),
    Kind.WORD: (_VALUES["words"],),
    Kind.PATH_READ: _PATHS,
    Kind.PATH_NAME: _PATHS,
    Kind.PATH_WRITE: _PATHS,
    Kind.FILE_LIST: (["names0", "names", "-"],),
    Kind.DATE: (_VALUES["dates"],),
    Kind.DATE_FORMAT: (_VALUES["formats"],),
    Kind.GLOB: (_VALUES["globs"],),
    Kind.SETTING: (_VALUES["settings"],),
    Kind.SED_SCRIPT: (_VALUES["scripts"],),
}
_ALL = (TEXTS, _VALUES["numbers"], _VALUES["words"], INSIDE, TRAPS, _VALUES["dates"])
"""For kinds that the tables may get after this was written."""
_SED_LETTERS = "ssdpwerWRFyaicbqlnN=;;{}//////,,\\\\[]^$ab12!gI \n#"
_ODDITIES = (ODD, OUTSIDE, TRAPS)


def pools(kind: Kind) -> Sequence[Sequence[str]]:
    return POOLS.get(kind, _ALL)


def lines(tables: Mapping[str, CommandTable], known: Sequence[Line], seed: int) -> Iterator[Line]:
    """Lines without end, with `{WS}` and `{OUT}` where a path goes; `known` are lines to start from."""
    rng = random.Random(seed)
    commands = sorted(tables)
    bases = {name: [line for line in known if line[0] == name] + examples(tables[name]) for name in commands}
    while True:
        command = rng.choice(commands)
        if bases[command] and rng.random() < 0.5:
            yield changed(rng, tables[command], rng.choice(bases[command]), times=rng.choice((1, 1, 2, 3)))
        else:
            yield fresh(rng, tables[command])


def examples(table: CommandTable) -> list[Line]:
    """The lines that a table brings with it."""
    found = [line for group in (table.match, table.not_match) for some in group.values() for line in some]
    inner = [line for sub in table.subs.values() for line in examples(sub)]
    return [tuple(shlex.split(line)) for line in found] + inner


def every_option(table: CommandTable) -> Iterator[Line]:
    """Each harmless option with each value of its kind, alone and with operands; then each two flags together."""
    operands = [_usual(table, path) for path in ("a.txt", "src", "out.txt", "pipe", "outdir")]
    calm = [option for option in table.options.values() if option.level == "LOW"]
    for option in calm:
        values: Sequence[str | None] = [None]
        if option.kind is not None:
            values = [*values, *dict.fromkeys(itertools.chain(*pools(option.kind)))]
        for value in values:
            for operand in operands[: 5 if value is None else 2]:
                for spelled in spellings(table, option.name, value):
                    yield (table.name, *_placed(table, spelled, operand))
    flags = [option.name for option in calm if option.kind is None]
    for one, two in itertools.combinations(flags, 2):
        yield (table.name, *_placed(table, (one, two), operands[1]))


def _usual(table: CommandTable, path: str) -> Line:
    """Operands that make a command do its work."""
    kinds = table.operands or (Kind.PATH_READ,)
    filled = [path if kind in (Kind.PATH_READ, Kind.PATH_NAME) else pools(kind)[0][0] for kind in kinds]
    return tuple(filled) if table.operands else ()


def _placed(table: CommandTable, options: Line, operands: Line) -> Line:
    return (*operands, *options) if table.style is Style.FIND else (*options, *operands)


def spellings(table: CommandTable, name: str, value: str | None) -> Iterator[Line]:
    """The ways to write one option."""
    if value is None:
        yield (name,)
    elif name.startswith("--"):
        yield (f"{name}={value}",)
        if not table.options[name].glued_only:
            yield (name, value)
    else:
        if not table.options[name].glued_only:
            yield (name, value)
        if table.style is not Style.FIND:
            yield (name + value,)


def fresh(rng: random.Random, table: CommandTable) -> Line:
    """A line from the table alone."""
    words: list[str] = [table.name]
    for _ in range(4):
        inner = rng.choice(sorted(table.subs)) if table.subs else None
        if inner is None:
            break
        words.append(inner)
        table = table.subs[inner]
    parts: list[Line] = (
        [an_option(rng, table) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))] if table.options else []
    )
    parts += [(value,) for value in some_operands(rng, table)]
    if rng.random() < 0.15:
        parts.append((a_value(rng, rng.choice(list(Kind))),))
    if table.style is not Style.FIND and rng.random() < 0.3:
        rng.shuffle(parts)
    elif table.style is Style.FIND:
        parts.sort(key=lambda part: part[0].startswith(("-", "(", "!")) and part[0] not in ("-P", "-H", "-L"))
    line = [*words, *itertools.chain(*parts)]
    if rng.random() < 0.15:
        line.insert(rng.randint(1, len(line)), "--")
    return tuple(line)


def some_operands(rng: random.Random, table: CommandTable) -> list[str]:
    kinds = list(table.operands)
    if table.repeats and kinds:
        kinds += [kinds[-1]] * rng.choice((0, 0, 1, 2))
    if rng.random() < 0.15:
        kinds = kinds[: rng.randint(0, len(kinds))]
    return [a_value(rng, kind) for kind in kinds]


def a_value(rng: random.Random, kind: Kind | None) -> str:
    """A value that fits its kind; now and then one that does not."""
    if kind is Kind.SED_SCRIPT and rng.random() < 0.7:
        pieces = rng.choice((_VALUES["script_pieces"], _SED_LETTERS))
        return "".join(rng.choice(pieces) for _ in range(rng.randint(1, 6 if pieces is not _SED_LETTERS else 14)))
    chosen = pools(kind) if kind is not None and rng.random() < 0.85 else _ODDITIES
    return rng.choice(rng.choice(chosen))


def an_option(rng: random.Random, table: CommandTable) -> Line:
    """One option in one of its spellings, or a cluster of several."""
    names = list(table.options)
    name = rng.choice(names)
    for _ in range(2):  # what is known to be harmful is seldom worth a try
        if table.options[name].level != "LOW":
            name = rng.choice(names)
    option = table.options[name]
    if option.kind is None:
        if len(name) == 2 and table.style is not Style.FIND and rng.random() < 0.4:
            return (a_cluster(rng, table, name),)
        return (name if rng.random() < 0.95 or not name.startswith("--") else name[: rng.randint(3, len(name))],)
    value = a_value(rng, option.kind)
    ways = list(spellings(table, name, value))
    if len(name) == 2 and rng.random() < 0.3 and table.style is not Style.FIND:
        cluster = a_cluster(rng, table, name)
        ways = [(cluster, value), (cluster + value,)]
    if name.startswith("--") and rng.random() < 0.08:
        ways = [(f"{name[: rng.randint(3, len(name))]}={value}",)]
    return rng.choice(ways) if rng.random() < 0.95 else (name,)


def a_cluster(rng: random.Random, table: CommandTable, last: str) -> str:
    letters = [name[1] for name, option in table.options.items() if len(name) == 2 and option.kind is None]
    return "-" + "".join(rng.choice(letters) for _ in range(rng.randint(0, 3)) if letters) + last[1]


Change = Callable[[random.Random, CommandTable, list[str]], list[str]]


def changed(rng: random.Random, table: CommandTable, line: Line, times: int = 1) -> Line:
    """A known line with something else about it."""
    args = list(line[1:])
    for _ in range(times):
        args = rng.choice(CHANGES)(rng, table, args)
    return (line[0], *args)


def _insert_dashes(rng: random.Random, table: CommandTable, args: list[str]) -> list[str]:
    at = rng.randint(0, len(args))
    return [*args[:at], "--", *args[at:]]


def _insert_odd(rng: random.Random, table: CommandTable, args: list[str]) -> list[str]:
    at = rng.randint(0, len(args))
    return [*args[:at], rng.choice(rng.choice((ODD, INSIDE, TRAPS, OUTSIDE))), *args[at:]]


def _insert_option(rng: random.Random, table: CommandTable, args: list[str]) -> list[str]:
    at = rng.randint(0, len(args))
    return [*args[:at], *(an_option(rng, table) if table.options else ()), *args[at:]]


def _replace(rng: random.Random, table: CommandTable, args: list[str]) -> list[str]:
    if not args:
        return args
    at = rng.randrange(len(args))
    return [*args[:at], a_value(rng, rng.choice((Kind.PATH_READ, Kind.TEXT, Kind.NUMBER, Kind.WORD))), *args[at + 1 :]]


def _shuffle(rng: random.Random, table: CommandTable, args: list[str]) -> list[str]:
    return rng.sample(args, len(args))


def _repeat(rng: random.Random, table: CommandTable, args: list[str]) -> list[str]:
    return [*args, rng.choice(args)] if args else args


def _drop(rng: random.Random, table: CommandTable, args: list[str]) -> list[str]:
    at = rng.randrange(len(args)) if args else 0
    return args[:at] + args[at + 1 :]


def _glue(rng: random.Random, table: CommandTable, args: list[str]) -> list[str]:
    if len(args) < 2:
        return args
    at = rng.randrange(len(args) - 1)
    between = "=" if args[at].startswith("--") else ""
    return [*args[:at], args[at] + between + args[at + 1], *args[at + 2 :]]


def _split(rng: random.Random, table: CommandTable, args: list[str]) -> list[str]:
    at = rng.randrange(len(args)) if args else 0
    if not args or len(args[at]) < 3:
        return args
    word = args[at]
    cut = word.index("=") if word.startswith("--") and "=" in word else rng.randint(1, len(word) - 1)
    return [*args[:at], word[:cut], word[cut:].removeprefix("="), *args[at + 1 :]]


CHANGES: tuple[Change, ...] = (
    *(_insert_dashes, _insert_odd, _insert_option, _insert_option, _replace, _replace, _shuffle, _repeat, _drop),
    *(_glue, _split),
)
