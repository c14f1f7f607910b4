"""Machines with their rules, checks of calls, and the audit chain: the pages beside the conversation.

A client declares its machine's rules and the tools it cannot run; the server parses them with the same parser, so both
read the same rules. A declaration can waive questions for its own machine only, and the client checks every call
against its own copy again.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StringConstraints

from .states import AgentMode, Layer
from .verdicts import Finding, VerdictLevel
from .wire import Identifier, JsonObject, Timestamp, WireModel

MAX_POLICY_CHARACTERS = 64 * 1024


class PolicyText(WireModel):
    """Text of one layer."""

    layer: Layer
    source: str = Field(max_length=400)
    """Name of the file, for people."""
    text: str = Field(max_length=MAX_POLICY_CHARACTERS)
    trusted: StrictBool = True
    """A project's file may loosen rules only after the owner trusts it; it may always tighten them."""


class PolicyDeclaration(WireModel):
    """A client's declaration of its machine's rules."""

    client_id: Identifier
    layers: list[PolicyText] = Field(max_length=8)
    unable: dict[Identifier, Annotated[str, StringConstraints(max_length=400)]] = Field(
        default_factory=dict, max_length=16
    )
    """Tools that cannot work on this machine, with the reason: their calls are refused before anybody is asked."""


class Machine(WireModel):
    """A connected client."""

    client_id: str
    workspace: str | None
    isolation: str | None
    """Isolation of its commands: `bwrap`, `landlock`, …; `none`; null if it did not say."""
    next: bool
    """True if the next call would run there."""
    editor: Literal["vscode"] | None = None
    """Editor it runs in; null if none, or if it did not say."""


class MachineList(WireModel):
    machines: list[Machine]
    total_count: int


class RuleLayer(WireModel):
    """A file of rules that applies to a project's calls."""

    layer: Layer
    source: str
    text: str
    trusted: bool
    client_id: str | None
    """Machine that declared it; null for the server's own."""


class RuleLayers(WireModel):
    layers: list[RuleLayer]
    widest_mode: AgentMode


class CheckBody(WireModel):
    """A hypothetical call of an agent, to be checked."""

    tool_name: str = Field(max_length=100)
    tool_params: JsonObject
    session_id: Identifier | None = None
    """Also apply the grants of this session."""
    mode: AgentMode = AgentMode.SANDBOX


class CheckDecision(StrEnum):
    RUNS = "runs"
    ASKS = "asks"
    REFUSED = "refused"


class CheckAnswer(WireModel):
    """Decision of the gate on a call, with reasons. Nothing ran, and nothing was recorded."""

    verdict: VerdictLevel
    decision: CheckDecision
    because: str
    """The deciding reason in one sentence: the level, a rule of a layer, a grant, the mode."""
    findings: list[Finding]
    decided_by: str
    """Rule of the strictest finding, or what waives the question (`grant:…`, `rule:…`, `mode:full`)."""
    layer: str | None
    """Layer and file of that rule; null if no rule decided."""
    always_asks: bool
    network: bool
    runs: list[str]
    """Files whose content would run."""
    description: str | None
    """Question for a person; null for a refused call."""
    understood: JsonObject | None
    """Parsed arguments of a command."""
    timeout_seconds: int | None
    """Time to answer; null if it does not ask."""


class AuditEntry(WireModel):
    """An entry of a project's audit chain."""

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
    """Pass as `before` for the next page; null on the last page."""


class AuditCheck(WireModel):
    """Result of verifying a project's audit chain."""

    project_id: str
    records: int
    head: Annotated[str, StringConstraints(max_length=64)]
    holds: bool
    fault: str | None
    checked_at: Timestamp
