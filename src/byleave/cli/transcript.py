"""How a conversation looks on a terminal, and as JSON lines.

The agent's text goes to stdout as it streams; tool calls, their results shortened, and errors go to stderr. Every word
that came from elsewhere passes `shown`. A transcript only tells; it decides nothing.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any, Protocol, cast

from rich.text import Text

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
    """Tells a person or a program what happens."""

    def show(self, event: FeedEvent) -> None: ...

    def allowed(self, tool_id: str, by: str) -> None:
        """Who or what let a call run without a question here, in safe words; said before its end is shown."""
        ...

    def end_turn(self) -> None: ...


class JsonTranscript:
    """Each event as a line of JSON."""

    def show(self, event: FeedEvent) -> None:
        put_json(event.model_dump(mode="json"))

    def allowed(self, tool_id: str, by: str) -> None:
        pass  # a program asks for the execution

    def end_turn(self) -> None:
        pass


class TerminalTranscript:
    """For people."""

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
        """Messages start on a line of their own."""
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
    """A call in one line, not yet safe to print."""
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
    """How a call ended that did not complete, in one line, not yet safe to print."""
    told = event.error or ""
    if event.status is ExecutionStatus.FAILED and event.error_type is not None:
        kind = "failed" if event.error_type is ErrorType.TOOL_ERROR else event.error_type.value.replace("_", " ")
    else:
        kind = event.status.value
    # Many sentences begin with the word already: "Rejected by the user: …".
    return told if told.lower().startswith(kind) else f"{kind}: {told}"


def counted(number: object, one: str, many: str) -> str:
    """A number with its noun; `?` when it is not known."""
    return f"{'?' if number is None else number} {one if number == 1 else many}"


def result_summary(tool_name: str, result: JsonObject) -> str:
    """A result in one line, not yet safe to print."""
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
    """The last lines of a command's output, safe to print."""
    text = f"{result.get('stdout') or ''}{result.get('stderr') or ''}"
    lines = [shortened(line, 200) for line in text.splitlines()]
    left_out = len(lines) - OUTPUT_LINES
    return [f"… {left_out} lines before …", *lines[-OUTPUT_LINES:]] if left_out > 0 else lines


def effect_lines(result: JsonObject) -> Iterator[Text]:
    """What a call left behind, each warning, and what held it where that was too weak; safe to print."""
    changed = changed_files(result)
    if changed:
        yield Text(f"  {changed}")
    for warning in warnings_of(result):
        yield Text.assemble(("  warning: ", "bold red"), warning)
    weaker = weaker_isolation(result.get("isolation"))
    if weaker:
        yield Text(f"  {weaker}", style="yellow")


def changed_files(result: JsonObject) -> str:
    """How many files a call changed and which, safe to print; empty when it changed none."""
    files = [cast(JsonObject, item) for item in _items(result.get("changed")) if isinstance(item, dict)]
    told: Any = result.get("changed_count")
    count = max(len(files), told if isinstance(told, int) else 0)
    if count == 0:
        return ""
    names = [_changed_name(file) for file in files[:NAMED_FILES]]
    if count > len(names):
        names.append(f"{count - len(names)} more")
    return f"changed {counted(count, 'file', 'files')}: {', '.join(names)}"


def warnings_of(result: JsonObject) -> list[str]:
    """What a person should know of a result, safe to print."""
    return [shortened(str(warning), 500) for warning in _items(result.get("warnings"))]


def _changed_name(file: JsonObject) -> str:
    # Quoted, so that one name cannot pass for two.
    name, change = shortened(shlex.quote(str(file.get("path"))), 120), file.get("change")
    return name if change == "changed" else f"{name} ({shortened(str(change), 20)})"


def weaker_isolation(isolation: object) -> str:
    """One line about what held a command, safe to print; empty when nothing is missing."""
    if not isinstance(isolation, dict) or not isolation:
        return ""
    applied = cast(JsonObject, isolation)
    told = [str(item) for item in _items(applied.get("degraded"))]
    if applied.get("isolated") is False or applied.get("backend") == "none":
        return shortened(" ".join(["It ran without isolation.", *told]), 200)
    if applied.get("backend") != "bwrap":
        told.insert(0, f"It was held by {applied.get('backend')} alone.")
    if not told:
        return ""
    first = re.split(r": |\. |\.$", told[0])[0]
    more = f" ({len(told) - 1} more)" if len(told) > 1 else ""
    return f"isolation is weaker than it should be: {shortened(first, 120)}{more}"


def _items(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
