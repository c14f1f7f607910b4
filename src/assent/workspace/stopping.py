"""When a call must have no effect any more: it was called off, or its time is up.

A timer can come late, as after the machine slept or while the loop is busy; so whoever is about to change something
asks the clock itself, right before. The time is the wall clock's: a machine that sleeps stops the other one. Nothing
here ends what already runs.
"""

import threading
import time

from assent.protocol.errors import ExecutionCancelled


def is_late(until: float | None) -> bool:
    """Whether a time (seconds since 1970) has passed; None: it never does."""
    return until is not None and time.time() >= until


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
