"""Rows that fit a terminal, and a status below them that is redrawn in place.

A terminal never folds a line of ours: rows are cut here, and one that goes on is marked, so that no row of foreign text
can pass for ours. What is printed appears above the status. Only texts that are already safe are printed.
"""

import asyncio
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from rich.console import Console
from rich.text import Text

from byleave.gate import safe_text

MARK = "  | "
CONTINUED = "  |>"
"""Mark of a row that goes on with the line above it."""
_LABEL = re.compile(r"  [a-z ]{1,16}: ")


def rows(text: str, width: int) -> list[str]:
    """Split text into safe, marked rows that fit the screen."""
    room = max(10, width - len(MARK) - 1)
    return [
        f"{MARK if start == 0 else CONTINUED}{line[start:end]}"
        for line in safe_text(text, lines=True).expandtabs(4).split("\n")
        for start, end in _pieces(line, room, room)
    ]


def fitted(text: Text, width: int) -> Iterator[Text]:
    """Split a text that is already safe into rows that fit the screen; what goes on hangs below its label."""
    room = max(14, width - 1)
    for line in text.split("\n", allow_blank=True):
        line.expand_tabs(8)
        label = _LABEL.match(line.plain)
        hang = CONTINUED.ljust(min(label.end(), room // 2)) if label else CONTINUED
        for start, end in _pieces(line.plain, room, room - len(hang)):
            yield line[start:end] if start == 0 else Text(hang, "dim").append_text(line[start:end])


def _pieces(line: str, first: int, room: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each row of a line: `first` cells wide, the others `room`."""
    start = 0
    while len(line) - start > first // 2 and (end := start + _fitting(line[start : start + first], first)) < len(line):
        # After a word if the row stays long enough; every character is kept.
        blank = line.rfind(" ", start + first // 2, end)
        end = end if blank < 0 else blank + 1
        yield start, end
        start, first = end, room
    yield start, len(line)


def _fitting(text: str, room: int) -> int:
    """Count the characters that fit: two cells for each that some terminal may draw wide."""
    if text.isascii():
        return len(text)
    for count, character in enumerate(text):
        room -= 1 if character < "\u1100" else 2
        if room < 0:
            return count
    return len(text)


class Bottom(Protocol):
    """What stays below all that is printed."""

    def erase(self) -> None: ...

    def draw(self) -> None: ...


class Screen:
    """A terminal's output."""

    def __init__(self, console: Console, tick_seconds: float = 1.0) -> None:
        self.console = console
        self._tick_seconds = tick_seconds
        self._bottoms: list[Bottom] = []
        self._held: list[Text] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self.console.size

    @property
    def bottom(self) -> Bottom | None:
        """What is at the bottom now."""
        return self._bottoms[-1] if self._bottoms else None

    def say(self, sentence: str) -> None:
        self.show([Text(safe_text(sentence, lines=True))])

    def show(self, texts: Iterable[Text]) -> None:
        """Print texts that are already safe."""
        if self._held is not None:
            self._held.extend(texts)
            return
        with self.above():
            for text in texts:
                for row in fitted(text, self.console.width):
                    self.print(row)

    def print(self, text: Text, end: str = "\n") -> None:
        """Print a text as it is. If the terminal has gone, it is lost: a signal tells the program."""
        with suppress(OSError):
            self.console.print(text, end=end, soft_wrap=True)
            self.console.file.flush()

    def control(self, codes: str) -> None:
        """Write control codes, which a plain terminal does not get."""
        with suppress(OSError):
            self.console.file.write("" if self.console.is_dumb_terminal else codes)
            self.console.file.flush()

    @contextmanager
    def above(self) -> Generator[None]:
        """Take away what is at the bottom while something is printed, also by others on this terminal."""
        if self.bottom is not None:
            self.bottom.erase()
        try:
            yield
        finally:
            if self.bottom is not None:
                self.bottom.draw()

    @contextmanager
    def keep(self, bottom: Bottom) -> Generator[None]:
        """Have something at the bottom, in place of what is there."""
        if self.bottom is not None:
            self.bottom.erase()
        self._bottoms.append(bottom)
        try:
            yield
        finally:
            was_shown = self.bottom is bottom
            self._bottoms.remove(bottom)
            if was_shown and self.bottom is not None:
                self.bottom.draw()

    @contextmanager
    def status(self, text: Callable[[], Text], every: float | None = None) -> Generator[None]:
        """Keep a text that is already safe at the bottom, drawn again every so many seconds."""
        status = Status(self, text, every or self._tick_seconds)
        with self.keep(status):
            status.draw()
            try:
                yield
            finally:
                status.end()

    @contextmanager
    def held(self) -> Generator[None]:
        """Print after the block what is said in it: another program's screen is shown meanwhile."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            self.show(held)

    # As a stream: for a log, whose lines are safe

    def write(self, text: str) -> None:
        if text.strip("\n"):
            self.show([Text(text.strip("\n"))])

    def flush(self) -> None: ...


class Status:
    """A text at the bottom that changes with time."""

    def __init__(self, screen: Screen, text: Callable[[], Text], every: float) -> None:
        self._screen = screen
        self._text = text
        self._every = every
        self._drawn: list[Text] = []
        self._timer: asyncio.TimerHandle | None = None

    def draw(self) -> None:
        self._drawn = self._rows()
        self._screen.print(Text("\n").join(self._drawn), end="")
        self._later()

    def erase(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        console = self._screen.console
        if any(row.plain for row in self._drawn):
            # A window that was made narrower has folded the rows.
            height = sum(1 + max(0, len(row.plain) - 1) // console.width for row in self._drawn)
            self._screen.control("\r" + (f"\x1b[{height - 1}A" if height > 1 else "") + "\x1b[J")
            if console.is_dumb_terminal:
                self._screen.print(Text())
        self._drawn = []

    def end(self) -> None:
        self.erase()
        self._text = Text

    def _rows(self) -> list[Text]:
        return list(fitted(self._text(), self._screen.console.width))

    def _later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._screen.console.is_dumb_terminal:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._again)

    def _again(self) -> None:
        if self._screen.bottom is not self:
            return
        if self._rows() != self._drawn:
            self.erase()
            self.draw()
        else:
            self._later()
