"""Reading a project's feed back, from any number on.

Signals are kept without their parameters; here they are joined in again, and only while the execution still runs: an
old signal is never worth sending.
"""

import json
from typing import Any

from .database import Database, Transaction
from .records import StoredEvent

SIGNAL = "tool.execution_signal"


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

    async def after(
        self, project_id: str, seq: int, *, client_id: str | None, limit: int
    ) -> tuple[list[StoredEvent], int]:
        """Events past `seq` that this reader may see, and the number up to which it has now seen everything."""

        def work(transaction: Transaction) -> tuple[list[StoredEvent], int]:
            rows = transaction.all(
                "SELECT e.seq, e.kind, e.target, e.ref, e.payload, x.status, x.true_params "
                "FROM events AS e LEFT JOIN tool_executions AS x ON x.id = e.ref "
                "WHERE e.project_id = :project_id AND e.seq > :seq ORDER BY e.seq LIMIT :limit",
                {"project_id": project_id, "seq": seq, "limit": limit},
            )
            seen = rows[-1]["seq"] if rows else seq
            found: list[StoredEvent] = []
            for row in rows:
                payload = row["payload"]
                if row["target"] is not None and row["target"] != client_id:
                    continue
                if row["kind"] == SIGNAL:
                    if row["status"] != "EXECUTING":
                        continue
                    payload = _with_params(payload, row["true_params"])
                found.append(StoredEvent(project_id, row["seq"], row["kind"], row["target"], row["ref"], payload))
            return found, seen

        return await self._database.read(work)


def _with_params(payload: str, true_params: str | None) -> str:
    signal: dict[str, Any] = json.loads(payload)
    signal["tool_params"] = json.loads(true_params or "{}")
    return json.dumps(signal, separators=(",", ":"))
