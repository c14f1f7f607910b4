"""Runs: their worker, their progress and their end.

A worker holds a run by a lease and a fence. The fence rises with every claim, and every write names it: a worker that
was paused and lost its lease can change nothing. Runs of one session go in order, one at a time.

A run is parked if a call stays open for long: its history is stored already, so it needs no worker meanwhile. The
transaction that ends its last open call makes it ready again (`transitions.end`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.events import ChatError, ChatText, RunChanged, RunUsage
from byleave.protocol.states import AgentMode, RunState
from byleave.protocol.wire import later

from .chat import add_message, load_session
from .database import Database, Hint, Transaction
from .executions import cancel_run_calls
from .ledger import Ledger
from .records import RunRow, columns, run_row
from .transitions import OPEN_CALLS, RUNS_TOPIC, ExecutionRow, Waits

RUN_COLUMNS = columns(RunRow)
# A history is as large as all that the agent read, so lists leave it out.
LISTED_COLUMNS = RUN_COLUMNS.replace("history", "NULL AS history")

MOST_FORGOTTEN = 50
"""Runs before one that ends whose conversations are dropped: mostly there is one that has any."""

# Word for word the conditions of the indexes: runs are never deleted, and this query runs on the one writer.
_OPEN = "state IN ('READY', 'RUNNING', 'WAITING')"
_FIRST = (
    "NOT EXISTS (SELECT 1 FROM runs AS earlier WHERE earlier.session_id = candidate.session_id "  # noqa: S608 - made of our own words alone
    f"AND earlier.position < candidate.position AND earlier.{_OPEN})"
)
_LAPSED = (
    "SELECT candidate.id FROM runs AS candidate WHERE candidate.state = 'RUNNING' "  # noqa: S608 - made of our own words alone
    f"AND candidate.{_OPEN} AND candidate.lease_until < :now {{others}}AND {_FIRST} "
    "ORDER BY candidate.lease_until LIMIT 1"
)
_READY = (
    "SELECT candidate.id FROM runs AS candidate WHERE candidate.state = 'READY' "  # noqa: S608 - made of our own words alone
    f"{{others}}AND {_FIRST} ORDER BY candidate.created_at, candidate.id LIMIT 1"
)


class RunTimes(NamedTuple):
    """A run without its conversation."""

    id: str
    project_id: str
    session_id: str
    mode: AgentMode
    created_at: str


class Runs:
    """The runs' transactions."""

    def __init__(self, database: Database, waits: Waits, *, lease_seconds: float) -> None:
        self._database = database
        self._waits = waits
        self._lease_seconds = lease_seconds

    async def recover(self) -> int:
        """Free every run at the start of a server that has the record for itself: no other worker can exist."""
        if self._database.server_id is not None:
            return 0

        def work(transaction: Transaction) -> int:
            return transaction.execute(
                "UPDATE runs SET state = 'READY', owner = NULL, lease_until = NULL "  # noqa: S608 - made of our own words alone
                f"WHERE state = 'RUNNING' AND {_OPEN}"
            ).rowcount

        return await self._database.write(work)

    async def claim(self, owner: str, *, resting: Sequence[str] = ()) -> RunRow | None:
        """Claim a run whose lease lapsed, else the oldest ready one, if no earlier run of its session is open.

        `resting`: users whose runs are left out, for they have enough.
        """
        users = {f"user{number}": user_id for number, user_id in enumerate(resting)}
        names = ", ".join(f":{name}" for name in users)
        others = f"AND candidate.user_id NOT IN ({names}) " if users else ""
        lapsed, ready = (candidates.format(others=others) for candidates in (_LAPSED, _READY))

        def work(transaction: Transaction) -> RunRow | None:
            row = transaction.execute(
                "UPDATE runs SET state = 'RUNNING', owner = :owner, lease_until = :lease, fence = fence + 1, "  # noqa: S608 - made of our own words alone
                f"attempts = attempts + 1, updated_at = :now WHERE id = coalesce(({lapsed}), ({ready})) "
                f"RETURNING {RUN_COLUMNS}",
                {
                    "owner": owner,
                    "lease": later(transaction.now, self._lease_seconds),
                    "now": transaction.now,
                    **users,
                },
            ).fetchone()
            if row is None:
                return None
            run = run_row(row)
            with Ledger(transaction, run.project_id) as ledger:
                ledger.event(_changed(transaction, run, RunState.RUNNING))
            return run

        return await self._database.write(work)

    async def renew(self, held: Iterable[tuple[str, int]]) -> frozenset[str]:
        """Renew the leases of these runs (id and fence); return those that were lost.

        All in one transaction: with many runs and a busy writer, one for each would take longer than a lease.
        """
        wanted = list(held)

        def work(transaction: Transaction) -> frozenset[str]:
            lease = later(transaction.now, self._lease_seconds)
            return frozenset(
                run_id
                for run_id, fence in wanted
                if transaction.execute(
                    "UPDATE runs SET lease_until = :lease WHERE id = :id AND fence = :fence AND state = 'RUNNING'",
                    {"lease": lease, "id": run_id, "fence": fence},
                ).rowcount
                != 1
            )

        return await self._database.write(work) if wanted else frozenset()

    async def checkpoint(self, run_id: str, fence: int, history: str) -> None:
        """Store the run's history before its next step acts on it."""

        def work(transaction: Transaction) -> None:
            changed = transaction.execute(
                # A run that makes progress does not kill its worker: only attempts without a step count.
                "UPDATE runs SET history = :history, attempts = 0, updated_at = :now WHERE id = :id AND fence = :fence "
                "AND state = 'RUNNING'",
                {"history": history, "now": transaction.now, "id": run_id, "fence": fence},
            ).rowcount
            if changed != 1:
                raise fenced()

        await self._database.write(work)

    async def say(self, run: RunRow, text: str) -> None:
        """Announce a piece of the agent's text as it streams."""

        def work(transaction: Transaction) -> None:
            check_claim(transaction, run.id, run.fence)
            with Ledger(transaction, run.project_id) as ledger:
                ledger.event(ChatText(timestamp=transaction.now, session_id=run.session_id, run_id=run.id, text=text))

        await self._database.write(work)

    async def tell_usage(
        self, run: RunRow, *, requests: int, input_tokens: int, output_tokens: int, cost_usd: str | None = None
    ) -> None:
        """Announce the run's model usage so far."""

        def work(transaction: Transaction) -> None:
            check_claim(transaction, run.id, run.fence)
            with Ledger(transaction, run.project_id) as ledger:
                ledger.event(
                    RunUsage(
                        timestamp=transaction.now,
                        session_id=run.session_id,
                        run_id=run.id,
                        requests=requests,
                        input_tokens=input_tokens,
                        output_tokens=output_tokens,
                        cost_usd=cost_usd,
                    )
                )

        await self._database.write(work)

    async def finish(self, run: RunRow, *, history: str | None, answer: str) -> None:
        """RUNNING → DONE, with the agent's answer."""

        def work(transaction: Transaction) -> None:
            _end(transaction, run, RunState.DONE, history=history, error=None)
            with Ledger(transaction, run.project_id) as ledger:
                add_message(
                    transaction,
                    ledger,
                    run.project_id,
                    run.session_id,
                    run.id,
                    role="agent",
                    content=answer,
                )
                ledger.event(_changed(transaction, run, RunState.DONE))
                ledger.audit("answered", f"agent:{run.agent}", run=run.id, session=run.session_id)

        await self._database.write(work)

    async def fail(self, run: RunRow, *, error: str, hint: str | None = None, history: str | None = None) -> None:
        """RUNNING → FAILED, with the error. Its open calls are cancelled: nobody waits for them."""

        def work(transaction: Transaction) -> None:
            _end(transaction, run, RunState.FAILED, history=history, error=error)
            cancel_run_calls(transaction, run.id, "server:run_failed", self._waits)
            with Ledger(transaction, run.project_id) as ledger:
                ledger.event(
                    ChatError(
                        timestamp=transaction.now,
                        session_id=run.session_id,
                        run_id=run.id,
                        message=error,
                        hint=hint,
                    )
                )
                ledger.event(_changed(transaction, run, RunState.FAILED))
                ledger.audit("run_failed", "server", run=run.id, session=run.session_id, error=error[:1000])

        await self._database.write(work)

    async def park(self, run: RunRow) -> RunState:
        """Release a run until its open calls have ended; READY if they have already."""

        def work(transaction: Transaction) -> RunState:
            row = transaction.execute(
                f"UPDATE runs SET state = CASE WHEN {OPEN_CALLS} THEN 'WAITING' ELSE 'READY' END, owner = NULL, "  # noqa: S608 - made of our own words alone
                "lease_until = NULL, attempts = 0, updated_at = :now WHERE id = :id AND fence = :fence "
                "AND state = 'RUNNING' RETURNING state",
                {"now": transaction.now, "id": run.id, "fence": run.fence},
            ).fetchone()
            if row is None:
                raise fenced()
            state = RunState[row["state"]]
            with Ledger(transaction, run.project_id) as ledger:
                ledger.event(_changed(transaction, run, state))
            transaction.hints.append(Hint(RUNS_TOPIC))
            return state

        return await self._database.write(work)

    async def release(self, run: RunRow) -> None:
        """Release a run that did not fail: an orderly stop is not an attempt."""

        def work(transaction: Transaction) -> None:
            transaction.execute(
                "UPDATE runs SET state = 'READY', owner = NULL, lease_until = NULL, attempts = "
                "CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END "
                "WHERE id = :id AND fence = :fence AND state = 'RUNNING'",
                {"id": run.id, "fence": run.fence},
            )

        await self._database.write(work)

    async def cancel(self, run_id: str, *, user_id: str, connected: frozenset[str] | None = None) -> list[ExecutionRow]:
        """Stop a run in any state, and its open calls; its worker can begin nothing more."""

        def work(transaction: Transaction) -> list[ExecutionRow]:
            run = _own(transaction, run_id, user_id)
            if run.state in (RunState.DONE, RunState.FAILED):
                raise ConflictError(f"This run is {run.state} already.", state=run.state.value)
            transaction.execute(
                "UPDATE runs SET state = 'FAILED', error = NULL, fence = fence + 1, owner = NULL, "
                "lease_until = NULL, updated_at = :now WHERE id = :id",
                {"now": transaction.now, "id": run_id},
            )
            with Ledger(transaction, run.project_id) as ledger:
                ledger.event(_changed(transaction, run, RunState.FAILED))
                ledger.audit("run_cancelled", f"user:{user_id}", run=run.id, session=run.session_id)
            transaction.hints.append(Hint(run_id))
            transaction.hints.append(Hint(RUNS_TOPIC))
            return cancel_run_calls(transaction, run_id, f"user:{user_id}", self._waits, connected)

        return await self._database.write(work)

    async def model_of(self, run_id: str) -> str | None:
        """The model that a person chose for a run."""
        row = await self._database.read(
            lambda transaction: transaction.execute(
                "SELECT model FROM run_models WHERE run_id = :id", {"id": run_id}
            ).fetchone()
        )
        return row["model"] if row else None

    async def models_of(self, session_id: str) -> dict[str, str]:
        """The models that a person chose for runs of a session, by run."""
        rows = await self._database.read(
            lambda transaction: transaction.execute(
                "SELECT run_id, model FROM run_models WHERE session_id = :id", {"id": session_id}
            ).fetchall()
        )
        return {row["run_id"]: row["model"] for row in rows}

    async def get(self, run_id: str, *, user_id: str) -> RunRow:
        return await self._database.read(lambda transaction: _own(transaction, run_id, user_id))

    async def times(self, run_id: str) -> RunTimes | None:
        """A run without its conversation, or None."""

        def work(transaction: Transaction) -> RunTimes | None:
            row = transaction.execute(
                "SELECT id, project_id, session_id, mode, created_at FROM runs WHERE id = :id", {"id": run_id}
            ).fetchone()
            if row is None:
                return None
            mode = AgentMode(row["mode"])
            return RunTimes(row["id"], row["project_id"], row["session_id"], mode, row["created_at"])

        return await self._database.read(work)

    async def of_session(self, user_id: str, session_id: str, limit: int) -> list[RunRow]:
        """A session's newest runs, newest first, without their histories."""

        def work(transaction: Transaction) -> list[RunRow]:
            load_session(transaction, session_id, user_id)
            rows = transaction.execute(
                f"SELECT {LISTED_COLUMNS} FROM runs WHERE session_id = :session_id "  # noqa: S608 - column names are ours
                "ORDER BY position DESC LIMIT :limit",
                {"session_id": session_id, "limit": limit},
            ).fetchall()
            return [run_row(row) for row in rows]

        return await self._database.read(work)

    async def earlier_history(self, run: RunRow) -> str | None:
        """The newest earlier history of the session, for the next run to continue."""

        def work(transaction: Transaction) -> str | None:
            row = transaction.execute(
                "SELECT history FROM runs WHERE session_id = :session_id AND position < :position "
                "AND history IS NOT NULL ORDER BY position DESC LIMIT 1",
                {"session_id": run.session_id, "position": run.position},
            ).fetchone()
            return row["history"] if row else None

        return await self._database.read(work)


def fenced() -> ConflictError:
    return ConflictError("Another worker has this run now, or it was stopped.", state="fenced")


def check_claim(transaction: Transaction, run_id: str | None, fence: int) -> None:
    """Raise ConflictError if a worker's run was stopped or taken over."""
    mine = transaction.execute(
        "SELECT 1 FROM runs WHERE id = :id AND fence = :fence AND state = 'RUNNING'", {"id": run_id, "fence": fence}
    ).fetchone()
    if mine is None:
        raise fenced()


def _changed(transaction: Transaction, run: RunRow, state: RunState) -> RunChanged:
    return RunChanged(timestamp=transaction.now, session_id=run.session_id, run_id=run.id, state=state)


def _own(transaction: Transaction, run_id: str, user_id: str) -> RunRow:
    row = transaction.execute(f"SELECT {RUN_COLUMNS} FROM runs WHERE id = :id", {"id": run_id}).fetchone()  # noqa: S608 - column names are ours
    if row is None or row["user_id"] != user_id:
        raise NotFound(f"No run {run_id!r}.")
    return run_row(row)


def _end(transaction: Transaction, run: RunRow, state: RunState, *, history: str | None, error: str | None) -> None:
    changed = transaction.execute(
        "UPDATE runs SET state = :state, history = coalesce(:history, history), error = :error, owner = NULL, "
        "lease_until = NULL, updated_at = :now WHERE id = :id AND fence = :fence AND state = 'RUNNING'",
        {
            "state": state.name,
            "history": history,
            "error": error,
            "now": transaction.now,
            "id": run.id,
            "fence": run.fence,
        },
    ).rowcount
    if changed != 1:
        raise fenced()
    # The next run begins with this conversation; earlier ones would make a session as large as its square.
    transaction.execute(
        "UPDATE runs SET history = NULL WHERE session_id = :session_id AND position < :position "
        "AND position >= :position - :most AND state IN ('DONE', 'FAILED') AND history IS NOT NULL "
        "AND EXISTS (SELECT 1 FROM runs AS newest WHERE newest.id = :id AND newest.history IS NOT NULL)",
        {"session_id": run.session_id, "position": run.position, "most": MOST_FORGOTTEN, "id": run.id},
    )
    transaction.hints.append(Hint(RUNS_TOPIC))
