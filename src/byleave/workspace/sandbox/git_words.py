"""How a git command line is read where it decides what of the workspace git may change.

Git starts programs that the settings of a repository name, and a command can make a repository with settings of its
own inside the workspace. So git gets no more than its subcommand needs: one that only reads gets all read-only, and
only those that make a repository may make one. What cannot be read for certain counts as a command that writes.
"""

import os
from collections.abc import Sequence
from pathlib import Path

_VALUE_OPTIONS = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"})
_READS = frozenset(
    {
        *("annotate", "blame", "cat-file", "check-attr", "check-ignore", "cherry", "count-objects", "describe", "diff"),
        *("diff-files", "diff-index", "diff-tree", "for-each-ref", "grep", "log", "ls-files", "ls-tree", "merge-base"),
        *("name-rev", "rev-list", "rev-parse", "shortlog", "show", "show-branch", "show-ref", "status", "var"),
        *("verify-commit", "verify-tag", "version", "whatchanged"),
    }
)
_MAKES_A_REPOSITORY = frozenset({"init", "init-db", "clone"})
_WRITES = "--ou"
"""How `--output` begins, however it is shortened."""


def subcommand_at(args: Sequence[str]) -> int:
    """Where the subcommand stands among the arguments of git; their number when there is none."""
    position = 0
    while position < len(args) and args[position].startswith("-"):
        position += 2 if args[position] in _VALUE_OPTIONS else 1
    return min(position, len(args))


def _subcommand(args: Sequence[str]) -> str:
    position = subcommand_at(args)
    return args[position] if position < len(args) else ""


def git_only_reads(args: Sequence[str]) -> bool:
    """Whether git with these arguments can do its work without writing to the workspace."""
    return _subcommand(args) in _READS and not any(argument.startswith(_WRITES) for argument in args)


def makes_a_repository(args: Sequence[str]) -> bool:
    """Whether it is what this subcommand is for."""
    return _subcommand(args) in _MAKES_A_REPOSITORY


def works_in_another(root: str, args: Sequence[str]) -> bool:
    """Whether the repository it works in is another than the workspace's own, by -C or --git-dir."""
    place, named = root, None
    options = iter(args[: subcommand_at(args)])
    for option in options:
        if option == "-C":
            place = os.path.join(place, next(options, ""))
        elif option == "--git-dir":
            named = next(options, None)
        elif option.startswith("--git-dir="):
            named = option.partition("=")[2]
        elif option in _VALUE_OPTIONS:
            next(options, None)
    if named is not None:
        return os.path.realpath(os.path.join(place, named)) != os.path.join(root, ".git")
    real = Path(os.path.realpath(place))
    ways = (real, *real.parents)
    return Path(root) in ways and any(os.path.lexists(way / ".git") for way in ways[: ways.index(Path(root))])
