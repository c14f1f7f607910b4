"""`python -m bench.growth [ROWS …]`: what a long record costs. One table, a column for each length of the record.

A few hundred calls are made for real: reads, and writes that a person approved or refused. Their rows are then copied
in SQL until the record is long enough (so its chain proves nothing, and verifying it has no row here). Then, with the
server's parts open and no HTTP in between, each step is taken some times; its median is told, and the longest time the
event loop stood still meanwhile.
"""

import argparse
import asyncio
import logging
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import structlog

from byleave.calls.machines import ConnectedClient
from byleave.protocol.executions import CompletedReport
from byleave.protocol.states import ExecutionStatus
from byleave.server.services import Services, open_services
from byleave.settings import ServerSettings
from byleave.store import SessionRow, StoredEvent
from byleave.store.executions import HistoryFilter
from byleave.store.ledger import feed_topic

USER = "bench"
REAL = 300
ROUNDS = 15
MOST_STALL_MS = 20
CLIENT = "client_of_bench"
Step = Callable[[int], Awaitable[object]]
"""Something to time; a step that gives seconds has timed itself."""


class Heart:
    """The longest time that the event loop stood still."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._task = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - before) * 1000 - 1)

    def stop(self) -> None:
        self._task.cancel()


class Machine:
    """A client that says yes to everything it is told to do."""

    def __init__(self, parts: Services, project_id: str) -> None:
        self._parts, self._project_id = parts, project_id
        self._tasks: set[asyncio.Task[object]] = set()
        parts.bus.listen(feed_topic(project_id), self._hear)
        parts.presence.connect(ConnectedClient(CLIENT, project_id, declared=True, workspace="/ws", isolation="bwrap"))

    def _hear(self, fact: object | None) -> None:
        for event in fact if isinstance(fact, tuple) else ():
            if isinstance(event, StoredEvent) and event.kind == "tool.execution_signal" and event.ref:
                report = CompletedReport(status="completed", result={"success": True, "content": "x" * 500})
                work = self._parts.executor.settle(
                    event.ref, report, user_id=USER, project_id=self._project_id, client_id=CLIENT
                )
                task = asyncio.create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


async def live(parts: Services, session: SessionRow, number: int) -> None:
    """One call of each kind."""
    executor, approvals = parts.executor, parts.approvals
    await executor.execute_tool("read_file", {"path": f"{number}.txt"}, session.id)
    for approve in (True, False):
        params = {"path": f"{number}-{approve}.md", "content": "x"}
        row = await executor.call("write_file", params, session, until_asked=True)
        decide = approvals.approve_tool if approve else approvals.reject_tool
        await decide(row.approval_id or "", USER)


def lengthen(path: Path, rows: int) -> None:
    """Copy what is there until there are so many executions."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("tool_executions", "approvals", "events"):
            names: list[str] = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            have = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            share = rows * have // connection.execute("SELECT count(*) FROM tool_executions").fetchone()[0]
            share = rows if table == "tool_executions" else share
            while have < share:
                take = min(have, share - have)
                changed: dict[str, str] = dict.fromkeys(("id", "approval_id"), "'c' || hex(randomblob(15))")
                changed["seq"] = f"seq + {have}"
                # Calls of earlier days; events, which are numbered by time, of later ones.
                shift = f"'{'+' if table == 'events' else '-'}{have} seconds'"
                times = [name for name in names if name.endswith("_at") or name == "deadline"]
                changed |= {name: f"strftime('%Y-%m-%dT%H:%M:%fZ', {name}, {shift})" for name in times}
                chosen = ", ".join(changed.get(name, name) for name in names)
                connection.execute(f"INSERT INTO {table} SELECT {chosen} FROM {table} ORDER BY rowid LIMIT {take}")
                have += take
        connection.execute("UPDATE feeds SET seq = (SELECT max(seq) FROM events WHERE project_id = feeds.project_id)")


def steps(parts: Services, session: SessionRow, oldest: str) -> dict[str, Step]:
    executor, store = parts.executor, parts.store

    async def ask(tool: str, params: dict[str, object]) -> None:
        row = await executor.call(tool, params, session, until_asked=True)
        if row.approval_id:
            await parts.approvals.reject_tool(row.approval_id, USER)

    def page(**wanted: object) -> Awaitable[object]:
        return store.executions.page(HistoryFilter(USER, **wanted))  # type: ignore[arg-type]

    async def beside_a_search(number: int) -> float:
        searching = asyncio.ensure_future(page(status=ExecutionStatus.TIMEOUT))
        await asyncio.sleep(0.001)
        began = time.perf_counter()
        await store.chat.projects(USER)
        took = time.perf_counter() - began
        await searching
        return took

    return {
        "LOW read": lambda n: executor.execute_tool("read_file", {"path": f"n{n}.txt"}, session.id),
        "ask about a write": lambda n: ask("write_file", {"path": f"n{n}.md", "content": "x"}),
        "ask about python x.py": lambda n: ask("execute_command", {"command": "python", "args": [f"n{n}.py"]}),
        "history, newest": lambda n: page(),
        "history, filtered (nothing found)": lambda n: page(status=ExecutionStatus.TIMEOUT),
        "another look beside that search": beside_a_search,
        "stream of the oldest call": lambda n: store.feed.before(session.project_id, oldest),
    }


async def measure(home: Path, lengths: list[int]) -> dict[str, list[tuple[float, float]]]:
    settings = ServerSettings(home=home, durability="normal")
    found: dict[str, list[tuple[float, float]]] = {}
    project_id = ""
    for rows in lengths:
        sys.stderr.write(f"{rows:,} calls …\n")
        if project_id:
            lengthen(home / "byleave.db", rows)
        began = time.perf_counter()
        parts = await open_services(settings)
        found.setdefault("start", []).append(((time.perf_counter() - began) * 1000, 0.0))
        try:
            if not project_id:
                project_id = (await parts.store.chat.create_project(USER, "bench")).id
            session = await parts.executor.agent_session(USER, project_id, None)
            Machine(parts, project_id)
            if rows == lengths[0]:
                for number in range(REAL // 3):
                    await live(parts, session, number)
                await parts.close()
                lengthen(home / "byleave.db", rows)
                parts = await open_services(settings)
                Machine(parts, project_id)
            first = await parts.store.database.read(
                lambda transaction: transaction.execute("SELECT min(created_at) AS at FROM tool_executions").fetchone()
            )
            for name, step in steps(parts, session, first["at"] if first else "").items():
                taken: list[float] = []
                heart = Heart()
                await asyncio.sleep(0.01)
                heart.longest_ms = 0.0
                for number in range(ROUNDS):
                    began = time.perf_counter()
                    told = await step(rows + number)
                    seconds = told if isinstance(told, float) else time.perf_counter() - began
                    taken.append(seconds * 1000)
                heart.stop()
                found.setdefault(name, []).append((statistics.median(taken), heart.longest_ms))
        finally:
            await parts.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="byleave-growth-") as home:
        found = asyncio.run(measure(Path(home), sorted(options.rows)))
    out = sys.stdout
    out.write(
        f"\n{'median ms (longest stall of the loop)':<40}" + "".join(f"{n:>18,}" for n in sorted(options.rows)) + "\n"
    )
    for name, cells in found.items():
        out.write(f"{name:<40}" + "".join(f"{ms:>10.1f} ({stall:>5.1f})" for ms, stall in cells) + "\n")
    worst = max(stall for cells in found.values() for _, stall in cells)
    out.write(f"longest stall {worst:.0f} ms; wanted: at most {MOST_STALL_MS}\n")
    return 0 if worst <= MOST_STALL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
