"""Shows more rows than a screen has, page by page, and leaves the screen as it was.

Every row can be reached; the last line says which are shown and how to go on. Rows must be safe and fit the width.
"""

from collections.abc import Awaitable, Callable, Sequence

from rich.text import Text

from .screen import Screen

_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"
_CLEAR = "\x1b[H\x1b[J"


class Pager:
    """Rows on a screen of their own."""

    def __init__(self, screen: Screen, rows: Sequence[Text]) -> None:
        self._screen = screen
        self._rows = rows
        self._top = 0

    async def run(self, key: Callable[[], Awaitable[str | None]]) -> None:
        """Show pages until the person closes them, or the terminal has gone."""
        self._screen.control(_ENTER)
        try:
            self._show()
            while self._move(await key()):
                self._show()
        finally:
            self._screen.control(_LEAVE)

    @property
    def _height(self) -> int:
        return max(2, self._screen.size[1] - 1)

    def _move(self, key: str | None) -> bool:
        """Move to where a key leads; return False if it closes."""
        end = max(0, len(self._rows) - self._height)
        top = self._top
        match key:
            case None | "q" | "escape" | "c-d":
                return False
            case " " | "pagedown" | "f":
                if top >= end:
                    return False
                top += self._height
            case "b" | "pageup":
                top -= self._height
            case "enter" | "down" | "j":
                top += 1
            case "up" | "k":
                top -= 1
            case "g" | "home":
                top = 0
            case "G" | "end":
                top = end
            case _:
                pass
        self._top = min(max(0, top), end)
        return True

    def _show(self) -> None:
        self._screen.control(_CLEAR)
        last = min(self._top + self._height, len(self._rows))
        for row in self._rows[self._top : last]:
            self._screen.print(row)
        does = "q: close" if last == len(self._rows) else "Space: next page · b: back · q: close"
        where = f"rows {self._top + 1}-{last} of {len(self._rows)} · {does}"
        self._screen.print(Text(where[: self._screen.size[0] - 1], "reverse"), end="")
