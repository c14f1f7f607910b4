"""`byleave tool`: one tool here and now, with the client's gate, bounds and sandbox."""

import json
import signal
from pathlib import Path

import pytest

from harness.json_values import JsonObject

from .conftest import Program

pytestmark = pytest.mark.promise("L7")


def run(byleave: Program, name: str, params: object, workspace: Path) -> tuple[int, JsonObject]:
    text = params if isinstance(params, str) else json.dumps(params)
    done = byleave.here("tool", name, text, "--workspace", str(workspace))
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def test_file_is_read(byleave: Program, workspace: Path) -> None:
    code, result = run(byleave, "read_file", {"path": "package.json"}, workspace)
    assert (code, result["success"]) == (0, True)
    assert json.loads(result["content"])["version"] == "1.2.3"


def test_name_of_a_script_agent_works_too(byleave: Program, workspace: Path) -> None:
    code, result = run(byleave, "listDir", {"path": "."}, workspace)
    assert (code, [entry["name"] for entry in result["files"]]) == (0, ["package.json"])


def test_file_is_written_without_asking(byleave: Program, workspace: Path) -> None:
    code, result = run(byleave, "write_file", {"path": "notes.md", "content": "hello"}, workspace)
    assert (code, result["size"]) == (0, 5)
    assert (workspace / "notes.md").read_text(encoding="utf-8") == "hello"


def test_command_runs_in_the_sandbox(byleave: Program, workspace: Path) -> None:
    code, result = run(byleave, "execute_command", {"command": "ls", "args": ["/home", "."]}, workspace)
    assert result["error_type" if code else "isolation"]
    code, result = run(byleave, "execute_command", {"command": "ls"}, workspace)
    assert (code, result["stdout"], result["isolation"]["backend"]) == (0, "package.json\n", "bwrap")


def test_command_that_ran_is_a_success_whatever_its_exit_code(byleave: Program, workspace: Path) -> None:
    params = {"command": "grep", "args": ["absent", "package.json"]}
    code, result = run(byleave, "execute_command", params, workspace)
    assert (code, result["success"], result["exit_code"]) == (0, True, 1)


@pytest.mark.parametrize(
    ("name", "params", "kind", "words"),
    [
        ("execute_command", {"command": "rm", "args": ["-rf", "/"]}, "refused", "Command not allowed: rm"),
        ("read_file", {"path": "../secret"}, "refused", "workspace"),
        ("read_file", {"path": "absent.txt"}, "tool_error", "absent.txt"),
        ("read_file", {"path": "package.json", "approved": True}, "invalid", "approved"),
        ("no_such_tool", {}, "invalid", "no_such_tool"),
        ("read_file", "{", "invalid", "JSON"),
        ("read_file", "[]", "invalid", "object"),
    ],
)
def test_refused_or_failed_exits_with_1_and_says_why(
    byleave: Program, workspace: Path, name: str, params: object, kind: str, words: str
) -> None:
    code, result = run(byleave, name, params, workspace)
    assert (code, result["success"]) == (1, False)
    assert words in result["error"]
    assert result["error_type"] == kind


def test_missing_workspace_is_said(byleave: Program, tmp_path: Path) -> None:
    code, result = run(byleave, "read_file", {"path": "a"}, tmp_path / "absent")
    assert (code, result["success"]) == (1, False)
    assert "does not exist" in result["error"]


def test_output_of_a_command_that_ran_out_of_time_is_kept(byleave: Program, workspace: Path) -> None:
    (workspace / "slow.py").write_text("import time\nprint('so far', flush=True)\ntime.sleep(600)\n", encoding="utf-8")
    code, result = run(byleave, "execute_command", {"command": "python", "args": ["slow.py"], "timeout": 1}, workspace)
    assert (code, result["error_type"]) == (1, "execution_timeout")
    assert result["result"]["stdout"] == "so far\n"


def test_ctrl_c_ends_the_command_quietly(byleave: Program, workspace: Path) -> None:
    (workspace / "slow.py").write_text("import time\nopen('began', 'w')\ntime.sleep(600)\n", encoding="utf-8")
    kept = byleave.start(
        "tool", "execute_command", '{"command": "python", "args": ["slow.py"]}', "--workspace", str(workspace)
    )
    while not (workspace / "began").exists():
        assert kept.process.poll() is None
    code, out, err = kept.stop(signal.SIGINT)
    assert (code, out, "Traceback" in err) == (130, "", False)
