"""States, risk levels and outcomes: the closed sets that all other modules use.

`TRANSITIONS` is the whole state machine. The store consults it before every change; nothing else may change an
execution's state.
"""

from enum import StrEnum
from functools import cached_property
from typing import Self


class AnyCase(StrEnum):
    """Enum whose values are read in any case; member names are in capitals."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


class Layer(StrEnum):
    """Source of a rule."""

    BUILT_IN = "built-in"
    ORGANISATION = "organisation"
    USER = "user"
    DEVICE = "device"
    PROJECT = "project"


class ExecutionStatus(AnyCase):
    """State of an execution. Lower case on the wire; the record's tables hold the names."""

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
        {
            ExecutionStatus.APPROVED,
            ExecutionStatus.REJECTED,
            ExecutionStatus.TIMEOUT,
            ExecutionStatus.FAILED,
            ExecutionStatus.PENDING,  # only by a person who changed the call: it is judged, inspected and asked anew
        }
    ),
    ExecutionStatus.APPROVED: frozenset({ExecutionStatus.EXECUTING, ExecutionStatus.FAILED}),
    ExecutionStatus.EXECUTING: frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.FAILED}),
    **dict.fromkeys(ENDED, frozenset[ExecutionStatus]()),
}


class ResponseStatus(StrEnum):
    """State of a call as the agent sees it."""

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
    **{ended: ResponseStatus(ended.value) for ended in ENDED},
}


class RiskLevel(StrEnum):
    """Possible harm of a call. Ordered: `max()` of several is the strictest."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"

    @property
    def rank(self) -> int:
        return ("LOW", "MEDIUM", "HIGH").index(self.value)


class ErrorType(StrEnum):
    """Reason an execution did not complete. Outcomes that share a state differ here."""

    INVALID = "invalid"
    """The call is malformed: unknown tool, wrong parameters, too large. The agent can fix it."""
    REFUSED = "refused"
    """Refused by the gate or by a rule; asking again changes nothing."""
    REJECTED = "rejected"
    """A person said no."""
    APPROVAL_TIMEOUT = "approval_timeout"
    """Nobody answered in time. Not a person's no."""
    NO_CLIENT = "no_client"
    """No machine was connected to run it."""
    DRIFTED = "drifted"
    """The files that would run are no longer the ones that were approved."""
    CANCELLED = "cancelled"
    """Cancelled before it ended."""
    INTERRUPTED = "interrupted"
    """The client died while it ran. It may or may not have taken effect; it is never retried automatically."""
    EXECUTION_TIMEOUT = "execution_timeout"
    """It exceeded its time limit."""
    TOOL_ERROR = "tool_error"
    """It ran and failed: no such file, no permission, disk full."""
    INTERNAL = "internal"
    """Our fault."""


class ApprovalStatus(StrEnum):
    """State of an approval."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    """Withdrawn. If a person is named, they changed the call, and another question asks about it."""


class AnsweredFrom(StrEnum):
    """Kind of client a person answered from."""

    PAGE = "page"
    """In a browser, signed in there."""
    PROGRAM = "program"
    """With a token: an editor, a terminal, or anything else."""


class ApprovalScope(StrEnum):
    """Reach of an answer (G8)."""

    ONCE = "once"
    """This call."""
    CLASS = "class"
    """Calls of this kind in this session, under a rule that was shown."""
    SESSION = "session"
    """Everything in this session, after a warning."""
    PROJECT = "project"
    """Calls of this kind by the same agent in every session of the project, under a rule that was shown."""


class AgentMode(StrEnum):
    """Approval mode of an agent: how often it must ask."""

    SANDBOX = "sandbox"
    FULL = "full"


class Scope(StrEnum):
    """Permission carried by a token. An `agent` token never approves, whatever other scopes it has."""

    CHAT = "chat"
    APPROVE = "approve"
    EXECUTE = "execute"
    AGENT = "agent"


class RunState(AnyCase):
    """State of an agent's run. Lower case on the wire; the record's tables hold the names."""

    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


class ClientResultStatus(StrEnum):
    """Outcome of an execution on the user's machine (C7)."""

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
    """Seconds a person has to answer; None if nobody is asked."""
    return APPROVAL_TIMEOUTS[RiskLevel(risk_level)]
