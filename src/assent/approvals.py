"""ApprovalManager: the questions put to people, and their answers.

A decision counts once and covers exactly the parameters that were shown; both are enforced by the store's
compare-and-set, not here. This module never decides by itself: no default, no answer on a timeout but TIMEOUT.
"""

import asyncio
import contextlib
from typing import Any

from assent.bus import Bus, Presence
from assent.gate import describe, shown_params
from assent.protocol.approvals import ApprovalRequest
from assent.protocol.digests import call_digest
from assent.protocol.errors import ConflictError, NotFound
from assent.protocol.states import ApprovalStatus, RiskLevel
from assent.protocol.verdicts import Finding, VerdictLevel, verdict_of
from assent.store import ApprovalRow, Store
from assent.store.approvals import NewApproval
from assent.store.executions import HEAVY_CHARACTERS
from assent.store.questions import approval_topic

LOOK_AGAIN_SECONDS = 2.0
"""How often a waiter looks for itself, in case a hint got lost."""


class ApprovalManager:
    """Ask, list, decide, wait."""

    def __init__(self, store: Store, bus: Bus, presence: Presence) -> None:
        self._store = store
        self._bus = bus
        self._presence = presence

    async def request_tool_approval(
        self,
        user_id: str,
        tool_name: str,
        tool_params: dict[str, Any],
        risk_level: RiskLevel,
        timeout_seconds: int,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> ApprovalRequest:
        """Ask about a call. Without a session the question goes to the user's first project."""
        project_id = await self._project_for(user_id, session_id)
        level = VerdictLevel(risk_level.value)
        verdict = verdict_of([Finding(level=level, reason=f"Assessed {level}.", rule="approvals.requested")])
        row = await self._store.approvals.create(
            NewApproval(
                user_id=user_id,
                project_id=project_id,
                session_id=session_id,
                agent_id=agent_id,
                tool_name=tool_name,
                tool_params=shown_params(tool_name, tool_params),
                digest=call_digest(tool_name, tool_params, project_id),
                risk_level=risk_level,
                description=describe(tool_name, tool_params, verdict),
                timeout_seconds=timeout_seconds,
            )
        )
        return row.to_wire()

    async def get_pending_approvals(self, user_id: str, project_id: str | None = None) -> list[ApprovalRequest]:
        """What waits for this user, oldest first."""
        return [row.to_wire() for row in await self._store.approvals.pending(user_id, project_id)]

    async def approve_tool(self, approval_id: str, user_id: str) -> bool:
        """True when this answer was the one that counted; an earlier decision or a timeout makes it False."""
        return await self._counts(approval_id, user_id, approve=True)

    async def reject_tool(self, approval_id: str, user_id: str, reason: str | None = None) -> bool:
        """True when this answer was the one that counted."""
        return await self._counts(approval_id, user_id, approve=False, reason=reason)

    async def decide(
        self,
        approval_id: str,
        user_id: str,
        *,
        approve: bool,
        reason: str | None = None,
        digest: str | None = None,
        project_id: str | None = None,
    ) -> ApprovalRow:
        """Decide, or raise ConflictError with what already holds, or NotFound."""
        pending = await self._store.approvals.get(approval_id, user_id=user_id)
        # Chosen and queued without an await between: a client that connects meanwhile is served after us.
        client = self._presence.choose(pending.project_id)
        return await self._store.approvals.decide(
            approval_id,
            user_id=user_id,
            approve=approve,
            decided_by=f"person:{user_id}",
            reason=reason,
            digest=digest,
            client_id=client.client_id if client else None,
            project_id=project_id,
            heavy=pending.tool_params.get("content_size", 0) > HEAVY_CHARACTERS,
        )

    async def wait_for_decision(self, approval_id: str, user_id: str) -> ApprovalRequest:
        """Wait until it is decided, times out or is withdrawn."""
        news = asyncio.Event()
        stop = self._bus.listen(approval_topic(approval_id), lambda fact: news.set())
        try:
            while True:
                row = await self._store.approvals.get(approval_id, user_id=user_id)
                if row.status is not ApprovalStatus.PENDING:
                    return row.to_wire()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                        await news.wait()
                news.clear()
        finally:
            stop()

    async def _counts(self, approval_id: str, user_id: str, *, approve: bool, reason: str | None = None) -> bool:
        try:
            await self.decide(approval_id, user_id, approve=approve, reason=reason)
        except ConflictError:
            return False
        return True

    async def _project_for(self, user_id: str, session_id: str | None) -> str:
        if session_id is not None:
            return (await self._store.chat.session(session_id, user_id=user_id)).project_id
        projects = await self._store.chat.projects(user_id)
        if not projects:
            raise NotFound(f"The user {user_id!r} has no project.", hint="Create one with `POST /my/projects`.")
        return projects[0].id
