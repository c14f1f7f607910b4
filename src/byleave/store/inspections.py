"""The part of a call's way between the gate and the question: the client says what the call would run or replace.

The execution is PENDING meanwhile. What the client saw becomes part of what is approved: the digest covers it. Each
function runs inside the caller's transaction.
"""

from byleave.protocol.approvals import plain_json
from byleave.protocol.states import ExecutionStatus
from byleave.protocol.verdicts import Verdict

from . import transitions
from .answers import answered
from .calls import Clearance, NewExecution, Refusal, insert
from .database import Transaction
from .ledger import Ledger
from .questions import Question, ask
from .records import ExecutionRow


def begin(
    transaction: Transaction, ledger: Ledger, new: NewExecution, client_id: str | None, deadline: str
) -> ExecutionRow:
    """PENDING until the client that will execute has looked."""
    transaction.hint(transitions.DEADLINES_TOPIC, deadline)
    row = insert(transaction, ledger, new, ExecutionStatus.PENDING, client_id=client_id, deadline=deadline)
    if client_id is not None:
        transitions.request_inspection(ledger, row, client_id, transaction.now)
    return row


def look_again(transaction: Transaction, project_id: str, client_id: str, elsewhere: frozenset[str]) -> int:
    """Ask a client about every call that waits to be looked at, but for those that a client `elsewhere` looks at."""
    found = waiting(transaction, project_id, elsewhere)
    with Ledger(transaction, project_id) as ledger:
        for execution in found:
            transitions.set_columns(transaction, ledger, execution, {"client_id": client_id})
            transitions.request_inspection(ledger, execution, client_id, transaction.now)
    return len(found)


def waiting(transaction: Transaction, project_id: str, elsewhere: frozenset[str]) -> list[ExecutionRow]:
    """Calls that wait to be looked at, but for those that a client `elsewhere` looks at."""
    found = transitions.with_status(transaction, project_id, ExecutionStatus.PENDING)
    return [execution for execution in found if execution.client_id not in elsewhere]


def resolve_inspection(
    transaction: Transaction,
    execution: ExecutionRow,
    question: Question,
    verdict: Verdict,
    *,
    digest: str,
    client_id: str | None,
    client_wait_seconds: float,
    grace_seconds: float,
) -> ExecutionRow:
    """PENDING → the question, or what answers in its place. The verdict of the machine that looked is what counts."""
    bound = question.inspection.bound if question.inspection else {}
    risk, findings = verdict.risk_level, plain_json(verdict.findings)
    changes = {"risk_level": risk.value, "findings": findings, "network": verdict.network}
    if question.inspection is not None:
        changes |= {"digest": digest, "request_digest": execution.digest, "bound": plain_json(bound)}
    execution = execution._replace(risk_level=risk, findings=findings, network=verdict.network)
    with Ledger(transaction, execution.project_id) as ledger:
        if question.inspection is not None:
            actor = f"client:{execution.client_id}"
            ledger.audit("inspected", actor, execution_id=execution.id, digest=digest, bound=bound)
        # Of a script another content is another call; a write is the same one whatever it would replace.
        same = execution.digest if execution.tool_name == "write_file" else digest
        match answered(transaction, ledger, execution, same, bound):
            case Refusal() as refusal:
                return transitions.end(
                    transaction,
                    ledger,
                    execution,
                    ExecutionStatus.FAILED,
                    actor="server",
                    error=refusal.error,
                    error_type=refusal.error_type,
                )
            case Clearance() as clearance:
                row = transitions.approve(
                    transaction,
                    ledger,
                    execution,
                    approved_by=clearance.approved_by,
                    client_wait_seconds=client_wait_seconds,
                    changes=changes,
                )
                if client_id is None:
                    return row
                return transitions.dispatch(transaction, ledger, row, client_id=client_id, grace_seconds=grace_seconds)
            case None:
                changes |= {"requires_approval": True, "client_id": None}
                row = transitions.advance(transaction, ledger, execution, ExecutionStatus.AWAITING_APPROVAL, changes)
                asked = ask(transaction, ledger, row, question)
                transaction.hint(transitions.execution_topic(asked.id), asked)  # now with the approval's id
                return asked
