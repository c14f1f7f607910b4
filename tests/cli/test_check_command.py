"""`byleave check`: what the gate would say, for one call or for lines of JSON, running nothing."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.json_values import JsonObject

from .conftest import Program

pytestmark = pytest.mark.promise("L6")

READ = {"tool_name": "read_file", "tool_params": {"path": "README.md"}}
REMOVE = {"tool_name": "execute_command", "tool_params": {"command": "rm", "args": ["-rf", "/"]}}


def verdicts(text: str) -> list[JsonObject]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_line_gets_one_answer_in_order(byleave: Program) -> None:
    write = {"tool_name": "write_file", "tool_params": {"path": "a.md", "content": "x"}}
    script = {"tool_name": "write_file", "tool_params": {"path": "a.sh", "content": "x"}}
    done = byleave.run("check", "--json", stdin="\n".join(json.dumps(call) for call in (READ, write, script, REMOVE)))
    assert done.returncode == 0
    assert [answer["verdict"] for answer in verdicts(done.stdout)] == ["LOW", "MEDIUM", "HIGH", "REFUSE"]
    assert "Command not allowed: rm" in verdicts(done.stdout)[3]["reasons"]
    assert all(set(answer) == {"verdict", "reasons"} and answer["reasons"] for answer in verdicts(done.stdout))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b"7",
        b'{"tool_name": "read_file"}',
        b'{"tool_params": {}}',
        b'{"tool_name": 7, "tool_params": {"path": "x"}}',
        b'{"tool_name": "read_file", "tool_params": [1]}',
        b'{"tool_name": "read_file", "tool_params": {"path": 7}}',
        b'{"tool_name": "no_such_tool", "tool_params": {}}',
        b'{"tool_name": "read_file", "tool_params": {"path": "\xff"}}',
        b'{"tool_name": "read_file", "tool_params": {"path": "\\ud800"}}',
        b'{"tool_name": "read_file", "tool_params": {"path": ' + b"9" * 5000 + b"}}",
        b"[" * 100_000,
        b'{"tool_name": "read_file", "tool_params": {"path": "a\\u0000b"}}',
    ],
    ids=lambda line: line[:40].decode("ascii", "replace"),
)
def test_malformed_line_is_refused_with_a_reason(line: bytes) -> None:
    from byleave.cli.check import _answer
    from byleave.gate import Gate
    from byleave.workspace.commands.operands import DryRun

    answer = _answer(Gate(), DryRun("/nowhere"), line, "/nowhere")
    assert answer["verdict"] == "REFUSE"
    assert answer["reasons"]
    assert all(isinstance(reason, str) for reason in answer["reasons"])


def test_stream_goes_on_after_malformed_lines(byleave: Program) -> None:
    good = json.dumps(READ).encode()
    done = byleave.run("check", "--json", stdin=b"\n".join([good, b"\xff\xfe", b"", b"{", good]) + b"\n")
    assert [answer["verdict"] for answer in verdicts(done.stdout)] == ["LOW", "REFUSE", "REFUSE", "REFUSE", "LOW"]
    assert "Traceback" not in done.stderr


def test_answer_comes_before_the_next_question(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "byleave.cli.main", "check", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BYLEAVE_HOME": str(tmp_path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        for _ in range(3):
            process.stdin.write(json.dumps(READ) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["verdict"] == "LOW"
        process.stdin.close()
    assert process.returncode == 0


def test_thousands_of_lines_take_seconds(byleave: Program) -> None:
    began = time.monotonic()
    done = byleave.run("check", "--json", stdin="\n".join([json.dumps(READ), json.dumps(REMOVE)] * 2500))
    assert len(done.stdout.splitlines()) == 5000
    assert time.monotonic() - began < 20


def test_workspace_decides_which_absolute_paths_are_inside(byleave: Program, tmp_path: Path, workspace: Path) -> None:
    call = json.dumps({"tool_name": "read_file", "tool_params": {"path": str(workspace / "a.txt")}})
    assert (
        verdicts(byleave.run("check", "--json", "--workspace", str(workspace), stdin=call).stdout)[0]["verdict"]
        == "LOW"
    )
    elsewhere = byleave.run("check", "--json", "--workspace", str(tmp_path / "other"), stdin=call)
    assert verdicts(elsewhere.stdout)[0]["verdict"] == "REFUSE"


def test_person_is_told_level_reasons_reading_and_network(byleave: Program) -> None:
    done = byleave.here("check", "execute_command", '{"command": "find", "args": [".", "-delete"]}')
    assert done.returncode == 0
    first = done.stdout.splitlines()[0]
    assert first.startswith(("HIGH", "REFUSE"))
    assert "because" in done.stdout
    assert "-delete" in done.stdout
    assert "network  none" in done.stdout
    assert "\x1b[" not in done.stdout


def test_one_call_as_json_is_one_line(byleave: Program) -> None:
    done = byleave.here("check", "read_file", '{"path": "a"}', "--json")
    assert verdicts(done.stdout) == [{"verdict": "LOW", "reasons": ["Reads a file of the workspace."]}]


def test_what_an_agent_wrote_cannot_move_the_cursor(byleave: Program) -> None:
    done = byleave.here("check", "write_file", json.dumps({"path": "a.md", "content": "\x1b[2Jgone\u202e"}))
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


@pytest.mark.parametrize("arguments", [(), ("read_file",), ("read_file", "--json")])
def test_half_a_call_is_wrong_usage(byleave: Program, arguments: tuple[str, ...]) -> None:
    done = byleave.here("check", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "hint: see `byleave check --help`" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "Not JSON: "),
        ("[]", "not an array."),
        ('"a"', "not a string."),
        ("null", "not null."),
        ("1", "not a number."),
    ],
)
def test_parameters_that_are_no_object_are_said_with_an_example(byleave: Program, text: str, told: str) -> None:
    done = byleave.here("check", "read_file", text)
    assert done.returncode == 2
    assert told in done.stderr
    assert """hint: write the parameters between single quotes: '{"path": "README.md"}'""" in done.stderr


def test_allowed_commands_are_this_machines(byleave: Program) -> None:
    call = '{"command": "git", "args": ["status"]}'
    done = byleave.here("check", "execute_command", call, "--json", BYLEAVE_ALLOWED_COMMANDS="ls")
    assert verdicts(done.stdout)[0] == {"verdict": "REFUSE", "reasons": ["Command not allowed: git"]}


@pytest.fixture
def rules(workspace: Path, tmp_path: Path) -> dict[str, str]:
    """Two layers: the user's and the project's."""
    (workspace / ".byleave").mkdir()
    (workspace / ".byleave" / "policy.toml").write_text('[[rule]]\naction = "deny"\npaths = ["secret/**"]\n')
    user = tmp_path / "user.toml"
    user.write_text(
        '[[rule]]\naction = "ask"\ncommand = ["git", "push"]\nbecause = "Pushing is for people."\n'
        '[[rule]]\naction = "allow"\ncommand = ["npm", "test"]\n'
    )
    return {"BYLEAVE_USER_POLICY": str(user)}


def command(*argv: str) -> tuple[str, str]:
    return "execute_command", json.dumps({"command": argv[0], "args": list(argv[1:])})


def test_reading_of_the_arguments_is_told_in_words(byleave: Program) -> None:
    done = byleave.here("check", *command("git", "-C", "a b", "push", "--force", "origin", "main"))
    told = done.stdout.splitlines()
    start = told.index("  line     git -C 'a b' push --force origin main")
    assert told[start : start + 7] == [
        "  line     git -C 'a b' push --force origin main",
        "  read as  git",
        "           option -C with the value 'a b'",
        "  then     git push",
        "           option --force",
        "           operands origin main",
        "  network  yes: allowing it lets it use the network",
    ]
    assert "{" not in done.stdout


def test_deciding_rule_and_its_layer_are_told(byleave: Program, workspace: Path, rules: dict[str, str]) -> None:
    def said(*argv: str) -> str:
        return byleave.here("check", *command(*argv), "--workspace", str(workspace), **rules).stdout

    assert "  decided  rule commands.ls, layer built-in\n" in said("ls")
    assert "  decided  rule project.1, layer project (.byleave/policy.toml)\n" in said("cat", "secret/key")
    pushed = said("git", "push")
    assert f"  decided  rule user.1, layer user ({rules['BYLEAVE_USER_POLICY']})\n" in pushed
    assert "Pushing is for people." in pushed
    assert "  always   asks in full mode too, and no grant covers it\n" in pushed


def test_waived_question_is_told(byleave: Program, workspace: Path, rules: dict[str, str]) -> None:
    done = byleave.here("check", *command("npm", "test"), "--workspace", str(workspace), **rules)
    assert done.stdout.startswith("MEDIUM  execute_command: runs without asking, by a rule of yours\n")
    assert "  decided  rule user.2 (allow npm test) waives the question, layer user (" in done.stdout
    assert "  runs     the content of " in done.stdout


def test_lines_of_the_stream_have_the_same_form_under_rules(
    byleave: Program, workspace: Path, rules: dict[str, str]
) -> None:
    asked = [READ, {"tool_name": "read_file", "tool_params": {"path": "secret/key"}}]
    asked += [{"tool_name": "execute_command", "tool_params": {"command": "npm", "args": ["test"]}}]
    text = "\n".join(json.dumps(call) for call in asked)
    done = byleave.run("check", "--json", "--workspace", str(workspace), stdin=text, **rules)
    answers = verdicts(done.stdout)
    assert [answer["verdict"] for answer in answers] == ["LOW", "REFUSE", "MEDIUM"]
    assert all(set(answer) == {"verdict", "reasons"} for answer in answers)


CASES = Path(__file__).parent.parent / "gate" / "cases" / "commands.jsonl"
RANKS = {"LOW": 0, "NOT_LOW": 1, "MEDIUM": 1, "HIGH": 2, "REFUSE": 3}


@pytest.mark.promise("G1", "G3-depth")
def test_every_labelled_case_holds_its_floor_and_no_benign_one_rises(byleave: Program, workspace: Path) -> None:
    """With what the cases' fixtures put on the disk: pipes, and a link that leads out."""
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    os.mkfifo(workspace / "fifo")
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret\n")
    (workspace / "link_file").symlink_to("../outside/secret.txt")
    calls: list[str] = []
    for case in cases:
        command, *args = case["argv"] or [""]
        placed = [arg.replace("{WS}", str(workspace)) for arg in args]
        call = {"tool_name": "execute_command", "tool_params": {"command": command, "args": placed}}
        calls.append(json.dumps(call))
    done = byleave.run("check", "--json", "--workspace", str(workspace), stdin="\n".join(calls))
    levels = [answer["verdict"] for answer in verdicts(done.stdout)]
    told = list(zip(cases, levels, strict=True))
    assert [
        (case["id"], level) for case, level in told if RANKS[level] < RANKS[case.get("floor", case["expect"])]
    ] == []
    assert [
        (case["id"], level)
        for case, level in told
        if case["id"].startswith("ok-") and RANKS[level] > RANKS[case["expect"]]
    ] == []


@pytest.mark.promise("G1")
def test_what_the_disk_says_against_a_call_is_told(byleave: Program, workspace: Path, tmp_path: Path) -> None:
    (workspace / "away").symlink_to("/etc")
    done = byleave.run("check", "execute_command", '{"command": "ls", "args": ["away"]}', "--workspace", str(workspace))
    assert "REFUSE" in done.stdout
    assert "outside the workspace" in done.stdout
    read = byleave.run("check", "read_file", '{"path": "away/passwd"}', "--workspace", str(workspace))
    assert "REFUSE" in read.stdout
    new = byleave.run("check", "write_file", '{"path": "new.md", "content": ""}', "--workspace", str(workspace))
    assert "MEDIUM" in new.stdout
    nowhere = byleave.run("check", "read_file", '{"path": "a.md"}', "--workspace", str(tmp_path / "none"))
    assert "LOW" in nowhere.stdout
