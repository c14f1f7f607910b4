"""Grants: answers that cover further calls of a session, or of a project (G8), and their previews.

A rule says exactly which calls it covers; nothing on the wire widens it silently. The gate decides what a grant never
covers: a refusal, a deny, an explicit ask, secrets, and HIGH, unless the grant is for everything or the call writes
source code with an extension that the rule names. Nothing here decides that.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool, StringConstraints

from .states import ApprovalScope, ExecutionStatus, RiskLevel
from .wire import Digest, Timestamp, Whole, WireModel

Token = Annotated[str, StringConstraints(min_length=1, max_length=400)]

DEFAULT_GRANT_SECONDS = 8 * 3600
DEFAULT_EVERYTHING_SECONDS = 3600
LONGEST_GRANT_SECONDS = 24 * 3600
DEFAULT_PROJECT_SECONDS = 7 * 24 * 3600
LONGEST_PROJECT_SECONDS = 30 * 24 * 3600

EVERYTHING_WARNING = (
    "The agent won't ask, even for high-risk actions. You'll still be asked about secrets, startup files, destructive "
    "commands and your own ask rules. It ends when it expires, or when you revoke it."
)
"""Warning shown before everything in a session is allowed."""


class GrantRule(WireModel):
    """Calls that a grant covers. Empty fields do not narrow it; the tool always does."""

    # Sent in both directions: without this, the schema would have two names for it.
    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    tool: str = Field(max_length=100)
    command: tuple[Token, ...] = Field(default=(), max_length=64)
    """First words of the command line, for execute_command."""
    exact: StrictBool = False
    """True if nothing may follow those words."""
    paths: tuple[Token, ...] = Field(default=(), max_length=32)
    """Path patterns from the workspace (`src/**`), for a file tool."""
    files: dict[Token, Digest] = Field(default_factory=dict, max_length=32)
    """For a command that runs files: covered only while they have this content (SHA-256)."""


class Suggestion(WireModel):
    """A rule that a person may save with an answer, with its description."""

    rule: GrantRule
    text: str
    """The covered calls, in one sentence."""
    widest: str
    """The widest effect without a question."""


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
    """The session in which it was given. With the scope `project` it holds in all of them."""
    agent_id: str | None = None
    """The agent it was given to, and holds for; null for the chat's own."""
    scope: ApprovalScope
    rule: GrantRule | None
    """None covers everything in the session."""
    text: str
    status: GrantStatus
    approval_id: str | None
    """Question that was answered with it."""
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
    """Terms of an answer that covers more than one call."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    rule: GrantRule | None = None
    """The rule as shown or edited, for scopes `class` and `project`."""
    expires_in_seconds: Whole | None = Field(default=None, ge=1, le=LONGEST_PROJECT_SECONDS)
    """At most a day; with the scope `project`, 30 days."""
    max_uses: Whole | None = Field(default=None, ge=1, le=10_000)
    warned: StrictBool = False
    """True if the warning was shown and accepted, for scope `session`."""


class GrantPreviewBody(WireModel):
    """Request to preview a rule on past calls."""

    rule: GrantRule


class PastCall(WireModel):
    """A recorded call, as listed in a preview."""

    tool_id: str
    description: str
    risk_level: RiskLevel
    status: ExecutionStatus
    created_at: Timestamp


class GrantPreview(WireModel):
    """A rule applied to past calls."""

    rule: GrantRule
    text: str
    widest: str
    problem: str | None
    """Reason the rule may not be saved; null if it may."""
    looked_at: int
    covered: int
    refused: list[PastCall]
    """Covered calls that a person had refused."""
    examples: list[PastCall]
    sentence: str
    """For example: would have covered 37 of your last 200 calls, among them 2 you refused."""
