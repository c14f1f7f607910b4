"""The owner's rules on the owner's machine: held against every signal, whatever a server says, and behind links too."""

from pathlib import Path

import pytest

from byleave.client.handler import ToolHandler
from byleave.gate import Gate, GateRules, Policy, parse_policy
from byleave.protocol.events import ExecutionSignal
from byleave.protocol.overview import Layer
from byleave.protocol.states import AgentMode
from harness.json_values import JsonObject

from .conftest import MakeApproved, MakeHandler, RecordingLink

pytestmark = pytest.mark.promise("G9", "C2")

RULES = """
mode = "sandbox"
[[rule]]
action = "deny"
paths = ["private/**"]
because = "Private."
[[rule]]
action = "ask"
tool = "write_file"
paths = ["slow/**"]
[[rule]]
action = "allow"
tool = "write_file"
paths = ["notes/**"]
[[rule]]
action = "allow"
command = ["git", "status"]
"""
BY_RULE = {"approved_by": "rule:user.3: x", "approval_id": None}
BY_GRANT = {"approved_by": "grant:g1", "approval_id": None}
BY_MODE = {"approved_by": "mode:full", "approval_id": None, "mode": AgentMode.FULL}


@pytest.fixture
async def ruled(make_handler: MakeHandler, root: Path) -> ToolHandler:
    for name in ("private", "slow", "notes"):
        (root / name).mkdir()
    (root / "private" / "key.txt").write_text("mine\n")
    policy = Policy((parse_policy(RULES, Layer.USER, source="policy.toml"),))
    return await make_handler(gate=Gate(GateRules(policy=policy)))


async def outcome(ruled: ToolHandler, link: RecordingLink, signal: ExecutionSignal) -> tuple[str, str]:
    ruled.handle_tool_execution_signal(signal)
    report = await link.report(signal.tool_id)
    return report["status"], report.get("error") or ""


def write(path: str) -> dict[str, str]:
    return {"path": path, "content": "x"}


async def test_what_the_owner_allows_runs_by_that_rule(
    ruled: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    assert await outcome(ruled, link, approved("exec_1", "write_file", write("notes/a.md"), **BY_RULE)) == (
        "completed",
        "",
    )
    assert (root / "notes" / "a.md").read_text() == "x"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("other/a.md", BY_RULE),
        ("slow/a.md", BY_RULE),
        ("slow/a.md", BY_GRANT),
        ("private/a.md", BY_RULE),
        ("private/a.md", {}),
        ("b.md", BY_MODE),
    ],
)
async def test_a_server_cannot_claim_more_than_the_owners_rules_give(
    ruled: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, path: str, told: JsonObject
) -> None:
    status, error = await outcome(ruled, link, approved("exec_1", "write_file", write(path), **told))
    assert status == "failed"
    assert error
    assert not (root / path).exists()


@pytest.mark.parametrize(
    ("tool", "params"),
    [
        ("read_file", {"path": "door/key.txt"}),
        ("read_file", {"path": "key"}),
        ("write_file", write("door/new.txt")),
        ("list_directory", {"path": "door"}),
        ("search_files", {"path": "door", "pattern": "mine"}),
        ("execute_command", {"command": "cat", "args": ["key"], "timeout": 5}),
        ("execute_command", {"command": "grep", "args": ["-f", "a.txt", "door/key.txt"], "timeout": 5}),
    ],
)
async def test_a_link_meets_the_rules_of_what_it_leads_to(
    ruled: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, tool: str, params: JsonObject
) -> None:
    (root / "door").symlink_to("private")
    (root / "key").symlink_to("private/key.txt")
    status, error = await outcome(ruled, link, approved("exec_1", tool, params))
    assert (status, "Private." in error) == ("failed", True)
    assert not (root / "private" / "new.txt").exists()


async def test_an_allow_does_not_follow_a_link_out_of_what_it_names(
    ruled: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    (root / "src").mkdir()
    (root / "notes" / "src").symlink_to("../src")
    status, error = await outcome(ruled, link, approved("exec_1", "write_file", write("notes/src/a.md"), **BY_RULE))
    assert (status, "needed approval" in error) == ("failed", True)
    assert not (root / "src" / "a.md").exists()


async def test_a_persons_yes_beats_an_ask_but_not_a_deny(
    ruled: ToolHandler, link: RecordingLink, approved: MakeApproved
) -> None:
    assert (await outcome(ruled, link, approved("exec_1", "write_file", write("slow/a.md"))))[0] == "completed"
    assert (await outcome(ruled, link, approved("exec_2", "read_file", {"path": "private/key.txt"})))[0] == "failed"
