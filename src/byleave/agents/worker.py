"""RunWorker: claims runs that are ready, and has the chat agent work on them in the background.

A worker owns its runs by a lease, renewed only for live tasks. Stopping the worker fails nothing: its runs are resumed
at the next start. A run that keeps crashing its process is given up after a few attempts. The loops here never die of
an error; they log it and continue.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from byleave.bus import Bus
from byleave.calls.executor import ToolExecutor
from byleave.protocol.chat import AgentInfo
from byleave.protocol.errors import ConflictError
from byleave.protocol.wire import new_id
from byleave.settings import ServerSettings
from byleave.store import RunRow, Store
from byleave.store.transitions import RUNS_TOPIC
from byleave.telemetry import about, place_of_run

from .roles import Roster

if TYPE_CHECKING:
    from pydantic_ai.models import Model

log = structlog.stdlib.get_logger(__name__)

LOOK_AGAIN_SECONDS = 2.0
"""Polling interval, in case a hint got lost."""
MAX_ATTEMPTS = 5
MAX_RUNS = 100
"""Runs in memory, each about 100 kB. Long waits are parked and do not count."""


@dataclass(frozen=True, slots=True)
class _RunInMemory:
    """A run in memory."""

    run: RunRow
    task: asyncio.Task[None]
    stop_listening: Callable[[], None]


class RunWorker:
    """Works on runs in the background of a server."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        executor: ToolExecutor,
        settings: ServerSettings,
        *,
        model: "Model | str | None" = None,
        concurrency: int = 8,
    ) -> None:
        """`model` defaults to the settings' model; `concurrency` bounds model requests."""
        self._store = store
        self._bus = bus
        self._agents = Roster(store, executor, settings, model=model, model_calls_at_once=concurrency)
        self._renew_seconds = settings.lease_seconds / 3
        self._owner = new_id("worker")
        self._held: dict[str, _RunInMemory] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._look = asyncio.Event()
        self._renew = asyncio.Event()
        self._kept_at = 0.0
        self._stop_listening: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Release the runs a crash left behind, and begin to work."""
        freed = await self._store.runs.recover()
        if freed:
            log.info("runs resumed", count=freed)
        await self._agents.open()
        self._stop_listening = self._bus.listen(RUNS_TOPIC, lambda fact: self._look.set())
        self._loops = [
            asyncio.create_task(self._repeat(self._claim, self._look, LOOK_AGAIN_SECONDS), name="byleave-claim"),
            asyncio.create_task(self._repeat(self._keep, self._renew, self._renew_seconds), name="byleave-renew"),
        ]

    def agents(self, project_id: str) -> list[AgentInfo]:
        """Return the agents that work on a project's messages."""
        return self._agents.of(project_id)

    @property
    def held(self) -> int:
        """Number of runs in memory."""
        return len(self._held)

    async def stop(self) -> None:
        """Release all runs; none fails."""
        self._stop_listening()
        held = list(self._held.values())
        tasks = [*self._loops, *(one.task for one in held)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loops.clear()
        for one in held:  # the next worker need not wait for the lease, and this was no failed attempt
            await self._store.runs.release(one.run)
        await self._agents.close()

    async def _repeat(self, look: Callable[[], Awaitable[None]], soon: asyncio.Event, seconds: float) -> None:
        while True:
            soon.clear()
            try:
                await look()
            except Exception as error:  # noqa: BLE001
                # The boundary: a loop that ended at the first database error would leave every later run undone.
                log.error("could not poll for runs", trace=_trace(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await soon.wait()

    async def _claim(self) -> None:
        while len(self._held) < MAX_RUNS:
            if asyncio.get_running_loop().time() - self._kept_at > self._renew_seconds:
                await self._keep()  # otherwise a long queue would make our own runs look abandoned
            run = await self._store.runs.claim(self._owner, resting=self._resting())
            if run is None:
                return
            self._take(run)

    def _resting(self) -> list[str]:
        """Users with as many runs in memory as one may have: as if one more user than these wanted an equal part."""
        held = Counter(one.run.user_id for one in self._held.values())
        most = max(1, MAX_RUNS // (len(held) + 1))
        return sorted(user_id for user_id, runs in held.items() if runs >= most)

    def _take(self, run: RunRow) -> None:
        task = asyncio.create_task(self._work(run), name=f"byleave-{run.id}")
        # A hint for a run can only mean that it was stopped; the lease says whether it is still ours.
        stop_listening = self._bus.listen(run.id, lambda fact: self._renew.set())
        self._held[run.id] = _RunInMemory(run, task, stop_listening)
        task.add_done_callback(lambda done: self._release(run))
        log.info("run started", run_id=run.id, attempt=run.attempts, resumed=run.history is not None)

    def _release(self, run: RunRow) -> None:
        held = self._held.get(run.id)
        if held is not None and held.run.fence == run.fence:
            held.stop_listening()
            del self._held[run.id]
        self._look.set()

    async def _keep(self) -> None:
        """Renew the leases of live runs; cancel runs that are no longer ours."""
        self._kept_at = asyncio.get_running_loop().time()
        alive = [held for held in self._held.values() if not held.task.done()]
        lost = await self._store.runs.renew((held.run.id, held.run.fence) for held in alive)
        for held in alive:
            if held.run.id in lost:
                held.task.cancel()

    async def _work(self, run: RunRow) -> None:
        try:
            if run.attempts > MAX_ATTEMPTS:
                await self._give_up(run)
            else:
                place = place_of_run(run.id)
                with about(place, run_id=run.id, session_id=run.session_id, project_id=run.project_id):
                    await self._agents.work(run)
        except ConflictError:
            log.info("run stopped, or taken over by another worker", run_id=run.id)
        except Exception as error:  # noqa: BLE001
            # The boundary: the store failed. The lease expires, and a worker tries again.
            log.error("run interrupted", run_id=run.id, trace=_trace(error))

    async def _give_up(self, run: RunRow) -> None:
        await self._store.runs.fail(
            run,
            error=f"This message was given up: the server failed {run.attempts - 1} times while working on it.",
            hint="Send it again in other words; the server's log says more.",
        )


def _trace(error: Exception) -> str:
    from .failures import trace  # imported late: it loads pydantic-ai, and a start should not wait for that

    return trace(error)
