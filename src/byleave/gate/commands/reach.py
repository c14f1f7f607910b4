"""Which directories a command may look through, beyond the files its line names.

`grep -r x .` opens everything below, `cat a.txt` only what it is told. A rule that protects paths must know the
difference, so that it neither misses the one nor nags about the other. Programs that run code are left to the
approval that shows the code: what they open cannot be told from their line. A command that is not listed here may
look through everything.
"""

from collections.abc import Sequence

from byleave.protocol.wire import JsonObject

_EVERYTHING = (".",)
_NAMES_ONLY = frozenset(
    ("cat", "head", "tail", "wc", "date", "pwd", "whoami", "echo", "sed", "sort", "cut", "uniq", "tr", "stat", "file")
) | frozenset(("touch", "mkdir"))
"""Open what the line names, and nothing below a directory."""
_WALK_WITH = {
    "grep": ("-r", "-R", "-d", "--r", "--d"),
    "ls": ("-R", "--r"),
    "diff": ("-r", "--r"),
    "cp": ("-r", "-R", "-a", "--r", "--a"),
    "rm": ("-r", "-R", "--r"),
}
"""Look through directories only with one of these options, or one that begins so."""
_GIVE_PATTERN = ("-e", "-f", "--regexp", "--file")
_WALK = frozenset({"find", "du", "tree", "mv"})
_RUN_CODE = frozenset({"python", "node", "npm", "gcc", "make", "pytest", "cargo", "go", "pip"})
_ABOUT_HISTORY = frozenset(
    ("status", "branch", "tag", "remote", "fetch", "rev-parse", "rev-list", "config", "version", "help", "init")
) | frozenset(("describe", "shortlog", "reflog", "push", "ls-remote", "merge-base", "symbolic-ref", "for-each-ref"))
"""Subcommands of git that show or change no file's content."""


def reach_of(
    argv: Sequence[str],
    options: Sequence[str],
    operands: Sequence[str],
    mentions: tuple[str, ...],
    understood: JsonObject | None,
) -> tuple[str, ...]:
    """The directories; none when only named files are opened."""
    command = argv[0]
    if understood is None:
        return mentions if command in _RUN_CODE else _EVERYTHING
    if command in _RUN_CODE:
        return mentions
    if any(option.startswith("--f") for option in options) and command in ("wc", "sort", "du"):
        return _EVERYTHING  # --files0-from: the names are in a file
    if command in _NAMES_ONLY:
        return ()
    if command == "git":
        sub = understood.get("subcommand")
        quiet = sub is not None and sub["command"].partition(" ")[2] in _ABOUT_HISTORY
        return () if quiet else _EVERYTHING
    if command in _WALK_WITH or command in _WALK:
        if command in _WALK_WITH and not any(option.startswith(_WALK_WITH[command]) for option in options):
            return ()
        return _operands(command, understood, operands)
    return _EVERYTHING


def _operands(command: str, understood: JsonObject, operands: Sequence[str]) -> tuple[str, ...]:
    """What is walked: the operands, without grep's pattern; the current directory when there are none."""
    if command == "grep" and not any(spelled in _GIVE_PATTERN for spelled, _ in understood["options"]):
        operands = operands[1:]
    return tuple(operands) or _EVERYTHING
