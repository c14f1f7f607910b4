"""One terminal with two readers: the chat's input line, and the approval prompt that interrupts it.

A question takes the terminal at once and returns it when answered; input for one is never read by the other.
"""

import asyncio
import os
import sys

from byleave.client import Answer, ApprovalPrompt, Question, TerminalPrompt

MARK = "> "


class Terminal:
    """Reads lines, and asks questions in between."""

    def __init__(self, descriptor: int, prompt: ApprovalPrompt) -> None:
        self._descriptor = descriptor
        self._prompt = prompt
        self._turn = asyncio.Lock()
        self._typed = bytearray()
        self._ended = False
        self._news: asyncio.Future[None] | None = None
        self._questions = 0
        self._unasked = asyncio.Event()
        self._unasked.set()

    @classmethod
    def here(cls) -> "Terminal | None":
        """Return this process's terminal; None if it has none."""
        prompt = TerminalPrompt.here()
        return None if prompt is None else cls(sys.stdin.fileno(), prompt)

    async def ask(self, question: Question) -> Answer | None:
        """Ask a question; a line that is being read waits for it."""
        self._questions += 1
        self._unasked.clear()
        self._wake()
        try:
            async with self._turn:
                return await self._prompt.ask(question)
        finally:
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
            if text is None and self._ended:
                return None
            if text is not None and text.strip():
                return text.strip()

    async def _read(self) -> str | None:
        """Return one line, or None if a question needs the terminal or the input ended."""
        sys.stderr.write(MARK)
        sys.stderr.flush()
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        loop.add_reader(self._descriptor, self._readable)
        try:
            if b"\n" not in self._typed:
                await self._news
        finally:
            loop.remove_reader(self._descriptor)
            self._news = None
        whole, found, rest = bytes(self._typed).partition(b"\n")
        if not found:
            return None
        self._typed = bytearray(rest)
        return whole.decode("utf-8", "replace")

    def _readable(self) -> None:
        try:
            data = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._typed += data
        self._ended = not data
        if self._ended or b"\n" in data:
            self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
