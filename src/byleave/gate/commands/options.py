"""Argument parser for all commands: an argv and its table in, a `Reading` out.

It knows clusters (`-nrf`), glued and separate values, `--opt=value`, `--`, GNU abbreviations, old styles
(`tar xPf`, `head -20`) and find's expressions. It decides nothing. Arguments that it cannot parse raise `Unreadable`,
which the gate refuses; unknown options are passed on as unknown, which is never LOW.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byleave.protocol.verdicts import VerdictLevel

from .tables import CommandTable, Kind, Option, Style

_DIGITS = re.compile(r"-([0-9]+)([A-Za-z]*)")
_PLUS_FOLLOWS = re.compile(r"[+-][0-9]*[bcl]?f")
_OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9-]*(?:=.*)?", re.DOTALL)
_FIND_PUNCTUATION = frozenset({"(", ")", "!", ","})


MOST_OPTIONS = 600
"""Most options of one line; each letter of a cluster counts."""
MOST_LETTERS = 4000
"""Most letters that follow unknown letters, in all clusters of a line together."""


class Unreadable(Exception):
    """The arguments do not fit the command's own grammar."""


class Said(NamedTuple):
    """One option as it was given."""

    option: Option
    spelled: str
    value: str | None = None
    abbreviated: bool = False
    """True if it is only perhaps meant."""
    at: int = 0
    """Index of its argument."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Arguments of one command or subcommand, sorted by its table."""

    table: CommandTable
    said: tuple[Said, ...] = ()
    unknown: tuple[tuple[str, str | None], ...] = ()
    """Options the table does not have, with the value glued to them."""
    operands: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    """Arguments of the program that the command starts."""
    sub: "Reading | None" = None
    """The subcommand's own reading."""


def read(table: CommandTable, args: Sequence[str]) -> Reading:
    """Read the arguments of one command or subcommand."""
    reader = _Reader(table, args)
    if table.style is Style.ECHO:
        reader.read_echo()
    elif table.style is Style.FIND:
        reader.read_find()
    else:
        reader.read()
    return reader.reading()


class _Reader:
    """Reads one argv from left to right."""

    def __init__(self, table: CommandTable, args: Sequence[str]) -> None:
        self.table = table
        self.options = table.options
        self.args = args
        self.at = 0
        self.here = 0
        """Index of the argument being read."""
        self.said: list[Said] = []
        self.unknown: list[tuple[str, str | None]] = []
        self.operands: list[str] = []
        self.rest: list[str] = []
        self.doubtful_letters = 0

    def reading(self) -> Reading:
        return Reading(self.table, tuple(self.said), tuple(self.unknown), tuple(self.operands), tuple(self.rest))

    def _say(self, option: Option, spelled: str, value: str | None = None, *, abbreviated: bool = False) -> None:
        self.said.append(Said(option, spelled, value, abbreviated, self.here))

    def read(self) -> None:
        args, table = self.args, self.table
        if table.style is Style.TAR and args and not args[0].startswith("-") and args[0]:
            self.at = 1
            self._old_cluster(args[0])
        while self.at < len(args):
            self.here, arg = self.at, args[self.at]
            self.at += 1
            if arg == "--":
                if not table.dashes_end:
                    continue
                self._end_of_options()
                break
            self._argument(arg)

    def _argument(self, arg: str) -> None:
        table = self.table
        if table.plus_follows and _PLUS_FOLLOWS.fullmatch(arg):
            self._say(self.options["-f"], arg)
        if len(arg) < 2 or arg[0] != "-":
            self.operands.append(arg)
            if table.stops_at_operand:
                self._stop()
        elif table.style is Style.SINGLE:
            self._single(arg)
        elif arg.startswith("--"):
            self._long(arg)
        elif table.style is Style.PREFIX:
            self._prefix(arg)
        elif table.style is Style.APART:
            self._old_cluster(arg[1:])
        else:
            self._short(arg)

    def _perhaps_options(self, args: Sequence[str]) -> None:
        """Record possible options after `--`, which an unknown option may have taken as its value."""
        try:
            also = _Reader(self.table, args)
            also.read()
        except Unreadable:
            return
        self.said += [Said(said.option, said.option.name, said.value, abbreviated=True) for said in also.said]

    def _end_of_options(self) -> None:
        remaining = self.args[self.at :]
        if self.unknown:
            self._perhaps_options(remaining)
        if self.table.stops_at_operand and remaining and not self.operands:
            self.operands.append(remaining[0])
            remaining = remaining[1:]
        (self.rest if self.table.stops_at_operand else self.operands).extend(remaining)
        self.at = len(self.args)

    def _stop(self) -> None:
        self.rest.extend(self.args[self.at :])
        self.at = len(self.args)

    def _next(self, spelled: str) -> str:
        if self.at >= len(self.args):
            raise Unreadable(f"{spelled} needs a value")
        value = self.args[self.at]
        self.at += 1
        return value

    def _take(self, option: Option, spelled: str, glued: str | None, *, abbreviated: bool = False) -> None:
        """Record an option with its value: glued, the next argument, or none."""
        if option.kind is None:
            if glued is not None and self.table.style is not Style.CONFIG:  # npm takes --flag=false
                raise Unreadable(f"{spelled} takes no value")
            value = None
        elif glued is not None or option.glued_only:
            value = glued
        else:
            value = self._next(spelled)
            certain = self.table.level is VerdictLevel.LOW or option.kind is Kind.MESSAGE
            if not certain and _OPTION.fullmatch(value):
                # A version without this option takes its value for the next option: it counts as both.
                self.at -= 1
        self._say(option, spelled, value, abbreviated=abbreviated)
        if option.stops:
            self._stop()

    def _long(self, arg: str) -> None:
        name, equals, value = arg.partition("=")
        glued = value if equals else None
        option = self.options.get(name) or ("_" in name and self.options.get(name.replace("_", "-"))) or None
        if option is None and self.table.style is Style.CONFIG:
            self._setting(name, glued)
            return
        if option is not None:
            self._take(option, name, glued)
            return
        meant = [self.options[full] for full in self.table.long_names if full.startswith(name)]
        if not meant:
            self.unknown.append((name, glued))
            return
        self._abbreviated(name, glued, meant)

    def _abbreviated(self, name: str, glued: str | None, meant: list[Option]) -> None:
        """Record every option the abbreviation could mean: the strictest of them decides."""
        wants_value = any(option.kind is not None and not option.glued_only for option in meant)
        value = glued
        if value is None and wants_value and self.at < len(self.args):
            # It may take the next argument, which is judged as its value and, unless all take one, also by itself.
            value = self.args[self.at]
            if all(option.kind is not None for option in meant):
                self.at += 1
        self.said.extend(
            Said(option, name, value if option.kind else None, abbreviated=True, at=self.here) for option in meant
        )

    def _setting(self, name: str, glued: str | None) -> None:
        """npm: `--no-x`, `--key=value`, or `--key value` for an unknown key."""
        folded = name.replace("_", "-").lower()
        if folded.endswith(":registry"):
            folded = "--registry"  # of one scope
        option = self.options.get(folded) or self.options.get(folded.replace("--no-", "--", 1))
        if option is not None:
            self._take(option, name, glued if option.kind else None)
            return
        meant = [self.options[full] for full in self.table.long_names if full.startswith((folded, name))]
        if meant:
            self._abbreviated(name, glued, meant)
        else:
            self.unknown.append((name, glued))

    def _short(self, arg: str) -> None:
        """A cluster: flags, then perhaps one option whose value is the rest or the next argument."""
        whole = self.options.get(arg)
        if whole is not None:
            self._take(whole, arg, None)
            return
        if self.table.digits is not None and arg[1].isdigit() and self._digits(arg):
            return
        if self.table.style is Style.CONFIG and not all(f"-{letter}" in self.options for letter in arg[1:]):
            self._long(f"-{arg}")
            return
        self._cluster(arg)

    def _cluster(self, arg: str) -> None:
        index = 1
        while index < len(arg):
            if len(self.said) > MOST_OPTIONS:
                raise Unreadable("there are too many options")
            # zip has options of two letters, which go before those of one
            letter = f"-{arg[index : index + 2]}"
            option = self.options.get(letter)
            if option is None:
                letter = letter[:2]
                option = self.options.get(letter)
            after = index + len(letter) - 1
            if option is None:
                self.unknown.append((letter, arg[after:] or None))
                self._perhaps(arg[after:])
                return
            if option.kind is not None:
                glued = arg[after:].removeprefix("=") if self.table.equals else arg[after:]
                self._take(option, letter, glued or None)
                return
            self._say(option, letter)
            index = after

    def _perhaps(self, letters: str) -> None:
        """Record what letters after an unknown one would mean: they are its value or further options."""
        self.doubtful_letters += len(letters)
        if self.doubtful_letters > MOST_LETTERS:
            raise Unreadable("there are too many options that are not known")
        for index, letter in enumerate(letters, 1):
            option = self.options.get(f"-{letters[index - 1 : index + 1]}") or self.options.get(f"-{letter}")
            if option is None:
                continue
            value = None
            if option.kind is not None:
                following = self.args[self.at] if self.at < len(self.args) and not option.glued_only else None
                value = letters[index + len(option.name) - 2 :].removeprefix("=") or following
            self._say(option, option.name, value, abbreviated=True)
            if option.kind is not None:
                return

    def _digits(self, arg: str) -> bool:
        """`-20`, `-5q`, `-1f`: a number, then letters that are flags of their own."""
        found = _DIGITS.fullmatch(arg)
        if found is None:
            return False
        for letter in found.group(2):
            if letter in (self.table.digits or ""):
                continue
            option = self.options.get(f"-{letter}")
            if option is None:
                self.unknown.append((f"-{letter}", None))
            else:
                self._say(option, f"-{letter}")
        return True

    def _old_cluster(self, cluster: str) -> None:
        """`tar xPf`: letters first, their values follow in order."""
        if len(self.said) + len(cluster) > MOST_OPTIONS:
            raise Unreadable("there are too many options")
        for index, letter in enumerate(cluster, 1):
            option = self.options.get(f"-{letter}")
            glued = cluster[index:]
            if (
                option is not None
                and option.kind is Kind.NUMBER
                and glued.isdigit()
                and self.table.style is Style.APART
            ):
                self._take(option, f"-{letter}", glued)  # tree -L2
                return
            if option is None:
                self.unknown.append((f"-{letter}", None))
            elif option.kind is None or option.glued_only:
                self._say(option, f"-{letter}")
            else:
                self._take(option, f"-{letter}", None)

    def _single(self, arg: str) -> None:
        """Go: one dash or two, the value behind `=` or, except for flags, in the next argument."""
        name, equals, value = arg.partition("=")
        name = name[1:] if name.startswith("--") else name
        option = self.options.get(name)
        if option is None:
            self.unknown.append((name, value if equals else None))
        elif option.kind is None:  # a flag takes =true and =false
            self._say(option, name)
            if option.stops:
                self._stop()
        else:
            self._take(option, name, value if equals else None)

    def _prefix(self, arg: str) -> None:
        """gcc: the whole name, `name=value`, or the longest known name with the value glued on."""
        option = self.options.get(arg)
        if option is not None:
            self._take(option, arg, None)
            return
        name, equals, value = arg.partition("=")
        option = self.options.get(name) if equals else None
        if option is not None and option.kind is not None:
            self._take(option, name, value)
            return
        longest = max(map(len, self.options), default=0)
        for end in range(min(len(arg) - 1, longest), 1, -1):
            option = self.options.get(arg[:end])
            if option is not None and option.kind is not None:
                self._take(option, arg[:end], arg[end:])
                return
        self.unknown.append((name, value if equals else None))

    def read_echo(self) -> None:
        for index, arg in enumerate(self.args):
            option = self.options.get(arg)
            if option is None:
                self.operands.extend(self.args[index:])
                break
            self._say(option, arg)

    def read_find(self) -> None:
        """Start points, then an expression in which every primary has its own number of values."""
        expression = False
        while self.at < len(self.args):
            arg = self.args[self.at]
            self.at += 1
            if arg in _FIND_PUNCTUATION:
                expression = True
            elif arg == "--" and not expression:
                continue
            elif not arg.startswith("-") or arg == "-":
                # GNU find takes a late operand as an error; older ones as a start point.
                self.operands.append(arg)
                if expression:
                    self.unknown.append((arg, None))
            else:
                self._primary(arg)
                expression = expression or not (arg in ("-H", "-L", "-P", "-D") or arg.startswith("-O"))

    def _primary(self, arg: str) -> None:
        option = self.options.get(arg)
        if option is None and arg.startswith("-O"):
            self._say(self.options["-O"], "-O", arg[2:])
            return
        if option is None and arg.startswith("-newer") and len(arg) == 8:
            # -newerXY: a time with Y = t, otherwise a file to compare with
            option = Option(arg, Kind.DATE if arg.endswith("t") else Kind.PATH_NAME)
        if option is None:
            self.unknown.append((arg, None))
            return
        if option.until:
            args, at = self.args, self.at
            end = next((index for index in range(at, len(args)) if args[index] in (";", "+")), len(args) - 1)
            self._say(option, arg, " ".join(args[at:end]))
            self.at = end + 1
            return
        self._say(option, arg, self._next(arg) if option.kind is not None else None)
        if arg == "-fprintf":
            self.at += 1  # the format; only the file matters
