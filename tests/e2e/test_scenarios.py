"""The scenarios of the spec in separate processes over real HTTP, as a user would meet them."""

import asyncio
import json
from pathlib import Path

import pytest

from harness.json_values import JsonObject
from harness.processes import Site, Stream, User, open_site

pytestmark = pytest.mark.timeout(90)


async def project_of(user: User) -> str:
    answer = await user.post("/my/projects", {"name": "demo"})
    assert answer.status == 201, answer.body
    return answer.body["project_id"]


async def say(user: User, project_id: str, content: str, session_id: str | None = None) -> JsonObject:
    body = {"content": content} | ({"session_id": session_id} if session_id else {})
    answer = await user.post(f"/my/projects/{project_id}/chat/messages", body)
    assert answer.status == 202, answer.body
    return answer.body


async def agent_says(stream: Stream) -> str:
    return (await stream.until("chat.message", lambda event: event["role"] == "agent"))["content"]


@pytest.mark.promise("W1", "W2", "W3", "W9", "W13", "U", "M")
async def test_read_the_package_json_and_tell_me_the_version(site: Site, alice: User) -> None:
    await site.serve()
    project_id = await project_of(alice)
    await site.connect(project_id, alice.token)
    async with alice.watch(project_id) as stream:
        await say(alice, project_id, "Read the package.json and tell me the version")
        finished = await stream.until("tool.finished")
        assert finished["status"] == "completed"
        assert "3.2.1" in await agent_says(stream)


@pytest.mark.promise("W6", "W7", "W8", "W10", "W11", "R4", "T2")
async def test_a_write_happens_after_approval_and_only_then(site: Site, alice: User) -> None:
    await site.serve()
    project_id = await project_of(alice)
    await site.connect(project_id, alice.token)
    async with alice.watch(project_id) as stream:
        await say(alice, project_id, "write notes.md: remember the milk")
        request = await stream.until("tool.approval_request")
        assert (request["risk_level"], request["timeout_seconds"]) == ("MEDIUM", 300)
        assert not (site.workspace / "notes.md").exists()
        path = f"/my/projects/{project_id}/approvals/{request['approval_id']}/approve"
        answer = await alice.post(path, {"decision": "approved"})
        assert (answer.status, answer.body["success"], answer.body["status"]) == (200, True, "approved")
        assert (await alice.post(path, {"decision": "approved"})).status == 409
        await agent_says(stream)
    assert (site.workspace / "notes.md").read_text().strip() == "remember the milk"


@pytest.mark.promise("T3", "R9")
async def test_npm_install_runs_in_the_sandbox_after_approval(site: Site, alice: User) -> None:
    await site.serve()
    project_id = await project_of(alice)
    await site.connect(project_id, alice.token)
    call = await alice.execute(project_id, "execute_command", command="npm", args=["install"], timeout=120)
    assert (call["status"], call["result"]) == ("awaiting_approval", None)
    approvals = (await alice.get("/my/approvals")).body["approvals"]
    assert [approval["id"] for approval in approvals] == [call["approval_id"]]
    answer = await alice.post(f"/my/approvals/{call['approval_id']}/confirm", {"decision": "approved"})
    assert answer.status == 200
    ended = await alice.end_of(call["tool_id"])
    assert (ended["status"], ended["result"]["exit_code"]) == ("completed", 0), ended
    assert (site.workspace / "package-lock.json").exists()
    assert ended["result"]["isolation"]["backend"] == "bwrap"


@pytest.mark.promise("W4", "G2", "S", "R7")
async def test_rm_is_refused_by_name(site: Site, alice: User) -> None:
    await site.serve()
    project_id = await project_of(alice)
    await site.connect(project_id, alice.token)
    call = await alice.execute(project_id, "execute_command", command="rm", args=["-rf", "/"])
    assert (call["status"], call["error"]) == ("failed", "Command not allowed: rm")
    history = (await alice.get("/my/tools/history")).body
    assert [(row["tool_name"], row["status"]) for row in history["executions"]] == [("execute_command", "failed")]


@pytest.mark.promise("R5", "W7", "W12")
async def test_a_rejection_with_a_reason_reaches_the_agent(site: Site, alice: User) -> None:
    await site.serve()
    project_id = await project_of(alice)
    await site.connect(project_id, alice.token)
    async with alice.watch(project_id) as stream:
        await say(alice, project_id, "write notes.md: hello")
        request = await stream.until("tool.approval_request")
        answer = await alice.post(
            f"/my/projects/{project_id}/approvals/{request['approval_id']}/reject", {"reason": "put it in docs"}
        )
        assert (answer.status, answer.body["status"]) == (200, "rejected")
        assert "put it in docs" in await agent_says(stream)
    assert not (site.workspace / "notes.md").exists()


@pytest.mark.promise("W7")
async def test_nobody_answers_and_nothing_runs(tmp_path: Path, database_url: str | None) -> None:
    async with open_site(tmp_path, None, database_url, durability="normal", medium_approval_seconds="1") as site:
        alice = User(site.url, site.token("alice"))
        await site.serve()
        project_id = await project_of(alice)
        await site.connect(project_id, alice.token)
        call = await alice.execute(project_id, "write_file", path="a.txt", content="x")
        ended = await alice.end_of(call["tool_id"])
        assert (ended["status"], ended["error"], ended["error_type"]) == (
            "timeout",
            "Approval timeout",
            "approval_timeout",
        )
        late = await alice.post(f"/my/approvals/{call['approval_id']}/confirm", {"decision": "approved"})
        assert (late.status, late.body["state"]) == (409, "timeout")
        assert not (site.workspace / "a.txt").exists()
        await alice.close()


@pytest.mark.promise("W8")
async def test_without_a_client_the_call_fails_as_no_client(tmp_path: Path, database_url: str | None) -> None:
    async with open_site(tmp_path, None, database_url, durability="normal", client_wait_seconds="0.5") as site:
        alice = User(site.url, site.token("alice"))
        await site.serve()
        call = await alice.execute(await project_of(alice), "read_file", path="a.txt")
        assert (call["status"], call["error_type"]) == ("failed", "no_client")
        await alice.close()


@pytest.mark.promise("S", "R7", "R8")
async def test_two_users_cannot_see_each_other(site: Site, alice: User) -> None:
    await site.serve()
    mallory = User(site.url, site.token("mallory"))
    project_id = await project_of(alice)
    call = await alice.execute(project_id, "write_file", path="a.txt", content="x")
    for answer in (
        await mallory.get(f"/my/tools/{call['tool_id']}"),
        await mallory.post(f"/my/approvals/{call['approval_id']}/confirm", {"decision": "approved"}),
        await mallory.post(f"/my/projects/{project_id}/approvals/{call['approval_id']}/approve"),
        await mallory.post(f"/my/projects/{project_id}/approvals/{call['approval_id']}/reject"),
        await mallory.post(
            f"/my/projects/{project_id}/tools/{call['tool_id']}/result", {"status": "completed", "result": {}}
        ),
        await mallory.get(f"/my/projects/{project_id}/chat/stream"),
        await mallory.get(f"/my/projects/{project_id}/tools/available"),
        await mallory.post(f"/my/projects/{project_id}/chat/messages", {"content": "hi"}),
        await mallory.post(
            "/my/tools/execute", {"project_id": project_id, "tool_name": "read_file", "tool_params": {"path": "a"}}
        ),
    ):
        assert answer.status == 404, answer.body
    for path, field in (
        ("/my/approvals", "approvals"),
        ("/my/tools/history", "executions"),
        ("/my/projects", "projects"),
    ):
        assert (await mallory.get(path)).body[field] == []
    await mallory.close()


@pytest.mark.promise("S")
async def test_an_agents_token_can_never_approve(site: Site, alice: User) -> None:
    await site.serve()
    agent = User(site.url, site.token("alice", "agent"))
    project_id = await project_of(alice)
    call = await agent.execute(project_id, "write_file", path="a.txt", content="x")
    assert call["status"] == "awaiting_approval"
    for path in (
        f"/my/approvals/{call['approval_id']}/confirm",
        f"/my/projects/{project_id}/approvals/{call['approval_id']}/approve",
    ):
        assert (await agent.post(path, {"decision": "approved"})).status == 403
    await agent.close()


@pytest.mark.promise("W13", "R1")
async def test_a_conversation_goes_on_in_its_session(site: Site, alice: User) -> None:
    await site.serve()
    project_id = await project_of(alice)
    await site.connect(project_id, alice.token)
    async with alice.watch(project_id) as stream:
        first = await say(alice, project_id, "list src")
        assert "app.py" in await agent_says(stream)
        await say(alice, project_id, "search TODO", first["session_id"])
        assert "src/app.py" in await agent_says(stream)
        await say(alice, project_id, "run ls -la src", first["session_id"])
        assert "app.py" in await agent_says(stream)
    path = f"/my/projects/{project_id}/chat/messages?session_id={first['session_id']}"
    messages = (await alice.get(path)).body["messages"]
    assert [message["role"] for message in messages] == ["user", "agent"] * 3


@pytest.mark.promise("R2")
async def test_a_stream_resumed_by_its_last_id_has_no_gap_and_no_repeat(site: Site, alice: User) -> None:
    await site.serve()
    project_id = await project_of(alice)
    await site.connect(project_id, alice.token)
    whole: list[tuple[int, str]] = []
    pieces: list[tuple[int, str]] = []
    last_id = 0

    async def talk() -> None:
        for number in range(12):
            await alice.execute(project_id, "read_file", path="package.json")
            await alice.execute(project_id, "execute_command", command="rm", args=[str(number)])

    def finished(events: list[tuple[int, str]]) -> int:
        return len([kind for _, kind in events if kind == "tool.finished"])

    talking = asyncio.create_task(talk())
    while finished(pieces) < 24:
        async with alice.watch(project_id, last_event_id=last_id) as stream, asyncio.timeout(20):
            async for number, kind, _ in stream:
                pieces.append((number, kind))
                last_id = number
                if len(pieces) % 5 == 0 or finished(pieces) == 24:  # hang up in the middle, again and again
                    break
    await talking
    async with alice.watch(project_id, last_event_id=0) as stream, asyncio.timeout(20):
        async for number, kind, _ in stream:
            whole.append((number, kind))
            if finished(whole) == 24:
                break
    assert pieces == whole
    numbers = [number for number, _ in whole]
    assert numbers == sorted(set(numbers))


@pytest.mark.promise("L8", "D")
async def test_the_audit_chain_of_a_real_session_verifies(site: Site, alice: User) -> None:
    server = await site.serve()
    project_id = await project_of(alice)
    await alice.execute(project_id, "execute_command", command="rm", args=[])
    verify = await site.start("audit", "audit", "verify", "--json")
    assert await verify.process.wait() == 0, verify.output()
    assert json.loads(verify.output())["projects"][0]["fault"] is None
    assert await server.stop() == 0, server.output()
