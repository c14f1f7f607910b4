"""ToolHandler: executes the server's signals on this machine.

A new signal for this client starts at once or waits in a queue; `checks` decides whether it may run, the workspace
runs it, and it ends in exactly one report, whatever goes wrong. A call never runs twice, and nothing runs before it is
in the journal. Handling an event never blocks.

The queue is bounded by number and by bytes (C3): a signal holds the whole content of a write. A call's time limit
starts with the work, so `QueueReports` tells the server which calls are queued and when one begins.
"""

import asyncio
import logging
import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from byleave import telemetry
from byleave.gate import Gate, Judgement, mask_start, shown_params
from byleave.protocol.errors import (
    ByleaveError,
    ConcurrencyLimitError,
    ConflictError,
    ExecutionCancelled,
    ExecutionTimeout,
    NotFound,
    ToolTypeError,
)
from byleave.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    ExecutionCancelSignal,
    ExecutionSignal,
    InspectionRequested,
    ResultAcknowledged,
)
from byleave.protocol.executions import MAX_ERROR_CHARACTERS, ClientResult, QueueReport
from byleave.protocol.tools import TOOLS, ToolResult
from byleave.protocol.verdicts import VerdictLevel
from byleave.protocol.wire import JsonObject, steady
from byleave.settings import ClientSettings
from byleave.workspace.stopping import CommandStopped, CommandTimeout, unfinished
from byleave.workspace.workspace import Workspace

from .approvals import ApprovalDesk, ApprovalPrompt, PastApproval
from .cache import ReadCache
from .checks import TOO_LATE, Inspector, SignalChecks, bound_of
from .journal import Journal
from .log import bind_ids, log
from .outbox import Ending, Link, LiveOutput, Outbox, Stream, ending
from .tasks import Tasks, cancel

MAX_QUEUED_BYTES = 256 * 1024 * 1024
MOMENT_SECONDS = 0.5
"""A call that waits longer is reported as queued. A shorter wait fits in the deadline of its signal."""
MAX_REPORTED = 1000
"""Calls per report."""
BEGIN_SECONDS = 5.0
"""Time to wait for the answer to a `begin`; without one the signal's own deadline applies."""


class WaitingSignals:
    """Queue of signals by tool_id. It refuses what does not fit, and never drops a queued signal."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._signals: dict[str, tuple[ExecutionSignal, int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._signals)

    @property
    def signals(self) -> list[ExecutionSignal]:
        """Queued signals, in order."""
        return [event for event, _ in self._signals.values()]

    def add(self, event: ExecutionSignal) -> None:
        """Append a signal; raise if there is no room."""
        size = _text_bytes(event.tool_params)
        if len(self) >= self._limit:
            raise ConcurrencyLimitError(f"{len(self)} calls wait on this machine already; it was not run.")
        if self._bytes + size > MAX_QUEUED_BYTES:
            raise ConcurrencyLimitError(
                f"Calls of {self._bytes} bytes wait on this machine already and this one has {size}; it was not run.",
                hint="call it again when others have ended",
            )
        self._signals[event.tool_id] = (event, size)
        self._bytes += size

    def take(self, tool_id: str) -> ExecutionSignal | None:
        """Remove and return a signal; None if it is not queued."""
        event, size = self._signals.pop(tool_id, (None, 0))
        self._bytes -= size
        return event

    def next(self) -> ExecutionSignal | None:
        """Remove and return the oldest signal."""
        return self.take(next(iter(self._signals), ""))


class QueueReports:
    """Tells the server which calls are queued, and when one begins."""

    def __init__(self, queue: WaitingSignals, link: Link, project_id: str) -> None:
        self._queue = queue
        self._link = link
        self._project_id = project_id
        self._confirmed: dict[str, bool] = {}
        """Reported calls, and whether the server confirmed the report."""
        self._posting = asyncio.Lock()
        """A `begin` must not overtake the report that the call is queued."""
        self._task: asyncio.Task[None] | None = None

    def added(self) -> None:
        """Start reporting: a signal was queued."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._report())

    def forget(self, tool_id: str) -> None:
        """Drop a call that is no longer queued, or that the server no longer counts as queued."""
        self._confirmed.pop(tool_id, None)

    async def begin(self, event: ExecutionSignal) -> ExecutionSignal:
        """Begin a call; return its signal with the new deadline. Raise if the server has ended it."""
        if self._confirmed.pop(event.tool_id, None) is None:
            return event
        try:
            async with asyncio.timeout(BEGIN_SECONDS), self._posting:
                begun = await self._link.begin(self._project_id, event.tool_id)
        except (ConflictError, NotFound) as error:
            raise ExecutionCancelled("It ended on the server before it could be run; nothing was run.") from error
        except (ByleaveError, TimeoutError) as error:
            log.warning("begin not delivered", tool_id=event.tool_id, error=type(error).__name__)
            return event
        return event.model_copy(update={"timestamp": begun.started_at, "deadline": begun.deadline})

    async def close(self) -> None:
        """Stop reporting."""
        await cancel(self._task)

    async def _report(self) -> None:
        failures = 0
        try:
            while len(self._queue):
                before = {event.tool_id for event in self._queue.signals}
                await asyncio.sleep(MOMENT_SECONDS * 2 ** min(failures, 4))
                failures = 0 if await self._post_queued(before) else failures + 1
        finally:
            self._task = None

    async def _post_queued(self, before: set[str]) -> bool:
        """Report the calls that are still queued; return False on failure."""
        async with self._posting:
            waits = [event.tool_id for event in self._queue.signals if event.tool_id in before]
            unreported = [tool_id for tool_id in waits if not self._confirmed.get(tool_id)][:MAX_REPORTED]
            if not unreported:
                return True
            self._confirmed.update(dict.fromkeys(unreported, False))
            try:
                await self._link.post_queued(self._project_id, QueueReport(tool_ids=unreported))
            except ByleaveError as error:
                log.warning("queue report not delivered", calls=len(unreported), error=error.message)
                return False
            log.info("queue reported", calls=len(unreported))
            self._confirmed.update({tool_id: True for tool_id in unreported if tool_id in self._confirmed})
            return True


def _text_bytes(value: Any) -> int:
    """Count the bytes of all strings in a JSON value, since the gate has not judged it yet."""
    total = 0
    stack: list[Any] = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            total += len(one) if one.isascii() else len(one.encode("utf-8", "surrogatepass"))
        elif isinstance(one, dict):
            for key, item in cast("dict[Any, Any]", one).items():
                stack += (key, item)
        elif isinstance(one, list):
            stack += cast("list[Any]", one)
    return total


HISTORY = 200
LAST_POST_SECONDS = 2.0
STOPPED = "It was stopped while it ran; what it did until then stays."
"""Time a closing client still tries to deliver; the journal keeps the rest."""
OVERTIME_SECONDS = 15.0
"""The workspace enforces each tool's time limit; the client gives up this much later."""


@dataclass(eq=False)
class ActiveExecution:
    """A running execution, with the task that holds its process."""

    event: ExecutionSignal
    task: asyncio.Task[None]
    running: bool = False
    cancelled: str | None = None
    """Reason it was cancelled."""


class ExecutionObserver:
    """Receives the progress of executions. This one does nothing; an editor's engine notifies the editor."""

    def started(self, event: ExecutionSignal) -> None: ...

    def output(self, tool_id: str, stream: Stream, text: str) -> None:
        """Called with a piece of a command's output, with secrets masked."""

    def ended(self, result: ClientResult) -> None: ...

    def acknowledged(self, event: ResultAcknowledged) -> None: ...


class ToolHandler:
    """Executes signals, asks questions, and reports everything (C1)."""

    def __init__(
        self,
        *,
        settings: ClientSettings,
        project_id: str,
        client_id: str,
        workspace: Workspace,
        gate: Gate,
        journal: Journal,
        link: Link,
        prompt: ApprovalPrompt | None = None,
        observer: ExecutionObserver | None = None,
    ) -> None:
        self._settings = settings
        self._observer = observer or ExecutionObserver()
        self._project_id = project_id
        self._client_id = client_id
        self._workspace = workspace
        self.gate = gate
        """The owner's gate."""
        self._journal = journal
        self._link = link
        self._checks = SignalChecks(project_id=project_id, workspace=workspace, gate=gate, link=link)
        self._inspector = Inspector(
            project_id=project_id, workspace=workspace, gate=gate, link=link, tries=settings.post_tries
        )
        self.outbox = Outbox(link, project_id, journal, settings.post_tries)
        self.approvals = ApprovalDesk(
            link, project_id, prompt, timeout_seconds=settings.approval_timeout_seconds, tries=settings.post_tries
        )
        self._cache = ReadCache(workspace.root, settings.cache_seconds) if settings.cache_enabled else None
        self._queue = WaitingSignals(settings.queue_limit)
        self._reports = QueueReports(self._queue, link, project_id)
        self._active: dict[str, ActiveExecution] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = Tasks()
        """Executions and reports; closing waits for them."""
        self._history: deque[ClientResult] = deque(maxlen=HISTORY)
        self._reported: deque[str] = deque(maxlen=HISTORY)
        """Calls whose results are not yet acknowledged on the feed."""
        self._disposed = False
        self._queued_at: dict[str, int] = {}
        self._stop_gauge = telemetry.gauge(
            "byleave.client.queue",
            lambda: [(len(self._active), {"state": "active"}), (len(self._queue), {"state": "queued"})],
        )

    # State (C4)

    @property
    def active(self) -> list[ActiveExecution]:
        """Running executions."""
        return list(self._active.values())

    @property
    def queued(self) -> list[ExecutionSignal]:
        """Queued signals, in order."""
        return self._queue.signals

    @property
    def history(self) -> list[ClientResult]:
        """Outcomes of the last executions."""
        return list(self._history)

    @property
    def pending_approvals(self) -> list[ApprovalRequested]:
        """Questions that wait for a person."""
        return self.approvals.pending

    @property
    def approval_history(self) -> list[PastApproval]:
        """Outcomes of the last questions."""
        return self.approvals.history

    def set_server_time(self, server_time: datetime) -> None:
        """Set the server's clock; deadlines use it."""
        self._checks.server_offset = server_time.timestamp() - steady()

    @property
    def server_ahead(self) -> float:
        """Seconds the server's clock is ahead of ours, as ours is set now."""
        return self._checks.server_now - time.time()

    def forget_reads(self) -> None:
        """Drop all cached reads: files were changed by something other than a call (C6)."""
        if self._cache is not None:
            self._cache.forget()

    # Events of the server

    def handle_tool_approval_request(self, event: ApprovalRequested) -> None:
        """Ask the person at this machine."""
        if not self._disposed:
            self.approvals.request(event, server_ahead=self.server_ahead)

    def handle_tool_approval_decided(self, event: ApprovalDecided) -> None:
        """Close a question that was answered, here or elsewhere."""
        self.approvals.decided(event)

    def handle_tool_inspection_request(self, event: InspectionRequested) -> None:
        """Inspect the files a call would run, before the server asks a person."""
        if event.client_id == self._client_id and not self._disposed:
            self._inspector.request(event)

    def handle_tool_execution_signal(self, event: ExecutionSignal) -> None:
        """Execute a call."""
        tool_id = event.tool_id
        if self._disposed:
            return
        if event.client_id != self._client_id:
            # Do not report a failure either: the addressed machine may be running it.
            log.warning("signal for another client ignored", tool_id=tool_id)
            return
        if self._journal.knows(tool_id):
            log.warning("repeated signal ignored", tool_id=tool_id)
            self._reports.forget(tool_id)
            self.outbox.again(tool_id)
            return
        self._journal.take(tool_id)
        log.info("signal received", tool_id=tool_id, tool=event.tool_name, approved_by=event.approved_by)
        if event.tool_name not in TOOLS:
            self._fail(tool_id, event.tool_name, ToolTypeError(f"This client has no tool {event.tool_name[:100]!r}."))
        elif len(self._active) < self._settings.concurrency:
            self._start(event)
        else:
            self._enqueue(event)

    def handle_unreadable_signal(self, tool_id: str) -> None:
        """Report a signal that cannot be parsed; it never runs."""
        if not self._disposed and not self._journal.knows(tool_id):
            self._journal.take(tool_id)
            self._fail(tool_id, "", ToolTypeError("This client could not understand the signal; nothing was run."))

    def handle_tool_cancel_signal(self, event: ExecutionCancelSignal) -> None:
        """Cancel a running or queued call; an ended one is left alone."""
        if event.client_id == self._client_id:
            log.info("cancelled", tool_id=event.tool_id)
            active = self._active.get(event.tool_id)
            runs = active is not None and active.running
            self._cancel(event.tool_id, STOPPED if runs else "It was stopped before it began; nothing was run.")

    def handle_tool_result_ack(self, event: ResultAcknowledged) -> None:
        """Stop resending the result of a call: the server has it."""
        if event.status.ended:
            self.outbox.settled(
                event.tool_id, event.status
            )  # usually the post itself was answered before, and nothing is kept
        text = "result acknowledged" if self._journal.knows(event.tool_id) else "another client's result acknowledged"
        log.info(text, tool_id=event.tool_id, status=event.status.value)
        if event.tool_id in self._reported:
            self._reported.remove(event.tool_id)
            self._observer.acknowledged(event)

    async def dispose(self) -> None:
        """Stop everything (C8): timers, questions, queue, processes. Undelivered results stay in the journal."""
        if self._disposed:
            return
        self._disposed = True
        self._stop_gauge()
        log.info("closing", active=len(self._active), queued=len(self._queue))
        await self.approvals.close()
        await self._inspector.close()
        await self._reports.close()
        for event in self._queue.signals:
            self._cancel(event.tool_id, "The client was closed before this was run.")
        for tool_id in [*self._active]:
            self._cancel(tool_id, "The client was closed while this ran; part of its effect may remain.")
        # Wait for the processes, however long it takes: none may outlive the client.
        await self._idle.wait()
        await self._tasks.close(LAST_POST_SECONDS)
        await self.outbox.close()

    # Concurrency and order (C3)

    def _start(self, event: ExecutionSignal) -> None:
        self._idle.clear()
        self._active[event.tool_id] = ActiveExecution(event, self._tasks.spawn(self._execute(event)))

    def _enqueue(self, event: ExecutionSignal) -> None:
        try:
            self._queue.add(event)
        except ConcurrencyLimitError as full:
            self._fail(event.tool_id, event.tool_name, full)
        else:
            self._queued_at[event.tool_id] = telemetry.clock()
            self._reports.added()
            log.info("queued", tool_id=event.tool_id, waiting=len(self._queue))

    def _release(self, tool_id: str) -> None:
        del self._active[tool_id]
        waiting = None if self._disposed else self._queue.next()
        if waiting is not None:
            self._start(waiting)
        elif not self._active:
            self._idle.set()

    def _cancel(self, tool_id: str, reason: str) -> None:
        active = self._active.get(tool_id)
        waiting = self._queue.take(tool_id)
        if active is not None:
            active.cancelled = reason
            # A task that has not begun would end without its report: it checks `cancelled` when it begins.
            if active.running:
                active.task.cancel()
        elif waiting is not None:
            self._queued_at.pop(tool_id, None)
            self._reports.forget(tool_id)
            self._fail(tool_id, waiting.tool_name, ExecutionCancelled(reason))

    def _fail(self, tool_id: str, tool_name: str, error: ByleaveError) -> None:
        """Report a call that never ran."""
        self._tasks.spawn(self._report(ending(tool_id, tool_name, error), durable=False))

    # Execution

    async def _execute(self, event: ExecutionSignal) -> None:
        active = self._active[event.tool_id]
        began = time.perf_counter()
        outcome: ToolResult | ByleaveError
        try:
            if active.cancelled is not None:
                raise ExecutionCancelled(active.cancelled)
            active.running = True
            event = await self._reports.begin(event)
            began = time.perf_counter()
            self._observer.started(event)
            with self._span(event):
                outcome = await self._perform(event)
        except asyncio.CancelledError as stop:
            command = unfinished(stop)
            text = active.cancelled or STOPPED
            outcome = CommandStopped(text, partial=None if command is None else command.partial)
        except ByleaveError as error:
            outcome = error
        except Exception as error:  # noqa: BLE001 - a boundary: every execution reports, whatever goes wrong
            log.error("failed unexpectedly", tool_id=event.tool_id, exc_info=error)
            outcome = ByleaveError(f"The client failed with {type(error).__name__}; see its log.")
        while active.task.cancelling():  # cancelled, perhaps too late to matter; the report still goes out
            active.task.uncancel()
        # No await between the end of the run and this: a later cancellation must find nothing to cancel.
        self._release(event.tool_id)
        changes = TOOLS[event.tool_name].changes_things
        await self._report(ending(event.tool_id, event.tool_name, outcome, began), durable=changes)

    def _span(self, event: ExecutionSignal) -> AbstractContextManager[object]:
        """Continue the server's trace, if telemetry is on."""
        queued_at = self._queued_at.pop(event.tool_id, 0)
        parent = telemetry.arriving(event.traceparent) if telemetry.on() else None
        ids = {"tool_id": event.tool_id, "session_id": event.session_id, "project_id": self._project_id}
        # Context variables are per task: subtasks belong to the same call, and the next call sets its own.
        bind_ids(**ids)
        if queued_at:
            telemetry.record("byleave.client.queue", queued_at, telemetry.clock(), parent=parent, tool_id=event.tool_id)
        return telemetry.span("byleave.client.execute", parent, tool=event.tool_name, mode=event.mode.value, **ids)

    async def _perform(self, event: ExecutionSignal) -> ToolResult:
        with telemetry.span("byleave.client.check"):
            judgement = await self._checks.check(event)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("executing", tool_id=event.tool_id, params=_logged(event))
        changes = TOOLS[event.tool_name].changes_things
        cache = self._cache
        if cache is None:
            return await self._run(event, judgement)
        if changes:
            cache.forget(event.tool_params.get("path"))
            try:
                return await self._run(event, judgement)
            finally:
                cache.forget(event.tool_params.get("path"))
        if event.tool_name != "read_file":
            return await self._run(event, judgement)
        known = cache.get(event.tool_params)
        if known is not None:
            log.debug("answered from memory", tool_id=event.tool_id)
            return known
        reading = cache.before(event.tool_params)
        result = await self._run(event, judgement)
        cache.put(reading, result)
        return result

    async def _run(self, event: ExecutionSignal, judgement: Judgement) -> ToolResult:
        """Journal the call, then run it. It gets the network only if the approval and our own gate both grant it."""
        changes, verdict = TOOLS[event.tool_name].changes_things, judgement.verdict
        await self._journal.acting(event.tool_id, event.tool_name, event.digest, durable=changes)
        live = None
        if event.tool_name == "execute_command":
            live = LiveOutput(self._link, self._project_id, event.tool_id, self._observer.output)
        # Nobody wants it past its deadline, and an unreachable server cannot cancel it.
        until = self._checks.ends_at(event)
        seconds = min(TOOLS[event.tool_name].timeout_seconds + OVERTIME_SECONDS, until - steady())
        if seconds <= 0:
            raise ExecutionTimeout(TOO_LATE)
        try:
            isolation = self._workspace.isolation.backend if telemetry.on() else None
            with telemetry.span("byleave.client.run", tool=event.tool_name, isolation=isolation):
                async with asyncio.timeout(seconds):
                    return await self._workspace.run(
                        event.tool_name,
                        event.tool_params,
                        network=verdict.network and event.network,
                        on_output=live,
                        bound=bound_of(event),
                        # The gate knows that a LOW call writes nothing: there is nothing to record.
                        record_as=None if verdict.level is VerdictLevel.LOW else event.tool_id,
                        until=until,
                        asked=event.approved_by.startswith("person:"),
                        understood=judgement.command,
                    )
        except TimeoutError as error:
            command = unfinished(error)
            partial = None if command is None else command.partial
            raise CommandTimeout(f"It did not end within {seconds:.3g} s.", partial=partial) from error
        except ExecutionCancelled as error:
            raise ExecutionTimeout(TOO_LATE) from error
        finally:
            rest = None if live is None else live.stop()
            if rest is not None:
                self._tasks.hold(rest)

    async def _report(self, end: Ending, *, durable: bool) -> None:
        body = end.report()
        past = end.summary(len(body))
        self._history.append(past)
        self._reported.append(end.tool_id)
        self._observer.ended(past)
        if end.error is not None:
            text = mask_start(str(end.error), MAX_ERROR_CHARACTERS)
            log.error("failed", tool_id=end.tool_id, error=text, error_type=end.error.error_type.value)
        else:
            log.info("done", tool_id=end.tool_id, status=past.status.value)
        log.debug("timing", tool_id=end.tool_id, duration_ms=end.duration_ms, bytes=len(body))
        await self._journal.done(end.tool_id, body, durable=durable)
        await self.outbox.send(end.tool_id, body)


def _logged(event: ExecutionSignal) -> JsonObject:
    """Return the parameters for the log, without a file's content, which may be any secret."""
    params = shown_params(event.tool_name, event.tool_params)
    return {**params, "content": "(left out)"} if "content" in params else params
