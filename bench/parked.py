"""`python -m bench.parked [RUNS]`: what runs that wait for a person cost the server, and that all of them go on.

Opens a server's parts without HTTP, has the offline agent begin so many runs that each ask to write a file, waits
until all are parked and counts the memory they brought. Then a person approves every one, a client answers, and every
run must end with its one tool executed once. Memory is that of this process, which also posts and approves.
"""

import argparse
import asyncio
import gc
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from byleave.calls.machines import ConnectedClient
from byleave.protocol.executions import CompletedReport
from byleave.protocol.states import AgentMode, RunState
from byleave.server.services import Services, open_services
from byleave.settings import ServerSettings
from byleave.store import StoredEvent
from byleave.store.ledger import feed_topic

RUNS = 10_000
WARM_UP = 100
TARGET_MB = 50
EACH = 100
"""Runs of one user: a user with more than some hundred open questions is asked no more."""
AT_ONCE = 50
Counts = dict[str, int]


def memory_mb(pid: int | str = "self") -> float:
    """What this process holds now, or another."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel does not say how much memory this process has")


class Watcher:
    """Counts how runs change, plays everybody's client, and says when enough are in a state."""

    def __init__(self, parts: Services) -> None:
        self._parts = parts
        self._state: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._acting: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._problem = ""
        self.signals: Counts = {}

    def hear(self, team: "Team", fact: object | None) -> None:
        for event in fact if isinstance(fact, tuple) else ():
            assert isinstance(event, StoredEvent)
            if event.kind == "chat.run":
                told: dict[str, Any] = json.loads(event.payload)
                self._counts[self._state.get(told["run_id"], "")] -= 1
                self._state[told["run_id"]] = told["state"]
                self._counts[told["state"]] += 1
                self._news.set()
            elif event.kind == "chat.error":
                self._problem = json.loads(event.payload)["message"]
            elif event.kind == "tool.execution_signal":
                tool_id: str = json.loads(event.payload)["tool_id"]
                self.signals[tool_id] = self.signals.get(tool_id, 0) + 1
                task = asyncio.create_task(self._act(team, tool_id))
                self._acting.add(task)
                task.add_done_callback(self._acting.discard)

    async def _act(self, team: "Team", tool_id: str) -> None:
        report = CompletedReport(status="completed", result={"success": True, "size": 1})
        await self._parts.executor.settle(
            tool_id, report, user_id=team.user_id, project_id=team.project_id, client_id=team.client_id
        )

    async def until(self, state: RunState, count: int) -> None:
        while self._counts[state.value] < count:
            if self._counts[RunState.FAILED.value]:
                raise RuntimeError(f"a run failed: {self._problem}")
            await self._news.wait()
            self._news.clear()

    def forget(self) -> None:
        """The bench's own memory is not the server's."""
        self._state.clear()
        self._counts.clear()
        self.signals.clear()


@dataclass(frozen=True)
class Team:
    """One user with a project and a machine."""

    user_id: str
    project_id: str

    @property
    def client_id(self) -> str:
        return f"client_of_{self.user_id}"


async def open_teams(parts: Services, watcher: Watcher, count: int, stack: ExitStack) -> list[Team]:
    teams: list[Team] = []
    for number in range(count):
        user = f"user{number}"
        team = Team(user, (await parts.store.chat.create_project(user, "bench")).id)
        stack.callback(parts.bus.listen(feed_topic(team.project_id), partial(watcher.hear, team)))
        here = ConnectedClient(team.client_id, team.project_id, declared=True, workspace="/ws", isolation="bwrap")
        stack.callback(parts.presence.connect(here))
        await parts.executor.client_connected(here, resumed=False)
        teams.append(team)
    return teams


async def post(parts: Services, teams: list[Team], count: int) -> None:
    for number in range(count):
        team = teams[number // EACH]
        content = f"write notes/{number}.md: x"
        await parts.store.chat.post(team.user_id, team.project_id, content, session_id=None, mode=AgentMode.SANDBOX)


async def approve_all(parts: Services, teams: list[Team]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(approval_id: str, user_id: str) -> None:
        async with slots:
            await parts.approvals.approve_tool(approval_id, user_id)

    for team in teams:
        waiting = await parts.approvals.get_pending_approvals(team.user_id, team.project_id)
        await asyncio.gather(*(one(approval.id, team.user_id) for approval in waiting))


async def measure(runs: int, home: Path, warm_up: int = WARM_UP) -> dict[str, float]:
    settings = ServerSettings(
        home=home, model="offline", durability="normal", park_seconds=0, medium_approval_seconds=36_000
    )
    parts = await open_services(settings)
    try:
        watcher = Watcher(parts)
        with ExitStack() as stack:
            teams = await open_teams(parts, watcher, -(-max(runs, warm_up) // EACH), stack)
            await post(parts, teams, warm_up)
            await watcher.until(RunState.WAITING, warm_up)
            await approve_all(parts, teams)
            await watcher.until(RunState.DONE, warm_up)
            watcher.forget()
            gc.collect()
            before = memory_mb()
            began = time.perf_counter()
            await post(parts, teams, runs)
            await watcher.until(RunState.WAITING, runs)
            parked = time.perf_counter()
            watcher.forget()
            gc.collect()
            after = memory_mb()
            sys.stderr.write(f"{runs:,} runs are parked: {after - before:.1f} MB\n")
            await approve_all(parts, teams)
            await watcher.until(RunState.DONE, runs)
            ended = time.perf_counter()
            twice = sum(count > 1 for count in watcher.signals.values())
            return {
                "runs": runs,
                "memory_mb": after - before,
                "park_seconds": parked - began,
                "resume_seconds": ended - parked,
                "executed": len(watcher.signals),
                "executed_twice": twice,
            }
    finally:
        await parts.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="?", type=int, default=RUNS)
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="runs before it is measured")
    options = parser.parse_args()
    runs: int = options.runs
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="byleave-parked-") as home:
        found = asyncio.run(measure(runs, Path(home), options.warm_up))
    sys.stdout.write(
        f"{runs:,} parked runs: {found['memory_mb']:.1f} MB (target: at most {TARGET_MB}), parked in "
        f"{found['park_seconds']:.0f} s, all ended {found['resume_seconds']:.0f} s after the answers; "
        f"{found['executed']:.0f} executed, {found['executed_twice']:.0f} twice\n"
    )
    sound = found["executed"] == runs and found["executed_twice"] == 0
    return 0 if sound and found["memory_mb"] <= TARGET_MB else 1


if __name__ == "__main__":
    sys.exit(main())
