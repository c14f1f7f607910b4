"""A call as the gate left it, what is to be done with it, and its first row.

`insert` writes the row in the state the call has reached, with the event and the audit link of its beginning.
"""

import json
from dataclasses import dataclass

from byleave.protocol.events import ToolStarted
from byleave.protocol.executions import MAX_ERROR_CHARACTERS
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, RiskLevel

from .database import Transaction
from .ledger import Ledger
from .questions import Question
from .records import ExecutionRow, as_values, placeholders


@dataclass(frozen=True, slots=True)
class Refusal:
    """It may not run."""

    error: str
    error_type: ErrorType


@dataclass(frozen=True, slots=True)
class Clearance:
    """It may run without asking."""

    approved_by: str


@dataclass(frozen=True, slots=True)
class Look:
    """The client must say what it would run or replace before anybody is asked."""

    unless_answered: bool = False
    """No look where what already holds answers: a grant for writes covers them whatever they replace."""


@dataclass(frozen=True, slots=True)
class NewExecution:
    """A call as the gate left it."""

    id: str
    user_id: str
    project_id: str
    session_id: str
    run_id: str | None
    agent_id: str | None
    mode: AgentMode
    tool_name: str
    tool_params: str
    true_params: str | None
    digest: str
    risk_level: RiskLevel
    findings: str
    network: bool
    timeout_seconds: int
    repeatable: bool
    """Whether the id was derived from the call, so that it may be there already."""
    fence: int | None
    """The claim under which a run's worker makes this call; a worker that lost the run begins nothing."""
    changes_nothing: bool
    """Whether running it leaves no trace on the machine."""


def insert(
    transaction: Transaction,
    ledger: Ledger,
    new: NewExecution,
    status: ExecutionStatus,
    *,
    refusal: Refusal | None = None,
    clearance: Clearance | None = None,
    question: Question | None = None,
    client_id: str | None = None,
    deadline: str | None = None,
) -> ExecutionRow:
    now = transaction.now
    row = ExecutionRow(
        id=new.id,
        user_id=new.user_id,
        project_id=new.project_id,
        session_id=new.session_id,
        run_id=new.run_id,
        agent_id=new.agent_id,
        mode=new.mode,
        tool_name=new.tool_name,
        tool_params=new.tool_params,
        true_params=None if refusal else new.true_params,
        digest=new.digest,
        request_digest=None,
        bound=None,
        risk_level=new.risk_level,
        findings=new.findings,
        network=new.network,
        timeout_seconds=new.timeout_seconds,
        approval_id=None,
        client_id=client_id,
        result=None,
        result_hash=None,
        requires_approval=question is not None,
        approved_by=clearance.approved_by if clearance else None,
        status=status,
        error=refusal.error[:MAX_ERROR_CHARACTERS] if refusal else None,
        error_type=refusal.error_type if refusal else None,
        execution_time_ms=None,
        deadline=deadline,
        output_seq=0,
        cancel_requested=False,
        created_at=now,
        approved_at=now if clearance else None,
        started_at=now if status is ExecutionStatus.EXECUTING else None,
        completed_at=now if refusal else None,
    )
    values = as_values(row) | {"status": status.name}
    transaction.change(f"INSERT INTO tool_executions {placeholders(values)}", values)
    ledger.kept("tool_executions", values)
    ledger.event(
        ToolStarted(
            timestamp=now,
            tool_id=row.id,
            tool_name=row.tool_name,
            tool_params=json.loads(row.tool_params),
            risk_level=row.risk_level,
            session_id=row.session_id,
            run_id=row.run_id,
            approved_by=row.approved_by,
        )
    )
    ledger.audit(
        "requested",
        f"agent:{row.agent_id or 'chat'}",
        execution_id=row.id,
        tool=row.tool_name,
        digest=row.digest,
        risk=row.risk_level.value,
        status=status.value,
        session=row.session_id,
        approved_by=row.approved_by,
        client=client_id,
        error_type=row.error_type.value if row.error_type else None,
    )
    return row
