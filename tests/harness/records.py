"""A record to test on: a real store on a real database, with a clock the test can turn."""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from byleave.calls.approvals import Answer, Decided, decide
from byleave.calls.inspection import Inspected, resolve_inspection
from byleave.protocol.approvals import call_digest
from byleave.protocol.states import AgentMode, RiskLevel
from byleave.protocol.verdicts import Verdict
from byleave.protocol.wire import new_id, timestamp
from byleave.settings import ServerSettings
from byleave.store import ExecutionRow, ProjectRow, SessionRow, Store
from byleave.store.approvals import Question
from byleave.store.database import Hint
from byleave.store.transitions import NewExecution

SEAL_KEYS = (b"seals the records of tests",)


@dataclass
class Clock:
    """The database's clock, turned by hand."""

    moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> str:
        return timestamp(self.moment)

    def turn(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


async def answer(store: Store, approval_id: str, *, client_id: str | None = None, **values: Any) -> Decided:
    """A person's answer, as the approval manager applies it."""
    return await decide(store, Answer(approval_id, **values), client_id=client_id)


async def inspected(
    store: Store, execution_id: str, question: Question, verdict: Verdict, *, digest: str, client_id: str | None
) -> ExecutionRow:
    """The question after an inspection, as the executor puts it."""
    row = await store.executions.load(execution_id)
    assert row is not None
    return await resolve_inspection(store, row, Inspected(question, verdict, digest), client_id=client_id)


class Outside:
    """Somebody else's connection to a record's database, which no foreign key holds back."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def do(self, sql: str, values: Sequence[object] = ()) -> None:
        """Execute statements, or one with values for its `?`."""
        if values:
            self._connection.execute(sql.replace("?", self._mark), values)
        elif isinstance(self._connection, sqlite3.Connection):
            self._connection.executescript(sql)
        else:
            self._connection.execute(sql.encode())

    def rows(self, sql: str) -> list[dict[str, Any]]:
        cursor = self._connection.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def outside(records: "Records") -> AbstractContextManager[Outside]:
    return opened_outside(records.settings.database)


@contextmanager
def opened_outside(url: str) -> Generator[Outside]:
    path = url.removeprefix("sqlite:///")
    if path != url:
        with closing(sqlite3.connect(path)) as connection, connection:
            yield Outside(connection, "?")
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        yield Outside(connection, "%s")


@dataclass
class Records:
    """A store with one project and one session of alice's."""

    store: Store
    clock: Clock
    settings: ServerSettings
    project: ProjectRow
    session: SessionRow
    hints: list[Hint] = field(default_factory=list)

    def call(
        self,
        *,
        tool_name: str = "read_file",
        key: str | None = None,
        params: str = '{"path":"a.txt"}',
        **changes: object,
    ) -> NewExecution:
        values = {
            "id": key or new_id("exec"),
            "user_id": "alice",
            "project_id": self.project.id,
            "session_id": self.session.id,
            "run_id": None,
            "agent_id": None,
            "mode": AgentMode.SANDBOX,
            "tool_name": tool_name,
            "tool_params": params,
            "true_params": params,
            "digest": call_digest(tool_name, {"text": params}, self.project.id),
            "risk_level": RiskLevel.LOW,
            "findings": "[]",
            "network": False,
            "timeout_seconds": 30,
            "repeatable": key is not None,
            "changes_nothing": False,
            "fence": None,
        }
        return NewExecution(**(values | changes))  # type: ignore[arg-type]

    async def kinds(self) -> list[str]:
        events, *_ = await self.store.feed.after(self.project.id, 0, client_id="c1", limit=1000)
        return [event.kind for event in events]
