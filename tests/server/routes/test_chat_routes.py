"""Projects, messages, sessions and runs over HTTP (R0, R1)."""

import asyncio
from pathlib import Path

import pytest

from byleave.installation import missing_extra
from byleave.protocol.states import Scope
from byleave.server import services as parts
from harness.http_server import Server, StartServer, User
from harness.json_values import JsonObject


@pytest.mark.promise("R0")
async def test_user_creates_projects_and_sees_their_own(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    project = await alice.project("  site  ")
    await bob.project("other")
    listed = (await alice.get("/my/projects")).json
    assert listed["total_count"] == 1
    assert (listed["projects"][0]["project_id"], listed["projects"][0]["name"]) == (project, "site")


async def test_tabs_of_a_new_user_that_open_at_once_make_one_project_between_them(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    body = {"name": "default", "if_none": True}
    asked = await asyncio.gather(*(alice.post("/my/projects", body) for _ in range(8)), bob.post("/my/projects", body))
    made = [answer.json["project_id"] for answer in asked]
    assert {answer.status for answer in asked} == {201}
    assert (len(set(made[:8])), len(set(made))) == (1, 2), "each user has one of their own"
    assert (await alice.get("/my/projects")).json["total_count"] == 1
    assert await alice.project("default") not in made, "who asks for a further one gets it"


@pytest.mark.promise("R1", "W1", "W2")
async def test_message_is_accepted_at_once_and_opens_a_session(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    path = f"/my/projects/{project}/chat"
    accepted = await alice.post(f"{path}/messages", {"content": "hello there"})
    assert accepted.status == 202
    session = accepted.json["session_id"]
    again = await alice.post(f"{path}/messages", {"content": "and again", "session_id": session})
    assert again.json["session_id"] == session
    assert again.json["run_id"] != accepted.json["run_id"]
    sessions = (await alice.get(f"{path}/sessions")).json
    assert [one["title"] for one in sessions["sessions"]] == ["hello there"]
    messages = (await alice.get(f"{path}/messages?session_id={session}")).json["messages"]
    assert [message["content"] for message in messages if message["role"] == "user"] == ["hello there", "and again"]


@pytest.mark.promise("R1")
async def test_message_that_is_sent_again_gets_the_same_answer_and_starts_nothing(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    path = f"/my/projects/{project}/chat"
    body = {"content": "hello there", "client_key": "3f2c-1"}
    answers = await asyncio.gather(*(alice.post(f"{path}/messages", body) for _ in range(4)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.text for answer in answers}) == 1
    told = answers[0].json
    again = await alice.post(f"{path}/messages", {**body, "session_id": told["session_id"]})
    assert (again.status, again.json) == (202, told), "with the session it learned meanwhile"
    session = told["session_id"]
    messages = (await alice.get(f"{path}/messages?session_id={session}")).json["messages"]
    assert [message["message_id"] for message in messages if message["role"] == "user"] == [told["message_id"]]
    assert (await alice.get(f"{path}/runs?session_id={session}")).json["total_count"] == 1
    assert (await alice.get(f"{path}/sessions")).json["total_count"] == 1


@pytest.mark.promise("R1")
@pytest.mark.parametrize("change", [{"content": "other"}, {"mode": "sandbox"}, {"agent": "chat"}])
async def test_another_message_under_the_same_key_is_a_conflict(server: Server, change: dict[str, str]) -> None:
    alice = server.user()
    path = f"/my/projects/{await alice.project()}/chat/messages"
    body = {"content": "hello", "client_key": "k"}
    first = (await alice.post(path, body)).json
    refused = await alice.post(path, {**body, **change})
    assert (refused.status, refused.json["state"]) == (409, "sent")
    assert "key of its own" in refused.json["hint"]
    listed = await alice.get(f"{path}?session_id={first['session_id']}")
    assert [one["content"] for one in listed.json["messages"] if one["role"] == "user"] == ["hello"]


@pytest.mark.promise("R1")
async def test_key_is_the_senders_own_in_one_project(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    body = {"content": "hello", "client_key": "k"}
    projects = [(alice, await alice.project()), (alice, await alice.project()), (bob, await bob.project())]
    told = [await user.post(f"/my/projects/{project}/chat/messages", body) for user, project in projects]
    assert [answer.status for answer in told] == [202] * 3
    assert len({answer.json["message_id"] for answer in told}) == 3
    other = (await alice.post(f"/my/projects/{projects[0][1]}/chat/messages", {"content": "x"})).json["session_id"]
    elsewhere = await alice.post(f"/my/projects/{projects[0][1]}/chat/messages", {**body, "session_id": other})
    assert elsewhere.status == 409, "into another session it is another message"


@pytest.mark.promise("W13")
async def test_agents_answer_comes_on_the_feed(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project) as feed:
        await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hello"})
        answer = await feed.until("chat.message", role="agent")
        assert answer.data["content"]


async def test_without_an_agent_a_message_is_503_with_how_to_get_one(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "RunWorker", None)
    alice = (await start_server()).user()
    answer = await alice.post(f"/my/projects/{await alice.project()}/chat/messages", {"content": "hello"})
    assert answer.status == 503
    assert answer.json["hint"] == missing_extra("agents")


AGENTS = """
[agents.reviewer]
description = "Reads only."
tools = ["read_file", "search_files"]

[agents.builder]
mode = "full"

[agents.elsewhere]
projects = ["proj_other"]
"""


@pytest.mark.promise("G7")
async def test_agents_of_a_project_are_listed_and_picked_by_name(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_text(AGENTS)
    server = await start_server(agents=tmp_path / "agents.toml")
    alice = server.user()
    project = await alice.project()
    listed = (await alice.get(f"/my/projects/{project}/agents")).json
    assert listed["total_count"] == 3
    assert [(one["name"], one["mode"], one["widest_mode"]) for one in listed["agents"]] == [
        ("chat", "sandbox", "full"),
        ("reviewer", "sandbox", "sandbox"),
        ("builder", "full", "full"),
    ]
    assert listed["agents"][1]["tools"] == ["read_file", "search_files"]
    assert {one["model"] for one in listed["agents"]} == {"offline"}
    path = f"/my/projects/{project}/chat/messages"

    async def mode_of(user: User, **body: str) -> str:
        accepted = await user.post(path, {"content": "hello", **body})
        assert accepted.status == 202, accepted.text
        return (await server.parts.store.runs.get(accepted.json["run_id"], user_id="alice")).mode.value

    assert await mode_of(alice, agent="reviewer") == "sandbox"
    assert await mode_of(alice, agent="builder") == "full"
    assert await mode_of(alice, agent="builder", mode="sandbox") == "sandbox"
    assert await mode_of(alice) == "sandbox"
    # Who may not approve does not get the wider mode by leaving it out.
    assert await mode_of(server.user(scopes=(Scope.CHAT,)), agent="builder") == "sandbox"

    refused = await alice.post(path, {"content": "hello", "agent": "reviewer", "mode": "full"})
    assert (refused.status, refused.json["detail"]) == (403, "The agent 'reviewer' works in sandbox mode only.")
    unknown = await alice.post(path, {"content": "hello", "agent": "elsewhere"})
    assert (unknown.status, unknown.json["detail"]) == (404, "No agent 'elsewhere' in this project.")
    assert unknown.json["hint"] == "It has: chat, reviewer, builder."


async def test_agents_of_another_user_s_project_are_404(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    project = await alice.project()
    assert (await bob.get(f"/my/projects/{project}/agents")).status == 404
    assert (await server.user(scopes=(Scope.EXECUTE,)).get(f"/my/projects/{project}/agents")).status == 403


async def test_message_of_the_wrong_form_is_400(server: Server) -> None:
    alice = server.user()
    path = f"/my/projects/{await alice.project()}/chat/messages"
    wrong: list[JsonObject] = [
        {},
        {"content": ""},
        {"content": 5},
        {"content": "x" * 100_001},
        {"content": "a\0b"},
        {"content": "hello", "mode": "root"},
        {"content": "hello", "session_id": "../.."},
        {"content": "hello", "agent": "../.."},
        {"content": "hello", "user_id": "bob"},
    ]
    for body in wrong:
        assert (await alice.post(path, body)).status == 400, body


async def test_session_of_another_project_or_user_is_404(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    project, other, bobs = await alice.project(), await alice.project("other"), await bob.project()
    session = (await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hello"})).json["session_id"]
    for user, place in ((alice, other), (bob, bobs)):
        path = f"/my/projects/{place}/chat/messages"
        assert (await user.post(path, {"content": "hello", "session_id": session})).status == 404
        assert (await user.get(f"{path}?session_id={session}")).status == 404
    assert (await alice.get(f"/my/projects/{project}/chat/messages?session_id=sess_none")).status == 404
    assert (await alice.get(f"/my/projects/{project}/chat/messages")).status == 400


@pytest.mark.promise("S4", "G7")
async def test_full_mode_needs_a_token_that_may_approve(server: Server) -> None:
    alice = server.user()
    path = f"/my/projects/{await alice.project()}/chat/messages"
    body = {"content": "hello", "mode": "full"}
    for scopes in ((Scope.CHAT,), (Scope.CHAT, Scope.AGENT), (Scope.CHAT, Scope.APPROVE, Scope.AGENT)):
        refused = await server.user(scopes=scopes).post(path, body)
        assert refused.status == 403
    assert (await alice.post(path, body)).status == 202


@pytest.mark.promise("S4", "X23")
@pytest.mark.parametrize("scopes", [(Scope.AGENT, Scope.CHAT), (Scope.AGENT, Scope.CHAT, Scope.APPROVE)])
async def test_an_agent_reads_no_feed_and_no_chat_and_says_nothing_in_one_whatever_else_it_carries(
    server: Server, scopes: tuple[Scope, ...]
) -> None:
    alice, agent = server.user(), server.user(scopes=scopes)
    chat = f"/my/projects/{await alice.project()}/chat"
    session = (await alice.post(f"{chat}/messages", {"content": "hello"})).json["session_id"]
    for path in ("stream?execute=false", f"messages?session_id={session}", f"runs?session_id={session}", "sessions"):
        assert (await agent.get(f"{chat}/{path}")).status == 403, path
    posted = {"content": "write a.txt: by the agent", "session_id": session}
    assert (await agent.post(f"{chat}/messages", posted)).status == 403


async def test_run_is_stopped_with_everything_it_has_open(server: Server) -> None:
    alice = server.user()
    project, other = await alice.project(), await alice.project("other")
    async with alice.feed(project) as feed:
        path = f"/my/projects/{project}/chat"
        accepted = await alice.post(f"{path}/messages", {"content": "write notes.md: hello"})
        run = accepted.json["run_id"]
        question = await feed.until("tool.approval_request")
        assert (await alice.post(f"/my/projects/{other}/chat/runs/{run}/cancel")).status == 404
        assert (await alice.post(f"{path}/runs/run_none/cancel")).status == 404
        stopped = await alice.post(f"{path}/runs/{run}/cancel", {})
        assert stopped.json["success"] is True
        await feed.until("tool.approval_decided", status="cancelled")
    ended = (await alice.get(f"/my/tools/{question.data['tool_id']}?wait=5")).json
    assert (ended["status"], ended["error_type"]) == ("failed", "cancelled")
    again = await alice.post(f"{path}/runs/{run}/cancel")
    assert (again.status, again.json["state"]) == (409, "failed")


@pytest.mark.promise("R1", "R-user")
async def test_runs_of_a_session_say_whether_an_agent_still_works_and_how_the_last_one_ended(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    project, other, bobs = await alice.project(), await alice.project("other"), await bob.project()
    chat = f"/my/projects/{project}/chat"
    async with alice.feed(project) as feed:
        first = (await alice.post(f"{chat}/messages", {"content": "hello"})).json
        await feed.until("chat.run", state="done")
        session = first["session_id"]
        body = {"content": "write notes.md: hello", "session_id": session}
        second = (await alice.post(f"{chat}/messages", body)).json
        await feed.until("tool.approval_request")
        path = f"{chat}/runs?session_id={session}"
        listed = (await alice.get(path)).json
        assert listed["total_count"] == 2
        assert [(run["run_id"], run["error"]) for run in listed["runs"]] == [
            (second["run_id"], None),
            (first["run_id"], None),
        ]
        assert listed["runs"][0]["state"] in ("running", "waiting")
        assert listed["runs"][1]["state"] == "done"
        assert (await alice.post(f"{chat}/runs/{second['run_id']}/cancel")).status == 200
    newest = (await alice.get(f"{path}&limit=1")).json["runs"]
    assert [(run["run_id"], run["state"], run["error"]) for run in newest] == [(second["run_id"], "failed", None)]
    for user, place in ((alice, other), (bob, bobs), (bob, project)):
        assert (await user.get(f"/my/projects/{place}/chat/runs?session_id={session}")).status == 404
    assert (await alice.get(f"{chat}/runs?session_id=sess_none")).status == 404
    assert (await server.user(scopes=(Scope.AGENT,)).get(path)).status == 403
    for query in ("", f"?session_id={session}&limit=0", f"?session_id={session}&limit=201"):
        assert (await alice.get(f"{chat}/runs{query}")).status == 400, query
