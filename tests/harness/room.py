"""A server without HTTP and a real client on a real directory, so that runs can be worked on from end to end."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from pydantic_ai.models import Model

from byleave.agents.worker import RunWorker
from byleave.protocol.approvals import ApprovalRequest
from byleave.protocol.errors import ByleaveError
from byleave.protocol.executions import CompletedReport, FailedReport
from byleave.protocol.states import AgentMode, RunState
from byleave.settings import ServerSettings
from byleave.store import ExecutionRow, RunRow, StoredEvent
from byleave.store.chat import Posted
from byleave.store.executions import HistoryFilter
from byleave.store.ledger import feed_topic
from byleave.workspace.workspace import Workspace
from harness.desk import Desk, open_desk
from harness.json_values import JsonObject
from harness.options import ServerOptions

WAIT_SECONDS = 20


@dataclass
class Room:
    """Posts messages, waits for their ends, reads what came of them."""

    desk: Desk
    root: Path
    settings: ServerSettings
    workspace: Workspace
    workers: list[RunWorker] = field(default_factory=list[RunWorker])

    def worker(self, model: Model | str | None = None, *, concurrency: int = 8) -> RunWorker:
        desk = self.desk
        worker = RunWorker(desk.store, desk.bus, desk.executor, self.settings, model=model, concurrency=concurrency)
        self.workers.append(worker)
        return worker

    async def act(self, signal: JsonObject) -> CompletedReport | FailedReport:
        """Do what a client does with a signal."""
        try:
            result = await self.workspace.run(signal["tool_name"], signal["tool_params"], network=signal["network"])
        except ByleaveError as error:
            return FailedReport(status="failed", error=str(error), error_type=error.error_type)
        return CompletedReport(status="completed", result=result.model_dump(mode="json"))

    async def post(self, content: str, *, session_id: str | None = None, mode: AgentMode = AgentMode.SANDBOX) -> Posted:
        return await self.desk.store.chat.post("alice", self.desk.project.id, content, session_id=session_id, mode=mode)

    async def run(self, run_id: str) -> RunRow:
        return await self.desk.store.runs.get(run_id, user_id="alice")

    async def until(self, run_id: str, *states: RunState) -> RunRow:
        """The run, as soon as it is in one of these states."""
        news = asyncio.Event()
        stop = self.desk.bus.listen(feed_topic(self.desk.project.id), lambda fact: news.set())
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while (run := await self.run(run_id)).state not in states:
                    await news.wait()
                    news.clear()
                return run
        finally:
            stop()

    async def ended(self, run_id: str) -> RunRow:
        return await self.until(run_id, RunState.DONE, RunState.FAILED)

    async def ask(self, content: str, *, session_id: str | None = None, mode: AgentMode = AgentMode.SANDBOX) -> str:
        """Post, wait, and return the agent's answer."""
        posted = await self.post(content, session_id=session_id, mode=mode)
        run = await self.ended(posted.run_id)
        assert run.state is RunState.DONE, run.error
        return await self.answer(posted)

    async def answer(self, posted: Posted) -> str:
        messages = await self.desk.store.chat.messages("alice", posted.session_id)
        answers = [
            message.content for message in messages if message.run_id == posted.run_id and message.role == "agent"
        ]
        assert len(answers) == 1
        return answers[0]

    async def approval(self) -> ApprovalRequest:
        return await self.desk.next_approval()

    async def approve_everything(self) -> None:
        """Approve whatever is asked, until cancelled."""
        while True:
            await self.desk.approvals.approve_tool((await self.approval()).id, "alice")

    async def events(self, kind: str) -> list[JsonObject]:
        found: list[StoredEvent] = []
        seq = 0
        while True:
            page, after, *_ = await self.desk.store.feed.after(self.desk.project.id, seq, client_id=None, limit=500)
            found += page
            if after == seq:
                return [json.loads(event.payload) for event in found if event.kind == kind]
            seq = after

    async def said(self, run_id: str) -> str:
        return "".join(event["text"] for event in await self.events("chat.text") if event["run_id"] == run_id)

    async def executions(self, run_id: str) -> list[ExecutionRow]:
        rows = (await self.desk.store.executions.page(HistoryFilter(user_id="alice", limit=200))).rows
        return [row for row in reversed(rows) if row.run_id == run_id]


@asynccontextmanager
async def open_room(
    home: Path, root: Path, /, *, connect: bool = True, **settings: Unpack[ServerOptions]
) -> AsyncGenerator[Room]:
    """The room, with its client if wanted; workers are the test's to start, and are stopped at the end."""
    options: ServerOptions = {"home": home, "durability": "normal", **settings}
    chosen = ServerSettings(**options)
    root.mkdir(exist_ok=True)
    async with open_desk(chosen) as desk:
        room = Room(desk, root, chosen, Workspace(root))
        try:
            if connect:
                async with desk.client(room.act, workspace=str(root)):
                    yield room
            else:
                yield room
        finally:
            for worker in room.workers:
                await worker.stop()
            await room.workspace.close()
