"""The owner's floor against a lying server: rules of real files, held by a real client, whatever is signalled."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from byleave.cli.check import check_one, check_stream
from byleave.cli.tool import run_tool
from byleave.client.handler import ToolHandler
from byleave.client.journal import Journal
from byleave.policy_files import load_policy, machine_gate
from byleave.protocol.events import ExecutionSignal, InspectionRequested
from byleave.protocol.overview import Layer
from byleave.protocol.states import AgentMode, RiskLevel
from byleave.protocol.wire import now
from byleave.settings import ClientSettings
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject

from .conftest import MakeApproved, MakeHandler, MakeSignal, RecordingLink

pytestmark = pytest.mark.promise("C2", "G9", "S")

USER = """
mode = "sandbox"
[[rule]]
action = "deny"
paths = ["private/**", "*.pem"]
because = "Private."
[[rule]]
action = "deny"
command = ["npm"]
because = "No npm."
[[rule]]
action = "deny"
tool = "search_web"
because = "No web."
"""
PROJECT = '[[rule]]\naction = "deny"\npaths = ["generated/**"]\nbecause = "Generated."\n'

CLAIMS: dict[str, JsonObject] = {
    "low risk": {"approved_by": "risk:LOW", "approval_id": None},
    "a person": {"approved_by": "person:alice", "approval_id": "approval_1"},
    "a grant": {"approved_by": "grant:g1", "approval_id": None},
    "the mode": {"approved_by": "mode:full", "approval_id": None, "mode": AgentMode.FULL},
    "a rule": {"approved_by": "rule:user.1: allow everything", "approval_id": None},
    "nobody known": {"approved_by": "policy:echo", "approval_id": "approval_1", "risk_level": RiskLevel.HIGH},
}
DENIED: list[tuple[str, JsonObject, str]] = [
    ("read_file", {"path": "private/key.txt"}, "Private."),
    ("read_file", {"path": "src/X.PEM"}, "Private."),
    ("read_file", {"path": "door/key.txt"}, "Private."),
    ("write_file", {"path": "private/new.md", "content": "x"}, "Private."),
    ("write_file", {"path": "door/new.md", "content": "x"}, "Private."),
    ("write_file", {"path": "generated/new.md", "content": "x"}, "Generated."),
    ("write_file", {"path": ".byleave/policy.toml", "content": ""}, ""),
    ("list_directory", {"path": "private"}, "Private."),
    ("list_directory", {"path": "door", "recursive": True}, "Private."),
    ("search_files", {"path": "private", "pattern": "mine"}, "Private."),
    ("search_files", {"path": ".", "pattern": "mine", "glob": "*.pem"}, "Private."),
    ("execute_command", {"command": "cat", "args": ["private/key.txt"], "timeout": 5}, "Private."),
    ("execute_command", {"command": "python", "args": ["door/key.txt"], "timeout": 5}, "Private."),
    ("execute_command", {"command": "npm", "args": ["test"], "timeout": 5}, "No npm."),
    ("search_web", {"query": "hello"}, "No web."),
]


@pytest.fixture
def owned(tmp_path: Path, root: Path) -> ClientSettings:
    """A machine with rules of its user and of the project, and a workspace they are about."""
    for name in ("private", "src", "generated", ".byleave"):
        (root / name).mkdir()
    (root / "private" / "key.txt").write_text("mine\n")
    (root / "src" / "x.pem").write_text("mine\n")
    (root / "src" / "a.txt").write_text("mine too\n")
    (root / "door").symlink_to("private")
    (root / ".byleave" / "policy.toml").write_text(PROJECT)
    rules = tmp_path / "rules.toml"
    rules.write_text(USER)
    device = tmp_path / "device.toml"
    device.write_text("")
    return ClientSettings(home=tmp_path / "home", user_policy=rules, device_policy=device)


@pytest.fixture
async def ruled(make_handler: MakeHandler, owned: ClientSettings, root: Path) -> ToolHandler:
    return await make_handler(gate=machine_gate(owned, load_policy(owned, root)))


async def outcome(ruled: ToolHandler, link: RecordingLink, signal: ExecutionSignal) -> JsonObject:
    ruled.handle_tool_execution_signal(signal)
    return await link.report(signal.tool_id)


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("claim", CLAIMS)
async def test_nothing_a_server_claims_opens_what_is_denied(
    ruled: ToolHandler, link: RecordingLink, signal: MakeSignal, root: Path, claim: str
) -> None:
    before = files_of(root)
    for number, (tool, params, because) in enumerate(DENIED):
        report = await outcome(ruled, link, signal(f"exec_{number}", tool, params, network=True, **CLAIMS[claim]))
        assert report["status"] == "failed", (tool, params)
        # With less than a person's yes some fail before a rule is asked: behind a link, the name alone already asks.
        assert claim != "a person" or because in report["error"], report
        assert report["error_type"] == "refused"
        assert "mine" not in json.dumps(report)
    assert files_of(root) == before


@pytest.mark.parametrize("claim", ["the mode"])
@pytest.mark.parametrize(
    ("tool", "params"),
    [
        ("write_file", {"path": "src/b.md", "content": "x"}),
        ("execute_command", {"command": "python", "args": ["-c", "open('made', 'w')"], "timeout": 5}),
        ("execute_command", {"command": "git", "args": ["init"], "timeout": 5}),
    ],
)
async def test_no_server_widens_the_mode(
    ruled: ToolHandler, link: RecordingLink, signal: MakeSignal, root: Path, tool: str, params: JsonObject, claim: str
) -> None:
    before = files_of(root)
    report = await outcome(ruled, link, signal("exec_1", tool, params, **CLAIMS[claim]))
    assert (report["status"], "no mode but sandbox" in report["error"]) == ("failed", True)
    assert files_of(root) == before


@pytest.mark.promise("T4", "T5")
async def test_what_is_denied_is_left_out_of_what_a_person_approved(
    ruled: ToolHandler, link: RecordingLink, approved: MakeApproved
) -> None:
    listed = await outcome(
        ruled, link, approved("exec_1", "list_directory", {"path": ".", "recursive": True, "pattern": "*"})
    )
    paths = [entry["path"] for entry in listed["result"]["files"]]
    assert "src/a.txt" in paths
    assert not any(path.startswith(("private", "generated")) or path.endswith(".pem") for path in paths)
    found = await outcome(ruled, link, approved("exec_2", "search_files", {"path": ".", "pattern": "mine"}))
    assert [match["path"] for match in found["result"]["matches"]] == ["src/a.txt"]


@pytest.mark.promise("T3")
async def test_a_command_a_person_approved_still_cannot_open_it(
    ruled: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    # Nothing in the line says where it leads.
    script = "import base64; print(open(base64.b64decode('cHJpdmF0ZS9rZXkudHh0').decode()).read())"
    params = {"command": "python", "args": ["-c", script], "timeout": 20}
    report = await outcome(ruled, link, approved("exec_1", "execute_command", params))
    assert report["result"]["exit_code"] == 1
    assert "PermissionError" in report["result"]["stderr"]
    assert "mine" not in json.dumps(report)
    script = "import os; os.rename('pri' + 'vate', 'public')"
    params = {"command": "python", "args": ["-c", script], "timeout": 20}
    report = await outcome(ruled, link, approved("exec_2", "execute_command", params))
    assert (report["result"]["exit_code"] != 0, (root / "private" / "key.txt").exists()) == (True, True)


async def test_no_question_of_a_server_shows_a_denied_file(ruled: ToolHandler, link: RecordingLink, root: Path) -> None:
    (root / "private" / "x.py").write_text("print('mine')")
    (root / "x.py").symlink_to("private/x.py")
    for number, name in enumerate(("private/x.py", "door/x.py", "x.py")):
        ruled.handle_tool_inspection_request(
            InspectionRequested(
                timestamp=now(),
                tool_id=f"exec_{number}",
                tool_name="execute_command",
                tool_params={"command": "python", "args": [name], "timeout": 5},
                client_id="client_00000000000000000000000000000001",
                session_id="session_1",
            )
        )
    for number, name in enumerate(("private/key.txt", "door/key.txt", "door/new.txt"), 3):
        ruled.handle_tool_inspection_request(
            InspectionRequested(
                timestamp=now(),
                tool_id=f"exec_{number}",
                tool_name="write_file",
                tool_params={"path": name, "content": ""},
                client_id="client_00000000000000000000000000000001",
                session_id="session_1",
            )
        )
    await link.until(lambda: len(link.inspections) == 6)
    for _, inspection in link.inspections:
        assert inspection.problem
        assert "mine" not in inspection.model_dump_json()


# A workspace that holds Byleave's own files


@pytest.fixture
async def around(tmp_path: Path, link: RecordingLink, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ToolHandler]:
    """A client whose workspace holds its own home and the place of the user's rules."""
    root = tmp_path / "around"
    (root / "home").mkdir(parents=True)
    (root / "home" / "token").write_text("a.b.c")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(root / "config"))
    settings = ClientSettings(home=root / "home", device_policy=None)
    loaded = load_policy(settings, root)
    assert loaded.policy.layers[0].layer is Layer.BUILT_IN
    workspace, journal = Workspace(root, settings), Journal(root / "home" / "journal")
    handler = ToolHandler(
        settings=settings,
        project_id="project_1",
        client_id="client_00000000000000000000000000000001",
        workspace=workspace,
        gate=machine_gate(settings, loaded),
        journal=journal,
        link=link,
    )
    yield handler
    await handler.dispose()
    await workspace.close()
    journal.close()


async def test_a_workspace_around_the_clients_home_keeps_it_from_every_tool(
    around: ToolHandler, link: RecordingLink, approved: MakeApproved, tmp_path: Path
) -> None:
    for number, (tool, params) in enumerate(
        (
            ("read_file", {"path": "home/token"}),
            ("write_file", {"path": "home/trusted.json", "content": "{}"}),
            ("write_file", {"path": "config/byleave/policy.toml", "content": ""}),
            ("list_directory", {"path": "home"}),
            ("search_files", {"path": "home", "pattern": "a"}),
            ("execute_command", {"command": "cat", "args": ["home/token"], "timeout": 5}),
        )
    ):
        report = await outcome(around, link, approved(f"exec_{number}", tool, params))
        assert (report["status"], "Byleave's own files" in report["error"]) == ("failed", True), report
    assert not (tmp_path / "around" / "home" / "trusted.json").exists()
    assert not (tmp_path / "around" / "config" / "byleave" / "policy.toml").exists()


# The owner's own commands


@pytest.fixture
def at_the_machine(owned: ClientSettings, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BYLEAVE_HOME", str(owned.home))
    monkeypatch.setenv("BYLEAVE_USER_POLICY", str(owned.user_policy))
    monkeypatch.setenv("BYLEAVE_DEVICE_POLICY", str(owned.device_policy))
    return root


@pytest.mark.promise("L7")
@pytest.mark.parametrize(
    ("tool", "params", "told"),
    [
        ("read_file", {"path": "private/key.txt"}, "Private."),
        ("read_file", {"path": "door/key.txt"}, "Private."),
        ("list_directory", {"path": "door"}, "Private."),
        ("execute_command", {"command": "npm", "args": ["test"]}, "No npm."),
        ("execute_command", {"command": "python", "args": ["-c", "open('pri' 'vate/key.txt')"]}, "PermissionError"),
    ],
)
def test_byleave_tool_keeps_to_the_floor(
    at_the_machine: Path, capsys: pytest.CaptureFixture[str], tool: str, params: JsonObject, told: str
) -> None:
    ran = told == "PermissionError"  # a command that ran is a success, whatever its exit code
    assert run_tool(tool, json.dumps(params), at_the_machine) == (0 if ran else 1)
    said = capsys.readouterr().out
    assert told in said
    assert "mine" not in said


@pytest.mark.promise("L7")
def test_byleave_tool_leaves_out_what_is_denied(at_the_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tool("search_files", json.dumps({"pattern": "mine"}), at_the_machine) == 0
    assert [match["path"] for match in json.loads(capsys.readouterr().out)["matches"]] == ["src/a.txt"]


@pytest.mark.promise("L6")
@pytest.mark.parametrize("path", ["private/key.txt", "door/key.txt", "src/x.pem"])
def test_byleave_check_explains_the_floor(at_the_machine: Path, capsys: pytest.CaptureFixture[str], path: str) -> None:
    check_one("read_file", json.dumps({"path": path}), at_the_machine, as_json=False)
    said = capsys.readouterr().out
    assert "Private." in said
    assert "user" in said
    line = json.dumps({"tool_name": "read_file", "tool_params": {"path": path}}).encode()
    check_stream(at_the_machine, iter([line]))  # pyright: ignore[reportArgumentType] - lines are all it reads
    assert json.loads(capsys.readouterr().out)["verdict"] == "REFUSE"


@pytest.mark.promise("L6")
def test_byleave_check_lets_a_harmless_link_pass(at_the_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink("src/a.txt", at_the_machine / "way")
    check_one("read_file", json.dumps({"path": "way"}), at_the_machine, as_json=True)
    assert json.loads(capsys.readouterr().out)["verdict"] == "LOW"
