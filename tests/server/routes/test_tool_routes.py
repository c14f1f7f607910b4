"""Calls from elsewhere, results, status and history (R3, R6, R7, R8)."""

import asyncio

import pytest

from byleave.protocol.states import AgentMode, Scope
from harness.http_server import RequestOptions, Server, StartServer
from harness.json_values import JsonObject

AGENT = (Scope.AGENT,)


@pytest.mark.promise("R7", "R3", "W8", "W10", "W11")
async def test_low_call_answers_with_the_result(server: Server) -> None:
    alice, agent = server.user(), server.user(scopes=AGENT)
    project = await alice.project()
    async with alice.machine(project) as signals:
        answer = await agent.execute(project, "read_file", {"path": "a.txt"})
    assert answer.status == 200
    assert answer.json["status"] == "completed"
    assert answer.json["result"] == {"success": True, "content": "hello"}
    assert [signal["tool_params"]["path"] for signal in signals] == ["a.txt"]


@pytest.mark.promise("R7", "G2", "S2")
async def test_refused_call_is_an_answer_and_not_an_http_error(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    answer = await alice.execute(project, "execute_command", {"command": "rm", "args": ["-rf", "/"]})
    assert (answer.status, answer.json["status"]) == (200, "failed")
    assert answer.json["error"] == "Command not allowed: rm"


@pytest.mark.promise("R7", "R4", "R8")
async def test_medium_call_says_it_waits_and_can_be_followed_to_its_end(server: Server) -> None:
    alice, agent = server.user(), server.user(scopes=AGENT)
    project = await alice.project()
    async with alice.machine(project):
        tool_id, approval_id = await agent.question(project)
        following = asyncio.create_task(agent.get(f"/my/tools/{tool_id}?wait=10"))
        approved = await alice.post(f"/my/projects/{project}/approvals/{approval_id}/approve", {"decision": "approved"})
        assert approved.json["status"] == "approved"
        ended = await following
    assert ended.json["status"] == "completed"
    assert ended.json["approved_by"] == "person:alice"


@pytest.mark.promise("R3", "C3")
async def test_a_client_says_what_waits_in_its_queue_and_when_it_begins(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    mine: RequestOptions = {"headers": {"Byleave-Client": "laptop"}}
    async with alice.feed(project, "client=laptop") as feed:
        call = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        tool_id = (await feed.until("tool.execution_signal")).data["tool_id"]
        tools = f"/my/projects/{project}/tools"
        assert (await alice.get(f"/my/tools/{tool_id}")).json["started_at"] is not None
        assert (await alice.post(f"{tools}/queued", {"tool_ids": [tool_id]}, **mine)).status == 204
        assert (await feed.until("tool.queued")).data["waits"] is True
        assert (await alice.get(f"/my/tools/{tool_id}")).json["started_at"] is None
        other: RequestOptions = {"headers": {"Byleave-Client": "desktop"}}
        assert (await alice.post(f"{tools}/{tool_id}/begin", **other)).status == 409
        assert (await alice.post(f"{tools}/queued", {"tool_ids": [tool_id]}, **other)).status == 403
        begun = await alice.post(f"{tools}/{tool_id}/begin", **mine)
        assert begun.json["deadline"] > begun.json["started_at"]
        assert (await feed.until("tool.queued")).data["waits"] is False
        done = {"status": "completed", "result": {"success": True}, "duration_ms": 10**30}
        assert (await alice.post(f"{tools}/{tool_id}/result", done, **mine)).status == 200
        await call
        took = (await alice.get(f"/my/tools/{tool_id}")).json["execution_time_ms"]
        assert took < 60_000, "more than is possible is not believed"
        assert (await alice.post(f"{tools}/{tool_id}/begin", **mine)).status == 409


@pytest.mark.promise("R3", "C5")
async def test_several_results_are_taken_together_each_as_if_alone(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    project = await alice.project()
    tools = f"/my/projects/{project}/tools"
    mine: RequestOptions = {"headers": {"Byleave-Client": "laptop"}}
    others: list[RequestOptions] = [{"headers": {"Byleave-Client": "desktop"}}, {}]
    done = {"status": "completed", "result": {"success": True, "content": "DB_PASSWORD=hunter2hunter2"}}
    async with alice.feed(project, "client=laptop") as feed:
        calls = [asyncio.create_task(alice.execute(project, "read_file", {"path": f"{n}.txt"})) for n in range(3)]
        names = [(await feed.until("tool.execution_signal")).data["tool_id"] for _ in calls]
        results = [{"tool_id": name, "report": done} for name in (*names[:2], "exec_unknown", names[2])]
        for other in others:
            assert (await alice.post(f"{tools}/results", {"results": results}, **other)).status in (400, 403)
        assert (await bob.post(f"{tools}/results", {"results": results}, **mine)).status == 404
        answer = await alice.post(f"{tools}/results", {"results": results}, **mine)
        assert (answer.status, answer.json) == (200, {"accepted": names})
        ended = [(await call).json for call in calls]
        again = await alice.post(f"{tools}/results", {"results": results}, **mine)
        assert again.json == {"accepted": names}, "the same result again is accepted again"
        other_result = {"tool_id": names[0], "report": done | {"result": {"success": True}}}
        assert (await alice.post(f"{tools}/results", {"results": [other_result]}, **mine)).json == {"accepted": []}
        too_many = {"results": [results[0]] * 65}
        assert (await alice.post(f"{tools}/results", too_many, **mine)).status == 400
    assert [call["status"] for call in ended] == ["completed"] * 3
    assert all("hunter2" not in str(call) for call in ended)


@pytest.mark.promise("R8")
async def test_status_without_wait_answers_at_once_and_wait_ends_in_time(server: Server) -> None:
    alice = server.user()
    tool_id, _ = await alice.question(await alice.project())
    for query in ("", "?wait=0", "?wait=0.05"):
        answer = await alice.get(f"/my/tools/{tool_id}{query}")
        assert answer.json["status"] == "awaiting_approval"


async def test_wait_that_is_no_possible_number_is_400(server: Server) -> None:
    alice = server.user()
    tool_id, _ = await alice.question(await alice.project())
    for wait in ("-1", "soon", "301", "nan", "inf", "1&wait=2"):
        answer = await alice.get(f"/my/tools/{tool_id}?wait={wait}")
        assert answer.status == 400, wait
        assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.promise("R7")
async def test_same_idempotency_key_runs_once(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.machine(project) as signals:
        first = await alice.execute(project, "read_file", {"path": "a.txt"}, idempotency_key="one")
        second = await alice.execute(project, "read_file", {"path": "a.txt"}, idempotency_key="one")
    assert first.json == second.json
    assert len(signals) == 1


@pytest.mark.promise("R7", "X23")
async def test_a_key_names_no_call_of_an_agent_of_another_name(server: Server) -> None:
    alice, one, renewed = server.user(), *(server.user(scopes=AGENT, agent="one") for _ in range(2))
    other, program = server.user(scopes=AGENT, agent="other"), server.user()
    namesake = server.user(scopes=AGENT, agent="program")
    project = await alice.project()
    talk = (await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hello"})).json["session_id"]
    for session in ({}, {"session_id": talk}):
        call = (project, "write_file", {"path": "a.txt", "content": "x"})
        asked = (await one.execute(*call, idempotency_key="1", **session)).json
        await alice.post(f"/my/approvals/{asked['approval_id']}/confirm", {"decision": "rejected", "reason": "not you"})
        again = (await renewed.execute(*call, idempotency_key="1", **session)).json
        assert (again["tool_id"], again["status"]) == (asked["tool_id"], "rejected")
        found = {asked["tool_id"]}
        for stranger in (other, program, namesake):
            theirs = await stranger.execute(*call, idempotency_key="1", **session)
            assert theirs.json["status"] == "awaiting_approval", theirs.text
            found.add(theirs.json["tool_id"])
        assert len(found) == 4


@pytest.mark.promise("X23")
async def test_what_a_person_let_one_agent_read_no_other_agent_reads(server: Server) -> None:
    alice, one, renewed = server.user(), *(server.user(scopes=AGENT, agent="one") for _ in range(2))
    other = server.user(scopes=AGENT, agent="other")
    project = await alice.project()
    asked = (await one.execute(project, "read_file", {"path": ".env"})).json
    assert [len((await who.get("/my/approvals")).json["approvals"]) for who in (alice, one, other)] == [1, 1, 0]
    async with alice.machine(project):
        await alice.post(f"/my/approvals/{asked['approval_id']}/confirm", {"decision": "approved"})
        done = await one.get(f"/my/tools/{asked['tool_id']}?wait=5")
    assert done.json["status"] == "completed"
    for path in (f"/my/tools/{asked['tool_id']}", f"/my/tools/{asked['tool_id']}/stream"):
        assert (await other.get(path)).status == 404
    assert (await renewed.get(f"/my/tools/{asked['tool_id']}")).status == 200
    assert [(await who.get("/my/tools/history")).json["total_count"] for who in (alice, one, other)] == [1, 1, 0]


@pytest.mark.promise("X23")
async def test_an_agent_sees_no_question_of_an_agent_of_the_chat_whose_name_begins_like_its_own(server: Server) -> None:
    alice, code = server.user(), server.user(scopes=AGENT, agent="code")
    project = await alice.project()
    sent = await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hello"})
    written = {"path": "a.txt", "content": "x"}
    await server.parts.approvals.request_tool_approval(
        "alice", "write_file", written, "MEDIUM", 60, agent_id="code-reviewer", session_id=sent.json["session_id"]
    )
    own = (await code.execute(project, "write_file", written)).json["approval_id"]
    assert (await alice.get("/my/approvals")).json["total_count"] == 2
    assert [one["id"] for one in (await code.get("/my/approvals")).json["approvals"]] == [own]


@pytest.mark.promise("X23")
async def test_agents_whose_tokens_name_none_are_strangers_to_each_other(server: Server) -> None:
    alice, one, other = server.user(), server.user(scopes=AGENT), server.user(scopes=AGENT)
    project = await alice.project()
    call = (project, "write_file", {"path": "a.txt", "content": "x"})
    asked = (await one.execute(*call, idempotency_key="1")).json
    assert [len((await who.get("/my/approvals")).json["approvals"]) for who in (one, other)] == [1, 0]
    assert (await other.get(f"/my/tools/{asked['tool_id']}")).status == 404
    theirs = await other.execute(project, "write_file", {"path": "b.txt", "content": "y"}, idempotency_key="1")
    assert (theirs.status, theirs.json["status"]) == (200, "awaiting_approval"), theirs.text


async def test_call_in_an_unknown_or_foreign_session_is_404(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    project, other = await alice.project(), await bob.project()
    accepted = await bob.post(f"/my/projects/{other}/chat/messages", {"content": "hello"})
    for session in ("sess_unknown", accepted.json["session_id"]):
        answer = await alice.execute(project, "read_file", {"path": "a"}, session_id=session)
        assert (answer.status, answer.json["detail"]) == (404, f"No session {session!r}.")


async def test_call_of_the_wrong_form_is_400_and_says_where(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    wrong: list[JsonObject] = [
        {"tool_params": []},
        {"tool_params": "path"},
        {"tool_params": None},
        {"tool_name": 5},
        {"tool_name": "x" * 101},
        {"project_id": "../x"},
        {"approved": True},
        {"idempotency_key": ""},
    ]
    for body in wrong:
        whole = {"project_id": project, "tool_name": "read_file", "tool_params": {"path": "a"}, **body}
        answer = await alice.post("/my/tools/execute", whole)
        assert answer.status == 400, body
        assert answer.json["errors"][0]["field"] == next(iter(body))


@pytest.mark.promise("W4")
async def test_call_with_bad_parameters_fails_clearly_for_the_agent(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    bad: list[JsonObject] = [
        {"path": "a\0b"},
        {"path": "x" * 10_000_000},
        {"path": 5},
        {},
        {"path": "a", "approved": True},
    ]
    for params in bad:
        answer = await alice.execute(project, "read_file", params)
        assert (answer.status, answer.json["status"]) == (200, "failed")
        assert answer.json["error"]


@pytest.mark.promise("W4", "G4")
async def test_write_beyond_100_mb_fails_clearly(server: Server) -> None:
    alice = server.user()
    content = "x" * (101 * 1024 * 1024)
    answer = await alice.execute(await alice.project(), "write_file", {"path": "a.txt", "content": content})
    assert (answer.status, answer.json["status"], answer.json["error_type"]) == (200, "failed", "invalid")


@pytest.mark.promise("R3")
async def test_result_of_an_unknown_execution_is_404(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    answer = await alice.post(
        f"/my/projects/{project}/tools/exec_unknown/result", {"status": "completed", "result": {}}
    )
    assert answer.status == 404


@pytest.mark.promise("R3", "W11")
async def test_result_counts_once_and_only_from_the_client_that_got_the_signal(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    done = {"status": "completed", "result": {"success": True, "content": "one"}}
    async with alice.feed(project, "client=laptop") as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        signal = await feed.until("tool.execution_signal")
        path = f"/my/projects/{project}/tools/{signal.data['tool_id']}/result"
        stranger = await alice.post(path, done, headers={"Byleave-Client": "desktop"})
        assert (stranger.status, stranger.json["state"]) == (409, "executing")
        nonsense = await alice.post(path, done, headers={"Byleave-Client": "not an id!"})
        assert nonsense.status == 400
        first = await alice.post(path, done, headers={"Byleave-Client": "laptop"})
        assert first.json == {
            "success": True,
            "tool_id": signal.data["tool_id"],
            "status": "completed",
            "message": "Result stored.",
        }
        ack = await feed.until("tool.result_ack")
        assert ack.data["status"] == "completed"
        assert (await alice.post(path, done)).status == 200, "the same result again is accepted again"
        other = await alice.post(path, {"status": "failed", "error": "no"})
        assert (other.status, other.json["state"]) == (409, "completed")
        assert (await calling).json["result"]["content"] == "one"


@pytest.mark.promise("R3", "W11")
@pytest.mark.parametrize("headers", [{}, {"Byleave-Client": "laptop"}], ids=["unnamed", "under its name"])
async def test_another_token_of_the_same_user_reports_nothing_for_a_client(
    server: Server, headers: dict[str, str]
) -> None:
    alice, other = server.user(), server.user(scopes=(Scope.EXECUTE,))
    project = await alice.project()
    async with alice.feed(project, "client=laptop") as feed, other.feed(project, "client=desktop"):
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        tool_id = (await feed.until("tool.execution_signal")).data["tool_id"]
        path = f"/my/projects/{project}/tools/{tool_id}"
        forged = {"status": "completed", "result": {"success": True, "content": "forged"}}
        assert (await other.post(f"{path}/result", forged, headers=headers)).status == 403
        piece = {"stream": "stdout", "text": "forged", "sequence": 0}
        assert (await other.post(f"{path}/output", piece, headers=headers)).status == 403
        true = {"status": "completed", "result": {"success": True, "content": "true"}}
        assert (await alice.post(f"{path}/result", true)).status == 200
        assert (await calling).json["result"]["content"] == "true"


@pytest.mark.promise("R3", "C5")
async def test_a_client_that_connects_with_a_renewed_token_reports_what_it_got_with_the_old_one(server: Server) -> None:
    alice, renewed = server.user(), server.user()
    project = await alice.project()
    async with alice.feed(project, "client=laptop") as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        tool_id = (await feed.until("tool.execution_signal")).data["tool_id"]
    path, named = f"/my/projects/{project}/tools/{tool_id}/result", {"Byleave-Client": "laptop"}
    done = {"status": "completed", "result": {"success": True, "content": "one"}}
    assert (await renewed.post(path, done, headers=named)).status == 403
    async with renewed.feed(project, "client=laptop"):
        assert (await renewed.post(path, done, headers=named)).status == 200
    assert (await calling).json["status"] == "completed"


@pytest.mark.promise("R3", "W11")
async def test_a_client_is_who_it_was_at_first_contact_whichever_token_another_has(server: Server) -> None:
    alice, other, renewed = server.user(), server.user(scopes=(Scope.EXECUTE,)), server.user()
    project = await alice.project()
    stream, rules = f"/my/projects/{project}/chat/stream?client=laptop", f"/my/projects/{project}/policy"
    declared = {"client_id": "laptop", "layers": []}
    key, wrong = {"Byleave-Client-Key": "k" * 64}, {"Byleave-Client-Key": "x" * 64}
    # Known by its token alone, as all were; the first key that comes with that token is the client's.
    async with alice.feed(project, "client=laptop"):
        pass
    assert (await other.get(stream, headers=wrong)).status == 403
    async with alice.feed(project, "client=laptop", Byleave_Client_Key="k" * 64) as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        tool_id = (await feed.until("tool.execution_signal")).data["tool_id"]
        path, named = f"/my/projects/{project}/tools/{tool_id}/result", {"Byleave-Client": "laptop"}
        done = {"status": "completed", "result": {"success": True, "content": "one"}}
        for user, headers in ((other, {}), (other, wrong), (alice, {}), (alice, wrong)):
            refused = await user.get(stream, headers=headers)
            assert (refused.status, "Byleave-Client-Key" in refused.json["hint"]) == (403, True)
            assert (await user.send("PUT", rules, declared, headers=headers)).status == 403
            assert (await user.post(path, done, headers={**named, **headers})).status == 403
            assert (await user.post(path, done, headers=headers)).status == 403
        assert (await renewed.send("PUT", rules, declared, headers=key)).status == 204
        assert (await renewed.post(path, done, headers={**named, **key})).status == 200
        assert (await calling).json["status"] == "completed"


@pytest.mark.promise("R3", "W11")
@pytest.mark.parametrize("query", ["client=laptop", ""], ids=["known by its token", "anonymous"])
async def test_no_second_token_reports_for_a_client_after_declaring_its_rules(server: Server, query: str) -> None:
    alice, other = server.user(), server.user(scopes=(Scope.EXECUTE,))
    project = await alice.project()
    async with alice.feed(project, query) as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        signal = (await feed.until("tool.execution_signal")).data
        client, rules = signal["client_id"], f"/my/projects/{project}/policy"
        declared = {"client_id": client, "layers": []}
        assert (await other.send("PUT", rules, declared)).status == 403
        if not query:
            assert (await other.get(f"/my/projects/{project}/chat/stream?client={client}")).status == 403
        path, done = f"/my/projects/{project}/tools/{signal['tool_id']}/result", {"status": "completed"}
        forged = {**done, "result": {"success": True, "content": "forged"}}
        assert (await other.post(path, forged, headers={"Byleave-Client": client})).status == 403
        assert (await alice.send("PUT", rules, declared)).status == 204
        assert (await alice.post(path, {**done, "result": {"success": True, "content": "true"}})).status == 200
        assert (await calling).json["result"]["content"] == "true"


async def test_a_client_that_does_not_say_who_it_is_reports_by_its_token_alone(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "") as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        tool_id = (await feed.until("tool.execution_signal")).data["tool_id"]
        path = f"/my/projects/{project}/tools/{tool_id}/result"
        assert (await alice.post(path, {"status": "completed", "result": {"success": True}})).status == 200
        assert (await calling).json["status"] == "completed"


@pytest.mark.promise("X23")
async def test_an_agent_is_called_what_its_token_says_whatever_it_says_itself(server: Server) -> None:
    alice, named, nameless = server.user(), server.user(scopes=AGENT, agent="nightly"), server.user(scopes=AGENT)
    project = await alice.project()
    await named.execute(project, "write_file", {"path": "a.txt", "content": "x"}, agent_id="chat")
    await nameless.execute(project, "write_file", {"path": "a.txt", "content": "x"}, agent_id="nightly")
    asked = (await alice.get("/my/approvals")).json["approvals"]
    first, second = [one["agent_id"] for one in asked]
    assert first.startswith("nightly-")
    assert second.startswith("agent-")
    audit = (await alice.get(f"/my/projects/{project}/audit")).json["entries"]
    for action in ("requested", "session_created"):
        assert {one["actor"] for one in audit if one["action"] == action} == {f"agent:{first}", f"agent:{second}"}


@pytest.mark.promise("X23")
async def test_a_second_token_of_the_same_name_is_another_agent(server: Server) -> None:
    alice = server.user()
    first, second = (server.user(scopes=AGENT, agent="nightly") for _ in range(2))
    project = await alice.project()
    for agent in (first, second):
        await agent.question(project)
    waiting = (await alice.get("/my/approvals")).json["approvals"]
    assert len(waiting) == 2, "an identical call of another agent is another question"
    assert len({one["agent_id"] for one in waiting}) == len({one["session_id"] for one in waiting}) == 2


@pytest.mark.promise("X23", "G8")
async def test_a_grant_given_to_one_agent_lets_no_other_through(server: Server) -> None:
    alice, one, other = server.user(), server.user(scopes=AGENT), server.user(scopes=AGENT)
    project = await alice.project()
    opened = await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hello"})
    rule = {"tool": "write_file", "paths": ["src/**"]}
    yes = {"decision": "approved", "scope": "class", "terms": {"rule": rule}}
    for session in ({}, {"session_id": opened.json["session_id"]}):
        asked = await one.execute(project, "write_file", {"path": "src/a.txt", "content": "1"}, **session)
        assert (await alice.post(f"/my/approvals/{asked.json['approval_id']}/confirm", yes)).status == 200
        theirs = await other.execute(project, "write_file", {"path": "src/b.txt", "content": "2"}, **session)
        assert theirs.json["status"] == "awaiting_approval"


@pytest.mark.promise("X23")
async def test_no_agent_enters_the_conversation_of_another(server: Server) -> None:
    alice, one, other = server.user(), server.user(scopes=AGENT), server.user(scopes=AGENT)
    project = await alice.project()
    tool_id, _ = await one.question(project)
    session = (await alice.get(f"/my/tools/{tool_id}")).json["session_id"]
    call = {"tool_name": "write_file", "tool_params": {"path": "b.txt", "content": "x"}, "session_id": session}
    assert (await other.post("/my/tools/execute", call)).status == 404
    assert (await one.post("/my/tools/execute", call)).json["status"] == "awaiting_approval"


@pytest.mark.promise("X23")
async def test_an_agent_calls_off_only_its_own_calls_and_the_record_names_it(server: Server) -> None:
    alice, one, other = server.user(), server.user(scopes=AGENT), server.user(scopes=(Scope.AGENT, Scope.CHAT))
    project = await alice.project()
    tool_id, _ = await one.question(project)
    for path in (f"/my/tools/{tool_id}/cancel", f"/my/projects/{project}/tools/{tool_id}/cancel"):
        assert (await other.post(path)).status == 403
    assert (await one.post(f"/my/tools/{tool_id}/cancel")).status == 200
    row = (await alice.get(f"/my/tools/{tool_id}")).json
    audit = (await alice.get(f"/my/projects/{project}/audit")).json["entries"]
    assert [one["actor"] for one in audit if one["action"] == "failed"] == [f"agent:{row['agent_id']}"]
    run = (await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hello"})).json["run_id"]
    assert (await other.post(f"/my/projects/{project}/chat/runs/{run}/cancel")).status == 403


@pytest.mark.promise("X23")
async def test_what_one_agent_was_refused_three_times_another_may_still_ask(server: Server) -> None:
    alice, one, other = server.user(), server.user(scopes=AGENT), server.user(scopes=AGENT)
    project = await alice.project()
    session = {
        "session_id": (await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hi"})).json["session_id"]
    }
    call = (project, "write_file", {"path": "a.txt", "content": "x"})
    for _ in range(3):
        asked = await one.execute(*call, **session)
        await alice.post(f"/my/approvals/{asked.json['approval_id']}/confirm", {"decision": "rejected"})
    assert (await one.execute(*call, **session)).json["error_type"] == "refused"
    assert (await other.execute(*call, **session)).json["status"] == "awaiting_approval"


@pytest.mark.promise("G7", "X23")
async def test_the_mode_of_a_call_from_elsewhere_is_bounded_by_its_token(server: Server) -> None:
    alice = server.user()
    bound, open_ = server.user(scopes=AGENT), server.user(scopes=AGENT, mode=AgentMode.FULL)
    project = await alice.project()
    call = (project, "write_file", {"path": "a.txt", "content": "x"})
    assert (await bound.execute(*call, mode="full")).json["status"] == "awaiting_approval"
    assert (await open_.execute(*call, mode="sandbox")).json["status"] == "awaiting_approval"
    chat = server.user(scopes=(Scope.CHAT,))
    assert (await chat.execute(*call, mode="full")).json["status"] == "awaiting_approval"
    assert (await alice.execute(*call)).json["status"] == "awaiting_approval"
    async with alice.machine(project) as signals:
        assert (await open_.execute(*call, mode="full")).json["status"] == "completed"
        assert (await open_.execute(*call)).json["status"] == "completed"
        assert (await alice.execute(*call, mode="full")).json["status"] == "completed", "a person's own choice"
    assert [signal["approved_by"] for signal in signals] == ["mode:full"] * 3


@pytest.mark.promise("R7")
async def test_a_session_tells_the_project_of_a_call(server: Server) -> None:
    alice, bob = server.user(), server.user("bob")
    project = await alice.project()
    session = (await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hello"})).json["session_id"]
    call = {"tool_name": "write_file", "tool_params": {"path": "a.txt", "content": "x"}}
    answer = await alice.post("/my/tools/execute", {**call, "session_id": session})
    assert answer.json["status"] == "awaiting_approval"
    assert (await alice.get("/my/approvals")).json["approvals"][0]["project_id"] == project
    assert (await bob.post("/my/tools/execute", {**call, "session_id": session})).status == 404
    assert (await alice.post("/my/tools/execute", call)).status == 400


@pytest.mark.promise("R3")
async def test_result_of_the_wrong_form_is_400(server: Server) -> None:
    alice = server.user()
    path = f"/my/projects/{await alice.project()}/tools/exec_1/result"
    wrong: list[object] = [
        {},
        {"status": "completed"},
        {"status": "completed", "result": []},
        {"status": "failed"},
        {"status": "done", "result": {}},
        {"status": "completed", "result": {}, "approved": True},
        [],
        "completed",
        0,
    ]
    for body in wrong:
        answer = await alice.post(path, body)
        assert answer.status == 400, body
        assert answer.json["errors"]


async def test_half_characters_in_a_result_are_mended_so_that_it_is_not_lost(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "client=laptop") as feed:
        calling = asyncio.create_task(alice.execute(project, "list_directory", {"path": "."}))
        signal = await feed.until("tool.execution_signal")
        path = f"/my/projects/{project}/tools/{signal.data['tool_id']}/result"
        body = rb'{"status":"completed","result":{"files":[{"name":"\udcff.txt","ok":"\ud83d\ude00"}],"n":1}}'
        answer = await alice.post(path, data=body, headers={"Content-Type": "application/json"})
        assert answer.status == 200, answer.text
        entry = (await calling).json["result"]["files"][0]
    assert entry["name"].endswith("\ufffd.txt")
    assert entry["ok"] == "\U0001f600"


async def test_output_reaches_the_feed_and_repeats_are_dropped(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "client=laptop") as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        signal = await feed.until("tool.execution_signal")
        tool = f"/my/projects/{project}/tools/{signal.data['tool_id']}"
        for sequence in (0, 0, 1):
            chunk = {"stream": "stdout", "text": f"line {sequence}", "sequence": sequence}
            assert (await alice.post(f"{tool}/output", chunk)).status == 204
        assert (await alice.post(f"{tool}/result", {"status": "failed", "error": "no such file"})).status == 200
        outputs: list[str] = []
        async for frame in feed.frames():
            if frame.kind == "tool.output":
                outputs.append(frame.data["text"])
            if frame.kind == "tool.finished":
                break
        assert outputs == ["line 0", "line 1"]
        assert (await calling).json["error"] == "no such file"


async def test_secret_in_live_output_is_masked_before_it_reaches_the_feed(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    async with alice.feed(project, "client=laptop") as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        signal = await feed.until("tool.execution_signal")
        tool = f"/my/projects/{project}/tools/{signal.data['tool_id']}"
        chunk = {"stream": "stdout", "text": f"the token is {secret}\n", "sequence": 0}
        assert (await alice.post(f"{tool}/output", chunk)).status == 204
        said = (await feed.until("tool.output")).data["text"]
        assert secret not in said
        assert said.startswith("the token is [masked")
        await alice.post(f"{tool}/result", {"status": "failed", "error": "no"})
        await calling


async def test_output_with_an_impossible_number_is_400(server: Server) -> None:
    alice = server.user()
    path = f"/my/projects/{await alice.project()}/tools/exec_1/output"
    for sequence in (-1, 2**31 + 1, 2**63, 10**100, 1.5, "x"):
        answer = await alice.post(path, {"stream": "stdout", "text": "", "sequence": sequence})
        assert answer.status == 400, sequence


@pytest.mark.promise("R8")
async def test_history_has_a_preview_of_a_long_result_and_the_execution_the_whole(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    texts = ["short", "x" * 20_000 + "end", "y" * 2_000_000]
    async with alice.feed(project, "client=laptop") as feed:
        for text in texts:
            calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
            signal = await feed.until("tool.execution_signal")
            path = f"/my/projects/{project}/tools/{signal.data['tool_id']}/result"
            await alice.post(path, {"status": "completed", "result": {"success": True, "content": text}})
            assert (await calling).json["result"]["content"] == text
    answer = await alice.get("/my/tools/history")
    assert len(answer.text) < 20_000
    rows = list(reversed(answer.json["executions"]))
    assert rows[0]["result"] == {"success": True, "content": "short"}
    assert "characters left out" in rows[1]["result"]["content"]
    assert rows[1]["result"]["content"].endswith("end")
    assert (await alice.get(f"/my/tools/{rows[2]['tool_id']}")).json["result"]["content"] == texts[2]


@pytest.mark.promise("R6")
async def test_catalogue_lists_the_six_tools(server: Server) -> None:
    alice = server.user()
    answer = await alice.get(f"/my/projects/{await alice.project()}/tools/available")
    assert answer.json["total_count"] == 6
    assert {"name", "description", "parameters", "requires_approval", "risk_level", "timeout_seconds"} == set(
        answer.json["tools"][0]
    )


@pytest.mark.promise("R8", "D")
async def test_history_is_filtered_and_paged_without_a_gap_or_a_repeat(server: Server) -> None:
    alice = server.user()
    project, other = await alice.project(), await alice.project("other")
    for number in range(5):
        await alice.execute(project, "execute_command", {"command": "rm", "args": [str(number)]})
    await alice.question(other)
    whole = (await alice.get("/my/tools/history")).json
    assert whole["total_count"] == 6
    found: list[str] = []
    cursor = ""
    while True:
        page = (await alice.get(f"/my/tools/history?project_id={project}&limit=2{cursor}")).json
        found += [row["tool_id"] for row in page["executions"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == [row["tool_id"] for row in whole["executions"] if row["project_id"] == project]
    for query, count in (
        ("status=FAILED", 5),
        ("status=failed", 5),
        ("status=Failed", 5),
        ("tool_name=write_file", 1),
        ("risk_level=MEDIUM", 1),
    ):
        assert (await alice.get(f"/my/tools/history?{query}")).json["total_count"] == count


async def test_history_with_a_wrong_filter_is_400(server: Server) -> None:
    alice = server.user()
    wrong = ["limit=0", "limit=201", "limit=x", "status=DONE", "risk_level=low", "cursor=x", "user_id=bob"]
    for query in [*wrong, "limit=1&limit=2"]:
        answer = await alice.get(f"/my/tools/history?{query}")
        assert answer.status == 400, query
        assert answer.json["hint"]


async def test_call_that_waits_can_be_stopped(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    for path in ("/my/tools/{}/cancel", f"/my/projects/{project}/tools/{{}}/cancel"):
        tool_id, _ = await alice.question(project)
        assert (await alice.post(path.format(tool_id))).json == {"success": True, "message": "Stopped."}
        again = await alice.post(path.format(tool_id))
        assert (again.status, again.json["state"]) == (409, "failed")
    other = await alice.project("other")
    assert (await alice.post(f"/my/projects/{other}/tools/{tool_id}/cancel")).status == 404
    assert (await alice.get("/my/approvals")).json["total_count"] == 0


async def test_running_call_is_stopped_by_telling_its_client(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "client=laptop") as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        signal = await feed.until("tool.execution_signal")
        answer = await alice.post(f"/my/tools/{signal.data['tool_id']}/cancel", {})
        assert answer.json["message"] == "The client was told to stop it."
        await feed.until("tool.cancel_signal", tool_id=signal.data["tool_id"])
        report = {"status": "failed", "error": "Stopped.", "error_type": "cancelled"}
        await alice.post(f"/my/projects/{project}/tools/{signal.data['tool_id']}/result", report)
        assert (await calling).json["error_type"] == "cancelled"


@pytest.mark.promise("R4", "R8", "D")
@pytest.mark.parametrize("decision", ["rejected", "approved"])
async def test_record_says_by_whom_where_and_when_a_call_was_decided_as_the_event_does(
    server: Server, decision: str
) -> None:
    alice = server.user()
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    waits = await alice.get(f"/my/tools/{tool_id}")
    assert waits.json["decision"] is None
    async with alice.feed(project) as feed:
        body = {"decision": decision} | ({"reason": "not today"} if decision == "rejected" else {})
        assert (await alice.post(f"/my/approvals/{approval_id}/confirm", body)).status == 200
        event = (await feed.until("tool.approval_decided")).data
    for told in (
        (await alice.get(f"/my/tools/{tool_id}")).json["decision"],
        (await alice.get(f"/my/tools/history?project_id={project}")).json["executions"][0]["decision"],
    ):
        assert told["decided_at"] == event["timestamp"]
        same = ("approval_id", "status", "decided_by", "decided_from", "reason", "scope", "grant_id")
        assert {name: told[name] for name in same} == {name: event[name] for name in same}
    assert (event["decided_by"], event["decided_from"], event["status"]) == ("person:alice", "program", decision)
    assert event["reason"] == ("not today" if decision == "rejected" else None)


@pytest.mark.promise("R8", "D")
async def test_record_says_when_nobody_answered(start_server: StartServer) -> None:
    alice = (await start_server(medium_approval_seconds=1)).user()
    project = await alice.project()
    async with alice.feed(project) as feed:
        tool_id, approval_id = await alice.question(project)
        await feed.until("tool.finished", tool_id=tool_id)
    ended = (await alice.get(f"/my/tools/{tool_id}")).json
    assert ended["status"] == "timeout"
    decision = ended["decision"]
    assert (decision["approval_id"], decision["status"]) == (approval_id, "timeout")
    assert (decision["decided_by"], decision["decided_from"]) == (None, None)
    assert decision["decided_at"] == ended["completed_at"]
