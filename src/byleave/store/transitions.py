"""The one way an execution changes state: compare-and-set, with its event and its audit link.

`advance` refuses any edge the state machine does not have, and any change of a row that is no longer what the
caller saw. The functions below it are the edges with a meaning: they run inside the caller's transaction.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from byleave.protocol.errors import ConflictError
from byleave.protocol.events import (
    ExecutionSignal,
    InspectionRequested,
    ResultAcknowledged,
    ToolFinished,
    ToolQueued,
    preview,
)
from byleave.protocol.executions import MAX_ERROR_CHARACTERS
from byleave.protocol.states import ErrorType, ExecutionStatus, may_become
from byleave.protocol.wire import JsonObject, moment, timestamp
from byleave.telemetry import carry

from .database import Transaction
from .ledger import NOT_COVERED, Ledger
from .parking import wake
from .records import ExecutionRow, columns, execution_row

EXECUTION_COLUMNS = columns(ExecutionRow)
COVERED_COLUMNS = ", ".join(name for name in ExecutionRow._fields if name not in NOT_COVERED["tool_executions"])
OPEN = "status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING')"
"""Word for word the condition of the indexes of what is open: SQLite uses them for nothing else."""


def execution_topic(execution_id: str) -> str:
    """Where news of one execution is told."""
    return f"execution:{execution_id}"


DEADLINES_TOPIC = "deadlines"
"""Told (with the time) when a deadline was set, so that whoever sleeps until the next one can look again."""


def later(now: str, seconds: float) -> str:
    """A timestamp some seconds after another."""
    return timestamp(moment(now) + timedelta(seconds=seconds))


def advance(
    transaction: Transaction, ledger: Ledger, before: ExecutionRow, after: ExecutionStatus, changes: dict[str, Any]
) -> ExecutionRow:
    """Move one execution along an edge of the state machine, or raise ConflictError."""
    if not may_become(before.status, after):
        raise ConflictError(f"An execution that is {before.status} cannot become {after}.", state=before.status.value)
    assignments = ", ".join(f"{name} = :{name}" for name in changes)
    ledger.changing("tool_executions", before.id, COVERED_COLUMNS)
    row = transaction.one(
        f"UPDATE tool_executions SET status = :after{', ' + assignments if assignments else ''} "  # noqa: S608 - column names are ours
        f"WHERE id = :id AND status = :before RETURNING {EXECUTION_COLUMNS}",
        {**changes, "after": after.name, "id": before.id, "before": before.status.name},
    )
    if row is None:
        current = load_execution(transaction, before.id)
        raise ConflictError(
            "Somebody else changed this execution first.", state=current.status.value if current else "unknown"
        )
    ledger.kept("tool_executions", row)
    changed = execution_row(row)
    transaction.hint(execution_topic(changed.id), changed)
    return changed


def load_execution(transaction: Transaction, execution_id: str) -> ExecutionRow | None:
    row = transaction.one(
        f"SELECT {EXECUTION_COLUMNS} FROM tool_executions WHERE id = :id",  # noqa: S608 - column names are ours
        {"id": execution_id},
    )
    return execution_row(row) if row else None


def set_columns(
    transaction: Transaction, ledger: Ledger, execution: ExecutionRow, changes: dict[str, Any]
) -> ExecutionRow:
    """Change an execution in the state it is in."""
    assignments = ", ".join(f"{name} = :{name}" for name in changes)
    ledger.changing("tool_executions", execution.id, COVERED_COLUMNS)
    row = transaction.one(
        f"UPDATE tool_executions SET {assignments} WHERE id = :id RETURNING {EXECUTION_COLUMNS}",  # noqa: S608 - column names are ours
        {**changes, "id": execution.id},
    )
    if row is None:
        raise LookupError(f"execution {execution.id!r} is gone")
    ledger.kept("tool_executions", row)
    return execution_row(row)


def with_status(transaction: Transaction, project_id: str, status: ExecutionStatus) -> list[ExecutionRow]:
    rows = transaction.all(
        f"SELECT {EXECUTION_COLUMNS} FROM tool_executions WHERE project_id = :project_id AND {OPEN} "  # noqa: S608 - column names are ours
        "AND status = :status ORDER BY approved_at, created_at, id",
        {"project_id": project_id, "status": status.name},
    )
    return [execution_row(row) for row in rows]


def approve(
    transaction: Transaction,
    ledger: Ledger,
    execution: ExecutionRow,
    *,
    approved_by: str,
    client_wait_seconds: float,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> ExecutionRow:
    """→ APPROVED: it may run as soon as a client is there."""
    now = transaction.now
    deadline = later(now, client_wait_seconds)
    transaction.hint(DEADLINES_TOPIC, deadline)
    return advance(
        transaction,
        ledger,
        execution,
        ExecutionStatus.APPROVED,
        {**changes, "approved_by": approved_by, "approved_at": now, "deadline": deadline},
    )


def dispatch(
    transaction: Transaction, ledger: Ledger, execution: ExecutionRow, *, client_id: str, grace_seconds: float
) -> ExecutionRow:
    """APPROVED → EXECUTING: the signal goes to this one client."""
    now = transaction.now
    running = advance(
        transaction,
        ledger,
        execution,
        ExecutionStatus.EXECUTING,
        {
            "client_id": client_id,
            "started_at": now,
            "deadline": later(now, execution.timeout_seconds + grace_seconds),
        },
    )
    signal(ledger, running, now)
    ledger.audit("dispatched", f"client:{client_id}", execution_id=running.id, digest=running.digest)
    transaction.hint(DEADLINES_TOPIC, running.deadline)
    return running


def queue(transaction: Transaction, ledger: Ledger, execution: ExecutionRow, *, lease_seconds: float) -> None:
    """A call that was signalled waits in its client's queue: its time has not begun."""
    deadline = later(transaction.now, lease_seconds)
    set_columns(transaction, ledger, execution, {"started_at": None, "deadline": deadline})
    transaction.hint(DEADLINES_TOPIC, deadline)
    if not execution.queued:
        _tell_queued(ledger, execution, transaction.now, waits=True)


def start(transaction: Transaction, ledger: Ledger, execution: ExecutionRow, *, grace_seconds: float) -> ExecutionRow:
    """The client begins with a call that was queued: its time begins."""
    now = transaction.now
    deadline = later(now, execution.timeout_seconds + grace_seconds)
    started = set_columns(transaction, ledger, execution, {"started_at": now, "deadline": deadline})
    transaction.hint(DEADLINES_TOPIC, deadline)
    _tell_queued(ledger, execution, now, waits=False)
    return started


def _tell_queued(ledger: Ledger, execution: ExecutionRow, now: str, *, waits: bool) -> None:
    ledger.event(ToolQueued(timestamp=now, tool_id=execution.id, waits=waits, session_id=execution.session_id))


def signal(ledger: Ledger, execution: ExecutionRow, now: str) -> None:
    """Tell the client to act. The parameters travel with it but are kept only in the execution's row."""
    ledger.event(
        ExecutionSignal(
            timestamp=now,
            tool_id=execution.id,
            tool_name=execution.tool_name,
            tool_params=json.loads(execution.true_params or "{}"),
            digest=execution.digest,
            risk_level=execution.risk_level,
            approval_id=execution.approval_id,
            approved_by=execution.approved_by or "",
            bound=json.loads(execution.bound) if execution.bound else {},
            mode=execution.mode,
            network=execution.network,
            deadline=execution.deadline or now,
            client_id=execution.client_id or "",
            session_id=execution.session_id,
            traceparent=carry(execution.id, execution.run_id),
        ),
        target=execution.client_id,
        ref=execution.id,
        stored_without=frozenset({"tool_params"}),
    )


def looked_at(tool_name: str, params: JsonObject) -> JsonObject:
    """What a look needs of a call: of a write not the content, which travels once, when it may be written."""
    return {**params, "content": ""} if tool_name == "write_file" else params


def request_inspection(ledger: Ledger, execution: ExecutionRow, client_id: str, now: str) -> None:
    """Ask the client that will execute what the call would run or replace."""
    ledger.event(
        InspectionRequested(
            timestamp=now,
            tool_id=execution.id,
            tool_name=execution.tool_name,
            tool_params=looked_at(execution.tool_name, json.loads(execution.true_params or "{}")),
            client_id=client_id,
            session_id=execution.session_id,
        ),
        target=client_id,
        ref=execution.id,
        stored_without=frozenset({"tool_params"}),
    )


def end(
    transaction: Transaction,
    ledger: Ledger,
    execution: ExecutionRow,
    after: ExecutionStatus,
    *,
    actor: str,
    error: str | None = None,
    error_type: ErrorType | None = None,
    result: str | None = None,
    result_hash: str | None = None,
    duration_ms: int | None = None,
) -> ExecutionRow:
    """→ COMPLETED, FAILED, REJECTED or TIMEOUT. The true parameters are dropped: nobody needs them any more."""
    now = transaction.now
    ended = advance(
        transaction,
        ledger,
        execution,
        after,
        {
            "error": error[:MAX_ERROR_CHARACTERS] if error else None,
            "error_type": error_type.value if error_type else None,
            "result": result,
            "result_hash": result_hash,
            "execution_time_ms": work_ms(execution, now, duration_ms),
            "started_at": execution.started_at,
            "completed_at": now,
            "deadline": None,
            "true_params": None,
        },
    )
    announce_end(ledger, ended, now, acknowledge=execution.status is ExecutionStatus.EXECUTING)
    ledger.audit(
        after.value,
        actor,
        execution_id=ended.id,
        approval_id=ended.approval_id,
        error_type=error_type.value if error_type else None,
        result_hash=result_hash,
    )
    if ended.run_id is not None:
        wake(transaction, ledger, ended.run_id)
    return ended


def work_ms(execution: ExecutionRow, now: str, duration_ms: int | None) -> int | None:
    """How long the work took: as its client says, within what is possible, else since it was begun."""
    since = execution.started_at if duration_ms is None else execution.approved_at
    elapsed = round((moment(now) - moment(since)).total_seconds() * 1000) if since else None
    return elapsed if duration_ms is None or elapsed is None else min(duration_ms, elapsed)


def announce_end(ledger: Ledger, ended: ExecutionRow, now: str, *, acknowledge: bool) -> None:
    """The events of an end: for the client whose result it was, and for everybody who watches."""
    if acknowledge:
        ledger.event(
            ResultAcknowledged(timestamp=now, tool_id=ended.id, status=ended.status, session_id=ended.session_id)
        )
    result, shortened = preview(ended.result)
    ledger.event(
        ToolFinished(
            timestamp=now,
            tool_id=ended.id,
            tool_name=ended.tool_name,
            status=ended.status,
            result=result,
            result_shortened=shortened,
            error=ended.error,
            error_type=ended.error_type,
            execution_time_ms=ended.execution_time_ms,
            session_id=ended.session_id,
            run_id=ended.run_id,
            approved_by=ended.approved_by,
        )
    )
