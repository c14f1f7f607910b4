"""A server's heart without HTTP: store, bus, presence, gate, executor and approvals, wired as the server wires them."""

import asyncio
import json
import posixpath
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from byleave.bus import MemoryBus
from byleave.calls.approvals import ApprovalManager
from byleave.calls.edits import Edits
from byleave.calls.executor import ToolExecutor
from byleave.calls.machines import ConnectedClient, Presence
from byleave.gate import Gate
from byleave.protocol.approvals import ApprovalRequest, Inspection, SeenFile, SeenRole
from byleave.protocol.executions import CompletedReport, FailedReport
from byleave.settings import ServerSettings
from byleave.store import ProjectRow, SessionRow, Store, StoredEvent
from byleave.store.ledger import feed_topic
from harness.json_values import JsonObject
from harness.records import SEAL_KEYS

Report = CompletedReport | FailedReport
Answer = Callable[[JsonObject], Awaitable[Report] | Report]


def completed(**result: object) -> CompletedReport:
    return CompletedReport(status="completed", result={"success": True, **result})


def nothing_there(request: JsonObject) -> Inspection:
    """What a machine says of a write to a new file."""
    path = posixpath.normpath(request["tool_params"]["path"])
    return Inspection(files=[SeenFile(path=path, role=SeenRole.REPLACES, sha256="missing")])


@dataclass
class Desk:
    """Everything up to the wire."""

    store: Store
    bus: MemoryBus
    presence: Presence
    executor: ToolExecutor
    approvals: ApprovalManager
    edits: Edits
    project: ProjectRow
    session: SessionRow

    @asynccontextmanager
    async def client(
        self,
        answer: Answer,
        *,
        client_id: str = "c1",
        workspace: str = "/ws",
        isolation: str = "bwrap",
        sees: Callable[[JsonObject], Inspection | None] = lambda request: None,
        replaces: Callable[[JsonObject], Inspection | None] = nothing_there,
        looks: bool = True,
    ) -> AsyncGenerator[list[JsonObject]]:
        """A connected client that answers signals, and `sees` what calls would run, and what a write `replaces`; yields
        the signals it got."""
        signals: list[JsonObject] = []
        tasks: set[asyncio.Task[None]] = set()

        async def act(signal: JsonObject) -> None:
            report = answer(signal)
            if not isinstance(report, CompletedReport | FailedReport):
                report = await report
            await self.executor.settle(
                signal["tool_id"], report, user_id="alice", project_id=self.project.id, client_id=client_id
            )

        async def look(request: JsonObject) -> None:
            name, params = request["tool_name"], request["tool_params"]
            inspection = (replaces if name == "write_file" else sees)(request)
            if inspection is None and name != "write_file" and not Gate().judge(name, params).verdict.runs:
                inspection = Inspection(files=[])
            if inspection is not None:
                await self.executor.inspected(
                    request["tool_id"], inspection, user_id="alice", project_id=self.project.id, client_id=client_id
                )

        def hear(fact: object | None) -> None:
            assert isinstance(fact, tuple)
            for event in fact:
                assert isinstance(event, StoredEvent)
                if event.target != client_id:
                    continue
                if event.kind == "tool.execution_signal":
                    signals.append(json.loads(event.payload))
                    work = act(signals[-1])
                elif event.kind == "tool.inspection_request":
                    work = look(json.loads(event.payload))
                else:
                    continue
                task = asyncio.create_task(work)
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        stop = self.bus.listen(feed_topic(self.project.id), hear)
        here = ConnectedClient(
            client_id, self.project.id, declared=True, workspace=workspace, isolation=isolation, looks=looks
        )
        leave = self.presence.connect(here)
        await self.executor.client_connected(here, resumed=False)
        try:
            yield signals
        finally:
            leave()
            stop()
            for task in tasks:
                task.cancel()

    async def next_approval(self) -> ApprovalRequest:
        """The oldest approval that waits, as soon as there is one."""
        news = asyncio.Event()
        stop = self.bus.listen(feed_topic(self.project.id), lambda fact: news.set())
        try:
            while not (pending := await self.approvals.get_pending_approvals("alice")):
                async with asyncio.timeout(10):
                    await news.wait()
                news.clear()
            return pending[0]
        finally:
            stop()


@asynccontextmanager
async def open_desk(settings: ServerSettings, gate: Gate | None = None) -> AsyncGenerator[Desk]:
    bus, presence = MemoryBus(), Presence()
    store = await Store.open(settings, seal_keys=SEAL_KEYS, on_commit=bus.publish)
    executor = ToolExecutor(store, bus, presence, gate or Gate(), settings)
    approvals = ApprovalManager(store, bus, presence, executor.long_work)
    projects = await store.chat.projects("alice")
    project = projects[0] if projects else await store.chat.create_project("alice", "demo")
    session = await store.chat.ensure_session("sess_first", "alice", project.id, "first")
    await executor.start()
    try:
        yield Desk(store, bus, presence, executor, approvals, Edits(executor, store, bus, presence), project, session)
        # Whatever a test did through the store, the chain covers it.
        assert [check.fault for check in await store.audit.verify() if check.fault] == []
    finally:
        await executor.stop()
        await store.close()
