"""Approvals: asking, deciding once, and ending with the executions that waited.

A decision is one conditional update; its time limit is compared inside it by the database's clock, so a late
yes loses even when no sweeper has run yet. Several executions may wait for one approval (identical calls join it).
"""

from dataclasses import dataclass

from assent.protocol.errors import ConflictError
from assent.protocol.states import ApprovalStatus, ErrorType, ExecutionStatus, RiskLevel
from assent.protocol.values import JsonObject, new_id

from . import moves
from .database import Database, Transaction
from .ledger import Ledger
from .questions import APPROVAL_COLUMNS, close, decided_already, own, put, time_out, waiting_executions, with_tools
from .records import ApprovalRow, approval_row


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
                deadline=moves.later(now, new.timeout_seconds),
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
        heavy: bool = False,
    ) -> ApprovalRow:
        """The first decision wins; a later one raises ConflictError and says what holds."""

        def work(transaction: Transaction) -> ApprovalRow | ConflictError:
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
                return self._apply(transaction, ledger, approval, approve, decided_by, reason, client_id)

        outcome = await self._database.write(work, heavy=heavy)
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
                    time_out(transaction, ledger, approval)

        await self._database.write(work)

    async def pending(self, user_id: str, project_id: str | None = None) -> list[ApprovalRow]:
        def work(transaction: Transaction) -> list[ApprovalRow]:
            rows = transaction.all(
                f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE user_id = :user_id AND status = 'pending' "  # noqa: S608
                "AND deadline > :now AND (:project_id IS NULL OR project_id = :project_id) ORDER BY created_at, id",
                {"user_id": user_id, "now": transaction.now, "project_id": project_id},
            )
            return [with_tools(transaction, approval_row(row)) for row in rows]

        return await self._database.read(work)

    async def get(self, approval_id: str, *, user_id: str) -> ApprovalRow:
        return await self._database.read(
            lambda transaction: with_tools(transaction, own(transaction, approval_id, user_id, None))
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
        decided = close(transaction, ledger, approval, after, decided_by=decided_by, reason=reason, waiting=waiting)
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
