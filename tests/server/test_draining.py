"""A server that is told to stop sends its readers elsewhere, answers what is under way, and then ends."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from harness.forks import untraced_forks
from harness.http_server import Server, StartServer, User
from harness.processes import open_site

LONG = 600.0
"""Longer than any test: only a second request to stop ends it."""


@pytest.fixture
async def draining(start_server: StartServer) -> AsyncIterator[Server]:
    """A server that drains until somebody hurries it."""
    server = await start_server(drain_seconds=LONG)
    yield server
    await _hurry(server)


async def _hurry(server: Server) -> None:
    server.task.cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(server.task, return_exceptions=True)


async def _stop(server: Server) -> None:
    server.listening.stop()
    server.listening.stop()  # asked twice in the same way, it still drains
    async with asyncio.timeout(10):
        await server.parts.draining.wait()


async def test_draining_server_is_alive_but_not_ready(draining: Server) -> None:
    alice = draining.user()
    assert (await alice.get("/readyz")).status == 200
    await _stop(draining)
    answer = await alice.get("/readyz")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json["detail"] == "The server is shutting down."
    assert (await alice.get("/healthz")).status == 200


async def test_streams_end_in_order_and_new_ones_are_sent_elsewhere(start_server: StartServer) -> None:
    server = await start_server(drain_seconds=0.5)
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project) as feed, alice.feed(project, "client=laptop") as machine:
        for reader in (feed, machine):
            await reader.until("project.machines")
        await _stop(server)
        # No gap, no error: each ends at the end of an event, and nobody is told that the machine left.
        assert await feed.raw() is None
        assert await machine.raw() is None
        refused = await alice.get(f"/my/projects/{project}/chat/stream?execute=false")
        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        assert refused.json["detail"] == "The server is shutting down."
    async with asyncio.timeout(10):
        await server.task


async def test_requests_are_answered_while_it_drains_and_connections_are_not_kept(draining: Server) -> None:
    alice = draining.user()
    assert (await alice.get("/my/me")).headers.get("Connection") is None
    await _stop(draining)
    project = await alice.project()
    read = await alice.get("/my/projects")
    assert project in read.text
    assert read.headers["Connection"] == "close", "the proxy's next request goes on a connection to another"


async def test_what_waits_ends_with_what_can_be_asked_again(start_server: StartServer) -> None:
    server = await start_server(drain_seconds=0.3)
    alice = server.user()
    project = await alice.project()
    tool_id, _ = await alice.question(project)
    calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}, idempotency_key="one"))
    async with alice.feed(project, last=0) as feed:
        await feed.until("tool.started")
        waiting = asyncio.create_task(alice.get(f"/my/tools/{tool_id}?wait=60"))
        await _stop(server)
        answer = await calling
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert "idempotency_key" in answer.json["hint"]
        # It is still under way: the same can be asked of another server.
        assert (await waiting).json["status"] == "awaiting_approval"
    async with asyncio.timeout(10):
        await server.task


async def test_second_request_to_stop_ends_it_at_once(start_server: StartServer) -> None:
    server = await start_server(drain_seconds=LONG)
    alice = server.user()
    project = await alice.project()
    calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
    async with alice.feed(project, last=0) as feed:
        await feed.until("tool.started")
    await _stop(server)
    began = time.monotonic()
    await _hurry(server)
    assert time.monotonic() - began < 5
    await asyncio.gather(calling, return_exceptions=True)


async def test_server_that_is_cancelled_does_not_drain(start_server: StartServer) -> None:
    server = await start_server(drain_seconds=LONG)
    await _hurry(server)
    assert not server.parts.draining.is_set()
    with pytest.raises(aiohttp.ClientError):
        await User(server.url, server.session, "").get("/healthz")


async def test_sigterm_drains_a_process_and_a_second_one_ends_it_at_once(tmp_path: Path) -> None:
    async with open_site(tmp_path, untraced_forks(), drain_seconds="600") as site:
        process = await site.serve()
        async with aiohttp.ClientSession() as http:
            process.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                status = 200
                while status == 200:
                    async with http.get(f"{site.url}/readyz") as answer:
                        status = answer.status
            assert status == 503
            async with http.get(f"{site.url}/healthz") as answer:
                assert answer.status == 200
        began = time.monotonic()
        process.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await process.process.wait()
        assert time.monotonic() - began < 10
        assert "draining" in process.output()
