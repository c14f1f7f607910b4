"""Watch: how somebody who waits for an execution hears of its moves.

What is heard is a hint and may get lost: whoever waits looks at the store from time to time all the same. Nothing here
moves an execution.
"""

import asyncio

from byleave.bus import Bus
from byleave.protocol.states import ExecutionStatus
from byleave.store import ExecutionRow
from byleave.store.transitions import execution_topic


class Watch:
    """Hears of one execution's moves that somebody waits for: to its question, and to its end."""

    def __init__(self, bus: Bus, execution_id: str) -> None:
        self._row: ExecutionRow | None = None
        self.failure: Exception | None = None
        """Why its end could not be recorded, when it last came."""
        self._waiter: asyncio.Future[None] | None = None
        self._stop = bus.listen(execution_topic(execution_id), self._hear)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _hear(self, fact: object | None) -> None:
        if isinstance(fact, ExecutionRow):
            if not (fact.status.ended or fact.status is ExecutionStatus.AWAITING_APPROVAL):
                return
            self._row = fact
        if isinstance(fact, Exception):
            self.failure = fact
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def moved(self, nap: float) -> ExecutionRow | None:
        """The row as it was last told, or None after the nap or a hint that says nothing."""
        if self._row is None:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            alarm = loop.call_later(nap, lambda: waiter.done() or waiter.set_result(None))
            try:
                await waiter
            finally:
                alarm.cancel()
        row, self._row = self._row, None
        return row
