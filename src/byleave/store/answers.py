"""What answers in a person's place, inside the transaction that would ask.

A call refused three times stays refused for a while; nobody is asked more than they can answer; and a grant of the
session lets a call go that it covers. Checked in this order: what a person refused comes before what a person granted.
What was said to one agent holds for no other.
"""

from byleave.protocol.states import ErrorType

from . import grants
from .calls import Clearance, NewExecution, Refusal
from .database import Database, Transaction
from .ledger import Ledger
from .records import ExecutionRow, SessionRow
from .transitions import later

MAX_WAITING = 200
"""Most questions that may wait for one user: nobody answers more, and an agent could ask without end."""

REFUSALS_BEFORE_SILENCE = 3
"""After so many refusals of an agent's same call by a person in a session, it is refused without asking."""
REFUSALS_COUNT_SECONDS = 3600
"""How long a refusal counts: a session may never end, and people change their minds."""

_NOT_AGAIN = Refusal(
    "A person refused this same call three times within the hour; it is not asked again for now.", ErrorType.REFUSED
)


def answered(
    transaction: Transaction,
    ledger: Ledger,
    call: NewExecution | ExecutionRow,
    digest: str,
    bound: dict[str, str],
) -> Refusal | Clearance | None:
    """The answer that already holds for a call, or None when a person must be asked."""
    if _refused_too_often(transaction, call.session_id, digest, call.agent_id):
        return _NOT_AGAIN
    grant = grants.use_one(transaction, ledger, call, bound)
    if grant is not None:
        return Clearance(f"grant:{grant.id}")
    if _too_many_wait(transaction, call.user_id):
        return Refusal(
            f"{MAX_WAITING} questions wait for this user already; nothing more is asked until some are answered.",
            ErrorType.REFUSED,
        )
    return None


async def foreseen(
    database: Database, session: SessionRow, digest: str, asked: grants.Asked
) -> Refusal | grants.GrantRow | None:
    """The answer that would hold if this session's agent made a call now. Only looks."""

    def work(transaction: Transaction) -> Refusal | grants.GrantRow | None:
        if _refused_too_often(transaction, session.id, digest):
            return _NOT_AGAIN
        return grants.would_use(transaction, session, asked)

    return await database.read(work)


def _too_many_wait(transaction: Transaction, user_id: str) -> bool:
    row = transaction.one(
        "SELECT count(*) AS waiting FROM approvals WHERE user_id = :user_id AND status = 'pending'",
        {"user_id": user_id},
    )
    return row is not None and row["waiting"] >= MAX_WAITING


def _refused_too_often(transaction: Transaction, session_id: str, digest: str, agent_id: str | None = None) -> bool:
    """`agent_id`: only what this agent was refused."""
    # A write is the same call whatever it would replace: by its own digest, not by that of what was shown with it.
    row = transaction.one(
        "SELECT count(*) AS refusals FROM approvals AS a WHERE a.session_id = :session_id AND a.status = 'rejected' "
        "AND a.decided_at > :since AND (:agent_id IS NULL OR a.agent_id = :agent_id) "
        "AND (a.digest = :digest OR EXISTS (SELECT 1 FROM tool_executions AS x WHERE x.approval_id = a.id "
        "AND x.tool_name = 'write_file' AND x.request_digest = :digest))",
        {
            "session_id": session_id,
            "digest": digest,
            "agent_id": agent_id,
            "since": later(transaction.now, -REFUSALS_COUNT_SECONDS),
        },
    )
    return row is not None and row["refusals"] >= REFUSALS_BEFORE_SILENCE
