"""Grants and a machine's rules over HTTP: given with an answer, listed, tried out, taken back, declared."""

import asyncio
from pathlib import Path

import pytest

from byleave.protocol.errors import ConfigurationError
from byleave.protocol.states import Scope
from harness.http_server import Server, StartServer, User
from harness.json_values import JsonObject

RULE = {"tool": "write_file", "paths": ["src/**"]}
CLASS = {"decision": "approved", "scope": "class", "terms": {"rule": RULE}}


async def _granted(alice: User, project: str) -> str:
    _, approval_id = await alice.question(project, "src/a.txt")
    answer = await alice.post(f"/my/projects/{project}/approvals/{approval_id}/approve", CLASS)
    assert answer.status == 200, answer.text
    return answer.json["grant_id"]


@pytest.mark.promise("G8", "R4")
async def test_a_class_is_granted_listed_used_and_revoked(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.machine(project):
        grant_id = await _granted(alice, project)
        [grant] = (await alice.get(f"/my/grants?project_id={project}")).json["grants"]
        assert (grant["id"], grant["rule"]["paths"], grant["uses"]) == (grant_id, ["src/**"], 0)
        answer = await alice.execute(project, "write_file", {"path": "src/b.txt", "content": "x"})
        assert answer.json["status"] == "completed"
        ran = (await alice.get(f"/my/tools/{answer.json['tool_id']}")).json
        assert ran["approved_by"] == f"grant:{grant_id}"
        revoked = await alice.post(f"/my/grants/{grant_id}/revoke")
        assert (revoked.status, revoked.json["status"], revoked.json["uses"]) == (200, "revoked", 1)
        assert (await alice.post(f"/my/grants/{grant_id}/revoke")).status == 409
    assert (await alice.get("/my/grants")).json == {"grants": [], "total_count": 0}
    assert (await alice.get("/my/grants?all=true")).json["total_count"] == 1


@pytest.mark.promise("G8")
async def test_everything_in_a_session_is_refused_without_its_warning(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    _, approval_id = await alice.question(project)
    path = f"/my/approvals/{approval_id}/confirm"
    answer = await alice.post(path, {"decision": "approved", "scope": "session"})
    assert answer.status == 400
    assert "won't ask" in answer.json["detail"]
    assert (await alice.get("/my/approvals")).json["total_count"] == 1
    answer = await alice.post(path, {"decision": "approved", "scope": "session", "terms": {"warned": True}})
    assert (answer.status, answer.json["grant_id"] is not None) == (200, True)


@pytest.mark.promise("G8")
@pytest.mark.parametrize(
    "body",
    [
        {**CLASS, "scope": "forever"},
        {**CLASS, "terms": {"rule": {**RULE, "tool": "execute_command"}}},
        {**CLASS, "terms": {"rule": RULE, "max_uses": 0}},
        {**CLASS, "terms": {"rule": RULE, "expires_in_seconds": 10**9}},
        {**CLASS, "terms": {"rule": {**RULE, "paths": ["../**"]}}},
        {**CLASS, "terms": {"rule": {**RULE, "paths": ["**"]}}},
        {**CLASS, "decision": "rejected"},
    ],
)
async def test_a_grant_of_the_wrong_form_is_a_400_and_decides_nothing(server: Server, body: JsonObject) -> None:
    alice = server.user()
    project = await alice.project()
    _, approval_id = await alice.question(project, "src/a.txt")
    answer = await alice.post(f"/my/approvals/{approval_id}/confirm", body)
    assert answer.status == 400
    assert (await alice.get("/my/approvals")).json["total_count"] == 1


@pytest.mark.promise("G8")
async def test_a_preview_says_what_a_rule_would_have_covered_and_saves_nothing(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    _, approval_id = await alice.question(project, "src/a.txt")
    await alice.post(f"/my/projects/{project}/approvals/{approval_id}/reject", {})
    found = (await alice.post(f"/my/projects/{project}/grants/preview", {"rule": RULE})).json
    assert found["sentence"] == "It would have covered 1 of your last 1 call, among them 1 you refused."
    assert (await alice.get("/my/grants?all=true")).json["total_count"] == 0


@pytest.mark.promise("G8")
async def test_a_preview_of_an_odd_rule_is_answered_and_says_why_it_may_not_be_saved(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    await alice.execute(project, "execute_command", {"command": "git", "args": ["status"]})
    path = f"/my/projects/{project}/grants/preview"
    lines: list[list[str]] = [[], ["-"], ["--"], [" "], ["\0"], ["git", "-C"], ["python", "-c"], ["x" * 400]]
    globs: list[list[str]] = [[], ["["], ["*" * 50], ["/"], ["../x"], ["\0"], ["a//b"]]
    for exact in (False, True):
        for files in ({}, {"x.py": "a" * 64}, {"x.py": "missing"}):
            for line in lines:
                rule: JsonObject = {"tool": "execute_command", "command": line, "exact": exact, "files": files}
                answer = await alice.post(path, {"rule": rule})
                assert answer.status in (200, 400), (rule, answer.text)
    for tool in ("write_file", "read_file", "search_web", "nonsense", ""):
        for glob in globs:
            answer = await alice.post(path, {"rule": {"tool": tool, "paths": glob}})
            assert answer.status in (200, 400), (tool, glob, answer.text)
    whole = (await alice.post(path, {"rule": {"tool": "execute_command", "command": []}})).json
    assert whole["problem"]
    assert whole["widest"].startswith("Any command that the gate calls MEDIUM")
    empty = {"tool": "execute_command", "command": [""]}
    for body in ({}, *({"rule": rule} for rule in (None, [], "git", empty))):
        assert (await alice.post(path, body)).status == 400, body


@pytest.mark.promise("X18")
async def test_a_machine_says_what_a_call_would_run_and_the_person_is_shown_it(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.feed(project, "client=laptop&workspace=/ws&isolation=bwrap", Byleave_Looks="write_file") as feed:
        call = asyncio.create_task(alice.execute(project, "execute_command", {"command": "python", "args": ["x.py"]}))
        request = (await feed.until("tool.inspection_request")).data
        seen = {"path": "x.py", "sha256": "a" * 64, "text": "print(1)\n"}
        answer = await alice.post(
            f"/my/projects/{project}/tools/{request['tool_id']}/inspection",
            {"files": [seen]},
            headers={"Byleave-Client": "laptop"},
        )
        assert answer.status == 204
        assert (await call).json["status"] == "awaiting_approval"
        asked = (await feed.until("tool.approval_request")).data
        assert asked["inspection"]["files"][0]["text"] == "print(1)\n"
        wrong = await alice.post(f"/my/projects/{project}/tools/{request['tool_id']}/inspection", {"files": [{}]})
        assert wrong.status == 400


@pytest.mark.promise("X18", "G8")
@pytest.mark.parametrize("scopes", [(Scope.AGENT,), (Scope.AGENT, Scope.CHAT, Scope.APPROVE)])
async def test_an_agents_token_neither_says_what_would_run_nor_which_rules_hold_nor_touches_grants(
    server: Server, scopes: tuple[Scope, ...]
) -> None:
    alice, agent = server.user(), server.user(scopes=scopes)
    project = await alice.project()
    async with alice.feed(project, "client=laptop&workspace=/ws&isolation=bwrap", Byleave_Looks="write_file") as feed:
        call = asyncio.create_task(agent.execute(project, "execute_command", {"command": "python", "args": ["x.py"]}))
        request = (await feed.until("tool.inspection_request")).data
        seen = {"files": [{"path": "x.py", "sha256": "a" * 64, "text": "print('harmless')"}]}
        looks = f"/my/projects/{project}/tools/{request['tool_id']}/inspection"
        assert (await agent.post(looks, seen, headers={"Byleave-Client": "laptop"})).status == 403
        assert (await alice.get("/my/approvals")).json["total_count"] == 0
        rules = {"client_id": "laptop", "layers": []}
        assert (await agent.send("PUT", f"/my/projects/{project}/policy", rules)).status == 403
        assert (await agent.post("/my/grants/grant_1/revoke")).status == 403
        assert (await alice.post(looks, seen, headers={"Byleave-Client": "laptop"})).status == 204
        await call


@pytest.mark.promise("G9")
async def test_what_a_machines_owner_wrote_counts_on_the_server(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    rules = """
        [[rule]]
        action = "allow"
        tool = "write_file"
        paths = ["notes/**"]
        [[rule]]
        action = "deny"
        command = ["git", "push"]
        because = "Pushing is for people."
    """
    layer = {"layer": "user", "source": "policy.toml", "text": rules}
    path = f"/my/projects/{project}/policy"
    async with alice.machine(project):
        assert (await alice.send("PUT", path, {"client_id": "laptop", "layers": [layer]})).status == 204
        allowed = await alice.execute(project, "write_file", {"path": "notes/a.md", "content": "x"})
        assert allowed.json["status"] == "completed"
        ran = (await alice.get(f"/my/tools/{allowed.json['tool_id']}")).json
        assert ran["approved_by"].startswith("rule:user.1")
        denied = await alice.execute(project, "execute_command", {"command": "git", "args": ["push"]})
        assert (denied.json["status"], denied.json["error_type"]) == ("failed", "refused")
        assert "Pushing is for people." in denied.json["error"]
        assert (await alice.send("PUT", path, {"client_id": "laptop", "layers": []})).status == 204
        asks = await alice.execute(project, "write_file", {"path": "notes/b.md", "content": "x"})
        assert asks.json["status"] == "awaiting_approval"


@pytest.mark.promise("G9")
@pytest.mark.parametrize(
    "layer",
    [
        {"layer": "organisation", "source": "x", "text": ""},
        {"layer": "built-in", "source": "x", "text": ""},
        {"layer": "user", "source": "x", "text": "[[rule]]\naction = 'permit'"},
        {"layer": "user", "source": "x", "text": "not toml ="},
    ],
)
async def test_rules_that_cannot_be_read_are_a_400(server: Server, layer: JsonObject) -> None:
    alice = server.user()
    project = await alice.project()
    body = {"client_id": "laptop", "layers": [layer]}
    answer = await alice.send("PUT", f"/my/projects/{project}/policy", body)
    assert answer.status == 400
    assert answer.json["hint"]


@pytest.mark.promise("G11")
async def test_the_whole_of_a_long_call_can_be_seen_while_it_waits(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    content = "a line\n" * 10_000 + "the end"
    answer = await alice.execute(project, "write_file", {"path": "a.txt", "content": content})
    approval_id = answer.json["approval_id"]
    whole = await alice.get(f"/my/approvals/{approval_id}/whole")
    assert whole.json["text"].count("a line") == 10_000
    await alice.post(f"/my/approvals/{approval_id}/confirm", {"decision": "rejected"})
    assert (await alice.get(f"/my/approvals/{approval_id}/whole")).status == 404


@pytest.mark.promise("G11", "S")
async def test_a_question_masks_nothing_that_could_act_and_shows_the_rest_on_request(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    content = "API_KEY=aB3xyz9;touch${IFS}MARK\nTOKEN=aB3xyz99\n"
    answer = await alice.execute(project, "write_file", {"path": ".env", "content": content})
    (asked,) = (await alice.get("/my/approvals")).json["approvals"]
    expected = "API_KEY=aB3xyz9;touch${IFS}MARK\nTOKEN=[masked:token, 8 characters]\n"
    assert asked["tool_params"]["content"] == expected
    path = f"/my/approvals/{answer.json['approval_id']}/whole"
    assert "TOKEN=[masked:token, 8 characters]" in (await alice.get(path)).json["text"]
    assert "TOKEN=aB3xyz99" in (await alice.get(f"{path}?reveal=true")).json["text"]
    assert (await server.user(name="bob").get(f"{path}?reveal=true")).status == 404


@pytest.mark.promise("G10")
async def test_the_organisations_rules_count_for_everybody_and_a_machines_allow_does_not_beat_them(
    start_server: StartServer, tmp_path: Path
) -> None:
    policy = tmp_path / "organisation.toml"
    policy.write_text("""
        [[rule]]
        action = "ask"
        tool = "write_file"
        paths = ["notes/**"]
        because = "Notes are read by customers."
    """)
    server = await start_server(policy=policy)
    alice = server.user()
    project = await alice.project()
    allow = "[[rule]]\naction = 'allow'\ntool = 'write_file'\npaths = ['notes/**', 'docs/**']\n"
    body = {"client_id": "laptop", "layers": [{"layer": "user", "source": "policy.toml", "text": allow}]}
    async with alice.machine(project):
        assert (await alice.send("PUT", f"/my/projects/{project}/policy", body)).status == 204
        asks = await alice.execute(project, "write_file", {"path": "notes/a.md", "content": "x"})
        assert asks.json["status"] == "awaiting_approval"
        [waiting] = (await alice.get("/my/approvals")).json["approvals"]
        assert "Notes are read by customers." in [finding["reason"] for finding in waiting["findings"]]
        assert waiting["suggestions"] == []
        runs = await alice.execute(project, "write_file", {"path": "docs/a.md", "content": "x"})
        assert runs.json["status"] == "completed"


@pytest.mark.promise("G10")
@pytest.mark.parametrize("text", ["[[rule]]\naction = 'allow'\ntool = 'write_file'\n", "nonsense", None])
async def test_an_organisations_file_that_allows_or_cannot_be_read_stops_the_server(
    start_server: StartServer, tmp_path: Path, text: str | None
) -> None:
    policy = tmp_path / "organisation.toml"
    if text is not None:
        policy.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        await start_server(policy=policy)
    assert caught.value.hint
