"""Errors, sorted by who can act.

ByleaveError
├── CallerError            the agent or API user: fix the call
│   ├── ToolTypeError          no such tool, or an unknown execution
│   ├── InvalidParameters      parameters that do not fit the tool
│   └── NotFound               no such thing for this user
├── RefusedError           a person or a rule says no; asking again changes nothing
│   ├── PathValidationError    a path outside the workspace, or one that is always denied
│   ├── CommandNotAllowed      a command or argument that may not run
│   ├── RejectedError          the person was asked and said no
│   └── DriftedError           a file is no longer the approved one; ask again
├── ConflictError          somebody was faster; holds the current state
├── MachineError           the user's machine: no such file, no permission, disk full
│   ├── NoClient               none was connected
│   ├── ToolFailure            the tool ran and failed
│   ├── ExecutionTimeout       it exceeded its time limit
│   ├── ExecutionCancelled     cancelled
│   ├── ExecutionInterrupted   the client died while it ran
│   └── ConcurrencyLimitError  the queue is full
├── ToolApprovalTimeout    nobody answered in time
├── ConfigurationError     the operator: a setting is wrong or missing
│   └── SignedOut              the server does not accept the token
└── UnreachableError       the server cannot be reached

Every message stands alone as a sentence; `hint` says what to do next.
"""

import errno

from .states import ErrorType
from .wire import JsonObject, WireModel


class ByleaveError(Exception):
    """Base class of all errors; also holds how one is recorded."""

    error_type: ErrorType = ErrorType.INTERNAL
    status_code: int = 500

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class CallerError(ByleaveError):
    error_type = ErrorType.INVALID
    status_code = 400


class ToolTypeError(CallerError):
    pass


class InvalidParameters(CallerError):
    pass


class NotFound(CallerError):
    status_code = 404


class RefusedError(ByleaveError):
    error_type = ErrorType.REFUSED
    status_code = 403


class PathValidationError(RefusedError):
    pass


class CommandNotAllowed(RefusedError):
    pass


class RejectedError(RefusedError):
    error_type = ErrorType.REJECTED


class DriftedError(RefusedError):
    """A file that would be run or replaced is not the approved one."""

    error_type = ErrorType.DRIFTED


class ConflictError(ByleaveError):
    error_type = ErrorType.INVALID
    status_code = 409

    def __init__(self, message: str, *, state: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.state = state


class MachineError(ByleaveError):
    error_type = ErrorType.TOOL_ERROR


class NoClient(MachineError):
    error_type = ErrorType.NO_CLIENT


class ToolFailure(MachineError):
    pass


class ExecutionTimeout(MachineError):
    error_type = ErrorType.EXECUTION_TIMEOUT


class ExecutionCancelled(MachineError):
    error_type = ErrorType.CANCELLED


class ExecutionInterrupted(MachineError):
    error_type = ErrorType.INTERRUPTED


class ConcurrencyLimitError(MachineError):
    pass


class ToolApprovalTimeout(ByleaveError):
    error_type = ErrorType.APPROVAL_TIMEOUT


class ConfigurationError(ByleaveError):
    pass


class SignedOut(ConfigurationError):
    pass


class UnreachableError(ByleaveError):
    def __init__(self, message: str, *, hint: str | None = None, passing: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.passing = passing
        """False if the address is more likely wrong than the server away for a moment."""


def refusal_of_system(error: OSError) -> ConfigurationError:
    """Convert an `OSError` to an error with a hint."""
    name = f" {error.filename!r}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ConfigurationError(
            f"No space is left on the disk{name and f' for{name}'}.",
            hint="free some, or set BYLEAVE_HOME to a directory on a disk that has some",
        )
    return ConfigurationError(
        f"The system refused{name}: {error.strerror or error}.", hint="BYLEAVE_DEBUG=1 shows where it happened"
    )


class Problem(WireModel):
    """An error on the wire: RFC 9457 problem+json."""

    type: str = "about:blank"
    title: str
    """The kind of error, in a few words."""
    status: int
    detail: str
    """A sentence about what happened."""
    hint: str | None = None
    """The next step for the reader."""
    state: str | None = None
    """Current state, for a conflict."""
    errors: list[JsonObject] | None = None
    """Errors by field, for an invalid body."""
