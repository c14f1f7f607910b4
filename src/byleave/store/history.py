"""Looking back: executions filtered and paged, newest first; and when an agent last wrote a file."""

import json
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from byleave.protocol.states import ExecutionStatus, RiskLevel

from . import transitions
from .database import Transaction
from .records import ExecutionRow, execution_row

LONGEST_RESULT = 64 * 1024
LONGEST_PARSED = 4 * 1024**2
PAGE_COLUMNS = transitions.EXECUTION_COLUMNS.replace("true_params", "NULL AS true_params").replace(
    " result,",
    f" CASE WHEN length(result) <= {LONGEST_RESULT} THEN result WHEN result IS NULL THEN NULL "
    # What a command changed and what to know of it is short, and must not get lost with its output.
    f"WHEN tool_name = 'execute_command' AND length(result) <= {LONGEST_PARSED} "
    "THEN json_set(json_remove(result, '$.stdout', '$.stderr'), '$.shortened', json('true')) "
    """ELSE '{"shortened":true}' END AS result,""",
)
"""A page of whole files would be too much: a long result is left out, and found with the execution itself."""


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which executions to list, newest first."""

    user_id: str
    project_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    tool_name: str | None = None
    status: ExecutionStatus | None = None
    risk_level: RiskLevel | None = None
    cursor: str | None = None
    limit: int = 50
    counted: bool = True
    """Whether to say how many there are in all, for which all must be looked at."""


def read_page(transaction: Transaction, wanted: HistoryFilter) -> tuple[list[ExecutionRow], int, str | None]:
    clauses = ["user_id = :user_id"]
    values: dict[str, str | int] = {"user_id": wanted.user_id}
    for name in ("project_id", "session_id", "agent_id", "tool_name", "status", "risk_level"):
        value = getattr(wanted, name)
        if value is not None:
            clauses.append(f"{name} = :{name}")
            values[name] = value.name if isinstance(value, ExecutionStatus) else str(value)
    where = " AND ".join(clauses)
    count = f"SELECT count(*) AS total FROM tool_executions WHERE {where}"  # noqa: S608 - made of our own words alone
    total = transaction.one(count, values) if wanted.counted else None
    if wanted.cursor:
        created_at, _, last_id = wanted.cursor.partition("~")
        where += " AND (created_at < :created_at OR (created_at = :created_at AND id < :last_id))"
        values |= {"created_at": created_at, "last_id": last_id}
    rows = transaction.all(
        f"SELECT {PAGE_COLUMNS} FROM tool_executions WHERE {where} "  # noqa: S608 - column names are ours
        "ORDER BY created_at DESC, id DESC LIMIT :limit",
        {**values, "limit": wanted.limit + 1},
    )
    page = [execution_row(row) for row in rows[: wanted.limit]]
    more = len(rows) > wanted.limit
    return page, total["total"] if total else 0, f"{page[-1].created_at}~{page[-1].id}" if more else None


WRITES_LOOKED_AT = 1000


def last_writes(transaction: Transaction, project_id: str, paths: Iterable[str]) -> dict[str, str]:
    """When `write_file` last wrote each of these, for those it wrote: paths from the workspace → time."""
    wanted = set(paths)
    root = transaction.one("SELECT workspace FROM projects WHERE id = :id", {"id": project_id})
    prefix = f"{root['workspace'].rstrip('/')}/" if root and root["workspace"] else None
    rows = transaction.all(
        "SELECT tool_params, completed_at FROM tool_executions WHERE project_id = :project_id "
        "AND tool_name = 'write_file' AND risk_level <> 'LOW' AND status = 'COMPLETED' "
        "ORDER BY approved_at DESC LIMIT :limit",
        {"project_id": project_id, "limit": WRITES_LOOKED_AT},
    )
    found: dict[str, str] = {}
    for row in rows:
        path = json.loads(row["tool_params"]).get("path")
        if isinstance(path, str):
            plain = posixpath.normpath(path.removeprefix(prefix) if prefix else path)
            if plain in wanted:
                found.setdefault(plain, row["completed_at"])
    return found
