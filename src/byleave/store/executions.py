"""Executions: reading them, and what clients and people do to open ones.

Each method is one transaction. `byleave.calls` decides how a call begins, is asked about, settles and expires, and
takes the edges in `transitions` inside transactions of its own; the functions at the end serve those. `tests/store` has
the failure matrix for this module.
"""

import json
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from byleave.protocol.errors import ConflictError
from byleave.protocol.events import ToolOutput
from byleave.protocol.states import ApprovalStatus, ErrorType, ExecutionStatus, RiskLevel, RunState
from byleave.protocol.tools import MAX_OUTPUT_BYTES

from . import transitions
from .approvals import close_pending, waiting_executions
from .database import Database, Row, Transaction
from .ledger import Ledger
from .machines import take_displacement
from .transitions import OPEN, SHOWN_COLUMNS, ExecutionRow, Waits, execution_row

MOST_OUTPUT = 2 * MAX_OUTPUT_BYTES
"""Characters of live output of one call: masks may be longer than what they hide."""
HEAVY_CHARACTERS = 256 * 1024
WRITES_LOOKED_AT = 1000
MOST_LOOKED_THROUGH = 5000
"""Rows that one read of a page looks through, about 10 ms."""
MOST_COUNTED = 10_000
"""Rows that are looked through for a count: no person reads further, and a long record has millions."""
FILTERED = "id, created_at, project_id, session_id, agent_id, tool_name, status, risk_level"
ORDER = "ORDER BY created_at DESC, id DESC"
LONGEST_RESULT = 64 * 1024
LONGEST_PARSED = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Selects executions for a page, newest first."""

    user_id: str
    project_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    tool_name: str | None = None
    status: ExecutionStatus | None = None
    risk_level: RiskLevel | None = None
    since: str | None = None
    """Nothing before this time."""
    cursor: str | None = None
    limit: int = 50
    counted: bool = True
    """True to count all matches, which reads them all."""


class HistoryPage(NamedTuple):
    """A page of executions."""

    rows: list[ExecutionRow]
    total: int
    """All that fit, among the newest `MOST_COUNTED` of the user."""
    exact: bool
    """False if the user has more than those."""
    cursor: str | None
    """Start of the next page; None on the last one."""


class Depths(NamedTuple):
    """Numbers of waiting executions, questions and runs."""

    client: int = 0
    """Executions that may run and have no client yet."""
    approval: int = 0
    """Questions nobody has answered yet."""
    runs: tuple[tuple[RunState, int], ...] = ()
    """Runs that are not over, by state."""


class Executions:
    """The executions' transactions."""

    def __init__(self, database: Database, waits: Waits) -> None:
        self._database = database
        self._waits = waits
        self._page_columns = _page_columns(database)

    async def get(self, execution_id: str, *, user_id: str, whole: bool = False) -> ExecutionRow:
        """A user's execution, or NotFound. `whole`: with its true parameters."""
        return await self._database.read(
            lambda transaction: transitions.own_execution(transaction, execution_id, user_id, whole=whole)
        )

    async def load(self, execution_id: str) -> ExecutionRow | None:
        """An execution by id alone, without its true parameters: for waiters that already know whose it is."""
        return await self._database.read(
            lambda transaction: transitions.load_execution(transaction, execution_id, whole=False)
        )

    async def page(self, wanted: HistoryFilter) -> "HistoryPage":
        """Read a page, newest first."""
        total, exact = 0, True
        if wanted.counted:
            total, exact = await self._database.read(lambda transaction: _count(transaction, wanted))
        found: list[ExecutionRow] = []
        cursor = wanted.cursor
        while True:
            # In pieces, so that others read in between, however rare what is wanted is.
            piece = replace(wanted, cursor=cursor, limit=wanted.limit - len(found))
            rows, cursor = await self._database.read(partial(_page, wanted=piece, columns=self._page_columns))
            found += rows
            if cursor is None or len(found) == wanted.limit:
                return HistoryPage(found, total, exact, cursor)

    async def last_writes(self, project_id: str, paths: Iterable[str]) -> dict[str, str]:
        """Times of the last `write_file` to each of these workspace-relative paths, for those written."""
        wanted = set(paths)

        def work(transaction: Transaction) -> dict[str, str]:
            root = transaction.execute("SELECT workspace FROM projects WHERE id = :id", {"id": project_id}).fetchone()
            prefix = f"{root['workspace'].rstrip('/')}/" if root and root["workspace"] else None
            rows = transaction.execute(
                "SELECT tool_params, completed_at FROM tool_executions WHERE project_id = :project_id "
                "AND tool_name = 'write_file' AND risk_level <> 'LOW' AND status = 'COMPLETED' "
                "ORDER BY approved_at DESC LIMIT :limit",
                {"project_id": project_id, "limit": WRITES_LOOKED_AT},
            ).fetchall()
            found: dict[str, str] = {}
            for row in rows:
                path = json.loads(row["tool_params"]).get("path")
                if isinstance(path, str):
                    plain = posixpath.normpath(path.removeprefix(prefix) if prefix else path)
                    if plain in wanted:
                        found.setdefault(plain, row["completed_at"])
            return found

        return await self._database.read(work)

    async def overdue(self) -> list[str]:
        """Ids of open executions past their deadline."""
        rows = await self._rows(f"SELECT id FROM tool_executions WHERE deadline <= :now AND {OPEN}")  # noqa: S608 - made of our own words alone
        return [row["id"] for row in rows]

    async def waiting_projects(self) -> list[str]:
        """Projects with something approved that still waits for a client."""
        rows = await self._rows(
            f"SELECT DISTINCT project_id FROM tool_executions WHERE {OPEN} AND status = 'APPROVED'"  # noqa: S608 - made of our own words alone
        )
        return [row["project_id"] for row in rows]

    async def awaiting_inspection(self) -> list[tuple[str, str | None]]:
        """Project and asked client of each call that waits for an inspection."""
        rows = await self._rows(
            f"SELECT DISTINCT project_id, client_id FROM tool_executions WHERE {OPEN} AND status = 'PENDING'"  # noqa: S608 - made of our own words alone
        )
        return [(row["project_id"], row["client_id"]) for row in rows]

    async def open_in_group(self, project_id: str, prefix: str) -> list[str]:
        """Ids of a project's open executions that begin with this."""
        rows = await self._rows(
            f"SELECT id FROM tool_executions WHERE project_id = :project_id AND {OPEN} "  # noqa: S608 - made of our own words alone
            "AND id LIKE :pattern",
            project_id=project_id,
            pattern=f"{prefix}%",
        )
        return [row["id"] for row in rows]

    async def _rows(self, sql: str, **values: str) -> list[Row]:
        return await self._database.read(
            lambda transaction: list(transaction.execute(sql, {"now": transaction.now, **values}).fetchall())
        )

    async def pending(self, project_id: str, elsewhere: frozenset[str]) -> list[ExecutionRow]:
        """Calls that wait for an inspection, except by a client in `elsewhere`."""
        return await self._database.read(lambda transaction: _pending(transaction, project_id, elsewhere))

    async def request_inspections(
        self, project_id: str, client_id: str, elsewhere: frozenset[str] = frozenset()
    ) -> int:
        """Ask a client about every call that waits for an inspection, except by a client in `elsewhere`."""

        def work(transaction: Transaction) -> int:
            found = _pending(transaction, project_id, elsewhere)
            with Ledger(transaction, project_id) as ledger:
                for execution in found:
                    transitions.set_columns(ledger, execution, {"client_id": client_id}, whole=False)
                    transitions.request_inspection(ledger, execution, client_id)
            return len(found)

        return await self._database.write(work)

    async def dispatch_waiting(self, project_id: str, client_id: str) -> list[ExecutionRow]:
        """Dispatch all approved calls that waited for a client to this one, in order."""

        def look(transaction: Transaction) -> list[tuple[str, int]]:
            rows = transaction.execute(
                "SELECT id, length(true_params) AS size FROM tool_executions WHERE project_id = :project_id "  # noqa: S608 - made of our own words alone
                f"AND {OPEN} AND status = 'APPROVED' ORDER BY approved_at, created_at, id",
                {"project_id": project_id},
            ).fetchall()
            return [(row["id"], row["size"] or 0) for row in rows]

        def work(transaction: Transaction, execution_id: str) -> ExecutionRow | None:
            waiting = transitions.load_execution(transaction, execution_id)
            if waiting is None or waiting.status is not ExecutionStatus.APPROVED:
                return None
            with Ledger(transaction, project_id) as ledger:
                return transitions.dispatch(ledger, waiting, client_id=client_id, waits=self._waits)

        sent: list[ExecutionRow] = []
        for execution_id, size in await self._database.write(look):
            row = await self._database.write(partial(work, execution_id=execution_id), heavy=size > HEAVY_CHARACTERS)
            if row is not None:
                sent.append(row)
        return sent

    async def repeat_signals(self, project_id: str, client_id: str) -> int:
        """Repeat the signals of a client that came back without its position in the feed.

        A call that was cancelled meanwhile gets none: it may never have started, and must not now. Neither does one of
        a client that came while an earlier generation of it was connected: that one may run it.
        """

        def work(transaction: Transaction) -> int:
            executing = transitions.with_status(transaction, project_id, ExecutionStatus.EXECUTING)
            running = [execution for execution in executing if execution.client_id == client_id]
            displaced = take_displacement(transaction, project_id, client_id)
            with Ledger(transaction, project_id) as ledger:
                for execution in running:
                    if displaced:
                        transitions.end(
                            ledger,
                            execution,
                            ExecutionStatus.FAILED,
                            actor=f"client:{client_id}",
                            error="Another client with the same identity connected while this was running; it may or "
                            "may not have had its effect. It was not run again.",
                            error_type=ErrorType.INTERRUPTED,
                        )
                    elif execution.cancel_requested:
                        _end_cancelled(ledger, execution, f"client:{client_id}")
                    elif execution.queued:  # the client lost its queue
                        transitions.signal(ledger, transitions.start(ledger, execution, self._waits, whole=True))
                    else:
                        transitions.signal(ledger, execution)
            return len(running)

        return await self._database.write(work)

    async def queued(
        self, execution_ids: Iterable[str], *, user_id: str, project_id: str, client_id: str | None
    ) -> None:
        """Stop the clock of calls that wait in their client's queue; skip calls of others and ended ones."""

        def work(transaction: Transaction) -> None:
            with Ledger(transaction, project_id) as ledger:
                for execution_id in execution_ids:
                    execution = transitions.load_execution(transaction, execution_id)
                    if (
                        execution is not None
                        and (execution.user_id, execution.project_id) == (user_id, project_id)
                        and execution.client_id == client_id
                        and execution.status is ExecutionStatus.EXECUTING
                        and not execution.cancel_requested
                    ):
                        transitions.queue(ledger, execution, self._waits)

        await self._database.write(work)

    async def start(self, execution_id: str, *, user_id: str, project_id: str, client_id: str | None) -> ExecutionRow:
        """Start the clock of a queued call; raise ConflictError if it is no longer wanted."""

        def work(transaction: Transaction) -> ExecutionRow:
            execution = transitions.own_execution(transaction, execution_id, user_id, project_id)
            if execution.client_id != client_id:
                raise ConflictError("This execution was given to another client.", state=execution.status.value)
            if execution.status is not ExecutionStatus.EXECUTING or execution.cancel_requested:
                raise ConflictError("This execution is not wanted any more.", state=execution.status.value)
            if not execution.queued:
                return execution
            with Ledger(transaction, project_id) as ledger:
                return transitions.start(ledger, execution, self._waits)

        return await self._database.write(work)

    async def append_output(
        self, execution_id: str, *, user_id: str, project_id: str, client_id: str, stream: str, text: str, sequence: int
    ) -> bool:
        """Announce a piece of a running command's output; False if it is a repeat, too late or too much."""

        def work(transaction: Transaction) -> bool:
            execution = transitions.own_execution(transaction, execution_id, user_id, project_id)
            if execution.client_id is not None and client_id != execution.client_id:
                raise given_to_another(execution)
            if execution.status is not ExecutionStatus.EXECUTING or sequence < execution.output_seq:
                return False
            size = execution.output_size + len(text)
            if size > MOST_OUTPUT:  # a client keeps to it; its token in other hands may not
                return False
            transaction.execute(
                "UPDATE tool_executions SET output_seq = :next, output_size = :size WHERE id = :id",
                {"next": sequence + 1, "size": size, "id": execution_id},
            )
            with Ledger(transaction, project_id) as ledger:
                ledger.event(
                    ToolOutput(
                        timestamp=transaction.now,
                        tool_id=execution_id,
                        stream="stdout" if stream == "stdout" else "stderr",
                        text=text,
                        sequence=sequence,
                        session_id=execution.session_id,
                    )
                )
            return True

        return await self._database.write(work)

    async def cancel(
        self, execution_id: str, *, user_id: str, actor: str, connected: frozenset[str] | None = None
    ) -> ExecutionRow:
        """Cancel an execution: at once if it has not started, by a signal to its client if it runs.

        `connected`: clients known to be connected. The call of another one ends at once, and that is told if it comes.
        """
        return await self._database.write(
            lambda transaction: _cancel(
                transaction,
                transitions.own_execution(transaction, execution_id, user_id),
                actor,
                self._waits,
                connected,
            )
        )

    async def depths(self) -> Depths:
        """Count the waiting executions, questions and runs."""

        def work(transaction: Transaction) -> Depths:
            client = transaction.execute(
                f"SELECT count(*) AS waiting FROM tool_executions WHERE {OPEN} AND status = 'APPROVED'"  # noqa: S608 - made of our own words alone
            ).fetchone()
            approval = transaction.execute(
                "SELECT count(*) AS waiting FROM approvals WHERE status = 'pending'"
            ).fetchone()
            runs = transaction.execute(
                "SELECT state, count(*) AS runs FROM runs WHERE state IN ('READY', 'RUNNING', 'WAITING') GROUP BY state"
            ).fetchall()
            return Depths(
                client["waiting"] if client else 0,
                approval["waiting"] if approval else 0,
                tuple((RunState[row["state"]], row["runs"]) for row in runs),
            )

        return await self._database.read(work)


def given_to_another(execution: ExecutionRow) -> ConflictError:
    return ConflictError(
        "This execution was given to another client.",
        state=execution.status.value,
        hint="Only the client that got the signal may report on it.",
    )


# Inside a transaction


def overdue_projects(transaction: Transaction, spared: frozenset[str] | None) -> list[str]:
    """Projects with an execution or a question past its deadline."""
    due, names = _due(spared)
    rows = transaction.execute(
        f"SELECT project_id FROM tool_executions WHERE deadline <= :now AND {due} "  # noqa: S608 - made of our own words alone
        "UNION SELECT project_id FROM approvals WHERE status = 'pending' AND deadline <= :now",
        {"now": transaction.now, **names},
    ).fetchall()
    return [row["project_id"] for row in rows]


def overdue_executions(
    transaction: Transaction, spared: frozenset[str] | None, project_id: str
) -> list[tuple[str, int]]:
    """Ids of open executions of a project past their deadline, at most 200, with the size of their true parameters.

    `spared`: clients whose running executions are left out; None for all clients.
    """
    due, names = _due(spared)
    rows = transaction.execute(
        "SELECT id, length(true_params) AS size FROM tool_executions WHERE project_id = :project_id "  # noqa: S608 - our own words
        f"AND deadline <= :now AND {due} ORDER BY deadline LIMIT 200",
        {"now": transaction.now, "project_id": project_id, **names},
    ).fetchall()
    return [(row["id"], row["size"] or 0) for row in rows]


def if_overdue(transaction: Transaction, spared: frozenset[str] | None, execution_id: str) -> ExecutionRow | None:
    """An execution if it is still open and past its deadline, without its true parameters."""
    due, names = _due(spared)
    row = transaction.execute(
        f"SELECT {SHOWN_COLUMNS} FROM tool_executions WHERE id = :id AND deadline <= :now AND {due}",  # noqa: S608 - column names are ours
        {"now": transaction.now, "id": execution_id, **names},
    ).fetchone()
    return execution_row(row) if row else None


def next_deadline(transaction: Transaction, spared: frozenset[str] | None) -> str | None:
    """The next deadline of an execution or a question."""
    due, names = _due(spared)
    row = transaction.execute(
        "SELECT min(deadline) AS deadline FROM (SELECT min(deadline) AS deadline FROM tool_executions "  # noqa: S608 - made of our own words alone
        f"WHERE {due} UNION ALL SELECT min(deadline) AS deadline FROM approvals WHERE status = 'pending') AS open",
        names,
    ).fetchone()
    return row["deadline"] if row else None


def _due(spared: frozenset[str] | None) -> tuple[str, dict[str, str]]:
    """The condition of executions that may expire, and its parameters."""
    if spared is None:
        return f"{OPEN} AND status <> 'EXECUTING'", {}
    names = {f"client{number}": client_id for number, client_id in enumerate(sorted(spared))}
    if not names:
        return OPEN, {}
    return f"{OPEN} AND NOT (status = 'EXECUTING' AND client_id IN ({', '.join(f':{name}' for name in names)}))", names


def _pending(transaction: Transaction, project_id: str, elsewhere: frozenset[str]) -> list[ExecutionRow]:
    found = transitions.with_status(transaction, project_id, ExecutionStatus.PENDING)
    return [execution for execution in found if execution.client_id not in elsewhere]


def cancel_run_calls(
    transaction: Transaction, run_id: str, actor: str, waits: Waits, connected: frozenset[str] | None = None
) -> list[ExecutionRow]:
    """Cancel every call a run has open."""
    rows = transaction.execute(
        f"SELECT {SHOWN_COLUMNS} FROM tool_executions WHERE run_id = :run_id AND {OPEN}",  # noqa: S608 - column names are ours
        {"run_id": run_id},
    ).fetchall()
    return [_cancel(transaction, execution_row(row), actor, waits, connected) for row in rows]


def _cancel(
    transaction: Transaction, execution: ExecutionRow, actor: str, waits: Waits, connected: frozenset[str] | None
) -> ExecutionRow:
    """→ FAILED if it has not started or its client is away; if it runs, signal its client to stop it."""
    if execution.status.ended:
        raise ConflictError(f"This execution is {execution.status} already.", state=execution.status.value)
    with Ledger(transaction, execution.project_id) as ledger:
        if execution.status is ExecutionStatus.EXECUTING:
            if connected is not None and execution.client_id not in connected:
                return _end_cancelled(ledger, execution, actor)
            transitions.request_cancel(ledger, execution, waits)
            ledger.audit("cancel_requested", actor, execution_id=execution.id)
            return execution
        ended = transitions.end(
            ledger,
            execution,
            ExecutionStatus.FAILED,
            actor=actor,
            error="Cancelled before it ran.",
            error_type=ErrorType.CANCELLED,
        )
        if execution.approval_id and not waiting_executions(transaction, execution.approval_id):
            close_pending(ledger, execution.approval_id, ApprovalStatus.CANCELLED, actor)
        return ended


def _end_cancelled(ledger: Ledger, execution: ExecutionRow, actor: str) -> ExecutionRow:
    """EXECUTING → FAILED for a call whose client is away; if it comes back, or another server has it, it stops."""
    transitions.signal_cancel(ledger, execution)
    return transitions.end(
        ledger,
        execution,
        ExecutionStatus.FAILED,
        actor=actor,
        error="Cancelled while its client was away; it may or may not have had its effect.",
        error_type=ErrorType.CANCELLED,
    )


def _filters(wanted: HistoryFilter) -> tuple[str, dict[str, str | int]]:
    """The condition of a page beyond the user's, and all its values."""
    clauses: list[str] = []
    values: dict[str, str | int] = {"user_id": wanted.user_id}
    for name in ("project_id", "session_id", "agent_id", "tool_name", "status", "risk_level"):
        value = getattr(wanted, name)
        if value is not None:
            clauses.append(f"{name} = :{name}")
            values[name] = value.name if isinstance(value, ExecutionStatus) else str(value)
    return " AND ".join(clauses) or "1 = 1", values


def _page_columns(database: Database) -> str:
    """A page of whole files would be too large: a long result is left out, and read with the execution itself."""
    # A command's changes and notes are short, and must not be lost with its output.
    without_output = database.shortened("result", ("stdout", "stderr"))
    return SHOWN_COLUMNS.replace(
        " result,",
        f" CASE WHEN length(result) <= {LONGEST_RESULT} THEN result WHEN result IS NULL THEN NULL "
        f"WHEN tool_name = 'execute_command' AND length(result) <= {LONGEST_PARSED} THEN {without_output} "
        """ELSE '{"shortened":true}' END AS result,""",
    )


def _count(transaction: Transaction, wanted: HistoryFilter) -> tuple[int, bool]:
    """The number of those that fit among the user's newest; True if these are all."""
    where, values = _filters(wanted)
    seen = FILTERED if len(values) > 1 else "1"  # without a filter the index alone is read
    row = transaction.execute(
        f"SELECT count(*) AS total FROM (SELECT {seen} FROM tool_executions WHERE user_id = :user_id "  # noqa: S608 - our own words
        f"{ORDER} LIMIT :most) AS newest WHERE {where}",
        {**values, "most": MOST_COUNTED},
    ).fetchone()
    beyond = transaction.execute(
        f"SELECT 1 FROM tool_executions WHERE user_id = :user_id {ORDER} LIMIT 1 OFFSET :most",  # noqa: S608 - our own words
        {"user_id": wanted.user_id, "most": MOST_COUNTED},
    ).fetchone()
    return row["total"] if row else 0, beyond is None


def _page(transaction: Transaction, wanted: HistoryFilter, columns: str) -> tuple[list[ExecutionRow], str | None]:
    """A page, or as much of it as is among the next `MOST_LOOKED_THROUGH` rows; and where to go on."""
    where, values = _filters(wanted)
    beyond = "user_id = :user_id"
    if wanted.since:
        beyond += " AND created_at >= :since"
        values["since"] = wanted.since
    if wanted.cursor:
        created_at, _, last_id = wanted.cursor.partition("~")
        beyond += " AND (created_at, id) < (:created_at, :last_id)"
        values |= {"created_at": created_at, "last_id": last_id}
    newest = f"FROM tool_executions WHERE {beyond} {ORDER}"
    among = f"SELECT * FROM (SELECT {FILTERED} {newest} LIMIT :most) AS newest WHERE {where} {ORDER} LIMIT :limit"  # noqa: S608 - our own words
    rows = transaction.execute(
        f"SELECT {columns} FROM tool_executions WHERE id IN (SELECT id FROM ({among}) AS chosen) {ORDER}",  # noqa: S608 - our own words
        {**values, "most": MOST_LOOKED_THROUGH, "limit": wanted.limit + 1},
    ).fetchall()
    page = [execution_row(row) for row in rows[: wanted.limit]]
    if len(rows) > wanted.limit:
        return page, f"{page[-1].created_at}~{page[-1].id}"
    end = {**values, "most": MOST_LOOKED_THROUGH - 1}
    last = transaction.execute(f"SELECT created_at, id {newest} LIMIT 1 OFFSET :most", end).fetchone()
    return page, f"{last['created_at']}~{last['id']}" if last else None
