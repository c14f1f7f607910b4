"""ShareTask: measures what each user's part of the record takes, for `BYLEAVE_USER_MB`.

It works at the start and then hourly, and within a minute after somebody met the limit: what was counted since may be
gone again. It reads in small steps with pauses, and decides nothing: `calls.limits` does.
"""

import asyncio
import contextlib
from collections import Counter
from time import perf_counter

import structlog

from byleave.calls.limits import UserLimits
from byleave.store import STORAGE_ERRORS, Store

log = structlog.stdlib.get_logger(__name__)

HOUR_SECONDS = 3600.0
SOONEST_SECONDS = 60.0
REST_FACTOR = 9.0
"""A pause is so many times as long as the step before it: nine tenths of a reading thread are left to others."""


class ShareTask:
    """Measures at the right times, unless there is no limit."""

    def __init__(
        self,
        store: Store,
        limits: UserLimits,
        *,
        every_seconds: float = HOUR_SECONDS,
        soonest_seconds: float = SOONEST_SECONDS,
    ) -> None:
        self._retention = store.retention
        self._limits = limits
        self._every = every_seconds
        self._soonest = soonest_seconds
        self._task: asyncio.Task[None] | None = None
        self.passes = 0
        """Passes that came to their end."""

    def start(self) -> None:
        if self._limits.most_bytes:
            self._task = asyncio.create_task(self._work(), name="byleave-shares")

    async def stop(self) -> None:
        """Stop. May be called twice."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def measure(self) -> None:
        """Measure every user's part once, and tell the limits."""
        self._limits.measuring()
        shares: Counter[str] = Counter()
        began = perf_counter()
        async for user_id, size in self._retention.shares():
            shares[user_id] += size
            await asyncio.sleep(REST_FACTOR * (perf_counter() - began))
            began = perf_counter()
        self._limits.measured(shares)
        full = sorted(user_id for user_id, size in shares.items() if size >= self._limits.most_bytes)
        if full:
            log.warning(
                "users have filled their part of the record",
                users=len(full),
                first=full[:10],
                hint="Remove old calls with `byleave db prune`, or raise BYLEAVE_USER_MB.",
            )

    async def _work(self) -> None:
        while True:
            try:
                await self.measure()
            except STORAGE_ERRORS as error:
                log.error("users' parts of the record could not be measured", error=str(error))
            self.passes += 1
            await asyncio.sleep(self._soonest)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._limits.met.wait()
            self._limits.met.clear()
