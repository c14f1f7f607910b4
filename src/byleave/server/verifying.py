"""Verifying audit chains for those who ask over the network: one at a time for each user, few at once in all.

A chain may be long and anybody may ask as often as they like, so the cost is bounded by its share: after a verification
that took long, its user waits as long again before the next. Those who ask for a chain that is being verified share the
answer. What a verification finds is the store's; nothing here reads a record.
"""

import asyncio
import math
import time
from collections.abc import Callable

from byleave.protocol.overview import AuditCheck
from byleave.protocol.wire import now
from byleave.store import Store

from .problems import TooMany
from .services import Services

AT_ONCE = 2
"""Chains that are verified at the same time; those of further users wait for their turn."""
SHORT_SECONDS = 0.5
"""What takes no longer may be repeated at once."""
PART = "verify"


class Verifications:
    """The chains that are being verified now."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._running: dict[str, asyncio.Task[AuditCheck]] = {}
        self._by_user: dict[str, str] = {}
        """Which project each user verifies."""
        self._rests: dict[str, float] = {}
        """Users who may not yet begin another, and until when."""

    @classmethod
    def of(cls, parts: Services) -> "Verifications":
        found = parts.on_demand.get(PART)
        if not isinstance(found, Verifications):
            found = parts.on_demand[PART] = cls(parts.store)
        return found

    async def verify(self, project_id: str, user_id: str) -> AuditCheck:
        """What verifying this project's chain finds. One that is under way answers for all who ask meanwhile."""
        task = self._running.get(project_id)
        if task is None:
            self._check_turn(user_id)
            task = asyncio.create_task(self._verify(project_id, user_id), name="byleave-verify")
            self._running[project_id], self._by_user[user_id] = task, project_id
            task.add_done_callback(lambda done: self._end(project_id, user_id))
        # Shielded: one who goes away does not take the answer from the others.
        return await asyncio.shield(task)

    async def close(self) -> None:
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _check_turn(self, user_id: str) -> None:
        if user_id in self._by_user:
            raise TooMany(
                "Another chain of yours is being verified.", hint="Ask again when that one is done.", retry_after=1
            )
        left = self._rests.get(user_id, 0.0) - self._clock()
        if left > 0:
            seconds = math.ceil(left)
            raise TooMany(
                "Your last verification took long, so the next has to wait.",
                hint=f"Ask again in {seconds} {'second' if seconds == 1 else 'seconds'}.",
                retry_after=seconds,
            )

    def _end(self, project_id: str, user_id: str) -> None:
        del self._running[project_id], self._by_user[user_id]

    async def _verify(self, project_id: str, user_id: str) -> AuditCheck:
        async with self._turns:
            began = self._clock()
            found = await self._store.audit.verify_project(project_id)
        ended = self._clock()
        if ended - began > SHORT_SECONDS:
            self._rests = {user: until for user, until in self._rests.items() if until > ended}
            self._rests[user_id] = ended + (ended - began)
        return AuditCheck(
            project_id=project_id,
            records=found.records,
            head=found.head,
            holds=found.fault is None,
            fault=found.fault,
            checked_at=now(),
        )
