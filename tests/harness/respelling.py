"""Other spellings of a command line that mean the same, or more.

`variants` writes values glued and apart, puts flags into clusters, cuts long options short, moves options, repeats and
adds something; `with_dashes` puts `--` everywhere. The gate is not asked, and its reader is not used: what cannot be
taken apart by this simple one is left as it is.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from byleave.gate.commands.tables import CommandTable, Style

Line = tuple[str, ...]
_SHUFFLES = 6
LAST_IS_TARGET = frozenset({"cp", "mv"})
"""One operand more is another place to write to."""


@dataclass(frozen=True)
class Part:
    """One option with its value, one operand, or something that is left as it is."""

    words: Line
    name: str | None = None
    value: str | None = None

    @property
    def is_option(self) -> bool:
        return self.name is not None


def parts(table: CommandTable, args: Sequence[str]) -> list[Part]:
    """The line in its parts, as far as options are spelled in full and alone."""
    found: list[Part] = []
    at = 0
    while at < len(args):
        word = args[at]
        at += 1
        if word == "--" or (table.stops_at_operand and not word.startswith("-")):
            found += [Part((rest,)) for rest in args[at - 1 :]]
            break
        name, equals, glued = word.partition("=")
        option = table.options.get(word)
        if option is not None and option.until:
            end = next((i for i in range(at, len(args)) if args[i] in (";", "+")), len(args) - 1) + 1
            found.append(Part((word, *args[at:end])))
            at = end
        elif option is not None and (option.kind is None or option.glued_only):
            found.append(Part((word,), name=word))
        elif option is not None and at < len(args):
            found.append(Part((word, args[at]), name=word, value=args[at]))
            at += 1
        elif equals and name.startswith("--") and name in table.options:
            found.append(Part((word,), name=name, value=glued))
        else:
            found.append(Part((word,)))
    return found


def variants(table: CommandTable, args: Sequence[str], seed: int) -> Iterator[tuple[str, Line]]:
    """(what was done, the arguments written so)."""
    pieces = parts(table, args)
    for at, piece in enumerate(pieces):
        if not piece.is_option:
            continue
        for what, words in _respelled(table, piece):
            yield what, _joined(pieces[:at], words, pieces[at + 1 :])
    if pieces and not table.stops_at_operand and "--" not in args:
        yield from _moved(table, pieces, seed)
    if any(not piece.is_option for piece in pieces):  # with none, the first changes what the command does
        yield "repeated", (*args, *args) if table.style is not Style.TAR else (*args, *args[1:])
        if table.name not in LAST_IS_TARGET:
            yield "one operand more", (*args, "extra.txt")


def with_dashes(table: CommandTable, args: Sequence[str]) -> Iterator[tuple[bool, Line]]:
    """`--` at every place; True where it makes no option an operand or a value of one."""
    pieces = parts(table, args)
    ends = [sum(len(piece.words) for piece in pieces[:count]) for count in range(len(pieces) + 1)]
    odd = [piece for piece in pieces if not piece.is_option and piece.words[0].startswith("-")]
    for at in range(len(args) + 1):
        plain = at in ends and not odd and not any(word.startswith("-") for word in args[at:])
        yield plain and not (table.style is Style.TAR and not pieces[0].is_option), (*args[:at], "--", *args[at:])


def _joined(before: list[Part], words: Line, after: list[Part]) -> Line:
    return (*(w for part in before for w in part.words), *words, *(w for part in after for w in part.words))


def _respelled(table: CommandTable, piece: Part) -> Iterator[tuple[str, Line]]:
    name, value = piece.name or "", piece.value
    option = table.options[name]
    yield "option repeated", (*piece.words, *piece.words)
    if table.style in (Style.FIND, Style.ECHO):
        return
    suffix = "" if value is None else f"={value}"
    if name.startswith("--"):
        if value is not None:
            yield "glued", (f"{name}={value}",)
            if not option.glued_only:
                yield "apart", (name, value)
        for end in range(3, len(name)):
            if name[:end] not in table.options:
                yield "abbreviated", (name[:end] + suffix,)
    elif len(name) == 2 and table.style in (Style.GNU, Style.TAR):
        if value is not None:
            yield "glued", (name + value,)
        for flag in _calm_flags(table):
            yield "in a cluster", (f"-{flag}{name[1]}", *piece.words[1:])
            if value is not None:
                yield "glued in a cluster", (f"-{flag}{name[1]}{value}",)


def _calm_flags(table: CommandTable) -> list[str]:
    """A few letters that change nothing of importance."""
    letters = [n[1] for n, option in table.options.items() if len(n) == 2 and option.kind is None and n[1].isalpha()]
    two = {name[1:] for name in table.options if len(name) == 3}  # options of two letters would be read instead
    calm = [letter for letter in letters if table.options[f"-{letter}"].level == "LOW"]
    return [] if two else calm[:3]


def _moved(table: CommandTable, pieces: list[Part], seed: int) -> Iterator[tuple[str, Line]]:
    """Options to other places; operands keep their order, which says what they are."""
    if any(not piece.is_option and piece.words[0].startswith("-") for piece in pieces):
        return  # a cluster may take the next word
    if table.style is Style.TAR and not pieces[0].is_option:
        return  # so does a cluster without a dash
    rng = random.Random(seed)
    operands = [piece for piece in pieces if not piece.is_option]
    options = [piece for piece in pieces if piece.is_option]
    for _ in range(_SHUFFLES):
        mixed = rng.sample(options, len(options))
        if table.style is Style.FIND:  # start points come first
            if pieces[: len(operands)] != operands:
                return
            yield "in another order", _joined(operands, (), mixed)
            continue
        for operand in reversed(operands):
            mixed.insert(rng.randint(0, mixed.index(last) if (last := _first_operand(mixed)) else len(mixed)), operand)
        yield "in another order", _joined([], (), mixed)


def _first_operand(pieces: list[Part]) -> Part | None:
    return next((piece for piece in pieces if not piece.is_option), None)
