"""Approvals: the question put to a person, and the answer."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from .states import ApprovalStatus, RiskLevel
from .values import JsonObject, Timestamp, Word
from .verdicts import Finding

Reason = Annotated[str, StringConstraints(max_length=1000)]


class ApprovalRequest(Word):
    """The question. What is shown here is what runs: `digest` covers the tool, its true parameters and project."""

    id: str
    user_id: str
    project_id: str
    session_id: str | None
    agent_id: str | None
    tool_ids: list[str]
    """The executions that wait for it; identical calls join one question."""
    tool_name: str
    tool_params: JsonObject
    """As shown: secrets masked, long text shortened and said so."""
    digest: str
    risk_level: RiskLevel
    findings: list[Finding]
    network: bool
    """Whether approving lets it use the network."""
    description: str
    """What would happen, made from the stored parameters, safe to print."""
    status: ApprovalStatus
    timeout_seconds: int
    created_at: Timestamp
    deadline: Timestamp
    decided_at: Timestamp | None = None
    decided_by: str | None = None
    reason: str | None = None
    scope: str | None = None


class ApprovalList(Word):
    approvals: list[ApprovalRequest]
    total_count: int


class ApproveBody(Word):
    decision: Literal["approved"] = "approved"
    scope: Literal["once"] = "once"
    """How far the answer reaches."""
    digest: str | None = Field(default=None, max_length=64)
    """The digest that was shown; when given it must be the one that waits."""


class RejectBody(Word):
    decision: Literal["rejected"] = "rejected"
    reason: Reason | None = None
    """Told to the agent."""


class ConfirmBody(Word):
    """A decision without the project in the path (R9)."""

    decision: Literal["approved", "rejected"]
    reason: Reason | None = None
    scope: Literal["once"] = "once"
    digest: str | None = Field(default=None, max_length=64)


class DecisionAnswer(Word):
    success: bool
    approval_id: str
    status: ApprovalStatus
    message: str
