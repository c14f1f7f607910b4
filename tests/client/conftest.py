"""What the client's tests share: signals, a link that records what is posted, a handler on a real workspace."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assent.client import Journal, ToolHandler
from assent.gate import Gate
from assent.protocol.approvals import ApproveBody, DecisionAnswer, RejectBody
from assent.protocol.digests import call_digest
from assent.protocol.events import ApprovalRequested, ExecutionCancelSignal, ExecutionSignal
from assent.protocol.executions import Execution, OutputChunk, ResultAck
from assent.protocol.states import AgentMode, ApprovalStatus, ExecutionStatus, RiskLevel
from assent.protocol.values import now, timestamp
from assent.protocol.verdicts import Finding, VerdictLevel
from assent.settings import ClientSettings
from assent.workspace import Workspace

PROJECT = "project_1"
CLIENT = "client_00000000000000000000000000000001"


def in_seconds(seconds: float) -> str:
    return timestamp(datetime.now(UTC) + timedelta(seconds=seconds))


def make_signal(tool_id: str, tool_name: str = "read_file", params: Any = None, **changes: Any) -> ExecutionSignal:
    params = {"path": "a.txt"} if params is None else params
    known: dict[str, Any] = {
        "timestamp": now(),
        "tool_id": tool_id,
        "tool_name": tool_name,
        "tool_params": params,
        "digest": "" if "digest" in changes else call_digest(tool_name, params, PROJECT),
        "risk_level": RiskLevel.LOW,
        "approval_id": None,
        "approved_by": "risk:LOW",
        "mode": AgentMode.SANDBOX,
        "network": False,
        "deadline": in_seconds(60),
        "client_id": CLIENT,
        "session_id": "session_1",
    }
    return ExecutionSignal(**(known | changes))


def make_approved(tool_id: str, tool_name: str, params: Any, **changes: Any) -> ExecutionSignal:
    return make_signal(
        tool_id, tool_name, params, **({"approved_by": "person:alice", "approval_id": "approval_1"} | changes)
    )


def make_cancel(tool_id: str, client_id: str = CLIENT) -> ExecutionCancelSignal:
    return ExecutionCancelSignal(timestamp=now(), tool_id=tool_id, client_id=client_id, session_id="session_1")


def make_request(approval_id: str = "approval_1", **changes: Any) -> ApprovalRequested:
    known: dict[str, Any] = {
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
    return ApprovalRequested(**(known | changes))


@dataclass
class RecordingLink:
    """Stands where the server's API stands; records posts, and fails the way it is told to."""

    failures: list[Exception] = field(default_factory=list)
    """Raised by the next posts, one each."""
    results: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    output: list[OutputChunk] = field(default_factory=list)
    decisions: list[tuple[str, str, str | None]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    status: ExecutionStatus | Exception = ExecutionStatus.EXECUTING
    output_failure: Exception | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def post_result(self, project_id: str, tool_id: str, report: bytes) -> ResultAck:
        import json

        assert project_id == PROJECT
        async with self.changed:
            self.changed.notify_all()
            if self.failures:
                raise self.failures.pop(0)
            self.results.append((tool_id, json.loads(report)))
        return ResultAck(success=True, tool_id=tool_id, status=ExecutionStatus.COMPLETED, message="")

    async def post_output(self, project_id: str, tool_id: str, chunk: OutputChunk) -> None:
        async with self.changed:
            self.changed.notify_all()
            self.output.append(chunk)
        if self.output_failure is not None:
            raise self.output_failure

    async def get_tool(self, tool_id: str) -> Execution:
        self.asked.append(tool_id)
        if isinstance(self.status, Exception):
            raise self.status
        return Execution.model_construct(id=tool_id, status=self.status)

    async def approve(self, project_id: str, approval_id: str, body: ApproveBody) -> DecisionAnswer:
        return await self._decide(approval_id, "approved", body.digest)

    async def reject(self, project_id: str, approval_id: str, body: RejectBody) -> DecisionAnswer:
        return await self._decide(approval_id, "rejected", body.reason)

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

    async def report(self, tool_id: str) -> dict[str, Any]:
        """The report of one call, once it is there."""
        await self.until(lambda: any(tool_id == posted for posted, _ in self.results))
        return next(report for posted, report in self.results if posted == tool_id)


HandlerFactory = Callable[..., Awaitable[ToolHandler]]


@pytest.fixture
def signal() -> Callable[..., ExecutionSignal]:
    return make_signal


@pytest.fixture
def approved() -> Callable[..., ExecutionSignal]:
    return make_approved


@pytest.fixture
def cancel() -> Callable[..., ExecutionCancelSignal]:
    return make_cancel


@pytest.fixture
def request_event() -> Callable[..., ApprovalRequested]:
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
async def make_handler(tmp_path: Path, root: Path, link: RecordingLink) -> AsyncIterator[HandlerFactory]:
    """Builds handlers on the real workspace, and ends them all."""
    ends: list[Callable[[], Awaitable[None]]] = []

    async def make(*, prompt: Any = None, state: str = "state", **settings: Any) -> ToolHandler:
        chosen = ClientSettings(home=tmp_path / "home", **settings)
        workspace = Workspace(root, chosen)
        journal = Journal(tmp_path / state)
        handler = ToolHandler(
            settings=chosen,
            project_id=PROJECT,
            client_id=CLIENT,
            workspace=workspace,
            gate=Gate(),
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
async def handler(make_handler: HandlerFactory) -> ToolHandler:
    return await make_handler()
