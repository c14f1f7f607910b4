"""Several servers on one record: whatever is asked of one reaches what is connected to another.

Each test runs with wake-ups through the database, through NATS, through NATS that drops, repeats and reorders them, and
with none at all: a wake-up that gets lost costs seconds and nothing else.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from byleave.bus import MemoryBus
from byleave.protocol.states import Scope
from harness import nats
from harness.http_server import Server, StartServer
from harness.ports import free_port

pytestmark = [pytest.mark.promise("D"), pytest.mark.postgres, pytest.mark.timeout(120)]


LAPTOP = {"Byleave-Client": "laptop"}


def make_rough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what servers hear from each other be dropped, repeated, late and in another order."""
    hear, chance, heard = MemoryBus.hear, random.Random(0), list[str]()

    def roughly(bus: MemoryBus, topics: Iterable[str]) -> None:
        heard.extend(topics)
        hear(bus, chance.choices(heard[-8:], k=chance.randrange(6)))

    monkeypatch.setattr(MemoryBus, "hear", roughly)


@pytest.fixture(params=["notify", "nats", "rough", "none"])
async def servers(
    request: pytest.FixtureRequest, database_url: str, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[tuple[Server, Server]]:
    async with AsyncExitStack() as stack:
        bus_url = None
        if request.param == "rough":
            make_rough(monkeypatch)
        if request.param in ("nats", "rough"):
            if nats.program() is None:
                pytest.skip("NATS is not installed (scripts/setup-tests)")
            bus_url = await stack.enter_async_context(nats.running())
        elif request.param == "none":  # where nobody listens
            bus_url = f"nats://127.0.0.1:{free_port()}"
        one, other = [
            await start_server(database_url=database_url, bus_url=bus_url, heartbeat_seconds=0.5) for _ in range(2)
        ]
        yield one, other


def failed(project: str, tool_id: str) -> dict[str, Any]:
    """A client's report that it stopped."""
    body = {"status": "failed", "error": "It was stopped.", "error_type": "cancelled"}
    return {"path": f"/my/projects/{project}/tools/{tool_id}/result", "body": body}


async def test_a_call_reaches_a_client_of_another_server_and_its_result_comes_back(
    servers: tuple[Server, Server],
) -> None:
    one, other = servers
    project = await one.user().project()
    agent = one.user(scopes=(Scope.AGENT,))
    async with other.user().machine(project) as signals, one.user().feed(project) as page:
        for _ in range(2):
            answer = await agent.execute(project, "read_file", {"path": "a.txt"})
            assert answer.json["status"] == "completed", answer.text
        assert len(signals) == 2
        seen = [frame.seq for frame in await page.take(4)]
        assert seen == sorted(set(seen))


async def test_a_question_is_answered_at_another_server(servers: tuple[Server, Server]) -> None:
    one, other = servers
    project = await one.user().project()
    agent = one.user(scopes=(Scope.AGENT,))
    async with one.user().machine(project), other.user().feed(project) as page:
        tool_id, approval_id = await agent.question(project)
        asked = await page.until("tool.approval_request", approval_id=approval_id)
        assert asked.data["tool_id"] == tool_id
        waiting = asyncio.create_task(agent.get(f"/my/tools/{tool_id}?wait=30"))
        path = f"/my/projects/{project}/approvals/{approval_id}"
        assert (await other.user().post(f"{path}/approve", {"decision": "approved"})).status == 200
        assert (await one.user().post(f"{path}/approve", {"decision": "approved"})).status == 409
        assert (await waiting).json["status"] == "completed"


async def test_a_call_that_waits_goes_to_a_client_that_connects_elsewhere(servers: tuple[Server, Server]) -> None:
    one, other = servers
    project = await one.user().project()
    agent = one.user(scopes=(Scope.AGENT,))
    waiting = asyncio.create_task(agent.execute(project, "read_file", {"path": "a.txt"}))
    async with other.user().feed(project) as page:
        await asyncio.sleep(0)
        async with other.user().machine(project) as signals:
            answer = await waiting
            assert answer.json["status"] == "completed", answer.text
            # The signal may come twice, which its client's journal notices: both servers saw that it was there.
            assert {signal["tool_id"] for signal in signals} == {answer.json["tool_id"]}
            await page.until("project.machines")


async def test_people_see_the_machines_of_all_servers(servers: tuple[Server, Server]) -> None:
    one, other = servers
    project = await one.user().project()

    async def machines(server: Server) -> list[str]:
        answer = await server.user().get(f"/my/projects/{project}/machines")
        return [machine["client_id"] for machine in answer.json["machines"]]

    async def until(server: Server, expected: list[str]) -> None:
        async with asyncio.timeout(20):
            while await machines(server) != expected:
                await asyncio.sleep(0.05)

    async with one.user().feed(project) as page:
        async with one.user().machine(project, "desktop"), other.user().machine(project, "laptop"):
            for server in servers:
                await until(server, ["desktop", "laptop"])
        for server in servers:
            await until(server, [])
        while (await page.until("project.machines")).data["machines"]:
            pass


async def test_a_call_is_cancelled_at_another_server(servers: tuple[Server, Server]) -> None:
    one, other = servers
    project = await one.user().project()
    agent = one.user(scopes=(Scope.AGENT,))
    laptop = other.user()
    async with laptop.feed(project, "client=laptop&workspace=/home/someone/code&isolation=bubblewrap") as client:
        calling = asyncio.create_task(agent.execute(project, "read_file", {"path": "a.txt"}))
        tool_id = (await client.until("tool.execution_signal")).data["tool_id"]
        assert (await one.user().post(f"/my/tools/{tool_id}/cancel")).status == 200
        await client.until("tool.cancel_signal", tool_id=tool_id)
        assert (await one.bearer(laptop.token).post(**failed(project, tool_id), headers=LAPTOP)).status == 200
        assert (await calling).json["error_type"] == "cancelled"


async def test_output_of_a_running_command_is_seen_at_another_server(servers: tuple[Server, Server]) -> None:
    one, other = servers
    project = await one.user().project()
    agent = one.user(scopes=(Scope.AGENT,))
    laptop = other.user()
    async with (
        laptop.feed(project, "client=laptop&workspace=/home/someone/code&isolation=bubblewrap") as client,
        one.user().feed(project) as page,
    ):
        calling = asyncio.create_task(agent.execute(project, "execute_command", {"command": "ls", "args": ["-l"]}))
        tool_id = (await client.until("tool.execution_signal")).data["tool_id"]
        piece = {"stream": "stdout", "text": "hi", "sequence": 0}
        path = f"/my/projects/{project}/tools/{tool_id}/output"
        assert (await laptop.post(path, piece, headers=LAPTOP)).status == 204
        assert (await page.until("tool.output", tool_id=tool_id)).data["text"] == "hi"
        assert (await one.bearer(laptop.token).post(**failed(project, tool_id), headers=LAPTOP)).status == 200
        await calling


async def test_a_run_of_the_chat_goes_on_wherever_it_is_answered(servers: tuple[Server, Server]) -> None:
    one, other = servers
    project = await one.user().project()
    async with other.user().machine(project) as signals, other.user().feed(project) as page:
        body = {"content": "write notes.md: remember the milk"}
        posted = await one.user().post(f"/my/projects/{project}/chat/messages", body)
        assert posted.status in (200, 201, 202), posted.text
        asked = await page.until("tool.approval_request")
        path = f"/my/projects/{project}/approvals/{asked.data['approval_id']}/approve"
        assert (await other.user().post(path, {"decision": "approved"})).status == 200
        while (await page.until("chat.run")).data["state"] != "done":
            pass
        assert len(signals) == 1
