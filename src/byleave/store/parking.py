"""Runs that wait for a person or a machine, without anybody holding them.

A run parks when a call of its stays open for long: its history is kept already, so nothing but rows remains of it. It
is ready again in the very transaction that ends the last call it has open, wherever that happens and after however
many restarts; no hint is needed for that, only to be quick about it.
"""

from byleave.protocol.events import RunChanged
from byleave.protocol.states import RunState

from .database import Transaction
from .ledger import Ledger

RUNS_TOPIC = "runs"
"""Told when a run may be taken."""
_OPEN_CALLS = (
    "EXISTS (SELECT 1 FROM tool_executions WHERE run_id = runs.id "
    "AND status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING'))"
)


def park(transaction: Transaction, run_id: str, fence: int) -> RunState | None:
    """RUNNING → WAITING, or → READY when what it waited for has ended meanwhile; None: it is somebody else's."""
    row = transaction.one(
        f"UPDATE runs SET state = CASE WHEN {_OPEN_CALLS} THEN 'WAITING' ELSE 'READY' END, owner = NULL, "  # noqa: S608 - made of our own words alone
        "lease_until = NULL, attempts = 0, updated_at = :now WHERE id = :id AND fence = :fence AND state = 'RUNNING' "
        "RETURNING state, project_id, session_id",
        {"now": transaction.now, "id": run_id, "fence": fence},
    )
    if row is None:
        return None
    state = RunState[row["state"]]
    with Ledger(transaction, row["project_id"]) as ledger:
        ledger.event(_changed(transaction, row["session_id"], run_id, state))
    transaction.hint(RUNS_TOPIC)
    return state


def wake(transaction: Transaction, ledger: Ledger, run_id: str) -> None:
    """WAITING → READY when nothing of the run is open any more."""
    row = transaction.one(
        f"UPDATE runs SET state = 'READY', updated_at = :now WHERE id = :id AND state = 'WAITING' "  # noqa: S608 - made of our own words alone
        f"AND NOT {_OPEN_CALLS} RETURNING session_id",
        {"now": transaction.now, "id": run_id},
    )
    if row is not None:
        ledger.event(_changed(transaction, row["session_id"], run_id, RunState.READY))
        transaction.hint(RUNS_TOPIC)


def _changed(transaction: Transaction, session_id: str, run_id: str, state: RunState) -> RunChanged:
    return RunChanged(timestamp=transaction.now, session_id=session_id, run_id=run_id, state=state)
