"""Undo over HTTP: who may ask, which machine is asked, what is recorded. The machine's part is played here."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from byleave.protocol.states import Scope
from byleave.server.routes import undo as undoing
from byleave.store.audit import AuditRecord
from harness.http_server import Answer, Feed, Server, StartServer, User
from harness.json_values import JsonObject

pytestmark = [pytest.mark.promise("L8-undo"), pytest.mark.usefixtures("database_url")]

DIGEST = "a" * 64
Reply = Callable[[JsonObject], JsonObject | None]


def plan_of(tool_id: str, **changes: object) -> JsonObject:
    change = {"path": "a.txt", "kind": "change", "before": "x", "after": "old"}
    return {"tool_id": tool_id, "plan": DIGEST, "files": [change], "total_files": 1, **changes}


def honest(asked: JsonObject) -> JsonObject:
    """What a machine answers that finds nothing wrong."""
    report: JsonObject = {"request_id": asked["request_id"], "plan": plan_of(asked["tool_id"])}
    if asked["plan"] is not None:
        report |= {"done": True, "undo_id": "undo_1"}
    return report


class Machine:
    """A client that writes when told to, and answers undo requests as `reply` says."""

    def __init__(self, user: User, project: str, client: str) -> None:
        self.user, self.project, self.client = user, project, client
        self.reply: Reply = honest
        self.asked: list[JsonObject] = []
        self.answers: list[Answer | None] = []
        self.news = asyncio.Condition()

    async def work(self, feed: Feed) -> None:
        async for frame in feed.frames():
            tool_id = frame.data.get("tool_id", "")
            if frame.kind == "tool.execution_signal":
                body = {"status": "completed", "result": {"success": True}}
                await self.post(tool_id, "result", body)
            elif frame.kind == "tool.inspection_request":
                seen = {"path": frame.data["tool_params"]["path"], "role": "replaces", "sha256": "missing"}
                await self.post(tool_id, "inspection", {"files": [seen]})
            elif frame.kind == "tool.undo_request":
                report = self.reply(frame.data)
                answer = None if report is None else await self.post(tool_id, "undo-report", report)
                async with self.news:
                    self.asked.append(frame.data)
                    self.answers.append(answer)
                    self.news.notify_all()

    async def post(self, tool_id: str, what: str, body: object, **headers: str) -> Answer:
        path = f"/my/projects/{self.project}/tools/{tool_id}/{what}"
        return await self.user.post(path, body, headers={"Byleave-Client": self.client, **headers})

    async def until_asked(self, times: int = 1) -> JsonObject:
        async with asyncio.timeout(10), self.news:
            await self.news.wait_for(lambda: len(self.asked) >= times)
        return self.asked[times - 1]


@asynccontextmanager
async def machine(user: User, project: str, client: str = "laptop") -> AsyncGenerator[Machine]:
    made = Machine(user, project, client)
    async with user.feed(project, f"client={client}&isolation=bubblewrap") as feed:
        working = asyncio.create_task(made.work(feed))
        try:
            yield made
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def written(user: User, project: str) -> str:
    """A write that was approved and done."""
    tool_id, approval_id = await user.question(project)
    assert (
        await user.post(f"/my/projects/{project}/approvals/{approval_id}/approve", {"decision": "approved"})
    ).status == 200
    assert (await user.get(f"/my/tools/{tool_id}?wait=10")).json["status"] == "completed"
    return tool_id


async def links(server: Server, project: str, *actions: str) -> list[AuditRecord]:
    return [one for one in await server.parts.store.audit.records(project) if one.action in actions]


async def _requests(server: Server) -> list[str]:
    """Requests that the record has a row of."""
    rows = await server.parts.store.database.read(
        lambda transaction: transaction.execute("SELECT request_id FROM undo_reports").fetchall()
    )
    return [row["request_id"] for row in rows]


async def test_plan_comes_from_the_machine_and_is_not_recorded(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        answer = await alice.get(f"/my/tools/{tool_id}/undo")
        assert (answer.status, answer.json["plan"], answer.json["files"][0]["after"]) == (200, DIGEST, "old")
        asked = await laptop.until_asked()
        assert (asked["plan"], asked["partial"], asked["client_id"]) == (None, False, "laptop")
        assert asked["deadline"] > asked["timestamp"]
    assert await links(server, project, "undo_requested", "undone") == []
    assert await _requests(server) == []


@pytest.mark.promise("G9", "S")
async def test_organisations_denials_reach_the_machine_and_what_it_shows_all_the_same_is_not_told(
    start_server: StartServer, tmp_path: Path
) -> None:
    rules = tmp_path / "policy.toml"
    rules.write_text(
        '[[rule]]\naction = "deny"\npaths = ["private/**"]\n'
        '[[rule]]\naction = "deny"\ntool = "read_file"\npaths = ["log.txt"]\n'
    )
    rules.chmod(0o600)
    alice = (await start_server(policy=rules)).user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)

        def careless(asked: JsonObject) -> JsonObject:
            change = {"kind": "change", "before": "the new text", "after": "the old text"}
            files = [{"path": path, **change} for path in ("a.txt", "log.txt", "private/key.txt")]
            files.append({"path": "private/dir", "kind": "delete", "note": "a directory"})
            return {"request_id": asked["request_id"], "plan": plan_of(tool_id, files=files, total_files=4)}

        laptop.reply = careless
        told = (await alice.get(f"/my/tools/{tool_id}/undo")).json["files"]
        shown = {one["path"]: (one["before"], one["after"], one["note"]) for one in told}
        hidden = (None, None, "not shown: the rules deny reading it")
        assert shown == {
            "a.txt": ("the new text", "the old text", None),
            "log.txt": hidden,
            "private/key.txt": hidden,
            "private/dir": (None, None, "a directory"),
        }
        asked = await laptop.until_asked()
        assert asked["keep_off"] == {
            "read_file": ["private/**", "log.txt"],
            "write_file": ["private/**"],
            "execute_command": ["private/**"],
        }


async def test_undo_is_recorded_with_its_event_before_it_is_answered(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop, alice.feed(project) as feed:
        tool_id = await written(alice, project)
        answer = await alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST, "partial": True})
        expected = {"tool_id": tool_id, "undo_id": "undo_1", "files": 1}
        assert answer.json == {**expected, "state": "done", "message": "Undone: 1 path is as before the call."}
        event = await feed.until("tool.undone")
        assert event.data["undone_by"] == "user:alice"
        assert {name: event.data[name] for name in expected} == expected
        asked = await laptop.until_asked()
        assert (asked["plan"], asked["partial"]) == (DIGEST, True)
        # The same report once more is taken, and changes nothing.
        again = await laptop.post(tool_id, "undo-report", honest(asked))
        assert again.status == 204
    requested, undone = await links(server, project, "undo_requested", "undone")
    assert (requested.action, undone.action) == ("undo_requested", "undone")
    assert {requested.actor, undone.actor} == {"user:alice"}
    assert '"undo_id":"undo_1"' in undone.detail
    assert '"files":1' in undone.detail
    assert undone.execution_id == tool_id
    assert all(check.fault is None for check in await server.parts.store.audit.verify())


async def test_undo_that_found_nothing_to_do_says_so(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        laptop.reply = lambda asked: {"request_id": asked["request_id"], "done": True}
        answer = await alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST})
    assert (answer.json["undo_id"], answer.json["files"]) == (None, 0)
    assert answer.json["message"].startswith("Nothing to do")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_the_machine_says_against_it_is_a_conflict(server: Server, method: str) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        laptop.reply = lambda asked: {"request_id": asked["request_id"], "problem": "Changed since this call: a.txt."}
        body = None if method == "GET" else {"plan": DIGEST}
        answer = await alice.send(method, f"/my/tools/{tool_id}/undo", body)
        assert (answer.status, answer.json["detail"]) == (409, "Changed since this call: a.txt.")
        laptop.reply = lambda asked: {"request_id": asked["request_id"]}
        assert (await alice.send(method, f"/my/tools/{tool_id}/undo", body)).status == 409
        laptop.reply = lambda asked: {"request_id": asked["request_id"], "plan": plan_of(tool_id)}
        expected = 200 if method == "GET" else 409
        assert (await alice.send(method, f"/my/tools/{tool_id}/undo", body)).status == expected
    assert await links(server, project, "undone") == []


async def test_calls_that_changed_no_file_or_never_ran_are_told_apart(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project):
        waiting, approval_id = await alice.question(project)
        answer = await alice.get(f"/my/tools/{waiting}/undo")
        assert (answer.status, answer.json["state"]) == (409, "awaiting_approval")
        assert answer.json["hint"] == "Wait for it, or stop it."
        await alice.post(f"/my/projects/{project}/approvals/{approval_id}/reject", {})
        answer = await alice.get(f"/my/tools/{waiting}/undo")
        assert (answer.status, answer.json["detail"]) == (409, "This call never ran, so there is nothing to undo.")
        read = (await alice.execute(project, "read_file", {"path": "a.txt"})).json["tool_id"]
        answer = await alice.get(f"/my/tools/{read}/undo")
        assert (answer.status, "read_file changes no files" in answer.json["detail"]) == (409, True)


async def test_only_the_machine_that_ran_it_is_asked(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project):
        tool_id = await written(alice, project)
    async with asyncio.timeout(10):
        while server.parts.presence.declared(project):
            await asyncio.sleep(0.01)
    answer = await alice.get(f"/my/tools/{tool_id}/undo")
    assert (answer.status, answer.json["state"]) == (409, "disconnected")
    assert "is not connected" in answer.json["detail"]
    # Which of the two it was nobody knows any more: what helps in either is said.
    assert all(words in answer.json["hint"] for words in ("`byleave connect`", "`byleave undo`", "VS Code"))
    async with machine(alice, project, "desktop") as other:
        answer = await alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST})
        assert (answer.status, "another machine" in answer.json["detail"]) == (409, True)
        assert not other.asked
        # Nor can another machine answer for it.
        answer = await other.post(tool_id, "undo-report", {"request_id": "r1", "done": True})
        assert (answer.status, answer.json["detail"]) == (409, "This execution was given to another client.")
        nonsense = {"Byleave-Client": "not an id!"}
        assert (await other.post(tool_id, "undo-report", {"request_id": "r1"}, **nonsense)).status == 400
    assert await links(server, project, "undo_requested", "undone") == []


async def test_undo_nobody_asked_for_is_not_recorded(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        await alice.get(f"/my/tools/{tool_id}/undo")
        only_shown = (await laptop.until_asked())["request_id"]
        for request_id in ("undoreq_1", only_shown):
            answer = await laptop.post(tool_id, "undo-report", {"request_id": request_id, "done": True})
            assert (answer.status, answer.json["detail"]) == (404, "Nobody asked for this undo.")
        assert (await laptop.post(tool_id, "undo-report", {"request_id": "late"})).status == 204
        other = await laptop.post(tool_id, "undo-report", {"request_id": "r", "plan": plan_of("exec_2")})
        assert (other.status, other.json["detail"]) == (400, "The plan is about another call.")
    assert await links(server, project, "undone") == []


async def test_another_token_of_the_same_user_reports_no_undo_under_a_clients_name(server: Server) -> None:
    alice, other = server.user(), server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop, machine(other, project, "desktop") as desktop:
        tool_id = await written(alice, project)
        laptop.reply = lambda asked: None
        asking = asyncio.create_task(alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST}))
        report = honest(await laptop.until_asked())
        forged = await desktop.post(tool_id, "undo-report", report, **{"Byleave-Client": "laptop"})
        assert forged.status == 403
        assert await links(server, project, "undone") == []
        assert (await laptop.post(tool_id, "undo-report", report)).status == 204
        assert (await asking).json["undo_id"] == "undo_1"


async def test_report_of_another_call_reaches_nobody(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "WAIT_SECONDS", 0.5)
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        first, second = await written(alice, project), await written(alice, project)
        laptop.reply = lambda asked: None
        asking = asyncio.create_task(alice.get(f"/my/tools/{first}/undo"))
        request_id = (await laptop.until_asked())["request_id"]
        body = {"request_id": request_id, "plan": plan_of(second)}
        assert (await laptop.post(second, "undo-report", body)).status == 204
        assert (await asking).status == 503


async def test_machine_that_does_not_answer_is_not_waited_for_long_and_its_late_report_counts(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "WAIT_SECONDS", 0.1)
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        laptop.reply = lambda asked: None
        answer = await alice.get(f"/my/tools/{tool_id}/undo")
        assert (answer.status, answer.json["hint"]) == (503, "Nothing was changed. Try again.")
        answer = await alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST})
        assert (answer.status, "look again before you repeat it" in answer.json["hint"]) == (503, True)
        asked = await laptop.until_asked(2)
        assert (await laptop.post(tool_id, "undo-report", honest(asked))).status == 204
    assert len(await links(server, project, "undone")) == 1
    assert await _requests(server) == []


async def test_those_who_wait_are_bounded_and_end_with_the_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        laptop.reply = lambda asked: None
        monkeypatch.setattr(undoing, "WAITING_PER_USER", 1)
        asking = asyncio.create_task(alice.get(f"/my/tools/{tool_id}/undo"))
        await laptop.until_asked()
        assert (await alice.get(f"/my/tools/{tool_id}/undo")).status == 429
        server.parts.begin_closing()
        answer = await asking
    assert (answer.status, answer.json["detail"]) == (503, "The server is shutting down.")


@pytest.mark.promise("R-user")
async def test_agents_never_undo_and_other_users_find_nothing(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        path, body = f"/my/tools/{tool_id}/undo", {"plan": DIGEST}
        for scopes in ((Scope.AGENT,), (Scope.AGENT, Scope.CHAT, Scope.APPROVE)):
            agent = server.user("alice", scopes)
            assert (await agent.get(path)).status == 403
            refused = await agent.post(path, body)
            assert (refused.status, refused.json["detail"]) == (403, "An agent's token can never do this.")
            report = f"/my/projects/{project}/tools/{tool_id}/undo-report"
            answer = await agent.post(report, {"request_id": "r"}, headers={"Byleave-Client": "laptop"})
            assert answer.status == 403
        chat = server.user("alice", (Scope.CHAT,))
        assert (await chat.get(path)).status == 200
        assert (await chat.post(path, body)).status == 403
        assert ((await bob.get(path)).status, (await bob.post(path, body)).status) == (404, 404)
        elsewhere = f"/my/projects/{await alice.project('two')}/tools/{tool_id}/undo-report"
        answer = await alice.post(elsewhere, {"request_id": "r"}, headers={"Byleave-Client": "laptop"})
        assert answer.status == 404
        assert len(laptop.asked) == 1


async def test_report_may_be_large_but_not_without_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        text = "x" * 200_000
        files = [{"path": f"f{n}", "kind": "delete", "before": text} for n in range(10)]
        laptop.reply = lambda asked: {"request_id": asked["request_id"], "plan": plan_of(tool_id, files=files)}
        answer = await alice.get(f"/my/tools/{tool_id}/undo")
        assert (answer.status, len(answer.json["files"])) == (200, 10)
        monkeypatch.setattr(undoing, "MAX_REPORT_BYTES", 1000)
        answer = await laptop.post(tool_id, "undo-report", {"request_id": "r", "problem": "x" * 1000})
        assert answer.status == 413


async def test_request_survives_a_restart_of_the_server(start_server: StartServer) -> None:
    """Asked before, reported after: it is recorded once."""
    first = await start_server()
    alice = first.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        laptop.reply = lambda asked: None
        asking = asyncio.create_task(alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST}))
        asked = await laptop.until_asked()
        first.listening.stop()
        assert (await asking).status == 503
    await first.task
    second = await start_server()
    again = Machine(second.bearer(alice.token), project, "laptop")
    for _ in range(2):
        assert (await again.post(tool_id, "undo-report", honest(asked))).status == 204
    assert len(await links(second, project, "undone")) == 1


async def test_undo_that_takes_long_is_answered_as_under_way_until_the_machine_says_how_it_ended(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "WAIT_SECONDS", 0.3)
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop, alice.feed(project) as feed:
        tool_id = await written(alice, project)
        laptop.reply = lambda asked: {"request_id": asked["request_id"], "begun": True}
        answer = await alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST})
        assert (answer.status, answer.json["state"], answer.json["files"]) == (200, "undoing", 0)
        for again in (
            await alice.get(f"/my/tools/{tool_id}/undo"),
            await alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST}),
        ):
            assert (again.status, again.json["state"]) == (409, "undoing")
        asked = await laptop.until_asked()
        assert (await laptop.post(tool_id, "undo-report", honest(asked))).status == 204
        assert (await feed.until("tool.undone")).data["undo_id"] == "undo_1"
        laptop.reply = honest
        assert (await alice.get(f"/my/tools/{tool_id}/undo")).status == 200
        # One whose machine never says how it ended does not stand in the way for ever.
        laptop.reply = lambda asked: {"request_id": asked["request_id"], "begun": True}
        monkeypatch.setattr(undoing, "UNDER_WAY_SECONDS", 0.0)
        assert (await alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST})).json["state"] == "undoing"
        laptop.reply = honest
        assert (await alice.get(f"/my/tools/{tool_id}/undo")).status == 200


async def test_undo_that_came_to_nothing_is_on_the_record_once(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with machine(alice, project) as laptop:
        tool_id = await written(alice, project)
        laptop.reply = lambda asked: {"request_id": asked["request_id"], "problem": "The client stopped."}
        assert (await alice.get(f"/my/tools/{tool_id}/undo")).status == 409
        assert (await alice.post(f"/my/tools/{tool_id}/undo", {"plan": DIGEST})).status == 409
        asked = await laptop.until_asked(2)
        for _ in range(2):
            await laptop.post(tool_id, "undo-report", laptop.reply(asked))
    [asked_link, failed] = await links(server, project, "undo_requested", "undone", "undo_failed")
    assert (asked_link.action, failed.action) == ("undo_requested", "undo_failed")
    assert json.loads(failed.detail)["problem"] == "The client stopped."
