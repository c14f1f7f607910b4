"""Undo, as far as the record knows it: who asked which machine, and that it was done.

What was there before lies on the machine alone; here are the request for it on the feed, and for one that acts a link
in the audit chain before it is sent and one after it was carried out. A report counts only when that first link is
there, and only once, whatever was restarted in between. Nothing here keeps a file's content.
"""

import json
from typing import Any, cast

from byleave.protocol.errors import NotFound
from byleave.protocol.events import ToolUndone, UndoRequested
from byleave.protocol.wire import later

from .database import Database, Transaction
from .ledger import Ledger
from .records import ExecutionRow

LOOK_BACK = 20_000
"""How many links before the newest a request may lie: reports come within seconds, or after a reconnection."""


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
        keep_off: dict[str, list[str]],
    ) -> None:
        """Ask the client that executed a call; with a `plan`, to carry it out."""

        def work(transaction: Transaction) -> None:
            client_id = execution.client_id or ""
            with Ledger(transaction, execution.project_id) as ledger:
                ledger.event(
                    UndoRequested(
                        timestamp=transaction.now,
                        request_id=request_id,
                        tool_id=execution.id,
                        client_id=client_id,
                        session_id=execution.session_id,
                        plan=plan,
                        partial=partial,
                        deadline=later(transaction.now, seconds),
                        keep_off=keep_off,
                    ),
                    target=client_id,
                    ref=execution.id,
                )
                if plan is not None:
                    ledger.audit(
                        "undo_requested",
                        actor,
                        execution_id=execution.id,
                        request_id=request_id,
                        client_id=client_id,
                        plan=plan,
                        partial=partial,
                    )

        await self._database.write(work)

    async def record_failure(self, execution: ExecutionRow, request_id: str, *, actor: str, problem: str) -> None:
        """The client says that one it was asked to carry out came to nothing, or stopped in the middle."""

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
        """The client carried it out: the audit link and the event, together. False when that is known already."""

        def work(transaction: Transaction) -> bool:
            known = _links(transaction, execution, request_id)
            if "undo_requested" not in known:
                raise NotFound("Nobody asked for this undo.", hint="Report with the `request_id` of the request.")
            if "undone" in known:
                return False
            with Ledger(transaction, execution.project_id) as ledger:
                ledger.event(
                    ToolUndone(
                        timestamp=transaction.now,
                        tool_id=execution.id,
                        undo_id=undo_id,
                        files=files,
                        undone_by=actor,
                        session_id=execution.session_id,
                    )
                )
                ledger.audit(
                    "undone", actor, execution_id=execution.id, request_id=request_id, undo_id=undo_id, files=files
                )
            return True

        return await self._database.write(work)


def _links(transaction: Transaction, execution: ExecutionRow, request_id: str) -> set[str]:
    """Actions the chain has recorded of one request."""
    rows = transaction.all(
        "SELECT action, detail FROM audit WHERE project_id = :project_id AND execution_id = :id "
        "AND seq > (SELECT audit_seq FROM feeds WHERE project_id = :project_id) - :look_back "
        "AND action IN ('undo_requested', 'undone', 'undo_failed')",
        {"project_id": execution.project_id, "id": execution.id, "look_back": LOOK_BACK},
    )
    found = ((row["action"], cast("dict[str, Any]", json.loads(row["detail"]))) for row in rows)
    return {action for action, detail in found if detail.get("request_id") == request_id}
