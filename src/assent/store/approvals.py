"""Approvals: asking, deciding once, and ending with the executions that waited.

A decision is one conditional update; its time limit is compared inside it by the database's clock, so a late
yes loses even when no sweeper has run yet. Several executions may wait for one approval (identical calls join it).
"""

import json
from dataclasses import dataclass, replace

from assent.protocol.errors import ConflictError, NotFound
from assent.protocol.events import ApprovalDecided, ApprovalRequested
from assent.protocol.states import ApprovalStatus, ErrorType, ExecutionStatus, RiskLevel
from assent.protocol.values import JsonObject, new_id

from . import moves
from .database import Database, Transaction
from .ledger import Ledger
from .records import ApprovalRow, ExecutionRow, approval_row, as_values, columns, execution_row, placeholders

APPROVAL_COLUMNS = columns(ApprovalRow)


def approval_topic(approval_id: str) -> str:
    """Where news of one approval is told."""
    return f"approval:{approval_id}"


@dataclass(frozen=True, slots=True)
class Question:
    """A person must be asked."""

    description: str
    timeout_seconds: int


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
                **as_values(new),
                findings=(),
                network=False,
                status=ApprovalStatus.PENDING,
                created_at=now,
                deadline=moves.later(now, new.timeout_seconds),
                decided_at=None,
                decided_by=None,
                reason=None,
                scope=None,
            )
            with Ledger(transaction, new.project_id) as ledger:
                _store(transaction, ledger, approval, tool_id="")
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
    ) -> ApprovalRow:
        """The first decision wins; a later one raises ConflictError and says what holds."""

        def work(transaction: Transaction) -> ApprovalRow | ConflictError:
            approval = _own(transaction, approval_id, user_id, project_id)
            if approval.status is not ApprovalStatus.PENDING:
                raise _decided_already(approval)
            if digest is not None and digest != approval.digest:
                raise ConflictError(
                    "This approval is for other parameters than the ones you were shown.",
                    state=approval.status.value,
                    hint="Reload it and look again.",
                )
            with Ledger(transaction, approval.project_id) as ledger:
                if transaction.now >= approval.deadline:
                    # Ends in the same transaction, so that nobody can slip in before the sweeper comes.
                    _time_out(transaction, ledger, approval)
                    return _decided_already(replace(approval, status=ApprovalStatus.TIMEOUT))
                return self._apply(transaction, ledger, approval, approve, decided_by, reason, client_id)

        outcome = await self._database.write(work)
        if isinstance(outcome, ConflictError):
            raise outcome
        return outcome

    async def expire(self) -> None:
        """Time out questions that stand alone; those of executions end with them."""

        def work(transaction: Transaction) -> None:
            rows = transaction.all(
                f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE status = 'pending' AND deadline <= :now LIMIT 200",  # noqa: S608
                {"now": transaction.now},
            )
            for row in rows:
                approval = approval_row(row)
                with Ledger(transaction, approval.project_id) as ledger:
                    _time_out(transaction, ledger, approval)

        await self._database.write(work)

    async def pending(self, user_id: str, project_id: str | None = None) -> list[ApprovalRow]:
        def work(transaction: Transaction) -> list[ApprovalRow]:
            rows = transaction.all(
                f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE user_id = :user_id AND status = 'pending' "  # noqa: S608
                "AND deadline > :now AND (:project_id IS NULL OR project_id = :project_id) ORDER BY created_at, id",
                {"user_id": user_id, "now": transaction.now, "project_id": project_id},
            )
            return [_with_tools(transaction, approval_row(row)) for row in rows]

        return await self._database.read(work)

    async def get(self, approval_id: str, *, user_id: str) -> ApprovalRow:
        return await self._database.read(
            lambda transaction: _with_tools(transaction, _own(transaction, approval_id, user_id, None))
        )

    def _apply(
        self,
        transaction: Transaction,
        ledger: Ledger,
        approval: ApprovalRow,
        approve: bool,
        decided_by: str,
        reason: str | None,
        client_id: str | None,
    ) -> ApprovalRow:
        after = ApprovalStatus.APPROVED if approve else ApprovalStatus.REJECTED
        waiting = waiting_executions(transaction, approval.id)
        decided = _close(transaction, ledger, approval, after, decided_by=decided_by, reason=reason, waiting=waiting)
        for execution in waiting:
            if approve:
                approved = moves.approve(
                    transaction,
                    execution,
                    approved_by=decided_by,
                    client_wait_seconds=self._client_wait_seconds,
                )
                if client_id:
                    moves.dispatch(
                        transaction, ledger, approved, client_id=client_id, grace_seconds=self._grace_seconds
                    )
            else:
                moves.end(
                    transaction,
                    ledger,
                    execution,
                    ExecutionStatus.REJECTED,
                    actor=decided_by,
                    error=f"Rejected by the user: {reason}" if reason else "Rejected by the user.",
                    error_type=ErrorType.REJECTED,
                )
        return decided


def ask(transaction: Transaction, ledger: Ledger, execution: ExecutionRow, question: Question) -> ExecutionRow:
    """Put an execution's question to a person, or let it join the identical one that already waits."""
    now = transaction.now
    row = transaction.one(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE session_id = :session_id AND digest = :digest "  # noqa: S608
        "AND user_id = :user_id AND status = 'pending' AND deadline > :now",
        {
            "session_id": execution.session_id,
            "digest": execution.digest,
            "user_id": execution.user_id,
            "now": now,
        },
    )
    if row is not None:
        approval = approval_row(row)
        ledger.audit("joined", "server", execution_id=execution.id, approval_id=approval.id)
    else:
        values = {
            "id": new_id("appr"),
            "user_id": execution.user_id,
            "project_id": execution.project_id,
            "session_id": execution.session_id,
            "agent_id": execution.agent_id,
            "tool_name": execution.tool_name,
            "tool_params": execution.tool_params,
            "digest": execution.digest,
            "risk_level": execution.risk_level.value,
            "findings": execution.findings,
            "network": execution.network,
            "description": question.description,
            "status": ApprovalStatus.PENDING.value,
            "timeout_seconds": question.timeout_seconds,
            "created_at": now,
            "deadline": moves.later(now, question.timeout_seconds),
            "decided_at": None,
            "decided_by": None,
            "reason": None,
            "scope": None,
        }
        approval = approval_row(values)
        _store(transaction, ledger, approval, tool_id=execution.id)
    transaction.change(
        "UPDATE tool_executions SET approval_id = :approval_id, deadline = :deadline WHERE id = :id",
        {"approval_id": approval.id, "deadline": approval.deadline, "id": execution.id},
    )
    transaction.hint(moves.DEADLINES_TOPIC, approval.deadline)
    return replace(execution, approval_id=approval.id, deadline=approval.deadline)


def waiting_executions(transaction: Transaction, approval_id: str) -> list[ExecutionRow]:
    rows = transaction.all(
        f"SELECT {moves.EXECUTION_COLUMNS} FROM tool_executions WHERE approval_id = :approval_id "  # noqa: S608
        "AND status = 'AWAITING_APPROVAL' ORDER BY created_at, id",
        {"approval_id": approval_id},
    )
    return [execution_row(row) for row in rows]


def mark_timed_out(transaction: Transaction, ledger: Ledger, approval_id: str) -> None:
    """The approval's side of an execution whose question ran out of time; a no-op for the second that joined."""
    _close_pending(transaction, ledger, approval_id, ApprovalStatus.TIMEOUT)


def close_if_unneeded(transaction: Transaction, ledger: Ledger, approval_id: str) -> None:
    """Withdraw a question nobody waits for any more."""
    if not waiting_executions(transaction, approval_id):
        _close_pending(transaction, ledger, approval_id, ApprovalStatus.CANCELLED)


def _close_pending(transaction: Transaction, ledger: Ledger, approval_id: str, after: ApprovalStatus) -> None:
    row = transaction.one(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = :id AND status = 'pending'",  # noqa: S608
        {"id": approval_id},
    )
    if row is not None:
        _close(
            transaction,
            ledger,
            approval_row(row),
            after,
            decided_by=None,
            reason=None,
            waiting=waiting_executions(transaction, approval_id),
        )


def _time_out(transaction: Transaction, ledger: Ledger, approval: ApprovalRow) -> None:
    waiting = waiting_executions(transaction, approval.id)
    _close(transaction, ledger, approval, ApprovalStatus.TIMEOUT, decided_by=None, reason=None, waiting=waiting)
    for execution in waiting:
        moves.end(
            transaction,
            ledger,
            execution,
            ExecutionStatus.TIMEOUT,
            actor="server:deadline",
            error="Approval timeout",
            error_type=ErrorType.APPROVAL_TIMEOUT,
        )


def _store(transaction: Transaction, ledger: Ledger, approval: ApprovalRow, *, tool_id: str) -> None:
    values = as_values(approval) | {
        "tool_params": json.dumps(approval.tool_params),
        "findings": json.dumps([finding.model_dump(mode="json") for finding in approval.findings]),
    }
    del values["tool_ids"]
    transaction.change(f"INSERT INTO approvals {placeholders(values)}", values)
    ledger.event(
        ApprovalRequested(
            timestamp=approval.created_at,
            approval_id=approval.id,
            tool_id=tool_id,
            tool_name=approval.tool_name,
            risk_level=approval.risk_level,
            timeout_seconds=approval.timeout_seconds,
            description=approval.description,
            tool_params=approval.tool_params,
            findings=list(approval.findings),
            network=approval.network,
            digest=approval.digest,
            deadline=approval.deadline,
            session_id=approval.session_id,
            agent_id=approval.agent_id,
        )
    )
    ledger.audit(
        "asked",
        "server",
        execution_id=tool_id or None,
        approval_id=approval.id,
        digest=approval.digest,
        risk=approval.risk_level.value,
        deadline=approval.deadline,
    )
    transaction.hint(moves.DEADLINES_TOPIC, approval.deadline)


def _close(
    transaction: Transaction,
    ledger: Ledger,
    approval: ApprovalRow,
    after: ApprovalStatus,
    *,
    decided_by: str | None,
    reason: str | None,
    waiting: list[ExecutionRow],
) -> ApprovalRow:
    now = transaction.now
    changed = transaction.change(
        "UPDATE approvals SET status = :after, decided_at = :now, decided_by = :decided_by, reason = :reason, "
        "scope = :scope WHERE id = :id AND status = 'pending'",
        {
            "after": after.value,
            "now": now,
            "decided_by": decided_by,
            "reason": reason,
            "scope": "once" if after is ApprovalStatus.APPROVED else None,
            "id": approval.id,
        },
    )
    if changed != 1:
        raise ConflictError("Somebody decided this approval first.", state="unknown")
    decided = replace(
        approval,
        status=after,
        decided_at=now,
        decided_by=decided_by,
        reason=reason,
        tool_ids=tuple(execution.id for execution in waiting),
    )
    ledger.event(
        ApprovalDecided(
            timestamp=now,
            approval_id=approval.id,
            tool_ids=list(decided.tool_ids),
            status=after,
            decided_by=decided_by,
            reason=reason,
            session_id=approval.session_id,
        )
    )
    ledger.audit(
        after.value,
        decided_by or "server:deadline",
        approval_id=approval.id,
        digest=approval.digest,
        reason=reason,
        executions=list(decided.tool_ids),
    )
    transaction.hint(approval_topic(approval.id), decided)
    return decided


def _decided_already(approval: ApprovalRow) -> ConflictError:
    if approval.status is ApprovalStatus.TIMEOUT:
        message = "This approval ran out of time; nothing was run."
    elif approval.status is ApprovalStatus.CANCELLED:
        message = "This approval was withdrawn: nothing waits for it any more."
    else:
        message = f"This approval was {approval.status} already, by {approval.decided_by}."
    return ConflictError(message, state=approval.status.value)


def _own(transaction: Transaction, approval_id: str, user_id: str, project_id: str | None) -> ApprovalRow:
    row = transaction.one(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = :id",  # noqa: S608 - column names are ours
        {"id": approval_id},
    )
    if row is None or row["user_id"] != user_id or project_id not in (None, row["project_id"]):
        raise NotFound(f"No approval {approval_id!r}.", hint="See `GET /my/approvals` for what waits.")
    return approval_row(row)


def _with_tools(transaction: Transaction, approval: ApprovalRow) -> ApprovalRow:
    rows = transaction.all(
        "SELECT id FROM tool_executions WHERE approval_id = :id ORDER BY created_at, id", {"id": approval.id}
    )
    return replace(approval, tool_ids=tuple(row["id"] for row in rows))
