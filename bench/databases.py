"""`python -m bench.databases URL`: the transactions of a LOW call in SQLite and in PostgreSQL, side by side.

A call is recorded and signalled, then its result is stored: two transactions in the store, without HTTP, gate or
client. Both databases take turns, so that a busy machine is busy for both. URL names an empty database.
"""

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from pathlib import Path

import psycopg
import structlog

from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.protocol.states import AgentMode, RiskLevel
from byleave.protocol.wire import new_id
from byleave.settings import ServerSettings
from byleave.store import ProjectRow, SessionRow, Store
from byleave.store.transitions import NewExecution

ROUNDS = 5
SECONDS = 2.0
CALLERS = (1, 50)


async def _call(store: Store, project: ProjectRow, session: SessionRow) -> None:
    params = '{"path":"a.txt"}'
    new = NewExecution(
        id=new_id("exec"),
        user_id=project.user_id,
        project_id=project.id,
        session_id=session.id,
        run_id=None,
        agent_id=None,
        mode=AgentMode.SANDBOX,
        tool_name="read_file",
        tool_params=params,
        true_params=params,
        digest="d" * 64,
        risk_level=RiskLevel.LOW,
        findings="[]",
        network=False,
        timeout_seconds=30,
        repeatable=False,
        changes_nothing=True,
        fence=None,
    )
    row = await begin(store, new, Clearance("risk:LOW"), client_id="c1")
    result = '{"success":true,"content":"hello"}'
    await settle(
        store,
        row.id,
        user_id=project.user_id,
        project_id=project.id,
        client_id="c1",
        result=result,
        result_hash="h" * 64,
    )


async def _measured(store: Store, callers: int) -> tuple[float, float]:
    """Calls a second, and the median milliseconds of one."""
    project = await store.chat.create_project("bench", "bench")
    session = await store.chat.create_session("bench", project.id, "bench")
    times: list[float] = []
    until = time.perf_counter() + SECONDS

    async def work() -> None:
        while (began := time.perf_counter()) < until:
            await _call(store, project, session)
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(callers)))
    return len(times) / (time.perf_counter() - began), statistics.median(times) * 1000


async def _round_trips(store: Store) -> int:
    """Questions to the server of one call by a caller who is alone."""
    project = await store.chat.create_project("bench", "trips")
    session = await store.chat.create_session("bench", project.id, "trips")
    await _call(store, project, session)
    asked, real = 0, psycopg.Connection.execute

    def counted(*given: object, **options: object) -> object:
        nonlocal asked
        asked += 1
        return real(*given, **options)  # type: ignore[arg-type]

    psycopg.Connection.execute = counted  # type: ignore[method-assign,assignment]
    try:
        await _call(store, project, session)
    finally:
        psycopg.Connection.execute = real
    return asked


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        both = {"SQLite": None, "PostgreSQL": url}
        stores = {
            name: await Store.open(ServerSettings(home=Path(home), database_url=place), seal_keys=(b"bench",))
            for name, place in both.items()
        }
        for callers in CALLERS:
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in stores}
            for _ in range(ROUNDS):
                for name, store in stores.items():
                    found[name].append(await _measured(store, callers))
            for name, values in found.items():
                rate, each = (statistics.median(column) for column in zip(*values, strict=True))
                print(f"{name:<11} {callers:>3} callers  {rate:>7,.0f} calls/s  {each:>6.2f} ms a call")
        print(f"round trips of a call: {await _round_trips(stores['PostgreSQL'])}")
        for store in stores.values():
            await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL", help="postgresql://… of an empty database")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(main(parser.parse_args().url))
