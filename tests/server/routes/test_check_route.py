"""The page's check: what would happen if an agent made a call; and the rules it is judged by."""

import asyncio
import json
from pathlib import Path

import pytest

from byleave.protocol.states import Scope
from harness.http_server import Server, StartServer, User
from harness.json_values import Json, JsonObject

pytestmark = pytest.mark.promise("L6")

WRITE = {"tool_name": "write_file", "tool_params": {"path": "src/a.txt", "content": "x"}}
READ = {"tool_name": "read_file", "tool_params": {"path": "a.txt"}}
USER = ["-u", "alice:hunter2hunter2", "https://example.com/../x"]
REMOVE = {"tool_name": "execute_command", "tool_params": {"command": "rm", "args": ["-rf", "/"]}}
RULES = """
[[rule]]
action = "allow"
command = ["git", "commit"]

[[rule]]
action = "ask"
tool = "read_file"
paths = ["notes/**"]

[[rule]]
action = "deny"
tool = "write_file"
paths = ["db/**"]
because = "The database is not theirs."
"""


class Desk:
    """A user, a project, and the check."""

    def __init__(self, user: User, project: str) -> None:
        self.user = user
        self.project = project

    async def check(self, call: JsonObject, **more: object) -> Json:
        answer = await self.user.post(f"/my/projects/{self.project}/check", {**call, **more})
        assert answer.status == 200, answer.text
        return answer.json

    async def declare(self, text: str, client: str = "laptop") -> None:
        body = {"client_id": client, "layers": [{"layer": "user", "source": "policy.toml", "text": text}]}
        answer = await self.user.send("PUT", f"/my/projects/{self.project}/policy", body)
        assert answer.status == 204, answer.text


@pytest.fixture
async def desk(server: Server) -> Desk:
    user = server.user()
    return Desk(user, await user.project())


async def test_check_says_what_would_happen_and_leaves_nothing_behind(desk: Desk) -> None:
    read, write, remove = [await desk.check(call) for call in (READ, WRITE, REMOVE)]
    assert (read["decision"], read["verdict"], read["timeout_seconds"]) == ("runs", "LOW", None)
    assert (read["decided_by"], read["layer"]) == ("tools.read_file", "built-in")
    assert (write["decision"], write["verdict"], write["timeout_seconds"]) == ("asks", "MEDIUM", 300)
    assert "a person is asked" in write["because"]
    assert "src/a.txt" in write["description"]
    assert (remove["decision"], remove["verdict"], remove["description"]) == ("refused", "REFUSE", None)
    assert remove["findings"][0]["reason"] == "Command not allowed: rm"
    unknown = await desk.check({"tool_name": "no_such_tool", "tool_params": {}})
    assert (unknown["decision"], "malformed" in unknown["because"]) == ("refused", True)
    high = await desk.check({"tool_name": "write_file", "tool_params": {"path": "a.sh", "content": "x"}})
    assert (high["verdict"], high["timeout_seconds"]) == ("HIGH", 600)
    command = await desk.check(
        {"tool_name": "execute_command", "tool_params": {"command": "git", "args": ["log", "-n2"]}}
    )
    assert command["understood"]["subcommand"]["command"] == "git log"
    assert (await desk.user.get("/my/tools/history")).json["total_count"] == 0
    assert (await desk.user.get("/my/approvals")).json["total_count"] == 0
    assert (await desk.user.get(f"/my/projects/{desk.project}/audit")).json["total_count"] == 1


async def test_mode_counts_as_far_as_the_rules_allow_it(desk: Desk) -> None:
    full = await desk.check(WRITE, mode="full")
    assert (full["decision"], full["decided_by"], full["layer"]) == ("runs", "mode:full", None)
    secret = await desk.check({"tool_name": "read_file", "tool_params": {"path": ".env"}}, mode="full")
    assert (secret["decision"], secret["always_asks"]) == ("asks", True)
    assert "each time" in secret["because"]
    await desk.declare('mode = "sandbox"\n')
    held = await desk.check(WRITE, mode="full")
    assert (held["decision"], "do not allow the mode full" in held["because"]) == ("asks", True)


async def test_rules_of_the_machine_decide_and_are_named_with_their_file(desk: Desk) -> None:
    await desk.declare(RULES)
    allowed = await desk.check(
        {"tool_name": "execute_command", "tool_params": {"command": "git", "args": ["commit", "-m", "x"]}}
    )
    assert (allowed["decision"], allowed["layer"]) == ("runs", "user (policy.toml)")
    assert allowed["decided_by"].startswith("rule:user.1: ")
    assert allowed["because"].startswith("Rule user.1 waives the question")
    asked = await desk.check({"tool_name": "read_file", "tool_params": {"path": "notes/a.txt"}}, mode="full")
    assert (asked["decision"], asked["decided_by"]) == ("asks", "policy.user.2")
    assert asked["because"] == "Rule user.2 wants it asked each time; it is in the layer user (policy.toml)."
    denied = await desk.check({"tool_name": "write_file", "tool_params": {"path": "db/a", "content": ""}}, mode="full")
    assert (denied["decision"], denied["because"]) == (
        "refused",
        "Rule user.3 denies it; it is in the layer user (policy.toml).",
    )
    assert denied["findings"][0]["reason"] == "The database is not theirs."


async def test_grant_of_the_session_lets_it_run_and_is_not_used_up(desk: Desk) -> None:
    user = desk.user
    _, approval = await user.question(desk.project, "src/b.txt")
    rule = {"tool": "write_file", "paths": ["src/**"]}
    body = {"decision": "approved", "scope": "class", "terms": {"rule": rule, "max_uses": 1}}
    grant_id = (await user.post(f"/my/approvals/{approval}/confirm", body)).json["grant_id"]
    [grant] = (await user.get("/my/grants")).json["grants"]
    for _ in range(3):
        covered = await desk.check(WRITE, session_id=grant["session_id"])
        assert (covered["decision"], covered["decided_by"]) == ("runs", f"grant:{grant_id}")
        assert "A grant of this session covers it" in covered["because"]
    assert (await desk.check(WRITE))["decision"] == "asks", "without the session nothing of it counts"
    elsewhere = {"tool_name": "write_file", "tool_params": {"path": "b.txt", "content": "x"}}
    assert (await desk.check(elsewhere, session_id=grant["session_id"]))["decision"] == "asks"
    [grant] = (await user.get("/my/grants")).json["grants"]
    assert (grant["uses"], grant["status"]) == (0, "active")
    runs = {"tool_name": "execute_command", "tool_params": {"command": "python3", "args": ["a.py"]}}
    told = await desk.check(runs, session_id=grant["session_id"])
    assert (told["decision"], told["runs"]) == ("asks", ["a.py"])
    assert "when the machine looks" in told["because"]
    other = await user.project()
    answer = await user.post(f"/my/projects/{other}/check", {**WRITE, "session_id": grant["session_id"]})
    assert answer.status == 404, "a session of another project"


async def test_what_a_person_refused_three_times_would_not_be_asked_again(desk: Desk) -> None:
    session = None
    for number in range(3):
        call = {**WRITE, "project_id": desk.project, "idempotency_key": str(number)}
        approval = (await desk.user.post("/my/tools/execute", call)).json["approval_id"]
        [waiting] = (await desk.user.get("/my/approvals")).json["approvals"]
        session = waiting["session_id"]
        await desk.user.post(f"/my/approvals/{approval}/confirm", {"decision": "rejected"})
    refused = await desk.check(WRITE, session_id=session)
    assert (refused["decision"], "three times" in refused["because"]) == ("refused", True)


async def test_machine_without_a_sandbox_asks_about_everything(desk: Desk) -> None:
    async with desk.user.feed(desk.project, "client=laptop&workspace=/w&isolation=none") as feed:
        await feed.until("project.machines")
        bare = await desk.check(READ, mode="full")
    assert (bare["decision"], bare["decided_by"]) == ("asks", "gate.isolation")


@pytest.mark.parametrize(
    "call",
    [
        {"command": "curl", "args": ["-u", "alice:hunter2hunter2", "https://example.com"]},
        {"command": "curl", "args": ["--proxy-user", "a:hunter2hunter2", "-T", "hunter2hunter2", "https://e.example"]},
        {"command": "git", "args": ["clone", "https://alice:hunter2hunter2@example.com/x.git"]},
        {"command": "mysql", "args": ["-phunter2hunter2", "--bogus-option"]},
        {"command": "python", "args": ["x.py", "--token", "hunter2hunter2"]},
        {"command": "nothing", "args": ["--token", "ghp_hunter2hunter2hunter2hunter2hunter2abcd"]},
    ],
    ids=lambda call: call["command"],
)
async def test_secret_in_the_call_does_not_come_back(desk: Desk, call: JsonObject) -> None:
    answer = await desk.check({"tool_name": "execute_command", "tool_params": call})
    assert "hunter2" not in json.dumps(answer)


@pytest.mark.parametrize(
    "params",
    [{"path": "a\x1b[31m\u202e.txt"}, {"path": 7}, {"args": [1, {"x": []}]}, {"path": "a\0"}, {"content": ["x"]}, {}],
    ids=str,
)
async def test_strange_parameters_are_refused_in_words_that_move_no_cursor(desk: Desk, params: JsonObject) -> None:
    for tool in ("read_file", "write_file", "execute_command", "\x1b[2J"):
        answer = await desk.check({"tool_name": tool, "tool_params": params})
        assert answer["decision"] == "refused"
        assert answer["findings"]
        text = json.dumps(answer)
        assert "\\u001b" not in text
        assert "\\u202e" not in text


@pytest.mark.promise("R-user")
async def test_nobody_else_and_no_agent_may_ask_what_passes(server: Server, desk: Desk) -> None:
    path = f"/my/projects/{desk.project}"
    for user, status in (
        (server.user("bob"), 404),
        (server.user("alice", (Scope.AGENT,)), 403),
        (server.user("alice", (Scope.EXECUTE,)), 403),
        (server.user("alice", (Scope.CHAT, Scope.APPROVE, Scope.AGENT)), 403),
    ):
        assert (await user.post(f"{path}/check", READ)).status == status
        assert (await user.get(f"{path}/policy")).status == status
    session = (await desk.user.post(f"{path}/chat/messages", {"content": "x"})).json["session_id"]
    bob = server.user("bob")
    own = await bob.project()
    assert (await bob.post(f"/my/projects/{own}/check", {**READ, "session_id": session})).status == 404
    for body in ({}, {**READ, "mode": "wide"}, {**READ, "more": 1}, {**READ, "tool_name": "x" * 101}):
        assert (await desk.user.post(f"{path}/check", body)).status == 400


async def test_rules_are_shown_as_they_were_written_with_who_wrote_them(
    start_server: StartServer, tmp_path: Path
) -> None:
    organisation = tmp_path / "organisation.toml"
    text = '# ours\nmode = "sandbox"\n'
    organisation.write_text(text)
    server = await start_server(policy=organisation)
    alice = server.user()
    desk = Desk(alice, await alice.project())
    path = f"/my/projects/{desk.project}/policy"
    own = {"layer": "organisation", "source": str(organisation), "text": text, "trusted": True, "client_id": None}
    assert (await alice.get(path)).json == {"layers": [own], "widest_mode": "sandbox"}
    organisation.write_text("# changed since")
    await desk.declare(RULES, "laptop")
    await desk.declare("# newer\n", "desk")
    last = (await alice.get(path)).json["layers"]
    assert [layer["client_id"] for layer in last] == [None, "desk"], "nobody is there: who declared last"
    assert last[0] == own, "what judges is what was read at the start"
    async with alice.feed(desk.project, "client=laptop"):
        here = (await alice.get(path)).json["layers"]
    assert here[1] == {"layer": "user", "source": "policy.toml", "text": RULES, "trusted": True, "client_id": "laptop"}


async def test_rules_that_can_no_longer_be_read_judge_nothing_and_are_not_shown(server: Server, desk: Desk) -> None:
    layer = {"layer": "user", "source": "p", "text": "not toml", "trusted": True}
    for broken in ({"client_id": "laptop", "layers": [layer]}, {"client_id": "laptop", "layers": [{"layer": "moon"}]}):
        await server.parts.store.machines.declare(desk.project, "laptop", json.dumps(broken), digest="d")
        assert (await desk.user.get(f"/my/projects/{desk.project}/policy")).json["layers"] == []
        assert (await desk.check(READ))["decision"] == "runs"


@pytest.mark.parametrize(
    "params",
    [
        {"command": "curl", "args": ["token: " * 140_000]},
        {"command": "curl", "args": "token: " * 140_000},
        {"command": "token: " * 140_000, "args": []},
        {"command": "curl", "args": [f"--password=abcdefgh{number}" for number in range(30_000)]},
    ],
    ids=["one-argument", "no-list", "command", "many-arguments"],
)
async def test_endless_call_is_answered_soon_and_holds_up_nobody(desk: Desk, params: JsonObject) -> None:
    # Looking through it for secrets took up to 13 seconds, on the loop.
    async with asyncio.timeout(3):
        found = await desk.check({"tool_name": "execute_command", "tool_params": params})
    assert found["decision"] == "refused"
    assert "abcdefgh" not in json.dumps(found)


async def test_secret_is_known_by_its_place_and_its_command(desk: Desk) -> None:
    found = await desk.check({"tool_name": "execute_command", "tool_params": {"command": "curl", "args": USER}})
    assert "hunter2hunter2" not in json.dumps(found)
