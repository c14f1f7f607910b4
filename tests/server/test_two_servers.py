"""What a person began at one server goes on at another of the same record, also when wake-ups get lost between them."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from pydantic import SecretStr

from byleave.server import services
from byleave.server.auth import sign_ins
from byleave.server.routes import undo as undoing
from byleave.settings import ServerSettings
from byleave.store import Store
from harness.http_server import SECRET, Answer, Feed, Frame, Server, StartServer, User, running_server
from harness.json_values import JsonObject
from harness.signing import page_headers

pytestmark = pytest.mark.promise("L8-undo", "S")

NOBODY = {"Authorization": ""}
DIGEST = "a" * 64


@pytest.fixture
async def first(database_url: str | None, start_server: StartServer) -> Server:
    return await start_server(database_url=database_url)


@pytest.fixture
async def second(first: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Server]:
    """A server that shares the first one's database and secret, but no memory, and hears no wake-up at all."""

    if first.settings.database.startswith("postgresql"):
        async with running_server(
            ServerSettings(home=tmp_path / "second", secret=SecretStr(SECRET), database_url=first.settings.database)
        ) as server:
            yield server
        return

    class SharedStore(Store):
        @classmethod
        async def open(cls, settings: ServerSettings, **_: object) -> Store:
            return cls(first.parts.store.database, settings)

        async def close(self) -> None:
            """The first one closes the database."""

    monkeypatch.setattr(services, "Store", SharedStore)
    async with running_server(ServerSettings(home=tmp_path / "second", secret=SecretStr(SECRET))) as server:
        yield server


@pytest.fixture(params=("told", "not told"))
def is_told(request: pytest.FixtureRequest) -> bool:
    """False: the first server hears no wake-up from here on that it does not listen to yet."""
    return request.param == "told"


def _hear_nothing_more(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.parts.bus, "listen", lambda topic, listener: lambda: None)


def _at(server: Server, user: User) -> User:
    """The same person's same token, at another server."""
    return server.bearer(user.token)


async def _signed_in(link: str, server: Server) -> dict[str, str]:
    answer = await server.bearer("").get(link, headers=NOBODY)
    assert answer.status == 200
    return {**NOBODY, "Sec-Fetch-Site": "same-origin", **page_headers(answer.headers["Set-Cookie"], answer.text)}


async def test_link_from_one_server_signs_in_at_another_once_and_the_cookie_is_good_at_both(
    first: Server, second: Server
) -> None:
    link = (await first.user().post("/my/signin")).json["path"]
    page = await _signed_in(link, second)
    for server in (first, second):
        assert (await server.bearer("").get(link, headers=NOBODY)).status == 401
        assert (await server.bearer("").get("/my/me", headers=page)).status == 200


async def test_link_opened_at_two_servers_at_once_gives_one_token(first: Server, second: Server) -> None:
    code = (await first.user().post("/my/signin")).json["path"].partition("code=")[2]
    asking = [
        server.bearer("").post("/signin/exchange", {"code": code}, headers=NOBODY) for server in (first, second) * 4
    ]
    statuses = sorted([answer.status for answer in await asyncio.gather(*asking)])
    assert statuses == [200, *[401] * 7]


async def test_sign_out_at_one_server_ends_requests_and_feeds_at_another(
    first: Server, second: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_ins, "LOOK_AGAIN_SECONDS", 0.05)
    alice = first.user()
    project = await alice.project()
    page = await _signed_in((await alice.post("/my/signin")).json["path"], first)
    other = await _signed_in((await alice.post("/my/signin")).json["path"], second)
    stream = f"{second.url}/my/projects/{project}/chat/stream"
    async with (
        second.session.get(stream, headers=page) as dead,
        second.session.get(stream, headers=other) as alive,
    ):
        assert (dead.status, alive.status) == (200, 200)
        assert (await first.bearer("").post("/signout", {}, headers=page)).status == 204
        assert (await second.bearer("").get("/my/me", headers=page)).status == 401
        async with asyncio.timeout(10):
            await dead.content.read()
        assert not alive.content.at_eof()
    assert (await second.bearer("").get("/my/me", headers=other)).status == 200


# Undo: the machine's stream is at the first server, where the person asks; its posts come to the second


async def _machine(alice: User, feed: Feed, posts_to: User, project: str) -> str:
    """A write that was approved, and that the machine has done."""
    tool_id, approval_id = await alice.question(project)
    decision = f"/my/projects/{project}/approvals/{approval_id}/approve"
    assert (await alice.post(decision, {"decision": "approved"})).status == 200
    await feed.until("tool.execution_signal", tool_id=tool_id)
    done = {"status": "completed", "result": {"success": True}}
    assert (await _post(posts_to, project, tool_id, "result", done)).status == 200
    return tool_id


async def _post(user: User, project: str, tool_id: str, what: str, body: JsonObject) -> Answer:
    path = f"/my/projects/{project}/tools/{tool_id}/{what}"
    return await user.post(path, body, headers={"Byleave-Client": "laptop"})


def _report(asked: Frame, **more: object) -> JsonObject:
    tool_id = asked.data["tool_id"]
    change = {"path": "a.txt", "kind": "change", "before": "x", "after": "old"}
    plan = {"tool_id": tool_id, "plan": DIGEST, "files": [change], "total_files": 1}
    return {"request_id": asked.data["request_id"], "plan": plan, **more}


async def test_report_of_an_undo_reaches_who_waits_at_another_server(
    first: Server, second: Server, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    alice = first.user()
    elsewhere, project = _at(second, alice), await alice.project()
    async with alice.feed(project, "client=laptop&isolation=bubblewrap") as feed:
        tool_id = await _machine(alice, feed, elsewhere, project)
        if not is_told:
            monkeypatch.setattr(undoing, "LOOK_AGAIN_SECONDS", 0.05)
            _hear_nothing_more(first, monkeypatch)
        asking = asyncio.create_task(alice.get(f"/my/tools/{tool_id}/undo"))
        asked = await feed.until("tool.undo_request")
        assert (await _post(elsewhere, project, tool_id, "undo-report", _report(asked))).status == 204
        told = await asking
        assert (told.status, told.json["files"][0]["after"]) == (200, "old")
        asking = asyncio.create_task(alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST}))
        asked = await feed.until("tool.undo_request")
        done = _report(asked, done=True, undo_id="undo_1")
        assert (await _post(elsewhere, project, tool_id, "undo-report", done)).status == 204
        assert (await asking).json["undo_id"] == "undo_1"
        assert (await _post(elsewhere, project, tool_id, "undo-report", done)).status == 204, "once more does no harm"
    rows = await first.parts.store.database.read(
        lambda transaction: transaction.execute("SELECT * FROM undo_reports").fetchall()
    )
    assert list(rows) == [], "what was shown is kept nowhere"


async def test_undo_that_began_by_one_server_is_under_way_for_all_until_it_ends(
    first: Server, second: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "WAIT_SECONDS", 0.3)
    alice = first.user()
    elsewhere, project = _at(second, alice), await alice.project()
    async with alice.feed(project, "client=laptop&isolation=bubblewrap") as feed:
        tool_id = await _machine(alice, feed, elsewhere, project)
        asking = asyncio.create_task(alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST}))
        asked = await feed.until("tool.undo_request")
        begun = {"request_id": asked.data["request_id"], "begun": True}
        assert (await _post(elsewhere, project, tool_id, "undo-report", begun)).status == 204
        assert (await asking).json["state"] == "undoing"
        again = await alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST})
        assert (again.status, again.json["state"]) == (409, "undoing")
        done = _report(asked, done=True, undo_id="undo_1")
        assert (await _post(elsewhere, project, tool_id, "undo-report", done)).status == 204
        # Nobody waits for this one; it is over all the same.
        assert (await alice.get(f"/my/tools/{tool_id}/undo")).status == 503


async def test_token_alone_speaks_for_no_client_whose_key_another_server_has_seen(
    first: Server, second: Server
) -> None:
    alice = first.user()
    project = await alice.project()
    machines, others = first.parts.store.machines, second.parts.store.machines
    assert await machines.connected(project, "laptop", token="t")
    assert await others.speaks_for(project, "laptop", token="t")
    assert await machines.connected(project, "laptop", token="t", key="k" * 64)
    assert not await others.speaks_for(project, "laptop", token="t")
    for _ in range(2):
        assert await others.speaks_for(project, "laptop", token="t", key="k" * 64)
