"""What the client's tests share: signals, a link that records what is posted, a handler on a real workspace."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol, Unpack, cast

import pytest
from aiohttp import web

from byleave.client.approvals import ApprovalPrompt
from byleave.client.handler import ToolHandler
from byleave.client.journal import Journal
from byleave.gate import Gate
from byleave.protocol.approvals import (
    ApproveBody,
    DecisionAnswer,
    EditableCall,
    EditAnswer,
    EditBody,
    Inspection,
    RejectBody,
    WholeCall,
    call_digest,
)
from byleave.protocol.changes import ChangeKind, ShownChange, WriteChange
from byleave.protocol.events import ApprovalRequested, ExecutionCancelSignal, ExecutionSignal, FeedEvent
from byleave.protocol.executions import BatchAck, Begun, Execution, OutputChunk, QueueReport, ResultAck
from byleave.protocol.grants import GrantPreview, GrantRule
from byleave.protocol.states import AgentMode, ApprovalScope, ApprovalStatus, ExecutionStatus, RiskLevel
from byleave.protocol.verdicts import Finding, VerdictLevel
from byleave.protocol.wire import now, timestamp
from byleave.settings import ClientSettings
from byleave.workspace.workspace import Workspace
from harness.json_values import Json, JsonObject
from harness.options import ClientOptions

PROJECT = "project_1"
CLIENT = "client_00000000000000000000000000000001"


def in_seconds(seconds: float) -> str:
    return timestamp(datetime.now(UTC) + timedelta(seconds=seconds))


def make_signal(
    tool_id: str,
    tool_name: str = "read_file",
    params: JsonObject | None = None,
    **changes: object,
) -> ExecutionSignal:
    params = {"path": "a.txt"} if params is None else params
    bound = cast(JsonObject | None, changes.get("bound"))
    known: dict[str, object] = {
        "timestamp": now(),
        "tool_id": tool_id,
        "tool_name": tool_name,
        "tool_params": params,
        "digest": "" if "digest" in changes else call_digest(tool_name, params, PROJECT, bound),
        "risk_level": RiskLevel.LOW,
        "approval_id": None,
        "approved_by": "risk:LOW",
        "mode": AgentMode.SANDBOX,
        "network": False,
        "deadline": in_seconds(60),
        "client_id": CLIENT,
        "session_id": "session_1",
    }
    return ExecutionSignal.model_validate(known | changes)


def make_approved(tool_id: str, tool_name: str, params: JsonObject, **changes: object) -> ExecutionSignal:
    return make_signal(
        tool_id, tool_name, params, **({"approved_by": "person:alice", "approval_id": "approval_1"} | changes)
    )


def make_cancel(tool_id: str, client_id: str = CLIENT) -> ExecutionCancelSignal:
    return ExecutionCancelSignal(timestamp=now(), tool_id=tool_id, client_id=client_id, session_id="session_1")


def make_request(approval_id: str = "approval_1", **changes: object) -> ApprovalRequested:
    known: dict[str, object] = {
        "timestamp": now(),
        "approval_id": approval_id,
        "tool_id": "exec_1",
        "tool_name": "write_file",
        "risk_level": RiskLevel.MEDIUM,
        "timeout_seconds": 300,
        "description": "Write 3 bytes to 'a.txt'",
        "tool_params": {"path": "a.txt", "content": "abc"},
        "findings": [Finding(level=VerdictLevel.MEDIUM, reason="Writes a text file.", rule="risk.write")],
        "network": False,
        "digest": "d" * 64,
        "deadline": in_seconds(300),
        "session_id": "session_1",
        "agent_id": "agent_1",
    }
    return ApprovalRequested.model_validate(known | changes)


@dataclass
class RecordingLink:
    """Stands where the server's API stands; records posts, and fails the way it is told to."""

    failures: list[Exception] = field(default_factory=list)
    """Raised by the next posts, one each."""
    results: list[tuple[str, JsonObject]] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)
    """The calls of each batch of reports."""
    batch_failure: Exception | None = None
    not_in_batch: set[str] = field(default_factory=set)
    """Calls whose report a batch does not take."""
    output: list[OutputChunk] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)
    """Calls that were said to wait."""
    begun: list[str] = field(default_factory=list)
    begin_failure: Exception | None = None
    inspections: list[tuple[str, Inspection]] = field(default_factory=list)
    decisions: list[tuple[str, str, str | None]] = field(default_factory=list)
    granted: list[ApproveBody] = field(default_factory=list)
    bodies: list[ApproveBody] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    """Calls that go with the next grant."""
    edits: list[EditBody] = field(default_factory=list)
    tried: list[GrantRule] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    status: ExecutionStatus | Exception = ExecutionStatus.EXECUTING
    output_failure: Exception | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def post_result(self, project_id: str, tool_id: str, report: bytes) -> ResultAck:
        assert project_id == PROJECT
        async with self.changed:
            self.changed.notify_all()
            if self.failures:
                raise self.failures.pop(0)
            self.results.append((tool_id, json.loads(report)))
        return ResultAck(success=True, tool_id=tool_id, status=ExecutionStatus.COMPLETED, message="")

    async def post_results(self, project_id: str, reports: Mapping[str, bytes]) -> BatchAck:
        assert project_id == PROJECT
        async with self.changed:
            self.changed.notify_all()
            self.batches.append(list(reports))
            if self.batch_failure is not None:
                raise self.batch_failure
            accepted = [tool_id for tool_id in reports if tool_id not in self.not_in_batch]
            self.results += [(tool_id, json.loads(reports[tool_id])) for tool_id in accepted]
        return BatchAck(accepted=accepted)

    async def post_output(self, project_id: str, tool_id: str, chunk: OutputChunk) -> None:
        async with self.changed:
            self.changed.notify_all()
            self.output.append(chunk)
        if self.output_failure is not None:
            raise self.output_failure

    async def post_queued(self, project_id: str, report: QueueReport) -> None:
        assert project_id == PROJECT
        async with self.changed:
            self.changed.notify_all()
            if self.failures:
                raise self.failures.pop(0)
            self.queued += report.tool_ids

    async def begin(self, project_id: str, tool_id: str) -> Begun:
        assert project_id == PROJECT
        async with self.changed:
            self.changed.notify_all()
            self.begun.append(tool_id)
            if self.begin_failure is not None:
                raise self.begin_failure
        return Begun(started_at=now(), deadline=in_seconds(60))

    async def post_inspection(self, project_id: str, tool_id: str, inspection: Inspection) -> None:
        assert project_id == PROJECT
        async with self.changed:
            self.changed.notify_all()
            if self.failures:
                raise self.failures.pop(0)
            self.inspections.append((tool_id, inspection))

    async def get_tool(self, tool_id: str) -> Execution:
        self.asked.append(tool_id)
        if isinstance(self.status, Exception):
            raise self.status
        return Execution.model_construct(id=tool_id, status=self.status)

    async def approve(self, project_id: str, approval_id: str, body: ApproveBody) -> DecisionAnswer:
        self.bodies.append(body)
        answer = await self._decide(approval_id, "approved", body.digest)
        if body.scope is ApprovalScope.ONCE:
            return answer
        self.granted.append(body)
        return answer.model_copy(update={"grant_id": "grant_1", "released": self.released})

    async def reject(self, project_id: str, approval_id: str, body: RejectBody) -> DecisionAnswer:
        return await self._decide(approval_id, "rejected", body.reason)

    async def whole_call(self, approval_id: str, *, reveal: bool = False) -> WholeCall:
        masked = "" if reveal else ", masked"
        return WholeCall(approval_id=approval_id, text=f"all of {approval_id}{masked}")

    async def change(self, approval_id: str) -> WriteChange:
        shown = ShownChange(path="a.txt", kind=ChangeKind.CHANGE, before="a\n", after="b\n")
        return WriteChange(
            approval_id=approval_id, digest="d" * 64, change=shown, before_sha256="a" * 64, before_size=2, seen_at=now()
        )

    async def editable(self, approval_id: str, *, reveal: bool = False) -> EditableCall:
        return EditableCall(approval_id=approval_id, digest="d" * 64, tool_name="write_file", content="old\n")

    async def edit(self, project_id: str, approval_id: str, body: EditBody) -> EditAnswer:
        self.edits.append(body)
        return EditAnswer(approval_id="appr_2", tool_ids=["exec_1"], message="")

    async def preview_grant(self, project_id: str, rule: GrantRule) -> GrantPreview:
        self.tried.append(rule)
        sentence = "It would have covered 2 of your last 9 calls, among them 1 you refused."
        return GrantPreview(
            rule=rule,
            text="",
            widest="",
            problem=None,
            looked_at=9,
            covered=2,
            refused=[],
            examples=[],
            sentence=sentence,
        )

    async def _decide(self, approval_id: str, decision: str, told: str | None) -> DecisionAnswer:
        async with self.changed:
            self.changed.notify_all()
            if self.failures:
                raise self.failures.pop(0)
            self.decisions.append((approval_id, decision, told))
        return DecisionAnswer(success=True, approval_id=approval_id, status=ApprovalStatus(decision), message="")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(condition)

    async def report(self, tool_id: str) -> JsonObject:
        """The report of one call, once it is there."""
        await self.until(lambda: any(tool_id == posted for posted, _ in self.results))
        return next(report for posted, report in self.results if posted == tool_id)


class MakeSignal(Protocol):
    """`make_signal`, as the fixture `signal` gives it."""

    def __call__(
        self,
        tool_id: str,
        tool_name: str = "read_file",
        params: JsonObject | None = None,
        **changes: object,
    ) -> ExecutionSignal: ...


class MakeApproved(Protocol):
    """`make_approved`, as the fixture `approved` gives it."""

    def __call__(self, tool_id: str, tool_name: str, params: JsonObject, **changes: object) -> ExecutionSignal: ...


class MakeCancel(Protocol):
    """`make_cancel`, as the fixture `cancel` gives it."""

    def __call__(self, tool_id: str, client_id: str = CLIENT) -> ExecutionCancelSignal: ...


class MakeRequest(Protocol):
    """`make_request`, as the fixture `request_event` gives it."""

    def __call__(self, approval_id: str = "approval_1", **changes: object) -> ApprovalRequested: ...


class MakeHandler(Protocol):
    """Builds a handler; client settings may be given by name."""

    async def __call__(
        self,
        *,
        prompt: ApprovalPrompt | None = None,
        state: str = "state",
        gate: Gate | None = None,
        **settings: Unpack[ClientOptions],
    ) -> ToolHandler: ...


@pytest.fixture
def signal() -> MakeSignal:
    return make_signal


@pytest.fixture
def approved() -> MakeApproved:
    return make_approved


@pytest.fixture
def cancel() -> MakeCancel:
    return make_cancel


@pytest.fixture
def request_event() -> MakeRequest:
    return make_request


@pytest.fixture
async def link() -> RecordingLink:
    return RecordingLink()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    (root / "a.txt").write_text("hello\n")
    return root


@pytest.fixture
async def make_handler(tmp_path: Path, root: Path, link: RecordingLink) -> AsyncIterator[MakeHandler]:
    """Builds handlers on the real workspace, and ends them all."""
    ends: list[Callable[[], Awaitable[None]]] = []

    async def make(
        *,
        prompt: ApprovalPrompt | None = None,
        state: str = "state",
        gate: Gate | None = None,
        **settings: Unpack[ClientOptions],
    ) -> ToolHandler:
        chosen = ClientSettings(home=tmp_path / "home", **settings)
        workspace = Workspace(root, chosen)
        journal = Journal(tmp_path / state)
        handler = ToolHandler(
            settings=chosen,
            project_id=PROJECT,
            client_id=CLIENT,
            workspace=workspace,
            gate=gate or Gate(),
            journal=journal,
            link=link,
            prompt=prompt,
        )

        async def end() -> None:
            await handler.dispose()
            await workspace.close()
            journal.close()

        ends.append(end)
        return handler

    yield make
    for end in ends:
        await end()


@pytest.fixture
async def handler(make_handler: MakeHandler) -> ToolHandler:
    return await make_handler()


@dataclass
class Seen:
    """A request as the stub server got it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Json


class StubServer:
    """A real HTTP server on 127.0.0.1 that says what a test tells it to, and misbehaves on request."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.answers: dict[str, list[tuple[int, object]]] = {}
        """By the end of the path: status and body of the next answers; the last one stays."""
        self.streams = 0
        self.feed: asyncio.Queue[bytes | str] = asyncio.Queue()
        """Bytes to send on the stream; `drop` breaks the connection, `end` ends it properly."""
        self.stream_answer: tuple[int, object] | None = None
        """Status and body of an answer instead of a stream; without a body, it comes from `feed`."""
        self.stream_type = "text/event-stream"
        self.page: int | None = None
        """Status of a web page that stands in the server's place and answers everything."""
        self.changed = asyncio.Condition()
        self.url = ""
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def start(self) -> None:
        app = web.Application(client_max_size=2**30)
        app.router.add_get("/my/projects/{project}/chat/stream", self._stream)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = site._server.sockets[0].getsockname()[1]  # pyright: ignore
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def event(self, number: int, event: FeedEvent | ExecutionSignal | ExecutionCancelSignal) -> None:
        self.feed.put_nowait(f"id: {number}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n".encode())

    def seen(self, end: str) -> list[Seen]:
        return [request for request in self.requests if request.path.endswith(end)]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(condition)

    async def _note(self, request: web.Request) -> None:
        body = await request.read()
        seen = Seen(
            request.method,
            request.path,
            dict(request.query),
            dict(request.headers),
            json.loads(body) if body else None,
        )
        async with self.changed:
            self.requests.append(seen)
            self.changed.notify_all()

    async def _answer(self, request: web.Request) -> web.Response:
        await self._note(request)
        if self.page is not None:
            return self._page(self.page)
        for end, answers in self.answers.items():
            if request.path.endswith(end):
                status, body = answers.pop(0) if len(answers) > 1 else answers[0]
                if status == 0:
                    assert request.transport is not None
                    request.transport.abort()
                headers = {"Location": "http://127.0.0.1:9/"} if 300 <= status < 400 else {}
                text = body if isinstance(body, str) else json.dumps(body)
                return web.Response(status=status or 200, text=text, content_type="application/json", headers=headers)
        tool_id = request.path.split("/")[-2]
        ack = {"success": True, "tool_id": tool_id, "status": "completed", "message": ""}
        return web.json_response(ack)

    def _page(self, status: int) -> web.Response:
        headers = {"Location": "http://127.0.0.1:9/"} if 300 <= status < 400 else {}
        text = None if status == 204 else "<html>We are back soon.</html>"
        return web.Response(status=status, text=text, content_type="text/html", headers=headers)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        await self._note(request)
        if self.page is not None:
            return self._page(self.page)
        status = 200
        if self.stream_answer is not None:
            status, body = self.stream_answer
            if body is not None:
                return web.json_response(body, status=status, content_type="application/problem+json")
        response = web.StreamResponse(status=status, headers={"Content-Type": self.stream_type})
        await response.prepare(request)
        async with self.changed:
            self.streams += 1
            self.changed.notify_all()
        while True:
            piece = await self.feed.get()
            if piece == "drop":
                assert request.transport is not None
                request.transport.abort()
                return response
            if piece == "end":
                return response
            assert isinstance(piece, bytes)
            await response.write(piece)


@pytest.fixture
async def server() -> AsyncIterator[StubServer]:
    server = StubServer()
    await server.start()
    yield server
    await server.stop()
