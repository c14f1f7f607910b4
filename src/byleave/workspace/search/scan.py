"""The search without ripgrep: a separate process, so that it can be limited and killed.

It reads one JSON object from the given descriptor (see `executor`), walks by directory descriptors from the one it
inherited, and answers in ripgrep's output format, so that one reader serves both. Globs, .gitignore rules and regular
expressions mean the same as in ripgrep, even if git differs; an expression that would mean something else here is
refused. Names are bytes. Matching a glob takes time proportional to the glob and the name, however many stars it has,
because the client does it too. A regular expression may still take forever, so this never runs inside the client. It
follows no link out of the searched directory and imports only the standard library.
"""

import ctypes
import errno
import json
import os
import re
import resource
import signal
import socket
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar

_STAR = b"[^/]*"
_GROUPS = (b"(?:", b"/.*")
"""Beginnings of tokens that match more than one character, or perhaps a slash."""


class GlobError(ValueError):
    """A glob that ripgrep would reject."""


def glob_pattern(glob: str, *, of_names: bool = False) -> re.Pattern[bytes]:
    """Compile a glob as ripgrep reads it, for the bytes of a whole path. `of_names`: for names without a slash."""
    return re.compile(_Glob(os.fsencode(glob), of_names=of_names).translated(), re.DOTALL)


def _joined(tokens: list[bytes]) -> bytes:
    """Join tokens into one expression without needless backtracking.

    Text between two stars matches atomically at its first position: the second star takes the rest.
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
    """Translates one glob: `*` and `?` stop at a slash, `**` does not, `{a,b}` is either."""

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
        """Translate `[a-c]`: it has no escapes, and a first `]` is literal."""
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
        # A class that may match a slash ends the run between two stars.
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
    """One .gitignore. `strip` and `add` make a path relative to the file instead of the searched directory."""

    rules: tuple[_Rule, ...]
    strip: bytes = b""
    add: bytes = b""

    def opinion(self, path: bytes, is_directory: bool) -> bool | None:
        """True if ignored, by the last matching rule; None if none matches. The walk has checked the parents."""
        told = self.add + path.removeprefix(self.strip)
        for rule in reversed(self.rules):
            if (is_directory or not rule.only_directories) and rule.fits(told):
                return rule.ignores
        return None


def ignore_rules(text: bytes) -> tuple[_Rule, ...]:
    """Parse a .gitignore; skip lines that are no rules."""
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
        line += "/*"  # its content, not the directory itself
    return _Rule(glob_pattern(line).fullmatch, ignores=not negated, only_directories=only_directories)


def ignored(path: bytes, is_directory: bool, ignores: list[Ignore]) -> bool:
    """True if a path is ignored. The deepest .gitignore with a matching rule decides."""
    for ignore in reversed(ignores):
        opinion = ignore.opinion(path, is_directory)
        if opinion is not None:
            return opinion
    return False


MAX_FILE = 32 * 1024 * 1024
MAX_DEPTH = 64
MAX_IGNORE = 1 << 20
NO_PERMISSION = 3
"""Exit code: no permission to read the searched path itself."""
_MEMORY = 1 << 30
_BLOCK = 1 << 16
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PR_SET_PDEATHSIG = 1
_CAPABILITY_VERSION = 0x20080522
_SYS_OPENAT2 = 437
_BENEATH = 0x02 | 0x08  # NO_MAGICLINKS, BENEATH

_libc = ctypes.CDLL(None, use_errno=True)


# Finds what Python reads differently from ripgrep, or ripgrep does not support.
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<group>\((?:\?(?::|P<\w+>|i\)|i:)?)?)"
    r"|(?P<count>\{\d+(?:,\d*)?\}|[*+?])(?P<more>[+*])?|(?P<dot>\.)|(?P<brace>\{)|(?P<other>.)",
    re.DOTALL,
)
# Bytes that are not UTF-8, and the carriage return of a line end: ripgrep's classes never match these.
_NOT_TEXT = "\r\udc80-\udcff"
_ESCAPES = {
    r"\z": r"\Z",
    r"\s": r"[^\S\r]",
    r"\D": rf"[^\d{_NOT_TEXT}]",
    r"\S": rf"[^\s{_NOT_TEXT}]",
    r"\W": rf"[^\w{_NOT_TEXT}]",
}


def expression(pattern: str) -> str:
    """Translate a pattern for Python; re.error if Python and ripgrep do not both support it."""
    made: list[str] = []
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token["escape"]:
            if text[1] in "0123456789NZnr":
                raise re.error(f"{text} is not supported", pattern, token.start())
            made.append(_ESCAPES.get(text, text))
        elif token["class"]:
            if re.search(r"\\[0-9NZnrDSW]", text) or text == "[^]":
                raise re.error(f"{text} is not supported", pattern, token.start())
            made.append(text.replace("[^", f"[^{_NOT_TEXT}", 1) if text.startswith("[^") else text)
        elif (token["group"] or "").endswith("?") or token["more"] or token["brace"]:
            raise re.error("look-around, backreferences and the like are not supported", pattern, token.start())
        else:
            made.append(f"[^\n{_NOT_TEXT}]" if token["dot"] else text)
    return "".join(made)


# Python folds these two to the letter i, ripgrep does not; their replacements have no other case in either.
_OWN_LETTERS = str.maketrans("\u0130\u0131", "\u01bb\u01c0")


class Scan:
    """One search."""

    def __init__(self, work: dict[str, Any]) -> None:
        self._folds = not work["case_sensitive"] or "(?i" in work["pattern"]
        pattern: str = self._as_ripgrep_folds(work["pattern"])
        self._literal = b"" if work["regex"] or not work["case_sensitive"] else pattern.encode("utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns about nested sets, which ripgrep supports
            self._pattern = re.compile(
                expression(pattern) if work["regex"] else re.escape(pattern),
                0 if work["case_sensitive"] else re.IGNORECASE,
            )
        self._globs = [glob_pattern(glob, of_names=True).fullmatch for glob in work["globs"]]
        self._hidden = any(glob.startswith(".") for glob in work["globs"])
        self._overrules: bool = work["overrules"]
        self._max_count: int = work["max_count"]
        self._ask = None if work["ask"] is None else socket.socket(fileno=work["ask"])
        self._root = -1

    def close(self) -> None:
        if self._ask is not None:
            self._ask.close()

    def run(self, fd: int, above: list[list[str]]) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield each file with its matching lines, in the order of names."""
        if stat.S_ISREG(os.fstat(fd).st_mode):
            yield from self.file(fd, b"file")
            return
        self._root = fd
        rules = [(ignore_rules(text.encode("utf-8", "surrogateescape")), add) for text, add in above]
        yield from self.directory(fd, b"", [Ignore(found, add=os.fsencode(add)) for found, add in rules])

    def directory(
        self, fd: int, prefix: bytes, ignores: list[Ignore], depth: int = 0
    ) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield the matches below an open directory."""
        try:
            with os.scandir(fd) as entries:
                found = sorted((os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError:
            return  # no permission
        names = {name for name, _ in found}
        if b".git" in names and self._has_git(fd, prefix):
            ignores = []  # a nested repository
        if b".gitignore" in names:
            ignores = [*ignores, Ignore(ignore_rules(self._ignore_file(fd, prefix)), strip=prefix)]
        for name, is_directory in self._allowed(found, prefix, ignores):
            try:
                child = os.open(name, _DIRECTORY if is_directory else _FILE, dir_fd=fd)
            except OSError:
                continue  # a link, no permission, or gone
            try:
                if not is_directory:
                    yield from self.file(child, prefix + name)
                elif depth < MAX_DEPTH:
                    yield from self.directory(child, prefix + name + b"/", ignores, depth + 1)
            finally:
                os.close(child)

    def _allowed(
        self, found: list[tuple[bytes, bool]], prefix: bytes, ignores: list[Ignore]
    ) -> list[tuple[bytes, bool]]:
        wanted = [
            (name, is_directory)
            for name, is_directory in found
            if self._named(name, is_directory)
            and ((self._overrules and not is_directory) or not ignored(prefix + name, is_directory, ignores))
        ]
        if self._ask is None or not wanted:
            return wanted
        # The owner's rules live in the client.
        question = json.dumps([os.fsdecode(prefix + name) for name, _ in wanted])
        self._ask.sendall(question.encode("ascii") + b"\n")
        answer = self._ask.recv(len(wanted), socket.MSG_WAITALL)
        return [entry for entry, ruled_out in zip(wanted, answer, strict=True) if ruled_out == ord("0")]

    def _named(self, name: bytes, is_directory: bool) -> bool:
        if name.startswith(b".") and (is_directory or not self._hidden):
            return False
        return is_directory or not self._globs or any(fits(name) for fits in self._globs)

    def _has_git(self, fd: int, prefix: bytes) -> bool:
        try:
            os.close(self._open(fd, prefix, b".git", os.O_PATH))
        except OSError:
            return False
        return True

    def _ignore_file(self, fd: int, prefix: bytes) -> bytes:
        try:
            file_fd = self._open(fd, prefix, b".gitignore", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return b""
        with os.fdopen(file_fd, "rb") as file:
            return read_rules(file) if stat.S_ISREG(os.fstat(file_fd).st_mode) else b""

    def _open(self, fd: int, prefix: bytes, name: bytes, flags: int) -> int:
        """Open a file; follow links that stay in the searched directory, as ripgrep does in its sandbox."""
        how = (ctypes.c_uint64 * 3)(flags | os.O_CLOEXEC, 0, _BENEATH)
        path = ctypes.c_char_p(prefix + name)
        found = int(_libc.syscall(ctypes.c_long(_SYS_OPENAT2), self._root, path, how, ctypes.c_size_t(24)))
        if found >= 0:
            return found
        code = ctypes.get_errno()
        if code == errno.ENOSYS:  # an old kernel: follow no link
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        raise OSError(code, os.strerror(code))

    def _as_ripgrep_folds(self, text: str) -> str:
        return text.translate(_OWN_LETTERS) if self._folds and not text.isascii() else text

    def file(self, fd: int, path: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield the matching lines of an open file; none if it is not text."""
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_FILE:
            return
        with os.fdopen(os.dup(fd), "rb") as file:
            data = as_utf8(file.read(MAX_FILE))
        if self._literal not in data:
            return
        text = data.decode("utf-8", "surrogateescape")
        lines = text.split("\n")
        if not lines[-1]:
            del lines[-1]
        found: list[bytes] = []
        for number, line in enumerate(lines, 1):
            if self._pattern.search(self._as_ripgrep_folds(line).rstrip("\r")):
                found.append(b"%d:%s\n" % (number, line.encode("utf-8", "surrogateescape")))
                if len(found) == self._max_count:
                    # ripgrep looks for NUL only in the blocks it has read.
                    seen = sum(len(line) for line in lines[:number])
                    text = text[: -(-seen // _BLOCK) * _BLOCK]
                    break
        if found and "\x00" not in text:
            yield path, found


def read_rules(file: BinaryIO) -> bytes:
    """Read the beginning of a .gitignore, in whole lines: half a rule may ignore everything."""
    text = file.read(MAX_IGNORE)
    return text if len(text) < MAX_IGNORE else text[: text.rfind(b"\n") + 1]


def as_utf8(data: bytes) -> bytes:
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data[2:].decode(encoding, "replace").encode("utf-8")
    return data.removeprefix(b"\xef\xbb\xbf")


def limit(seconds: float, owner: list[int] | None) -> None:
    """Become the workspace's owner if we are root, die with the client, and limit our own resources."""
    if owner is not None:
        os.setgroups([])
        os.setgid(owner[1])
        os.setuid(owner[0])
    # If the owner is root: without capabilities, root cannot read what nobody may, as in ripgrep's sandbox.
    _libc.capset((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)())
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for name, most in (
        (resource.RLIMIT_DATA, _MEMORY),
        (resource.RLIMIT_CPU, int(seconds) + 5),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(name, (most, most))


def main(work: dict[str, Any]) -> int:
    try:
        scan = Scan(work)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        print(f"regex parse error: {error}", file=sys.stderr)
        return 2
    try:
        # Opened again with the owner's permissions, not those of the client.
        fd = os.open(f"/proc/self/fd/{work['fd']}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return NO_PERMISSION
    separator = b""
    for path, lines in scan.run(fd, work["above"]):
        sys.stdout.buffer.write(b"".join([separator, b"./", path, b"\0", *lines]))
        sys.stdout.buffer.flush()
        separator = b"\n"
    os.close(fd)
    scan.close()
    return 0


def start() -> None:
    """Entry point of the process that `executor` starts."""
    with os.fdopen(int(sys.argv[1]), "rb") as given:
        work = json.load(given)
    limit(work["seconds"], work["owner"])
    raise SystemExit(main(work))
