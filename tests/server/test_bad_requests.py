"""Requests that are broken, too large, misdirected or come at a bad moment: a clear answer, nothing lost, no hang."""

import asyncio
import ctypes
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from urllib.parse import urlsplit

import pytest
from starlette.types import Message, Receive, Send
from starlette.types import Scope as AsgiScope

from byleave.protocol.errors import MachineError
from byleave.protocol.states import Scope
from byleave.server import bodies, serving
from byleave.server.bodies import LARGE_BYTES, MAX_DEPTH, MAX_KEYS, MAX_MARKS, parse_json
from byleave.server.errors import TooLarge, WrongForm
from byleave.server.isolation import UserIsolationMiddleware
from byleave.server.problems import problem_response
from byleave.settings import ServerSettings
from byleave.store.database import Transaction
from harness.http_server import Answer, RequestOptions, Server, StartServer
from harness.json_values import Json

JSON = {"Content-Type": "application/json"}


def _is_problem(answer: Answer, status: int) -> None:
    assert answer.status == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (answer.json["status"], answer.json["type"]) == (status, "about:blank")
    assert answer.json["detail"].endswith(".")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"name": "a"} x', "not JSON"),
        (b"{'name': 'a'}", "not JSON"),
        (b'{"name": "a\x00b"}', "not JSON"),
        (b'{"name": NaN}', "NaN"),
        (b'{"name": -Infinity}', "-Infinity"),
        (b'{"name": 1e999}', "too large"),
        (b'{"name": "a", "name": "b"}', "twice"),
        (b'{"name": "\xff"}', "not UTF-8 (byte 10)"),
        (b'{"name": "\\ud800"}', "half of a character"),
        (b"1" * 5000, "not JSON"),
        (b"[" * 100_000, "nested"),
        (b"[" * 100_000 + b"]" * 100_000, "nested"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nested"),
    ],
)
def test_body_that_is_not_strict_json_is_refused_with_what_is_wrong(body: bytes, said: str) -> None:
    with pytest.raises(WrongForm) as told:
        parse_json(body)
    assert said in told.value.message


def test_json_at_the_limits_is_read() -> None:
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert json.dumps(parse_json(deep)).encode() == deep
    wide = b"[" + b",".join([b"{}"] * 1000) + b"]"
    assert len(parse_json(wide)) == 1000
    assert parse_json(rb'["\ud83d\ude00", 1.5, true, null]') == ["\U0001f600", 1.5, True, None]
    assert parse_json(rb'{"a\udc00": [1, "\udc00"]}', mend=True) != {}


def test_key_that_is_twice_among_many_is_found_quickly() -> None:
    keys = [f'"k{number}":1' for number in range(MAX_KEYS - 1)]
    many = "{" + ",".join([*keys, keys[-1]]) + "}"
    began = time.process_time()
    with pytest.raises(WrongForm, match=f"The key 'k{MAX_KEYS - 2}' is there twice"):
        parse_json(f"[{','.join([many] * 10)}]".encode())
    assert time.process_time() - began < 2


def test_object_with_very_many_keys_is_refused_before_each_is_complained_of() -> None:
    keys = [f'"k{number}":1' for number in range(MAX_KEYS + 1)]
    with pytest.raises(TooLarge, match="more than 1000 keys"):
        parse_json(f"{{{','.join(keys)}}}".encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"path":[' + b"[]," * 7_000_000 + b"[]]}",
        b'{"path":[' + b'"",' * 1_000_000 + b'""]}',
        b"[" * 2_000_000,
        b"[" + b'"\\\\",' * 300_000 + b"1]",
        b'["\\\\\\"",' + b"0," * 600_000 + b"1]",
    ],
    ids=["lists", "texts", "nested", "escapes", "numbers"],
)
def test_large_body_of_very_many_values_is_refused_before_it_is_parsed(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies.json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    began = time.process_time()
    with pytest.raises(TooLarge, match=f"more than {MAX_MARKS} values"):
        parse_json(body)
    assert time.process_time() - began < 2


def test_large_body_may_hold_any_long_text() -> None:
    for text in ("[{,:" * 400_000, '\\"[,' * 400_000, "\\" * 1_000_001 + "," * 300_000, "é\n" * 600_000):
        body = json.dumps({"status": "completed", "result": {"content": text, "more": [1, "\\"]}}).encode()
        assert len(body) > LARGE_BYTES
        assert parse_json(body)["result"]["content"] == text


async def test_large_body_is_read_beside_the_event_loop(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def watched(body: bytes, *, mend: bool = False) -> Json:
        threads.append(threading.current_thread() is threading.main_thread())
        return parse_json(body, mend=mend)

    monkeypatch.setattr(bodies, "parse_json", watched)
    alice = server.user()
    project = await alice.project()
    path = f"/my/projects/{project}/tools/exec_1/result"
    for size in (1, LARGE_BYTES):
        assert (await alice.post(path, {"status": "completed", "result": {"content": "x" * size}})).status == 404
    many = {"status": "completed", "result": {"content": [[]] * 500_000}}
    _is_problem(await alice.post(path, many), 413)
    wrong = await alice.execute(project, "write_file", {"path": "a", "content": "x" * LARGE_BYTES}, unknown=1)
    _is_problem(wrong, 400)
    assert threads == [True, True, False, False, False]


async def test_broken_bodies_are_400_over_http_and_the_server_lives_on(server: Server) -> None:
    alice = server.user()
    for body in (b"{", b"[" * 100_000, b"\xff", b'{"name":"a","name":"b"}', b'{"name":NaN}', b"null", b"[]"):
        _is_problem(await alice.post("/my/projects", data=body, headers=JSON), 400)
    assert (await alice.get("/my/projects")).json["total_count"] == 0


async def test_body_that_is_not_json_is_415(server: Server) -> None:
    alice = server.user()
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
        _is_problem(await alice.post("/my/projects", data=b'{"name":"a"}', headers=headers), 415)
    _is_problem(await alice.post("/my/projects"), 415)
    tool_id, _ = await alice.question(await alice.project())
    _is_problem(await alice.post(f"/my/tools/{tool_id}/cancel", data=b"x", headers={"Content-Type": "a/b"}), 415)
    content = {"Content-Type": "application/json; charset=utf-8"}
    assert (await alice.post("/my/projects", data=b'{"name":"a"}', headers=content)).status == 201


async def test_a_body_of_no_said_type_is_json_where_a_token_came_with_it(server: Server) -> None:
    alice = server.user()
    unsaid: RequestOptions = {"data": b'{"name":"a"}', "skip_auto_headers": ["Content-Type"]}
    assert (await alice.ask("POST", "/my/projects", **unsaid)).status == 201
    by_fetch = {"Content-Type": "text/plain;charset=UTF-8"}
    assert (await alice.post("/my/projects", data=b'{"name":"a"}', headers=by_fetch)).status == 201
    _is_problem(await alice.ask("POST", "/my/projects", data=b"name=a", skip_auto_headers=["Content-Type"]), 400)
    _is_problem(await alice.ask("POST", "/my/projects", **{**unsaid, "headers": {"Authorization": ""}}), 401)
    exchange = await alice.ask("POST", "/signin/exchange", data=b'{"code":"x"}', skip_auto_headers=["Content-Type"])
    _is_problem(exchange, 415)


async def test_body_beyond_the_limit_is_413_whether_or_not_its_length_is_said(start_server: StartServer) -> None:
    server = await start_server(max_body_bytes=2048, max_payload_bytes=4096)
    alice = server.user()
    project = await alice.project()
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1024
            yield b" " * 1024

    _is_problem(await alice.post("/my/projects", data=endless(), headers=JSON), 413)
    _is_problem(await alice.post("/my/projects", data=b" " * 3000, headers=JSON), 413)
    _is_problem(await alice.post("/signout", data=b" " * 3000, headers={**JSON, "Sec-Fetch-Site": "same-origin"}), 413)
    path = f"/my/projects/{project}/tools/exec_1/result"
    larger = {"status": "completed", "result": {"content": "x" * 3000}}
    assert (await alice.post(path, larger)).status == 404, "a result may be as large as a file"
    _is_problem(await alice.post(path, {"status": "completed", "result": {"content": "x" * 5000}}), 413)


async def test_host_that_is_not_ours_is_421_on_every_path(start_server: StartServer) -> None:
    server = await start_server(allowed_hosts=("127.0.0.1", "::1", "byleave.example"))
    alice = server.user()
    port = urlsplit(server.url).port
    strange = (
        "",
        "[::2]",
        "[::1",
        "[::1]evil.example",
        f"[::1]:{port}@evil.example",
        "byleave.example@evil",
        "byleave.example:80@evil.example",
        "127.0.0.1:x",
        "127.0.0.1:80:80",
    )
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", *strange):
        for path in ("/healthz", "/", "/my/projects", "/nothing"):
            _is_problem(await alice.get(path, headers={"Host": host}), 421)
    for host in ("127.0.0.1", f"127.0.0.1:{port}", "BYLEAVE.example:443", f"[::1]:{port}"):
        assert (await alice.get("/my/projects", headers={"Host": host})).status == 200


async def _raw(server: Server, data: bytes) -> bytes:
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_requests_that_are_no_http_get_a_problem_and_an_end(server: Server) -> None:
    broken = (
        b"nonsense\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA: b\x00c\r\n\r\n",
    )
    for data in broken:
        answer = await _raw(server, data)
        assert answer.startswith(b"HTTP/1.1 400"), data
        assert b"application/problem+json" in answer
    doubled = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\nConnection: close\r\n\r\n"
    assert b"given twice" in await _raw(server, doubled)
    cookies = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: a=b\r\nCookie: c=d\r\nConnection: close\r\n\r\n"
    assert b" 200 OK" in await _raw(server, cookies)


def _post(path: str, length: int, *, token: str = "", host: str = "127.0.0.1") -> bytes:
    """The head of a POST with a body of this length."""
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{bearer}Content-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


async def test_body_that_stops_arriving_is_refused_whoever_sends_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "BODY_SECONDS", 0.05)
    token = server.user().token
    for head, status in (
        (_post("/my/projects", 500_000, token=token), b"408"),
        (_post("/proof", 50_000), b"408"),
        # One who was answered before the end of the body does not keep the connection either.
        (_post("/my/projects", 500_000), b"401"),
    ):
        assert (await _raw(server, head + b"x" * 40_000)).startswith(b"HTTP/1.1 " + status)


async def test_body_that_keeps_arriving_may_take_its_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(serving, "BODY_BYTES", 1)
    body = b'{"name":"' + b"x" * 100 + b'"}'
    reader, writer = await asyncio.open_connection(server.listening.host, server.listening.port)
    writer.write(_post("/my/projects", len(body), token=server.user().token))
    for byte in body:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.005)  # all of it takes ten times as long as nothing may come
    async with asyncio.timeout(10):
        assert (await reader.readline()).startswith(b"HTTP/1.1 201")
    writer.close()


async def test_nobody_we_do_not_know_sends_a_large_body(server: Server) -> None:
    for path in ("/proof", "/signin/exchange"):
        _is_problem(await server.user().post(path, {"x": "y" * 500_000}), 413)


async def test_sender_who_goes_away_in_the_middle_is_no_fault_of_the_servers(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    _, writer = await asyncio.open_connection(server.listening.host, server.listening.port)
    writer.write(_post("/my/projects", 500_000, token=server.user().token) + b"x" * 100)
    await writer.drain()
    writer.close()
    said = ""
    async with asyncio.timeout(10):
        while "broken off by its sender" not in said:
            await asyncio.sleep(0.01)
            said += capsys.readouterr().out
    assert "unexpected error" not in said
    assert "status=500" not in said


async def test_unfinished_bodies_of_one_user_share_one_limit(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(max_payload_bytes=300_000)
    alice, bob, agent = server.user(), server.user("bob"), server.user(scopes=(Scope.AGENT,))
    host, port = server.listening.host, server.listening.port
    _, writer = await asyncio.open_connection(host, port)
    writer.write(_post("/my/tools/execute", 200_000, token=alice.token) + b"x" * 150_000)
    await writer.drain()
    large = {"project_id": "p", "tool_name": "read_file", "tool_params": {"path": "x" * 150_000}}
    monkeypatch.setattr(bodies, "ROOM_SECONDS", 0.05)
    async with asyncio.timeout(10):
        while (refused := await alice.post("/my/tools/execute", large)).status == 404:
            await asyncio.sleep(0.01)  # the unfinished one was not seen yet
    _is_problem(refused, 429)
    assert (await bob.post("/my/tools/execute", large)).status == 404
    assert (await agent.post("/my/tools/execute", large)).status == 404, "agents take nothing from their person"
    assert (await alice.post("/my/projects", {"name": "small ones pass"})).status == 201
    monkeypatch.setattr(bodies, "ROOM_SECONDS", 10)
    waiting = [asyncio.create_task(alice.post("/my/tools/execute", large)) for _ in range(3)]
    writer.close()
    assert [(await answer).status for answer in waiting] == [404, 404, 404]


async def test_memory_of_large_bodies_is_given_back_once_all_are_answered(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(max_payload_bytes=300_000)
    alice, bob = server.user(), server.user("bob")
    _, writer = await asyncio.open_connection(server.listening.host, server.listening.port)
    writer.write(_post("/my/tools/execute", 200_000, token=bob.token) + b"x" * 150_000)
    await writer.drain()
    large = {"project_id": "p", "tool_name": "read_file", "tool_params": {"path": "x" * 150_000}}
    monkeypatch.setattr(bodies, "ROOM_SECONDS", 0.05)
    async with asyncio.timeout(10):
        while (await bob.post("/my/tools/execute", large)).status == 404:
            await asyncio.sleep(0.01)  # the unfinished one was not seen yet
    given_back = asyncio.Event()
    monkeypatch.setattr(bodies, "MUCH_BYTES", 400_000)
    monkeypatch.setattr(bodies, "QUIET_SECONDS", 0)
    monkeypatch.setattr(bodies, "give_back", given_back.set)
    for _ in range(4):
        assert (await alice.post("/my/tools/execute", large)).status == 404
    assert not given_back.is_set(), "one body is not finished"
    writer.close()
    async with asyncio.timeout(10):
        await given_back.wait()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_memory_that_is_given_back_is_the_systems_again() -> None:
    script = """
import os, resource
from byleave.server.bodies import give_back
def held(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() // 2**20
pieces = [os.urandom(1) * 60_000 for _ in range(1500)]
del pieces[:-1]  # the last one keeps the heap from shrinking by itself
before = held()
give_back()
print(before - held())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50


async def test_headers_without_end_are_cut_off(server: Server) -> None:
    for start in (b"GET /" + b"x" * 200_000, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 200_000):
        answer = await _raw(server, start)
        assert answer == b"" or b"too long" in answer
    assert (await server.user().get("/healthz")).status == 200


async def _send_until_closed(server: Server, start: bytes, more: bytes) -> None:
    _, writer = await asyncio.open_connection(server.listening.host, server.listening.port)
    writer.write(start)
    try:
        async with asyncio.timeout(10):
            while True:
                writer.write(more)
                await writer.drain()
                await asyncio.sleep(0)
    finally:
        writer.close()


async def test_trailers_without_end_are_cut_off(server: Server) -> None:
    chunked = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    start = b"POST /proof HTTP/1.1\r\nHost: 127.0.0.1\r\n" + chunked + b"\r\n2\r\n{}\r\n0\r\n"
    for trailers in ((b"a: " + b"b" * 1000 + b"\r\n") * 100, b"a: b" + b"b" * 100_000):
        with pytest.raises(ConnectionError):
            await _send_until_closed(server, start, trailers)
    whole = start.replace(b"Host:", b"Connection: close\r\nHost:") + b"a: b\r\n\r\n"
    assert b"too long" not in await _raw(server, whole)


async def test_body_in_many_small_chunks_is_read(server: Server) -> None:
    text = b'{"name":"' + b"x" * 100 + b'"}' + b" " * 30_000
    head = _post("/my/projects", 0, token=server.user().token).replace(
        b"Content-Length: 0", b"Connection: close\r\nTransfer-Encoding: chunked"
    )
    chunks = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in text)
    assert b" 201 " in await _raw(server, head + chunks + b"0\r\n\r\n")


async def test_pipelined_requests_beyond_the_limit_are_left_out_and_the_connection_ends(server: Server) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answers = await _raw(server, request * 1000)
    assert answers.count(b"HTTP/1.1 200") == serving.MAX_PIPELINED + 1
    assert answers.count(b"connection: close") == 1


async def test_answer_that_nobody_reads_is_dropped_with_those_behind_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed: asyncio.Queue[int] = asyncio.Queue()
    lost = serving.BoundedProtocol.connection_lost

    def note(protocol: serving.BoundedProtocol, error: Exception | None) -> None:
        lost(protocol, error)
        closed.put_nowait(len(protocol.pipeline))

    monkeypatch.setattr(serving.BoundedProtocol, "connection_lost", note)
    monkeypatch.setattr(serving, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(serving, "MAX_PIPELINED", 100)
    request = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        unread.connect((server.listening.host, server.listening.port))
        unread.sendall(request * 100)  # more than the buffers of the system take
        async with asyncio.timeout(10):
            assert await closed.get() == 0
    assert (await server.user().get("/healthz")).status == 200
    assert "Traceback" not in capsys.readouterr().out


def test_error_of_the_system_that_is_not_the_records_says_nothing_of_what_was_kept() -> None:
    answer = problem_response(OSError(24, "Too many open files"), {"type": "http"})
    assert (answer.status_code, b"kept" in answer.body) == (500, False)


async def test_websocket_and_foreign_schemes_get_nowhere_and_warn_of_nothing(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    upgrade = (
        b"GET /my/projects HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n"
    )
    assert b" 401 " in await _raw(server, upgrade)
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


async def test_websocket_is_closed_before_anything_looks_at_it() -> None:
    sent: list[str | Message] = []

    async def inside(scope: AsgiScope, receive: Receive, send: Send) -> None:
        sent.append(scope["type"])

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    middleware = UserIsolationMiddleware(inside, settings=ServerSettings())
    await middleware({"type": "websocket"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_failure_after_the_answer_began_is_not_answered_twice() -> None:
    sent: list[str] = []

    async def inside(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise KeyError("late")

    async def send(message: Message) -> None:
        sent.append(message["type"])

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    middleware = UserIsolationMiddleware(inside, settings=ServerSettings())
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    with pytest.raises(KeyError):
        await middleware(scope, receive, send)
    assert sent == ["http.response.start"]


def _pages(server: Server, pages: int) -> Awaitable[None]:
    """Let the record have so many pages: how SQLite itself says that the disk is full."""

    def work(transaction: Transaction) -> None:
        transaction.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    return server.parts.store.database.write(work)


@pytest.mark.promise("D")
async def test_full_disk_is_503_and_nothing_is_lost_or_hangs(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    await _pages(server, 1)
    big = {"content": "x" * 90_000}
    refused = await alice.post(f"/my/projects/{project}/chat/messages", big)
    _is_problem(refused, 503)
    assert refused.json["detail"] == "The record cannot be written."
    assert "Retry-After" in refused.headers
    assert (await alice.get(f"/my/tools/{tool_id}")).json["status"] == "awaiting_approval"
    assert (await alice.get(f"/my/projects/{project}/chat/sessions")).json["total_count"] <= 1
    await _pages(server, 1_000_000)
    assert (await alice.post(f"/my/projects/{project}/chat/messages", big)).status == 202
    assert (await alice.post(f"/my/approvals/{approval_id}/confirm", {"decision": "approved"})).status == 200
    assert all(check.fault is None for check in await server.parts.store.audit.verify())


FILLING = "x" * 200_000


@pytest.mark.promise("W3")
async def test_call_whose_end_cannot_be_recorded_is_answered_and_found_again(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "client=laptop") as feed:
        call = {"path": "a.txt"}
        calling = asyncio.create_task(alice.execute(project, "read_file", call, idempotency_key="one"))
        signal = await feed.until("tool.execution_signal")
        result = f"/my/projects/{project}/tools/{signal.data['tool_id']}/result"
        report = {"status": "completed", "result": {"success": True, "content": FILLING}}
        who = {"Byleave-Client": "laptop"}
        await _pages(server, 1)
        _is_problem(await alice.post(result, report, headers=who), 503)
        _is_problem(answer := await calling, 503)
        assert "idempotency_key" in answer.json["hint"]
        await _pages(server, 1_000_000)
        assert (await alice.post(result, report, headers=who)).status == 200
        again = await alice.execute(project, "read_file", call, idempotency_key="one")
        assert (again.json["status"], again.json["result"]["content"]) == ("completed", FILLING)


async def test_our_own_fault_is_500_without_its_inside(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alice = server.user()

    async def broken(*_: object) -> None:
        raise KeyError("the inside of the server")

    monkeypatch.setattr(server.parts.store.chat, "projects", broken)
    answer = await alice.get("/my/projects")
    _is_problem(answer, 500)
    assert "inside" not in answer.text
    assert "KeyError" not in answer.text
    incident = answer.json["hint"].split()[-1].rstrip(".")
    assert incident in capsys.readouterr().out

    async def failing(*_: object) -> None:
        raise MachineError("A disk is gone.", hint="Look at it.")

    monkeypatch.setattr(server.parts.store.chat, "projects", failing)
    answer = await alice.get("/my/projects")
    assert (answer.status, answer.json["detail"], answer.json["hint"]) == (500, "A disk is gone.", "Look at it.")


async def test_every_answer_carries_the_headers_that_protect_and_none_that_open(server: Server) -> None:
    alice = server.user()
    for path in ("/", "/healthz", "/my/projects", "/my/nothing", "/nothing"):
        answer = await alice.get(path, headers={"Origin": "https://evil.example"})
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "Server" not in answer.headers
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        if path.startswith("/my"):
            assert answer.headers["Cache-Control"] == "no-store"


async def test_log_says_who_did_what_and_no_secret(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    alice = server.user()
    project = await alice.project("a very private name")
    await alice.execute(project, "write_file", {"path": "a.txt", "content": "the content of a file"})
    await alice.get(f"/my/projects/{project}/tools/available")
    told = capsys.readouterr().out
    assert "/my/projects" in told
    assert "call judged" in told
    assert "/my/tools/execute" not in told, "a call that went well is the record's business"
    await alice.execute("proj_nobodys", "read_file", {"path": "a.txt"})
    assert "/my/tools/execute" in capsys.readouterr().out
    assert "alice" in told
    for secret in (alice.token, "a very private name", "the content of a file", "/tools/available"):
        assert secret not in told
