"""Observer: turns commits of the record into spans and metrics. It exists only while somebody
looks: telemetry is on, or `/metrics` was read.

It hears every commit and nothing else, so it sees each end exactly once, whatever caused it: a result, a decision, a
deadline, a cancellation. A span that outlasted a restart is made at its end, from the times in the row. It never
changes anything, and its errors never reach a call.
"""

import asyncio
import contextlib
import json
import os
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from typing import Any, cast

from byleave import telemetry
from byleave.bus import EVERYTHING, Bus
from byleave.protocol.states import ErrorType, ExecutionStatus, RunState
from byleave.protocol.wire import moment
from byleave.store import ApprovalRow, ExecutionRow, Store
from byleave.store.executions import Depths
from byleave.store.records import StoredEvent

from .machines import Presence

LOOK_SECONDS = 15.0
"""Longest interval between two counts of what waits."""
MOST_DECISIONS = 1000


class Observer:
    """Listens to one server."""

    def __init__(self, store: Store, bus: Bus, presence: Presence) -> None:
        self._store = store
        self._bus = bus
        self._presence = presence
        self._asked: OrderedDict[str, int] = OrderedDict()
        """Times at which recently decided questions were asked."""
        self._depths = Depths()
        self._clients = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._stops = [
            telemetry.gauge("byleave.queue.depth", self._waiting),
            telemetry.gauge("byleave.runs", self._runs),
            telemetry.gauge("byleave.clients", lambda: [(self._clients, {})]),
        ]

    def start(self) -> None:
        """Begin to listen, and to count what waits."""
        self._stops.append(self._bus.listen(EVERYTHING, self._told))
        self._looking = self._spawn(self._keep_looking())

    async def stop(self) -> None:
        for stop in self._stops:
            stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _told(self, fact: object | None) -> None:
        if isinstance(fact, ExecutionRow):
            self._moved(fact)
        elif isinstance(fact, ApprovalRow):
            self._decided(fact)
        elif isinstance(fact, tuple):
            for event in cast("tuple[object, ...]", fact):
                if isinstance(event, StoredEvent) and event.kind == "chat.run":
                    self._run_changed(event)

    # Calls

    def _moved(self, row: ExecutionRow) -> None:
        answered = row.status is ExecutionStatus.APPROVED or (row.status.ended and row.approved_at is None)
        if answered and row.approval_id is not None:
            self._answered(row)
        if row.status.ended:
            self._ended(row)

    def _answered(self, row: ExecutionRow) -> None:
        """Record the approval's span, below the call's: from the question, or from this call if it joined later."""
        asked = max(self._asked.get(row.approval_id or "", 0), _nanoseconds(row.created_at))
        decision = "approved" if row.status is ExecutionStatus.APPROVED else _reason(row)
        telemetry.record(
            "byleave.approval",
            asked,
            time.time_ns(),
            parent=telemetry.place_of_call(row.id, row.run_id),
            tool_id=row.id,
            approval_id=row.approval_id,
            decision=decision,
        )

    def _ended(self, row: ExecutionRow) -> None:
        now, tool, outcome = time.time_ns(), telemetry.known_tool(row.tool_name), row.status.value
        error_type = row.error_type.value if row.error_type else None
        risk = row.risk_level.value
        telemetry.count("byleave.calls", tool=tool, risk=risk, outcome=outcome, error_type=error_type)
        begun = telemetry.begun(row.id)
        began = _nanoseconds(row.created_at)
        # The row's times are in milliseconds; the process that judged the call has a finer one.
        began = began if begun is None else min(begun.began, began + 1_000_000)
        place = telemetry.place_of_call(row.id, row.run_id)
        started = max(began, _nanoseconds(row.started_at)) if row.started_at else None
        if row.approved_at is not None and (started is None or row.approved_at != row.started_at):
            approved = max(began, _nanoseconds(row.approved_at))
            telemetry.record("byleave.dispatch", approved, started or now, parent=place, tool_id=row.id)
        if started is not None:
            own = telemetry.place_of_client(row.id, row.run_id)
            telemetry.record("byleave.client", started, now, parent=place, own=own, tool_id=row.id)
            telemetry.observe("byleave.execution.duration", (row.execution_time_ms or 0) / 1000, tool=tool)
        telemetry.record(
            f"execute_tool {tool}",
            began,
            now,
            parent=telemetry.place_of_run(row.run_id) if row.run_id else begun.caller if begun else None,
            own=place,
            failed=error_type is not None,
            operation="execute_tool",
            tool=tool,
            risk=risk,
            mode=row.mode.value,
            outcome=outcome,
            error_type=error_type,
            approved_by=row.approved_by.partition(":")[0] if row.approved_by else None,
            agent_id=row.agent_id,
            **telemetry.ids_of(row),
        )

    def _decided(self, approval: ApprovalRow) -> None:
        asked = _nanoseconds(approval.created_at)
        waited = (time.time_ns() - asked) / 1e9
        telemetry.observe("byleave.approval.wait", max(0.0, waited), decision=approval.status.value)
        self._asked[approval.id] = asked
        if len(self._asked) > MOST_DECISIONS:
            self._asked.popitem(last=False)

    # Runs

    def _run_changed(self, event: StoredEvent) -> None:
        changed = json.loads(event.payload)
        state = RunState(changed["state"])
        if state in (RunState.DONE, RunState.FAILED):
            telemetry.count("byleave.runs.ended", state=state.value)
            self._spawn(self._run_ended(changed["run_id"], state, time.time_ns()))

    async def _run_ended(self, run_id: str, state: RunState, ended: int) -> None:
        run = await self._store.runs.times(run_id)
        if run is not None:
            telemetry.record(
                "byleave.run",
                _nanoseconds(run.created_at),
                ended,
                parent=None,
                own=telemetry.place_of_run(run.id),
                failed=state is RunState.FAILED,
                outcome=state.value,
                mode=run.mode.value,
                run_id=run.id,
                session_id=run.session_id,
                project_id=run.project_id,
            )

    # Gauges

    async def look(self) -> None:
        """Count the waiting calls, questions and runs, and the clients."""
        self._depths = await self._store.executions.depths()
        self._clients = len(self._presence.connected())

    async def settled(self) -> None:
        """Wait until every commit heard so far is recorded."""
        await asyncio.gather(*(task for task in self._tasks if task is not self._looking))

    async def _keep_looking(self) -> None:
        seconds = _look_seconds()
        while True:
            with contextlib.suppress(Exception):  # the next count may succeed
                await self.look()
            await asyncio.sleep(seconds)

    def _waiting(self) -> Iterable[tuple[int, dict[str, str]]]:
        return [
            (self._depths.client, {"waiting_for": "client"}),
            (self._depths.approval, {"waiting_for": "approval"}),
        ]

    def _runs(self) -> Iterable[tuple[int, dict[str, str]]]:
        known = dict(self._depths.runs)
        return [
            (known.get(state, 0), {"state": state.value})
            for state in (RunState.READY, RunState.RUNNING, RunState.WAITING)
        ]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _reason(row: ExecutionRow) -> str:
    """The reason a question ended without approval, as an approval's status."""
    match row.error_type:
        case ErrorType.REJECTED:
            return "rejected"
        case ErrorType.APPROVAL_TIMEOUT:
            return "timeout"
        case _:
            return "cancelled"


def _nanoseconds(text: str) -> int:
    return round(moment(text).timestamp() * 1000) * 1_000_000


def _look_seconds() -> float:
    """Half the export interval, so that no exported count is old."""
    try:
        interval = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or "60000") / 1000
    except ValueError:
        return LOOK_SECONDS
    return max(0.05, min(interval / 2, LOOK_SECONDS))
