"""Deadlines and cancellation of calls, and the errors of calls that were stopped or whose files drifted.

A timer can fire late, after the machine slept or while the loop is busy. So code about to change something checks the
clock itself, right before. The clock is `steady`: it runs on while the machine sleeps, and setting the wall clock does
not change it. `DriftedError` is for commands that would run files (`commands.bound_files`) and writes that would
replace one (`files.writing`). Nothing here ends what already runs or reads a file.
"""

import asyncio
import threading
from contextlib import suppress
from typing import TypeVar

from byleave.protocol.errors import DriftedError, ExecutionCancelled, ExecutionTimeout, MachineError
from byleave.protocol.tools import ExecuteCommandResult
from byleave.protocol.wire import steady

T = TypeVar("T")


async def outlast(work: asyncio.Future[T]) -> T:
    """Wait for work that cannot be interrupted and return its result, even if the call is cancelled meanwhile.

    Only for work after an effect. The effect must be reported: reported as not done, it would be done again.
    """
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return work.result()


def is_late(until: float | None) -> bool:
    """True if a time (on the clock `steady`) has passed. None never passes."""
    return until is not None and steady() >= until


def refuse_late(until: float | None) -> None:
    """Raise ExecutionCancelled if time is up. Call it right before an effect."""
    if is_late(until):
        raise ExecutionCancelled("Its time was up before it took effect; nothing was run.")


class Stop(threading.Event):
    """An event that also counts as set once its time is up."""

    def __init__(self, until: float | None = None) -> None:
        super().__init__()
        self._until = until

    def is_set(self) -> bool:
        return super().is_set() or is_late(self._until)


MISSING = "missing"
"""Stands in place of a digest for a file that does not exist."""


def drifted(path: str, what: str = "nothing was run") -> DriftedError:
    return DriftedError(
        f"{path!r} changed after it was shown; {what}.", hint="Ask again: what it holds now is then shown."
    )


class Unfinished(MachineError):
    """A command was ended early; `partial` has its output so far."""

    def __init__(self, message: str, *, partial: ExecuteCommandResult | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.partial = partial


class CommandTimeout(Unfinished, ExecutionTimeout):
    """It ran out of time."""


class CommandStopped(Unfinished, ExecutionCancelled):
    """It was cancelled. The call raises CancelledError, with this as the cause."""


def unfinished(error: BaseException | None) -> Unfinished | None:
    """Find the `Unfinished` in an error's chain of causes; None if there is none."""
    while error is not None and not isinstance(error, Unfinished):
        error = error.__cause__ or error.__context__
    return error
