"""Undos: requests to the machine that ran a call, its reports, and their record.

The record of an undo is one audit link before the request is sent, with who asked which machine, and one after it was
carried out. A report counts only if the first link exists, and only once.

A request has a row while somebody waits for its report or the machine is at it, so that the report may come to another
server than the one where somebody waits. The report itself, which shows files, is kept in that row for no longer.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from byleave.protocol.errors import NotFound
from byleave.protocol.events import SessionUndoRequested, ToolUndone, UndoRequested
from byleave.protocol.wire import later

from .database import Database, Hint, Row, Transaction
from .executions import HEAVY_CHARACTERS
from .ledger import Ledger, write_batch
from .transitions import ExecutionRow

LOOK_BACK = 20_000
"""Newest links searched for a request: reports come within seconds, or after a reconnection."""
AWAITED_LONGER_SECONDS = 5.0
"""A request is awaited for so long beyond its time: who waits has a clock of their own."""


class Pending(NamedTuple):
    """Requests that are not over."""

    awaited: int
    """Requests of the same user whose reports somebody waits for."""
    is_under_way: bool
    """True if a machine has begun to undo the same call."""


class Left(NamedTuple):
    """A request as its waiter left it."""

    report: str | None = None
    has_begun: bool = False


def report_topic(request_id: str) -> str:
    """The topic for news of a request."""
    return f"undo:{request_id}"


class Undos:
    """The transactions of undo."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ask(
        self,
        execution: ExecutionRow,
        request_id: str,
        *,
        actor: str,
        plan: str | None,
        partial: bool,
        seconds: float,
        awaited_seconds: float,
        keep_off: dict[str, list[str]],
        admit: Callable[[Pending], None],
        together: list[str] | None = None,
    ) -> None:
        """Ask the client that executed a call; with a `plan`, to carry it out.

        It must begin within `seconds`, and somebody waits for `awaited_seconds`. `admit` raises to refuse the request.
        `together`: all calls of its conversation to undo, newest first, of which this is the oldest.
        """

        def work(transaction: Transaction) -> None:
            client_id, now = execution.client_id or "", transaction.now
            transaction.execute(
                "DELETE FROM undo_reports WHERE awaited_until <= :now AND coalesce(begun_until, '') <= :now",
                {"now": now},
            )
            admit(_pending(transaction, execution))
            transaction.execute(
                "INSERT INTO undo_reports (request_id, execution_id, user_id, awaited_until) "
                "VALUES (:request_id, :execution_id, :user_id, :until)",
                {
                    "request_id": request_id,
                    "execution_id": execution.id,
                    "user_id": execution.user_id,
                    "until": later(now, awaited_seconds + AWAITED_LONGER_SECONDS),
                },
            )
            with Ledger(transaction, execution.project_id) as ledger:
                event: dict[str, Any] = {
                    "timestamp": now,
                    "request_id": request_id,
                    "tool_id": execution.id,
                    "client_id": client_id,
                    "session_id": execution.session_id,
                    "plan": plan,
                    "partial": partial,
                    "deadline": later(now, seconds),
                    "keep_off": keep_off,
                }
                request = (
                    UndoRequested(**event) if together is None else SessionUndoRequested(**event, tool_ids=together)
                )
                ledger.event(request, target=client_id, ref=execution.id)
                if plan is not None:
                    calls: dict[str, Any] = (
                        {} if together is None else {"session": execution.session_id, "calls": len(together)}
                    )
                    ledger.audit(
                        "undo_requested",
                        actor,
                        execution_id=execution.id,
                        request_id=request_id,
                        client_id=client_id,
                        plan=plan,
                        partial=partial,
                        **calls,
                    )

        await self._database.write(work)

    async def record_failure(self, execution: ExecutionRow, request_id: str, *, actor: str, problem: str) -> None:
        """Record that an undo failed or stopped in the middle, as its client reports."""

        def work(transaction: Transaction) -> None:
            known = _links(transaction, execution, request_id)
            if "undo_requested" in known and not known & {"undone", "undo_failed"}:
                with Ledger(transaction, execution.project_id) as ledger:
                    ledger.audit(
                        "undo_failed", actor, execution_id=execution.id, request_id=request_id, problem=problem
                    )

        await self._database.write(work)

    async def record(
        self, execution: ExecutionRow, request_id: str, *, actor: str, undo_id: str | None, files: int
    ) -> bool:
        """Record that the client carried an undo out, with its event; False if that is recorded already."""

        def work(transaction: Transaction) -> bool:
            known = _links(transaction, execution, request_id)
            if "undo_requested" not in known:
                raise NotFound("Nobody asked for this undo.", hint="Report with the `request_id` of the request.")
            if "undone" in known:
                return False
            with Ledger(transaction, execution.project_id) as ledger:
                _record(ledger, execution, request_id, actor, undo_id, files)
            return True

        return await self._database.write(work)

    async def record_together(
        self, execution: ExecutionRow, request_id: str, *, actor: str, undone: list[tuple[ExecutionRow, str, int]]
    ) -> None:
        """Record the calls of a conversation that the client undid, each with its undo's id and number of files, and
        its event. `execution`: the one that was asked about."""

        def work(transaction: Transaction) -> None:
            if "undo_requested" not in _links(transaction, execution, request_id):
                raise NotFound("Nobody asked for this undo.", hint="Report with the `request_id` of the request.")
            with Ledger(transaction, execution.project_id) as ledger:
                for call, undo_id, files in undone:
                    if "undone" not in _links(transaction, call, request_id):
                        _record(ledger, call, request_id, actor, undo_id, files)

        await self._database.write(work)

    async def has_begun(self, execution: ExecutionRow, request_id: str, *, seconds: float) -> None:
        """Note that the client has begun; if it does not report within these seconds, it counts as lost."""

        def work(transaction: Transaction) -> None:
            transaction.execute(
                "UPDATE undo_reports SET begun_until = :until WHERE request_id = :request_id AND execution_id = :id "
                "AND report IS NULL",
                {"request_id": request_id, "id": execution.id, "until": later(transaction.now, seconds)},
            )

        await self._database.write(work)

    async def tell(self, execution: ExecutionRow, request_id: str, report: str) -> None:
        """End a request; its report is kept only if somebody waits for it."""

        def work(transaction: Transaction) -> None:
            of_it = {"request_id": request_id, "id": execution.id}
            told = transaction.execute(
                "UPDATE undo_reports SET report = :report WHERE request_id = :request_id AND execution_id = :id "
                "AND report IS NULL AND awaited_until > :now",
                {**of_it, "report": report, "now": transaction.now},
            ).rowcount
            if told:
                transaction.hints.append(Hint(report_topic(request_id)))
            else:
                transaction.execute(
                    "DELETE FROM undo_reports WHERE request_id = :request_id AND execution_id = :id AND report IS NULL",
                    of_it,
                )

        await self._database.write(work, relaxed=True, heavy=len(report) > HEAVY_CHARACTERS)

    async def is_reported(self, request_id: str) -> bool:
        """True if there is a report to take."""
        found = await self._database.read(
            lambda transaction: transaction.execute(
                "SELECT 1 FROM undo_reports WHERE request_id = :id AND report IS NOT NULL", {"id": request_id}
            ).fetchone()
        )
        return found is not None

    async def leave(self, request_id: str) -> Left:
        """Wait for a request no longer: take its report, if there is one. What has begun stays known as under way."""

        def work(transaction: Transaction) -> Left:
            of_it = {"id": request_id, "now": transaction.now}
            # Changed first, which locks it: a report comes before or after this.
            rows = transaction.execute(
                "UPDATE undo_reports SET awaited_until = :now WHERE request_id = :id RETURNING report, begun_until",
                of_it,
            ).fetchall()
            left = Left(rows[0]["report"], rows[0]["begun_until"] is not None) if rows else Left()
            if left.report is not None or not left.has_begun:
                transaction.execute("DELETE FROM undo_reports WHERE request_id = :id", {"id": request_id})
            return left

        return await self._database.write(work, relaxed=True)


def _record(
    ledger: Ledger, execution: ExecutionRow, request_id: str, actor: str, undo_id: str | None, files: int
) -> None:
    ledger.event(
        ToolUndone(
            timestamp=ledger.now,
            tool_id=execution.id,
            undo_id=undo_id,
            files=files,
            undone_by=actor,
            session_id=execution.session_id,
        )
    )
    ledger.audit("undone", actor, execution_id=execution.id, request_id=request_id, undo_id=undo_id, files=files)


def _pending(transaction: Transaction, execution: ExecutionRow) -> Pending:
    of_it = {"user_id": execution.user_id, "id": execution.id, "now": transaction.now}
    awaited = transaction.execute(
        "SELECT count(*) AS requests FROM undo_reports WHERE user_id = :user_id AND awaited_until > :now", of_it
    )
    begun = transaction.execute(
        "SELECT 1 FROM undo_reports WHERE execution_id = :id AND begun_until > :now AND report IS NULL", of_it
    )
    row = cast("Row", awaited.fetchone())
    return Pending(row["requests"], begun.fetchone() is not None)


def _links(transaction: Transaction, execution: ExecutionRow, request_id: str) -> set[str]:
    """Actions that the chain has recorded for one request."""
    write_batch(transaction)
    rows = transaction.execute(
        "SELECT action, detail FROM audit WHERE project_id = :project_id AND execution_id = :id "
        "AND seq > (SELECT audit_seq FROM feeds WHERE project_id = :project_id) - :look_back "
        "AND action IN ('undo_requested', 'undone', 'undo_failed')",
        {"project_id": execution.project_id, "id": execution.id, "look_back": LOOK_BACK},
    ).fetchall()
    found = ((row["action"], cast("dict[str, Any]", json.loads(row["detail"]))) for row in rows)
    return {action for action, detail in found if detail.get("request_id") == request_id}
