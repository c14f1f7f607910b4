"""`kill -9` of the server in the middle of what a host or an editor asked: both go on at the next server."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
import pytest
from acp import PROTOCOL_VERSION
from acp.helpers import text_block
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from adapters.test_acp_bridge import Editor, forked
from adapters.test_mcp_server import ACCEPT, PING, text
from harness.forks import untraced_forks
from harness.processes import Process, User, open_site

from .test_kills import project_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.promise("W7", "I")]


@pytest.mark.parametrize("end", [Process.kill, Process.stop])
async def test_an_mcp_session_goes_on_at_the_next_server_with_the_same_secret(
    tmp_path: Path, database_url: str | None, end: Callable[[Process], Awaitable[object]]
) -> None:
    told: asyncio.Queue[tuple[float, str]] = asyncio.Queue()

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.put_nowait((progress, message or ""))

    async def waits() -> float:
        """How far progress counts when the host is next told that the call waits."""
        async with asyncio.timeout(30):
            while "Waiting for the user's approval" not in (news := await told.get())[1]:
                pass
        return news[0]

    async with open_site(tmp_path, untraced_forks(), database_url) as site:
        alice = User(site.url, site.token("alice"))
        server = await site.serve()
        project_id = await project_of(alice)
        await site.connect(project_id, alice.token)
        headers = {"Authorization": f"Bearer {site.token('alice', 'agent')}"}
        url = f"{site.url}/mcp/{project_id}"
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(url, http_client=http), mode="legacy") as host,
        ):
            async with alice.watch(project_id) as stream:
                write = host.call_tool(
                    "write_file", {"path": "a.txt", "content": "once", "mode": "append"}, progress_callback=heard
                )
                writing = asyncio.create_task(write)  # pyright: ignore[reportArgumentType]
                question = await stream.until("tool.approval_request")
            before = await waits()
            await end(server)
            await site.serve()
            while not told.empty():
                before, _ = told.get_nowait()
            assert await waits() > before, "the resumed stream counts on"
            answer = await alice.post(f"/my/approvals/{question['approval_id']}/confirm", {"decision": "approved"})
            assert answer.status == 200, answer.body
            async with asyncio.timeout(30):
                assert not (await writing).is_error
            assert "once" in text(await host.call_tool("read_file", {"path": "a.txt"}))
        rows = (await alice.get("/my/tools/history")).body["executions"]
        assert [(row["tool_name"], row["status"]) for row in rows] == [
            ("read_file", "completed"),
            ("write_file", "completed"),
        ]
        assert (site.workspace / "a.txt").read_text() == "once"
        await alice.close()


async def test_a_host_cancels_and_repeats_at_another_server_what_it_asked_of_a_killed_one(
    tmp_path: Path, database_url: str | None
) -> None:
    async with open_site(tmp_path, untraced_forks(), database_url) as site:
        alice = User(site.url, site.token("alice"))
        server = await site.serve()
        project_id = await project_of(alice)
        await site.connect(project_id, alice.token)
        headers = {"Authorization": f"Bearer {site.token('alice', 'agent')}", **ACCEPT}
        url = f"{site.url}/mcp/{project_id}"
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            http.headers["mcp-session-id"] = (await http.post(url, json=PING)).headers["mcp-session-id"]
            call = {
                "jsonrpc": "2.0",
                "id": "seven",
                "method": "tools/call",
                "params": {"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}},
            }
            async with alice.watch(project_id) as stream:
                calling = asyncio.create_task(http.post(url, json=call))
                question = await stream.until("tool.approval_request")
            await server.kill()
            with pytest.raises(httpx2.HTTPError):
                await calling
            await site.serve()
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "seven"}}
            async with alice.watch(project_id) as stream:
                assert (await http.post(url, json=cancel)).status_code == 202
                await stream.until("tool.finished", lambda event: event["tool_id"] == question["tool_id"])
            again = await http.post(url, json=call)
            assert "Cancelled before it ran" in again.text
        assert (await alice.get("/my/tools/history")).body["total_count"] == 1
        assert not (site.workspace / "a.txt").exists()
        await alice.close()


async def test_a_prompt_of_an_editor_rides_out_a_killed_server(tmp_path: Path, database_url: str | None) -> None:
    editor = Editor(hold=asyncio.Event())
    async with open_site(tmp_path, untraced_forks(), database_url, lease_seconds="3") as site:
        alice = User(site.url, site.token("alice"))
        server = await site.serve()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("BYLEAVE_")},
            "BYLEAVE_SERVER_URL": site.url,
            "BYLEAVE_TOKEN": alice.token,
            "BYLEAVE_HOME": str(tmp_path / "editor"),
        }
        async with forked(editor, ("acp",), environment) as (connection, _):
            await connection.initialize(PROTOCOL_VERSION)
            session = (await connection.new_session(str(site.workspace))).session_id
            prompting = asyncio.create_task(connection.prompt(session, [text_block("append to log.txt: once")]))
            await editor.until(lambda: len(editor.asked) == 1)
            await server.kill()
            assert editor.hold is not None
            editor.hold.set()  # answered while there is no server
            await site.serve()
            async with asyncio.timeout(60):
                assert (await prompting).stop_reason == "end_turn"
            assert (site.workspace / "log.txt").read_text().strip() == "once"
            assert len(editor.asked) == 1
        await alice.close()
