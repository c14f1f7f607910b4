"""What answers in a person's place, inside the transaction that would ask.

A call refused three times stays refused; nobody is asked more than they can answer; and a grant of the session lets a
call go that it covers. Checked in this order: what a person refused comes before what a person granted.
"""

from assent.protocol.states import ApprovalStatus, ErrorType

from . import grants
from .calls import Clearance, NewExecution, Refusal
from .database import Transaction
from .ledger import Ledger
from .records import ExecutionRow

MAX_WAITING = 200
"""Most questions that may wait for one user: nobody answers more, and an agent could ask without end."""

REFUSALS_BEFORE_SILENCE = 3
"""After so many refusals of the same call by a person in a session, it is refused without asking."""


def answered(
    transaction: Transaction,
    ledger: Ledger,
    call: NewExecution | ExecutionRow,
    digest: str,
    bound: dict[str, str],
) -> Refusal | Clearance | None:
    """The answer that already holds for a call, or None when a person must be asked."""
    if _refused_too_often(transaction, call.session_id, digest):
        return Refusal(
            "A person refused this same call three times in this session; it is not asked again.", ErrorType.REFUSED
        )
    grant = grants.use_one(transaction, ledger, call, bound)
    if grant is not None:
        return Clearance(f"grant:{grant.id}")
    if _too_many_wait(transaction, call.user_id):
        return Refusal(
            f"{MAX_WAITING} questions wait for this user already; nothing more is asked until some are answered.",
            ErrorType.REFUSED,
        )
    return None


def _too_many_wait(transaction: Transaction, user_id: str) -> bool:
    row = transaction.one(
        "SELECT count(*) AS waiting FROM approvals WHERE user_id = :user_id AND status = 'pending'",
        {"user_id": user_id},
    )
    return row is not None and row["waiting"] >= MAX_WAITING


def _refused_too_often(transaction: Transaction, session_id: str, digest: str) -> bool:
    row = transaction.one(
        "SELECT count(*) AS refusals FROM approvals WHERE session_id = :session_id AND digest = :digest "
        "AND status = :status",
        {"session_id": session_id, "digest": digest, "status": ApprovalStatus.REJECTED.value},
    )
    return row is not None and row["refusals"] >= REFUSALS_BEFORE_SILENCE
