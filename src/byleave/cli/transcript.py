"""Views of a conversation: as JSON, as plain text for pipes, or on a terminal as it happens.

Plain output is stable: the agent's words on stdout, all else on stderr. Every text from elsewhere passes `shown`, so
that nothing in it moves a cursor. A transcript never asks and never decides.
"""

import re
import sys
from collections.abc import Iterator
from typing import Protocol, cast

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

from .screen import (
    RISK_STYLES,
    call_summary,
    changed_files,
    complain,
    counted,
    items_of,
    put_json,
    say,
    shortened,
    shown,
    warnings_of,
)

OUTPUT_LINES = 5
NO_ISOLATION = "It ran without isolation."


class Transcript(Protocol):
    """Shows the events of a conversation."""

    def begin_turn(self) -> None: ...

    def show(self, event: FeedEvent) -> None: ...

    def allowed(self, tool_id: str, by: str) -> None:
        """Note what let a call run without a question, as safe text, to be shown with its end."""
        ...

    def end_turn(self) -> None: ...


class JsonTranscript:
    """Prints each event as a line of JSON."""

    def begin_turn(self) -> None: ...

    def show(self, event: FeedEvent) -> None:
        put_json(event.model_dump(mode="json"))

    def allowed(self, tool_id: str, by: str) -> None:
        """Do nothing: a program fetches the execution."""

    def end_turn(self) -> None: ...


class PlainTranscript:
    """Shows events as plain lines, for pipes and logs."""

    def __init__(self) -> None:
        self._streamed = ""
        self._output_of: set[str] = set()
        self._allowed: dict[str, str] = {}
        self._gaps_told: set[str] = set()
        self._usage: RunUsage | None = None

    def begin_turn(self) -> None: ...

    def allowed(self, tool_id: str, by: str) -> None:
        """Note what let a call run without a question, as safe text, to be shown with its end."""
        self._allowed[tool_id] = by

    def show(self, event: FeedEvent) -> None:
        match event:
            case ChatText():
                self._stream(event.text)
            case ChatMessage(role="agent"):
                if "".join(event.content.split()) not in "".join(self._streamed.split()):  # lines were broken anew
                    self._break()
                    self._stream(event.content)
            case ToolStarted():
                self._note("→ ", call_summary(event.tool_name, event.tool_params), event.risk_level.value)
            case ToolOutput():
                self._output(event)
            case ToolFinished():
                self._finished(event)
            case ApprovalRequested():
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
            self._note("", usage_words(self._usage))
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
        for line in effect_lines(event.result or {}, self._gaps_told):
            say(line)

    def _waits(self, event: ApprovalRequested) -> None:
        self._break()
        say(f"Waits for approval ({event.risk_level.value}): {shortened(event.description, 300)}")
        for finding in event.findings:
            say(f"  why: {shortened(finding.reason, 300)}")
        say(f"hint: `byleave approvals approve {shown(event.approval_id)}` or `reject`, or answer on the chat page")


def usage_words(usage: RunUsage) -> str:
    """What a run used of its model, and what that costs if the price is known."""
    words = f"{counted(usage.requests, 'request', 'requests')}, {usage.input_tokens:,} tokens in"
    words = f"{words}, {usage.output_tokens:,} out"
    if usage.cost_usd is None:
        return words
    cost = float(usage.cost_usd)
    return f"{words}, {f'about ${cost:,.2f}' if cost >= 0.01 else 'under $0.01'}"


def failure_summary(event: ToolFinished) -> str:
    """Describe the outcome of a failed call in one line, not yet safe to print."""
    text = event.error or ""
    if event.status is ExecutionStatus.FAILED and event.error_type is not None:
        kind = "failed" if event.error_type is ErrorType.TOOL_ERROR else event.error_type.value.replace("_", " ")
    else:
        kind = event.status.value
    # Many sentences already begin with the word: "Rejected by the user: …".
    return text if text.lower().startswith(kind) else f"{kind}: {text}"


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


def effect_lines(result: JsonObject, told: set[str]) -> Iterator[Text]:
    """Yield changed files, warnings, and weak isolation, safe to print.

    The same weak isolation is said once; `told` holds what was. That there was none is said each time.
    """
    changed = changed_files(result)
    if changed:
        yield Text(f"  {changed}")
    for warning in warnings_of(result):
        yield Text.assemble(("  warning: ", "bold red"), warning)
    isolation = result.get("isolation")
    weaker = weaker_isolation(isolation)
    gaps = str(cast(JsonObject, isolation or {}).get("degraded")) if weaker else ""
    if weaker and (weaker.startswith(NO_ISOLATION) or gaps not in told):
        told.add(gaps)
        yield Text(f"  {weaker}", style="yellow")


def weaker_isolation(isolation: object) -> str:
    """Describe missing isolation of a command, safe to print; empty if nothing is missing."""
    if not isinstance(isolation, dict) or not isolation:
        return ""
    applied = cast(JsonObject, isolation)
    gaps = [str(item) for item in items_of(applied.get("degraded"))]
    if applied.get("isolated") is False or applied.get("backend") == "none":
        return shortened(" ".join([NO_ISOLATION, *gaps]), 200)
    if applied.get("backend") != "bwrap":
        gaps.insert(0, f"It was held by {applied.get('backend')} alone.")
    if not gaps:
        return ""
    first = re.split(r": |\. |\.$", gaps[0])[0]
    more = f" ({len(gaps) - 1} more)" if len(gaps) > 1 else ""
    return f"isolation is weaker than it should be: {shortened(first, 120)}{more}"
