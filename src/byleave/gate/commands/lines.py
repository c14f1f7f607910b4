"""Command lines as somebody types them, split into words as a POSIX shell would split them: there is no shell.

Pipes, variables, globs, `~` and the like are errors, never passed on as text: a command that got `*.log` as a name
would do something else than intended. Nothing here judges a line.
"""

import re
import shlex
from collections.abc import Sequence

_NO_SHELL = "There is no shell"
_OPERATORS = {
    **dict.fromkeys("|&;<>()\n", "no pipes, no redirection, no second command"),
    "`": "no output of other commands",
    "*": "no globs; give the names, or quote it where it is meant as it is",
    "?": "no globs; give the names, or quote it where it is meant as it is",
    "[": "no globs; give the names, or quote it where it is meant as it is",
}
_AT_THE_BEGINNING = {"~": "no home directory", "#": "no comments", "!": "no negation", "{": "no braces"}
_VARIABLE = r"\$[A-Za-z0-9_({*@#?$!-]"
_EXPANDED = re.compile(rf"{_VARIABLE}|\$['\"]")
_BRACES = re.compile(r"\{[^\s{}]*(,|\.\.)[^\s{}]*\}")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_IN_DOUBLE_QUOTES = rf"(?:[^\"\\`$]|\\[\s\S]|(?!{_VARIABLE})\$)*"
_OPEN_QUOTE = re.compile(f'"{_IN_DOUBLE_QUOTES}')
_PIECE = re.compile(
    rf"(?P<end>\n\s*\Z)|(?P<blank>[ \t]+)|'(?P<single>[^']*)'|\"(?P<double>{_IN_DOUBLE_QUOTES})\""
    r"|\\(?P<escaped>[^\n])|(?P<bare>[\s\S])"
)


class NotPlain(ValueError):
    """The line needs a shell, or a quotation has no end."""


def plain_words(line: str) -> list[str]:
    """Split a command with plain arguments into words. Raise NotPlain."""
    if _ASSIGNMENT.match(line.lstrip()):
        raise _needs_shell("no variables")
    words: list[str] = []
    word: str | None = None
    for piece in _PIECE.finditer(line):
        kind, text = piece.lastgroup, piece[piece.lastgroup or 0]
        if kind == "end":
            break
        if kind == "blank":
            words += [] if word is None else [word]
            word = None
            continue
        if kind == "bare":
            _check_bare(line, piece.start(), text, first=word is None)
        word = (word or "") + (re.sub(r"\\([$`\"\\])", r"\1", text) if kind == "double" else text)
    words += [] if word is None else [word]
    if not words:
        raise NotPlain("There is no command.")
    return words


def typed_line(words: Sequence[str]) -> str:
    """The line that `plain_words` splits into these words."""
    return shlex.join(words)


def _check_bare(line: str, at: int, character: str, *, first: bool) -> None:
    """Raise NotPlain for a character that a shell would not take as it is."""
    quoted = _OPEN_QUOTE.match(line, at)
    if quoted is not None and line[quoted.end() : quoted.end() + 1] in ("`", "$"):
        raise _needs_shell("no variables, and no output of other commands")
    if character in "'\"":
        raise NotPlain("The command cannot be read: a quotation has no end.")
    if character == "\\":
        raise _needs_shell("no second line")
    if character in _OPERATORS:
        raise _needs_shell(_OPERATORS[character])
    alone = line[at : at + 2].strip() == character
    if first and character in _AT_THE_BEGINNING and (character != "{" or alone):
        raise _needs_shell(_AT_THE_BEGINNING[character])
    if _EXPANDED.match(line, at):
        raise _needs_shell("no variables")
    if _BRACES.match(line, at):
        raise _needs_shell("no braces")


def _needs_shell(what: str) -> NotPlain:
    return NotPlain(f"{_NO_SHELL}: {what}.\nhint: run one command at a time, with its arguments spelled out")
