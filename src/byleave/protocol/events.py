"""Events of the feed. Each has a `kind` (the SSE `event:` field) and a time; the feed adds the `id:`.

A signal is for one client; all other events are for everyone who watches the project. Results in events are shortened
and say so; `GET /my/tools/{tool_id}` returns them whole.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from .approvals import Edit, Inspection
from .grants import Grant, Suggestion
from .overview import Machine
from .states import (
    AgentMode,
    AnsweredFrom,
    ApprovalScope,
    ApprovalStatus,
    ErrorType,
    ExecutionStatus,
    RiskLevel,
    RunState,
)
from .verdicts import Finding
from .wire import JsonObject, Timestamp, Traceparent, WireModel


class Event(WireModel):
    timestamp: Timestamp


class ApprovalRequested(Event):
    kind: Literal["tool.approval_request"] = "tool.approval_request"
    approval_id: str
    tool_id: str
    tool_name: str
    risk_level: RiskLevel
    timeout_seconds: int
    description: str
    tool_params: JsonObject
    findings: list[Finding]
    network: bool
    digest: str
    deadline: Timestamp
    session_id: str | None
    agent_id: str | None
    inspection: Inspection | None = None
    suggestions: list[Suggestion] = Field(default_factory=list[Suggestion])
    edit: Edit | None = None
    """Set if a person changed the call: everything else here is about the changed one."""
    calls: int = 1
    """Calls that wait for the answer. Sent again, with the new call's `tool_id`, when an identical call joins."""


class ApprovalDecided(Event):
    kind: Literal["tool.approval_decided"] = "tool.approval_decided"
    approval_id: str
    tool_ids: list[str]
    status: ApprovalStatus
    decided_by: str | None
    reason: str | None
    session_id: str | None
    scope: ApprovalScope | None = None
    grant_id: str | None = None
    decided_from: AnsweredFrom | None = None
    """Kind of client the person answered from; null if no person did."""


class InspectionRequested(Event):
    """Asks the executing client to inspect the files that the call would run."""

    kind: Literal["tool.inspection_request"] = "tool.inspection_request"
    tool_id: str
    tool_name: str
    tool_params: JsonObject
    """The true parameters."""
    client_id: str
    session_id: str


class UndoRequested(Event):
    """Asks the client that executed a call to preview or carry out its undo."""

    kind: Literal["tool.undo_request"] = "tool.undo_request"
    request_id: str
    tool_id: str
    client_id: str
    session_id: str
    plan: str | None
    """Plan to carry out; null for a preview."""
    partial: bool
    deadline: Timestamp
    """Nobody waits after this: do not carry it out later."""
    keep_off: dict[str, list[str]] = Field(default_factory=dict[str, list[str]])
    """Paths denied by the server's rules, by tool; the machine adds its owner's."""


class SessionUndoRequested(Event):
    """Asks a client to preview or carry out the undo of all its calls of a conversation."""

    kind: Literal["session.undo_request"] = "session.undo_request"
    request_id: str
    tool_id: str
    """The oldest of the calls."""
    tool_ids: list[str]
    """Newest first."""
    client_id: str
    session_id: str
    plan: str | None
    """Plan to carry out; null for a preview."""
    partial: bool
    deadline: Timestamp
    """Nobody waits after this: do not carry it out later."""
    keep_off: dict[str, list[str]] = Field(default_factory=dict[str, list[str]])
    """Paths denied by the server's rules, by tool; the machine adds its owner's."""


class ToolUndone(Event):
    """The file changes of a call were undone."""

    kind: Literal["tool.undone"] = "tool.undone"
    tool_id: str
    undo_id: str | None
    files: int
    undone_by: str
    session_id: str


class MachinesChanged(Event):
    """A client connected or left; lists all that are connected."""

    kind: Literal["project.machines"] = "project.machines"
    machines: list[Machine]


class FeedGap(Event):
    """Events after the last one the reader got were removed by age: read the record again.

    Sent in their place, under the reader's last number; it is not part of the feed itself.
    """

    kind: Literal["feed.gap"] = "feed.gap"
    oldest: int
    """The number after which nothing is missing."""


class GrantChanged(Event):
    """A grant was given, used or revoked."""

    kind: Literal["grant.changed"] = "grant.changed"
    grant: Grant


class ExecutionSignal(Event):
    kind: Literal["tool.execution_signal"] = "tool.execution_signal"
    tool_id: str
    tool_name: str
    tool_params: JsonObject
    """The true parameters."""
    digest: str
    """Digest of the approved call; the client computes it again and refuses a difference."""
    risk_level: RiskLevel
    approval_id: str | None
    approved_by: str
    """`risk:LOW`, `person:alice`, `mode:full`, `grant:…`, `rule:…`."""
    bound: dict[str, str] = Field(default_factory=dict[str, str])
    """Files the approval is bound to, with the digests that were shown."""
    mode: AgentMode
    network: bool
    deadline: Timestamp
    """Deadline of the result. A call that was queued by the client gets a new one when it begins."""
    client_id: str
    session_id: str
    traceparent: Traceparent = None
    """Parent of the client's spans if the server traces; decides nothing."""


class ExecutionCancelSignal(Event):
    kind: Literal["tool.cancel_signal"] = "tool.cancel_signal"
    tool_id: str
    client_id: str
    session_id: str


class ResultAcknowledged(Event):
    kind: Literal["tool.result_ack"] = "tool.result_ack"
    tool_id: str
    status: ExecutionStatus
    session_id: str


class ToolStarted(Event):
    kind: Literal["tool.started"] = "tool.started"
    tool_id: str
    tool_name: str
    tool_params: JsonObject
    risk_level: RiskLevel
    session_id: str
    run_id: str | None
    approved_by: str | None = None
    """Reason it ran without a question: `risk:LOW`, `mode:full`, `grant:…`, `rule:…`; null if it asks."""


class ToolQueued(Event):
    """A call waits in the machine's queue, or leaves it and begins."""

    kind: Literal["tool.queued"] = "tool.queued"
    tool_id: str
    waits: bool
    session_id: str


class ToolFinished(Event):
    kind: Literal["tool.finished"] = "tool.finished"
    tool_id: str
    tool_name: str
    status: ExecutionStatus
    result: JsonObject | None
    result_shortened: bool
    error: str | None
    error_type: ErrorType | None
    execution_time_ms: int | None
    session_id: str
    run_id: str | None
    approved_by: str | None = None


class ToolOutput(Event):
    kind: Literal["tool.output"] = "tool.output"
    tool_id: str
    stream: Literal["stdout", "stderr"]
    text: str
    sequence: int
    session_id: str


class ChatMessage(Event):
    kind: Literal["chat.message"] = "chat.message"
    message_id: str
    session_id: str
    run_id: str | None
    role: Literal["user", "agent"]
    content: str


class ChatText(Event):
    """A piece of the agent's text as it streams."""

    kind: Literal["chat.text"] = "chat.text"
    session_id: str
    run_id: str
    text: str


class RunChanged(Event):
    kind: Literal["chat.run"] = "chat.run"
    session_id: str
    run_id: str
    state: RunState


class RunUsage(Event):
    """Model usage of a run so far."""

    kind: Literal["chat.usage"] = "chat.usage"
    session_id: str
    run_id: str
    requests: int
    """Number of model responses."""
    input_tokens: int
    output_tokens: int
    cost_usd: str | None = None
    """US dollars at the providers' list prices, as a decimal number; null if the price is not known."""


class SessionChanged(Event):
    """A person renamed or deleted a conversation."""

    kind: Literal["chat.session"] = "chat.session"
    session_id: str
    title: str
    """Empty if it was deleted."""
    deleted: bool


class ChatError(Event):
    kind: Literal["chat.error"] = "chat.error"
    session_id: str
    run_id: str | None
    message: str
    hint: str | None


FeedEvent = Annotated[
    ApprovalRequested
    | ApprovalDecided
    | InspectionRequested
    | UndoRequested
    | SessionUndoRequested
    | ToolUndone
    | MachinesChanged
    | FeedGap
    | GrantChanged
    | ExecutionSignal
    | ExecutionCancelSignal
    | ResultAcknowledged
    | ToolStarted
    | ToolQueued
    | ToolFinished
    | ToolOutput
    | ChatMessage
    | ChatText
    | RunChanged
    | RunUsage
    | SessionChanged
    | ChatError,
    Field(discriminator="kind"),
]

# Built with the first event that is read: few processes read any.
FEED_EVENT: TypeAdapter[FeedEvent] = TypeAdapter(FeedEvent, config={"defer_build": True})
