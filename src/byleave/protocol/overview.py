"""What the pages show beside the conversation: who is signed in, machines, rules, the check, the audit chain.

All of it is read only, and only ever the asking user's own.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from .states import AgentMode, Layer, Scope
from .verdicts import Finding, VerdictLevel
from .wire import Identifier, JsonObject, Timestamp, WireModel


class Me(WireModel):
    """Who is asking, and what the server is."""

    user_id: str
    scopes: list[Scope]
    version: str
    """The server's."""
    chat: bool
    """Whether an agent works on messages here."""


class SignInLink(WireModel):
    """A link that signs a browser in, once."""

    path: str
    """From the server's address: `/signin?code=…`."""
    expires_in_seconds: int


class Machine(WireModel):
    """A client that is connected now."""

    client_id: str
    workspace: str | None
    isolation: str | None
    """What holds its commands: `bwrap`, `landlock`, …; `none`; null when it did not say."""
    next: bool
    """Whether the next call would run there."""
    editor: Literal["vscode"] | None = None
    """The editor it runs in; null for one without, or when it did not say."""


class MachineList(WireModel):
    machines: list[Machine]
    total_count: int


class RuleLayer(WireModel):
    """One file of rules that judges a project's calls."""

    layer: Layer
    source: str
    text: str
    trusted: bool
    client_id: str | None
    """The machine that declared it; null for the server's own."""


class RuleLayers(WireModel):
    layers: list[RuleLayer]
    widest_mode: AgentMode


class CheckBody(WireModel):
    """What would happen if an agent made this call?"""

    tool_name: str = Field(max_length=100)
    tool_params: JsonObject
    session_id: Identifier | None = None
    """Also look at the grants of this session."""
    mode: AgentMode = AgentMode.SANDBOX


class CheckDecision(StrEnum):
    RUNS = "runs"
    ASKS = "asks"
    REFUSED = "refused"


class CheckAnswer(WireModel):
    """What the gate says of a call, and why. Nothing ran, and nothing was recorded."""

    verdict: VerdictLevel
    decision: CheckDecision
    because: str
    """What decides, in one sentence: the level, a rule of a layer, a grant, the mode."""
    findings: list[Finding]
    decided_by: str
    """The strictest finding's rule, or what lets it run without a question (`grant:…`, `rule:…`, `mode:full`)."""
    layer: str | None
    """Where that rule was written: a layer and its file; null when no rule decided."""
    always_asks: bool
    network: bool
    runs: list[str]
    """Files whose content would run."""
    description: str | None
    """What a person would be asked; null for what is refused."""
    understood: JsonObject | None
    """How a command's arguments were read."""
    timeout_seconds: int | None
    """How long there would be to answer; null when it does not ask."""


class AuditEntry(WireModel):
    """One link of a project's audit chain."""

    seq: int
    at: Timestamp
    actor: str
    action: str
    tool_id: str | None
    approval_id: str | None
    detail: JsonObject
    previous_hash: str
    hash: str


class AuditPage(WireModel):
    """Newest first."""

    entries: list[AuditEntry]
    total_count: int
    next_before: int | None = None
    """Pass as `before` to go on; null at the end."""


class AuditCheck(WireModel):
    """What recomputing a project's chain found."""

    project_id: str
    records: int
    head: Annotated[str, StringConstraints(max_length=64)]
    holds: bool
    fault: str | None
    checked_at: Timestamp
