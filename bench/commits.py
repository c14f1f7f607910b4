"""`python -m bench.commits URL`: what a LOW call costs in PostgreSQL.

docs/scale.md and `bench.queueing` start from it. A call is that of `bench.databases`. URL names an empty database of a
server on this machine.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import structlog

from byleave.settings import ServerSettings
from byleave.store import ProjectRow, SessionRow, Store
from byleave.store.postgres import PostgresDatabase

from .databases import call

SECONDS = 2.0
LOOKS = 1000


class Counter:
    """Counts the commits of PostgreSQL stores in this process: units, round trips and seconds with the turn."""

    def __init__(self) -> None:
        self.commits = self.units = self.trips = 0
        self.seconds = 0.0
        run, execute = PostgresDatabase._run, psycopg.Connection.execute  # pyright: ignore[reportPrivateUsage]

        def counted(database: Any, units: list[Any], attempt: Any, **options: Any) -> bool:
            began = time.perf_counter()
            done = run(database, units, attempt, **options)
            self.seconds += time.perf_counter() - began
            self.commits, self.units = self.commits + 1, self.units + len(units)
            return done

        def asked(*given: Any, **options: Any) -> Any:
            self.trips += threading.current_thread().name == "byleave-writer"
            return execute(*given, **options)

        PostgresDatabase._run = counted  # type: ignore[assignment] # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        psycopg.Connection.execute = asked


def _cpu_of_postgres(watching: psycopg.Connection[Any]) -> float:
    """CPU seconds of the server's processes, which must be on this machine: those of our backend's parent."""
    parent = _fields(Path(f"/proc/{watching.info.backend_pid}/stat"))[1]
    ticks = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = _fields(place)
            ticks += int(fields[11]) + int(fields[12]) if fields[1] == parent else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _fields(stat: Path) -> list[str]:
    """What the kernel tells of a process, from its state on."""
    return stat.read_text("utf-8", "replace").rpartition(")")[2].split()


async def _cost(store: Store, watching: psycopg.Connection[Any], counter: Counter, callers: int) -> str:
    """What a call costs, with so many callers in as many projects."""
    people: list[tuple[ProjectRow, SessionRow]] = []
    for number in range(callers):
        project = await store.chat.create_project(f"user{number}", "bench")
        people.append((project, await store.chat.create_session(f"user{number}", project.id, "bench")))

    def wal() -> int:
        row = watching.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
        return int(row[0]) if row else 0

    def heard() -> list[int]:
        return [len(notice.payload) for notice in watching.notifies(timeout=0.1)]

    calls = 0
    until = time.perf_counter() + SECONDS

    async def work(project: ProjectRow, session: SessionRow) -> None:
        nonlocal calls
        while time.perf_counter() < until:
            await call(store, project, session)
            calls += 1

    heard()
    counter.commits = counter.units = counter.trips = 0
    counter.seconds = 0.0
    written, began, ours, theirs = wal(), time.perf_counter(), time.process_time(), _cpu_of_postgres(watching)
    await asyncio.gather(*(work(*each) for each in people))
    ours, theirs, took = time.process_time() - ours, _cpu_of_postgres(watching) - theirs, time.perf_counter() - began
    return (
        f"{callers:>7}{calls / took:>9,.0f}{counter.units / counter.commits:>9.1f}"
        f"{counter.seconds / counter.units * 1000:>9.2f}{counter.trips / counter.units:>9.2f}"
        f"{ours / calls * 1000:>9.2f}{theirs / calls * 1000:>9.2f}"
        f"{(wal() - written) / calls:>9,.0f}{sum(heard()) / calls:>9,.0f}"
    )


async def _cost_of_looking(store: Store, watching: psycopg.Connection[Any]) -> str:
    """What a stream costs that looks for events and finds none."""
    project = await store.chat.create_project("bench", "looks")
    head = await store.feed.head(project.id)
    ours, theirs = time.process_time(), _cpu_of_postgres(watching)
    for _ in range(LOOKS):
        await store.feed.after(project.id, head, client_id="c1", limit=100)
    ours, theirs = time.process_time() - ours, _cpu_of_postgres(watching) - theirs
    return f"a stream looks for events: {ours / LOOKS * 1000:.2f} ms here, {theirs / LOOKS * 1000:.2f} ms in PostgreSQL"


def _stored(watching: psycopg.Connection[Any]) -> str:
    """Rows and bytes of a call, with indexes."""
    found: list[str] = []
    for table in ("tool_executions", "events", "audit"):
        row = watching.execute(
            f"SELECT (SELECT count(*) FROM {table})::float / calls, pg_total_relation_size('{table}') / calls "
            "FROM (SELECT count(*) AS calls FROM tool_executions) AS counted".encode()
        ).fetchone()
        found.append(f"{table} {row[0]:.1f} rows, {row[1]:,.0f} bytes" if row else table)
    return "a call stores: " + "; ".join(found)


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as home, psycopg.connect(url, autocommit=True) as watching:
        store = await Store.open(ServerSettings(home=Path(home), database_url=url), seal_keys=(b"bench",))
        counter = Counter()
        watching.execute("LISTEN byleave")
        print(
            "A project for each caller: units of a commit; ms and round trips of a unit; CPU, bytes of write-ahead log"
        )
        print("and bytes of notices of a call")
        print("callers  calls/s    units       ms    trips  our CPU  its CPU      WAL  notices")
        for callers in (1, 8, 32, 128):
            print(await _cost(store, watching, counter, callers))
        print(await _cost_of_looking(store, watching))
        print(_stored(watching))
        await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL", help="postgresql://… of an empty database")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(main(parser.parse_args().url))
