"""Effects of a sed script, read without running it: does it write, read other files, or run a program?

Only the plain part of the language is understood for sure: addresses with `p d q s y =` and their kin. What several
versions of sed read differently (a delimiter inside brackets, labels, text to insert) is never called certain, and
what cannot be read at all is said to be so. It never searches the text for words.
"""

import re
from dataclasses import dataclass, field

_PLAIN = frozenset("=dDgGhHnNpPxz")
_WITH_NUMBER = frozenset("qQlL")
_UNCERTAIN_LINES = frozenset("aicbtTv:")
"""Commands that take the rest of the line, or not, depending on the sed."""
_NAMES_FILE = frozenset("rRwW")
_ADDRESS = re.compile(r"\s*(?:[0-9]+(?:~[0-9]+)?|[$]|[+~][0-9]+)")
_NUMBER = re.compile(r"[ \t]*[0-9]*")
_BLANK = re.compile(r"[\s;]*")
_SPACE = re.compile(r"[ \t]*")
_DELIMITERS = frozenset("/,|#@!:%_~+=^.-")
_TERMINALS = frozenset(("/dev/stdout", "/dev/stderr"))


class _Unclear(Exception):
    """The script cannot be read any further."""


@dataclass(slots=True)
class SedScript:
    """The effects found."""

    certain: bool = True
    """Every part was understood, and every sed understands it so."""
    readable: bool = True
    """False: what comes after some point is not known."""
    runs: bool = False
    writes: list[str] = field(default_factory=list[str])
    reads: list[str] = field(default_factory=list[str])


def read_script(text: str) -> SedScript:
    """Read one script, or one of several pieces of it."""
    reader = _Reader(text)
    try:
        reader.read()
    except _Unclear:
        reader.script.readable = False
    return reader.script


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.script = SedScript()

    def read(self) -> None:
        while True:
            self._skip(_BLANK)
            if self.at >= len(self.text):
                return
            self._addresses()
            self._command()

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()

    def _next(self) -> str:
        if self.at >= len(self.text):
            raise _Unclear
        character = self.text[self.at]
        self.at += 1
        return character

    def _peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def _addresses(self) -> None:
        if not self._address():
            return
        self._skip(_SPACE)
        if self._peek() == ",":
            self.at += 1
            self._skip(_SPACE)
            if not self._address():
                raise _Unclear
        self._skip(_SPACE)

    def _address(self) -> bool:
        found = _ADDRESS.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            return True
        if self._peek() == "/":
            self.at += 1
            self._pattern("/")
        elif self._peek() == "\\":
            self.at += 1
            self._pattern(self._delimiter())
        else:
            return False
        while self._peek() in ("I", "M"):
            self.at += 1
        return True

    def _delimiter(self) -> str:
        character = self._next()
        if character not in _DELIMITERS:
            raise _Unclear
        return character

    def _pattern(self, delimiter: str) -> None:
        """A regular expression up to its delimiter; brackets may hide one from some seds and not from others."""
        while (character := self._next()) != delimiter:
            if character == "\n":
                raise _Unclear
            if character == "\\":
                self._escaped()
            elif character == "[":
                self._brackets(delimiter)

    def _brackets(self, delimiter: str) -> None:
        if self._peek() == "^":
            self.at += 1
        if self._peek() == "]":
            self.at += 1
        while (character := self._next()) != "]":
            if character in (delimiter, "\n"):
                raise _Unclear
            if character == "\\":
                self._escaped()
            elif character == "[" and self._peek() in (":", ".", "="):
                closing = self.text.find(self._peek() + "]", self.at + 1)
                if closing < 0 or delimiter in self.text[self.at : closing + 2]:
                    raise _Unclear
                self.at = closing + 2

    def _escaped(self) -> None:
        if self._next() == "\n":
            raise _Unclear

    def _replacement(self, delimiter: str) -> None:
        while (character := self._next()) != delimiter:
            if character == "\n":
                raise _Unclear
            if character == "\\":
                self._escaped()

    def _command(self) -> None:
        while self._peek() in ("!", " ", "\t"):
            self.at += 1
        command = self._next()
        if command in ("{", "}"):
            return
        if command == "#":
            self._line()
        elif command in _PLAIN:
            self._end()
        elif command in _WITH_NUMBER:
            self._skip(_NUMBER)
            self._end()
        elif command == "s":
            self._substitute()
        elif command == "y":
            delimiter = self._delimiter()
            self._replacement(delimiter)
            self._replacement(delimiter)
            self._end()
        else:
            self._doubtful(command)

    def _doubtful(self, command: str) -> None:
        script = self.script
        script.certain = False
        if command == "e":
            script.runs = True
            self._line()
        elif command in _NAMES_FILE:
            self._file(command)
        elif command == "F":
            self._end()
        elif command in _UNCERTAIN_LINES:
            if command in "aic" and self.text.find("\\", self.at) >= 0:
                raise _Unclear
            self._semicolon_or_line(command)
        else:
            raise _Unclear

    def _semicolon_or_line(self, command: str) -> None:
        """A label ends at a semicolon for some; what follows is read as commands, which is the stricter way."""
        if command in "aic":
            self._line()
            return
        while self._peek() not in ("", "\n", ";", "}"):
            self.at += 1

    def _file(self, command: str) -> None:
        name = self._line().strip()
        if name not in _TERMINALS:
            (self.script.reads if command in "rR" else self.script.writes).append(name)

    def _line(self) -> str:
        end = self.text.find("\n", self.at)
        line = self.text[self.at :] if end < 0 else self.text[self.at : end]
        self.at += len(line)
        return line

    def _substitute(self) -> None:
        delimiter = self._delimiter()
        self._pattern(delimiter)
        self._replacement(delimiter)
        while (flag := self._peek()) and (flag in "gpiImM" or flag.isdigit()):
            self.at += 1
        if flag == "e":
            self.script.certain = False
            self.script.runs = True
            raise _Unclear
        if flag == "w":
            self.at += 1
            self.script.certain = False
            self._file("w")
            return
        self._end()

    def _end(self) -> None:
        """After a command only a separator may come."""
        self._skip(_SPACE)
        if self._peek() not in ("", "\n", ";", "}", "#"):
            raise _Unclear
