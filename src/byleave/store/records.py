"""Rows as frozen values (named tuples, which are quickest to make), and their wire models.

`true_params` never leaves through `to_wire`: the record shows masked parameters, only the executing client gets the
true ones.
"""

import json
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter

from byleave.gate import mask_text
from byleave.protocol.approvals import ApprovalRequest, Decision, Inspection
from byleave.protocol.chat import Message, Project, Run, Session
from byleave.protocol.executions import Execution, ToolResponse
from byleave.protocol.grants import Suggestion
from byleave.protocol.states import (
    RESPONSE_STATUS,
    AgentMode,
    AnsweredFrom,
    ApprovalScope,
    ApprovalStatus,
    ErrorType,
    ExecutionStatus,
    RiskLevel,
    RunState,
)
from byleave.protocol.verdicts import Finding
from byleave.protocol.wire import JsonObject

from .database import Row

SUGGESTIONS: TypeAdapter[list[Suggestion]] = TypeAdapter(list[Suggestion])


class ProjectRow(NamedTuple):
    id: str
    user_id: str
    name: str
    workspace: str | None
    isolation: str | None
    created_at: str

    def to_wire(self) -> Project:
        return Project(project_id=self.id, name=self.name, created_at=self.created_at)


class SessionRow(NamedTuple):
    id: str
    project_id: str
    user_id: str
    title: str
    created_at: str

    def to_wire(self) -> Session:
        return Session(session_id=self.id, project_id=self.project_id, title=self.title, created_at=self.created_at)


class MessageRow(NamedTuple):
    id: str
    session_id: str
    run_id: str | None
    role: str
    content: str
    created_at: str

    def to_wire(self) -> Message:
        return Message(
            message_id=self.id,
            session_id=self.session_id,
            run_id=self.run_id,
            role="user" if self.role == "user" else "agent",
            content=self.content,
            created_at=self.created_at,
        )


class RunRow(NamedTuple):
    id: str
    project_id: str
    session_id: str
    user_id: str
    agent: str
    mode: AgentMode
    state: RunState
    prompt: str
    history: str | None
    owner: str | None
    fence: int
    attempts: int
    error: str | None
    position: int
    created_at: str
    updated_at: str

    def to_wire(self) -> Run:
        return Run(
            run_id=self.id,
            project_id=self.project_id,
            session_id=self.session_id,
            agent=self.agent,
            state=self.state,
            mode=self.mode,
            error=self.error,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


class ApprovalRow(NamedTuple):
    id: str
    user_id: str
    project_id: str
    session_id: str | None
    agent_id: str | None
    tool_name: str
    tool_params: JsonObject
    digest: str
    risk_level: RiskLevel
    findings: tuple[Finding, ...]
    network: bool
    description: str
    status: ApprovalStatus
    timeout_seconds: int
    created_at: str
    deadline: str
    decided_at: str | None
    decided_by: str | None
    reason: str | None
    scope: ApprovalScope | None
    inspection: Inspection | None = None
    suggestions: tuple[Suggestion, ...] = ()
    unseen: str | None = None
    """Unseen changes it named, as JSON; None if no code of the workspace would run."""
    grant_id: str | None = None
    decided_from: AnsweredFrom | None = None
    tool_ids: tuple[str, ...] = ()

    def to_wire(self) -> ApprovalRequest:
        return ApprovalRequest(
            id=self.id,
            user_id=self.user_id,
            project_id=self.project_id,
            session_id=self.session_id,
            agent_id=self.agent_id,
            tool_ids=list(self.tool_ids),
            tool_name=self.tool_name,
            tool_params=self.tool_params,
            digest=self.digest,
            risk_level=self.risk_level,
            findings=list(self.findings),
            network=self.network,
            description=self.description,
            status=self.status,
            timeout_seconds=self.timeout_seconds,
            created_at=self.created_at,
            deadline=self.deadline,
            decided_at=self.decided_at,
            decided_by=self.decided_by,
            reason=self.reason,
            scope=self.scope,
            inspection=self.inspection,
            suggestions=list(self.suggestions),
            grant_id=self.grant_id,
            decided_from=self.decided_from,
        )


class ExecutionRow(NamedTuple):
    id: str
    user_id: str
    project_id: str
    session_id: str
    run_id: str | None
    agent_id: str | None
    mode: AgentMode
    approval_id: str | None
    client_id: str | None
    tool_name: str
    tool_params: str
    true_params: str | None
    digest: str
    request_digest: str | None
    bound: str | None
    result: str | None
    result_hash: str | None
    risk_level: RiskLevel
    requires_approval: bool
    findings: str
    network: bool
    approved_by: str | None
    status: ExecutionStatus
    error: str | None
    error_type: ErrorType | None
    execution_time_ms: int | None
    timeout_seconds: int
    deadline: str | None
    output_seq: int
    cancel_requested: bool
    created_at: str
    approved_at: str | None
    started_at: str | None
    completed_at: str | None

    def to_wire(self, decision: Decision | None = None) -> Execution:
        return Execution(
            tool_id=self.id,
            user_id=self.user_id,
            project_id=self.project_id,
            session_id=self.session_id,
            run_id=self.run_id,
            agent_id=self.agent_id,
            mode=self.mode,
            approval_id=self.approval_id,
            client_id=self.client_id,
            tool_name=self.tool_name,
            tool_params=json.loads(self.tool_params),
            digest=self.digest,
            result=json.loads(self.result) if self.result is not None else None,
            risk_level=self.risk_level,
            requires_approval=self.requires_approval,
            # As asked, they show all that could act; the record keeps less.
            reasons=[mask_text(finding["reason"]) for finding in json.loads(self.findings)],
            approved_by=self.approved_by,
            decision=decision,
            status=self.status,
            error=self.error,
            error_type=self.error_type,
            execution_time_ms=self.execution_time_ms,
            created_at=self.created_at,
            approved_at=self.approved_at,
            started_at=self.started_at,
            completed_at=self.completed_at,
        )

    @property
    def queued(self) -> bool:
        """True while it waits in its client's queue."""
        return self.status is ExecutionStatus.EXECUTING and self.started_at is None

    def to_response(self) -> ToolResponse:
        """The answer to the agent that called."""
        return ToolResponse(
            tool_id=self.id,
            tool_name=self.tool_name,
            status=RESPONSE_STATUS[self.status],
            result=json.loads(self.result) if self.result is not None else None,
            error=self.error,
            approval_id=self.approval_id,
            error_type=self.error_type,
            hint=self.hint,
        )

    def response_json(self) -> bytes:
        """`to_response` as JSON, without parsing and serializing the result again."""
        head = ToolResponse(
            tool_id=self.id,
            tool_name=self.tool_name,
            status=RESPONSE_STATUS[self.status],
            error=self.error,
            approval_id=self.approval_id,
            error_type=self.error_type,
            hint=self.hint,
        ).model_dump_json(exclude={"result"})
        return f'{{"result":{self.result or "null"},{head[1:]}'.encode()

    @property
    def hint(self) -> str | None:
        """Advice for a call the gate refused."""
        if self.error_type not in (ErrorType.INVALID, ErrorType.REFUSED):
            return None
        findings = json.loads(self.findings)
        return findings[0].get("instead") if findings else None


class StoredEvent(NamedTuple):
    """An event of a project's feed, ready to be sent."""

    project_id: str
    seq: int
    kind: str
    target: str | None
    ref: str | None
    payload: str


class AuditRecord(NamedTuple):
    """A link of a project's audit chain."""

    project_id: str
    seq: int
    at: str
    actor: str
    action: str
    execution_id: str | None
    approval_id: str | None
    detail: str
    previous_hash: str
    hash: str


def project_row(row: Row) -> ProjectRow:
    return ProjectRow(**_only(row, ProjectRow))


def session_row(row: Row) -> SessionRow:
    return SessionRow(**_only(row, SessionRow))


def message_row(row: Row) -> MessageRow:
    return MessageRow(**_only(row, MessageRow))


def audit_record(row: Row) -> AuditRecord:
    return AuditRecord(**_only(row, AuditRecord))


def run_row(row: Row) -> RunRow:
    values = _only(row, RunRow)
    values["mode"] = AgentMode(values["mode"])
    values["state"] = RunState[values["state"]]
    return RunRow(**values)


def approval_row(row: Row, tool_ids: tuple[str, ...] = ()) -> ApprovalRow:
    values = {name: row[name] for name in _APPROVAL_COLUMNS}
    values["tool_params"] = json.loads(values["tool_params"])
    values["risk_level"] = RiskLevel(values["risk_level"])
    values["findings"] = tuple(Finding(**finding) for finding in json.loads(values["findings"]))
    values["network"] = bool(values["network"])
    values["status"] = ApprovalStatus(values["status"])
    values["scope"] = ApprovalScope(values["scope"]) if values["scope"] else None
    values["decided_from"] = AnsweredFrom(values["decided_from"]) if values["decided_from"] else None
    inspection, suggestions = values["inspection"], values["suggestions"]
    values["inspection"] = Inspection.model_validate_json(inspection) if inspection else None
    values["suggestions"] = tuple(SUGGESTIONS.validate_json(suggestions)) if suggestions else ()
    return ApprovalRow(**values, tool_ids=tool_ids)


def execution_row(row: Row) -> ExecutionRow:
    """The row of a statement that selects `columns(ExecutionRow)`, in this order.

    An ended call has no true parameters. The chain does not cover them, so any that are there are somebody else's.
    """
    values: list[Any] = [*cast("Iterable[Any]", row)]
    for position, read in _EXECUTION_READERS:
        values[position] = read(values[position])
    made = ExecutionRow._make(values)
    return made if made.true_params is None or not made.status.ended else made._replace(true_params=None)


_EXECUTION_READERS: tuple[tuple[int, Callable[[Any], Any]], ...] = tuple(
    (ExecutionRow._fields.index(name), read)
    for name, read in (
        ("mode", {mode.value: mode for mode in AgentMode}.__getitem__),
        ("risk_level", {level.value: level for level in RiskLevel}.__getitem__),
        ("requires_approval", bool),
        ("network", bool),
        ("cancel_requested", bool),
        ("status", {status.name: status for status in ExecutionStatus}.__getitem__),
        ("error_type", {None: None, **{kind.value: kind for kind in ErrorType}}.__getitem__),
    )
)


def _only(row: Row, kind: type[Any]) -> dict[str, Any]:
    return {name: row[name] for name in kind._fields}


_APPROVAL_COLUMNS = tuple(name for name in ApprovalRow._fields if name != "tool_ids")


def columns(kind: type[Any], prefix: str = "") -> str:
    """The columns a row of this kind is read from."""
    names = (name for name in kind._fields if name != "tool_ids")
    return ", ".join(f"{prefix}{name}" for name in names)


def placeholders(values: Collection[str]) -> str:
    """`(a, b) VALUES (:a, :b)`; the names are our own column names, never input."""
    return f"({', '.join(values)}) VALUES ({', '.join(':' + name for name in values)})"
