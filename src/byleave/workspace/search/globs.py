"""Globs and .gitignore rules as ripgrep reads them, for the search that does without it.

`*` and `?` stop at a slash, `**` does not, `{a,b}` is either; the last rule of a file that fits decides, and the
deepest file with an opinion. Everything is done on bytes, because names are bytes. Where git and ripgrep differ,
ripgrep is followed: both searches must give the same answer. However many stars an agent writes, a name is compared in
time proportional to both: the client does it too. Nothing here reads a file.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

_STAR = b"[^/]*"
_GROUPS = (b"(?:", b"/.*")
"""How tokens begin that stand for more than one character, or perhaps for a slash."""


class GlobError(ValueError):
    """A glob that ripgrep would not take."""


def glob_pattern(glob: str, *, of_names: bool = False) -> re.Pattern[bytes]:
    """A glob as ripgrep reads it, for the bytes of a whole path; `of_names`: of a name, which holds no slash."""
    return re.compile(_Glob(os.fsencode(glob), of_names=of_names).translated(), re.DOTALL)


def _joined(tokens: list[bytes]) -> bytes:
    """Tokens as one expression that does not try in vain.

    What stands between two stars is taken where it first fits, for good: the second star takes whatever is left.
    """
    made: list[bytes] = []
    at = 0
    while at < len(tokens):
        if tokens[at] != _STAR:
            made.append(tokens[at])
            at += 1
            continue
        while at < len(tokens) and tokens[at] == _STAR:
            at += 1
        end = at
        while end < len(tokens) and tokens[end] != _STAR and not tokens[end].startswith(_GROUPS):
            end += 1
        if end > at and end < len(tokens) and tokens[end] == _STAR:
            made.append(b"(?>[^/]*?" + b"".join(tokens[at:end]) + b")")
            at = end
        else:
            made.append(_STAR)
    return b"".join(made)


class _Glob:
    """One glob on its way to an expression: `*` and `?` stop at a slash, `**` does not, `{a,b}` is either."""

    _PREFIX, _SUFFIX, _MIDDLE = b"(?:/?|.*/)", b"/.*", b"(?:/|/.*/)"

    def __init__(self, glob: bytes, *, of_names: bool) -> None:
        self._glob = glob
        self._of_names = of_names
        self._at = 0
        self._branches: list[list[bytes]] | None = None
        self._whole: list[bytes] = []

    def translated(self) -> bytes:
        while self._at < len(self._glob):
            char = self._next()
            step = self._STEPS.get(char)
            if step is None:
                self._tokens.append(re.escape(char))
            else:
                step(self)
        if self._branches is not None:
            raise GlobError("a brace is not closed")
        return b".*" if self._whole == [self._PREFIX] else _joined(self._whole)

    @property
    def _tokens(self) -> list[bytes]:
        return self._whole if self._branches is None else self._branches[-1]

    def _next(self) -> bytes:
        self._at += 1
        return self._glob[self._at - 1 : self._at]

    def _peek(self) -> bytes:
        return self._glob[self._at : self._at + 1]

    def _any(self) -> None:
        self._tokens.append(b"[^/]")

    def _escape(self) -> None:
        if not self._peek():
            raise GlobError("it ends in a backslash")
        self._tokens.append(re.escape(self._next()))

    def _open(self) -> None:
        if self._branches is not None:
            raise GlobError("braces within braces")
        self._branches = [[]]

    def _comma(self) -> None:
        if self._branches is None:
            self._whole.append(b",")
        else:
            self._branches.append([])

    def _close(self) -> None:
        if self._branches is None:
            raise GlobError("a brace was not opened")
        branches = [found for tokens in self._branches if (found := _joined(tokens))]
        self._branches = None
        if branches:
            self._whole.append(b"(?:" + b"|".join(branches) + b")")

    def _star(self) -> None:
        before = self._glob[: self._at - 1][-1:]
        if self._peek() != b"*":
            self._tokens.append(_STAR)
            return
        self._at += 1
        after = self._peek()
        in_braces = self._branches is not None
        if not self._tokens:
            self._tokens.append(self._PREFIX if after in (b"", b"/") else _STAR)
            self._at += after == b"/"
            return
        ends = not after or (in_braces and after in (b",", b"}"))
        if (before != b"/" and not (in_braces and before in (b",", b"{"))) or not (ends or after == b"/"):
            self._tokens.append(_STAR)
            return
        self._at += after == b"/"
        last = self._tokens.pop()
        keeps = last in (self._PREFIX, self._SUFFIX)
        self._tokens.append(last if keeps else self._SUFFIX if ends else self._MIDDLE)

    def _class(self) -> None:
        """`[a-c]`: no escapes in it, and a `]` that comes first is itself."""
        found = re.compile(rb"([!^]?+)(\]?+[^\]]*)\]", re.DOTALL).match(self._glob, self._at)
        if found is None:
            raise GlobError("a bracket is not closed")
        self._at = found.end()
        ranges: list[list[int]] = []
        in_range = False
        for char in found[2]:
            if char == ord("-") and ranges and not in_range:
                in_range = True
            elif in_range:
                ranges[-1][1] = char
                in_range = False
                if char < ranges[-1][0]:
                    raise GlobError("a range goes backwards")
            else:
                ranges.append([char, char])
        if in_range:
            ranges.append([ord("-")] * 2)
        inside = b"".join(b"\\x%02x-\\x%02x" % (first, last) for first, last in ranges)
        one = b"[" + (b"^" if found[1] else b"") + inside + b"]"
        # One that may be a slash ends what a star takes.
        is_plain = self._of_names or re.fullmatch(one, b"/") is None
        self._tokens.append(one if is_plain else b"(?:" + one + b")")

    _STEPS: ClassVar[dict[bytes, Callable[["_Glob"], None]]] = {
        b"?": _any,
        b"*": _star,
        b"[": _class,
        b"{": _open,
        b",": _comma,
        b"}": _close,
        b"\\": _escape,
    }


@dataclass(frozen=True)
class _Rule:
    fits: Callable[[bytes], object]
    ignores: bool
    only_directories: bool


@dataclass(frozen=True)
class Ignore:
    """One .gitignore. `strip` and `add` turn a path told from the searched directory into one told from the file's."""

    rules: tuple[_Rule, ...]
    strip: bytes = b""
    add: bytes = b""

    def opinion(self, path: bytes, is_directory: bool) -> bool | None:
        """The last rule that fits decides. Only the path itself is looked at: who walks has asked about its parents."""
        told = self.add + path.removeprefix(self.strip)
        for rule in reversed(self.rules):
            if (is_directory or not rule.only_directories) and rule.fits(told):
                return rule.ignores
        return None


def ignore_rules(text: bytes) -> tuple[_Rule, ...]:
    """The rules of a .gitignore; a line that is no rule is left out."""
    rules: list[_Rule] = []
    for raw in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            line = raw.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            break  # ripgrep reads no further
        with suppress(GlobError, re.error):
            rule = _rule(line)
            if rule is not None:
                rules.append(rule)
    return tuple(rules)


def _rule(line: str) -> _Rule | None:
    if line.startswith("#"):
        return None
    if not line.endswith("\\ "):
        line = line.rstrip()
    if not line:
        return None
    escaped = line.startswith(("\\!", "\\#"))
    negated = line.startswith("!")
    line = line[1:] if escaped or negated else line
    anchored = line.startswith("/")
    if anchored and not escaped:
        line = line[1:]
    only_directories = line.endswith("/")
    if only_directories:
        line = line[:-1].removesuffix("\\")
    if not anchored and "/" not in line and line != "**":
        line = "**/" + line
    if line.endswith("/**"):
        line += "/*"  # what is inside, not the directory itself
    return _Rule(glob_pattern(line).fullmatch, ignores=not negated, only_directories=only_directories)


def ignored(path: bytes, is_directory: bool, ignores: list[Ignore]) -> bool:
    """The deepest .gitignore with an opinion decides."""
    for ignore in reversed(ignores):
        opinion = ignore.opinion(path, is_directory)
        if opinion is not None:
            return opinion
    return False
