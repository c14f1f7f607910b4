"""`byleave policy` and `byleave trust`: what holds here, what a file would mean, and whom to believe."""

import json
from pathlib import Path

import pytest

from .conftest import Program

PROJECT = """
commands = ["make"]
[[rule]]
action = "deny"
paths = ["migrations/**"]
because = "Migrations are generated."
instead = "run make migrations"
[[rule]]
action = "allow"
command = ["npm", "test"]
"""


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / ".byleave").mkdir()
    (workspace / ".byleave" / "policy.toml").write_text(PROJECT)
    return workspace


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No rules of whoever runs the tests."""
    device = tmp_path / "device.toml"
    device.write_text("")
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "BYLEAVE_DEVICE_POLICY": str(device)}


def rules(directory: Path, text: str) -> None:
    (directory / ".byleave" / "policy.toml").write_text(text)


@pytest.mark.promise("L8")
def test_rules_are_shown_layer_by_layer(byleave: Program, project: Path, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config" / "byleave").mkdir(parents=True)
    (tmp_path / "config" / "byleave" / "policy.toml").write_text('mode = "sandbox"\n')
    shown = byleave.here("policy", "--workspace", str(project), **env).stdout
    assert "user  " in shown
    assert "  widest mode sandbox" in shown
    assert "project  .byleave/policy.toml" in shown
    assert "  turns on make   held back: run `byleave trust`" in shown
    assert "    1  deny in migrations/**" in shown
    assert "       because Migrations are generated." in shown
    assert "       instead run make migrations" in shown
    assert "    2  allow npm test   held back: run `byleave trust`" in shown


@pytest.mark.promise("L8")
def test_rules_as_json(byleave: Program, project: Path, env: dict[str, str]) -> None:
    found = byleave.json("policy", "--json", "--workspace", str(project), **env)
    assert (found["workspace"], found["widest_mode"]) == (str(project), "full")
    device, layer = found["layers"]
    assert device["layer"] == "device"
    assert layer["held_back"] == ["turns on the command make", "rule 2: allow npm test"]
    assert [(rule["rule"], rule["held_back"]) for rule in layer["rules"]] == [
        ("project.1", False),
        ("project.2", True),
    ]


def test_without_rules_it_says_where_they_go(
    byleave: Program, workspace: Path, env: dict[str, str], tmp_path: Path
) -> None:
    no_device = {"XDG_CONFIG_HOME": env["XDG_CONFIG_HOME"]}
    done = byleave.here("policy", "--workspace", str(workspace), **no_device)
    assert done.returncode == 0
    assert "hint: user rules go to " + str(tmp_path / "config" / "byleave" / "policy.toml") in done.stderr


def test_option_before_a_subcommand_is_wrong_usage(byleave: Program, tmp_path: Path) -> None:
    done = byleave.here("policy", "--json", "check", str(tmp_path / "x"))
    assert done.returncode == 2
    assert "write it after `check`" in done.stderr


@pytest.mark.promise("L8")
def test_file_is_checked_with_its_examples(byleave: Program, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\naction = "ask"\ncommand = ["git", "push"]\nmatch = ["git -C a push"]\n')
    done = byleave.here("policy", "check", str(path))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"{path} is right."
    assert byleave.json("policy", "check", str(path), "--json")["valid"] is True
    path.write_text('[[rule]]\naction = "ask"\ncommand = ["git", "push"]\nmatch = ["git status"]\n')
    done = byleave.here("policy", "check", str(path))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: {path}, rule 1: 'git status' of `match` does not fit the rule.",
        "hint: correct the rule (ask git push) or the example",
    ]


@pytest.mark.parametrize(("layer", "code"), [("organisation", 1), ("user", 0), ("project", 0)])
def test_file_is_checked_as_the_layer_it_is_for(byleave: Program, tmp_path: Path, layer: str, code: int) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(PROJECT)
    assert byleave.here("policy", "check", str(path), "--layer", layer).returncode == code


def test_missing_file_is_said(byleave: Program, tmp_path: Path) -> None:
    done = byleave.here("policy", "check", str(tmp_path / "none.toml"))
    assert done.returncode == 1
    assert "cannot be read: No such file or directory." in done.stderr


@pytest.mark.promise("S", "L8")
def test_trust_shows_what_it_loosens_and_ends_with_a_change(
    byleave: Program, project: Path, env: dict[str, str]
) -> None:
    call = ("check", "execute_command", '{"command": "make"}', "--json", "--workspace", str(project))
    assert json.loads(byleave.here(*call, **env).stdout)["verdict"] == "REFUSE"
    asked = byleave.run("trust", str(project), **env)
    assert asked.returncode == 1
    assert "  turns on the command make\n  rule 2: allow npm test\n" in asked.stderr
    assert "hint: read the lines above, then add --yes" in asked.stderr
    done = byleave.here("trust", str(project), "--yes", **env)
    assert done.returncode == 0
    assert "rule 2: allow npm test" in done.stderr
    assert done.stdout == f".byleave/policy.toml in {project} is trusted until it changes.\n"
    assert json.loads(byleave.here(*call, **env).stdout)["verdict"] in ("MEDIUM", "HIGH")
    assert "is trusted already." in byleave.here("trust", str(project), "--yes", **env).stdout
    rules(project, PROJECT + "# more\n")
    assert json.loads(byleave.here(*call, **env).stdout)["verdict"] == "REFUSE"
    rules(project, PROJECT)
    assert byleave.json("trust", str(project), "--revoke", "--json", **env)["trusted"] is False
    assert json.loads(byleave.here(*call, **env).stdout)["verdict"] == "REFUSE"
    assert "was not trusted." in byleave.here("trust", str(project), "--revoke", **env).stdout


@pytest.mark.promise("S")
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_person_on_a_terminal_is_asked(
    byleave: Program, project: Path, env: dict[str, str], answer: str, code: int
) -> None:
    terminal = byleave.on_terminal("trust", str(project), **env)
    terminal.expect("rule 2: allow npm test")
    terminal.expect("Trust it? [y/N]")
    terminal.type(answer)
    assert terminal.wait() == code
    assert ("is trusted until it changes" in terminal.seen) is (code == 0)
    layers = byleave.json("policy", "--json", "--workspace", str(project), **env)["layers"]
    assert layers[-1]["trusted"] is (code == 0)


def test_nothing_to_trust_is_said(byleave: Program, project: Path, env: dict[str, str], tmp_path: Path) -> None:
    rules(project, '[[rule]]\naction = "deny"\ncommand = ["git"]\n')
    assert "loosens nothing" in byleave.here("trust", str(project), **env).stdout
    done = byleave.here("trust", str(tmp_path), **env)
    assert done.returncode == 1
    assert "There is no .byleave/policy.toml in" in done.stderr


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "read_file", '{"path": "a"}', "--workspace"),
        ("check", "--json", "--workspace"),
        ("policy", "--workspace"),
        ("trust", "--yes"),
    ],
)
def test_broken_rules_stop_every_command_with_a_sentence(
    byleave: Program, project: Path, env: dict[str, str], arguments: tuple[str, ...]
) -> None:
    rules(project, "[[rule]]\nactoin = 'ask'\n")
    done = byleave.run(*arguments, str(project), stdin="", **env)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(
        "error: .byleave/policy.toml, rule 1: 'actoin' is not a key of a rule.\nhint: known: "
    )


@pytest.mark.promise("S", "L7")
def test_tool_obeys_the_rules_of_its_directory(byleave: Program, project: Path, env: dict[str, str]) -> None:
    write = json.dumps({"path": "migrations/1.py", "content": "x"})
    done = byleave.here("tool", "write_file", write, "--workspace", str(project), **env)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "success": False,
        "error": "The project's own rule says: Migrations are generated.",
        "error_type": "refused",
        "hint": "run make migrations",
    }
    own = json.dumps({"path": ".byleave/policy.toml", "content": ""})
    assert byleave.here("tool", "write_file", own, "--workspace", str(project), **env).returncode == 1
    rules(project, "rule = 1")
    broken = byleave.here("tool", "read_file", '{"path": "a.txt"}', "--workspace", str(project), **env)
    assert broken.returncode == 1
    assert "`rule` is not a list of tables" in json.loads(broken.stdout)["error"]


@pytest.mark.promise("L1", "S")
def test_up_says_which_rules_hold(byleave: Program, project: Path, env: dict[str, str]) -> None:
    kept = byleave.start("up", str(project), "--no-chat", **env)
    line = kept.line_with("rules ", of="stderr")
    assert line.strip() == "rules      device 0, project 1 (2 held back: run `byleave trust`)"
    assert kept.stop()[0] == 0


@pytest.mark.promise("L1", "S")
def test_up_does_not_start_under_broken_rules(byleave: Program, project: Path, env: dict[str, str]) -> None:
    rules(project, "rule = 1")
    done = byleave.run("up", str(project), "--no-chat", **env)
    assert done.returncode == 1
    assert "`rule` is not a list of tables" in done.stderr
