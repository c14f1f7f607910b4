"""The answer of a searching process, read as it comes: the first matches by path and line, in bounded memory.

ripgrep's threads finish files in any order, so every file is read and only those are kept that belong to the first
`max_results` matches; a file beyond the last of them is passed over without looking at its lines. What comes out is
the same whatever the threads did. The form is that of `rg --heading --null --line-number`: a path, NUL, then `12:line`
for each match, and an empty line before the next path. Nothing of what a file holds can be taken for that form.
"""

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field

from byleave.workspace.sandbox.processes import OutputKeeper, StreamName

# A character takes at most four bytes; more characters than this are not shown.
MAX_LINE = 2000
MAX_COLUMNS = 4 * MAX_LINE
_MAX_PIECE = MAX_COLUMNS + 64
_MAX_PATH = 1 << 16
_MAX_SAID = 4096
_PLENTY = 4
_BINARY = b"./"  # no match begins so: ripgrep names the file again to say that it is binary


@dataclass(order=True)
class _File:
    """One file with matches. Files are ordered as a walk that sorts each directory by name meets them."""

    parts: list[bytes]
    lines: list[bytes] = field(compare=False, default_factory=list[bytes])


class FirstMatches:
    """The first matches of all that are found, kept while they come in any order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: list[_File] = []
        self._count = 0
        self.truncated = False

    def beyond(self, file: _File) -> bool:
        """True if there are already enough that come before this file."""
        return self._count >= self._most and self._files[-1] < file

    def add(self, file: _File) -> None:
        if self.beyond(file):
            self.truncated = True
            return
        insort(self._files, file)
        self._count += len(file.lines)
        while self._count - len(self._files[-1].lines) >= self._most:
            self._count -= len(self._files.pop().lines)
            self.truncated = True
        self.truncated = self.truncated or self._count > self._most

    def found(self) -> list[tuple[str, list[tuple[int, str]]]]:
        """Each path with its lines and their numbers."""
        left = self._most
        told: list[tuple[str, list[tuple[int, str]]]] = []
        for file in self._files:
            lines = [_match(line) for line in file.lines[:left]]
            told.append((b"/".join(file.parts).decode("utf-8", "surrogateescape"), lines))
            left -= len(lines)
        return told


def _match(line: bytes) -> tuple[int, str]:
    number, _, rest = line.partition(b":")
    text = rest.decode("utf-8", "replace").rstrip("\r\n")
    return int(number), text if len(text) <= MAX_LINE else text[:MAX_LINE] + " [...]"


class AnswerReader(OutputKeeper):
    """Reads the answer of one searching process. `wanted` is asked once for each file that may matter."""

    gathers = True

    def __init__(self, most: int, wanted: Callable[[str], bool], *, in_order: bool = False) -> None:
        super().__init__(_MAX_SAID)
        self.matches = FirstMatches(most)
        self._wanted = wanted
        self._in_order = in_order
        self._kept = bytearray()
        self._file: _File | None = None
        """The file whose lines come now; None while its path is read."""
        self._passing = False
        self._binary = False
        self._cut = False
        """True if the rest of a long line is still to come."""
        self.when_enough: Callable[[], object] | None = None
        """Called when nothing that can still come matters."""
        self.when_plenty: Callable[[], object] | None = None
        """Called when there are so many that a search in order would soon have enough."""
        self._plenty = _PLENTY * most

    @property
    def enough(self) -> bool:
        return self._in_order and self.matches.truncated

    def said(self) -> str:
        """What the process complained of."""
        return " ".join(self.captured().stderr.split())[:300]

    def feed(self, stream: StreamName, data: bytes, *, final: bool = False) -> None:
        if stream == "stderr":
            super().feed(stream, data, final=final)
            return
        if self.enough:
            return
        self._kept += data
        while self._read_path() if self._file is None else self._read_lines(final=final):
            pass
        if self._plenty <= 0 and self.when_plenty is not None and self.matches.truncated:
            self.when_plenty()
        if self.enough and self.when_enough is not None:
            self.when_enough()

    def _read_path(self) -> bool:
        """True if a whole path was there."""
        end = self._kept.find(b"\0")
        if end < 0:
            del self._kept[: max(0, len(self._kept) - _MAX_PATH)]
            return False
        path = bytes(self._kept[:end])
        del self._kept[: end + 1]
        self._file = _File(path.removeprefix(b"./").split(b"/"))
        # An empty line within a path: a name that could imitate the form. Its file is not told of.
        plain = path.startswith(b"./") and b"\n\n" not in path
        beyond = self.matches.truncated and self.matches.beyond(self._file)
        self._passing = beyond or not (plain and self._wanted(path[2:].decode("utf-8", "surrogateescape")))
        self._binary = False
        return True

    def _read_lines(self, *, final: bool) -> bool:
        """True if the file's last line was there."""
        end, after = self._separator()
        ended = final or end >= 0
        # The beginning of a separator may be there already; it waits for its end.
        size = end + 1 if end >= 0 else len(self._kept) if final else self._kept.rfind(b"\n", 0, -2) + 1
        self._plenty -= self._kept.count(b"\n", 0, size)
        if self._passing:
            size = max(size, 0 if ended else len(self._kept) - 2)
        else:
            self._take(bytes(self._kept[:size]))
        del self._kept[: after if end >= 0 else size]
        if ended:
            self._finish()
        elif not self._passing and len(self._kept) > _MAX_PIECE + 2:
            self._shorten()
        return end >= 0

    def _separator(self) -> tuple[int, int]:
        """Where the empty line after the file's last line begins and ends. In order, ripgrep ends it like a line."""
        end = self._kept.find(b"\n\n")
        other = self._kept.find(b"\n\r\n", 0, end if end >= 0 else len(self._kept))
        return (end, end + 2) if other < 0 else (other, other + 3)

    def _take(self, data: bytes) -> None:
        """Whole lines of the file."""
        if self._file is None or not data:
            return
        lines = data.split(b"\n")
        if not lines[-1]:
            del lines[-1]
        if self._cut:
            del lines[0]  # its beginning is already taken
            self._cut = False
        for line in lines:
            if line.startswith(_BINARY):
                self._binary = True
            if not self._binary:
                self._file.lines.append(line[:_MAX_PIECE])

    def _shorten(self) -> None:
        """Take the beginning of a line that does not end, and let the rest of it go by."""
        if not self._cut:
            self._take(bytes(self._kept[:_MAX_PIECE]))
        self._cut = True
        del self._kept[:-2]

    def _finish(self) -> None:
        if self._file is not None and self._file.lines and not self._passing and not self._binary:
            self.matches.add(self._file)
        self._file = None
        self._cut = False
