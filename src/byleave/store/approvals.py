"""Approvals: asking, deciding once, and ending with the executions that waited.

A decision is one conditional update; its time limit is compared inside it by the database's clock, so a late
yes loses even when no sweeper has run yet. Several executions may wait for one approval (identical calls join it).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from byleave.protocol.approvals import Decision
from byleave.protocol.errors import ConflictError
from byleave.protocol.states import AnsweredFrom, ApprovalScope, ApprovalStatus, ErrorType, ExecutionStatus, RiskLevel
from byleave.protocol.wire import JsonObject, new_id

from . import grants, transitions
from .database import Database, Transaction
from .ledger import Ledger
from .questions import (
    APPROVAL_COLUMNS,
    close,
    decided_already,
    decisions,
    own,
    put,
    time_out,
    waiting_executions,
    with_tools,
)
from .records import ApprovalRow, ExecutionRow, approval_row
from .replaced_texts import text_of


@dataclass(frozen=True, slots=True)
class NewApproval:
    """A question that stands alone, without an execution (A: `request_tool_approval`)."""

    user_id: str
    project_id: str
    session_id: str | None
    agent_id: str | None
    tool_name: str
    tool_params: JsonObject
    digest: str
    risk_level: RiskLevel
    description: str
    timeout_seconds: int


class Decided(NamedTuple):
    """A decision that counted, and what came with it."""

    approval: ApprovalRow
    grant: grants.GrantRow | None = None
    released: tuple[str, ...] = ()
    """Other executions that waited and went with a grant."""


class Approvals:
    """The approvals' transactions."""

    def __init__(self, database: Database, *, client_wait_seconds: float, result_grace_seconds: float) -> None:
        self._database = database
        self._client_wait_seconds = client_wait_seconds
        self._grace_seconds = result_grace_seconds

    async def create(self, new: NewApproval) -> ApprovalRow:
        """Ask a question that no execution hangs on."""

        def work(transaction: Transaction) -> ApprovalRow:
            now = transaction.now
            approval = ApprovalRow(
                id=new_id("appr"),
                user_id=new.user_id,
                project_id=new.project_id,
                session_id=new.session_id,
                agent_id=new.agent_id,
                tool_name=new.tool_name,
                tool_params=new.tool_params,
                digest=new.digest,
                risk_level=new.risk_level,
                description=new.description,
                timeout_seconds=new.timeout_seconds,
                findings=(),
                network=False,
                status=ApprovalStatus.PENDING,
                created_at=now,
                deadline=transitions.later(now, new.timeout_seconds),
                decided_at=None,
                decided_by=None,
                reason=None,
                scope=None,
            )
            with Ledger(transaction, new.project_id) as ledger:
                put(transaction, ledger, approval, tool_id="")
            return approval

        return await self._database.write(work)

    async def decide(
        self,
        approval_id: str,
        *,
        user_id: str,
        approve: bool,
        decided_by: str,
        reason: str | None = None,
        digest: str | None = None,
        client_id: str | None = None,
        project_id: str | None = None,
        grant: grants.NewGrant | None = None,
        decided_from: AnsweredFrom | None = None,
        heavy: bool = False,
    ) -> Decided:
        """The first decision wins; a later one raises ConflictError and says what holds.

        With a `grant`, it is saved along with a yes, and calls that already wait and are covered go with it.
        """

        def work(transaction: Transaction) -> Decided | ConflictError:
            approval = own(transaction, approval_id, user_id, project_id)
            if approval.status is not ApprovalStatus.PENDING:
                raise decided_already(approval)
            if digest is not None and digest != approval.digest:
                raise ConflictError(
                    "This approval is for other parameters than the ones you were shown.",
                    state=approval.status.value,
                    hint="Reload it and look again.",
                )
            with Ledger(transaction, approval.project_id) as ledger:
                if transaction.now >= approval.deadline:
                    # Ends in the same transaction, so that nobody can slip in before the sweeper comes.
                    time_out(transaction, ledger, approval)
                    return decided_already(approval._replace(status=ApprovalStatus.TIMEOUT))
                waiting = waiting_executions(transaction, approval.id)
                if not approve:
                    return _reject(transaction, ledger, approval, waiting, decided_by, reason, decided_from)
                saved = None if grant is None else _save(transaction, ledger, approval, waiting, grant, decided_by)
                scope = ApprovalScope.ONCE if grant is None else grant.scope
                decided = close(
                    transaction,
                    ledger,
                    approval,
                    ApprovalStatus.APPROVED,
                    decided_by=decided_by,
                    reason=reason,
                    waiting=waiting,
                    scope=scope,
                    grant_id=saved.id if saved else None,
                    decided_from=decided_from,
                )
                for execution in waiting:
                    self._let_go(transaction, ledger, execution, decided_by, client_id)
                released = [] if saved is None else self._release(transaction, ledger, saved, client_id)
                return Decided(decided, saved, tuple(released))

        outcome = await self._database.write(work, heavy=heavy)
        if isinstance(outcome, ConflictError):
            raise outcome
        return outcome

    async def expire(self) -> None:
        """Time out questions that stand alone; those of executions end with them."""

        def work(transaction: Transaction) -> None:
            rows = transaction.all(
                f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE status = 'pending' AND deadline <= :now LIMIT 200",  # noqa: S608 - column names are ours
                {"now": transaction.now},
            )
            for row in rows:
                approval = approval_row(row)
                with Ledger(transaction, approval.project_id) as ledger:
                    time_out(transaction, ledger, approval)

        await self._database.write(work)

    async def pending(self, user_id: str, project_id: str | None = None) -> list[ApprovalRow]:
        def work(transaction: Transaction) -> list[ApprovalRow]:
            rows = transaction.all(
                f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE user_id = :user_id AND status = 'pending' "  # noqa: S608 - column names are ours
                "AND deadline > :now AND (:project_id IS NULL OR project_id = :project_id) ORDER BY created_at, id",
                {"user_id": user_id, "now": transaction.now, "project_id": project_id},
            )
            return [with_tools(transaction, approval_row(row)) for row in rows]

        return await self._database.read(work)

    async def get(self, approval_id: str, *, user_id: str) -> ApprovalRow:
        return await self._database.read(
            lambda transaction: with_tools(transaction, own(transaction, approval_id, user_id, None))
        )

    async def load(self, approval_id: str) -> ApprovalRow | None:
        """By id alone: for waiters inside the server."""

        def work(transaction: Transaction) -> ApprovalRow | None:
            row = transaction.one(f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = :id", {"id": approval_id})  # noqa: S608 - column names are ours
            return approval_row(row) if row else None

        return await self._database.read(work)

    async def decisions(self, approval_ids: Sequence[str | None]) -> dict[str, Decision]:
        """How questions ended, for those that did. Of whomever: the caller has the executions they were asked for."""
        if not any(approval_ids):
            return {}
        return await self._database.read(lambda transaction: decisions(transaction, approval_ids))

    async def replaced(
        self, approval_id: str, *, user_id: str, whole: Callable[[ApprovalRow], bool]
    ) -> tuple[ApprovalRow, str | None, JsonObject | None]:
        """A question, the text its call would replace, and, where the `whole` call is wanted and still waits, its true
        parameters."""

        def work(transaction: Transaction) -> tuple[ApprovalRow, str | None, JsonObject | None]:
            approval = own(transaction, approval_id, user_id, None)
            row = None
            if whole(approval):
                row = transaction.one(
                    "SELECT true_params FROM tool_executions WHERE approval_id = :id AND true_params IS NOT NULL "
                    "ORDER BY created_at, id LIMIT 1",
                    {"id": approval_id},
                )
            return approval, text_of(transaction, approval_id), json.loads(row["true_params"]) if row else None

        return await self._database.read(work)

    def _let_go(
        self,
        transaction: Transaction,
        ledger: Ledger,
        execution: ExecutionRow,
        approved_by: str,
        client_id: str | None,
    ) -> None:
        approved = transitions.approve(
            transaction, ledger, execution, approved_by=approved_by, client_wait_seconds=self._client_wait_seconds
        )
        if client_id:
            transitions.dispatch(transaction, ledger, approved, client_id=client_id, grace_seconds=self._grace_seconds)

    def _release(
        self, transaction: Transaction, ledger: Ledger, grant: grants.GrantRow, client_id: str | None
    ) -> list[str]:
        """Let go what waits in the session and is covered by a grant that was just given, as far as its uses reach."""
        rows = transaction.all(
            f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE session_id = :session_id AND user_id = :user_id "  # noqa: S608 - column names are ours
            "AND status = 'pending' AND deadline > :now ORDER BY created_at, id",
            {"session_id": grant.session_id, "user_id": grant.user_id, "now": transaction.now},
        )
        released: list[str] = []
        for approval in map(approval_row, rows):
            waiting = waiting_executions(transaction, approval.id)
            left = len(waiting)
            for execution in waiting:
                used = grants.use_one(transaction, ledger, execution)
                if used is None:
                    break
                left -= 1
                self._let_go(transaction, ledger, execution, f"grant:{used.id}", client_id)
                released.append(execution.id)
                if left == 0:  # identical calls wait for one approval; while one still waits, so does the question
                    close(
                        transaction,
                        ledger,
                        approval,
                        ApprovalStatus.APPROVED,
                        decided_by=f"grant:{used.id}",
                        reason=None,
                        waiting=waiting,
                        grant_id=used.id,
                    )
        return released


def _save(
    transaction: Transaction,
    ledger: Ledger,
    approval: ApprovalRow,
    waiting: list[ExecutionRow],
    grant: grants.NewGrant,
    created_by: str,
) -> grants.GrantRow:
    if approval.session_id is None:
        raise ConflictError("This question belongs to no session, so its answer cannot cover one.", state="pending")
    return grants.save(
        transaction,
        ledger,
        grant,
        user_id=approval.user_id,
        project_id=approval.project_id,
        session_id=approval.session_id,
        approval_id=approval.id,
        created_by=created_by,
        in_chat=any(execution.run_id is not None for execution in waiting),
    )


def _reject(
    transaction: Transaction,
    ledger: Ledger,
    approval: ApprovalRow,
    waiting: list[ExecutionRow],
    decided_by: str,
    reason: str | None,
    decided_from: AnsweredFrom | None,
) -> Decided:
    decided = close(
        transaction,
        ledger,
        approval,
        ApprovalStatus.REJECTED,
        decided_by=decided_by,
        reason=reason,
        waiting=waiting,
        decided_from=decided_from,
    )
    for execution in waiting:
        transitions.end(
            transaction,
            ledger,
            execution,
            ExecutionStatus.REJECTED,
            actor=decided_by,
            error=f"Rejected by the user: {reason}" if reason else "Rejected by the user.",
            error_type=ErrorType.REJECTED,
        )
    return Decided(decided)
