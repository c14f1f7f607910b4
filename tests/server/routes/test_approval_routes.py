"""Decisions over HTTP (R4, R5, R8, R9): once, by a person, for exactly what was shown."""

import asyncio

import pytest

from byleave.calls.machines import ConnectedClient
from byleave.protocol.states import Scope
from harness.http_server import Server, StartServer

pytestmark = pytest.mark.usefixtures("database_url")


@pytest.mark.promise("R4", "A2", "W7")
async def test_of_ten_approvals_at_once_exactly_one_counts(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    path = f"/my/projects/{project}/approvals/{approval_id}/approve"
    async with alice.machine(project) as signals:
        answers = await asyncio.gather(*(alice.post(path, {"decision": "approved"}) for _ in range(10)))
        assert (await alice.get(f"/my/tools/{tool_id}?wait=10")).json["status"] == "completed"
    assert sorted(answer.status for answer in answers) == [200] + [409] * 9
    lost = next(answer for answer in answers if answer.status == 409)
    assert lost.json["state"] == "approved"
    assert lost.json["detail"] == "This approval was approved already, by alice."
    assert len(signals) == 1


@pytest.mark.promise("R5")
async def test_rejection_tells_the_agent_the_reason(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    answer = await alice.post(f"/my/projects/{project}/approvals/{approval_id}/reject", {"reason": "not today"})
    assert answer.json == {
        "success": True,
        "approval_id": approval_id,
        "status": "rejected",
        "message": "1 call was ended.",
        "grant_id": None,
        "released": [],
    }
    ended = (await alice.get(f"/my/tools/{tool_id}")).json
    assert (ended["status"], ended["error"]) == ("rejected", "Rejected by the user: not today")


@pytest.mark.promise("R9")
@pytest.mark.parametrize(("decision", "status"), [("approved", "approved"), ("rejected", "rejected")])
async def test_decision_needs_no_project_in_the_path(server: Server, decision: str, status: str) -> None:
    alice = server.user()
    tool_id, approval_id = await alice.question(await alice.project())
    answer = await alice.post(f"/my/approvals/{approval_id}/confirm", {"decision": decision})
    assert (answer.status, answer.json["status"]) == (200, decision)
    assert (await alice.get(f"/my/tools/{tool_id}")).json["status"] == status


@pytest.mark.promise("R8")
async def test_what_waits_is_listed_for_all_projects_or_one(server: Server) -> None:
    alice = server.user()
    project, other = await alice.project(), await alice.project("other")
    _, approval_id = await alice.question(project)
    waiting = (await alice.get("/my/approvals")).json
    assert [approval["id"] for approval in waiting["approvals"]] == [approval_id]
    assert (await alice.get(f"/my/approvals?project_id={other}")).json["total_count"] == 0
    assert (await alice.get("/my/approvals?project_id=proj_none")).status == 404


@pytest.mark.promise("A3")
async def test_approval_of_another_digest_than_the_one_that_waits_is_refused(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    path = f"/my/projects/{project}/approvals/{approval_id}/approve"
    answer = await alice.post(path, {"decision": "approved", "digest": "0" * 64})
    assert (answer.status, answer.json["state"]) == (409, "pending")
    assert (await alice.get(f"/my/tools/{tool_id}")).json["status"] == "awaiting_approval"


@pytest.mark.promise("W7")
async def test_decision_after_the_time_is_over_is_told_so(start_server: StartServer) -> None:
    server = await start_server(medium_approval_seconds=1)
    alice = server.user()
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    ended = await alice.get(f"/my/tools/{tool_id}?wait=10")
    assert (ended.json["status"], ended.json["error"]) == ("timeout", "Approval timeout")
    answer = await alice.post(f"/my/projects/{project}/approvals/{approval_id}/approve", {"decision": "approved"})
    assert (answer.status, answer.json["state"]) == (409, "timeout")


async def test_decision_of_the_wrong_form_is_400_and_decides_nothing(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    wrong: list[tuple[str, object]] = [
        ("approve", {}),
        ("approve", {"scope": "once"}),
        ("approve", {"decision": "rejected"}),
        ("approve", {"scope": "forever"}),
        ("approve", {"digest": 5}),
        ("approve", {"tool_params": {}}),
        ("reject", {"decision": "approved"}),
        ("reject", {"reason": "x" * 1001}),
        ("reject", {"reason": "a\0b"}),
        ("reject", []),
    ]
    for verb, body in wrong:
        answer = await alice.post(f"/my/projects/{project}/approvals/{approval_id}/{verb}", body)
        assert answer.status == 400, body
    assert (await alice.get(f"/my/tools/{tool_id}")).json["status"] == "awaiting_approval"


async def test_unknown_approval_and_one_of_another_project_are_404(server: Server) -> None:
    alice = server.user()
    project, other = await alice.project(), await alice.project("other")
    _, approval_id = await alice.question(project)
    for path in (
        f"/my/projects/{project}/approvals/appr_none/approve",
        f"/my/projects/{other}/approvals/{approval_id}/approve",
    ):
        assert (await alice.post(path, {"decision": "approved"})).status == 404


@pytest.mark.promise("S4")
@pytest.mark.parametrize("more", [(), (Scope.APPROVE,), (Scope.APPROVE, Scope.CHAT)])
async def test_agents_token_never_decides_whatever_else_it_carries(server: Server, more: tuple[Scope, ...]) -> None:
    alice, agent = server.user(), server.user(scopes=(Scope.AGENT, *more))
    project = await alice.project()
    tool_id, approval_id = await agent.question(project)
    for path, body in (
        (f"/my/projects/{project}/approvals/{approval_id}/approve", {}),
        (f"/my/projects/{project}/approvals/{approval_id}/reject", {}),
        (f"/my/approvals/{approval_id}/confirm", {"decision": "approved"}),
        (f"/my/projects/{project}/approvals/{approval_id}/edit", {"digest": "a" * 64, "content": "mine"}),
    ):
        answer = await agent.post(path, body)
        assert answer.status == 403
        assert "person" in answer.json["hint"]
    assert (await alice.get(f"/my/tools/{tool_id}")).json["status"] == "awaiting_approval"


@pytest.mark.promise("S")
async def test_no_agent_reads_what_its_write_would_replace(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    leave = server.parts.presence.connect(ConnectedClient("laptop", project, declared=True, looks=True))
    writer = server.user("alice", (Scope.AGENT,), agent="writer")
    calling = asyncio.create_task(writer.execute(project, "write_file", {"path": "a.txt", "content": "x"}))
    async with alice.feed(project, "client=laptop", last=0) as feed:
        asked = await feed.until("tool.inspection_request")
        seen = {"path": "a.txt", "role": "replaces", "sha256": "a" * 64, "size": 9, "text": "for eyes\n"}
        told = f"/my/projects/{project}/tools/{asked.data['tool_id']}/inspection"
        assert (await alice.post(told, {"files": [seen]})).status == 204
        assert "for eyes" in str((await feed.until("tool.approval_request")).data)
    leave()
    call = (await calling).json
    for scopes in ((Scope.AGENT,), (Scope.AGENT, Scope.CHAT), (Scope.AGENT, Scope.CHAT, Scope.APPROVE)):
        agent = server.user("alice", scopes, agent="writer")
        for eyes_only in ("change", "whole", "whole?reveal=true", "editable", "editable?reveal=true"):
            assert (await agent.get(f"/my/approvals/{call['approval_id']}/{eyes_only}")).status == 403, scopes
        [waiting] = (await agent.get("/my/approvals")).json["approvals"]
        url = f"{agent.url}/my/tools/{call['tool_id']}/stream"
        headers = {"Authorization": f"Bearer {agent.token}", "Last-Event-ID": "0"}
        async with agent.session.get(url, headers=headers) as response:
            event = await type(feed)(response).until("tool.approval_request")
        for inspection in (waiting["inspection"], event.data["inspection"]):
            [file] = inspection["files"]
            assert (file["text"], file["shortened"], file["sha256"]) == (None, True, "a" * 64)
    [waiting] = (await alice.get("/my/approvals")).json["approvals"]
    assert waiting["inspection"]["files"][0]["text"] == "for eyes\n"


@pytest.mark.promise("S", "X-reveal", "R8")
async def test_what_is_masked_in_a_file_that_runs_is_revealed_to_a_person_and_to_no_agent(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    leave = server.parts.presence.connect(ConnectedClient("laptop", project, declared=True, looks=True))
    writer = server.user("alice", (Scope.AGENT,), agent="writer")
    run = {"command": "python", "args": ["run.py"]}
    calling = asyncio.create_task(writer.execute(project, "execute_command", run))
    secret, mask = "ghp_" + "a1B2c3D4e5F6" * 3, "[masked:github-token, 40 characters]"
    async with alice.feed(project, "client=laptop", last=0) as feed:
        asked = await feed.until("tool.inspection_request")
        seen = {"path": "run.py", "sha256": "a" * 64, "text": f'settings = {{"api_token": "{secret}"}}\n'}
        told = f"/my/projects/{project}/tools/{asked.data['tool_id']}/inspection"
        assert (await alice.post(told, {"files": [seen]})).status == 204
        event = (await feed.until("tool.approval_request")).data
    leave()
    call = (await calling).json
    whole = f"/my/approvals/{call['approval_id']}/whole"
    assert (await alice.get(whole)).json["text"].count(mask) == 1
    assert (await alice.get(f"{whole}?reveal=true")).json["text"].count(secret) == 1
    for eyes_only in ("whole", "whole?reveal=true"):
        assert (await writer.get(f"/my/approvals/{call['approval_id']}/{eyes_only}")).status == 403
    history = (await alice.get("/my/tools/history")).json
    seen_by_agents = [(await writer.get(path)).json for path in ("/my/approvals", f"/my/tools/{call['tool_id']}")]
    assert secret not in str([event, history, *seen_by_agents, (await alice.get("/my/approvals")).json])


@pytest.mark.promise("A4", "R8")
async def test_a_person_edits_what_waits_and_the_agent_learns_what_was_changed(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    writer = server.user("alice", (Scope.AGENT,), agent="writer")
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    call = (await writer.execute(project, "write_file", {"path": "a.py", "content": "x = 1\n"})).json
    editable = (await alice.get(f"/my/approvals/{call['approval_id']}/editable")).json
    assert (editable["content"], editable["masked"], editable["line"]) == ("x = 1\n", False, None)
    path = f"/my/projects/{project}/approvals/{call['approval_id']}/edit"
    body = {"digest": editable["digest"], "content": f"token = '{secret}'\n"}
    async with alice.machine(project) as signals:
        edited = await alice.post(path, body)
        assert edited.status == 200, edited.json
        assert edited.json["approval_id"] != call["approval_id"]
        again = await alice.post(path, body)
        assert (again.status, again.json["state"]) == (409, "cancelled")
        assert "another question asks about it" in again.json["detail"]
        [waits] = (await writer.get("/my/approvals")).json["approvals"]
        assert (waits["id"], waits["edit"]["edited_by"]) == (edited.json["approval_id"], "person:alice")
        assert waits["edit"]["asked"]["content"] == "x = 1\n"
        assert secret not in str(waits)
        answer = await alice.post(
            f"/my/approvals/{waits['id']}/confirm", {"decision": "approved", "digest": waits["digest"]}
        )
        assert answer.status == 200, answer.json
        ended = (await writer.get(f"/my/tools/{call['tool_id']}?wait=10")).json
    assert signals[0]["tool_params"]["content"] == f"token = '{secret}'\n"
    assert (ended["status"], ended["edit"]["asked"]["content"]) == ("completed", "x = 1\n")
    assert secret not in str(ended)


@pytest.mark.promise("A4")
@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"content": "x"}, 400, "digest"),
        ({"digest": "d" * 64, "content": "y"}, 409, "other parameters"),
        ({"line": "ls"}, 400, "no part of write_file"),
        ({"path": "b.py"}, 400, "path"),
        ({"tool_name": "execute_command"}, 400, "tool_name"),
        ({"content": "x" * 262_145}, 400, "content"),
        ({}, 400, "Nothing was changed"),
    ],
)
async def test_an_edit_that_may_not_be_changes_nothing(
    server: Server, body: dict[str, str], status: int, told: str
) -> None:
    alice = server.user()
    project = await alice.project()
    call = (await alice.execute(project, "write_file", {"path": "a.py", "content": "x = 1\n"})).json
    [waits] = (await alice.get("/my/approvals")).json["approvals"]
    sent = {"digest": waits["digest"], **body} if body != {"content": "x"} else body
    answer = await alice.post(f"/my/projects/{project}/approvals/{waits['id']}/edit", sent)
    assert answer.status == status, answer.json
    assert told in str(answer.json)
    assert [one["id"] for one in (await alice.get("/my/approvals")).json["approvals"]] == [call["approval_id"]]


@pytest.mark.promise("A4", "S")
async def test_nobody_edits_what_waits_for_somebody_else(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    [waits] = (await alice.get("/my/approvals")).json["approvals"]
    body = {"digest": waits["digest"], "line": "ls"}
    assert (await bob.post(f"/my/projects/{project}/approvals/{approval_id}/edit", body)).status == 404
    other = await bob.project()
    assert (await bob.post(f"/my/projects/{other}/approvals/{approval_id}/edit", body)).status == 404
    assert (await bob.get(f"/my/approvals/{approval_id}/editable")).status == 404
    assert (await alice.get(f"/my/tools/{tool_id}")).json["status"] == "awaiting_approval"
