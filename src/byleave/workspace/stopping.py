"""When a call must have no effect any more: it was called off, or its time is up. And what is told of one that had.

A timer can come late, as after the machine slept or while the loop is busy; so whoever is about to change something
asks the clock itself, right before. The clock is `steady`: it runs on while the machine sleeps, and setting the wall
clock does not change it. Nothing here ends what already runs.

Drift: what is there is not what was shown when somebody said yes.

One error and its words, for commands that would run files (`pins`) and for writes that would replace one (`writing`).
Nothing here looks at anything.
"""

import asyncio
import threading
from contextlib import suppress
from typing import TypeVar

from byleave.protocol.errors import ExecutionCancelled, RefusedError
from byleave.protocol.states import ErrorType
from byleave.protocol.wire import steady

T = TypeVar("T")


async def outlast(work: asyncio.Future[T]) -> T:
    """How work ended that nobody can end, also where the call is cancelled meanwhile, however often.

    Only for what follows an effect: that one is told, for told as not done it would be done once more.
    """
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return work.result()


def is_late(until: float | None) -> bool:
    """True if a time of the clock `steady` has passed; None: it never does."""
    return until is not None and steady() >= until


def refuse_late(until: float | None) -> None:
    """Right before an effect. Raises ExecutionCancelled; then there was none."""
    if is_late(until):
        raise ExecutionCancelled("Its time was up before it took effect; nothing was run.")


class Stop(threading.Event):
    """Set from outside, or by itself when the time is up."""

    def __init__(self, until: float | None = None) -> None:
        super().__init__()
        self._until = until

    def is_set(self) -> bool:
        return super().is_set() or is_late(self._until)


MISSING = "missing"
"""In the place of a digest, where there is no file."""


class DriftedError(RefusedError):
    """What would run, or be replaced, is not what was approved."""

    error_type = ErrorType.DRIFTED


def drifted(path: str, what: str = "nothing was run") -> DriftedError:
    return DriftedError(
        f"{path!r} changed after it was shown; {what}.", hint="Ask again: what it holds now is then shown."
    )
