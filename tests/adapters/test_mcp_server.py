"""MCP: a session of the official client over both transports, in both eras of the protocol."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from byleave.protocol.events import ApprovalRequested
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, Scope
from byleave.protocol.tools import TOOLS
from byleave.server import issue_token
from harness.household import Household
from harness.json_values import JsonObject

from .conftest import REASON

pytestmark = pytest.mark.promise("I")
Open = Callable[[Household], AbstractAsyncContextManager[Client]]


def over_http(mode: str, path: str = "/mcp/{project}", token: str | None = None) -> Open:
    @asynccontextmanager
    async def connect(household: Household) -> AsyncGenerator[Client]:
        headers = {"Authorization": f"Bearer {token or household.token()}"}
        url = household.url + path.format(project=household.project_id)
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            yield client

    return connect


def over_stdio(mode: str) -> Open:
    @asynccontextmanager
    async def connect(household: Household) -> AsyncGenerator[Client]:
        started = StdioServerParameters(
            command=sys.executable,
            args=["-m", "byleave.cli.main", "mcp", "--project", household.project_id],
            env={
                "BYLEAVE_SERVER_URL": household.url,
                "BYLEAVE_TOKEN": household.token(),
                "BYLEAVE_HOME": str(household.home / "host"),
            },
        )
        async with Client(stdio_client(started), mode=mode) as client:
            yield client

    return connect


EVERY_WAY = [
    pytest.param(over_http("auto"), id="http"),
    pytest.param(over_http("legacy"), id="http-legacy"),
    pytest.param(over_stdio("auto"), id="stdio"),
    pytest.param(over_stdio("legacy"), id="stdio-legacy"),
]


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize("connect", EVERY_WAY)
async def test_a_task_with_a_read_a_write_a_rejection_and_a_timeout_is_completed(
    household: Household, connect: Open
) -> None:
    told: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with connect(household) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name: tool.input_schema for tool in tools} == {
            name: spec.params.model_json_schema() for name, spec in TOOLS.items()
        }
        hints = {tool.name: tool.annotations for tool in tools}
        assert hints["read_file"].read_only_hint  # type: ignore[union-attr]
        assert hints["write_file"].destructive_hint  # type: ignore[union-attr]
        read = await client.call_tool("read_file", {"path": "README.md"})
        assert (read.is_error, "hello" in text(read)) == (False, True)
        # The client of the library holds structured content against the tool's schema.
        assert all(tool.output_schema for tool in tools)
        assert read.structured_content == json.loads(text(read))
        written = await client.call_tool("write_file", {"path": "notes.md", "content": "hi"}, progress_callback=heard)
        assert written.is_error is False
        rejected = await client.call_tool("execute_command", {"command": "git", "args": ["status"]})
        assert (rejected.is_error, REASON in text(rejected)) == (True, True)
        late = await client.call_tool("execute_command", {"command": "gcc", "args": ["--version"]})
        assert (late.is_error, "Approval timeout" in text(late)) == (True, True)
        assert "hint:" in text(late)
    assert (household.workspace / "notes.md").read_text() == "hi"
    waiting = f"Waiting for the user's approval. Answer at {household.url}/"
    assert any(message.startswith(waiting) for message in told), told
    rows = await household.person.record()
    assert [(row.tool_name, row.status.value) for row in rows] == [
        ("read_file", "completed"),
        ("write_file", "completed"),
        ("execute_command", "rejected"),
        ("execute_command", "timeout"),
    ]
    assert len({row.agent_id for row in rows}) == 1
    assert (rows[0].agent_id or "").startswith("agent-"), "as the token says"


@pytest.mark.parametrize("mode", [AgentMode.SANDBOX, AgentMode.FULL])
async def test_calls_of_a_host_run_in_the_mode_of_its_token(household: Household, mode: AgentMode) -> None:
    token = issue_token(household.settings, "alice", (Scope.AGENT,), 600, mode=mode)
    async with over_http("auto", token=token)(household) as client:
        assert (await client.call_tool("write_file", {"path": "notes.md", "content": "hi"})).is_error is False
    (row,) = await household.person.record()
    assert row.approved_by == ("mode:full" if mode is AgentMode.FULL else "person:alice")


@pytest.mark.parametrize("connect", EVERY_WAY[:3])
async def test_a_call_that_the_host_cancels_is_called_off(household: Household, connect: Open) -> None:
    household.person.decide = lambda question: None
    async with connect(household) as client:
        call = client.call_tool("write_file", {"path": "a.txt", "content": "x"})
        calling = asyncio.create_task(call)  # pyright: ignore[reportArgumentType]
        question = await household.person.until("tool.approval_request")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert isinstance(question, ApprovalRequested)
        await household.person.until("tool.finished", tool_id=question.tool_id)
    (row,) = await household.person.record()
    assert (row.status, row.error_type) == (ExecutionStatus.FAILED, ErrorType.CANCELLED)


@pytest.mark.parametrize("connect", EVERY_WAY[1:3])
async def test_output_reaches_the_host_as_it_comes_and_cancel_ends_what_runs(
    household: Household, connect: Open
) -> None:
    household.person.decide = lambda question: True
    program = "import time\nprint('first line', flush=True)\ntime.sleep(600)\n"
    (household.workspace / "long.py").write_text(program)
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        seen.put_nowait(message or "")

    async with connect(household) as client:
        calling = asyncio.create_task(  # pyright: ignore[reportUnknownVariableType]
            client.call_tool(  # pyright: ignore[reportArgumentType]
                "execute_command",
                {"command": "python", "args": ["long.py"], "timeout": 300},
                progress_callback=heard,
            )
        )
        async with asyncio.timeout(30):
            while "first line" not in await seen.get():
                pass
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await household.person.until("tool.finished")
    (row,) = await household.person.record()
    assert row.error_type is ErrorType.CANCELLED


async def test_wrong_parameters_and_unknown_tools_are_answers_with_a_reason(household: Household) -> None:
    async with over_http("auto")(household) as client:
        wrong = await client.call_tool("read_file", {"path": "README.md", "approved": True})
        assert wrong.is_error
        assert "approved" in text(wrong)
        unknown = await client.call_tool("remove_everything", {})
        assert unknown.is_error
        outside = await client.call_tool("read_file", {"path": "../outside"})
        assert outside.is_error


async def test_without_a_project_in_the_path_the_header_or_the_only_one_counts(household: Household) -> None:
    async with over_http("auto", "/mcp")(household) as client:
        assert not (await client.call_tool("read_file", {"path": "README.md"})).is_error
    await household.person.api.create_project("second")
    async with ask(household) as http:
        several = await http.post("/mcp", json=PING)
        assert (several.status_code, "2 projects" in several.text) == (400, True)
        named = await http.post("/mcp", json=PING, headers={"Byleave-Project": household.project_id, **ACCEPT})
        assert named.status_code == 200
        unknown = await http.post("/mcp", json=PING, headers={"Byleave-Project": "proj_other"})
        assert unknown.status_code == 404


PING: JsonObject = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def ask(household: Household, token: str | None = None, **headers: str) -> httpx2.AsyncClient:
    authorization = {"Authorization": f"Bearer {token or household.token()}"}
    return httpx2.AsyncClient(base_url=household.url, headers=authorization | headers, timeout=30)


@pytest.mark.promise("S")
async def test_another_users_project_and_session_do_not_exist(household: Household) -> None:
    path = f"/mcp/{household.project_id}"
    async with ask(household, household.token(user="mallory"), **ACCEPT) as http:
        assert (await http.post(path, json=PING)).status_code == 404
        mine = (await http.post("/my/projects", json={"name": "m"})).status_code
        assert mine == 403  # an agent's token opens none
    async with ask(household, **ACCEPT) as http:
        opened = await http.post(path, json=PING)
        session = opened.headers["mcp-session-id"]
    chat = household.token(Scope.CHAT, user="mallory")
    async with ask(household, chat, **ACCEPT) as http:
        theirs = (await http.post("/my/projects", json={"name": "m"})).json()["project_id"]
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        taken = await http.post(f"/mcp/{theirs}", json=listing, headers={"mcp-session-id": session})
        assert taken.status_code == 404


@pytest.mark.promise("S")
async def test_no_token_a_wrong_scope_another_host_and_another_page_are_refused(household: Household) -> None:
    path = f"/mcp/{household.project_id}"
    async with httpx2.AsyncClient(base_url=household.url, timeout=30) as http:
        none = await http.post(path, json=PING, headers=ACCEPT)
        assert (none.status_code, none.headers["www-authenticate"]) == (401, 'Bearer realm="byleave"')
        wrong = await http.post(path, json=PING, headers={**ACCEPT, "Authorization": "Bearer a.b.c"})
        assert (wrong.status_code, "invalid_token" in wrong.headers["www-authenticate"]) == (401, True)
        assert (await http.get("/mcp/anything/else")).status_code == 401
    async with ask(household, household.token(Scope.EXECUTE), **ACCEPT) as http:
        assert (await http.post(path, json=PING)).status_code == 403
    async with ask(household, **ACCEPT) as http:
        assert (await http.post(path, json=PING, headers={"Host": "evil.example"})).status_code == 421
        assert (await http.post(path, json=PING, headers={"Origin": "https://evil.example"})).status_code == 403
        assert (await http.post(path, content=b"x", headers={"Content-Type": "text/plain"})).status_code == 415
        assert (await http.get(f"{path}/more")).status_code == 404
        assert (await http.put(path, json=PING)).status_code == 405


async def test_a_message_is_as_strict_json_as_any_other_body(household: Household) -> None:
    def message(path: bytes) -> bytes:
        arguments = b'{"name":"read_file","arguments":{"path":%b}}' % path
        return b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":%b}' % arguments

    async with ask(household, **ACCEPT) as http:
        path, headers = f"/mcp/{household.project_id}", {"Content-Type": "application/json"}
        headers["mcp-session-id"] = (await http.post(path, json=PING)).headers["mcp-session-id"]
        for body, status, told in (
            (b"[" + b"[]," * 500_000 + b"0]", 413, "more than 40000 values"),
            (b"[" * 100 + b"]" * 100, 400, "nested more than"),
            (b"NaN", 400, "NaN is not JSON"),
            (b'"a","path":"b"', 400, "'path' is there twice"),
            (rb'"\ud800"', 400, "half of a character"),
        ):
            refused = await http.post(path, content=message(body), headers=headers)
            assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
            assert told in refused.json()["detail"]
        long = await http.post(path, content=message(b'"%b"' % (b"x" * 1_000_000)), headers=headers)
        assert (long.status_code, "isError" in long.text) == (200, True)


async def test_a_message_without_a_content_type_is_json(household: Household) -> None:
    async with ask(household, **ACCEPT) as http:
        for path in (f"/mcp/{household.project_id}", "/mcp"):
            assert (await http.post(path, content=json.dumps(PING).encode())).status_code == 200


async def test_a_server_that_stops_ends_its_sessions_at_once(household: Household) -> None:
    household.person.decide = lambda question: None
    parts = household.listening.parts

    async def session() -> None:
        async with over_http("legacy")(household) as client:
            await client.call_tool("write_file", {"path": "a.txt", "content": "x"})

    running = asyncio.create_task(session())
    await household.person.until("tool.approval_request")
    household.listening.stop()
    async with asyncio.timeout(10):
        await parts.closing.wait()
        with pytest.raises((MCPError, ExceptionGroup, httpx2.HTTPError)):
            await running
