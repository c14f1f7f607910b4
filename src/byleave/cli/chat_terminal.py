"""The terminal of a chat: lines with history, and questions in between.

A question takes the terminal at once; a half-typed line vanishes and comes back after the answer. Input for one is
never read by the other. The history is kept in the state directory, without lines that hold what looks like a secret.
"""

import asyncio
import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History

from byleave.client.approvals import Answer, Question
from byleave.client.identity import private_directory
from byleave.client.tasks import cancel
from byleave.client.terminal.keyboard import Line
from byleave.client.terminal.prompt import TerminalPrompt
from byleave.client.terminal.screen import Screen
from byleave.gate import mask_text

MARK = "> "


class ChatTerminal:
    """Reads lines, and asks questions in between."""

    def __init__(self, prompt: TerminalPrompt, history: History | None = None) -> None:
        self._prompt = prompt
        self._history = history
        self._line: Line | None = None
        """Made with the first line: one who is only asked needs none."""
        self._turn = asyncio.Lock()
        self._interrupted: asyncio.Future[None] | None = None
        self._questions = 0
        self._unasked = asyncio.Event()
        self._unasked.set()
        self.steps = 0
        """Lines and answers so far."""

    @classmethod
    def here(cls, home: Path) -> "ChatTerminal":
        """Return this process's terminal."""
        return cls(TerminalPrompt.here(), _history(home))

    @property
    def screen(self) -> Screen:
        return self._prompt.screen

    @contextlib.contextmanager
    def open(self) -> Generator[None]:
        """Have the terminal for a chat: what is typed while the agent works is not shown, and begins the next line."""
        with self._prompt.keyboard.silent():
            yield

    async def ask(self, question: Question) -> Answer | None:
        """Ask a question; a line that is being typed waits for it."""
        self._questions += 1
        self._unasked.clear()
        if self._interrupted is not None and not self._interrupted.done():
            self._interrupted.set_result(None)
        try:
            async with self._turn:
                answer = await self._prompt.ask(question)
                if self._line is not None and self._line.draft.text and self._prompt.typed:
                    self._line.draft = Document(self._line.draft.text + self._prompt.typed)
                return answer
        finally:
            self.steps += 1
            self._questions -= 1
            if self._questions == 0:
                self._unasked.set()

    async def unasked(self) -> None:
        """Wait until no question is on the screen."""
        await self._unasked.wait()

    def say(self, sentence: str) -> None:
        self._prompt.say(sentence)

    async def line(self) -> str | None:
        """Return the next line that is not blank; None at the end of input."""
        while True:
            async with self._turn:
                text = await self._read()
            if text is None or text.strip():
                self.steps += 1
                return None if text is None else text.strip()

    async def _read(self) -> str | None:
        """Return one line, empty if a question needs the terminal; None at the end of input."""
        line = self._line = self._line or self._prompt.keyboard.line(self._history)
        news = self._interrupted = asyncio.get_running_loop().create_future()
        reading = asyncio.create_task(line.go_on(MARK))
        try:
            await asyncio.wait({reading, news}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
            line.vanish()
            return ""
        finally:
            self._interrupted = None
            await cancel(reading)


class _History(FileHistory):
    """Lines of earlier chats, in a private file."""

    def store_string(self, string: str) -> None:
        if mask_text(string) == string:
            with contextlib.suppress(OSError):  # for convenience only
                super().store_string(string)


def _history(home: Path) -> History | None:
    path = home / "chat_history"
    try:
        private_directory(home)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError:
        return None
    return _History(str(path))
