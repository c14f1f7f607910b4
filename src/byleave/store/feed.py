"""Reading a project's feed back, from any number on.

Signals are kept without their parameters; here they are joined in again, and only while the execution still waits for
them: an old signal is never worth sending. A page is bounded in events and in characters, since readers are many and
slow; what lies beyond it is not even loaded.
"""

import json
from typing import Any

from .database import Database, Row, Transaction
from .records import StoredEvent
from .transitions import looked_at

SIGNALS = {"tool.execution_signal": "EXECUTING", "tool.inspection_request": "PENDING"}
"""What is addressed to one client, and the state in which it is still worth sending."""
PAGE_CHARACTERS = 1024 * 1024
"""A page ends with the event that reaches this: every reader that does not read holds a page or two."""


class Feed:
    """The feed's reads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def head(self, project_id: str) -> int:
        """The number of the newest event."""

        def work(transaction: Transaction) -> int:
            row = transaction.one("SELECT seq FROM feeds WHERE project_id = :id", {"id": project_id})
            return row["seq"] if row else 0

        return await self._database.read(work)

    async def before(self, project_id: str, moment: str) -> int:
        """The number of the newest event that is older than a moment, for a reader who wants everything since."""

        def work(transaction: Transaction) -> int:
            # From the newest back: what is asked for is almost always recent.
            row = transaction.one(
                "SELECT seq FROM events WHERE project_id = :project_id AND created_at < :moment "
                "ORDER BY seq DESC LIMIT 1",
                {"project_id": project_id, "moment": moment},
            )
            return row["seq"] if row else 0

        return await self._database.read(work)

    async def after(
        self, project_id: str, seq: int, *, client_id: str | None, limit: int
    ) -> tuple[list[StoredEvent], int, bool]:
        """Events past `seq` that this reader may see, the number up to which it has now seen everything, and whether
        there may be more."""

        def work(transaction: Transaction) -> tuple[list[StoredEvent], int, bool]:
            heads = transaction.all(
                "SELECT e.seq, e.kind, e.target, e.ref, x.status "
                "FROM events AS e LEFT JOIN tool_executions AS x ON x.id = e.ref "
                "WHERE e.project_id = :project_id AND e.seq > :seq ORDER BY e.seq LIMIT :limit",
                {"project_id": project_id, "seq": seq, "limit": limit},
            )
            found: list[StoredEvent] = []
            characters = 0
            for head in heads:
                if not _is_for(client_id, head):
                    continue
                payload = _payload(transaction, project_id, head)
                found.append(StoredEvent(project_id, head["seq"], head["kind"], head["target"], head["ref"], payload))
                characters += len(payload)
                if characters >= PAGE_CHARACTERS:
                    return found, head["seq"], True
            return found, heads[-1]["seq"] if heads else seq, len(heads) == limit

        return await self._database.read(work)


def _is_for(client_id: str | None, head: Row) -> bool:
    if head["target"] is not None and head["target"] != client_id:
        return False
    return head["kind"] not in SIGNALS or head["status"] == SIGNALS[head["kind"]]


def _payload(transaction: Transaction, project_id: str, head: Row) -> str:
    row = transaction.one(
        "SELECT payload FROM events WHERE project_id = :project_id AND seq = :seq",
        {"project_id": project_id, "seq": head["seq"]},
    )
    payload: str = row["payload"] if row else "{}"
    if head["kind"] not in SIGNALS:
        return payload
    execution = transaction.one("SELECT true_params FROM tool_executions WHERE id = :id", {"id": head["ref"]})
    return _with_params(payload, execution["true_params"] if execution else None)


def _with_params(payload: str, true_params: str | None) -> str:
    signal: dict[str, Any] = json.loads(payload)
    signal["tool_params"] = json.loads(true_params or "{}")
    if signal["kind"] == "tool.inspection_request":
        signal["tool_params"] = looked_at(signal["tool_name"], signal["tool_params"])
    return json.dumps(signal, separators=(",", ":"))
