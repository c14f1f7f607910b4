"""The feed over HTTP (R2): in order, without a gap or a repeat, for whom it is meant, at the reader's pace."""

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Generator
from urllib.parse import urlsplit

import pytest

from byleave.calls.machines import ConnectedClient
from byleave.protocol.events import ChatText
from byleave.protocol.states import Scope
from byleave.protocol.wire import now
from byleave.server import feed as streams
from byleave.server import serving
from byleave.server.feed import FeedStream, Reader
from byleave.store import StorageError
from byleave.store.database import Transaction
from byleave.store.ledger import PAGE_CHARACTERS, Ledger, feed_topic
from harness.http_server import Server, StartServer, User
from harness.signing import page_headers

pytestmark = pytest.mark.usefixtures("database_url")

CHAT = (Scope.CHAT,)


async def _refused(alice: User, project: str, number: int) -> None:
    """A quick way to two events: a call the gate refuses."""
    await alice.execute(project, "execute_command", {"command": "rm", "args": [str(number)]})


@pytest.mark.promise("R2", "R-events")
async def test_reader_who_resumes_misses_nothing_and_gets_nothing_twice_while_others_write(server: Server) -> None:
    alice = server.user()
    project = await alice.project()

    async def write() -> None:
        for number in range(40):
            await _refused(alice, project, number)

    writing = asyncio.gather(write(), write())
    seen: list[int] = []
    while len(seen) < 160:
        async with alice.feed(project, last=seen[-1] if seen else 0) as feed:
            seen += [frame.seq for frame in await feed.take(min(20, 160 - len(seen)))]
    await writing
    assert seen == list(range(1, 161))


@pytest.mark.promise("R2")
async def test_stream_without_a_number_starts_now_and_beyond_the_head_too(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    await _refused(alice, project, 0)
    for last in (None, 999):
        async with alice.feed(project, last=last) as feed:
            head = await server.parts.store.feed.head(project)
            await _refused(alice, project, 1)
            assert (await feed.take(1))[0].seq == head + 1
    async with alice.feed(project, "execute=false&last_event_id=1") as feed:
        assert (await feed.take(1))[0].seq == 2


async def test_number_that_is_none_is_400(server: Server) -> None:
    alice = server.user()
    path = f"/my/projects/{await alice.project()}/chat/stream"
    for last in ("-1", "x", "1.5", "\xb2", "9" * 16, "9" * 20, "9" * 5000, "0" * 17):
        answer = await alice.get(path, headers={"Last-Event-ID": last})
        assert answer.status == 400, last
    for query in (
        "last_event_id=x",
        "client=not an id",
        "client=a&workspace=a%00b",
        "isolation=%20",
        "execute=perhaps",
    ):
        assert (await alice.get(f"{path}?{query}")).status == 400, query


@pytest.mark.promise("R2")
async def test_idle_stream_beats(start_server: StartServer) -> None:
    server = await start_server(heartbeat_seconds=0.02)
    alice = server.user()
    async with alice.feed(await alice.project()) as feed:
        for _ in range(3):
            assert await feed.raw() == b": beat"


@pytest.mark.promise("R2")
async def test_stream_ends_in_order_when_the_record_cannot_be_read(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alice = server.user()
    project = await alice.project()

    async def fail(*args: object, **kwargs: object) -> None:
        raise StorageError("The database cannot be read.")

    async with alice.feed(project, last=0) as feed:
        await _refused(alice, project, 0)
        last = (await feed.take(2))[-1].seq
        with monkeypatch.context() as patched:
            patched.setattr(server.parts.store.feed, "after", fail)
            server.parts.bus.publish(feed_topic(project), None)
            assert [frame async for frame in feed.frames()] == []
    assert not [record for record in caplog.records if record.exc_info]
    async with alice.feed(project, last=last) as feed:
        await _refused(alice, project, 1)
        assert (await feed.take(1))[0].seq == last + 1


@pytest.mark.promise("W8", "S5")
async def test_signal_goes_to_its_client_alone(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "client=laptop") as laptop, alice.feed(project, "client=desktop") as desktop:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        signal = await laptop.until("tool.execution_signal")
        path = f"/my/projects/{project}/tools/{signal.data['tool_id']}/result"
        await alice.post(path, {"status": "completed", "result": {}})
        kinds: list[str] = []
        async for frame in desktop.frames():
            kinds.append(frame.kind)
            if frame.kind == "tool.finished":
                break
        assert kinds == ["tool.started", "tool.result_ack", "tool.finished"]
        await calling


@pytest.mark.promise("W8")
async def test_call_that_waited_for_a_machine_goes_to_the_first_that_comes(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project) as watching:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        await watching.until("tool.started")
        async with alice.machine(project) as signals:
            assert (await calling).json["status"] == "completed"
    assert signals[0]["client_id"] == "laptop"


async def test_client_that_forgot_where_it_was_is_told_again_and_one_that_resumes_is_replayed(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "client=laptop") as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        first = await feed.until("tool.execution_signal")
    async with alice.feed(project, "client=laptop") as feed:
        again = await feed.until("tool.execution_signal")
        assert (again.data["tool_id"], again.seq > first.seq) == (first.data["tool_id"], True)
    async with alice.feed(project, "client=laptop", last=first.seq - 1) as feed:
        replayed = await feed.until("tool.execution_signal")
        assert replayed.seq == first.seq
        assert replayed.data["tool_params"]["path"] == "a.txt"
        await alice.post(
            f"/my/projects/{project}/tools/{first.data['tool_id']}/result", {"status": "failed", "error": "no"}
        )
    assert (await calling).json["status"] == "failed"


async def test_stream_that_may_execute_and_does_not_say_otherwise_gets_signals(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "") as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        signal = await feed.until("tool.execution_signal")
        assert signal.data["client_id"].startswith("anon_")
        path = f"/my/projects/{project}/tools/{signal.data['tool_id']}/result"
        assert (await alice.post(path, {"status": "completed", "result": {}})).status == 200
        await calling


async def test_viewers_are_no_machines_and_leaving_is_noticed(server: Server) -> None:
    alice, viewer = server.user(), server.user(scopes=CHAT)
    project = await alice.project()
    presence = server.parts.presence
    async with alice.feed(project), viewer.feed(project, ""), alice.feed(project, "client=laptop") as feed:
        assert [client.client_id for client in presence.clients(project)] == ["laptop"]
        assert server.parts.streams.count() == 3
        feed.response.close()
        async with asyncio.timeout(10):
            while presence.clients(project):
                await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        while server.parts.streams.count():
            await asyncio.sleep(0.01)


async def test_client_without_the_scope_to_execute_is_refused(server: Server) -> None:
    alice, viewer = server.user(), server.user(scopes=CHAT)
    path = f"/my/projects/{await alice.project()}/chat/stream?client=laptop"
    answer = await viewer.get(path)
    assert (answer.status, "execute" in answer.json["detail"]) == (403, True)


async def test_streams_beyond_the_limit_are_429(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_PER_USER", 2)
    alice, bob = server.user(), server.user("bob")
    project, other = await alice.project(), await bob.project()
    async with alice.feed(project), alice.feed(project):
        answer = await alice.get(f"/my/projects/{project}/chat/stream?execute=false")
        assert (answer.status, answer.json["title"]) == (429, "Too Many Requests")
        async with bob.feed(other):
            pass


async def test_lost_hints_cost_time_and_no_event(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = server.user()
    project = await alice.project()
    monkeypatch.setattr(streams, "LOOK_AGAIN_SECONDS", 0.02)
    async with alice.feed(project) as feed:
        monkeypatch.setattr(server.parts.bus, "publish", lambda topic, fact=None: None)
        await _refused(alice, project, 0)
        assert [frame.seq for frame in await feed.take(2)] == [1, 2]
        monkeypatch.undo()
        server.parts.bus.publish(feed_topic(project), None)
        await _refused(alice, project, 1)
        assert [frame.seq for frame in await feed.take(2)] == [3, 4]


@pytest.mark.promise("R2")
async def test_reader_that_does_not_read_costs_bounded_memory_and_loses_nothing(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    host = urlsplit(server.url)
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        reader.connect((host.hostname, host.port))
        path = f"/my/projects/{project}/chat/stream?execute=false"
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: {host.netloc}",
            "Last-Event-ID: 0",
            f"Authorization: Bearer {alice.token}",
        )
        reader.sendall("\r\n".join((*lines, "", "")).encode())
        streams_of = server.parts.streams._streams
        # Only a stream that is caught up buffers: one that is behind reads the store anyway.
        async with asyncio.timeout(10):
            while all(stream._behind for stream in streams_of.get("alice", ())):
                await asyncio.sleep(0.01)
        (stream,) = streams_of["alice"]
        most = 0
        for _ in range(100):
            await server.parts.store.database.write(_say(project, 100, "x" * 1000))
            most = max(most, len(stream._buffer))
            assert stream._characters <= streams.BUFFER_CHARACTERS
        assert 0 < most <= streams.BUFFER_EVENTS
        newest = await server.parts.store.feed.head(project)
        assert newest == 10_000
        assert stream._sent < newest // 2, "it was held up by the reader, not by us"
        reader.setblocking(False)  # noqa: FBT003 - the standard library's signature
        loop = asyncio.get_running_loop()
        seen, rest = 0, b""
        async with asyncio.timeout(30):
            while seen < newest:
                rest += await loop.sock_recv(reader, 1 << 20)
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    if line.startswith(b"id: "):
                        assert int(line[4:]) == seen + 1
                        seen += 1


def _say(project: str, count: int, text: str) -> Callable[[Transaction], None]:
    said = ChatText(timestamp=now(), session_id="sess_1", run_id="run_1", text=text)

    def say(transaction: Transaction) -> None:
        with Ledger(transaction, project) as ledger:
            for _ in range(count):
                ledger.event(said)

    return say


async def test_page_of_the_feed_is_bounded_and_says_that_there_is_more(server: Server) -> None:
    project = await server.user().project()
    store = server.parts.store
    await store.database.write(_say(project, 40, "x" * (PAGE_CHARACTERS // 18)))
    await store.database.write(_say(project, 1, "y" * (2 * PAGE_CHARACTERS)))
    await store.database.write(_say(project, 3, "z"))
    seen, more, pages = 0, True, list[list[int]]()
    while more:
        events, seen, more, _ = await store.feed.after(project, seen, client_id=None, limit=100)
        pages.append([event.seq for event in events])
        assert sum(len(event.payload) for event in events[:-1]) < PAGE_CHARACTERS
    assert [seq for page in pages for seq in page] == list(range(1, 45))
    assert [len(page) for page in pages] == [18, 18, 5, 3]
    assert await store.feed.after(project, 44, client_id=None, limit=100) == ([], 44, False, 44)
    assert (await store.feed.after(project, 41, client_id=None, limit=2))[1:] == (43, True, 41)


@pytest.mark.promise("R2")
@pytest.mark.parametrize("removed", [150, 250, 300], ids=["two pages are left", "some are left", "none is left"])
async def test_reader_is_told_once_of_events_removed_while_it_reads(server: Server, removed: int) -> None:
    project = await server.user().project()
    write = server.parts.store.database.write
    await write(_say(project, 300, "x"))
    stream = await server.parts.streams.open(Reader("alice", project, None, 0))
    assert re.findall(rb"id: (\d+)", await stream.next())[-1] == b"100"
    await write(lambda transaction: transaction.execute("DELETE FROM events WHERE seq <= :last", {"last": removed}))
    found = [await stream.next()]
    await write(_say(project, 1, "y"))
    while b"id: 301\n" not in found[-1]:
        found.append(await stream.next())
    told = [(int(seq), kind) for seq, kind in re.findall(rb"id: (\d+)\nevent: (\S+)", b"".join(found))]
    assert told == [(100, b"feed.gap"), *((seq, b"chat.text") for seq in range(removed + 1, 302))]
    assert f'"oldest":{removed}'.encode() in found[0]
    stream.close()


@pytest.mark.promise("R2")
async def test_many_readers_that_do_not_read_hold_little_each(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = server.user()
    project = await alice.project()
    write = server.parts.store.database.write
    await write(_say(project, 100, "x" * 60_000))
    held: dict[FeedStream, list[int]] = {}
    following = FeedStream.next

    async def watched(stream: FeedStream) -> bytes:
        chunk = await following(stream)
        held.setdefault(stream, []).append(len(chunk))
        return chunk

    monkeypatch.setattr(FeedStream, "next", watched)
    host = urlsplit(server.url)
    path = f"/my/projects/{project}/chat/stream?execute=false"
    head = f"GET {path} HTTP/1.1\r\nHost: {host.netloc}\r\nLast-Event-ID: 0\r\nAuthorization: Bearer {alice.token}\r\n"
    with contextlib.ExitStack() as open_sockets:
        for _ in range(streams.STREAMS_PER_USER):
            reader = open_sockets.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            reader.connect((host.hostname, host.port))
            reader.sendall(f"{head}\r\n".encode())
        async with asyncio.timeout(20):
            while len(held) < streams.STREAMS_PER_USER:
                await asyncio.sleep(0.01)
        answer = await alice.get(path)
        assert answer.status == 429
        await write(_say(project, 20, "y" * 60_000))
        for stream, chunks in held.items():
            assert max(chunks) < PAGE_CHARACTERS + 70_000
            assert stream._sent < 120, "it was held up by the reader, not by us"
            assert stream._characters <= streams.BUFFER_CHARACTERS


@contextlib.contextmanager
def small_reader(server: Server, alice: User, project: str) -> Generator[socket.socket]:
    """A connection of the client `laptop` that takes little at once."""
    host = urlsplit(server.url)
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect((host.hostname, host.port))
        reader.settimeout(0)
        head = f"GET /my/projects/{project}/chat/stream?client=laptop HTTP/1.1\r\nHost: {host.netloc}\r\n"
        reader.sendall(f"{head}Authorization: Bearer {alice.token}\r\n\r\n".encode())
        yield reader


async def test_reader_that_takes_nothing_for_long_is_let_go(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(heartbeat_seconds=0.05)
    alice = server.user()
    project = await alice.project()
    monkeypatch.setattr(serving, "ANSWER_SECONDS", 0.05)
    with small_reader(server, alice, project):
        async with asyncio.timeout(30):
            while not server.parts.presence.clients(project):
                await asyncio.sleep(0.01)
            await server.parts.store.database.write(_say(project, 1, "z" * 8_000_000))
            while server.parts.presence.clients(project):
                await asyncio.sleep(0.01)


async def test_reader_that_takes_one_event_for_minutes_but_steadily_stays(
    monkeypatch: pytest.MonkeyPatch,  # undone after the server has stopped, by the same clock
    server: Server,
) -> None:
    alice = server.user()
    project = await alice.project()
    loop = asyncio.get_running_loop()
    time, skipped = loop.time, 0.0

    async def until(last: bytes) -> None:
        nonlocal skipped
        taken = b""
        async with asyncio.timeout(3600):
            while last not in taken:
                piece = await loop.sock_recv(reader, 65536)
                assert piece, "the stream has ended"
                taken = taken[-100:] + piece
                skipped += len(piece) / 50_000

    with small_reader(server, alice, project) as reader:
        await until(b"retry")
        await server.parts.store.database.write(_say(project, 1, "z" * 8_000_000 + "whole"))
        monkeypatch.setattr(loop, "time", lambda: time() + skipped)
        await until(b"whole")
        assert skipped > 2 * serving.ANSWER_SECONDS
        await server.parts.store.database.write(_say(project, 1, "and on"))
        await until(b"and on")


async def test_event_larger_than_the_buffer_still_arrives(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    content = "y" * (2 * streams.BUFFER_CHARACTERS)
    async with alice.feed(project, "client=laptop") as feed:
        answer = await alice.execute(project, "write_file", {"path": "a.txt", "content": content})
        await alice.post(f"/my/approvals/{answer.json['approval_id']}/confirm", {"decision": "approved"})
        signal = await feed.until("tool.execution_signal")
    assert signal.data["tool_params"]["content"] == content


async def test_stream_opened_while_the_server_closes_is_503(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    server.parts.streams.close()
    answer = await alice.get(f"/my/projects/{project}/chat/stream")
    assert answer.status == 503


async def test_stream_closed_while_it_opens_leaves_nobody_behind(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = server.user()
    project = await alice.project()
    executor, manager = server.parts.executor, server.parts.streams

    async def close_meanwhile(client: ConnectedClient, *, resumed: bool) -> None:
        manager.close()

    monkeypatch.setattr(executor, "client_connected", close_meanwhile)
    answer = await alice.get(f"/my/projects/{project}/chat/stream?client=laptop")
    assert answer.status == 503
    assert server.parts.presence.clients(project) == []
    assert manager.count() == 0


async def test_hints_that_overlap_or_leave_a_gap_are_made_good_from_the_store(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    for number in range(3):
        await _refused(alice, project, number)
    store = server.parts.store
    events, *_ = await store.feed.after(project, 0, client_id=None, limit=100)
    stream = FeedStream(store, project, None, 60)
    stream.start_at(4)
    assert b"id: 5" in await stream.next()
    stream.hear(tuple(events[:6]))  # all of it known
    stream.start_at(2)
    stream.hear(tuple(events[1:4]))  # one known, two new
    assert (await stream.next()).count(b"id: ") == 2
    stream.hear(tuple(events[5:6]))  # 5 is missing
    assert (await stream.next()).count(b"id: ") == 2
    stream.close()
    assert await stream.next() == b""


@pytest.mark.promise("R2", "A")
@pytest.mark.parametrize("by_cookie", [False, True])
async def test_stream_tells_nothing_more_once_its_token_or_cookie_has_expired(
    server: Server, monkeypatch: pytest.MonkeyPatch, by_cookie: bool
) -> None:
    alice = server.user()
    project = await alice.project()
    code = await server.parts.sign_in.new_code("alice")
    answer = await server.bearer("").get(f"/signin?code={code}", headers={"Authorization": ""})
    page = {"Sec-Fetch-Site": "same-origin", **page_headers(answer.headers["Set-Cookie"], answer.text)}
    headers = page if by_cookie else {"Authorization": f"Bearer {alice.token}"}
    url = f"{server.url}/my/projects/{project}/chat/stream?execute=false"
    async with server.session.get(url, headers=headers) as feed:
        assert feed.status == 200
        await _refused(alice, project, 0)
        while b"event:" not in await feed.content.readany():
            pass
        (stream,) = server.parts.streams._streams["alice"]
        later = stream.good_until
        assert streams.wall_clock() < later < streams.wall_clock() + 3600 * 24 * 31
        monkeypatch.setattr(streams, "wall_clock", lambda: later)
        await _refused(alice, project, 1)  # would have been told, and wakes it
        async with asyncio.timeout(10):
            assert b"event:" not in await feed.content.read()
    assert server.parts.streams.count() == 0


async def test_stream_on_which_nothing_happens_ends_with_its_token_too(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = server.user()
    project = await alice.project()
    stream = FeedStream(server.parts.store, project, None, 60)
    clock = iter([100.0, 100.0, 130.0])
    monkeypatch.setattr(streams, "wall_clock", lambda: next(clock))
    stream.good_until = 100.01
    async with asyncio.timeout(10):
        assert await stream.next() == b""
    assert stream.closed
