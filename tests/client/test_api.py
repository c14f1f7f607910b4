"""ServerApi against a real HTTP server: routes, errors in words, and where the token goes."""

import json
import logging
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from byleave.addresses import is_loopback
from byleave.client.api import Frame, ServerApi
from byleave.protocol.approvals import ApproveBody, ConfirmBody, RejectBody
from byleave.protocol.chat import MessageBody
from byleave.protocol.errors import (
    ByleaveError,
    CallerError,
    ConfigurationError,
    ConflictError,
    NotFound,
    RefusedError,
    SignedOut,
    UnreachableError,
)
from byleave.protocol.events import ChatText
from byleave.protocol.executions import CompletedReport, ExecuteRequest, OutputChunk, QueueReport
from byleave.protocol.grants import GrantRule
from byleave.protocol.wire import now
from byleave.server.serving import BODY_BYTES, BODY_SECONDS

from .conftest import StubServer

TOKEN = "header.payload.signature"
NOW = now()
PROJECT = {"project_id": "p1", "name": "one", "created_at": NOW}
RULE = {"tool": "search_web", "command": [], "exact": False, "paths": [], "files": {}}
GRANT = {
    "id": "g1",
    "user_id": "alice",
    "project_id": "p1",
    "session_id": "s1",
    "scope": "class",
    "rule": RULE,
    "text": "Search the web.",
    "status": "active",
    "approval_id": "a1",
    "uses": 0,
    "max_uses": None,
    "created_at": "2026-11-15T12:00:00.000Z",
    "created_by": "person:alice",
    "expires_at": "2026-11-15T20:00:00.000Z",
    "revoked_at": None,
    "revoked_by": None,
}
DECISION = {"success": True, "approval_id": "a1", "status": "approved", "message": ""}
EXECUTION = {
    "tool_id": "t1", "user_id": "u", "project_id": "p1", "session_id": "s1", "run_id": None, "agent_id": None,
    "mode": "sandbox", "approval_id": None, "client_id": None, "tool_name": "read_file", "tool_params": {},
    "digest": "", "result": None, "risk_level": "LOW", "requires_approval": False, "reasons": [], "approved_by": None,
    "status": "completed", "error": None, "error_type": None, "execution_time_ms": None, "created_at": NOW,
    "approved_at": None, "completed_at": None,
}  # fmt: skip
CHANGE = {
    "approval_id": "a1",
    "digest": "d" * 64,
    "change": {"path": "a", "kind": "create", "before": None, "after": "x", "note": None},
    "before_sha256": "missing",
    "before_size": None,
    "seen_at": NOW,
}
RESPONSE = {"tool_id": "t1", "tool_name": "read_file", "status": "completed"}

Route = tuple[str, tuple[object, ...], str, str, dict[str, str], object, object]
"""Method and its arguments; verb, path, query and body that it sends; the answer."""
ROUTES: list[Route] = [
    ("create_project", ("one",), "POST", "/my/projects", {}, {"name": "one"}, PROJECT),
    ("list_projects", (), "GET", "/my/projects", {}, None, {"projects": [PROJECT], "total_count": 1}),
    (
        "post_message", ("p1", MessageBody(content="hi")), "POST", "/my/projects/p1/chat/messages", {},
        {"content": "hi", "session_id": None, "mode": None, "agent": None, "model": None, "client_key": None},
        {"message_id": "m", "session_id": "s", "run_id": "r"},
    ),
    (
        "list_messages", ("p1", "s 1"), "GET", "/my/projects/p1/chat/messages", {"session_id": "s 1"}, None,
        {"messages": [], "total_count": 0},
    ),
    ("list_sessions", ("p1",), "GET", "/my/projects/p1/chat/sessions", {}, None, {"sessions": [], "total_count": 0}),
    (
        "cancel_run", ("p1", "r1"), "POST", "/my/projects/p1/chat/runs/r1/cancel", {}, None,
        {"success": True, "message": ""},
    ),
    ("approvals", (), "GET", "/my/approvals", {}, None, {"approvals": [], "total_count": 0}),
    (
        "approve", ("p1", "a1", ApproveBody(decision="approved", digest="d")), "POST",
        "/my/projects/p1/approvals/a1/approve", {},
        {"decision": "approved", "scope": "once", "terms": None, "digest": "d", "calls": 1}, DECISION,
    ),
    (
        "reject", ("p1", "a1", RejectBody(reason="no")), "POST", "/my/projects/p1/approvals/a1/reject", {},
        {"decision": "rejected", "reason": "no"}, DECISION | {"status": "rejected"},
    ),
    (
        "confirm", ("a1", ConfirmBody(decision="approved")), "POST", "/my/approvals/a1/confirm", {},
        {"decision": "approved", "reason": None, "scope": "once", "terms": None, "digest": None, "calls": 1}, DECISION,
    ),
    ("whole_call", ("a1",), "GET", "/my/approvals/a1/whole", {}, None, {"approval_id": "a1", "text": "all"}),
    ("change", ("a1",), "GET", "/my/approvals/a1/change", {}, None, CHANGE),
    ("grants", (), "GET", "/my/grants", {}, None, {"grants": [GRANT], "total_count": 1}),
    ("grants", ({"all": "true"},), "GET", "/my/grants", {"all": "true"}, None, {"grants": [], "total_count": 0}),
    ("revoke_grant", ("g/1",), "POST", "/my/grants/g/1/revoke", {}, None, GRANT),
    (
        "preview_grant", ("p1", GrantRule(tool="search_web")), "POST", "/my/projects/p1/grants/preview", {},
        {"rule": RULE},
        {
            "rule": RULE, "text": "", "widest": "", "problem": None, "looked_at": 0, "covered": 0, "refused": [],
            "examples": [], "sentence": "",
        },
    ),
    ("available_tools", ("p1",), "GET", "/my/projects/p1/tools/available", {}, None, {"tools": [], "total_count": 0}),
    (
        "execute", (ExecuteRequest(project_id="p1", tool_name="read_file", tool_params={}),), "POST",
        "/my/tools/execute", {},
        {"project_id": "p1", "tool_name": "read_file", "tool_params": {}, "session_id": None, "mode": None,
         "agent_id": None, "idempotency_key": None}, RESPONSE,
    ),
    ("get_tool", ("t1",), "GET", "/my/tools/t1", {}, None, EXECUTION),
    ("get_tool", ("t1", 2.5), "GET", "/my/tools/t1", {"wait": "2.5"}, None, EXECUTION),
    ("history", (), "GET", "/my/tools/history", {}, None, {"executions": [EXECUTION], "total_count": 1}),
    (
        "history", ({"status": "failed", "limit": 5},), "GET", "/my/tools/history", {"status": "failed", "limit": "5"},
        None, {"executions": [], "total_count": 0, "next_cursor": None},
    ),
    ("cancel", ("p1", "t1"), "POST", "/my/projects/p1/tools/t1/cancel", {}, None, {"success": True, "message": ""}),
    ("begin", ("p1", "t1"), "POST", "/my/projects/p1/tools/t1/begin", {}, None, {"started_at": NOW, "deadline": NOW}),
    (
        "post_result", ("p1", "t1", CompletedReport(status="completed", result={"a": 1})), "POST",
        "/my/projects/p1/tools/t1/result", {},
        {"status": "completed", "result": {"a": 1}, "duration_ms": None, "timestamp": None},
        {"success": True, "tool_id": "t1", "status": "completed", "message": ""},
    ),
]  # fmt: skip


@pytest.fixture
async def api(server: StubServer) -> AsyncIterator[ServerApi]:
    async with ServerApi(server.url + "/", TOKEN, client_id="client_1") as api:
        yield api


@pytest.mark.promise("R0", "R8")
@pytest.mark.parametrize("route", ROUTES, ids=[f"{route[0]}-{len(route[1])}" for route in ROUTES])
async def test_each_method_speaks_to_its_route(api: ServerApi, server: StubServer, route: Route) -> None:
    method, arguments, verb, path, query, body, answer = route
    server.answers[path] = [(200, answer)]
    answered = await getattr(api, method)(*arguments)
    seen = server.requests[-1]
    assert (seen.method, seen.path, seen.query, seen.body) == (verb, path, query, body)
    assert seen.headers["Authorization"] == f"Bearer {TOKEN}"
    assert seen.headers["Byleave-Client"] == "client_1"
    assert answered.model_dump(mode="json", exclude_unset=True) == answer


async def test_what_waits_is_posted(api: ServerApi, server: StubServer) -> None:
    await api.post_queued("p1", QueueReport(tool_ids=["t1", "t2"]))
    assert server.requests[-1].path == "/my/projects/p1/tools/queued"
    assert server.requests[-1].body == {"tool_ids": ["t1", "t2"]}


async def test_output_is_posted(api: ServerApi, server: StubServer) -> None:
    await api.post_output("p1", "t1", OutputChunk(stream="stdout", text="x", sequence=0))
    assert server.requests[-1].body == {"stream": "stdout", "text": "x", "sequence": 0}


async def test_an_id_cannot_climb_out_of_its_place(api: ServerApi, server: StubServer) -> None:
    server.answers["/cancel"] = [(200, {"success": True, "message": ""})]
    await api.cancel("../..", "a/b?c#d")
    assert server.requests[-1].path.count("/") >= 5
    with pytest.raises(CallerError, match="is not an id"):
        await api.cancel("..", "t1")
    with pytest.raises(CallerError, match="is not an id"):
        await api.get_tool("")


def problem(status: int, **more: object) -> tuple[int, object]:
    return status, {"title": "t", "status": status, "detail": "What happened."} | more


@pytest.mark.parametrize(
    ("answer", "error", "hint"),
    [
        (problem(400, errors=[{"loc": "x"}]), CallerError, None),
        (problem(422), CallerError, None),
        (problem(401), SignedOut, "byleave token --user NAME"),
        (problem(403), RefusedError, "byleave token --user NAME"),
        (problem(403, hint="ask alice"), RefusedError, "ask alice"),
        (problem(404), NotFound, None),
        (problem(429), UnreachableError, None),
        (problem(500), UnreachableError, None),
        ((503, "<html>busy</html>"), UnreachableError, None),
        ((404, "default backend"), UnreachableError, None),
        ((409, {}), UnreachableError, None),
    ],
)
async def test_answers_become_errors_that_say_who_can_act(
    api: ServerApi, server: StubServer, answer: tuple[int, object], error: type[ByleaveError], hint: str | None
) -> None:
    server.answers["/my/approvals"] = [answer]
    with pytest.raises(error) as caught:
        await api.approvals()
    assert type(caught.value) is error
    assert "What happened." in caught.value.message or str(answer[0]) in caught.value.message
    assert (hint or "") in (caught.value.hint or "")


@pytest.mark.parametrize("status", [302, 400, 401, 403, 405, 422])
async def test_a_web_page_after_an_answer_of_the_server_is_unreachable(
    api: ServerApi, server: StubServer, status: int
) -> None:
    server.answers["/my/approvals"] = [(200, {"approvals": [], "total_count": 0})]
    await api.approvals()
    server.page = status
    with pytest.raises(UnreachableError, match=f"A program in front of the server answered {status}"):
        await api.approvals()


async def test_a_body_too_large_for_a_proxy_is_the_callers_mistake_unless_it_is_small(
    api: ServerApi, server: StubServer
) -> None:
    server.answers["/my/approvals"] = [(200, {"approvals": [], "total_count": 0})]
    await api.approvals()
    server.page = 413
    with pytest.raises(CallerError, match="answered 413"):
        await api.post_result("p1", "exec_1", b'"%s"' % (b"x" * 1024 * 1024))
    with pytest.raises(UnreachableError, match="A program in front of the server answered 413"):
        await api.post_result("p1", "exec_1", b"{}")


async def test_a_large_result_gets_the_time_that_the_server_gives_it(
    api: ServerApi, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, given = aiohttp.ClientSession._request, list[float]()

    async def watched(
        session: aiohttp.ClientSession, *args: object, timeout: aiohttp.ClientTimeout, **more: object
    ) -> object:
        given.append(timeout.total or 0)
        return await post(session, *args, timeout=timeout, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(aiohttp.ClientSession, "_request", watched)
    server.page = 413
    size = 2 * 1024 * 1024
    with pytest.raises((CallerError, UnreachableError)):
        await api.post_result("p1", "exec_1", b'"%s"' % (b"x" * size))
    assert given[-1] > size / (BODY_BYTES / BODY_SECONDS)


async def test_a_refusal_that_arrives_in_pieces_is_read_whole(
    api: ServerApi, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = aiohttp.StreamReader.read
    whole = json.dumps(problem(401)[1]).encode()
    pieces: list[bytes | str] = [whole[:20], whole[20:], "end"]

    async def then_send_the_next(reader: aiohttp.StreamReader, n: int = -1) -> bytes:
        if pieces:
            server.feed.put_nowait(pieces.pop(0))
        return await read(reader, n)

    monkeypatch.setattr(aiohttp.StreamReader, "read", then_send_the_next)
    server.stream_answer = (401, None)
    with pytest.raises(SignedOut, match="What happened"):
        async with api.stream("p1"):
            pass


async def test_a_refusal_cut_in_the_middle_is_unreachable(api: ServerApi, server: StubServer) -> None:
    server.stream_answer = (401, None)
    server.feed.put_nowait("drop")
    with pytest.raises(UnreachableError):
        async with api.stream("p1"):
            pass


async def test_a_conflict_says_what_holds(api: ServerApi, server: StubServer) -> None:
    server.answers["/approve"] = [problem(409, state="rejected")]
    with pytest.raises(ConflictError) as caught:
        await api.approve("p1", "a1", ApproveBody(decision="approved"))
    assert caught.value.state == "rejected"


async def test_a_redirect_is_never_followed_with_the_token(api: ServerApi, server: StubServer) -> None:
    server.answers["/my/approvals"] = [(307, {})]
    with pytest.raises(ConfigurationError, match=r"redirect to 'http://127\.0\.0\.1:9/'"):
        await api.approvals()
    assert len(server.requests) == 1


async def test_a_server_that_is_not_there_is_said_with_its_address(api: ServerApi, server: StubServer) -> None:
    await server.stop()
    with pytest.raises(UnreachableError) as caught:
        await api.approvals()
    assert caught.value.message == f"Cannot reach the server at {server.url}."
    assert "byleave serve" in (caught.value.hint or "")


async def test_a_connection_cut_in_the_answer_is_unreachable(api: ServerApi, server: StubServer) -> None:
    server.answers["/my/approvals"] = [(0, {})]
    with pytest.raises(UnreachableError):
        await api.approvals()


async def test_an_answer_of_another_kind_is_said(api: ServerApi, server: StubServer) -> None:
    server.answers["/my/approvals"] = [(200, {"what": "else"})]
    with pytest.raises(UnreachableError, match="not a ApprovalList"):
        await api.approvals()


async def test_a_server_without_a_trusted_certificate_is_said(api: ServerApi) -> None:
    error = aiohttp.ClientSSLError(
        ConnectionKey("x", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None), OSError()
    )
    assert "certificate" in api.unreachable(error).message


@pytest.mark.parametrize("url", ["", "127.0.0.1:8477", "ftp://x", "http://user:pw@x", "http://x?y", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the address of a server"):
        ServerApi(url, TOKEN)


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "tök"])
def test_what_is_no_token_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ConfigurationError, match="The token is empty") as caught:
        ServerApi("http://127.0.0.1", token)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("x.localhost", True),
     ("10.0.0.1", False), ("example.org", False), ("localhost.example.org", False)],
)  # fmt: skip
def test_this_machine_is_known_by_its_addresses(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


async def test_proxies_are_for_other_machines_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "inside.example")

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "only the proxy knows it")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    caplog.set_level(logging.WARNING, logger="byleave.client")
    assert ServerApi("http://127.0.0.1:1", TOKEN)._proxy is None
    assert caplog.text == ""
    assert ServerApi("http://outside.example", TOKEN)._proxy == "http://proxy.example:3128"
    assert "unencrypted" in caplog.text
    assert ServerApi("http://inside.example", TOKEN)._proxy is None


async def test_nothing_of_a_request_is_logged(
    api: ServerApi, server: StubServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.answers["/result"] = [problem(500)]
    with pytest.raises(UnreachableError):
        await api.post_result("p1", "t1", b'{"status":"completed","result":{"x":"secret-content"}}')
    assert "secret-content" not in caplog.text
    assert TOKEN not in caplog.text


# The feed


def text(piece: str) -> ChatText:
    return ChatText(timestamp=NOW, session_id="s1", run_id="r1", text=piece)


@pytest.mark.promise("R2")
async def test_a_viewer_gets_the_events_in_order(api: ServerApi, server: StubServer) -> None:
    for number in (1, 2, 3):
        server.event(number, text(str(number)))
    server.feed.put_nowait("end")
    got = [(number, event) async for number, event in api.stream("p1")]
    assert got == [(1, text("1")), (2, text("2")), (3, text("3"))]
    seen = server.seen("/stream")[0]
    assert seen.query == {"execute": "false"}
    assert "Last-Event-ID" not in seen.headers


@pytest.mark.promise("R2")
async def test_an_executing_client_says_who_and_where_it_is(api: ServerApi, server: StubServer) -> None:
    server.feed.put_nowait("end")
    stream = api.stream("p1", 7, executes=True, workspace="/home/a b", isolation="bubblewrap")
    assert [pair async for pair in stream] == []
    seen = server.seen("/stream")[0]
    assert seen.query == {"client": "client_1", "workspace": "/home/a b", "isolation": "bubblewrap"}
    assert seen.headers["Last-Event-ID"] == "7"
    assert stream.server_time is not None


async def test_only_a_client_with_an_id_executes(server: StubServer) -> None:
    async with ServerApi(server.url, TOKEN) as api:
        with pytest.raises(ConfigurationError, match="with an id"):
            api.stream("p1", executes=True)
        await api.post_output("p1", "t1", OutputChunk(stream="stdout", text="x", sequence=0))
    assert "Byleave-Client" not in server.requests[-1].headers


@pytest.mark.promise("R2")
async def test_what_is_not_understood_is_passed_over(api: ServerApi, server: StubServer) -> None:
    bad: list[Frame] = []
    server.feed.put_nowait(b"id: 1\nevent: tool.future_kind\ndata: {}\n\n: beat\n\n")
    server.feed.put_nowait(b"id: 2\nevent: chat.text\ndata: {not json\n\nid: x\nevent: chat.text\ndata: {}\n\n")
    server.feed.put_nowait(b'id: 3\nevent: chat.text\ndata: {"kind":"chat.text","more":1}\n\n')
    server.event(4, text("four"))
    server.feed.put_nowait("end")
    got = [(number, event) async for number, event in api.stream("p1", on_bad_frame=bad.append)]
    assert got == [(4, text("four"))]
    assert len(bad) == 3
    server.feed.put_nowait(b"id: 2\nevent: chat.text\ndata: {not json\n\n")
    server.feed.put_nowait("end")
    assert [pair async for pair in api.stream("p1")] == []


async def test_a_broken_stream_is_unreachable(api: ServerApi, server: StubServer) -> None:
    server.event(1, text("one"))
    server.feed.put_nowait(b"id: 2\nevent: chat.text\ndata: half")
    got: list[int] = []

    async def read() -> None:
        async for number, _ in api.stream("p1"):
            got.append(number)
            server.feed.put_nowait("drop")

    with pytest.raises(UnreachableError):
        await read()
    assert got == [1]


async def test_a_silent_stream_is_unreachable(
    api: ServerApi, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.client.api.SILENCE_SECONDS", 0.05)
    with pytest.raises(UnreachableError):
        assert [pair async for pair in api.stream("p1")]


async def test_what_is_no_feed_is_said(api: ServerApi, server: StubServer) -> None:
    server.stream_type = "text/html"
    with pytest.raises(ConfigurationError, match="has no feed"):
        async with api.stream("p1"):
            pass
    server.stream_answer = problem(404)
    with pytest.raises(NotFound):
        async with api.stream("p1"):
            pass
    await server.stop()
    with pytest.raises(UnreachableError):
        async with api.stream("p1"):
            pass


async def test_a_stream_never_opened_closes_too(api: ServerApi) -> None:
    await api.stream("p1").__aexit__(None, None, None)
