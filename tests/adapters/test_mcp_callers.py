"""MCP at its edges: callers that cannot stream, servers without the library, many users, quiet hosts."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping

import httpx2
import pytest
from mcp import Client

from byleave.adapters import mcp as adapter
from byleave.protocol.errors import CallerError, UnreachableError
from byleave.protocol.executions import ToolResponse
from byleave.sdk import Agent
from byleave.server.routes import mcp_sessions
from harness.household import Household
from harness.signing import page_headers

from .test_mcp_server import ACCEPT, PING, ask, over_http, text

pytestmark = pytest.mark.promise("I")


class PlainCaller:
    """A ToolCaller and nothing more."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def start(self, tool_name: str, tool_params: Mapping[str, object], *, key: str | None = None) -> ToolResponse:
        if tool_name == "list_directory":
            raise UnreachableError("Cannot reach the server.", hint="is it running?")
        return await self._agent.start(tool_name, tool_params, key=key)

    async def wait(self, tool_id: str, seconds: float | None = None) -> ToolResponse:
        return await self._agent.wait(tool_id, seconds)

    async def execute(
        self, tool_name: str, tool_params: Mapping[str, object], *, key: str | None = None
    ) -> ToolResponse:
        return await self._agent.execute(tool_name, tool_params, key=key)

    async def cancel(self, tool_id: str) -> bool:
        return await self._agent.cancel(tool_id)


async def test_any_caller_will_do_and_a_waiting_host_hears_that_it_waits(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "BEAT_SECONDS", 0.01)
    household.person.decide = lambda question: None
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait(message or "")

    async with household.agent() as agent, Client(adapter.byleave_server(PlainCaller(agent))) as client:
        calling = asyncio.ensure_future(
            client.call_tool("write_file", {"path": "a.txt", "content": "x"}, progress_callback=hear)
        )
        question = await household.person.until("tool.approval_request")
        async with asyncio.timeout(30):
            for _ in range(5):
                while "Waiting for the user's approval" not in await heard.get():
                    pass
        await household.person.approve(question.approval_id)  # type: ignore[union-attr]
        assert not (await calling).is_error
        away = await client.call_tool("list_directory", {})
        assert (away.is_error, text(away)) == (True, "Cannot reach the server.\nhint: is it running?")


async def test_only_the_tools_that_were_chosen_are_offered(household: Household) -> None:
    async with household.agent() as agent:
        async with Client(adapter.byleave_server(agent, tools=["read_file"])) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["read_file"]
        with pytest.raises(CallerError, match="no tool 'rm'"):
            adapter.byleave_server(agent, tools=["rm"])


async def test_a_user_without_room_for_streams_is_only_told_less(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.server.feed.STREAMS_PER_USER", 0)
    async with over_http("auto")(household) as client:
        assert not (await client.call_tool("write_file", {"path": "a.txt", "content": "x"})).is_error


async def test_the_user_who_was_quiet_longest_is_forgotten_and_starts_anew(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_sessions, "MOST_AGENTS", 1)
    path = f"/mcp/{household.project_id}"
    async with ask(household, **ACCEPT) as http:
        session = {"mcp-session-id": (await http.post(path, json=PING)).headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await http.post(path, json=listing, headers=session)).status_code == 200
        bobs = (await household.listening.parts.store.chat.create_project("bob", "p")).id
        async with ask(household, household.token(user="bob"), **ACCEPT) as other:
            assert (await other.post(f"/mcp/{bobs}", json=PING)).status_code == 200
        assert (await http.post(path, json=listing, headers=session)).status_code == 404
        assert (await http.post(path, json=PING)).status_code == 200


LISTING = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


async def test_a_full_agent_loses_the_session_idle_longest_and_no_other_agent_loses_any(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_sessions, "SESSIONS_PER_AGENT", 2)
    path = f"/mcp/{household.project_id}"
    async with ask(household, **ACCEPT) as http, ask(household, household.token(), **ACCEPT) as other:

        async def opened(by: httpx2.AsyncClient) -> dict[str, str]:
            answer = await by.post(path, json=PING)
            assert answer.status_code == 200
            return {"mcp-session-id": answer.headers["mcp-session-id"]}

        async def lists(session: dict[str, str], by: httpx2.AsyncClient = http) -> int:
            return (await by.post(path, json=LISTING, headers=session)).status_code

        others = await opened(other)
        first, second = await opened(http), await opened(http)
        assert await lists(others) == 404, "it is another agent's"
        assert await lists(first) == 200
        assert (await http.post(path, content=b"{")).status_code == 400
        assert [await lists(one) for one in (second, first)] == [200, 200]
        # Listening is no work: it ends with the session.
        async with http.stream("GET", path, headers=second) as stream:
            third = await opened(http)
            assert await stream.aread() == b""
        assert [await lists(one) for one in (first, second, third)] == [200, 404, 200]
        assert (await http.delete(path, headers=third)).status_code == 200
        fourth = await opened(http)
        assert [await lists(one) for one in (first, third, fourth)] == [200, 404, 200]
        assert await lists(others, other) == 200


async def test_a_session_that_works_is_not_ended_for_another(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_sessions, "SESSIONS_PER_AGENT", 1)
    monkeypatch.setattr(mcp_sessions, "MOST_SESSIONS", 1)
    household.person.decide = lambda question: None
    token, path = household.token(), f"/mcp/{household.project_id}"
    async with over_http("legacy", token=token)(household) as client, ask(household, token, **ACCEPT) as http:
        calling = asyncio.ensure_future(client.call_tool("write_file", {"path": "a.txt", "content": "x"}))
        question = await household.person.until("tool.approval_request")
        assert (await http.post(path, json=PING)).status_code == 503
        await household.person.approve(question.approval_id)  # type: ignore[union-attr]
        assert not (await calling).is_error
        assert (await http.post(path, json=PING)).status_code == 200


@pytest.mark.promise("S")
async def test_the_pages_cookie_does_not_open_it(household: Household) -> None:
    code = household.listening.parts.sign_in.new_code("alice")
    async with httpx2.AsyncClient(base_url=household.url, timeout=30) as http:
        signed_in = await http.get(f"/signin?code={code}")
        given = page_headers(signed_in.headers["set-cookie"], signed_in.text)
        same = {**given, "Origin": household.url, **ACCEPT}
        assert (await http.get("/my/projects", headers=same)).status_code == 200
        refused = await http.post(f"/mcp/{household.project_id}", json=PING, headers=same)
        assert (refused.status_code, "bearer token" in refused.text) == (401, True)


async def test_a_server_without_the_library_says_how_to_get_it(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "byleave.server.routes.mcp_sessions")
    monkeypatch.setitem(sys.modules, "mcp.server.streamable_http_manager", None)
    async with ask(household, **ACCEPT) as http:
        answer = await http.post(f"/mcp/{household.project_id}", json=PING)
    assert (answer.status_code, answer.json()["hint"]) == (
        503,
        "In a checkout: `pip install '.[mcp]'`.",
    )


def test_neither_server_nor_client_loads_a_bridge_before_it_is_asked_for() -> None:
    script = (
        "import sys, byleave.server.app, byleave.client, byleave.sdk, byleave.cli.main;"
        "print([name for name in ('mcp', 'acp', 'mcp_types', 'agents', 'langchain_core') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
