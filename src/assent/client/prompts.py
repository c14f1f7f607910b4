"""Asking on a terminal: what would happen, why it asks, how risky it is, how long there is to answer.

Everything shown is made safe again here, field by field, whatever the server did. Only words typed after the question
appeared can answer it: earlier input is thrown away, and an empty line, the end of input or anything not understood
is never an approval. HIGH takes the whole word `allow`. The loop never blocks: the terminal is read when it has
something.
"""

import asyncio
import contextlib
import os
import sys
import termios
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.text import Text

from assent.gate import safe_text
from assent.protocol.events import ApprovalRequested
from assent.protocol.states import RiskLevel

MAX_REASON_CHARACTERS = 1000
MAX_LINE_BYTES = 16 * 1024
_STYLE = {RiskLevel.LOW: "green", RiskLevel.MEDIUM: "yellow", RiskLevel.HIGH: "bold red"}


@dataclass(frozen=True)
class Answer:
    """A person's decision."""

    allow: bool
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class Question:
    """One approval to be asked. `closed` gets a sentence when it ended without an answer from here."""

    event: ApprovalRequested
    closed: asyncio.Future[str]
    until: float
    """On the loop's clock."""


class ApprovalPrompt(Protocol):
    """Puts questions to a person, one at a time."""

    async def ask(self, question: Question) -> Answer | None:
        """The answer; None when there was none."""
        ...

    def say(self, sentence: str) -> None:
        """Tell the person something."""
        ...


class TerminalPrompt:
    """Asks on a terminal."""

    def __init__(self, descriptor: int, console: Console) -> None:
        self._descriptor = descriptor
        self._console = console
        self._typed = bytearray()

    @classmethod
    def here(cls) -> "TerminalPrompt | None":
        """On this process's terminal; None when it has none."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        return cls(sys.stdin.fileno(), Console(stderr=True, markup=False, emoji=False, highlight=False))

    def say(self, sentence: str) -> None:
        self._print(Text(safe_text(sentence, lines=True)))

    async def ask(self, question: Question) -> Answer | None:
        if question.closed.done():
            return None
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._show(question, question.until - loop.time())
        self._typed.clear()
        # What was typed before the question could be read is not an answer to it.
        with contextlib.suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        loop.add_reader(self._descriptor, self._readable, lines)
        try:
            return await self._answer(question, lines)
        finally:
            loop.remove_reader(self._descriptor)

    async def _answer(self, question: Question, lines: "asyncio.Queue[str | None]") -> Answer | None:
        while True:
            typing = asyncio.ensure_future(lines.get())
            try:
                await asyncio.wait({typing, question.closed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                typing.cancel()
            if question.closed.done():
                self.say(f"\n{question.closed.result()}")
                return None
            line = typing.result()
            if line is None:
                self.say("\nNo answer was given here; the question stays open elsewhere until its time is up.")
                return None
            answer = _understood(line, question.event.risk_level)
            if answer is not None:
                return answer
            self._ask_again(question.event.risk_level)

    def _readable(self, lines: "asyncio.Queue[str | None]") -> None:
        try:
            data = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            lines.put_nowait(None)
            return
        self._typed += data
        *whole, rest = bytes(self._typed).split(b"\n")
        self._typed = bytearray(rest[:MAX_LINE_BYTES])
        for line in whole:
            lines.put_nowait(line.decode("utf-8", "replace"))

    # What is shown

    def _show(self, question: Question, seconds: float) -> None:
        event = question.event
        risk = event.risk_level
        self._print(Text.assemble("\n", (f"{risk.value} ", _STYLE[risk]), (safe_text(event.tool_name), "bold")))
        # The reasons have lines of their own below; what is left of the description says what would happen.
        reasons = {finding.reason for finding in event.findings}
        first, *rest = event.description.split("\n")
        self._print(Text(_quoted("\n".join([first, *(line for line in rest if line not in reasons)]))))
        for name, value in event.tool_params.items():
            self._print_named(safe_text(name), value if isinstance(value, str) else repr(value))
        for finding in event.findings:
            self._print_named("why", finding.reason)
        self._print(Text("  network: it may use the network" if event.network else "  network: none"))
        if event.agent_id is not None:
            self._print(Text(f"  agent: {safe_text(event.agent_id)}"))
        self._print(Text(f"  time left: {_clock(seconds)}"))
        self._ask_again(risk)

    def _print_named(self, name: str, text: str) -> None:
        shown = f"\n{_quoted(text)}" if "\n" in text else f" {safe_text(text)}"
        self._print(Text.assemble((f"  {name}:", "dim"), shown))

    def _ask_again(self, risk: RiskLevel) -> None:
        allow = "allow" if risk is RiskLevel.HIGH else "a"
        self._print(Text(f"Type `{allow}` to allow, or `d` and a reason to deny: "), end="")

    def _print(self, text: Text, end: str = "\n") -> None:
        self._console.print(text, end=end, soft_wrap=True)


def _understood(line: str, risk: RiskLevel) -> Answer | None:
    """What a line says; None when it is no answer."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if not rest and (word == "allow" or (word == "a" and risk is not RiskLevel.HIGH)):
        return Answer(allow=True)
    if word in ("d", "deny"):
        return Answer(allow=False, reason=rest[:MAX_REASON_CHARACTERS] or None)
    return None


def _quoted(text: str) -> str:
    """Safe text, each line marked, so that none can pass for a line of ours."""
    return "\n".join(f"  | {line}" for line in safe_text(text, lines=True).split("\n"))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02d}"
