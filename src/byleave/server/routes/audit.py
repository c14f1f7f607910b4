"""The audit chain of a project: its newest records, and its verification.

A chain may be long and anybody may ask as often as they like, so verifying is bounded: one chain at a time for each
user, few at once in all, and after a long one its user waits as long again. Requests for a chain that is being verified
share the result. The store reads and verifies the records.
"""

import asyncio
import json
import math
import time
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from byleave.protocol.overview import AuditCheck, AuditEntry, AuditPage
from byleave.protocol.wire import WireModel, now
from byleave.server.dependencies import Parts, Person, Project, StrictRoute
from byleave.server.errors import TooMany
from byleave.server.problems import problems
from byleave.server.services import Services
from byleave.store import Store

router = APIRouter(route_class=StrictRoute, tags=["audit"])

AT_ONCE = 2
"""Most chains verified at the same time; further users wait their turn."""
SHORT_SECONDS = 0.5
"""A verification this short may be repeated at once."""
PART = "verify"


class AuditQuery(WireModel):
    before: int | None = Field(default=None, ge=1, le=2**53, description="Only entries before this number.")
    limit: int = Field(default=50, ge=1, le=200, description="How many.")


class Verifications:
    """The chains that are being verified now."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._running: dict[str, asyncio.Task[AuditCheck]] = {}
        self._by_user: dict[str, str] = {}
        """The project each user verifies."""
        self._rests: dict[str, float] = {}
        """Users who may not yet begin another, and the end of their wait."""

    @classmethod
    def of(cls, parts: Services) -> "Verifications":
        found = parts.on_demand.get(PART)
        if not isinstance(found, Verifications):
            found = parts.on_demand[PART] = cls(parts.store)
        return found

    async def verify(self, project_id: str, user_id: str) -> AuditCheck:
        """Verify this project's chain; requests that come meanwhile share the result."""
        task = self._running.get(project_id)
        if task is None:
            self._check_turn(user_id)
            task = asyncio.create_task(self._verify(project_id, user_id), name="byleave-verify")
            self._running[project_id], self._by_user[user_id] = task, project_id
            task.add_done_callback(lambda done: self._end(project_id, user_id))
        # Shielded: a request that is cancelled must not cancel it for the others.
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


@router.get("/my/projects/{project_id}/audit", summary="The audit chain")
async def audit(parts: Parts, principal: Person, project: Project, query: Annotated[AuditQuery, Query()]) -> AuditPage:
    """Newest first. For the next page send `next_before` as `before`."""
    records, total = await parts.store.audit.newest(project, query.before, query.limit)
    entries = [
        AuditEntry(
            seq=record.seq,
            at=record.at,
            actor=record.actor,
            action=record.action,
            tool_id=record.execution_id,
            approval_id=record.approval_id,
            detail=json.loads(record.detail),
            previous_hash=record.previous_hash,
            hash=record.hash,
        )
        for record in records
    ]
    further = entries[-1].seq if len(entries) == query.limit and entries[-1].seq > 1 else None
    return AuditPage(entries=entries, total_count=total, next_before=further)


@router.get("/my/projects/{project_id}/audit/verify", summary="Verify the audit chain", responses=problems(429, 503))
async def verify(parts: Parts, principal: Person, project: Project) -> AuditCheck:
    """Recomputes the project's chain from its first record. One at a time for each user, with a pause after a long one:
    else 429 with Retry-After. A server that was tampered with could lie here: `byleave audit verify` reads the database
    itself."""
    async with parts.until_closing("Ask again when it is back."):
        return await Verifications.of(parts).verify(project, principal.user_id)
