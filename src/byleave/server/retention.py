"""The background task that removes old calls while the server runs.

It works at the start and then hourly, in small steps with pauses, so that calls go on beside it. A failed pass is
logged and tried again an hour later. It decides only when: what goes and what stays is the store's.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from time import perf_counter

import structlog

from byleave.settings import ServerSettings
from byleave.store import STORAGE_ERRORS, Store
from byleave.store.retention import Removed

log = structlog.stdlib.get_logger(__name__)

HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * 3600.0
MEGABYTE = 1024 * 1024
REST_FACTOR = 9.0
"""A pause is so many times as long as the step before it: nine tenths of the time are left to calls."""
SHORTEST_REST_SECONDS = 0.05
KEPT_FREE_BYTES = 4 * MEGABYTE
"""Free pages that are not given back: the next calls need them."""


class RetentionTask:
    """Applies `BYLEAVE_RETENTION_DAYS` and `BYLEAVE_RETENTION_MB`."""

    def __init__(self, store: Store, settings: ServerSettings, *, every_seconds: float = HOUR_SECONDS) -> None:
        self._retention = store.retention
        self._days = settings.retention_days
        self._most_bytes = settings.retention_mb * MEGABYTE
        self._every = every_seconds
        self._task: asyncio.Task[None] | None = None
        self.passes = 0
        """Passes that came to their end."""

    def start(self) -> None:
        """Begin, unless everything is kept."""
        if self._days or self._most_bytes:
            self._task = asyncio.create_task(self._work(), name="byleave-retention")

    async def stop(self) -> None:
        """Stop after the step under way. May be called twice."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def run_once(self) -> Removed:
        """Remove what is too old or too much, and give back its room."""
        removed = Removed()
        if self._days:
            before = await self._retention.moment(self._days * DAY_SECONDS)
            removed += await self._paced(self._retention.prune(before))
        if self._most_bytes:
            removed += await self._paced(self._retention.prune_to(self._most_bytes))
        began = perf_counter()
        # Even if nothing was removed: a server that was killed before this left its free pages.
        while await self._retention.give_back(keep_bytes=KEPT_FREE_BYTES):
            began = await _rest(began)
        if removed != Removed():
            log.info("old calls removed", calls=removed.calls, approvals=removed.approvals, events=removed.events)
        if self._most_bytes:
            await self._check_size()
        return removed

    async def _work(self) -> None:
        while True:
            try:
                await self.run_once()
            except STORAGE_ERRORS as error:
                log.error("old calls could not be removed", error=str(error), again_in_seconds=self._every)
            self.passes += 1
            await asyncio.sleep(self._every)

    async def _paced(self, steps: AsyncIterator[Removed]) -> Removed:
        total, began = Removed(), perf_counter()
        async for removed in steps:
            total += removed
            began = await _rest(began)
        return total

    async def _check_size(self) -> None:
        used = (await self._retention.space(self._most_bytes)).used
        if used > self._most_bytes:
            log.warning(
                "the record is larger than BYLEAVE_RETENTION_MB",
                megabytes=used // MEGABYTE,
                hint="Calls of the last day, conversations and the audit chain are never removed: raise the limit.",
            )


async def _rest(began: float) -> float:
    """Pause after a step that began then; return when the next one begins."""
    await asyncio.sleep(max(SHORTEST_REST_SECONDS, REST_FACTOR * (perf_counter() - began)))
    return perf_counter()
