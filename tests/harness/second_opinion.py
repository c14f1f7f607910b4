"""A second opinion on a command line: libc's own getopt_long reads it, as the programs themselves do.

The table says what options there are; who takes which word is left to libc: clusters, abbreviations, `--`, words moved
to the front. `objection` says what of the line is not harmless, by rules much simpler than the gate's. Only for
commands in GNU style without subcommands.
"""

import ctypes
import re
import threading
from collections.abc import Sequence

from byleave.gate.commands.tables import CommandTable, Kind, Style

_PATHS = frozenset({Kind.PATH_READ, Kind.PATH_NAME, Kind.PATH_WRITE, Kind.FILE_LIST})
_OLD_NUMBER = re.compile(r"-[0-9]+[A-Za-z]+")
_FOLLOWS = re.compile(r"\+[0-9]*[bcl]?f")
_LONG = 1000
"""What getopt_long answers for the first long option; higher than any letter."""


class _Option(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("has_arg", ctypes.c_int),
        ("flag", ctypes.c_void_p),
        ("val", ctypes.c_int),
    )


_libc = ctypes.CDLL(None)
_lock = threading.Lock()  # getopt keeps its place in the process


def readable(table: CommandTable, args: Sequence[str]) -> bool:
    """Whether libc reads this command's arguments alone; `head -5c` is read by head itself."""
    gnu = table.style is Style.GNU and not table.subs and not table.stops_at_operand
    return gnu and not any(_OLD_NUMBER.fullmatch(arg) for arg in args if table.digits is not None)


def read(table: CommandTable, args: Sequence[str]) -> tuple[list[tuple[str, str | None]], list[str]] | None:
    """(options with their values, operands), or None where libc finds a fault."""
    short, long = _declared(table)
    names = sorted(name for name in table.options if name.startswith("--"))
    words = [word.encode() for word in ("program", *args)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    said: list[tuple[str, str | None]] = []
    with _lock:
        ctypes.c_int.in_dll(_libc, "optind").value = 0
        ctypes.c_int.in_dll(_libc, "opterr").value = 0
        value = ctypes.c_char_p.in_dll(_libc, "optarg")
        while (found := _libc.getopt_long(len(words), argv, short, long, None)) != -1:
            if found == ord("?"):
                return None
            name = names[found - _LONG] if found >= _LONG else f"-{chr(found)}"
            said.append((name, value.value.decode() if value.value is not None else None))
        first = ctypes.c_int.in_dll(_libc, "optind").value
        return said, [(argv[at] or b"").decode() for at in range(first, len(words))]


def _declared(table: CommandTable) -> tuple[bytes, ctypes.Array[_Option]]:
    letters = {name[1]: option for name, option in table.options.items() if len(name) == 2 and name != "-?"}
    short = "".join(letter + _mark(option.kind, option.glued_only) for letter, option in letters.items())
    if table.digits is not None:
        short += "".join(digit for digit in "0123456789" if digit not in letters)
    names = sorted(name for name in table.options if name.startswith("--"))
    entries = [
        _Option(
            name[2:].encode(), len(_mark(table.options[name].kind, table.options[name].glued_only)), None, _LONG + at
        )
        for at, name in enumerate(names)
    ]
    return short.encode(), (_Option * (len(entries) + 1))(*entries, _Option(None, 0, None, 0))


def _mark(kind: Kind | None, glued_only: bool) -> str:
    """As in getopt's string of letters; its length is what getopt_long calls has_arg."""
    return "" if kind is None else "::" if glued_only else ":"


def objection(table: CommandTable, args: Sequence[str], workspace: str) -> str | None:
    """What of a line is not harmless, or None."""
    found = read(table, args)
    if found is None:
        return None  # the program would say so and end
    said, operands = found
    for name, value in said:
        option = table.options.get(name)
        if option is not None and option.level != "LOW":
            return f"{name} is {option.level}"
        if option is not None and option.kind in _PATHS and value is not None and outside(value, workspace):
            return f"{value} of {name} lies outside"
    if table.plus_follows and args and _FOLLOWS.fullmatch(args[0]):  # anywhere else it is a file's name
        return "follows a file without end"
    kinds = _kinds(table, {name for name, _ in said}, len(operands))
    for operand, kind in zip(operands, kinds, strict=True):
        if kind is Kind.PATH_WRITE:
            return f"{operand} would be written"
        if kind in _PATHS and outside(operand, workspace):
            return f"{operand} lies outside"
        if kind is Kind.DATE_FORMAT and not operand.startswith("+"):
            return f"{operand} would set the clock"
    return None


def _kinds(table: CommandTable, said: set[str], count: int) -> list[Kind]:
    kinds = list(table.operands if table.first_given_by.isdisjoint(said) else table.operands[1:])
    last = kinds[-1] if kinds and table.repeats else Kind.LOOSE
    return (kinds + [last] * count)[:count]


def outside(path: str, workspace: str) -> bool:
    """By its spelling; passing above the workspace on the way counts."""
    inside = path[len(workspace) :].lstrip("/") if f"{path}/".startswith(f"{workspace}/") else path
    depth = 0
    for name in inside.split("/"):
        depth += {"..": -1, "": 0, ".": 0}.get(name, 1)
        if depth < 0:
            return True
    return inside.startswith(("/", "~"))
