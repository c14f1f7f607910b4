"""Approvals: the question put to a person, and the answer.

The digest that ties an approval to exactly what was shown.

Server and client compute it independently from the parameters they hold. Canonical JSON: sorted keys, no
spaces, no NaN; what JSON cannot say the same way twice is refused rather than guessed.
"""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints
from pydantic_core import to_json

from .grants import GrantTerms, Suggestion
from .inspections import Inspection
from .states import AnsweredFrom, ApprovalScope, ApprovalStatus, RiskLevel
from .verdicts import Finding
from .wire import JsonObject, Timestamp, WireModel

Reason = Annotated[str, StringConstraints(max_length=1000)]


class ApprovalRequest(WireModel):
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
    inspection: Inspection | None = None
    """What would run, as the machine sees it; the digest covers it."""
    suggestions: list[Suggestion] = Field(default_factory=list[Suggestion])
    """Rules that a yes for a class of calls could save; none for a HIGH call."""
    status: ApprovalStatus
    timeout_seconds: int
    created_at: Timestamp
    deadline: Timestamp
    decided_at: Timestamp | None = None
    decided_by: str | None = None
    reason: str | None = None
    scope: ApprovalScope | None = None
    grant_id: str | None = None
    """The grant that was saved with the answer, or that answered."""
    decided_from: AnsweredFrom | None = None
    """Where a person answered; null when no person did."""


class Decision(WireModel):
    """How a question ended: answered, out of time (`timeout`), or withdrawn (`cancelled`)."""

    approval_id: str
    status: ApprovalStatus
    decided_by: str | None
    """`person:alice`, `grant:…`; null when nobody answered."""
    decided_from: AnsweredFrom | None
    decided_at: Timestamp
    reason: str | None
    """What the person said with a no."""
    scope: ApprovalScope | None
    """With a yes: how far it reaches."""
    grant_id: str | None


class ApprovalList(WireModel):
    approvals: list[ApprovalRequest]
    total_count: int


class WholeCall(WireModel):
    """All of what waits for a decision, where the question shows a part."""

    approval_id: str
    text: str
    """The whole call, secrets masked, safe to print."""


class ApproveBody(WireModel):
    decision: Literal["approved"]
    """Said in so many words: an empty body approves nothing."""
    scope: ApprovalScope = ApprovalScope.ONCE
    """How far the answer reaches."""
    terms: GrantTerms | None = None
    """With a scope beyond this call: its rule, end and number of uses."""
    digest: str | None = Field(default=None, max_length=64)
    """The digest that was shown; when given it must be the one that waits."""


class RejectBody(WireModel):
    decision: Literal["rejected"] = "rejected"
    reason: Reason | None = None
    """Told to the agent."""


class ConfirmBody(WireModel):
    """A decision without the project in the path (R9)."""

    decision: Literal["approved", "rejected"]
    reason: Reason | None = None
    scope: ApprovalScope = ApprovalScope.ONCE
    terms: GrantTerms | None = None
    digest: str | None = Field(default=None, max_length=64)


class DecisionAnswer(WireModel):
    success: bool
    approval_id: str
    status: ApprovalStatus
    message: str
    grant_id: str | None = None
    released: list[str] = Field(default_factory=list[str])
    """Executions that waited and were let go by the same answer."""


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> str:
    """One spelling for one meaning."""
    return _CANONICAL.encode(value)


def plain_json(value: Any) -> str:
    """JSON for our own keeping, made quickly: keys in the order they have, text as it is."""
    return to_json(value).decode()


def call_digest(tool_name: str, tool_params: JsonObject, project_id: str, bound: JsonObject | None = None) -> str:
    """Digest of one call. `bound` holds what else was shown, such as the content of a script that would run."""
    value = {"tool": tool_name, "params": tool_params, "project": project_id, "bound": bound or {}}
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()
