"""Reads a terminal: single keys, and lines with editing and history.

Pasted text is one event and never a key. Ctrl-C stays a signal while keys are read; in a line it raises one. What was
typed before something was asked can be thrown away: `settle` waits until the keyboard has been quiet.
"""

import asyncio
import codecs
import contextlib
import os
import signal
import termios
import tty
from collections.abc import Generator
from typing import TextIO, cast

from prompt_toolkit import PromptSession
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.history import DummyHistory, History
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import Console

from .screen import Screen

QUIET_SECONDS = 0.3
"""A key counts as an answer only after a pause: whoever was typing must see the question first."""
_ESCAPE_SECONDS = 0.05
"""Time in which the rest of an escape sequence arrives; else it was the key itself."""
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


class Keyboard:
    """A terminal's input."""

    def __init__(self, stdin: TextIO, screen: Screen, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._stdin = stdin
        self._descriptor = stdin.fileno()
        self._screen = screen
        self._quiet_seconds = quiet_seconds
        self._keys: asyncio.Queue[str | None] = asyncio.Queue()
        self._parser = Vt100Parser(self._pressed)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._flush: asyncio.TimerHandle | None = None

    # Keys

    @contextlib.contextmanager
    def silent(self) -> Generator[None]:
        """Show nothing of what is typed in the block; it stays for the next line."""
        try:
            before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor, termios.TCSANOW)
        except termios.error:  # it went away
            yield
            return
        try:
            yield
        finally:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    @contextlib.contextmanager
    def keys(self) -> Generator[None]:
        """Read single keys in the block."""
        loop = asyncio.get_running_loop()
        with self.silent():
            self._screen.control(_PASTE_ON)
            self._keys = asyncio.Queue()
            loop.add_reader(self._descriptor, self._readable)
            try:
                yield
            finally:
                loop.remove_reader(self._descriptor)
                self._screen.control(_PASTE_OFF)

    async def key(self) -> str | None:
        """Return the next key: a character or a name such as `enter`; None when the terminal has gone."""
        return await self._keys.get()

    @property
    def has_more(self) -> bool:
        """True if further keys came together with the last one."""
        return not self._keys.empty()

    async def settle(self) -> str:
        """Wait until no key is pressed for a moment. Return the text that was typed until then."""
        typed = ""
        while True:
            try:
                async with asyncio.timeout(self._quiet_seconds):
                    key = await self._keys.get()
            except TimeoutError:
                return typed
            if key is None:
                self._keys.put_nowait(None)  # there will be no other
                return typed
            typed += key if len(key) == 1 else ""

    def _pressed(self, press: KeyPress) -> None:
        match press.key:
            case Keys.ControlM | Keys.ControlJ:
                self._keys.put_nowait("enter")
            case Keys() as named:
                self._keys.put_nowait(named.value)
            case character:
                self._keys.put_nowait(character)

    def _readable(self) -> None:
        try:
            data = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if self._flush is not None:
            self._flush.cancel()
        loop = asyncio.get_running_loop()
        if not data:
            loop.remove_reader(self._descriptor)
            self._keys.put_nowait(None)
            return
        self._parser.feed(self._decoder.decode(data))
        self._flush = loop.call_later(_ESCAPE_SECONDS, self._parser.flush)

    def line(self, history: History | None = None) -> "Line":
        """Return a line to be typed and edited, perhaps several times."""
        return Line(self._stdin, self._screen, history)

    def text(self) -> "Line":
        """Return a text of many lines to be edited: Ctrl-S ends it, Ctrl-C leaves it."""
        return Line(self._stdin, self._screen, None, is_text=True)


class Line:
    """Lines that a person types and edits."""

    def __init__(self, stdin: TextIO, screen: Screen, history: History | None, *, is_text: bool = False) -> None:
        self.draft = Document()
        """A line that was interrupted, with the place of the cursor."""
        self._screen = screen
        console = screen.console
        self._input = Vt100Input(stdin)
        self._session: PromptSession[str] = PromptSession(
            input=self._input,
            # Never asks where the cursor is: a terminal that does not answer would be complained about.
            output=Vt100_Output(
                cast("TextIO", console.file), lambda: _size(console), term=os.environ.get("TERM"), enable_cpr=False
            ),
            color_depth=ColorDepth.DEPTH_1_BIT if console.no_color else None,
            history=history or DummyHistory(),
            key_bindings=_text_bindings() if is_text else _bindings(),
            multiline=is_text,
        )

    async def read(self, label: str, default: str = "") -> str | None:
        """Return one line; None at the end of input. What was typed before it appeared is thrown away."""
        with contextlib.suppress(termios.error):
            termios.tcflush(self._input.fileno(), termios.TCIFLUSH)
        clear_typeahead(self._input)
        return await self._read(label, Document(default))

    async def go_on(self, label: str) -> str | None:
        """Return one line, begun by what was typed before; None at the end of input. A cancelled one is kept."""
        draft, self.draft = self.draft, Document()
        try:
            return await self._read(label, draft)
        except asyncio.CancelledError:
            self.draft = self._session.default_buffer.document
            raise

    async def _read(self, label: str, default: Document) -> str | None:
        app = self._session.app
        app.erase_when_done = False
        with self._screen.keep(self):
            try:
                return await self._session.prompt_async(
                    label, default=default, set_exception_handler=False, handle_sigint=False
                )
            except (EOFError, LeftAsItWas):
                return None

    def vanish(self) -> None:
        """Leave nothing of a line that is about to be cancelled."""
        self._session.app.erase_when_done = True

    def erase(self) -> None:
        if self._session.app.is_running:
            self._session.app.renderer.erase()

    def draw(self) -> None:
        self._session.app.invalidate()


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("c-c")
    def interrupt(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction] - registered
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            signal.raise_signal(signal.SIGINT)

    @bindings.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction] - registered
        event.current_buffer.insert_text("\n")

    return bindings


class LeftAsItWas(Exception):
    """The person left a text without ending it. Not an error."""


def _text_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("c-s")
    def end(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction] - registered
        event.current_buffer.validate_and_handle()

    @bindings.add("c-c")
    def leave(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction] - registered
        event.app.exit(exception=LeftAsItWas())

    @bindings.add("tab")
    def indent(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction] - registered
        event.current_buffer.insert_text("\t" if "\t" in event.current_buffer.text else "    ")

    return bindings


def _size(console: Console) -> Size:
    columns, rows = console.size
    return Size(rows=rows, columns=columns)
