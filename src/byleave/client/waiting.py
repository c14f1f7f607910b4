"""Signals that wait for a place, in order: bounded by their number and by the bytes they hold (C3).

A signal carries the whole content of a write, and it is queued before the gate has judged it, so every text in it
counts, wherever it stands. What does not fit is refused with an error to report; nothing already here is dropped.

A call's time begins with the work, so the server is told what waits here (`QueueReports`), and when it begins. What
waits for a moment only is not worth a request: the deadline of its signal leaves room for that.
"""

import asyncio
from typing import Any, cast

from byleave.protocol.errors import ByleaveError, ConcurrencyLimitError, ConflictError, ExecutionCancelled, NotFound
from byleave.protocol.events import ExecutionSignal
from byleave.protocol.executions import QueueReport

from .log import log
from .outbox import Link

MAX_QUEUED_BYTES = 256 * 1024 * 1024
MOMENT_SECONDS = 0.5
"""What waits longer than about this is told."""
MOST_TOLD = 1000
"""In one report."""
BEGIN_SECONDS = 5.0
"""How long the answer to a beginning is waited for; without one the signal's own deadline holds."""


class WaitingSignals:
    """A queue by tool_id."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._signals: dict[str, tuple[ExecutionSignal, int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._signals)

    @property
    def signals(self) -> list[ExecutionSignal]:
        """What waits, in order."""
        return [event for event, _ in self._signals.values()]

    def add(self, event: ExecutionSignal) -> None:
        """Put it at the end; raises when there is no room for it."""
        size = _text_bytes(event.tool_params)
        if len(self) >= self._limit:
            raise ConcurrencyLimitError(f"{len(self)} calls wait on this machine already; it was not run.")
        if self._bytes + size > MAX_QUEUED_BYTES:
            raise ConcurrencyLimitError(
                f"Calls of {self._bytes} bytes wait on this machine already and this one has {size}; it was not run.",
                hint="call it again when others have ended",
            )
        self._signals[event.tool_id] = (event, size)
        self._bytes += size

    def take(self, tool_id: str) -> ExecutionSignal | None:
        """Take one out of the order; None when it does not wait here."""
        event, size = self._signals.pop(tool_id, (None, 0))
        self._bytes -= size
        return event

    def next(self) -> ExecutionSignal | None:
        """Take the one that has waited longest."""
        return self.take(next(iter(self._signals), ""))


class QueueReports:
    """Tells the server which calls wait, and when one of them begins."""

    def __init__(self, queue: WaitingSignals, link: Link, project_id: str) -> None:
        self._queue = queue
        self._link = link
        self._project_id = project_id
        self._told: dict[str, bool] = {}
        """Calls the server was told of, and whether it said that it knows."""
        self._posting = asyncio.Lock()
        """A beginning must not overtake the report that the call waits."""
        self._task: asyncio.Task[None] | None = None

    def added(self) -> None:
        """Something waits."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._report())

    def forget(self, tool_id: str) -> None:
        """It does not wait any more, or the server does not know any more that it does."""
        self._told.pop(tool_id, None)

    async def begin(self, event: ExecutionSignal) -> ExecutionSignal:
        """A call begins now: its signal, with the deadline that counts. Raises when it is not wanted any more."""
        if self._told.pop(event.tool_id, None) is None:
            return event
        try:
            async with asyncio.timeout(BEGIN_SECONDS), self._posting:
                begun = await self._link.begin(self._project_id, event.tool_id)
        except (ConflictError, NotFound) as error:
            raise ExecutionCancelled("It ended on the server before it could be run; nothing was run.") from error
        except (ByleaveError, TimeoutError) as error:
            log.warning("the server was not told that it begins", tool_id=event.tool_id, error=type(error).__name__)
            return event
        return event.model_copy(update={"timestamp": begun.started_at, "deadline": begun.deadline})

    async def close(self) -> None:
        """Stop telling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _report(self) -> None:
        failures = 0
        try:
            while len(self._queue):
                before = {event.tool_id for event in self._queue.signals}
                await asyncio.sleep(MOMENT_SECONDS * 2 ** min(failures, 4))
                failures = 0 if await self._tell(before) else failures + 1
        finally:
            self._task = None

    async def _tell(self, before: set[str]) -> bool:
        """Tell of what still waits; False when that failed."""
        async with self._posting:
            waits = [event.tool_id for event in self._queue.signals if event.tool_id in before]
            untold = [tool_id for tool_id in waits if not self._told.get(tool_id)][:MOST_TOLD]
            if not untold:
                return True
            self._told.update(dict.fromkeys(untold, False))
            try:
                await self._link.post_queued(self._project_id, QueueReport(tool_ids=untold))
            except ByleaveError as error:
                log.warning("the server was not told what waits here", calls=len(untold), error=error.message)
                return False
            log.info("told what waits here", calls=len(untold))
            self._told.update({tool_id: True for tool_id in untold if tool_id in self._told})
            return True


def _text_bytes(value: Any) -> int:
    """The bytes of every text in a JSON value."""
    total = 0
    open_values: list[Any] = [value]
    while open_values:
        one = open_values.pop()
        if isinstance(one, str):
            total += len(one) if one.isascii() else len(one.encode("utf-8", "surrogatepass"))
        elif isinstance(one, dict):
            for key, item in cast("dict[Any, Any]", one).items():
                open_values += (key, item)
        elif isinstance(one, list):
            open_values += cast("list[Any]", one)
    return total
