"""Rows as frozen values (named tuples, which are quickest to make), and their wire models.

Executions and grants have theirs beside what changes them: `transitions`, `grants`.
"""

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from byleave.protocol.approvals import ApprovalRequest, Edit, Inspection
from byleave.protocol.chat import Message, Project, Run, Session
from byleave.protocol.grants import Suggestion
from byleave.protocol.states import (
    AgentMode,
    AnsweredFrom,
    ApprovalScope,
    ApprovalStatus,
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

    def to_wire(self, model: str | None = None) -> Run:
        return Run(
            run_id=self.id,
            project_id=self.project_id,
            session_id=self.session_id,
            agent=self.agent,
            state=self.state,
            mode=self.mode,
            model=model,
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
    edit: Edit | None = None
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
            edit=self.edit,
        )


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
    values["edit"] = Edit.model_validate_json(values["edit"]) if values["edit"] else None
    return ApprovalRow(**values, tool_ids=tool_ids)


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
