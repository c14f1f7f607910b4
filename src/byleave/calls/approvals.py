"""ApprovalManager: the questions put to people, and their answers.

A decision counts once and covers exactly the parameters that were shown; both are enforced by the store's
compare-and-set, not here. This module never decides by itself: no default, no answer on a timeout but TIMEOUT.
"""

import asyncio
import contextlib
import json
from typing import Any, Literal

from byleave.bus import Bus, Presence
from byleave.gate import cover_inert, describe, shown_params
from byleave.gate.commands.calls import call_of
from byleave.gate.policy.grants import covers, may_be_granted, problem_with, text_of, widest_of
from byleave.gate.text.changes import Write, write_change
from byleave.gate.text.render import full_text
from byleave.protocol.approvals import ApprovalRequest, WholeCall, call_digest
from byleave.protocol.changes import MAX_SHOWN_TEXT, WriteChange
from byleave.protocol.errors import CallerError, ConflictError, NotFound
from byleave.protocol.grants import (
    DEFAULT_EVERYTHING_SECONDS,
    DEFAULT_GRANT_SECONDS,
    EVERYTHING_WARNING,
    Grant,
    GrantPreview,
    GrantRule,
    GrantTerms,
    PastCall,
)
from byleave.protocol.states import AnsweredFrom, ApprovalScope, ApprovalStatus, ErrorType, RiskLevel
from byleave.protocol.verdicts import Finding, VerdictLevel, verdict_of
from byleave.protocol.wire import Id, JsonObject, id_text
from byleave.store import ApprovalRow, ExecutionRow, Store
from byleave.store.approvals import Decided, NewApproval
from byleave.store.executions import HEAVY_CHARACTERS
from byleave.store.grants import NewGrant, asked_of, bound_of, grant_covers
from byleave.store.history import HistoryFilter
from byleave.store.questions import approval_topic

LOOK_AGAIN_SECONDS = 2.0
"""How often a waiter looks for itself, in case a hint got lost."""

MAX_WHOLE_BYTES = 4 * MAX_SHOWN_TEXT
"""No content that is shown in a difference has more."""

PREVIEWED_CALLS = 200
PREVIEW_EXAMPLES = 5

EVERYTHING = "Everything in this session, except what always asks."


class GrantProblem(CallerError):
    """A grant that may not be saved, and why."""


class ApprovalManager:
    """Ask, list, decide, wait."""

    def __init__(self, store: Store, bus: Bus, presence: Presence) -> None:
        self._store = store
        self._bus = bus
        self._presence = presence

    async def request_tool_approval(
        self,
        user_id: Id,
        tool_name: str,
        tool_params: dict[str, Any],
        risk_level: RiskLevel | str,
        timeout_seconds: int,
        agent_id: Id | None = None,
        session_id: Id | None = None,
    ) -> ApprovalRequest:
        """Ask about a call. Without a session the question goes to the user's first project."""
        user_id, risk_level = str(user_id), RiskLevel(risk_level)
        session_id = None if session_id is None else id_text("sess", session_id)
        project_id = await self._project_for(user_id, session_id)
        level = VerdictLevel(risk_level.value)
        verdict = verdict_of([Finding(level=level, reason=f"Assessed {level}.", rule="approvals.requested")])
        row = await self._store.approvals.create(
            NewApproval(
                user_id=user_id,
                project_id=project_id,
                session_id=session_id,
                agent_id=None if agent_id is None else str(agent_id),
                tool_name=tool_name,
                tool_params=shown_params(tool_name, tool_params, cover_inert),
                digest=call_digest(tool_name, tool_params, project_id),
                risk_level=risk_level,
                description=describe(tool_name, tool_params, verdict),
                timeout_seconds=timeout_seconds,
            )
        )
        return row.to_wire()

    async def get_pending_approvals(self, user_id: Id, project_id: Id | None = None) -> list[ApprovalRequest]:
        """What waits for this user, oldest first."""
        project = None if project_id is None else id_text("proj", project_id)
        return [row.to_wire() for row in await self._store.approvals.pending(str(user_id), project)]

    async def approve_tool(self, approval_id: Id, user_id: Id) -> bool:
        """True when this answer was the one that counted; False after an earlier decision or a timeout, and when the
        user has no such approval."""
        return await self._counts(approval_id, user_id, approve=True)

    async def reject_tool(self, approval_id: Id, user_id: Id, reason: str | None = None) -> bool:
        """True when this answer was the one that counted."""
        return await self._counts(approval_id, user_id, approve=False, reason=reason)

    async def confirm_approval(self, approval_id: Id, user_id: Id, decision: Literal["approved", "rejected"]) -> bool:
        """`approve_tool` or `reject_tool`. Any other word decides nothing."""
        if decision not in ("approved", "rejected"):
            return False
        return await self._counts(approval_id, user_id, approve=decision == "approved")

    async def decide(
        self,
        approval_id: str,
        user_id: str,
        *,
        approve: bool,
        reason: str | None = None,
        digest: str | None = None,
        project_id: str | None = None,
        scope: ApprovalScope = ApprovalScope.ONCE,
        terms: GrantTerms | None = None,
        decided_from: AnsweredFrom | None = None,
    ) -> Decided:
        """Decide, or raise ConflictError with what already holds, or NotFound.

        With a scope beyond this call, a yes also saves a grant; one that may not be is a GrantProblem, and nothing is
        decided.
        """
        pending = await self._store.approvals.get(approval_id, user_id=user_id)
        grant = await self._grant(pending, scope, terms or GrantTerms()) if approve else None
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
            grant=grant,
            decided_from=decided_from,
            heavy=pending.tool_params.get("content_size", 0) > HEAVY_CHARACTERS,
        )

    async def _grant(self, pending: ApprovalRow, scope: ApprovalScope, terms: GrantTerms) -> NewGrant | None:
        """The grant an answer asks for, checked; None for an answer to this call alone."""
        match scope:
            case ApprovalScope.ONCE:
                if terms != GrantTerms():
                    raise GrantProblem("An answer to this call alone takes no terms.", hint="Leave `terms` out.")
                return None
            case ApprovalScope.SESSION:
                if not terms.warned:
                    raise GrantProblem(EVERYTHING_WARNING, hint="Show this warning, then send `warned: true`.")
                if terms.rule is not None:
                    raise GrantProblem("Everything in the session has no rule.", hint="Use the scope `class`.")
                seconds = terms.expires_in_seconds or DEFAULT_EVERYTHING_SECONDS
                return NewGrant(scope, None, EVERYTHING, seconds, terms.max_uses)
            case ApprovalScope.CLASS:
                rule = await self._class_rule(pending, terms.rule)
                seconds = terms.expires_in_seconds or DEFAULT_GRANT_SECONDS
                return NewGrant(scope, rule, text_of(rule), seconds, terms.max_uses)

    async def _class_rule(self, pending: ApprovalRow, rule: GrantRule | None) -> GrantRule:
        project = await self._store.chat.project(pending.project_id)
        workspace = project.workspace if project else None
        if not _may_be_granted(pending, workspace):
            raise GrantProblem("This call asks every time: no class of calls like it can be allowed.")
        if rule is None:
            raise GrantProblem("Allowing a class of calls needs its rule.", hint="Send one of `suggestions`.")
        problem = problem_with(rule)
        if problem is not None:
            raise GrantProblem(problem, hint="Narrow it, or take one of `suggestions`.")
        if not _covers(rule, pending, workspace):
            raise GrantProblem("This rule does not cover the call you are answering.")
        return rule

    async def preview_grant(self, user_id: str, project_id: str, rule: GrantRule) -> GrantPreview:
        """What a rule would have covered of the user's last calls in a project, also of those they refused."""
        rows, _, _ = await self._store.executions.page(
            HistoryFilter(user_id=user_id, project_id=project_id, limit=PREVIEWED_CALLS, counted=False)
        )
        project = await self._store.chat.project(project_id)
        workspace = project.workspace if project else None
        asked = ((row, asked_of(row, bound_of(row), workspace, recorded=True)) for row in rows)
        hits = [row for row, one in asked if one is not None and grant_covers(rule, one)]
        refused = [row for row in hits if row.error_type is ErrorType.REJECTED]
        calls = "1 call" if len(rows) == 1 else f"{len(rows)} calls"
        among = f", among them {len(refused)} you refused" if refused else ""
        return GrantPreview(
            rule=rule,
            text=text_of(rule),
            widest=widest_of(rule),
            problem=problem_with(rule),
            looked_at=len(rows),
            covered=len(hits),
            refused=[_past(row) for row in refused[:PREVIEW_EXAMPLES]],
            examples=[_past(row) for row in hits[:PREVIEW_EXAMPLES]],
            sentence=f"It would have covered {len(hits)} of your last {calls}{among}.",
        )

    async def whole_call(self, approval_id: str, user_id: str, *, reveal: bool = False) -> WholeCall:
        """All of what waits: where a question shows a part of a long content, this shows the rest.

        With `reveal` also what is masked there: a person must be able to see all that they allow.
        """
        approval = await self._store.approvals.get(approval_id, user_id=user_id)
        for tool_id in approval.tool_ids:
            row = await self._store.executions.get(tool_id, user_id=user_id)
            if row.true_params is not None:
                text = await asyncio.to_thread(full_text, row.tool_name, json.loads(row.true_params), reveal=reveal)
                return WholeCall(approval_id=approval_id, text=text)
        raise NotFound("Nothing waits for this approval any more.", hint="The record has the call as it was shown.")

    async def change(self, approval_id: str, user_id: str) -> WriteChange:
        """What a write that waits, or waited, would do: the file before and after. NotFound where it is no write."""
        row, kept, params = await self._store.approvals.replaced(
            approval_id, user_id=user_id, whole=lambda approval: _size(approval.tool_params) <= MAX_WHOLE_BYTES
        )
        shown = row.tool_params
        path, content = shown.get("path"), (params or shown).get("content")
        if row.tool_name != "write_file" or not isinstance(path, str) or not isinstance(content, str):
            raise NotFound("This approval is about no write.", hint="`GET /my/approvals/{id}/whole` shows the call.")
        if params is None and "content_size" in shown:
            content = None  # the record has only a part
        seen = row.inspection.files[0] if row.inspection and row.inspection.files else None
        text = kept if kept is not None or seen is None else seen.text
        write = Write(path or ".", shown.get("mode") == "append", content, seen, text)
        return WriteChange(
            approval_id=row.id,
            digest=row.digest,
            change=await asyncio.to_thread(write_change, write),
            before_sha256=seen.sha256 if seen else None,
            before_size=seen.size if seen else None,
            seen_at=row.created_at if seen else None,
        )

    async def grants(
        self,
        user_id: str,
        *,
        session_id: str | None = None,
        project_id: str | None = None,
        all_of_them: bool = False,
    ) -> list[Grant]:
        """The user's grants, newest first."""
        rows, now = await self._store.grants.page(
            user_id, session_id=session_id, project_id=project_id, all_of_them=all_of_them
        )
        return [row.to_wire(now) for row in rows]

    async def revoke_grant(self, grant_id: str, user_id: str) -> Grant:
        """Take a grant back; calls that come later ask again."""
        row, now = await self._store.grants.revoke(grant_id, user_id=user_id, actor=f"person:{user_id}")
        return row.to_wire(now)

    async def wait_for_approval(self, approval_id: Id, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - the sources' name
        """True once a person, or a grant, said yes. False for a no, for no answer in time, and for what is unknown."""
        approval_id = id_text("appr", approval_id)
        asked = await self._store.approvals.load(approval_id)
        if asked is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                decided = await self.wait_for_decision(approval_id, asked.user_id)
        except TimeoutError:
            return False
        return decided.status is ApprovalStatus.APPROVED

    async def wait_for_decision(self, approval_id: Id, user_id: Id) -> ApprovalRequest:
        """Wait until it is decided, times out or is withdrawn."""
        approval_id, user_id = id_text("appr", approval_id), str(user_id)
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

    async def _counts(self, approval_id: Id, user_id: Id, *, approve: bool, reason: str | None = None) -> bool:
        try:
            await self.decide(id_text("appr", approval_id), str(user_id), approve=approve, reason=reason)
        except (ConflictError, NotFound):
            return False
        return True

    async def _project_for(self, user_id: str, session_id: str | None) -> str:
        if session_id is not None:
            return (await self._store.chat.session(session_id, user_id=user_id)).project_id
        projects = await self._store.chat.projects(user_id)
        if not projects:
            raise NotFound(f"The user {user_id!r} has no project.", hint="Create one with `POST /my/projects`.")
        return projects[0].id


def _size(tool_params: JsonObject) -> int:
    """How many bytes a write has, as the question says; what it shows whole is small."""
    size = tool_params.get("content_size", 0)
    return size if isinstance(size, int) else 0


def _past(row: ExecutionRow) -> PastCall:
    params = json.loads(row.tool_params)
    verdict = verdict_of([Finding(level=VerdictLevel.LOW, reason="", rule="history")])
    return PastCall(
        tool_id=row.id,
        description=describe(row.tool_name, params, verdict).partition("\n")[0],
        risk_level=row.risk_level,
        status=row.status,
        created_at=row.created_at,
    )


def _may_be_granted(pending: ApprovalRow, workspace: str | None) -> bool:
    try:
        call = call_of(pending.tool_name, pending.tool_params, None, workspace)
    except (KeyError, TypeError):
        return pending.risk_level is RiskLevel.MEDIUM
    always_asks = any(finding.always_asks for finding in pending.findings)
    return may_be_granted(call, level=VerdictLevel(pending.risk_level.value), always_asks=always_asks)


def _covers(rule: GrantRule, pending: ApprovalRow, workspace: str | None) -> bool:
    """By the parameters as shown: a rule that only fits what was masked is none a person could have read."""
    if rule.tool != pending.tool_name:
        return False
    try:
        call = call_of(pending.tool_name, pending.tool_params, None, workspace)
    except (KeyError, TypeError):  # a question that stands alone may be about anything
        return False
    return covers(
        rule,
        call,
        level=VerdictLevel(pending.risk_level.value),
        always_asks=False,
        network=pending.network,
        bound=pending.inspection.bound if pending.inspection else {},
    )
