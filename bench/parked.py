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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import structlog

from assent.bus import ConnectedClient
from assent.protocol.executions import CompletedReport
from assent.protocol.states import AgentMode, RunState
from assent.server.parts import Parts, open_parts
from assent.settings import ServerSettings
from assent.store import StoredEvent
from assent.store.ledger import feed_topic

RUNS = 10_000
WARM_UP = 100
TARGET_MB = 50
USER = "alice"
AT_ONCE = 50
Counts = dict[str, int]


def memory_mb() -> float:
    """What this process holds now."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel does not say how much memory this process has")


class Watcher:
    """Counts how runs change, plays the client, and says when enough are in a state."""

    def __init__(self, parts: Parts, project_id: str) -> None:
        self._parts = parts
        self._project_id = project_id
        self._state: dict[str, str] = {}
        self._acting: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self.signals: Counts = {}

    def hear(self, fact: object | None) -> None:
        for event in fact if isinstance(fact, tuple) else ():
            assert isinstance(event, StoredEvent)
            if event.kind == "chat.run":
                told: dict[str, Any] = json.loads(event.payload)
                self._state[told["run_id"]] = told["state"]
                self._news.set()
            elif event.kind == "tool.execution_signal":
                tool_id: str = json.loads(event.payload)["tool_id"]
                self.signals[tool_id] = self.signals.get(tool_id, 0) + 1
                task = asyncio.create_task(self._act(tool_id))
                self._acting.add(task)
                task.add_done_callback(self._acting.discard)

    async def _act(self, tool_id: str) -> None:
        report = CompletedReport(status="completed", result={"success": True, "size": 1})
        await self._parts.executor.settle(tool_id, report, user_id=USER, project_id=self._project_id, client_id="bench")

    async def until(self, state: RunState, count: int) -> None:
        while sum(one == state.value for one in self._state.values()) < count:
            await self._news.wait()
            self._news.clear()

    def forget(self) -> None:
        """The bench's own memory is not the server's."""
        self._state.clear()
        self.signals.clear()


async def post(parts: Parts, project_id: str, count: int) -> None:
    for number in range(count):
        await parts.store.chat.post(
            USER, project_id, f"write notes/{number}.md: x", session_id=None, mode=AgentMode.SANDBOX
        )


async def approve_all(parts: Parts, project_id: str) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(approval_id: str) -> None:
        async with slots:
            await parts.approvals.approve_tool(approval_id, USER)

    waiting = await parts.approvals.get_pending_approvals(USER, project_id)
    await asyncio.gather(*(one(approval.id) for approval in waiting))


async def measure(runs: int, home: Path, warm_up: int = WARM_UP) -> dict[str, float]:
    settings = ServerSettings(
        home=home, model="offline", durability="normal", park_seconds=0, medium_approval_seconds=36_000
    )
    parts = await open_parts(settings)
    try:
        project = await parts.store.chat.create_project(USER, "bench")
        watcher = Watcher(parts, project.id)
        with ExitStack() as stack:
            stack.callback(parts.bus.listen(feed_topic(project.id), watcher.hear))
            here = ConnectedClient("bench", project.id, declared=True, workspace="/ws", isolation="bwrap")
            stack.callback(parts.presence.connect(here))
            await parts.executor.client_connected(here, resumed=False)
            await post(parts, project.id, warm_up)
            await watcher.until(RunState.WAITING, warm_up)
            await approve_all(parts, project.id)
            await watcher.until(RunState.DONE, warm_up)
            watcher.forget()
            gc.collect()
            before = memory_mb()
            began = time.perf_counter()
            await post(parts, project.id, runs)
            await watcher.until(RunState.WAITING, runs)
            parked = time.perf_counter()
            watcher.forget()
            gc.collect()
            after = memory_mb()
            await approve_all(parts, project.id)
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
    with tempfile.TemporaryDirectory(prefix="assent-parked-") as home:
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
