"""What waits, counted, and a run's times: what an operator watches. Reads only, over the indexes of what is open."""

from typing import NamedTuple

from byleave.protocol.states import AgentMode, RunState

from . import transitions
from .database import Database, Transaction


class Depths(NamedTuple):
    """How much waits, and for what."""

    client: int = 0
    """Executions that may run and have no client yet."""
    approval: int = 0
    """Questions nobody has answered yet."""
    runs: tuple[tuple[RunState, int], ...] = ()
    """Runs that are not over, by state."""


class RunTimes(NamedTuple):
    """A run without its conversation."""

    id: str
    project_id: str
    session_id: str
    mode: AgentMode
    created_at: str


async def read_depths(database: Database) -> Depths:
    """As it stands now."""

    def work(transaction: Transaction) -> Depths:
        client = transaction.one(
            f"SELECT count(*) AS waiting FROM tool_executions WHERE {transitions.OPEN} AND status = 'APPROVED'"  # noqa: S608 - made of our own words alone
        )
        approval = transaction.one("SELECT count(*) AS waiting FROM approvals WHERE status = 'pending'")
        runs = transaction.all(
            "SELECT state, count(*) AS runs FROM runs WHERE state IN ('READY', 'RUNNING', 'WAITING') GROUP BY state"
        )
        return Depths(
            client["waiting"] if client else 0,
            approval["waiting"] if approval else 0,
            tuple((RunState[row["state"]], row["runs"]) for row in runs),
        )

    return await database.read(work)


async def read_run_times(database: Database, run_id: str) -> RunTimes | None:
    """When a run was begun, and for whom."""

    def work(transaction: Transaction) -> RunTimes | None:
        row = transaction.one(
            "SELECT id, project_id, session_id, mode, created_at FROM runs WHERE id = :id", {"id": run_id}
        )
        if row is None:
            return None
        mode = AgentMode(row["mode"])
        return RunTimes(row["id"], row["project_id"], row["session_id"], mode, row["created_at"])

    return await database.read(work)
