"""Who is asking, the machines that are there, the audit chain, and older messages, over HTTP."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack

import pytest

from byleave.calls.machines import ConnectedClient, Presence
from byleave.protocol.states import Scope
from byleave.server.errors import TooMany
from byleave.server.feed import Attendance
from byleave.server.routes.audit import Verifications
from byleave.store import StorageError
from byleave.store.audit import PIECE, Audit, ChainCheck
from harness.http_server import Server, User
from harness.json_values import JsonObject

PEOPLE = (Scope.CHAT, Scope.APPROVE)
HERE = {"workspace": "/home/someone/code", "isolation": "bwrap", "editor": None}


async def test_everybody_is_told_who_they_are(server: Server) -> None:
    for scopes in ((Scope.AGENT,), (Scope.EXECUTE,), PEOPLE):
        answer = await server.user("alice", scopes).get("/my/me")
        assert answer.json["user_id"] == "alice"
        assert answer.json["scopes"] == sorted(scope.value for scope in scopes)
        assert answer.json["chat"] is True
        assert answer.json["version"][0].isdigit()


# Machines


def _query(client: str) -> str:
    return f"client={client}&workspace=/home/someone/code&isolation=bwrap"


async def test_machines_are_listed_and_the_feed_tells_when_they_come_and_go(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    path = f"/my/projects/{project}/machines"
    assert (await alice.get(path)).json == {"machines": [], "total_count": 0}
    async with alice.feed(project) as feed, alice.feed(project, "execute=true"):
        async with alice.feed(project, _query("laptop")) as laptop:
            first = {"client_id": "laptop", **HERE, "next": True}
            assert (await feed.until("project.machines")).data["machines"] == [first]
            assert (await laptop.until("project.machines")).data["machines"] == [first], "itself is told, too"
            async with alice.feed(project, _query("desk")):
                both = [first, {"client_id": "desk", **HERE, "next": False}]
                assert (await feed.until("project.machines")).data["machines"] == both
                assert (await alice.get(path)).json == {"machines": both, "total_count": 2}
        assert (await feed.until("project.machines")).data["machines"] == []
        assert (await alice.get(path)).json["total_count"] == 0
    for said, editor in (("vscode", "vscode"), ("<b>", None)):
        async with alice.feed(project, _query("laptop"), byleave_editor=said):
            assert [one["editor"] for one in (await alice.get(path)).json["machines"]] == [editor]
    actions = {entry["action"] for entry in (await alice.get(f"/my/projects/{project}/audit")).json["entries"]}
    assert actions == {"project_created"}, "who is there is no link of the chain"


class _Heard:
    """Takes the place of the store."""

    def __init__(self) -> None:
        self.machines = self
        self.told: list[list[str]] = []
        self.news = asyncio.Event()
        self.broken = False

    async def tell(self, project_id: str, machines: Iterable[ConnectedClient]) -> None:
        if self.broken:
            raise StorageError("The database failed.")
        self.told.append([machine.client_id for machine in machines])
        self.news.set()

    async def next(self) -> list[str]:
        async with asyncio.timeout(5):
            await self.news.wait()
        self.news.clear()
        return self.told[-1]


def _client(name: str) -> ConnectedClient:
    return ConnectedClient(name, "proj_1", declared=True)


async def test_storm_of_connections_is_told_once_in_a_while_and_the_last_state_wins() -> None:
    heard, presence = _Heard(), Presence()
    attendance = Attendance(heard, presence, pause=0.05)  # type: ignore[arg-type] - all it uses of the store
    for number in range(500):
        leave = presence.connect(_client(f"c{number % 7}"))
        if number % 7:
            leave()
        if number % 50 == 0:
            await asyncio.sleep(0)
    assert await heard.next() == ["c0"]
    presence.connect(_client("late"))
    while await heard.next() != ["c0", "late"]:
        pass
    assert len(heard.told) <= 3
    gone = presence.connect(_client("late"))
    gone()
    await asyncio.sleep(0.05)
    assert heard.told[-1] == ["c0", "late"], "a second stream that ends changes nothing"
    heard.broken = True
    leave = presence.connect(_client("unheard"))
    await asyncio.sleep(0.01)
    heard.broken = False
    leave()
    presence.connect(_client("after"))
    while "after" not in await heard.next():
        pass
    assert "unheard" not in heard.told[-1]
    attendance.close()
    presence.connect(_client("nobody cares"))
    await attendance.wait_closed()
    assert "nobody cares" not in heard.told[-1]


async def test_machine_that_is_back_in_a_moment_is_told_to_those_who_read_the_list_meanwhile() -> None:
    heard, presence = _Heard(), Presence()
    attendance = Attendance(heard, presence, pause=0.05)  # type: ignore[arg-type] - all it uses of the store
    leave = presence.connect(_client("c0"))
    assert await heard.next() == ["c0"]
    leave()
    assert presence.machines("proj_1") == []
    presence.connect(_client("c0"))
    assert await heard.next() == ["c0"]
    await attendance.wait_closed()


def test_machines_are_named_once_each_and_only_those_that_say_who_they_are() -> None:
    presence = Presence()
    presence.connect(ConnectedClient("anon_1", "proj_1", declared=False))
    assert presence.machines("proj_1") == []
    for name in ("b", "a", "b"):
        presence.connect(_client(name))
    presence.connect(ConnectedClient("c", "proj_2", declared=True))
    assert [(machine.client_id, machine.next) for machine in presence.machines("proj_1")] == [("b", True), ("a", False)]


# The audit chain


async def _chain(alice: User, calls: int) -> str:
    project = await alice.project()
    for _ in range(calls):
        await alice.execute(project, "execute_command", {"command": "rm", "args": ["-rf", "/"]})
    return project


@pytest.mark.promise("R-user")
async def test_chain_is_read_newest_first_page_by_page_and_verified(server: Server) -> None:
    alice = server.user()
    project = await _chain(alice, 7)
    path = f"/my/projects/{project}/audit"
    everything = (await alice.get(path)).json
    assert everything["total_count"] == len(everything["entries"]) == 9
    assert everything["next_before"] is None
    assert [entry["seq"] for entry in everything["entries"]] == list(range(9, 0, -1))
    assert everything["entries"][0]["detail"]["tool"] == "execute_command"
    paged: list[JsonObject] = []
    before: int | None = None
    while before is not None or not paged:
        page = (await alice.get(f"{path}?limit=3" + (f"&before={before}" if before else ""))).json
        paged += page["entries"]
        before = page["next_before"]
    assert paged == everything["entries"]
    for query in ("limit=0", "limit=201", "before=0", "before=x", "after=1"):
        assert (await alice.get(f"{path}?{query}")).status == 400, query
    check = (await alice.get(f"{path}/verify")).json
    assert (check["holds"], check["fault"], check["records"]) == (True, None, 9)
    assert check["head"] == everything["entries"][0]["hash"]
    for user in (server.user("bob"), server.user("alice", (Scope.AGENT,)), server.user("alice", (Scope.EXECUTE,))):
        for route in (path, f"{path}/verify", f"/my/projects/{project}/machines"):
            assert (await user.get(route)).status in (403, 404)


@pytest.mark.promise("R-user")
async def test_changed_chain_shows_and_those_who_ask_at_once_share_one_verification(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = server.user()
    project = await _chain(alice, 3)
    with sqlite3.connect(server.settings.home / "byleave.db") as other:
        other.execute("UPDATE audit SET actor = 'nobody' WHERE project_id = ? AND seq = 2", (project,))
    begun: Counter[str] = Counter()
    verify = Audit.verify_project

    async def counted(self: Audit, project_id: str) -> ChainCheck:
        begun[project_id] += 1
        while begun[project_id] == 1 and len(server.parts.waiting) < 5:
            await asyncio.sleep(0.01)
        return await verify(self, project_id)

    monkeypatch.setattr(Audit, "verify_project", counted)
    path = f"/my/projects/{project}/audit/verify"
    answers = await asyncio.gather(*(alice.get(path) for _ in range(5)))
    assert {(answer.json["holds"], answer.json["fault"]) for answer in answers} == {(False, "record 2 was changed")}
    assert begun == {project: 1}
    assert (await alice.get(path)).json["records"] == 1
    assert begun == {project: 2}, "a later one looks again"


@pytest.mark.promise("R-user")
async def test_one_user_verifies_one_chain_at_a_time_and_others_are_not_held_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = server.user(), server.user("bob")
    first, second, of_bob = await alice.project(), await alice.project(), await bob.project()
    begun, go_on, verify = asyncio.Event(), asyncio.Event(), Audit.verify_project

    async def held(self: Audit, project_id: str) -> ChainCheck:
        if project_id == first:
            begun.set()
            await go_on.wait()
        return await verify(self, project_id)

    monkeypatch.setattr(Audit, "verify_project", held)
    asking = asyncio.create_task(alice.get(f"/my/projects/{first}/audit/verify"))
    await begun.wait()
    refused = await alice.get(f"/my/projects/{second}/audit/verify")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    assert (await bob.get(f"/my/projects/{of_bob}/audit/verify")).status == 200
    go_on.set()
    assert (await asking).json["holds"] is True
    assert (await alice.get(f"/my/projects/{second}/audit/verify")).status == 200


async def test_after_a_long_verification_its_user_waits_as_long_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, clock = server.user(), server.user("bob"), [100.0]
    project, verify = await alice.project(), Audit.verify_project
    chains = Verifications(server.parts.store, clock=lambda: clock[0])

    async def long(self: Audit, project_id: str) -> ChainCheck:
        clock[0] += 20
        return await verify(self, project_id)

    monkeypatch.setattr(Audit, "verify_project", long)
    assert (await chains.verify(project, "alice")).holds
    clock[0] += 12.5
    with pytest.raises(TooMany) as refused:
        await chains.verify(project, "alice")
    assert (refused.value.retry_after, refused.value.hint) == (8, "Ask again in 8 seconds.")
    assert (await chains.verify(await bob.project(), "bob")).holds, "somebody else"
    assert (await chains.verify(project, "alice")).holds, "its time is over"


async def test_verification_that_is_under_way_does_not_hold_up_the_end_of_the_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = server.user()
    project = await alice.project()
    begun = asyncio.Event()

    async def endless(self: Audit, project_id: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Audit, "verify_project", endless)
    asking = asyncio.create_task(alice.get(f"/my/projects/{project}/audit/verify"))
    await begun.wait()
    server.listening.stop()
    async with asyncio.timeout(5):
        await server.task
        assert (await asking).status == 503


async def test_chain_of_several_pieces_is_verified_to_its_end(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    declare = server.parts.store.machines.declare
    await asyncio.gather(*(declare(project, "c1", str(number), digest="d") for number in range(PIECE + 10)))
    path = f"/my/projects/{project}/audit/verify"
    assert (await alice.get(path)).json["records"] == PIECE + 11
    with sqlite3.connect(server.settings.home / "byleave.db") as other:
        other.execute("DELETE FROM audit WHERE project_id = ? AND seq = ?", (project, PIECE + 5))
    assert (await alice.get(path)).json["fault"] == f"record {PIECE + 5} is missing"


# Older messages


async def _session_of(server: Server, alice: User, count: int) -> tuple[str, str, list[str]]:
    """A session with so many messages, all of the same moment."""
    project = await alice.project()
    first = (await alice.post(f"/my/projects/{project}/chat/messages", {"content": "0"})).json
    await server.parts.store.runs.cancel(first["run_id"], user_id="alice", connected=frozenset())
    with sqlite3.connect(server.settings.home / "byleave.db") as other:
        other.execute("DELETE FROM messages WHERE session_id = ?", (first["session_id"],))
        ids = [f"msg_{(number * 7919) % 100_003:06d}" for number in range(count)]
        other.executemany(
            "INSERT INTO messages (id, project_id, session_id, role, content, position, created_at) "
            "VALUES (?, ?, ?, 'user', ?, ?, '2026-01-01T00:00:00.000Z')",
            [(name, project, first["session_id"], str(at), at + 1) for at, name in enumerate(ids)],
        )
    return project, first["session_id"], ids


async def test_older_messages_come_page_by_page_in_the_order_they_were_written(server: Server) -> None:
    alice = server.user()
    project, session, ids = await _session_of(server, alice, 25)
    path = f"/my/projects/{project}/chat/messages?session_id={session}&limit=10"
    found: list[str] = []
    before = ""
    while True:
        page = (await alice.get(path + before)).json
        names = [message["message_id"] for message in page["messages"]]
        found = names + found
        assert page["total_count"] == len(names)
        if not page["more"]:
            break
        before = f"&before={names[0]}"
    assert found == ids
    assert (await alice.get(f"{path}&before={ids[0]}")).json == {"messages": [], "total_count": 0, "more": False}
    assert (await alice.get(f"{path}&before=msg_none")).status == 404
    other = (await alice.post(f"/my/projects/{project}/chat/messages", {"content": "x"})).json
    elsewhere = f"/my/projects/{project}/chat/messages?session_id={other['session_id']}&before={ids[3]}"
    assert (await alice.get(elsewhere)).status == 404, "a message of another session"
    assert (await server.user("bob").get(path + f"&before={ids[3]}")).status == 404


async def test_page_of_messages_is_found_by_an_index(server: Server) -> None:
    alice = server.user()
    _, session, ids = await _session_of(server, alice, 50)

    async with AsyncExitStack() as ends:
        other = sqlite3.connect(server.settings.home / "byleave.db")
        ends.callback(other.close)
        for sql, values in (
            (
                "SELECT * FROM messages WHERE session_id = ? AND position < ? ORDER BY position DESC LIMIT 11",
                (session, 40),
            ),
            ("SELECT position FROM messages WHERE id = ? AND session_id = ?", (ids[0], session)),
            ("SELECT * FROM audit WHERE project_id = ? AND seq < ? ORDER BY seq DESC LIMIT 50", ("x", 9)),
        ):
            plan = json.dumps(other.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall())
            assert "USING INDEX" in plan or "USING PRIMARY KEY" in plan, plan
            assert "TEMP B-TREE" not in plan, plan
