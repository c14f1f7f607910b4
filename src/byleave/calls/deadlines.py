"""Expire executions past their deadline.

The sweeper sleeps until the next deadline that it knows. News of an earlier one is a hint and may get lost, so it also
reads the store from time to time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog

from byleave.bus import Bus
from byleave.protocol.states import ApprovalStatus, ErrorType, ExecutionStatus
from byleave.protocol.wire import later, moment, now, timestamp
from byleave.store import STORAGE_ERRORS, ExecutionRow, Store, transitions
from byleave.store.approvals import DEADLINE, close_pending, overdue_approvals, time_out
from byleave.store.database import Transaction
from byleave.store.executions import (
    HEAVY_CHARACTERS,
    if_overdue,
    next_deadline,
    overdue_executions,
    overdue_projects,
)
from byleave.store.ledger import Ledger
from byleave.store.transitions import DEADLINES_TOPIC, Waits

log = structlog.stdlib.get_logger(__name__)

LOOK_AGAIN_SECONDS = 2.0
"""A waiter reads the store this often, in case a hint got lost."""
LATE_SECONDS = 2.0
"""A sweep this much later than planned means that the server was paused or asleep."""
NEVER = "9999-12-31T00:00:00.000Z"
GIVEN_UP = (ErrorType.INTERRUPTED, ErrorType.EXECUTION_TIMEOUT, ErrorType.CANCELLED)


class Ending(NamedTuple):
    """The end of an execution that nobody reported."""

    status: ExecutionStatus
    error_type: ErrorType
    error: str
    stop_client: bool = False
    """Its client is connected and may still be running it."""


async def expire(
    store: Store, connected: frozenset[str], spared: frozenset[str] | None = frozenset()
) -> tuple[list[ExecutionRow], str | None]:
    """End everything past its deadline by the database's clock; also return the next deadline.

    A call in the queue of a connected client waits on, up to a limit. `spared`: clients that may be about to report,
    so their executions are left alone; None means all clients.
    """

    def work(transaction: Transaction, project_id: str, execution_ids: list[str]) -> list[ExecutionRow]:
        ended: list[ExecutionRow] = []
        with Ledger(transaction, project_id) as ledger:
            for execution_id in execution_ids:
                execution = if_overdue(transaction, spared, execution_id)
                if execution is None:
                    continue
                if execution.client_id in connected and _may_wait_on(execution, transaction.now, store.waits):
                    transitions.queue(ledger, execution, store.waits)
                else:
                    ended.append(_expire(ledger, execution, connected))
        return ended

    def alone(transaction: Transaction, project_id: str) -> None:
        with Ledger(transaction, project_id) as ledger:
            for approval in overdue_approvals(transaction, project_id):  # those that have no execution
                time_out(ledger, approval)

    async def expire_of(project_id: str) -> list[ExecutionRow]:
        due = await database.write(lambda transaction: overdue_executions(transaction, spared, project_id))
        ended: list[ExecutionRow] = []
        # What holds a file is ended by itself: the database overwrites its content with zeros.
        light = [execution_id for execution_id, size in due if size <= HEAVY_CHARACTERS]
        large = [[execution_id] for execution_id, size in due if size > HEAVY_CHARACTERS]
        for execution_ids in (light, *large) if light else large:
            ended += await database.write(
                partial(work, project_id=project_id, execution_ids=execution_ids), heavy=execution_ids is not light
            )
        await database.write(partial(alone, project_id=project_id))
        return ended

    database = store.database
    projects = await database.write(lambda transaction: overdue_projects(transaction, spared))
    # Each by itself: a project whose record is damaged must not keep the deadlines of all others.
    outcomes = await asyncio.gather(*map(expire_of, projects), return_exceptions=True)
    ended: list[ExecutionRow] = []
    failed = False
    for project_id, outcome in zip(projects, outcomes, strict=True):
        if isinstance(outcome, STORAGE_ERRORS):
            raise outcome
        if isinstance(outcome, BaseException):
            failed = True
            log.error("deadlines of a project could not be checked", project_id=project_id, exc_info=outcome)
        else:
            ended += outcome
    upcoming = await database.write(lambda transaction: next_deadline(transaction, spared))
    return ended, later(now(), LOOK_AGAIN_SECONDS) if failed else upcoming


def _may_wait_on(execution: ExecutionRow, now: str, waits: Waits) -> bool:
    since = execution.approved_at or execution.created_at
    return execution.queued and not execution.cancel_requested and later(since, waits.queue) > now


def _expire(ledger: Ledger, execution: ExecutionRow, connected: frozenset[str]) -> ExecutionRow:
    ending = ending_of(execution, is_connected=execution.client_id in connected)
    if ending.status is ExecutionStatus.TIMEOUT and execution.approval_id:
        close_pending(ledger, execution.approval_id, ApprovalStatus.TIMEOUT, DEADLINE)
    if ending.stop_client:
        transitions.signal_cancel(ledger, execution)
    return transitions.end(
        ledger, execution, ending.status, actor=DEADLINE, error=ending.error, error_type=ending.error_type
    )


def ending_of(execution: ExecutionRow, *, is_connected: bool) -> Ending:
    """The end of an execution whose deadline has passed, by its state and whether its client is connected."""
    failed = ExecutionStatus.FAILED
    match execution.status:
        case ExecutionStatus.AWAITING_APPROVAL:
            return Ending(ExecutionStatus.TIMEOUT, ErrorType.APPROVAL_TIMEOUT, "Approval timeout")
        case ExecutionStatus.PENDING if is_connected:
            does = "replace" if execution.tool_name == "write_file" else "run"
            error = f"The client did not say in time what this would {does}, so nobody could be asked."
            return Ending(failed, ErrorType.NO_CLIENT, error)
        case ExecutionStatus.PENDING | ExecutionStatus.APPROVED:
            error = "No client was connected to run this. Start one with `byleave connect`."
            return Ending(failed, ErrorType.NO_CLIENT, error)
        case _ if execution.cancel_requested:
            error = (
                "It was cancelled, and the client did not say that it stopped; it may or may not have had its effect."
            )
            return Ending(failed, ErrorType.CANCELLED, error)
        case _ if is_connected and execution.queued:
            error = "It waited too long on the machine for others to end and was never begun; nothing was run."
            return Ending(failed, ErrorType.EXECUTION_TIMEOUT, error, stop_client=True)
        case _ if is_connected:
            error = "The client did not report a result in time."
            return Ending(failed, ErrorType.EXECUTION_TIMEOUT, error, stop_client=True)
        case _:
            error = (
                "The client went away while this was running; it may or may not have had its effect. "
                "It was not run again."
            )
            return Ending(failed, ErrorType.INTERRUPTED, error)


def was_given_up(execution: ExecutionRow) -> bool:
    """True if it ended without a report of the client that ran it."""
    # By the client it was signalled to, not by its start: a call that waited there may have begun during an outage.
    signalled = execution.client_id is not None and execution.approved_at is not None
    return signalled and execution.error_type in GIVEN_UP and execution.result_hash is None


class Sweeper:
    """Calls `sweep` when a deadline passes, and at once for those missed while the server was down."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        sweep: Callable[[], Awaitable[tuple[str | None, float]]],
        resumed: Callable[[], None] = lambda: None,
    ) -> None:
        """`sweep` returns the next deadline, and the longest time until its next call.

        `resumed` is called first when the server was paused: results may wait in its sockets.
        """
        self._store = store
        self._bus = bus
        self._sweep = sweep
        self._resumed = resumed
        self._due = asyncio.Event()
        self._looks_at = ""
        """Time of the next sweep; '' during one."""
        self._earliest = NEVER
        """Earliest deadline set since the last sweep began."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._stop_listening = self._bus.listen(DEADLINES_TOPIC, self._deadline_set)
        self._task = asyncio.create_task(self._run(), name="byleave-deadlines")

    async def stop(self) -> None:
        if self._task is not None:
            self._stop_listening()
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def wake(self) -> None:
        """Sweep now."""
        self._due.set()

    def _deadline_set(self, fact: object | None) -> None:
        if isinstance(fact, str):
            self._earliest = min(fact, self._earliest)
        if not isinstance(fact, str) or fact < self._looks_at:
            self._due.set()

    async def _run(self) -> None:
        while True:
            self._due.clear()
            self._looks_at, self._earliest, nap = "", NEVER, 1.0
            try:
                upcoming, nap = await self._sweep()
                due = moment(min(upcoming or NEVER, self._earliest))
                nap = min(max((due - datetime.now(UTC)).total_seconds(), 0.02), nap)
            except Exception as error:  # a loop that dies at the first database error would stop all deadlines
                log.exception("deadlines could not be checked")
                if isinstance(error, STORAGE_ERRORS):
                    await self._tell_waiters(error)
            self._looks_at = timestamp(datetime.now(UTC) + timedelta(seconds=nap))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(nap):
                    await self._due.wait()
            if timestamp(datetime.now(UTC) - timedelta(seconds=LATE_SECONDS)) > self._looks_at:
                self._resumed()

    async def _tell_waiters(self, error: Exception) -> None:
        try:
            for execution_id in await self._store.executions.overdue():
                self._bus.publish(execution_id, error)
        except STORAGE_ERRORS:
            log.exception("overdue executions could not be read")  # waiters read the store themselves
