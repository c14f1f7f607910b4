"""Errors that a program on Byleave meets. Each has a `message` that stands alone, and a `hint`: what to do next.

    try:
        await machine.write_file("notes.md", "buy milk")
    except byleave.errors.RejectedError as error:
        print(error.message, error.hint)

ByleaveError
├── CallerError            your call is wrong: fix it
│   └── NotFound               no such project, call or question for this user
├── RefusedError           the gate, a rule or the token says no; asking again changes nothing
│   ├── RejectedError          the person said no
│   └── DriftedError           a file is no longer the one that was approved; nothing ran, ask again
├── ToolApprovalTimeout    nobody answered in time; nothing ran
├── MachineError           the user's machine
│   ├── NoClient               none was connected; nothing ran
│   ├── ToolFailure            the tool ran and failed: no such file, no permission, disk full
│   ├── ExecutionTimeout       it exceeded its time limit
│   ├── ExecutionCancelled     cancelled, by you or by the person
│   └── ExecutionInterrupted   the client died while it ran; it may have had its effect
├── ConflictError          somebody was faster; `state` is how it is now
├── ConfigurationError     a setting is wrong or missing: the address, the token
│   └── SignedOut              the server does not accept the token: wrong or expired
└── UnreachableError       no answer from the server

`execute` raises none of them for what an agent did or a person decided: its response says so. The methods named after
a tool raise them.
"""

from .protocol.errors import (
    ByleaveError,
    CallerError,
    ConfigurationError,
    ConflictError,
    DriftedError,
    ExecutionCancelled,
    ExecutionInterrupted,
    ExecutionTimeout,
    MachineError,
    NoClient,
    NotFound,
    RefusedError,
    RejectedError,
    SignedOut,
    ToolApprovalTimeout,
    ToolFailure,
    UnreachableError,
)

__all__ = [
    "ByleaveError",
    "CallerError",
    "ConfigurationError",
    "ConflictError",
    "DriftedError",
    "ExecutionCancelled",
    "ExecutionInterrupted",
    "ExecutionTimeout",
    "MachineError",
    "NoClient",
    "NotFound",
    "RefusedError",
    "RejectedError",
    "SignedOut",
    "ToolApprovalTimeout",
    "ToolFailure",
    "UnreachableError",
]
