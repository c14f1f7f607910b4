"""States, risks and outcomes: the small closed sets everything else refers to.

`TRANSITIONS` is the whole state machine. The store asks it before every change; nothing else may move an
execution.
"""

from enum import StrEnum
from functools import cached_property
from typing import Self


class AnyCase(StrEnum):
    """A set whose values are read in capitals or not; its members' names are in capitals."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


class Layer(StrEnum):
    """Where a rule comes from."""

    BUILT_IN = "built-in"
    ORGANISATION = "organisation"
    USER = "user"
    DEVICE = "device"
    PROJECT = "project"


class ExecutionStatus(AnyCase):
    """Where an execution stands. Lower case on the wire; the record's tables hold the names."""

    PENDING = "pending"
    AWAITING_APPROVAL = "awaiting_approval"
    APPROVED = "approved"
    EXECUTING = "executing"
    COMPLETED = "completed"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    FAILED = "failed"

    @cached_property
    def ended(self) -> bool:
        return self in ENDED


ENDED = frozenset(
    {ExecutionStatus.COMPLETED, ExecutionStatus.REJECTED, ExecutionStatus.TIMEOUT, ExecutionStatus.FAILED}
)

TRANSITIONS: dict[ExecutionStatus, frozenset[ExecutionStatus]] = {
    ExecutionStatus.PENDING: frozenset(
        {ExecutionStatus.APPROVED, ExecutionStatus.AWAITING_APPROVAL, ExecutionStatus.FAILED}
    ),
    ExecutionStatus.AWAITING_APPROVAL: frozenset(
        {ExecutionStatus.APPROVED, ExecutionStatus.REJECTED, ExecutionStatus.TIMEOUT, ExecutionStatus.FAILED}
    ),
    ExecutionStatus.APPROVED: frozenset({ExecutionStatus.EXECUTING, ExecutionStatus.FAILED}),
    ExecutionStatus.EXECUTING: frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.FAILED}),
    ExecutionStatus.COMPLETED: frozenset(),
    ExecutionStatus.REJECTED: frozenset(),
    ExecutionStatus.TIMEOUT: frozenset(),
    ExecutionStatus.FAILED: frozenset(),
}


def may_become(before: ExecutionStatus, after: ExecutionStatus) -> bool:
    """Whether the state machine has this edge."""
    return after in TRANSITIONS[before]


class ResponseStatus(StrEnum):
    """What an agent is told of its call."""

    PENDING = "pending"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    FAILED = "failed"


RESPONSE_STATUS: dict[ExecutionStatus, ResponseStatus] = {
    ExecutionStatus.PENDING: ResponseStatus.PENDING,
    ExecutionStatus.AWAITING_APPROVAL: ResponseStatus.AWAITING_APPROVAL,
    ExecutionStatus.APPROVED: ResponseStatus.PENDING,
    ExecutionStatus.EXECUTING: ResponseStatus.PENDING,
    ExecutionStatus.COMPLETED: ResponseStatus.COMPLETED,
    ExecutionStatus.REJECTED: ResponseStatus.REJECTED,
    ExecutionStatus.TIMEOUT: ResponseStatus.TIMEOUT,
    ExecutionStatus.FAILED: ResponseStatus.FAILED,
}


class RiskLevel(StrEnum):
    """How much a call could harm. Ordered: `max()` of several is the strictest."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"

    @property
    def rank(self) -> int:
        return ("LOW", "MEDIUM", "HIGH").index(self.value)


class ErrorType(StrEnum):
    """Why an execution did not complete. Outcomes that share a state differ here."""

    INVALID = "invalid"
    """The call is malformed: unknown tool, wrong parameters, too large. The agent can mend it."""
    REFUSED = "refused"
    """Refused by the gate or by a rule; asking again changes nothing."""
    REJECTED = "rejected"
    """A person said no."""
    APPROVAL_TIMEOUT = "approval_timeout"
    """Nobody answered in time. Not a person's no."""
    NO_CLIENT = "no_client"
    """No machine was connected to run it."""
    DRIFTED = "drifted"
    """What would run is no longer what was approved."""
    CANCELLED = "cancelled"
    """Called off before it ended."""
    INTERRUPTED = "interrupted"
    """The client died while it ran. It may or may not have had its effect; it is never run again by itself."""
    EXECUTION_TIMEOUT = "execution_timeout"
    """It ran longer than it may."""
    TOOL_ERROR = "tool_error"
    """It ran and failed: no such file, no permission, disk full."""
    INTERNAL = "internal"
    """Our fault."""


class ApprovalStatus(StrEnum):
    """Where an approval stands."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class AnsweredFrom(StrEnum):
    """Where a person gave an answer."""

    PAGE = "page"
    """In a browser, signed in there."""
    PROGRAM = "program"
    """With a token: an editor, a terminal, or anything else."""


class ApprovalScope(StrEnum):
    """How far an answer reaches (G8)."""

    ONCE = "once"
    """This call."""
    CLASS = "class"
    """Calls of this kind in this session, by a rule that was shown."""
    SESSION = "session"
    """Everything in this session, after a warning."""


class AgentMode(StrEnum):
    """How much an agent must ask."""

    SANDBOX = "sandbox"
    FULL = "full"


class Scope(StrEnum):
    """What a token lets its bearer do. An `agent` token never approves, whatever else it carries."""

    CHAT = "chat"
    APPROVE = "approve"
    EXECUTE = "execute"
    AGENT = "agent"


class RunState(AnyCase):
    """Where an agent's run stands. Lower case on the wire; the record's tables hold the names."""

    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


class ClientResultStatus(StrEnum):
    """How an execution ended on the user's machine (C7)."""

    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


APPROVAL_TIMEOUTS: dict[RiskLevel, int | None] = {
    RiskLevel.LOW: None,
    RiskLevel.MEDIUM: 300,
    RiskLevel.HIGH: 600,
}


def get_timeout_for_risk_level(risk_level: RiskLevel | str) -> int | None:
    """Seconds a person has to answer; None where nobody is asked."""
    return APPROVAL_TIMEOUTS[RiskLevel(risk_level)]
