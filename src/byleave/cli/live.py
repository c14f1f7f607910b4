"""A conversation on a terminal: the agent's Markdown, calls as they run with their time, output as it comes.

Everything is made safe before it is rendered, links show where they lead, and HTML is shown as text. What runs or is
waited for stands in one line at the bottom, which is redrawn; all else is printed once and stays.
"""

import sys
import time
from collections import deque
from contextlib import ExitStack

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from byleave.client.terminal.screen import Screen
from byleave.client.terminal.words import call_words, clock, word
from byleave.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    ChatError,
    ChatMessage,
    ChatText,
    FeedEvent,
    RunUsage,
    ToolFinished,
    ToolOutput,
    ToolQueued,
    ToolStarted,
)
from byleave.protocol.states import ErrorType, ExecutionStatus
from byleave.protocol.wire import JsonObject

from .screen import complain, counted, shortened, shown
from .transcript import effect_lines, failure_summary, output_lines, result_summary, usage_words

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1
SLOW_SECONDS = 5.0
"""A model that is silent for longer is said to be waited for."""
FIRST_LINES = LAST_LINES = 20
"""Lines of a command's output that are printed: as they come, and at its end."""
WIDEST = 100
"""Longest line of the agent's words: longer ones are hard to read."""
_ENDED_BY_A_BLANK_LINE = ("paragraph_open", "heading_open", "hr", "table_open")
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


class LiveTranscript:
    """Shows events to a person on a terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._out = Console(markup=False, emoji=False, highlight=False)
        self._streamed = ""
        self._pending = ""
        """Text that may be the beginning of a longer block."""
        self._calls: dict[str, _Call] = {}
        self._shown: str | None = None
        """Call whose lines were printed last."""
        self._heard = 0.0
        self._allowed: dict[str, str] = {}
        self._denied_for: dict[str, str] = {}
        """Reason a person gave for a no, by call."""
        self._gaps_told: set[str] = set()
        self._usage: RunUsage | None = None
        self._turn = ExitStack()

    def begin_turn(self) -> None:
        self._heard = time.monotonic()
        if not self._screen.console.is_dumb_terminal:
            self._turn.enter_context(self._screen.status(self._status, FRAME_SECONDS))

    def end_turn(self) -> None:
        self._flush()
        for tool_id, call in self._calls.items():
            self._held_output(call, tool_id)
        self._turn.close()
        if self._usage is not None:
            self._put(Text(usage_words(self._usage), "dim"))
            self._usage = None
        self._streamed = ""
        self._calls.clear()
        self._allowed.clear()
        self._denied_for.clear()

    def allowed(self, tool_id: str, by: str) -> None:
        """Note what let a call run without a question, as safe text, to be shown with its end."""
        self._allowed[tool_id] = by

    def show(self, event: FeedEvent) -> None:
        self._heard = time.monotonic()
        if not isinstance(event, ChatText | ChatMessage):
            self._flush()
        match event:
            case ChatText():
                self._stream(event.text)
            case ChatMessage(role="agent"):
                self._message(event.content)
            case ToolStarted():
                self._calls[event.tool_id] = _Call(call_words(event.tool_name, event.tool_params))
            case ToolOutput():
                self._output(event)
            case ToolFinished():
                self._finished(event)
            case RunUsage():
                self._usage = event
            case ChatError():
                with self._screen.above():
                    complain(event.message, event.hint)
            case _:
                self._waiting(event)

    def _waiting(self, event: FeedEvent) -> None:
        """Note that calls wait for a person or for their turn: their time begins again."""
        ids: list[str] = []
        match event:
            case ToolQueued():
                ids = [event.tool_id]
            case ApprovalRequested():
                self._shown, ids = None, [event.tool_id]
            case ApprovalDecided():
                self._shown, ids = None, event.tool_ids
                self._denied_for |= dict.fromkeys(ids, event.reason or "")
            case _:
                pass
        for call in (self._calls[tool_id] for tool_id in ids if tool_id in self._calls):
            call.begun = time.monotonic()
            call.queued = isinstance(event, ToolQueued) and event.waits

    # The line at the bottom

    def _status(self) -> Text:
        now = time.monotonic()
        frame = FRAMES[int(now / FRAME_SECONDS) % len(FRAMES)]
        call = next(iter(self._calls.values()), None)
        if call is None:
            silent = now - self._heard
            what = "Waiting for the model" if silent > SLOW_SECONDS else "Working"
            return Text(f"{frame} {what} · {clock(silent)} · Ctrl-C stops it", "dim")
        others = f" · and {len(self._calls) - 1} more" if len(self._calls) > 1 else ""
        state = "waits for its turn" if call.queued else clock(now - call.begun)
        room = max(20, self._screen.size[0] - len(state) - len(others) - 8)
        words = call.words if len(call.words) <= room else f"{call.words[: room - 1]}…"
        running = Text(f"{frame} {words} · {state}{others}", "dim")
        if not call.held:
            return running
        last = shortened(call.last[-1], self._screen.size[0] - 6)
        return Text("\n").join([Text(f"  | {last}", "dim"), running])

    # The agent's words

    def _stream(self, text: str) -> None:
        self._streamed += text
        if not self._out.is_terminal:
            sys.stdout.write(shown(text))
            sys.stdout.flush()
            return
        self._pending += text
        if "\n" in text and "\n\n" in self._pending:
            whole, self._pending = _whole_blocks(self._pending)
            if whole.strip():
                self._markdown(whole)

    def _message(self, content: str) -> None:
        """Print a message, unless it was streamed."""
        if "".join(content.split()) not in "".join(self._streamed.split()):  # lines were broken anew
            self._flush()
            self._stream(content)
        self._flush()

    def _flush(self) -> None:
        """Print what is left of the text, and end its line."""
        if self._out.is_terminal:
            pending, self._pending = self._pending, ""
            if pending.strip():
                self._markdown(pending)
        elif self._streamed and not self._streamed.endswith("\n"):
            self._stream("\n")

    def _markdown(self, text: str) -> None:
        self._shown = None
        rendered = Markdown("", hyperlinks=False, code_theme="ansi_dark")
        rendered.parsed = _PARSER.parse(shown(text))
        with self._screen.above():
            self._out.print(rendered, width=min(WIDEST, self._out.width))
            self._out.print()
            sys.stdout.flush()

    # Calls

    def _put(self, *lines: Text) -> None:
        self._screen.show(lines)

    def _title(self, call: "_Call", tool_id: str) -> None:
        """Print a call's words above its output."""
        if self._shown != tool_id:
            self._put(Text(f"• {call.words}"))
        self._shown = tool_id
        call.titled = True

    def _output(self, event: ToolOutput) -> None:
        call = self._calls.get(event.tool_id)
        if call is None:
            return
        for line in event.text.splitlines():
            if call.printed < FIRST_LINES:
                self._title(call, event.tool_id)
                self._put(_output_line(line))
                call.printed += 1
            else:
                call.held += 1
                call.last.append(line)

    def _held_output(self, call: "_Call", tool_id: str) -> None:
        """Print the last lines of a long output, and how to see those before them."""
        if not call.held:
            return
        self._title(call, tool_id)
        left_out = call.held - len(call.last)
        if left_out:
            lines = counted(left_out, "line", "lines")
            self._put(Text(f"  … {lines} left out; `byleave history {word(tool_id)}` shows them", "dim"))
        self._put(*(_output_line(line) for line in call.last))
        call.held = 0

    def _output_of_failed(self, call: "_Call", tool_id: str, result: JsonObject) -> None:
        """Print the output of a call that was not shown as it ran."""
        for line in f"{result.get('stdout') or ''}{result.get('stderr') or ''}".splitlines():
            call.held += 1
            call.last.append(line)
        self._held_output(call, tool_id)

    def _finished(self, event: ToolFinished) -> None:
        call = self._calls.pop(event.tool_id, None)
        if call is None:
            call = _Call(f"Call {word(event.tool_name)}")
        result = event.result or {}
        done = event.status is ExecutionStatus.COMPLETED
        facts = [shown(_summary(event) if done else outcome(event, self._denied_for.get(event.tool_id)))]
        if done and event.execution_time_ms is not None:
            facts.append(_took(event.execution_time_ms))
        if event.tool_id in self._allowed:
            facts.append(self._allowed.pop(event.tool_id))
        good = done and result.get("exit_code") in (None, 0)
        mark = ("✓ ", "green") if good else ("✗ ", "red")
        self._held_output(call, event.tool_id)
        if not (good or call.titled):  # the end of what failed is told last, below its output
            self._output_of_failed(call, event.tool_id, result)
        words = "" if self._shown == event.tool_id else f"{call.words} · "
        self._put(Text.assemble("  " if not words else "", mark, words, (" · ".join(facts), "dim")))
        if not call.titled:
            self._put(*(Text(f"  | {line}", "dim") for line in output_lines(result)))
        self._put(*effect_lines(result, self._gaps_told))
        self._shown = None


def _output_line(line: str) -> Text:
    return Text(f"  | {shown(line)}", "dim")


def _whole_blocks(text: str) -> tuple[str, str]:
    """Split Markdown after the last block that cannot go on."""
    blocks = [(token.type, token.map[0]) for token in _PARSER.parse(text) if token.level == 0 and token.map]
    if not blocks:
        return "", text
    kind, start = blocks[-1]
    if kind in _ENDED_BY_A_BLANK_LINE and text.endswith("\n\n"):
        return text, ""
    lines = text.split("\n")
    return "\n".join(lines[:start]), "\n".join(lines[start:])


class _Call:
    """A call that has begun and not ended."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.begun = time.monotonic()
        self.queued = False
        self.titled = False
        """True if its words are above its output."""
        self.printed = 0
        """Lines of output that were printed as they came."""
        self.held = 0
        """Lines that came after them, of which the last are kept."""
        self.last: deque[str] = deque(maxlen=LAST_LINES)


def _summary(event: ToolFinished) -> str:
    """Describe a result beside the words of its call, not yet safe to print."""
    result = event.result or {}
    if event.tool_name == "write_file":
        return f"now {counted(result.get('size'), 'byte', 'bytes')}"
    return result_summary(event.tool_name, result)


def outcome(event: ToolFinished, reason: str | None = None) -> str:
    """Describe how a call ended that did not complete, not yet safe to print. `reason`: why it was denied."""
    if event.status is ExecutionStatus.REJECTED:
        return f"denied: {reason}" if reason else "denied"
    if event.status is ExecutionStatus.TIMEOUT:
        return "expired without an answer"
    if event.error_type is ErrorType.CANCELLED:
        return "stopped by you"
    return failure_summary(event)


def _took(milliseconds: int) -> str:
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 60 else clock(seconds)
