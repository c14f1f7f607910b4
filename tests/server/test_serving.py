"""Starting and stopping: a clear word when it cannot start, and an end that is quick and in order."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from pydantic import SecretStr

from byleave.bus import MemoryBus
from byleave.protocol.errors import ConfigurationError
from byleave.server import Listening, create_app, serve, serving
from byleave.server import services as parts
from byleave.settings import ServerSettings
from byleave.store.ledger import feed_topic
from harness.http_server import Server, StartServer
from harness.trouble import damage

SECRET = "a secret of the tests, long enough to be one"


async def test_stop_with_open_streams_and_waiting_requests_is_quick(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    tool_id, _ = await alice.question(project)
    async with alice.feed(project) as feed, alice.feed(project, "client=laptop") as machine:
        for reader in (feed, machine):
            await reader.until("project.machines")
        waiting = asyncio.create_task(alice.get(f"/my/tools/{tool_id}?wait=60"))
        bus = server.parts.bus
        assert isinstance(bus, MemoryBus)
        async with asyncio.timeout(10):
            while tool_id not in bus._listeners:
                await asyncio.sleep(0.01)
        began = time.monotonic()
        server.listening.stop()
        await server.task
        assert time.monotonic() - began < 5
        assert (await waiting).json["status"] == "awaiting_approval"
        # Nor is it told that the machine left: it did not, we did.
        assert await feed.raw() is None
        assert await machine.raw() is None
    assert server.parts.streams.count() == 0


async def test_stop_answers_a_call_that_waits_for_a_machine(start_server: StartServer) -> None:
    first = await start_server()
    alice = first.user()
    project = await alice.project()
    calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}, idempotency_key="one"))
    async with alice.feed(project, last=0) as feed:
        await feed.until("tool.started")
    began = time.monotonic()
    first.listening.stop()
    await first.task
    assert time.monotonic() - began < 5
    answer = await calling
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    assert "idempotency_key" in answer.json["hint"]
    second = await start_server()
    alice = second.user()
    async with alice.machine(project) as signals:
        again = await alice.execute(project, "read_file", {"path": "a.txt"}, idempotency_key="one")
    assert again.json["status"] == "completed"
    assert len(signals) == 1
    second.parts.closing.set()
    late = await alice.execute(project, "read_file", {"path": "a.txt"})
    assert (late.status, late.json["detail"]) == (503, "The server is shutting down.")


async def test_what_waited_is_there_again_after_a_restart(start_server: StartServer) -> None:
    first = await start_server()
    alice = first.user()
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    first.listening.stop()
    await first.task
    second = await start_server()
    alice = second.user()
    async with alice.machine(project):
        assert (await alice.post(f"/my/approvals/{approval_id}/confirm", {"decision": "approved"})).status == 200
        assert (await alice.get(f"/my/tools/{tool_id}?wait=10")).json["status"] == "completed"


async def test_cancelling_the_one_who_serves_still_ends_in_order(tmp_path: Path) -> None:
    settings = ServerSettings(home=tmp_path, secret=SecretStr(SECRET))
    ready: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(settings, "127.0.0.1", 0, ready=ready.set_result))
    listening = await ready
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert listening.parts.closing.is_set()
    with pytest.raises(ConfigurationError, match="closed"):
        await listening.parts.store.feed.head("x")


async def test_second_request_to_stop_does_not_wait_for_requests(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = server.user()
    project = await alice.project()
    calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
    async with alice.feed(project, last=0) as feed:
        await feed.until("tool.started")
    began = time.monotonic()
    server.listening.stop()
    async with asyncio.timeout(10):
        while not server.parts.closing.is_set():
            await asyncio.sleep(0.01)
    server.task.cancel()
    await asyncio.gather(server.task, return_exceptions=True)
    assert time.monotonic() - began < 5
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)


async def test_port_that_is_taken_and_a_host_that_is_not_ours_are_said(tmp_path: Path) -> None:
    settings = ServerSettings(home=tmp_path, secret=SecretStr(SECRET))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"Cannot listen on 127.0.0.1:{port}") as told:
            await serve(settings, "127.0.0.1", port)
        assert "--port" in (told.value.hint or "")
    for host, number, said in (
        ("192.0.2.1", 0, "Cannot listen"),
        ("x" * 300, 0, "Cannot listen"),
        ("::1", 99999, "port"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            await serve(settings, host, number)


async def test_second_server_on_the_same_record_is_refused_and_leaves_the_port(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConfigurationError, match="in use"):
        await serve(server.settings, "127.0.0.1", port)
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_settings_that_are_wrong_stop_it_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too short"):
        await serve(ServerSettings(home=tmp_path, secret=SecretStr("short")), "127.0.0.1", 0)
    assert not (tmp_path / "byleave.db").exists()


async def test_worker_that_cannot_start_closes_what_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def start(self) -> None:
            raise ConfigurationError("No such model.")

    monkeypatch.setattr(parts, "RunWorker", Broken)
    settings = ServerSettings(home=tmp_path, secret=SecretStr(SECRET))
    with pytest.raises(ConfigurationError, match="No such model"):
        await parts.open_services(settings)
    monkeypatch.setattr(parts, "RunWorker", None)
    opened = await parts.open_services(settings)
    await opened.close()


async def test_app_opens_and_closes_its_own_parts_when_it_is_given_none(tmp_path: Path) -> None:
    app = create_app(ServerSettings(home=tmp_path, secret=SecretStr(SECRET)))
    async with app.router.lifespan_context(app):
        opened = app.state.parts
        assert await opened.store.feed.head("x") == 0
    assert opened.closing.is_set()
    async with create_app(opened.settings, parts=opened).router.lifespan_context(app):
        pass


async def test_connection_that_says_nothing_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.02)
    host, port = server.listening.host, server.listening.port
    for start in (b"", b"GET / HTTP/1.1\r\nHost: 127."):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(start)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


def test_server_may_open_all_the_files_the_system_allows_and_says_when_they_run_out(tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 120))

    process = subprocess.Popen(
        [sys.executable, "-m", "byleave.cli.main", "serve", "--port", "0"],
        env={**os.environ, "BYLEAVE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=few,
    )
    assert process.stdout is not None
    with process:
        try:
            ready = next(line for line in process.stdout if "Byleave is ready at" in line)
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (120, 120)
            host, port = ready.split("http://")[1].strip().split(":")
            with contextlib.ExitStack() as connections:
                for _ in range(120):
                    connections.enter_context(socket.create_connection((host, int(port))))
                assert any("file descriptors run out" in line for line in process.stdout)
        finally:
            process.terminate()


async def test_time_that_ran_out_inside_is_not_taken_for_the_servers_end(server: Server) -> None:
    with pytest.raises(TimeoutError):
        async with server.parts.until_closing("Ask again."):
            raise TimeoutError
    assert server.parts.waiting == set()


def test_making_a_token_loads_no_server() -> None:
    program = """
import sys
from byleave.server import issue_token
heavy = {"fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "pydantic_ai"} & set(sys.modules)
assert not heavy, heavy
import byleave.server
assert not hasattr(byleave.server, "nothing")
for name in byleave.server.__all__:
    getattr(byleave.server, name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


PROGRAM = """
import sys
from pathlib import Path
from byleave.server import run_server
from byleave.settings import ServerSettings
run_server(ServerSettings(home=Path(sys.argv[1])), "127.0.0.1", 0, ready=lambda it: print(it.url, flush=True))
print("ended in order", flush=True)
"""


def _serving(home: Path) -> tuple["subprocess.Popen[str]", str]:
    """A server as a whole process, and where it listens."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(home)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    return process, next(line.strip() for line in process.stdout if line.startswith("http://127.0.0.1:"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_process_ends_in_order_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    process, _ = _serving(tmp_path)
    process.send_signal(number)
    rest, _ = process.communicate(timeout=30)
    assert "ended in order" in rest
    assert process.returncode == 0


def test_process_that_is_to_outlive_its_terminal_does(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        process, url = _serving(tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    with urllib.request.urlopen(f"{url}/healthz", timeout=30) as answer:
        assert answer.status == 200
    process.terminate()
    assert "ended in order" in process.communicate(timeout=30)[0]


async def test_damaged_record_is_told_and_the_server_is_not_ready(start_server: StartServer) -> None:
    first = await start_server()
    first.listening.stop()
    await first.task
    damage(first.settings.home / "byleave.db", "audit")
    server = await start_server()
    alice = server.user()
    assert (await alice.get("/readyz")).status == 200, "nobody has met the damage yet"
    told = (
        (await alice.post("/my/projects", {"name": "demo"}), "malformed"),
        (await alice.get("/readyz"), "The record is damaged"),
    )
    for answer, sentence in told:
        assert (answer.status, sentence in answer.json["detail"]) == (503, True)
        assert "backup" in answer.json["hint"]


@pytest.mark.promise("D")
async def test_call_whose_record_could_not_be_flushed_is_never_run_and_not_called_undone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "client=laptop") as feed:
        _, approval_id = await alice.question(project)
        await feed.until("tool.approval_request")

        def fail(descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("os.fdatasync", fail)
        answer = await alice.post(f"/my/approvals/{approval_id}/confirm", {"decision": "approved"})
        assert (answer.status, "not known" in answer.json["detail"]) == (503, True)
        assert "disk" in answer.json["hint"]
        server.parts.bus.publish(feed_topic(project))  # whatever makes the stream look
        with pytest.raises(AssertionError, match="the stream ended"):
            await feed.until("tool.execution_signal")
    told = (
        (await alice.get("/readyz"), "cannot be read or written"),
        (await alice.post("/my/projects", {"name": "later"}), "since a flush failed"),
    )
    for later, sentence in told:
        assert (later.status, sentence in later.json["detail"]) == (503, True)
        assert "restart the server" in later.json["hint"]


async def test_server_that_meets_damage_as_it_starts_says_so(start_server: StartServer) -> None:
    first = await start_server()
    first.listening.stop()
    await first.task
    damage(first.settings.home / "byleave.db", "ix_runs_open")
    with pytest.raises(ConfigurationError, match="malformed") as refusal:
        await start_server()
    assert "backup" in (refusal.value.hint or "")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux")
async def test_connection_of_a_machine_that_vanished_ends_by_itself(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []

    def look(self: serving.Descriptors, descriptor: int) -> None:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            waits = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            taken.append((waits, connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)))

    monkeypatch.setattr(serving.Descriptors, "taken", look)
    _, writer = await asyncio.open_connection(server.listening.host, server.listening.port)
    async with asyncio.timeout(10):
        while not taken:
            await asyncio.sleep(0.01)
    writer.close()
    assert taken == [(60_000, 1)], "the system gives up after a minute in which nothing was acknowledged"
