"""Clients whose state was copied or restored: of two with one identity only the latest start gets calls."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from byleave.calls import neighbours
from byleave.calls.machines import ConnectedClient
from byleave.client.connection import ClientConnection, connect_client
from byleave.client.identity import client_directory
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.generation import Generation
from byleave.protocol.states import Scope
from byleave.settings import ClientSettings
from harness.http_server import Feed, Server, StartServer, User
from harness.options import ServerOptions
from harness.ports import free_port
from harness.postgres import PostgresServer

pytestmark = [pytest.mark.promise("X22", "D"), pytest.mark.timeout(120)]

LAPTOP = "client=laptop&workspace=/home/someone/code&isolation=bubblewrap"
A, B = "a" * 32, "b" * 32


@pytest.fixture(params=["one server", "two servers", "two servers that hear nothing of each other"])
def shared(request: pytest.FixtureRequest) -> Generator[ServerOptions | None]:
    """What two servers share; None for one server with a record of its own."""
    if request.param == "one server":
        yield None
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    with postgres.database() as url:
        bus_url = f"nats://127.0.0.1:{free_port()}" if "hear" in request.param else None  # where nobody listens
        yield {"database_url": url, "bus_url": bus_url, "heartbeat_seconds": 0.5}


@pytest.fixture
async def servers(shared: ServerOptions | None, start_server: StartServer) -> tuple[Server, Server]:
    """The servers of the original and of the copy."""
    if shared is None:
        server = await start_server(heartbeat_seconds=0.5)
        return server, server
    return await start_server(**shared), await start_server(**shared)


class Machine:
    """A home and a workspace, and the client that is started there."""

    def __init__(self, root: Path, server: Server, user: User, project: str) -> None:
        self.server, self.project = server, project
        self.workspace = root / "ws"
        self.workspace.mkdir(parents=True)
        self._settings = ClientSettings(home=root / "home", server_url=server.url, token=user.token)  # pyright: ignore[reportArgumentType]
        self.state = client_directory(self._settings.home, server.url, project, self.workspace)
        self.connection: ClientConnection | None = None
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Start the client; its id once it is connected."""
        self.connection = connect_client(self._settings, self.project, self.workspace)
        self.task = asyncio.create_task(self.connection.run())
        opened = asyncio.create_task(self.connection.connected.wait())
        async with asyncio.timeout(60):
            await asyncio.wait((opened, self.task), return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if self.task.done():
            await self.task
        return self.connection.client_id

    async def ended(self) -> ConfigurationError:
        """The words in which the client ended by itself."""
        assert self.task is not None
        async with asyncio.timeout(60):
            with pytest.raises(ConfigurationError) as told:
                await self.task
        await self.stop()
        return told.value

    async def refused(self) -> ConfigurationError:
        """The words in which a start is refused."""
        with pytest.raises(ConfigurationError) as told:
            await self.start()
        await self.stop()
        return told.value

    async def stop(self) -> None:
        if self.task is not None and self.connection is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            await self.connection.close()
        self.task = self.connection = None


@pytest.fixture
async def machines(servers: tuple[Server, Server], tmp_path: Path) -> AsyncGenerator[tuple[Machine, Machine]]:
    user = servers[0].user()
    project = await user.project()
    both = [Machine(tmp_path / f"machine-{n}", server, user, project) for n, server in enumerate(servers)]
    yield both[0], both[1]
    for machine in both:
        await machine.stop()


def copied(machine: Machine, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(machine.state, target)


async def append(server: Server, project: str) -> str:
    """Have an approved write run; how it ended."""
    agent, person = server.user(scopes=(Scope.AGENT,)), server.user()
    params = {"path": "log.txt", "content": "x\n", "mode": "append"}
    asked = await agent.execute(project, "write_file", params)
    tool_id = asked.json["tool_id"]
    async with asyncio.timeout(30):
        while not (waiting := (await person.get("/my/approvals")).json["approvals"]):
            await asyncio.sleep(0.05)
    path = f"/my/projects/{project}/approvals/{waiting[0]['id']}/approve"
    assert (await person.post(path, {"decision": "approved"})).status == 200
    return (await agent.get(f"/my/tools/{tool_id}?wait=30")).json["status"]


def lines(machine: Machine) -> int:
    log = machine.workspace / "log.txt"
    return len(log.read_text().splitlines()) if log.exists() else 0


COPIED = "This client's state was copied or restored"


async def test_copy_of_a_client_is_refused_and_a_call_runs_on_one_machine(machines: tuple[Machine, Machine]) -> None:
    original, copy = machines
    client_id = await original.start()
    await original.stop()
    copied(original, copy.state)  # the machine was cloned
    assert await original.start() == client_id
    told = await copy.refused()
    assert COPIED in told.message
    assert "start it again" in (told.hint or "")
    assert await append(copy.server, copy.project) == "completed"
    assert (lines(original), lines(copy)) == (1, 0)
    other_id = await copy.start()
    assert other_id != client_id
    assert original.task is not None
    assert not original.task.done()
    for server in (original.server, copy.server):
        person = server.user()
        async with asyncio.timeout(20):
            while {each["client_id"] for each in await connected(person, original.project)} != {client_id, other_id}:
                await asyncio.sleep(0.05)
    assert await append(copy.server, copy.project) == "completed"
    assert lines(original) + lines(copy) == 2


async def connected(person: User, project: str) -> list[dict[str, str]]:
    return (await person.get(f"/my/projects/{project}/machines")).json["machines"]


async def test_copy_of_a_running_client_takes_its_place_and_the_original_ends_in_words(
    machines: tuple[Machine, Machine],
) -> None:
    original, copy = machines
    client_id = await original.start()
    assert await append(original.server, original.project) == "completed"
    copied(original, copy.state)
    assert await copy.start() == client_id
    assert COPIED in (await original.ended()).message
    assert await append(original.server, original.project) == "completed"
    assert (lines(original), lines(copy)) == (1, 1)
    assert await original.start() != client_id


async def test_restarted_client_goes_on(machines: tuple[Machine, Machine]) -> None:
    machine, _ = machines
    known = {await machine.start()}
    for number in range(1, 4):
        assert await append(machine.server, machine.project) == "completed"
        assert lines(machine) == number
        await machine.stop()
        known.add(await machine.start())
    assert len(known) == 1


async def test_restored_state_is_refused_and_then_comes_as_a_new_client(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    machine, _ = machines
    client_id = await machine.start()
    await machine.stop()
    copied(machine, tmp_path / "backup")
    for _ in range(2):
        assert await machine.start() == client_id
        await machine.stop()
    shutil.rmtree(machine.state)
    shutil.copytree(tmp_path / "backup", machine.state)
    assert COPIED in (await machine.refused()).message
    assert await machine.start() != client_id
    assert await append(machine.server, machine.project) == "completed"


async def test_reconnects_of_one_process_are_never_refused(machines: tuple[Machine, Machine]) -> None:
    machine, _ = machines
    client_id = await machine.start()
    assert machine.connection is not None
    for _ in range(3):
        machine.connection.connected.clear()
        streams = [stream for each in machine.server.parts.streams._streams.values() for stream in each]  # pyright: ignore[reportPrivateUsage]
        for stream in streams:
            stream.close()
        async with asyncio.timeout(20):
            await machine.connection.connected.wait()
    assert machine.connection.client_id == client_id
    assert await append(machine.server, machine.project) == "completed"
    assert lines(machine) == 1


# What a server does with generations


def key(generation: str | None) -> dict[str, str]:
    return {"Byleave-Client-Key": "k" * 64, **({} if generation is None else {"Byleave-Generation": generation})}


def opened(user: User, project: str, generation: str | None):
    return user.feed(project, LAPTOP, **{name.replace("-", "_"): value for name, value in key(generation).items()})


async def until_ended(feed: Feed) -> list[str]:
    """The kinds of all events until the stream ends."""
    async with asyncio.timeout(30):
        return [frame.kind async for frame in feed.frames()]


async def test_call_in_flight_at_an_earlier_generation_is_not_signalled_to_the_later_one(
    servers: tuple[Server, Server],
) -> None:
    one, other = servers
    user = one.user()
    project = await user.project()
    agent = one.user(scopes=(Scope.AGENT,))
    async with opened(user, project, f"1-{A}") as first:
        calling = asyncio.create_task(agent.execute(project, "read_file", {"path": "a.txt"}))
        tool_id = (await first.until("tool.execution_signal")).data["tool_id"]
        if one is not other:
            async with asyncio.timeout(20):
                while not await connected(other.user(), project):
                    await asyncio.sleep(0.05)
        async with opened(other.bearer(user.token), project, f"2-{B}") as second:
            assert "tool.execution_signal" not in await until_ended(first)
            answer = (await calling).json
            assert answer["error_type"] == "interrupted"
            assert "may or may not have had its effect" in answer["error"]
            path = f"/my/projects/{project}/tools/{tool_id}/result"
            late = {"status": "completed", "result": {"success": True, "content": "hello"}}
            taken = await user.post(path, late, headers={**key(f"1-{A}"), "Byleave-Client": "laptop"})
            assert taken.status == 200, taken.text
            calling = asyncio.create_task(agent.execute(project, "read_file", {"path": "b.txt"}))
            assert (await second.until("tool.execution_signal")).data["tool_params"]["path"] == "b.txt"
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)


async def test_signal_that_a_stopped_client_never_acted_on_comes_again_after_its_restart(server: Server) -> None:
    user = server.user()
    project = await user.project()
    agent = server.user(scopes=(Scope.AGENT,))
    async with opened(user, project, f"1-{A}") as first:
        calling = asyncio.create_task(agent.execute(project, "read_file", {"path": "a.txt"}))
        tool_id = (await first.until("tool.execution_signal")).data["tool_id"]
    async with asyncio.timeout(20):
        while await connected(user, project):
            await asyncio.sleep(0.02)
    async with opened(user, project, f"2-{B}") as second:
        assert (await second.until("tool.execution_signal")).data["tool_id"] == tool_id
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)


@pytest.mark.parametrize("generation", [f"4-{A}", f"5-{B}"])
async def test_earlier_generation_and_one_that_counts_alike_are_refused_without_a_trace(
    server: Server, generation: str
) -> None:
    user = server.user()
    project = await user.project()
    stream, policy = f"/my/projects/{project}/chat/stream?{LAPTOP}", f"/my/projects/{project}/policy"
    rules = {"client_id": "laptop", "layers": [{"layer": "user", "source": "mine", "text": ""}], "unable": {}}
    async with opened(user, project, f"5-{A}") as feed:
        assert (await user.send("PUT", policy, rules, headers=key(f"5-{A}"))).status == 204
        for refused in (
            await user.get(stream, headers=key(generation)),
            await user.send("PUT", policy, {**rules, "layers": []}, headers=key(generation)),
        ):
            assert (refused.status, refused.json["state"]) == (409, "superseded")
            assert COPIED in refused.json["detail"]
        assert "mine" in (await user.get(policy)).text
        async with opened(user, project, f"5-{A}"), opened(user, project, None):
            agent = server.user(scopes=(Scope.AGENT,))
            calling = asyncio.create_task(agent.execute(project, "read_file", {"path": "a.txt"}))
            await feed.until("tool.execution_signal")
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)


async def test_declaring_rules_takes_nobodys_place(server: Server) -> None:
    user = server.user()
    project = await user.project()
    policy = f"/my/projects/{project}/policy"
    rules = {"client_id": "laptop", "layers": [], "unable": {}}
    async with opened(user, project, f"1-{A}"):
        assert (await user.send("PUT", policy, rules, headers=key(f"2-{B}"))).status == 204
        async with opened(user, project, f"1-{A}"):
            pass


async def test_later_generation_waits_until_the_streams_of_the_earlier_have_ended(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "GONE_SECONDS", 0.05)
    user = server.user()
    project = await user.project()
    async with opened(user, project, f"1-{A}"):
        pass
    earlier = ConnectedClient("laptop", project, declared=True, generation=Generation(1, A))
    leave = server.parts.presence.connect(earlier)  # as a stream that does not end
    answer = await user.get(f"/my/projects/{project}/chat/stream?{LAPTOP}", headers=key(f"2-{B}"))
    assert (answer.status, "still connected" in answer.json["detail"]) == (503, True)
    leave()
    async with opened(user, project, f"2-{B}"):
        pass


@pytest.mark.parametrize("text", ["0-" + A, "1", f"1-{A}0", f"1-{A[1:]}", f"-1-{A}", f"1-{A.upper()}", "9" * 40])
async def test_generation_of_another_form_is_400(server: Server, text: str) -> None:
    user = server.user()
    project = await user.project()
    answer = await user.get(f"/my/projects/{project}/chat/stream?{LAPTOP}", headers=key(text))
    assert (answer.status, "Byleave-Generation" in answer.json["detail"]) == (400, True)
