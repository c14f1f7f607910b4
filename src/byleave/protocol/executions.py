"""Executions as the API tells them: the response an agent gets, the record, and a client's report."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt, StringConstraints

from .approvals import Decision
from .states import AgentMode, ClientResultStatus, ErrorType, ExecutionStatus, ResponseStatus, RiskLevel
from .wire import Identifier, JsonObject, Timestamp, WireModel

MAX_ERROR_CHARACTERS = 1000


class ToolResponse(WireModel):
    """What `execute_tool` returns and `POST /my/tools/execute` answers."""

    tool_id: str
    tool_name: str
    status: ResponseStatus
    result: JsonObject | None = None
    error: str | None = None
    approval_id: str | None = None
    error_type: ErrorType | None = None
    hint: str | None = None
    """What the agent could do instead of what was refused."""


class ExecuteRequest(WireModel):
    """A call from an agent that runs elsewhere (R7)."""

    project_id: Identifier | None = None
    """May be left out where `session_id` tells it."""
    tool_name: str = Field(max_length=100)
    tool_params: JsonObject
    session_id: Identifier | None = None
    """Left out: the agent's own session in the project."""
    mode: AgentMode | None = None
    """How much to ask, never wider than the token allows; left out: as the token says."""
    agent_id: Identifier | None = None
    """Not used any more: an agent is called what its token says."""
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    """The same key in the same session names the same call: a repeated request never runs twice. Without a session_id
    that holds in the whole project, whichever of the agent's tokens it comes with."""


class Execution(WireModel):
    """The record of one call (D). Parameters and result have their secrets masked."""

    tool_id: str
    user_id: str
    project_id: str
    session_id: str
    run_id: str | None
    agent_id: str | None
    mode: AgentMode
    approval_id: str | None
    client_id: str | None
    tool_name: str
    tool_params: JsonObject
    digest: str
    result: JsonObject | None
    risk_level: RiskLevel
    requires_approval: bool
    reasons: list[str]
    approved_by: str | None
    """Who or what let it run: `risk:LOW`, `person:alice`, `mode:full`, `grant:…`, `rule:…`."""
    decision: Decision | None = None
    """How its question ended: by whom, where and when it was allowed or denied, or that nobody answered in time; null
    when nobody was asked, or the question still waits."""
    status: ExecutionStatus
    error: str | None
    error_type: ErrorType | None
    execution_time_ms: int | None
    """The work alone, without what it waited for."""
    created_at: Timestamp
    approved_at: Timestamp | None
    started_at: Timestamp | None = None
    """When the client began with it; null before that, also while it waits in the client's queue."""
    completed_at: Timestamp | None


class ExecutionPage(WireModel):
    executions: list[Execution]
    total_count: int
    next_cursor: str | None = None
    """Pass as `cursor` to go on; null at the end."""


class CompletedReport(WireModel):
    """A client's result."""

    status: Literal["completed"]
    result: JsonObject
    duration_ms: StrictInt | None = Field(default=None, ge=0)
    timestamp: Timestamp | None = None


class FailedReport(WireModel):
    """A client's failure."""

    status: Literal["failed"]
    error: str
    error_type: ErrorType | None = None
    result: JsonObject | None = None
    """What there is all the same, such as the output of a command that timed out."""
    duration_ms: StrictInt | None = Field(default=None, ge=0)
    timestamp: Timestamp | None = None


ResultReport = Annotated[CompletedReport | FailedReport, Field(discriminator="status")]


class ResultAck(WireModel):
    """The server's answer to a report."""

    success: bool
    tool_id: str
    status: ExecutionStatus
    message: str


class QueueReport(WireModel):
    """Calls that a client was signalled and has not begun: others come first."""

    tool_ids: list[Identifier] = Field(max_length=1000)


class Begun(WireModel):
    """When a call that had waited in a client's queue was begun, and when the server gives up on its result."""

    started_at: Timestamp
    deadline: Timestamp


class OutputChunk(WireModel):
    """Output of a command while it runs."""

    stream: Literal["stdout", "stderr"]
    text: str = Field(max_length=65536)
    sequence: StrictInt = Field(ge=0, le=2**31)
    """Counts up from 0 for each execution; a repeated number is dropped."""


class ClientResult(WireModel):
    """How an execution ended on the user's machine (C7), kept in the client's history."""

    tool_id: str
    tool_name: str
    status: ClientResultStatus
    result: dict[str, Any] | None = None
    error: str | None = None
    error_type: ErrorType | None = None
    duration_ms: int
    timestamp: Timestamp
