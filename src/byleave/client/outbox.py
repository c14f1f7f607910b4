"""Reports to the server: sent until it has them, kept while it is unreachable.

A report leaves the journal only when the server took it, or said that the execution is over or unknown. In place of a
report the server cannot read, a short failure is sent, so that the agent hears of it; the report is kept until that is
taken. Every outcome has a report: a
result that cannot be encoded as JSON becomes a failure. Live output is only a convenience: masked, sent once and never
waited for, because the result holds it all.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from pydantic_core import PydanticSerializationError, to_json

from byleave.gate import MaskedStream
from byleave.protocol.approvals import (
    ApproveBody,
    DecisionAnswer,
    EditableCall,
    EditAnswer,
    EditBody,
    Inspection,
    RejectBody,
    WholeCall,
)
from byleave.protocol.changes import WriteChange
from byleave.protocol.errors import ByleaveError, CallerError, ConflictError, NotFound, UnreachableError
from byleave.protocol.executions import (
    MAX_BATCH,
    MAX_ERROR_CHARACTERS,
    BatchAck,
    Begun,
    ClientResult,
    Execution,
    FailedReport,
    OutputChunk,
    QueueReport,
    ResultAck,
)
from byleave.protocol.grants import GrantPreview, GrantRule
from byleave.protocol.states import ClientResultStatus, ErrorType, ExecutionStatus
from byleave.protocol.tools import ToolResult
from byleave.protocol.wire import now
from byleave.workspace.stopping import Unfinished

from .journal import Journal
from .log import log
from .tasks import Tasks, pause

TRY_AGAIN_SECONDS = 15.0
GATHER_SECONDS = 1.0
"""A report waits at most this long to leave together with others."""
SMALL_BYTES = 16 * 1024
"""A report up to this size may leave together with others."""
COALESCE_SECONDS = 0.1
MAX_PIECE_BYTES = 64 * 1024
MAX_LIVE_CHARACTERS = 1024 * 1024

Stream = Literal["stdout", "stderr"]


class Link(Protocol):
    """Interface to the server; `ServerApi` implements it."""

    async def post_result(self, project_id: str, tool_id: str, report: bytes) -> ResultAck: ...
    async def post_results(self, project_id: str, reports: Mapping[str, bytes]) -> BatchAck: ...
    async def post_output(self, project_id: str, tool_id: str, chunk: OutputChunk) -> None: ...
    async def post_queued(self, project_id: str, report: QueueReport) -> None: ...
    async def begin(self, project_id: str, tool_id: str) -> Begun: ...
    async def post_inspection(self, project_id: str, tool_id: str, inspection: Inspection) -> None: ...
    async def get_tool(self, tool_id: str) -> Execution: ...
    async def approve(self, project_id: str, approval_id: str, body: ApproveBody) -> DecisionAnswer: ...
    async def reject(self, project_id: str, approval_id: str, body: RejectBody) -> DecisionAnswer: ...
    async def whole_call(self, approval_id: str, *, reveal: bool = False) -> WholeCall: ...
    async def change(self, approval_id: str) -> WriteChange: ...
    async def editable(self, approval_id: str, *, reveal: bool = False) -> EditableCall: ...
    async def edit(self, project_id: str, approval_id: str, body: EditBody) -> EditAnswer: ...
    async def preview_grant(self, project_id: str, rule: GrantRule) -> GrantPreview: ...


class Outbox:
    """Sends the reports of a client's journal."""

    def __init__(self, link: Link, project_id: str, journal: Journal, tries: int) -> None:
        self._link = link
        self._project_id = project_id
        self._journal = journal
        self._tries = tries
        self._sending: set[str] = set()
        self._posting = False
        """True while a small report is on its way: others wait to leave together."""
        self._ready: dict[str, tuple[bytes, asyncio.Future[bool]]] = {}
        self._tasks = Tasks()
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, tool_id: str, body: bytes | None = None) -> bool:
        """Post a report from the journal; return False if the next ones would fail too. A failed one is kept."""
        if tool_id in self._sending:
            return False
        self._sending.add(tool_id)
        try:
            return await self._send(tool_id, body)
        finally:
            self._sending.discard(tool_id)

    async def _send(self, tool_id: str, body: bytes | None) -> bool:
        replaced = False
        failures = 0
        while failures < self._tries:
            body = body or self._journal.report(tool_id)
            if body is None:
                return True
            try:
                await self._post(tool_id, body)
                log.info("result accepted", tool_id=tool_id)
            except (NotFound, ConflictError) as error:
                log.info("result not needed", tool_id=tool_id, answer=error.message)
            except CallerError as error:
                log.error("result not understood by the server", tool_id=tool_id, error=error.message)
                if replaced:
                    self._keep(tool_id)
                    return True  # the others may be understood
                body, replaced = _unreadable(error), True
                continue
            except UnreachableError as error:
                failures += 1
                log.warning("result not delivered", tool_id=tool_id, attempt=failures, error=error.message)
                if failures < self._tries:
                    await asyncio.sleep(pause(failures - 1))
                continue
            except ByleaveError as error:
                # A person has to fix the token or its scopes; the report is kept until then.
                log.error("result refused", tool_id=tool_id, error=error.message)
                return self._keep(tool_id)
            self._journal.accepted(tool_id)
            return True
        return self._keep(tool_id)

    async def _post(self, tool_id: str, body: bytes) -> None:
        """Post a report. While another is on its way, reports gather, and those that are small leave together."""
        if self._posting and len(body) <= SMALL_BYTES:
            accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._ready[tool_id] = body, accepted
            # A post that hangs must not hold up the others. One that is sent twice is accepted twice.
            await asyncio.wait((accepted,), timeout=GATHER_SECONDS)
            if accepted.done() and not accepted.cancelled() and accepted.result():
                return
            self._ready.pop(tool_id, None)
        alone = not self._posting
        self._posting = True
        try:
            await self._link.post_result(self._project_id, tool_id, body)
        finally:
            if alone:
                self._posting = bool(self._ready)
                if self._ready:
                    self._tasks.spawn(self._post_ready())

    async def _post_ready(self) -> None:
        """Post the reports that have gathered, until none is left."""
        leaving: dict[str, tuple[bytes, asyncio.Future[bool]]] = {}
        try:
            while self._ready:
                leaving = {tool_id: self._ready.pop(tool_id) for tool_id in list(self._ready)[:MAX_BATCH]}
                reports = {tool_id: body for tool_id, (body, _) in leaving.items()}
                accepted: set[str] = set()
                # After any error each is posted alone, and gets its own answer.
                with contextlib.suppress(ByleaveError):
                    accepted.update((await self._link.post_results(self._project_id, reports)).accepted)
                for tool_id, (_, future) in leaving.items():
                    if not future.done():
                        future.set_result(tool_id in accepted)
        finally:
            self._posting = False
            for _, future in (*leaving.values(), *self._ready.values()):
                future.cancel()  # a no-op for those that have their answer
            self._ready.clear()

    def settled(self, tool_id: str, status: ExecutionStatus) -> None:
        """Drop the report of a call that the server says is completed.

        Any other end is still sent: the server may have given up on the call without its report.
        """
        if status is ExecutionStatus.COMPLETED:
            self._journal.accepted(tool_id)
        else:
            self.again(tool_id)

    def again(self, tool_id: str) -> None:
        """Send the kept report of one call, in the background."""
        if self._journal.report(tool_id) is not None and tool_id not in self._sending:
            self._tasks.spawn(self._resend([tool_id]))

    async def resend(self) -> None:
        """Send all kept reports, oldest first; stop at the first failure."""
        await self._resend(self._journal.unsent)

    async def close(self) -> None:
        """Stop sending; unsent reports stay in the journal."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()

    async def _resend(self, tool_ids: list[str]) -> None:
        for tool_id in tool_ids:
            if tool_id not in self._sending and not await self.send(tool_id):
                return

    def _keep(self, tool_id: str) -> bool:
        log.warning("result kept for the next connection", tool_id=tool_id)
        if self._timer is None:
            # Posts may fail while the stream stays up, without a reconnection: retry on a timer too.
            self._timer = asyncio.get_running_loop().call_later(TRY_AGAIN_SECONDS, self._try_again)
        return False

    def _try_again(self) -> None:
        self._timer = None
        self._tasks.spawn(self.resend())


class LiveOutput:
    """Relays a command's output while it runs: batched, in whole lines, masked, up to a limit.

    A line is held back until it ends, because half a secret does not look like one. The server masks again.
    """

    def __init__(
        self, link: Link, project_id: str, tool_id: str, on_output: Callable[[str, Stream, str], None] | None = None
    ) -> None:
        self._link = link
        self._project_id = project_id
        self._tool_id = tool_id
        self._on_output = on_output
        """Called with the same pieces, even if the server is unreachable."""
        self._waiting: list[tuple[Stream, str]] = []
        self._streams: dict[Stream, MaskedStream] = {}
        self._cut: set[Stream] = set()
        """Streams whose last line was cut by the limit."""
        self._left = MAX_LIVE_CHARACTERS
        self._sequence = 0
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    def __call__(self, stream: Stream, text: str) -> None:
        if len(text) > self._left:
            self._cut.add(stream)
            text = text[: self._left]
        if not text or self._ended.is_set():
            return
        self._left -= len(text)
        self._waiting.append((stream, text))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._relay())

    def stop(self) -> asyncio.Task[None] | None:
        """Stop at the command's end.

        Return the task that sends the rest, if output was sent before; otherwise the result holds it all.
        """
        if self._ended.is_set():
            return None
        self._ended.set()
        if self._sequence == 0:
            if self._task is not None:
                self._task.cancel()
            return None
        if self._task is None and self._holds:
            self._task = asyncio.get_running_loop().create_task(self._relay())
        return self._task

    @property
    def _holds(self) -> bool:
        return any(stream.held for stream in self._streams.values())

    async def _relay(self) -> None:
        try:
            while self._waiting or (self._ended.is_set() and self._holds):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(COALESCE_SECONDS):
                        await self._ended.wait()
                for stream, text in _pieces(self._ready()):
                    if not await self._post(stream, text) and self._ended.is_set():
                        return
        finally:
            self._task = None

    def _ready(self) -> list[tuple[Stream, str]]:
        """Return the output to send now: finished lines, lines held too long; at the end, all but a cut line."""
        waiting, self._waiting = self._waiting, []
        ready: list[tuple[Stream, str]] = []
        for name, text in _runs(waiting):
            # Move the stream that spoke last to the end, so that its rest is sent last too.
            stream = self._streams[name] = self._streams.pop(name, None) or MaskedStream()
            ready.append((name, stream.feed(text)))
        if self._ended.is_set():
            for name, stream in self._streams.items():
                if name in self._cut:
                    stream.drop()
                ready.append((name, stream.end()))
        return ready

    async def _post(self, stream: Stream, text: str) -> bool:
        chunk = OutputChunk(stream=stream, text=text, sequence=self._sequence)
        self._sequence += 1
        if self._on_output is not None:
            self._on_output(self._tool_id, stream, text)
        try:
            await self._link.post_output(self._project_id, self._tool_id, chunk)
        except ByleaveError as error:
            log.debug("output not relayed", tool_id=self._tool_id, error=type(error).__name__)
            return False
        return True


def _runs(pieces: list[tuple[Stream, str]]) -> list[tuple[Stream, str]]:
    """Join adjacent pieces of one stream."""
    joined: list[tuple[Stream, list[str]]] = []
    for stream, text in pieces:
        if joined and joined[-1][0] == stream:
            joined[-1][1].append(text)
        elif text:
            joined.append((stream, [text]))
    return [(stream, "".join(texts)) for stream, texts in joined]


def _pieces(ready: list[tuple[Stream, str]]) -> list[tuple[Stream, str]]:
    """Split masked output so that no piece is too large."""
    pieces: list[tuple[Stream, str]] = []
    for stream, text in _runs(ready):
        step = MAX_PIECE_BYTES if text.isascii() else MAX_PIECE_BYTES // 4
        for at in range(0, len(text), step):
            pieces.append((stream, text[at : at + step]))
    return pieces


def _unreadable(error: ByleaveError) -> bytes:
    report = FailedReport(
        status="failed",
        error=f"It ended, but the server did not take its result: {error.message}"[:1000],
        error_type=ErrorType.INTERNAL,
        timestamp=now(),
    )
    return report.model_dump_json().encode()


KEPT_RESULT_BYTES = 4096

_STATUS = {
    ErrorType.EXECUTION_TIMEOUT: ClientResultStatus.TIMEOUT,
    ErrorType.CANCELLED: ClientResultStatus.CANCELLED,
}


@dataclass(frozen=True)
class Ending:
    """Outcome of an execution: a result or an error; an unfinished command that printed has both."""

    tool_id: str
    tool_name: str
    result: ToolResult | None
    error: ByleaveError | None
    duration_ms: int
    timestamp: str

    def report(self) -> bytes:
        """Return the report to post."""
        if self.error is None:
            try:
                return to_json(
                    {
                        "status": "completed",
                        "result": self.result,
                        "duration_ms": self.duration_ms,
                        "timestamp": self.timestamp,
                    }
                )
            except (PydanticSerializationError, UnicodeError):
                # For example half a surrogate pair in a file's name.
                failure = ByleaveError("It ran, but its result cannot be written as JSON.")
                return replace(self, result=None)._failed(failure)
        return self._failed(self.error)

    def summary(self, size: int) -> ClientResult:
        """Return the history entry, without large results; `size` is that of the report."""
        error, result = self.error, self.result
        if error is not None:
            status = _STATUS.get(error.error_type, ClientResultStatus.ERROR)
        else:
            status = ClientResultStatus.SUCCESS if result is None or result.success else ClientResultStatus.ERROR
        return ClientResult(
            tool_id=self.tool_id,
            tool_name=self.tool_name,
            status=status,
            result=result.model_dump() if result is not None and size <= KEPT_RESULT_BYTES else None,
            error=_sentence(error) if error is not None else result.error if result is not None else None,
            error_type=error.error_type if error is not None else None,
            duration_ms=self.duration_ms,
            timestamp=self.timestamp,
        )

    def _failed(self, error: ByleaveError) -> bytes:
        report = FailedReport(
            status="failed",
            error=_sentence(error),
            error_type=error.error_type,
            result=None if self.result is None else self.result.model_dump(),
            duration_ms=self.duration_ms,
            timestamp=self.timestamp,
        )
        return report.model_dump_json().encode()


def ending(tool_id: str, tool_name: str, outcome: ToolResult | ByleaveError, began: float | None = None) -> Ending:
    """Build the outcome of a call ending now. `began` is on the performance counter; None if it never ran."""
    duration_ms = 0 if began is None else round((time.perf_counter() - began) * 1000)
    if isinstance(outcome, ByleaveError):
        partial = outcome.partial if isinstance(outcome, Unfinished) else None
        return Ending(tool_id, tool_name, partial, outcome, duration_ms, now())
    return Ending(tool_id, tool_name, outcome, None, duration_ms, now())


def _sentence(error: ByleaveError) -> str:
    return str(error).encode("utf-8", "replace").decode()[:MAX_ERROR_CHARACTERS]
