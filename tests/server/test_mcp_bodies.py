"""Large calls over MCP: they have room like all other bodies, and none of them stays while its question waits."""

import asyncio
import gc
import json
import threading
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from byleave.protocol.states import Scope
from byleave.server import bodies
from harness.http_server import Server, StartServer, User
from harness.json_values import JsonObject

MEGABYTE = 2**20
ALONE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "a host", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HOST = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


async def opened(agent: User, project: str) -> dict[str, str]:
    """The headers of a new MCP session."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a host", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    answer = await agent.post(f"/mcp/{project}", hello, headers=HOST)
    assert answer.status == 200, answer.text
    return {**HOST, "MCP-Protocol-Version": "2025-06-18", "Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}


def write(number: int, content: str, **meta: JsonObject) -> JsonObject:
    """The message that asks for a write."""
    call = {"name": "write_file", "arguments": {"path": f"{number}.txt", "content": content}, **meta}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}


@asynccontextmanager
async def asked(
    agent: User, project: str, message: JsonObject, headers: dict[str, str]
) -> AsyncGenerator[asyncio.StreamReader]:
    """Send a call, and leave its answer open; yields the answer. Keeps nothing of what was sent."""
    place = urlsplit(agent.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    body = json.dumps(message).encode()
    message.clear()
    sent = {"Host": place.netloc, "Authorization": f"Bearer {agent.token}", "Content-Length": len(body), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    writer.write(f"POST /mcp/{project} HTTP/1.1\r\n{head}\r\n".encode())
    writer.write(body)
    del body
    try:
        await writer.drain()
        yield reader
    finally:
        writer.close()


def large_texts() -> list[str]:
    """The beginnings of all long texts in memory that something can still reach."""
    gc.collect()
    referred = gc.get_referents(*gc.get_objects())
    found = {id(each): each for each in referred if isinstance(each, (str, bytes, bytearray)) and len(each) > MEGABYTE}
    return [repr(each[:60]) for each in found.values()]


async def until_waiting(person: User, questions: int) -> None:
    async with asyncio.timeout(30):
        while (await person.get("/my/approvals")).json["total_count"] < questions:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("era", ["session", "alone"])
async def test_call_that_waits_for_a_person_keeps_none_of_its_content(server: Server, era: str) -> None:
    person, agent = server.user(), server.user(scopes=(Scope.AGENT,))
    project = await person.project()
    headers, meta = await opened(agent, project), dict[str, JsonObject]()
    if era == "alone":
        headers = {**HOST, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "write_file"}
        meta = {"_meta": ALONE}
    async with AsyncExitStack() as open_calls:
        first = write(1, "the first loads libraries", **meta)
        await open_calls.enter_async_context(asked(agent, project, first, headers))
        await until_waiting(person, 1)
        before = len(large_texts())
        for number in (2, 3):
            call = write(number, "words " * MEGABYTE, **meta)
            await open_calls.enter_async_context(asked(agent, project, call, headers))
        await until_waiting(person, 3)
        async with asyncio.timeout(10):
            while len(large_texts()) > before:  # the last one is just being forgotten
                await asyncio.sleep(0.02)


async def test_bodies_of_calls_that_have_not_begun_share_the_room_of_their_sender(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(max_payload_bytes=300_000)
    monkeypatch.setattr(bodies, "ROOM_SECONDS", 0.05)
    person, agent = server.user(), server.user(scopes=(Scope.AGENT,))
    project = await person.project()
    headers, large = await opened(agent, project), "words " * 30_000
    busy, free = threading.Event(), threading.Event()
    long_work = server.parts.executor.long_work

    def hold() -> None:
        busy.set()
        free.wait(30)

    held = asyncio.create_task(long_work.run("alice", hold))
    try:
        await asyncio.to_thread(busy.wait, 30)
        async with AsyncExitStack() as open_calls:
            await open_calls.enter_async_context(asked(agent, project, write(1, large), headers))
            async with asked(agent, project, write(2, large), headers) as answer:
                assert b" 429 " in await answer.readline(), "the first is not in the record yet"
            async with asked(agent, project, write(3, "small"), headers):
                await until_waiting(person, 1)
            free.set()
            await until_waiting(person, 2)
            await open_calls.enter_async_context(asked(agent, project, write(4, large), headers))
            await until_waiting(person, 3)
    finally:
        free.set()
        await held
