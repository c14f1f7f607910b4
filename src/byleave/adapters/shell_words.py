"""One command line as a list of words, where there is no shell to make them.

Quotes and backslashes mean what they mean in a POSIX shell. What only a shell could do (pipes, variables, globs, `~`,
assignments, …) is an error, never handed on as text: a command that got `*.log` as a name would do something else than
was meant.
"""

import re
from collections.abc import Iterator

_NO_SHELL = "There is no shell"
_OPERATORS = {
    **dict.fromkeys("|&;<>()\n", "no pipes, no redirection, no second command"),
    "`": "no output of other commands",
    "*": "no globs; give the names, or quote it where it is meant as it is",
    "?": "no globs; give the names, or quote it where it is meant as it is",
    "[": "no globs; give the names, or quote it where it is meant as it is",
}
_AT_THE_BEGINNING = {"~": "no home directory", "#": "no comments", "!": "no negation", "{": "no braces"}
_EXPANDED = re.compile(r"\$[A-Za-z0-9_({*@#?$!'\"-]")
_QUOTED = re.compile(r"\$[A-Za-z0-9_({*@#?$!-]")
_BRACES = re.compile(r"\{[^\s{}]*(,|\.\.)[^\s{}]*\}")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


class NotPlain(ValueError):
    """The line needs a shell, or has no end; the text says which."""


def plain_words(line: str) -> list[str]:
    """The words of one command with plain arguments. Raises NotPlain."""
    if _ASSIGNMENT.match(line.lstrip()):
        raise _needs_shell("no variables")
    words = list(_Line(line).words())
    if not words:
        raise NotPlain("There is no command.")
    return words


def _needs_shell(what: str) -> NotPlain:
    return NotPlain(f"{_NO_SHELL}: {what}.\nhint: run one command at a time, with its arguments spelled out")


class _Line:
    """Where in the line we are."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def words(self) -> Iterator[str]:
        text = self._text
        while self._at < len(text):
            if text[self._at] in " \t":
                self._at += 1
            elif text[self._at] == "\n" and not text[self._at :].strip():
                return  # the end of the line, and nothing behind it
            else:
                yield self._word()

    def _word(self) -> str:
        text, begin = self._text, self._at
        said: list[str] = []
        while self._at < len(text) and text[self._at] not in " \t":
            character = text[self._at]
            if character == "\n" and not text[self._at :].strip():
                break
            if character == "'":
                said.append(self._single())
            elif character == '"':
                said.append(self._double())
            elif character == "\\":
                said.append(self._escaped())
            else:
                self._refuse(character, first=self._at == begin)
                said.append(character)
                self._at += 1
        return "".join(said)

    def _refuse(self, character: str, *, first: bool) -> None:
        if character in _OPERATORS:
            raise _needs_shell(_OPERATORS[character])
        alone = self._text[self._at : self._at + 2].strip() == character
        if first and character in _AT_THE_BEGINNING and (character != "{" or alone):
            raise _needs_shell(_AT_THE_BEGINNING[character])
        if _EXPANDED.match(self._text, self._at):
            raise _needs_shell("no variables")
        if _BRACES.match(self._text, self._at):
            raise _needs_shell("no braces")

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise NotPlain("The command cannot be read: a quotation has no end.")
        said = self._text[self._at + 1 : end]
        self._at = end + 1
        return said

    def _double(self) -> str:
        text = self._text
        said: list[str] = []
        self._at += 1
        while self._at < len(text):
            character = text[self._at]
            if character == '"':
                self._at += 1
                return "".join(said)
            if character == "`" or _QUOTED.match(text, self._at):
                raise _needs_shell("no variables, and no output of other commands")
            if character == "\\" and text[self._at + 1 : self._at + 2] in ("$", "`", '"', "\\"):
                self._at += 1
                character = text[self._at]
            said.append(character)
            self._at += 1
        raise NotPlain("The command cannot be read: a quotation has no end.")

    def _escaped(self) -> str:
        following = self._text[self._at + 1 : self._at + 2]
        if following in ("", "\n"):
            raise _needs_shell("no second line")
        self._at += 2
        return following
