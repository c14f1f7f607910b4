"""Questions on a terminal, one at a time, answered by whole lines.

Only input typed after the question appeared can answer it: earlier input is discarded, also between the steps of an
answer. An empty line, the end of input or an unknown word is never an approval. HIGH needs the word `yes` after the
`y`; so does allowing everything in a session. A rule for further calls is shown before it is saved. The event loop
never blocks: the terminal is read when it has input.
"""

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from byleave.gate import MASK_PREFIX, safe_text
from byleave.gate.policy.grants import problem_with, text_of, widest_of
from byleave.protocol.changes import WriteChange
from byleave.protocol.errors import ByleaveError, CallerError
from byleave.protocol.grants import (
    DEFAULT_EVERYTHING_SECONDS,
    DEFAULT_GRANT_SECONDS,
    EVERYTHING_WARNING,
    GrantRule,
    GrantTerms,
)
from byleave.protocol.states import ApprovalScope, RiskLevel

from .questions import Answer, Question, read_rule, read_span, read_uses, rule_line, span_words, uses_words
from .rendering import everything_of, preview_lines, question_lines, rows, rule_lines, suggestion_lines

MAX_REASON_CHARACTERS = 1000
MAX_LINE_BYTES = 16 * 1024
CHANGE_SECONDS = 5.0
"""Time to wait for the diff; then the question is asked without it."""

Value = TypeVar("Value")


class NoAnswer(Exception):
    """The question or the input ended; no more answers will come. Not an error."""


class TerminalPrompt:
    """Asks on a terminal."""

    def __init__(self, descriptor: int, console: Console) -> None:
        self._descriptor = descriptor
        self._console = console
        self._typed = bytearray()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()

    @classmethod
    def here(cls) -> "TerminalPrompt | None":
        """Return a prompt on this process's terminal; None if it has none."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        return cls(sys.stdin.fileno(), Console(stderr=True, markup=False, emoji=False, highlight=False))

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._console.size

    def say(self, sentence: str) -> None:
        self.show([Text(safe_text(sentence, lines=True))])

    def show(self, texts: Iterable[Text]) -> None:
        """Print texts that are already safe."""
        for text in texts:
            self._console.print(text, soft_wrap=True)

    async def ask(self, question: Question) -> Answer | None:
        if question.closed.done():
            return None
        loop = asyncio.get_running_loop()
        change, unknown = await _diff(question)
        if question.closed.done():
            return None
        seconds = question.until - loop.time()
        # Rendered in a thread: diffing long texts takes a moment.
        lines = await asyncio.to_thread(lambda: list(question_lines(question.event, seconds, change, unknown=unknown)))
        self.show(lines)
        self._lines = asyncio.Queue()
        self._forget_typed()
        loop.add_reader(self._descriptor, self._readable)
        try:
            return await _Dialog(self, question).answer()
        except NoAnswer:
            return None
        finally:
            loop.remove_reader(self._descriptor)

    async def line(self, question: Question, text: str, *, fresh: bool = True) -> str:
        """Ask for a line. With `fresh`, discard input typed before this text appeared."""
        if fresh:
            self._forget_typed()
            while not self._lines.empty():
                # Keep the end of input: there will be no other.
                if self._lines.get_nowait() is None:
                    self._lines.put_nowait(None)
                    break
        self._console.print(Text(text), end="", soft_wrap=True)
        line = await self.unless_closed(question, self._lines.get())
        if line is None:
            self.say("\nNo answer was given here; the question stays open elsewhere until its time is up.")
            raise NoAnswer
        return line

    async def unless_closed(self, question: Question, awaitable: Awaitable[Value]) -> Value:
        """Await something, but no longer than the question is open."""
        waiting: asyncio.Future[Value] = asyncio.ensure_future(awaitable)
        try:
            await asyncio.wait({waiting, question.closed}, return_when=asyncio.FIRST_COMPLETED)
            if question.closed.done():
                self.say(f"\n{question.closed.result()}")
                raise NoAnswer
            return waiting.result()
        finally:
            waiting.cancel()

    def _forget_typed(self) -> None:
        """Discard input typed before the question could be read."""
        self._typed.clear()
        with contextlib.suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def _readable(self) -> None:
        try:
            data = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._lines.put_nowait(None)
            return
        self._typed += data
        *whole, rest = bytes(self._typed).split(b"\n")
        self._typed = bytearray(rest[:MAX_LINE_BYTES])
        for line in whole:
            self._lines.put_nowait(line.decode("utf-8", "replace"))


async def _diff(question: Question) -> tuple[WriteChange | None, str | None]:
    """Return the server's diff of a write, or the reason there is none."""
    if question.change is None:
        return None, None
    asking = asyncio.ensure_future(question.change())
    try:
        await asyncio.wait({asking, question.closed}, timeout=CHANGE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            return None, "The server did not say in time what would change."
        change = asking.result()
    except ByleaveError as error:
        return None, f"The server cannot say what would change: {error.message}"
    finally:
        asking.cancel()
    if change.digest != question.event.digest:
        return None, "The server tells of another change than the one that is asked about."
    return change, None


class _Dialog:
    """Dialog for one question. Every step that is not completed returns to the question."""

    def __init__(self, prompt: TerminalPrompt, question: Question) -> None:
        self._prompt = prompt
        self._question = question
        event = self._event = question.event
        in_session = event.session_id is not None
        always = event.risk_level is RiskLevel.HIGH or any(finding.always_asks for finding in event.findings)
        self._similar_offered = in_session and not always and bool(event.suggestions)
        self._all_offered = in_session

    async def answer(self) -> Answer:
        while True:
            line = await self._prompt.line(self._question, self._menu(), fresh=False)
            word, _, rest = line.strip().partition(" ")
            given = await self._parse(word, rest.strip())
            if given is not None:
                return given

    def _menu(self) -> str:
        similar = ", s to allow similar calls" if self._similar_offered else ""
        everything = ", a to allow everything in this session" if self._all_offered else ""
        masked = ", m to see what is masked" if MASK_PREFIX in str(self._event.tool_params) else ""
        return f"Type y to allow once, n to deny{similar}{everything}, v to see all of it{masked}: "

    async def _parse(self, word: str, rest: str) -> Answer | None:
        """Parse a line; return None if it is no answer, or the person went back."""
        if word in ("n", "no", "d", "deny"):
            return await self._no(rest)
        if rest:
            return None
        if word in ("y", "yes", "allow"):
            return await self._once()
        if word in ("v", "m"):
            await self._show_all(reveal=word == "m")
        elif word == "s" and self._similar_offered:
            return await self._similar()
        elif word == "s":
            self._prompt.say("This call asks every time: no class of calls like it can be allowed.")
        elif word == "a" and self._all_offered:
            return await self._everything()
        return None

    async def _no(self, reason: str) -> Answer:
        if not reason:
            reason = (await self._ask("Why? The agent is told. Enter for no reason: ")).strip()
        return Answer(allow=False, reason=reason[:MAX_REASON_CHARACTERS] or None)

    async def _once(self) -> Answer | None:
        if self._event.risk_level is RiskLevel.HIGH:
            line = await self._ask("This is HIGH. Type yes to run it all the same, anything else goes back: ")
            if line.strip() != "yes":
                return None
        return Answer(allow=True)

    async def _everything(self) -> Answer | None:
        self._prompt.say(f"\n{EVERYTHING_WARNING}")
        usual = span_words(DEFAULT_EVERYTHING_SECONDS)
        line = await self._ask(
            f"Type everything to allow it for {usual} (or everything 30m), anything else goes back: "
        )
        word, _, span = line.strip().partition(" ")
        if word != "everything":
            return None
        try:
            seconds = read_span(span) if span.strip() else DEFAULT_EVERYTHING_SECONDS
        except CallerError as error:
            self._prompt.say(str(error))
            return None
        terms = GrantTerms(expires_in_seconds=seconds, warned=True)
        return Answer(allow=True, scope=ApprovalScope.SESSION, terms=terms)

    async def _similar(self) -> Answer | None:
        """Choose a rule, edit it, limit it, review it, confirm."""
        self._prompt.say("\nAllow similar calls in this session without asking:")
        for number, suggestion in enumerate(self._event.suggestions, start=1):
            self._prompt.show(suggestion_lines(number, suggestion))
        chosen = (await self._ask("Type the number of one, anything else goes back: ")).strip()
        if chosen not in {str(number + 1) for number in range(len(self._event.suggestions))}:
            return None
        rule = await self._edited(self._event.suggestions[int(chosen) - 1].rule)
        usual = span_words(DEFAULT_GRANT_SECONDS)
        seconds = await self._number(f"For how long? 30m, 2h; Enter for {usual}: ", read_span) or DEFAULT_GRANT_SECONDS
        uses = await self._number("How many times at most? Enter for no limit: ", read_uses)
        self._prompt.say("\nThis would be allowed without asking:")
        self._prompt.show(rule_lines(rule, text_of(rule), widest_of(rule)))
        self._prompt.show([Text(f"  for {span_words(seconds)}, {uses_words(uses)}, in this session only")])
        if (await self._ask("Type yes to allow this, anything else goes back: ")).strip() != "yes":
            return None
        terms = GrantTerms(rule=rule, expires_in_seconds=seconds, max_uses=uses)
        return Answer(allow=True, scope=ApprovalScope.CLASS, terms=terms)

    async def _edited(self, rule: GrantRule) -> GrantRule:
        """Let the person edit the rule until it may be saved."""
        problem = await self._preview_rule(rule)
        line = rule_line(rule)
        if line is None:
            return rule
        syntax = (
            "words, ... at the end for anything after them" if rule.tool == "execute_command" else "patterns of paths"
        )
        while True:
            typed = (await self._ask(f"Enter keeps the rule, or type it anew ({syntax}): ")).strip()
            if not typed and problem is None:
                return rule
            try:
                rule = read_rule(typed, rule)
            except CallerError as error:
                self._prompt.say(str(error))
                continue
            problem = await self._preview_rule(rule)

    async def _preview_rule(self, rule: GrantRule) -> str | None:
        """Show a rule with its preview; return the reason it may not be saved, if any."""
        self._prompt.show(rule_lines(rule, text_of(rule), widest_of(rule)))
        problem = problem_with(rule)
        if problem is None and self._question.preview is not None:
            try:
                preview = await self._prompt.unless_closed(self._question, self._question.preview(rule))
                problem = preview.problem
                self._prompt.show(preview_lines(preview))
            except ByleaveError as error:
                self._prompt.say(f"  The server cannot say what it would have covered: {error.message}")
        if problem is not None:
            self._prompt.say(f"  This may not be saved: {problem}")
        return problem

    async def _number(self, text: str, read: Callable[[str], int]) -> int | None:
        while True:
            typed = (await self._ask(text)).strip()
            if not typed:
                return None
            try:
                return read(typed)
            except CallerError as error:
                self._prompt.say(str(error))

    async def _show_all(self, *, reveal: bool) -> None:
        """Show the whole call, a screen at a time; with `reveal`, unmasked."""
        whole = self._event.description
        try:
            if self._question.whole is not None:
                whole = await self._prompt.unless_closed(self._question, self._question.whole(reveal))
        except ByleaveError as error:
            self._prompt.say(f"The server cannot show more: {error.message}")
        width, height = self._prompt.size
        screens = max(5, height - 2)
        # Content may be 100 MB: rendered in a thread.
        laying_out = asyncio.to_thread(rows, everything_of(self._event.inspection, whole), width)
        lines = await self._prompt.unless_closed(self._question, laying_out)
        for start in range(0, len(lines), screens):
            self._prompt.show([Text(line) for line in lines[start : start + screens]])
            left = len(lines) - start - screens
            if left > 0 and (await self._ask(f"{left} more rows. Enter goes on, q stops: ")).strip() == "q":
                return

    async def _ask(self, text: str) -> str:
        return await self._prompt.line(self._question, text)
