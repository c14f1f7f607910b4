"""Which command lines are so plain that few mounts do: the kernel's files and toolchains are then left out.

Mounts are what a start waits for, and a program that works on a few files of the workspace has no use for most of them.
It is told from what is known alone: the program, each letter and word of its options, and that no operand leads out or
through a link. Whatever else is said gets every mount, which costs time and nothing else: with fewer, a file could seem
to be missing that is there. It never decides what a command may change.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

_SYSTEM_PROGRAMS = ("/usr/bin", "/bin")
_MOST_OPERANDS = 32
"""To look at more names would take longer than the mounts."""
_DIGITS = frozenset("0123456789")


@dataclass(frozen=True, slots=True)
class _Known:
    """What of a program's options follows no link, opens nothing, starts nothing and asks the kernel for nothing."""

    letters: frozenset[str] = frozenset()
    """They may stand together, and with digits. Where one takes a value, that is no path."""
    words: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    """Words with a value that is no path."""
    is_text: bool = False
    """Whether it opens nothing, whatever it is given."""

    def option(self, argument: str) -> bool:
        if argument in self.words or argument.startswith(self.prefixes):
            return True
        return len(argument) > 1 and (self.letters | _DIGITS).issuperset(argument[1:])


def _letters(text: str, *words: str, prefixes: tuple[str, ...] = ()) -> _Known:
    return _Known(frozenset(text), frozenset(words), prefixes)


_TEXT = _Known(is_text=True)
_PROGRAMS = {
    "cat": _letters("AbeEnstTuv"),
    "date": _letters("duIR", "--utc"),
    "echo": _TEXT,
    "find": _Known(
        words=frozenset(
            {
                *("-name", "-iname", "-path", "-ipath", "-regex", "-iregex", "-type", "-size", "-empty", "-perm"),
                *("-mtime", "-mmin", "-maxdepth", "-mindepth", "-prune", "-not", "-and", "-or", "-a", "-o"),
                *("-print", "-print0"),
            }
        )
    ),
    "grep": _letters(
        "aABbcCeEFGhHiIlLmnoPqrsTvwxyzZ",
        prefixes=("--include=", "--exclude=", "--exclude-dir="),
    ),
    "head": _letters("cnqvz"),
    # Not F and p: with them it looks where links lead.
    "ls": _letters("aAbBcCdfgGhiklmnNoqQrRsStuUvxX"),
    "ln": _letters("fnsTv"),
    "mkdir": _letters("mpv", "--parents", "--verbose"),
    "pwd": _letters("LP"),
    "rm": _letters("dfirRv", "--force", "--recursive", "--verbose"),
    "rmdir": _letters("pv"),
    "tail": _letters("cnqvz"),
    "touch": _letters("acdmt"),
    "true": _TEXT,
    "wc": _letters("clLmw"),
    "whoami": _TEXT,
}
# Not cp and mv: without /proc they cannot copy a directory that is read-only.


def can_use_minimal_mounts(argv: list[str], root: Path) -> bool:
    """Whether a command does its work with the system's programs and the workspace alone."""
    program, *arguments = argv
    directory, _, name = program.rpartition("/")
    known = _PROGRAMS.get(name)
    # A program of the workspace may bear any name; a link may lead among what only the others are given.
    if known is None or directory not in _SYSTEM_PROGRAMS or os.path.islink(program):
        return False
    if known.is_text:
        return True
    operands = _operands(known, arguments)
    if operands is None or len(operands) > _MOST_OPERANDS:
        return False
    return all(_leads_nowhere_else(operand, str(root)) for operand in operands)


def _operands(known: _Known, arguments: list[str]) -> list[str] | None:
    """What is no option; None where something is said that is not known."""
    operands: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--" and known.letters:  # behind it, find still reads its own words
            return operands + arguments[at + 1 :]
        if not argument.startswith("-"):
            operands.append(argument)
        elif not known.option(argument):
            return None
    return operands


def _leads_nowhere_else(operand: str, root: str) -> bool:
    """Whether it stays in the workspace and no link is on its way; what is no path at all may be taken for one."""
    relative = operand.removeprefix(f"{root}/")
    if relative == root:
        return True
    parts = relative.split("/")
    if parts[0] == "" or ".." in parts:
        return relative == ""
    way = root
    for part in parts:
        way = f"{way}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(way).st_mode):
                return False
        except FileNotFoundError:
            return True
        except (OSError, ValueError):
            return False
    return True
