"""A conversation on a terminal: its rendering, and the one input line that chat and questions share.

A question takes the terminal at once and returns it when answered; input for one is never read by the other. The same
conversation is written as JSON lines for scripts.
"""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any, Protocol, cast

from rich.text import Text

from byleave.client import Answer, ApprovalPrompt, Question, TerminalPrompt
from byleave.protocol.events import (
    ApprovalRequested,
    ChatError,
    ChatMessage,
    ChatText,
    FeedEvent,
    RunUsage,
    ToolFinished,
    ToolOutput,
    ToolStarted,
)
from byleave.protocol.states import ErrorType, ExecutionStatus
from byleave.protocol.wire import JsonObject

from .screen import RISK_STYLES, complain, put_json, say, shortened, shown

OUTPUT_LINES = 5
NAMED_FILES = 5


class Transcript(Protocol):
    """Shows events to a person or a program."""

    def show(self, event: FeedEvent) -> None: ...

    def allowed(self, tool_id: str, by: str) -> None:
        """Show what let a call run without a question; called before its end is shown, with safe text."""
        ...

    def end_turn(self) -> None: ...


class JsonTranscript:
    """Prints each event as a line of JSON."""

    def show(self, event: FeedEvent) -> None:
        put_json(event.model_dump(mode="json"))

    def allowed(self, tool_id: str, by: str) -> None:
        pass  # a program fetches the execution

    def end_turn(self) -> None:
        pass


class TerminalTranscript:
    """Shows events to people."""

    def __init__(self, *, can_ask: bool) -> None:
        self._can_ask = can_ask
        self._streamed = ""
        self._output_of: set[str] = set()
        self._allowed: dict[str, str] = {}
        self._usage: RunUsage | None = None

    def allowed(self, tool_id: str, by: str) -> None:
        self._allowed[tool_id] = by

    def show(self, event: FeedEvent) -> None:
        match event:
            case ChatText():
                self._stream(event.text)
            case ChatMessage(role="agent"):
                if event.content.strip() not in self._streamed:
                    self._break()
                    self._stream(event.content)
            case ToolStarted():
                self._note("→ ", call_summary(event.tool_name, event.tool_params), event.risk_level.value)
            case ToolOutput():
                self._output(event)
            case ToolFinished():
                self._finished(event)
            case ApprovalRequested() if not self._can_ask:
                self._waits(event)
            case RunUsage():
                self._usage = event
            case ChatError():
                self._break()
                complain(event.message, event.hint)
            case _:
                pass

    def end_turn(self) -> None:
        self._break()
        if self._usage is not None:
            tokens = f"{self._usage.input_tokens:,} tokens in, {self._usage.output_tokens:,} out"
            self._note("", f"{counted(self._usage.requests, 'request', 'requests')}, {tokens}")
            self._usage = None
        self._streamed = ""
        self._output_of.clear()
        self._allowed.clear()

    def _stream(self, text: str) -> None:
        self._streamed += text
        sys.stdout.write(shown(text))
        sys.stdout.flush()

    def _break(self) -> None:
        """Start a new line, unless at one."""
        if self._streamed and not self._streamed.endswith("\n"):
            self._stream("\n")

    def _note(self, mark: str, text: str, risk: str | None = None) -> None:
        self._break()
        level = ("", "") if risk is None else (f" [{risk}]", RISK_STYLES[risk])
        say(Text.assemble((f"{mark}{shortened(text, 300)}", "dim"), level))

    def _output(self, event: ToolOutput) -> None:
        self._break()
        self._output_of.add(event.tool_id)
        for line in event.text.splitlines():
            say(Text(f"  | {shown(line)}", style="dim"))

    def _finished(self, event: ToolFinished) -> None:
        if event.status is ExecutionStatus.COMPLETED:
            summary = result_summary(event.tool_name, event.result or {})
            by = self._allowed.get(event.tool_id)
            self._note("← ", f"{event.tool_name}: {summary}{f' ({by})' if by else ''}")
        else:
            self._note("← ", f"{event.tool_name}: {failure_summary(event)}")
        if event.tool_id not in self._output_of:
            for line in output_lines(event.result or {}):
                say(Text(f"  | {line}", style="dim"))
        for line in effect_lines(event.result or {}):
            say(line)

    def _waits(self, event: ApprovalRequested) -> None:
        self._break()
        say(f"Waits for approval ({event.risk_level.value}): {shortened(event.description, 300)}")
        say(f"hint: `byleave approvals approve {shown(event.approval_id)}` or `reject`, or answer on the chat page")


def call_summary(tool_name: str, params: JsonObject) -> str:
    """Describe a call in one line, not yet safe to print."""
    if tool_name == "execute_command":
        arguments: Any = params.get("args")
        words = cast("list[Any]", arguments) if isinstance(arguments, list) else []
        detail = shlex.join(str(word) for word in [params.get("command"), *words])
    else:
        detail = str(next((params[name] for name in ("path", "query") if name in params), ""))
        if tool_name == "search_files":
            detail = f"{shlex.quote(str(params.get('pattern')))} in {detail or '.'}"
    return f"{tool_name} {detail}".rstrip()


def failure_summary(event: ToolFinished) -> str:
    """Describe the outcome of a failed call in one line, not yet safe to print."""
    text = event.error or ""
    if event.status is ExecutionStatus.FAILED and event.error_type is not None:
        kind = "failed" if event.error_type is ErrorType.TOOL_ERROR else event.error_type.value.replace("_", " ")
    else:
        kind = event.status.value
    # Many sentences already begin with the word: "Rejected by the user: …".
    return text if text.lower().startswith(kind) else f"{kind}: {text}"


def counted(number: object, one: str, many: str) -> str:
    """Format a number with its noun; `?` if unknown."""
    return f"{'?' if number is None else number} {one if number == 1 else many}"


def result_summary(tool_name: str, result: JsonObject) -> str:
    """Describe a result in one line, not yet safe to print."""
    match tool_name:
        case "read_file":
            return counted(result.get("size"), "byte", "bytes")
        case "write_file":
            return f"{result.get('path')}, now {counted(result.get('size'), 'byte', 'bytes')}"
        case "execute_command":
            return f"exit code {result.get('exit_code')}"
        case "list_directory":
            least = "at least " if result.get("at_least") is True else ""
            return least + counted(result.get("total_count"), "entry", "entries")
        case "search_files":
            least = "at least " if result.get("truncated") is True else ""
            return least + counted(result.get("total_count"), "match", "matches")
        case "search_web":
            return counted(len(result.get("results") or []), "result", "results")
        case _:
            return str(result)


def output_lines(result: JsonObject) -> list[str]:
    """Return the last lines of a command's output, safe to print."""
    text = f"{result.get('stdout') or ''}{result.get('stderr') or ''}"
    lines = [shortened(line, 200) for line in text.splitlines()]
    left_out = len(lines) - OUTPUT_LINES
    return [f"… {left_out} lines before …", *lines[-OUTPUT_LINES:]] if left_out > 0 else lines


def effect_lines(result: JsonObject) -> Iterator[Text]:
    """Yield changed files, warnings, and weak isolation, safe to print."""
    changed = changed_files(result)
    if changed:
        yield Text(f"  {changed}")
    for warning in warnings_of(result):
        yield Text.assemble(("  warning: ", "bold red"), warning)
    weaker = weaker_isolation(result.get("isolation"))
    if weaker:
        yield Text(f"  {weaker}", style="yellow")


def changed_files(result: JsonObject) -> str:
    """Describe the files a call changed, safe to print; empty if none."""
    files = [cast(JsonObject, item) for item in _items(result.get("changed")) if isinstance(item, dict)]
    reported: Any = result.get("changed_count")
    count = max(len(files), reported if isinstance(reported, int) else 0)
    if count == 0:
        return ""
    names = [_changed_name(file) for file in files[:NAMED_FILES]]
    if count > len(names):
        names.append(f"{count - len(names)} more")
    return f"changed {counted(count, 'file', 'files')}: {', '.join(names)}"


def warnings_of(result: JsonObject) -> list[str]:
    """Return the warnings of a result, safe to print."""
    return [shortened(str(warning), 500) for warning in _items(result.get("warnings"))]


def _changed_name(file: JsonObject) -> str:
    # Quoted, so that one name cannot pass for two.
    name, change = shortened(shlex.quote(str(file.get("path"))), 120), file.get("change")
    return name if change == "changed" else f"{name} ({shortened(str(change), 20)})"


def weaker_isolation(isolation: object) -> str:
    """Describe missing isolation of a command, safe to print; empty if nothing is missing."""
    if not isinstance(isolation, dict) or not isolation:
        return ""
    applied = cast(JsonObject, isolation)
    gaps = [str(item) for item in _items(applied.get("degraded"))]
    if applied.get("isolated") is False or applied.get("backend") == "none":
        return shortened(" ".join(["It ran without isolation.", *gaps]), 200)
    if applied.get("backend") != "bwrap":
        gaps.insert(0, f"It was held by {applied.get('backend')} alone.")
    if not gaps:
        return ""
    first = re.split(r": |\. |\.$", gaps[0])[0]
    more = f" ({len(gaps) - 1} more)" if len(gaps) > 1 else ""
    return f"isolation is weaker than it should be: {shortened(first, 120)}{more}"


def _items(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


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
