"""Ends that nobody reported: an execution called off, or one past its deadline.

Each function runs inside the caller's transaction and closes the question along with the execution that asked it.
"""

from byleave.protocol.errors import ConflictError
from byleave.protocol.events import ExecutionCancelSignal
from byleave.protocol.executions import MAX_ERROR_CHARACTERS
from byleave.protocol.states import ErrorType, ExecutionStatus

from . import transitions
from .database import Transaction
from .ledger import Ledger
from .questions import close_if_unneeded, mark_timed_out
from .records import ExecutionRow, execution_row


def call_off(
    transaction: Transaction, execution: ExecutionRow, actor: str, connected: frozenset[str] | None = None
) -> ExecutionRow:
    """End it when it has not started or its client is away; ask its client to stop it when it runs."""
    if execution.status.ended:
        raise ConflictError(f"This execution is {execution.status} already.", state=execution.status.value)
    with Ledger(transaction, execution.project_id) as ledger:
        if execution.status is ExecutionStatus.EXECUTING:
            if connected is not None and execution.client_id not in connected:
                return end_cancelled(transaction, ledger, execution, actor)
            transaction.change(
                "UPDATE tool_executions SET cancel_requested = :yes WHERE id = :id", {"yes": True, "id": execution.id}
            )
            _signal_cancel(ledger, execution, transaction.now)
            ledger.audit("cancel_requested", actor, execution_id=execution.id)
            return execution
        ended = transitions.end(
            transaction,
            ledger,
            execution,
            ExecutionStatus.FAILED,
            actor=actor,
            error="Cancelled before it ran.",
            error_type=ErrorType.CANCELLED,
        )
        if execution.approval_id:
            close_if_unneeded(transaction, ledger, execution.approval_id)
        return ended


def call_off_run(
    transaction: Transaction, run_id: str, actor: str, connected: frozenset[str] | None = None
) -> list[ExecutionRow]:
    """Call off everything a run has open."""
    rows = transaction.all(
        f"SELECT {transitions.EXECUTION_COLUMNS} FROM tool_executions WHERE run_id = :run_id AND {transitions.OPEN}",  # noqa: S608 - column names are ours
        {"run_id": run_id},
    )
    return [call_off(transaction, execution_row(row), actor, connected) for row in rows]


def end_cancelled(transaction: Transaction, ledger: Ledger, execution: ExecutionRow, actor: str) -> ExecutionRow:
    """EXECUTING → FAILED for a call whose client cannot be asked to stop it: it is never signalled again."""
    return transitions.end(
        transaction,
        ledger,
        execution,
        ExecutionStatus.FAILED,
        actor=actor,
        error="Cancelled while its client was away; it may or may not have had its effect.",
        error_type=ErrorType.CANCELLED,
    )


def _signal_cancel(ledger: Ledger, execution: ExecutionRow, now: str) -> None:
    ledger.event(
        ExecutionCancelSignal(
            timestamp=now,
            tool_id=execution.id,
            client_id=execution.client_id or "",
            session_id=execution.session_id,
        ),
        target=execution.client_id,
        ref=execution.id,
    )


def was_given_up(execution: ExecutionRow) -> bool:
    """Whether it ended without a report of the client that ran it."""
    given_up = (ErrorType.INTERRUPTED, ErrorType.EXECUTION_TIMEOUT, ErrorType.CANCELLED)
    # By the client it was signalled to, not by when it began: one that waited there may have begun during an outage.
    signalled = execution.client_id is not None and execution.approved_at is not None
    return signalled and execution.error_type in given_up and execution.result_hash is None


def report_late(
    transaction: Transaction,
    execution: ExecutionRow,
    result: str | None,
    result_hash: str,
    error: str | None,
    duration_ms: int | None,
) -> ExecutionRow:
    """Keep what a client reports of an execution that was given up. Its end stands: whoever asked was told so."""
    work_ms = execution.execution_time_ms
    if duration_ms is not None:
        work_ms = transitions.work_ms(execution, transaction.now, duration_ms)
    found = "it completed" if error is None else f"it failed: {error}"
    told = f"{execution.error} Its client reported later: {found}"[:MAX_ERROR_CHARACTERS]
    with Ledger(transaction, execution.project_id) as ledger:
        late = transitions.set_columns(
            transaction,
            ledger,
            execution,
            {
                "result": result,
                "result_hash": result_hash,
                "error": told,
                "started_at": execution.started_at,
                "execution_time_ms": work_ms,
            },
        )
        transitions.announce_end(ledger, late, transaction.now, acknowledge=True)
        ledger.audit("reported_late", f"client:{execution.client_id}", execution_id=late.id, result_hash=result_hash)
    return late


def expire(transaction: Transaction, execution: ExecutionRow, connected: frozenset[str]) -> ExecutionRow:
    with Ledger(transaction, execution.project_id) as ledger:
        match execution.status:
            case ExecutionStatus.AWAITING_APPROVAL:
                after, error_type = ExecutionStatus.TIMEOUT, ErrorType.APPROVAL_TIMEOUT
                error = "Approval timeout"
                if execution.approval_id:
                    mark_timed_out(transaction, ledger, execution.approval_id)
            case ExecutionStatus.PENDING if execution.client_id in connected:
                after, error_type = ExecutionStatus.FAILED, ErrorType.NO_CLIENT
                does = "replace" if execution.tool_name == "write_file" else "run"
                error = f"The client did not say in time what this would {does}, so nobody could be asked."
            case ExecutionStatus.PENDING | ExecutionStatus.APPROVED:
                after, error_type = ExecutionStatus.FAILED, ErrorType.NO_CLIENT
                error = "No client was connected to run this. Start one with `byleave connect`."
            case _ if execution.queued and execution.client_id in connected:
                after, error_type = ExecutionStatus.FAILED, ErrorType.EXECUTION_TIMEOUT
                error = "It waited too long on the machine for others to end and was never begun; nothing was run."
                _signal_cancel(ledger, execution, transaction.now)
            case _ if execution.client_id in connected:
                after, error_type = ExecutionStatus.FAILED, ErrorType.EXECUTION_TIMEOUT
                error = "The client did not report a result in time."
                _signal_cancel(ledger, execution, transaction.now)
            case _:
                after, error_type = ExecutionStatus.FAILED, ErrorType.INTERRUPTED
                error = (
                    "The client went away while this was running; it may or may not have had its effect. "
                    "It was not run again."
                )
        return transitions.end(
            transaction, ledger, execution, after, actor="server:deadline", error=error, error_type=error_type
        )
