"""Grants: answers that cover further calls of a session (G8), and what is shown before one is saved.

A rule says exactly which calls it covers; nothing on the wire widens it silently. What a grant never covers (a
refusal, a deny, an explicit ask, secrets, HIGH unless it is for everything) is the gate's business, not written here.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StringConstraints

from .states import ApprovalScope, ExecutionStatus, RiskLevel
from .wire import Digest, Timestamp, WireModel

Token = Annotated[str, StringConstraints(min_length=1, max_length=400)]

DEFAULT_GRANT_SECONDS = 8 * 3600
DEFAULT_EVERYTHING_SECONDS = 3600
LONGEST_GRANT_SECONDS = 24 * 3600

EVERYTHING_WARNING = (
    "The agent will then write files and run programs on this machine without asking, also what is HIGH; only what "
    "always asks (secrets, files that run later, the catastrophic, your own ask rules) still does. It ends with its "
    "time or when you revoke it."
)
"""Shown before everything in a session is allowed."""


class GrantRule(WireModel):
    """Which calls a grant covers. Fields that are left empty do not narrow it; the tool always does."""

    # It travels both ways: without this, its schema would have two names.
    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    tool: str = Field(max_length=100)
    command: tuple[Token, ...] = Field(default=(), max_length=64)
    """With execute_command: the words the line begins with, one for one."""
    exact: StrictBool = False
    """Whether nothing may follow those words."""
    paths: tuple[Token, ...] = Field(default=(), max_length=32)
    """With a file tool: patterns of paths, from the workspace (`src/**`)."""
    files: dict[Token, Digest] = Field(default_factory=dict, max_length=32)
    """With a command that runs files: it covers the call only while these have this content (SHA-256)."""


class Suggestion(WireModel):
    """A rule a person may save with an answer, in words."""

    rule: GrantRule
    text: str
    """What it would cover, in one sentence."""
    widest: str
    """The most that could run without asking under it."""


class GrantStatus(StrEnum):
    ACTIVE = "active"
    REVOKED = "revoked"
    EXPIRED = "expired"
    USED_UP = "used_up"


class Grant(WireModel):
    """A saved answer."""

    id: str
    user_id: str
    project_id: str
    session_id: str
    scope: ApprovalScope
    rule: GrantRule | None
    """None: everything in the session."""
    text: str
    status: GrantStatus
    approval_id: str | None
    """The question it was given with."""
    uses: int
    max_uses: int | None
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp
    revoked_at: Timestamp | None
    revoked_by: str | None


class GrantList(WireModel):
    grants: list[Grant]
    total_count: int


class GrantTerms(WireModel):
    """What a person asks for with an answer that reaches further than one call."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    rule: GrantRule | None = None
    """With scope `class`: the rule as it was shown, perhaps edited."""
    expires_in_seconds: StrictInt | None = Field(default=None, ge=1, le=LONGEST_GRANT_SECONDS)
    max_uses: StrictInt | None = Field(default=None, ge=1, le=10_000)
    warned: StrictBool = False
    """With scope `session`: that the warning was shown and accepted."""


class GrantPreviewBody(WireModel):
    """What would this rule have covered?"""

    rule: GrantRule


class PastCall(WireModel):
    """A call of the record, as a preview names it."""

    tool_id: str
    description: str
    risk_level: RiskLevel
    status: ExecutionStatus
    created_at: Timestamp


class GrantPreview(WireModel):
    """A rule, held against the calls that were made."""

    rule: GrantRule
    text: str
    widest: str
    problem: str | None
    """Why it may not be saved; null when it may."""
    looked_at: int
    covered: int
    refused: list[PastCall]
    """Calls it would have covered that a person refused."""
    examples: list[PastCall]
    sentence: str
    """For example: would have covered 37 of your last 200 calls, among them 2 you refused."""
