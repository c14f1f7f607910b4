"""`python -m bench.databases`: a LOW call in SQLite, in PostgreSQL, and with three servers on one PostgreSQL.

A call is recorded and signalled, then its result is stored: two transactions in the store, without HTTP, gate or
client. Each server is a process of its own, with its own project. The sides take turns, so that a busy machine is busy
for all; the median round counts. CPU is that of a call, of all servers together and of all processes of PostgreSQL.

Then wake-ups between two servers, from the call of a transaction to the moment in which the other one hears of it.

Starts PostgreSQL (with `fsync`) and NATS as the tests do: PYTHONPATH=tests.
"""

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import structlog

from byleave.bus.nats import NatsWakeUps
from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.protocol.states import AgentMode, RiskLevel
from byleave.protocol.wire import new_id
from byleave.settings import ServerSettings
from byleave.store import ProjectRow, SessionRow, Store
from byleave.store.database import Hint, Transaction
from byleave.store.transitions import NewExecution
from harness import nats, postgres

from .processes import Process, cpu_seconds, python, running

ROUNDS = 5
SECONDS = 2.0
CALLERS = (1, 50)
SERVERS = 3
WAKE_UPS = 200


class Figures(NamedTuple):
    """One round of a side, or the medians of all."""

    rate: float
    milliseconds: float
    server_cpu: float
    """Milliseconds of a call."""
    database_cpu: float


# A server


async def call(store: Store, project: ProjectRow, session: SessionRow) -> None:
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
    await settle(
        store,
        row.id,
        user_id=project.user_id,
        project_id=project.id,
        client_id="c1",
        result='{"success":true,"content":"hello"}',
        result_hash="h" * 64,
    )


class Server:
    """A store, and what it hears from others."""

    def __init__(self, store: Store, project: ProjectRow, session: SessionRow) -> None:
        self._store, self._project, self._session = store, project, session
        self.delays: list[float] = []

    def hear(self, topics: Iterable[str]) -> None:
        now = time.monotonic()
        self.delays += [now - float(topic.removeprefix("bench:")) for topic in topics if topic.startswith("bench:")]

    async def calls(self, callers: int) -> dict[str, object]:
        times: list[float] = []
        cpu, until = time.process_time(), time.perf_counter() + SECONDS

        async def work() -> None:
            while (began := time.perf_counter()) < until:
                await call(self._store, self._project, self._session)
                times.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(callers)))
        seconds = time.perf_counter() - began
        return {"times": times, "rate": len(times) / seconds, "cpu": time.process_time() - cpu}

    async def wake_others(self, count: int) -> dict[str, object]:
        """Commit so many transactions that others hear of, one at a time."""
        for _ in range(count):
            topic = f"bench:{time.monotonic()}"
            await self._store.database.write(lambda transaction, topic=topic: _tell(transaction, topic))
        return {}

    async def heard(self, count: int) -> dict[str, object]:
        async with asyncio.timeout(30):
            while len(self.delays) < count:
                await asyncio.sleep(0.01)
        return {"delays": self.delays}


def _tell(transaction: Transaction, topic: str) -> None:
    transaction.hints.append(Hint(topic))


async def serve(home: str, url: str | None, bus_url: str | None) -> None:
    """Do what lines on stdin say: the name of a method and a number."""
    bus = NatsWakeUps(bus_url, b"bench") if bus_url else None
    settings = ServerSettings(home=Path(home), database_url=url)
    store = await Store.open(settings, seal_keys=(b"bench",), tell=bus.tell if bus else None)
    project = await store.chat.create_project("bench", "bench")
    server = Server(store, project, await store.chat.create_session("bench", project.id, "bench"))
    wake_ups = bus or store.wake_ups(None)
    if wake_ups is not None:
        await wake_ups.start(server.hear)
        while wake_ups.trouble is not None:
            await asyncio.sleep(0.01)
    _say("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, number = json.loads(line)
        _say(await {"calls": server.calls, "wake_others": server.wake_others, "heard": server.heard}[name](number))
    if wake_ups is not None:
        await wake_ups.stop()
    await store.close()


def _say(value: object) -> None:
    print(json.dumps(value), flush=True)


# The comparison


def _measured(servers: Sequence[Process], callers: int, database: int | None) -> Figures:
    """A round of a side; `callers` are spread over its servers."""
    shares = [callers // len(servers) + (number < callers % len(servers)) for number in range(len(servers))]
    busy = [(server, share) for server, share in zip(servers, shares, strict=True) if share]
    before = _cpu(database)
    for server, share in busy:
        server.tell(["calls", share])
    answers = [server.hear() for server, _ in busy]
    times = [each for answer in answers for each in answer["times"]]
    return Figures(
        sum(answer["rate"] for answer in answers),
        statistics.median(times) * 1000,
        sum(answer["cpu"] for answer in answers) / len(times) * 1000,
        (_cpu(database) - before) / len(times) * 1000,
    )


def _cpu(parent: int | None) -> float:
    """Seconds of CPU that a process and its children have used; 0 for none."""
    if parent is None:
        return 0.0
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
    return sum(cpu_seconds(int(pid)) for pid in (parent, *children))


def _compare(sides: Mapping[str, Sequence[Process]], database: int) -> None:
    print(f"{'':26} callers   calls/s   ms a call   server CPU ms   PostgreSQL CPU ms")
    for callers in CALLERS:
        found: dict[str, list[Figures]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, servers in sides.items():
                found[name].append(_measured(servers, callers, None if name == "SQLite" else database))
        for name, rounds in found.items():
            middle = Figures(*(statistics.median(column) for column in zip(*rounds, strict=True)))
            print(
                f"{name:<26} {callers:>7} {middle.rate:>9,.0f} {middle.milliseconds:>11.2f} "
                f"{middle.server_cpu:>15.2f} {middle.database_cpu:>19.2f}"
            )


def _wake_ups(name: str, teller: Process, listener: Process) -> None:
    teller.tell(["wake_others", WAKE_UPS])
    teller.hear()
    listener.tell(["heard", WAKE_UPS])
    delays = sorted(delay * 1000 for delay in listener.hear()["delays"])
    print(
        f"heard by {name:<8} p50 {delays[len(delays) // 2]:>6.2f} ms   p99 {delays[len(delays) * 99 // 100]:>6.2f} ms"
    )


async def main() -> None:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(postgres.running(fsync="on"))
        url = stack.enter_context(server.database())

        def started(name: str, *more: str) -> Process:
            command = python("bench.databases", "--home", str(home / name), *more)
            one = stack.enter_context(running(name, command, home))
            one.hear("ready")
            return one

        ours = [started(f"server-{number}", "--url", url) for number in range(SERVERS)]
        sides = {
            "SQLite": [started("sqlite")],
            "PostgreSQL, 1 server": ours[:1],
            f"PostgreSQL, {SERVERS} servers": ours,
        }
        await asyncio.to_thread(_compare, sides, server.pid)
        await asyncio.to_thread(_wake_ups, "NOTIFY", *ours[:2])
        if nats.program() is not None:
            async with nats.running() as bus_url:
                more = ("--url", url, "--bus", bus_url)
                pair = [await asyncio.to_thread(started, f"nats-{number}", *more) for number in range(2)]
                await asyncio.to_thread(_wake_ups, "NATS", *pair)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--bus", help=argparse.SUPPRESS)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(serve(options.home, options.url, options.bus) if options.home else main())
