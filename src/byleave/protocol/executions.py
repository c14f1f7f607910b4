"""Executions: the call of a tool, the agent's response, the record, and a client's report.

`ToolCaller` is the interface by which all adapters execute tools for an agent: `byleave.Machine` implements it over
HTTP, `byleave.agents.LocalCaller` inside the server. Nothing here asks for an approval or carries one: the caller
learns how the call ended, and cannot say that it was allowed.
"""

import re
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import Field, StringConstraints

from .approvals import Decision, Edit
from .states import AgentMode, ClientResultStatus, ErrorType, ExecutionStatus, ResponseStatus, RiskLevel
from .wire import Count, Identifier, JsonObject, Timestamp, Whole, WireModel

MAX_ERROR_CHARACTERS = 1000
MAX_BATCH = 64
"""Most reports in a batch."""


class ToolResponse(WireModel):
    """Response of `execute_tool` and of `POST /my/tools/execute`."""

    tool_id: str
    tool_name: str
    status: ResponseStatus
    result: JsonObject | None = None
    error: str | None = None
    approval_id: str | None = None
    error_type: ErrorType | None = None
    hint: str | None = None
    """An alternative to a refused call, for the agent."""
    edited: str | None = None
    """Set if the user changed the call before allowing it: what was changed, for the agent."""


class ExecuteRequest(WireModel):
    """A call from an agent that runs elsewhere (R7)."""

    project_id: Identifier | None = None
    """Optional if `session_id` is given."""
    tool_name: str = Field(max_length=100)
    tool_params: JsonObject
    session_id: Identifier | None = None
    """Defaults to the agent's own session in the project."""
    mode: AgentMode | None = None
    """Approval mode, never wider than the token allows; defaults to the token's mode."""
    agent_id: Identifier | None = None
    """Ignored: the token names the agent."""
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    """Same key in the same session means same call: a repeated request never runs twice. Without a session_id the key
    is unique in the whole project, for all tokens of the agent. Agents of other names have keys of their own.
    """


class Execution(WireModel):
    """Record of one call (D). Secrets in parameters and result are masked."""

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
    """Person or rule that let it run: `risk:LOW`, `person:alice`, `mode:full`, `grant:…`, `rule:…`."""
    decision: Decision | None = None
    """Outcome of its question: who answered, where and when, or that nobody did in time; null if nobody was asked or
    the question is open.
    """
    edit: Edit | None = None
    """Set if a person changed the call before allowing it."""
    status: ExecutionStatus
    error: str | None
    error_type: ErrorType | None
    execution_time_ms: int | None
    """Time of the work alone, without waiting."""
    created_at: Timestamp
    approved_at: Timestamp | None
    started_at: Timestamp | None = None
    """Time the client began; null before that, also while the call is in the client's queue."""
    completed_at: Timestamp | None


class ExecutionPage(WireModel):
    executions: list[Execution]
    total_count: int
    """Calls that fit the filter, among the newest 10,000."""
    total_is_exact: bool = True
    """False if there are more than these 10,000 to look through."""
    next_cursor: str | None = None
    """Pass as `cursor` for the next page; null on the last page."""


class CompletedReport(WireModel):
    """Result reported by a client."""

    status: Literal["completed"]
    result: JsonObject
    duration_ms: Count | None = None
    timestamp: Timestamp | None = None


class FailedReport(WireModel):
    """Failure reported by a client."""

    status: Literal["failed"]
    error: str
    error_type: ErrorType | None = None
    result: JsonObject | None = None
    """Partial result, such as the output of a command that timed out."""
    duration_ms: Count | None = None
    timestamp: Timestamp | None = None


ResultReport = Annotated[CompletedReport | FailedReport, Field(discriminator="status")]


class ResultAck(WireModel):
    """Server's answer to a report."""

    success: bool
    tool_id: str
    status: ExecutionStatus
    message: str


class ReportOf(WireModel):
    """A report with the call it is about."""

    tool_id: Identifier
    report: ResultReport


class ResultBatch(WireModel):
    """Reports that a client had ready at the same time."""

    results: list[ReportOf] = Field(max_length=MAX_BATCH)


class BatchAck(WireModel):
    """Server's answer to a batch of reports."""

    accepted: list[str]
    """Calls whose result is stored. Report on each of the others alone: the answer says why."""


class QueueReport(WireModel):
    """Calls in a client's queue: signalled, but not begun."""

    tool_ids: list[Identifier] = Field(max_length=1000)


class Begun(WireModel):
    """Start of a call that was queued by the client, and the deadline of its result."""

    started_at: Timestamp
    deadline: Timestamp


class OutputChunk(WireModel):
    """Output of a running command."""

    stream: Literal["stdout", "stderr"]
    text: str = Field(max_length=65536)
    sequence: Whole = Field(ge=0, lt=2**31 - 1)
    """Counts up from 0 for each execution; a repeated number is dropped."""


class ClientResult(WireModel):
    """Outcome of an execution on the user's machine (C7), kept in the client's history."""

    tool_id: str
    tool_name: str
    status: ClientResultStatus
    result: dict[str, Any] | None = None
    error: str | None = None
    error_type: ErrorType | None = None
    duration_ms: int
    timestamp: Timestamp


CALLS = uuid.UUID("5a1d8a52-6f0e-4d3c-9a52-0d6f5a2f7c11")
"""Namespace of execution ids: the same call of the same run has the same id after a restart."""


OWN_SESSION = "sess_agent_"
"""Prefix of the ids of agents' own sessions: no other agent may name one."""

OWN_LISTINGS = "sess_listings_"
"""Prefix of the ids of sessions that hold a person's own listings, and no conversation."""


def listings_session_id(user_id: str, project_id: str) -> str:
    """Return the session id of what a person lists to name a file in a message."""
    return OWN_LISTINGS + uuid.uuid5(CALLS, f"{user_id}/{project_id}").hex


def own_session_id(user_id: str, project_id: str, agent_id: str) -> str:
    """Return the session id of an external agent in one project."""
    return OWN_SESSION + uuid.uuid5(CALLS, f"{user_id}/{project_id}/{agent_id}").hex


NUMBER_DIGITS = 12
ELSEWHERE = re.compile(rf"(.+)-[0-9a-f]{{{NUMBER_DIGITS}}}")
"""The id of an agent that runs elsewhere: its name and a piece of its token's digest. No agent of the chat has one."""


UNNAMED = "agent"
"""The name of an external agent whose token gives none: each such token is an agent of its own."""

PROGRAM = "program"
"""The id of the caller that all programs of a person share, whichever of the person's tokens they have."""

PROGRAM_WORDS = "a program with your token"
"""That caller on screens; `asker` in `ui/src/text/words.ts` says the same."""


def agent_name(agent_id: str | None) -> str:
    """Return the name that all tokens of an external agent share; empty for chat agents and a person's programs."""
    numbered = ELSEWHERE.fullmatch(agent_id or "")
    return "" if numbered is None else numbered[0] if numbered[1] == UNNAMED else numbered[1]


def key_scope(user_id: str, project_id: str, session_id: str, agent_id: str | None) -> str:
    """Return the scope in which a key is unique: agents of one name in a session, or in the project for their own.

    A renewed token begins another session with another number behind the name, and its keys must still match.
    """
    where = f"{user_id}/{project_id}" if session_id.startswith(OWN_SESSION) else session_id
    # Callers without an agent's name get one that no agent can have.
    return f"{where}/{agent_name(agent_id) or f'-{agent_id}'}"


def id_of_call(scope: str, key: str, group: str | None = None) -> str:
    """Return the id of the call with this key in this run or `key_scope`; the ids of a group begin alike."""
    digits = uuid.uuid5(CALLS, f"{scope}/{key}").hex
    return f"exec_{digits}" if group is None else group_prefix(scope, group) + digits[GROUP_DIGITS:]


GROUP_DIGITS = 16


def group_prefix(scope: str, group: str) -> str:
    """Return what the ids of a group's calls begin with."""
    return f"exec_{uuid.uuid5(CALLS, f'{scope}/{group}').hex[:GROUP_DIGITS]}"


def has_ended(response: ToolResponse) -> bool:
    """Return True if there is nothing more to wait for."""
    return response.status not in (ResponseStatus.PENDING, ResponseStatus.AWAITING_APPROVAL)


class ToolCaller(Protocol):
    """Executes tools on the machine of one project's user.

    No method raises for an agent's input or a person's decision: the response holds both.
    """

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call. Return at its end, or as soon as a person has to be asked.

        `key` identifies the call: the same key again finds the same execution instead of a new one.
        """
        ...

    async def wait(self, tool_id: str, seconds: float | None = None) -> ToolResponse:
        """Wait for the end of a call, or at most `seconds`; return its current state."""
        ...

    async def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call and wait for its end, however long a person takes. Cancelling this cancels the call."""
        ...

    async def cancel(self, tool_id: str) -> bool:
        """Cancel a call; return False if it had ended already."""
        ...


@runtime_checkable
class BlockingCaller(Protocol):
    """The same for code without an event loop: every method waits. `byleave.SyncMachine` is one."""

    @property
    def caller(self) -> ToolCaller:
        """The same calls for an event loop, whichever it is."""
        ...

    def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse: ...

    def wait(self, tool_id: str, seconds: float | None = None) -> ToolResponse: ...

    def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse: ...

    def cancel(self, tool_id: str) -> bool: ...
