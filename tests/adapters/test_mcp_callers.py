"""MCP at its edges: callers that cannot stream, servers without the library, many users, quiet hosts."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from byleave.adapters import mcp as adapter
from byleave.installation import missing_extra
from byleave.protocol.errors import CallerError, UnreachableError
from byleave.protocol.events import ApprovalRequested
from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import ResponseStatus
from byleave.sdk import Machine
from byleave.settings import ServerSettings
from harness.household import Household
from harness.http_server import running_server
from harness.json_values import JsonObject
from harness.signing import page_headers

from .test_mcp_server import ACCEPT, PING, ask, over_http, text

pytestmark = pytest.mark.promise("I")


class PlainCaller:
    """A ToolCaller and nothing more."""

    def __init__(self, agent: Machine) -> None:
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


async def test_a_host_that_can_opens_the_page_and_its_answer_means_nothing(household: Household) -> None:
    household.person.decide = lambda question: None
    opened: asyncio.Queue[str] = asyncio.Queue()

    async def open_page(context: object, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        opened.put_nowait(params.url)
        return ElicitResult(action="accept")

    async with household.agent() as agent:
        server = adapter.byleave_server(agent, page=f"{household.url}/")
        async with Client(server, elicitation_callback=open_page, mode="legacy") as client:
            calling = asyncio.ensure_future(client.call_tool("write_file", {"path": "a.txt", "content": "x"}))
            async with asyncio.timeout(30):
                assert await opened.get() == f"{household.url}/"
            question = await household.person.until("tool.approval_request")
            assert not calling.done()
            await household.person.approve(question.approval_id)  # type: ignore[union-attr]
            assert not (await calling).is_error
    assert opened.empty()


class Odd(PlainCaller):
    """The caller of a machine that reports what no tool does."""

    async def start(self, tool_name: str, tool_params: Mapping[str, object], *, key: str | None = None) -> ToolResponse:
        result = {"success": True, "content": 5, "matches": "none"}
        return ToolResponse(tool_id="exec_1", tool_name=tool_name, status=ResponseStatus.COMPLETED, result=result)


async def test_a_result_of_another_form_reaches_the_model_as_text(household: Household) -> None:
    async with household.agent() as agent, Client(adapter.byleave_server(Odd(agent))) as client:
        await client.list_tools()
        for name in ("read_file", "search_files"):
            told = await client.call_tool(name, {"path": "a"})
            assert (told.is_error, told.structured_content) == (False, {"success": True})
            assert '"content": 5' in text(told)


async def test_a_host_is_told_who_gives_tokens_and_only_where_that_is_elsewhere(
    tmp_path: Path, household: Household
) -> None:
    place = "/.well-known/oauth-protected-resource/mcp"
    async with httpx2.AsyncClient(timeout=30) as http:
        assert (await http.get(household.url + place)).status_code == 404
        issuer = "https://login.example.org"
        settings = ServerSettings(
            home=tmp_path / "elsewhere",
            jwks_url="http://127.0.0.1:9/keys",
            token_issuer=issuer,
            token_scope_prefix="b:",
        )
        async with running_server(settings) as server:
            refused = await http.post(f"{server.url}/mcp", json=PING, headers=ACCEPT)
            told = f'Bearer realm="byleave", resource_metadata="{server.url}{place}"'
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, told)
            found = (await http.get(server.url + place)).json()
            assert found["resource"] == f"{server.url}/mcp"
            assert (found["authorization_servers"], found["scopes_supported"]) == ([issuer], ["b:agent"])
            assert (await http.get(f"{server.url}/.well-known/oauth-protected-resource/my")).status_code == 404
            other = await http.get(f"{server.url}/my/projects")
            assert "resource_metadata" not in other.headers["www-authenticate"]


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


LISTING: JsonObject = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


async def session_of(http: httpx2.AsyncClient, path: str) -> dict[str, str]:
    """A new session, as the header of its requests."""
    opened = await http.post(path, json=PING)
    assert opened.status_code == 200
    return {"mcp-session-id": opened.headers["mcp-session-id"]}


def writing(request_id: int | str, path: str = "a.txt") -> JsonObject:
    params = {"name": "write_file", "arguments": {"path": path, "content": "x"}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


async def test_a_hundred_abandoned_sessions_lock_nobody_out(household: Household) -> None:
    path = f"/mcp/{household.project_id}"
    async with ask(household, **ACCEPT) as http:
        first = await session_of(http, path)
        for _ in range(100):
            await session_of(http, path)
        assert (await http.post(path, json=LISTING, headers=first)).status_code == 200
        assert (await http.post(path, json=LISTING, headers=await session_of(http, path))).status_code == 200


@pytest.mark.promise("S")
async def test_a_forged_or_foreign_session_is_refused_in_words(household: Household) -> None:
    path = f"/mcp/{household.project_id}"
    other_project = (await household.person.api.create_project("second")).project_id
    async with ask(household, **ACCEPT) as http, ask(household, household.token(), **ACCEPT) as other_agent:
        session = await session_of(http, path)
        name, signature = session["mcp-session-id"].split(".")
        for forged in ("x", f"{name}.", f"{name}.{'0' * len(signature)}", f"other.{signature}", f"{name}.é"):
            headers = {"mcp-session-id": forged.encode()}
            refused = await http.post(path, json=LISTING, headers=headers)  # type: ignore[arg-type]
            assert (refused.status_code, refused.json()["hint"]) == (404, "Begin a new one: send `initialize`.")
        for by, where in ((other_agent, path), (http, f"/mcp/{other_project}")):
            foreign = await by.post(where, json=LISTING, headers=session)
            assert (foreign.status_code, "no MCP session of yours" in foreign.text) == (404, True)
            assert (await by.delete(where, headers=session)).status_code == 404
        none = await http.post(path, json=LISTING)
        assert (none.status_code, "names no MCP session" in none.text) == (400, True)
        assert (await http.post(path, json=LISTING, headers=session)).status_code == 200


async def test_a_session_that_ends_cancels_its_own_open_calls_and_no_others(household: Household) -> None:
    questions: asyncio.Queue[ApprovalRequested] = asyncio.Queue()
    household.person.decide = questions.put_nowait
    path = f"/mcp/{household.project_id}"
    async with ask(household, **ACCEPT) as http:
        mine, other = await session_of(http, path), await session_of(http, path)
        calls = [
            asyncio.create_task(http.post(path, json=writing(1, name), headers=headers))
            for name, headers in (("mine.txt", mine), ("other.txt", other))
        ]
        async with asyncio.timeout(30):
            await questions.get()
            await questions.get()
        assert (await http.delete(path, headers=mine)).status_code == 200
        assert "Cancelled before it ran" in (await calls[0]).text
        (waiting,) = (await household.person.api.approvals()).approvals
        assert waiting.tool_params["path"] == "other.txt"
        await household.person.approve(waiting.id)
        assert '"isError":false' in (await calls[1]).text


async def test_a_repeated_request_finds_its_call_and_another_with_its_id_is_told_so(household: Household) -> None:
    path = f"/mcp/{household.project_id}"
    async with ask(household, **ACCEPT) as http:
        session = await session_of(http, path)
        first = await http.post(path, json=writing(1), headers=session)
        assert (await http.post(path, json=writing(1), headers=session)).text == first.text
        assert "used for another call" in (await http.post(path, json=writing(1, "b.txt"), headers=session)).text
        for request_id, headers in (("1", session), (1, await session_of(http, path))):
            assert (await http.post(path, json=writing(request_id), headers=headers)).status_code == 200
    assert len(await household.person.record()) == 3


async def test_a_stream_is_resumed_from_any_of_its_events_also_when_its_call_has_ended(household: Household) -> None:
    path = f"/mcp/{household.project_id}"
    async with ask(household, **ACCEPT) as http:
        session = await session_of(http, path)
        said = await http.post(path, json=writing(1), headers=session)
        ids = [line for line in said.text.splitlines() if line.startswith("id: ")]
        for line in ids:
            again = await http.get(path, headers={**session, "Last-Event-ID": line.removeprefix("id: ")})
            assert '"isError":false' in again.text
        unknown = await session_of(http, path)
        lost = await http.get(path, headers={**unknown, "Last-Event-ID": ids[0].removeprefix("id: ")})
        assert ("This call is not in the record." in lost.text, '"isError":true' in lost.text) == (True, True)
        for event_id in ("x", "bnVsbA=="):
            wrong = await http.get(path, headers={**session, "Last-Event-ID": event_id})
            assert (wrong.status_code, "none of ours" in wrong.text) == (400, True)
        silent = await http.get(path, headers=session)
        assert (silent.status_code, silent.headers["allow"]) == (405, "POST, DELETE")


@pytest.mark.promise("S")
async def test_the_pages_cookie_does_not_open_it(household: Household) -> None:
    code = await household.listening.parts.sign_in.new_code("alice")
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
    monkeypatch.delitem(sys.modules, "byleave.server.routes.mcp_requests")
    monkeypatch.setitem(sys.modules, "mcp.server.streamable_http_manager", None)
    async with ask(household, **ACCEPT) as http:
        answer = await http.post(f"/mcp/{household.project_id}", json=PING)
    assert (answer.status_code, answer.json()["hint"]) == (
        503,
        missing_extra("mcp"),
    )


def test_neither_server_nor_client_loads_a_bridge_before_it_is_asked_for() -> None:
    script = (
        "import sys, byleave.server.app, byleave.client, byleave.sdk, byleave.cli.main;"
        "print([name for name in ('mcp', 'acp', 'mcp_types', 'agents', 'langchain_core') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
