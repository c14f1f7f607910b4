"""The shipped configurations in the real nginx and Caddy: TLS, who asks, streams, sizes, times, and other servers."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from byleave.server.serving import BODY_SECONDS
from byleave.settings import ServerSettings
from harness.http_server import User
from harness.json_values import JsonObject
from harness.proxies import DEPLOY, KINDS, NAME, Kind, Proxy, in_front_of, program
from harness.signing import page_cookie, page_headers

from .conftest import Behind, Deployed, behind_proxy, skip_without

pytestmark = pytest.mark.parametrize("kind", KINDS)

FORGED = {
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Proto": "http",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Port": "1",
    "X-Real-IP": "203.0.113.9",
    "Forwarded": "for=203.0.113.9;proto=http;host=evil.example",
}


async def _sign_in(deployed: Deployed, headers: dict[str, str] | None = None) -> tuple[str, str]:
    code = await deployed.server.parts.sign_in.new_code("alice")
    answer = await deployed.visitor().get(f"/signin?code={code}", headers={"Authorization": "", **(headers or {})})
    assert answer.status == 200, answer.text
    assert "max-age" in answer.headers["Strict-Transport-Security"]
    return answer.headers["Set-Cookie"], answer.text


async def test_page_works_through_tls_with_a_secure_cookie(behind: Behind, kind: Kind) -> None:
    async with behind(kind) as deployed:
        signed = await _sign_in(deployed)
        cookie = page_cookie(signed[0])
        assert (cookie["secure"], cookie.key) == (True, f"byleave_session_{deployed.proxy.port}")
        own = {"Authorization": "", **page_headers(*signed)}
        visitor = deployed.visitor()
        posted = await visitor.post("/my/projects", {"name": "x"}, headers={**own, "Origin": deployed.proxy.url})
        assert posted.status == 201, posted.text
        for origin in ("https://evil.example", f"http://{NAME}:{deployed.proxy.port}", f"https://{NAME}"):
            refused = await visitor.post("/my/projects", {"name": "x"}, headers={**own, "Origin": origin})
            assert refused.status == 403, origin


async def test_what_a_sender_forges_does_not_pass_the_proxy(behind: Behind, kind: Kind) -> None:
    async with behind(kind) as deployed:
        assert page_cookie((await _sign_in(deployed, FORGED))[0])["secure"] is True
        with capture_logs() as logs:
            assert (await deployed.user().post("/my/projects", {"name": "x"}, headers=FORGED)).status == 201
        assert [line["address"] for line in logs if line["event"] == "request"] == ["127.0.0.1"]


async def test_event_arrives_at_once(behind: Behind, kind: Kind) -> None:
    async with behind(kind) as deployed:
        alice = deployed.user()
        project = await alice.project()
        async with alice.feed(project) as feed, alice.machine(project) as signals:
            await feed.until("project.machines")
            tool_id, _ = await alice.question(project)
            assert (await feed.until("tool.approval_request")).data["tool_id"] == tool_id
            assert (await alice.execute(project, "read_file", {"path": "a.txt"})).json["status"] == "completed"
            assert len(signals) == 1


async def test_reader_that_leaves_is_not_kept_by_the_proxy(behind: Behind, kind: Kind) -> None:
    async with behind(kind) as deployed:
        alice = deployed.user()
        project = await alice.project()
        async with alice.feed(project) as feed:
            assert deployed.server.parts.streams.count() == 1
            connection = feed.response.connection
            assert connection is not None
            assert connection.transport is not None
            connection.transport.abort()  # as a browser does; Python's TLS would wait for a goodbye
        async with asyncio.timeout(10):
            while deployed.server.parts.streams.count():
                await asyncio.sleep(0.01)


async def test_body_over_a_limit_is_413(behind: Behind, kind: Kind) -> None:
    async with behind(kind) as deployed:
        ours = await deployed.user().post("/my/projects", {"name": "x" * 2 * 1024 * 1024})
        assert (ours.status, ours.json["title"]) == (413, "Request Entity Too Large"), "in our form"
        project = await deployed.user().project()
        large = "x" * 4 * 1024 * 1024
        taken = await deployed.user().execute(project, "write_file", {"path": "a.txt", "content": large})
        assert (taken.status, taken.json["status"]) == (200, "awaiting_approval")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", deployed.proxy.port, ssl=deployed.proxy.trust, server_hostname=NAME
        )
        head = (
            f"POST /my/tools/execute HTTP/1.1\r\nHost: {NAME}:{deployed.proxy.port}\r\n"
            f"Authorization: Bearer {deployed.user().token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {ServerSettings().max_payload_bytes + 1}\r\n\r\n"
        )
        writer.write(head.encode())
        pouring = asyncio.create_task(_pour(writer))  # Caddy passes an answer on only while it gets more
        try:
            async with asyncio.timeout(10):
                assert b" 413 " in await reader.readline()
        finally:
            writer.transport.abort()
            pouring.cancel()
            await asyncio.gather(pouring, return_exceptions=True)


async def _pour(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b" " * 64 * 1024)
        await writer.drain()


async def test_long_waits_are_not_cut(kind: Kind) -> None:
    skip_without(kind)
    settings, minute = ServerSettings(), 60
    if kind == "nginx":
        text = (DEPLOY / "nginx.conf").read_text()
        read, send = (int(re.findall(rf"proxy_{name}_timeout (\d+)s;", text)[0]) for name in ("read", "send"))
        idle = int(re.findall(r"keepalive_timeout (\d+)s;", text)[0])
        assert read > max(settings.max_wait_seconds, settings.heartbeat_seconds, minute)
        assert send > BODY_SECONDS
    else:
        config = await asyncio.to_thread(_adapted)
        (server,) = config["apps"]["http"]["servers"].values()
        # What limits a request as a whole, or the time until it is answered.
        assert not {"read_timeout", "write_timeout"} & set(server)
        text = json.dumps(config)
        assert not re.search(r'"(response_header_timeout|read_timeout|write_timeout|stream_timeout)"', text)
        idle = json.loads(re.findall(r'"keep_alive": \{"idle_timeout": (\d+)\}', text)[0]) / 1e9
    assert idle < 75, "servers close an idle connection then"


def _adapted() -> JsonObject:
    caddy = program("caddy") or ""
    command = [caddy, "adapt", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


async def test_wait_ends_with_its_answer(behind: Behind, kind: Kind) -> None:
    async with behind(kind) as deployed:
        alice = deployed.user()
        project = await alice.project()
        tool_id, approval_id = await alice.question(project)
        waiting = asyncio.create_task(alice.get(f"/my/tools/{tool_id}?wait=60"))
        async with alice.machine(project):
            answer = await alice.post(f"/my/approvals/{approval_id}/confirm", {"decision": "approved"})
            assert answer.status == 200, answer.text
            assert (await waiting).json["status"] == "completed"


async def test_metrics_and_other_names_are_not_passed_on(behind: Behind, kind: Kind) -> None:
    async with behind(kind) as deployed:
        assert (await deployed.user().get("/metrics")).status == 404
        with pytest.raises(OSError, match=r"(?i)alert|unrecognized|handshake"):
            await asyncio.open_connection(
                "127.0.0.1", deployed.proxy.port, ssl=deployed.proxy.trust, server_hostname="other.example"
            )
        plain = f"http://{NAME}:{deployed.proxy.plain_port}/signin?code=x"
        async with deployed.session.get(plain, allow_redirects=False) as answer:
            assert answer.status in (301, 308)
            assert answer.headers["Location"].startswith("https://")


async def test_codes_of_links_are_not_in_the_proxys_logs(behind: Behind, kind: Kind) -> None:
    async with behind(kind) as deployed:
        await deployed.visitor().get("/signin?code=a-secret-code", headers={"Authorization": ""})
        await deployed.user().get("/my/me")
        directory, process = deployed.proxy.directory, deployed.proxy.process
        process.terminate()
        await process.wait()
        assert "a-secret-code" not in "".join(path.read_text() for path in directory.glob("*.log"))
        if kind == "nginx":
            assert "/signin" in deployed.proxy.log()


@asynccontextmanager
async def _session_to(
    kind: Kind, directory: Path, ports: list[int]
) -> AsyncGenerator[tuple[Proxy, aiohttp.ClientSession]]:
    async with in_front_of(kind, directory, ports) as proxy, proxy.session() as session:
        yield proxy, session


class Upstream:
    """Takes requests, and ends the connection of each without an answer: it dies in the middle of its work."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.port = 0
        self.is_well = False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"(?i)content-length: (\d+)", head)
            if length:
                await reader.readexactly(int(length[1]))
            method, path = head.split(" ")[:2]
            if path == "/readyz":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                return
            self.got.append(method)
            if self.is_well:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nwell")
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def _upstreams(count: int) -> AsyncGenerator[list[Upstream]]:
    async with AsyncExitStack() as stack:
        found = [Upstream() for _ in range(count)]
        for each in found:
            server = await stack.enter_async_context(await asyncio.start_server(each.handle, "127.0.0.1", 0))
            each.port = server.sockets[0].getsockname()[1]
        yield found


async def test_call_that_was_sent_is_never_sent_to_another_server(kind: Kind, tmp_path: Path) -> None:
    skip_without(kind)
    async with (
        _upstreams(3) as upstreams,
        _session_to(kind, tmp_path / kind, [one.port for one in upstreams]) as (proxy, session),
    ):
        async with session.post(f"{proxy.url}/my/tools/execute", data=b'{"a": 1}') as answer:
            assert answer.status == 502
        assert [method for one in upstreams for method in one.got] == ["POST"], "it may have begun there"


async def test_read_is_asked_of_another_server(kind: Kind, tmp_path: Path) -> None:
    skip_without(kind)
    async with (
        _upstreams(3) as upstreams,
        _session_to(kind, tmp_path / kind, [one.port for one in upstreams]) as (proxy, session),
    ):
        upstreams[1].is_well = True
        for _ in range(6):
            async with session.get(f"{proxy.url}/my/projects") as answer:
                assert (answer.status, await answer.text()) == (200, "well")
        assert sum(len(one.got) for one in upstreams) > 6, "some went to a broken one first"


async def test_server_that_is_not_there_is_skipped_also_by_calls(kind: Kind, tmp_path: Path) -> None:
    skip_without(kind)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(behind_proxy(tmp_path / str(number))) for number in range(2)]
        ports = [server.listening.port for server in servers]
        proxy, session = await stack.enter_async_context(_session_to(kind, tmp_path / kind, [*ports, ports[0]]))
        alice = User(proxy.url, session, servers[0].user().token)
        servers[0].listening.stop()
        await servers[0].task
        # The first ones may take up connections that the proxy kept open to it; only they may be sent twice.
        for _ in range(10):
            assert (await alice.get("/my/me")).status == 200
        for _ in range(10):
            assert (await alice.post("/my/projects", {"name": "x"})).status == 201


async def test_stream_that_a_draining_server_refuses_opens_at_another(kind: Kind, tmp_path: Path) -> None:
    skip_without(kind)
    async with behind_proxy(tmp_path / "0") as first:
        answer = await first.user().post("/my/projects", {"name": "x"}, headers={"Host": NAME})
        project = answer.json["project_id"]
    shutil.copytree(tmp_path / "0", tmp_path / "1")  # both know the project
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(behind_proxy(tmp_path / str(number), drain_seconds=600))
            for number in range(2)
        ]
        for server in servers:
            stack.callback(server.task.cancel)
        ports = [server.listening.port for server in servers]
        proxy, session = await stack.enter_async_context(_session_to(kind, tmp_path / kind, ports))
        alice = User(proxy.url, session, servers[1].user().token)
        servers[0].listening.stop()
        async with asyncio.timeout(10):
            await servers[0].parts.draining.wait()
            if kind == "caddy":  # it asks every two seconds who is ready
                while "unhealthy" not in proxy.log() and "status code out of tolerances" not in proxy.log():
                    await asyncio.sleep(0.02)
        for _ in range(8):
            async with alice.feed(project):
                pass
