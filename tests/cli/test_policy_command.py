"""`assent policy` and `assent trust`: what holds here, what a file would mean, and whom to believe."""

import json
from pathlib import Path
from typing import Any

import pytest

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
    (workspace / ".assent").mkdir()
    (workspace / ".assent" / "policy.toml").write_text(PROJECT)
    return workspace


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No rules of whoever runs the tests."""
    device = tmp_path / "device.toml"
    device.write_text("")
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "ASSENT_DEVICE_POLICY": str(device)}


def rules(directory: Path, text: str) -> None:
    (directory / ".assent" / "policy.toml").write_text(text)


@pytest.mark.promise("L8")
def test_rules_are_shown_layer_by_layer(assent: Any, project: Path, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config" / "assent").mkdir(parents=True)
    (tmp_path / "config" / "assent" / "policy.toml").write_text('mode = "sandbox"\n')
    shown = assent.here("policy", "--workspace", str(project), **env).stdout
    assert "user  " in shown
    assert "  widest mode sandbox" in shown
    assert "project  .assent/policy.toml" in shown
    assert "  turns on make   held back: run `assent trust`" in shown
    assert "    1  deny in migrations/**" in shown
    assert "       because Migrations are generated." in shown
    assert "       instead run make migrations" in shown
    assert "    2  allow npm test   held back: run `assent trust`" in shown


@pytest.mark.promise("L8")
def test_rules_as_json(assent: Any, project: Path, env: dict[str, str]) -> None:
    found = assent.json("policy", "--json", "--workspace", str(project), **env)
    assert (found["workspace"], found["widest_mode"]) == (str(project), "full")
    device, layer = found["layers"]
    assert device["layer"] == "device"
    assert layer["held_back"] == ["turns on the command make", "rule 2: allow npm test"]
    assert [(rule["rule"], rule["held_back"]) for rule in layer["rules"]] == [
        ("project.1", False),
        ("project.2", True),
    ]


def test_without_rules_it_says_where_they_go(assent: Any, workspace: Path, env: dict[str, str], tmp_path: Path) -> None:
    no_device = {"XDG_CONFIG_HOME": env["XDG_CONFIG_HOME"]}
    done = assent.here("policy", "--workspace", str(workspace), **no_device)
    assert done.returncode == 0
    assert "hint: user rules go to " + str(tmp_path / "config" / "assent" / "policy.toml") in done.stderr


def test_option_before_a_subcommand_is_wrong_usage(assent: Any, tmp_path: Path) -> None:
    done = assent.here("policy", "--json", "check", str(tmp_path / "x"))
    assert done.returncode == 2
    assert "write it after `check`" in done.stderr


@pytest.mark.promise("L8")
def test_file_is_checked_with_its_examples(assent: Any, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\naction = "ask"\ncommand = ["git", "push"]\nmatch = ["git -C a push"]\n')
    done = assent.here("policy", "check", str(path))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"{path} is right."
    assert assent.json("policy", "check", str(path), "--json")["valid"] is True
    path.write_text('[[rule]]\naction = "ask"\ncommand = ["git", "push"]\nmatch = ["git status"]\n')
    done = assent.here("policy", "check", str(path))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: {path}, rule 1: 'git status' of `match` does not fit the rule.",
        "hint: correct the rule (ask git push) or the example",
    ]


@pytest.mark.parametrize(("layer", "code"), [("organisation", 1), ("user", 0), ("project", 0)])
def test_file_is_checked_as_the_layer_it_is_for(assent: Any, tmp_path: Path, layer: str, code: int) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(PROJECT)
    assert assent.here("policy", "check", str(path), "--layer", layer).returncode == code


def test_missing_file_is_said(assent: Any, tmp_path: Path) -> None:
    done = assent.here("policy", "check", str(tmp_path / "none.toml"))
    assert done.returncode == 1
    assert "cannot be read: No such file or directory." in done.stderr


@pytest.mark.promise("S", "L8")
def test_trust_shows_what_it_loosens_and_ends_with_a_change(assent: Any, project: Path, env: dict[str, str]) -> None:
    call = ("check", "execute_command", '{"command": "make"}', "--json", "--workspace", str(project))
    assert json.loads(assent.here(*call, **env).stdout)["verdict"] == "REFUSE"
    asked = assent.run("trust", str(project), **env)
    assert asked.returncode == 1
    assert "  turns on the command make\n  rule 2: allow npm test\n" in asked.stderr
    assert "hint: read the lines above, then add --yes" in asked.stderr
    done = assent.here("trust", str(project), "--yes", **env)
    assert done.returncode == 0
    assert "rule 2: allow npm test" in done.stderr
    assert done.stdout == f".assent/policy.toml in {project} is trusted until it changes.\n"
    assert json.loads(assent.here(*call, **env).stdout)["verdict"] in ("MEDIUM", "HIGH")
    assert "is trusted already." in assent.here("trust", str(project), "--yes", **env).stdout
    rules(project, PROJECT + "# more\n")
    assert json.loads(assent.here(*call, **env).stdout)["verdict"] == "REFUSE"
    rules(project, PROJECT)
    assert assent.json("trust", str(project), "--revoke", "--json", **env)["trusted"] is False
    assert json.loads(assent.here(*call, **env).stdout)["verdict"] == "REFUSE"
    assert "was not trusted." in assent.here("trust", str(project), "--revoke", **env).stdout


@pytest.mark.promise("S")
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_person_on_a_terminal_is_asked(assent: Any, project: Path, env: dict[str, str], answer: str, code: int) -> None:
    terminal = assent.on_terminal("trust", str(project), **env)
    terminal.expect("rule 2: allow npm test")
    terminal.expect("Trust it? [y/N]")
    terminal.type(answer)
    assert terminal.wait() == code
    assert ("is trusted until it changes" in terminal.seen) is (code == 0)
    layers = assent.json("policy", "--json", "--workspace", str(project), **env)["layers"]
    assert layers[-1]["trusted"] is (code == 0)


def test_nothing_to_trust_is_said(assent: Any, project: Path, env: dict[str, str], tmp_path: Path) -> None:
    rules(project, '[[rule]]\naction = "deny"\ncommand = ["git"]\n')
    assert "loosens nothing" in assent.here("trust", str(project), **env).stdout
    done = assent.here("trust", str(tmp_path), **env)
    assert done.returncode == 1
    assert "There is no .assent/policy.toml in" in done.stderr


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
    assent: Any, project: Path, env: dict[str, str], arguments: tuple[str, ...]
) -> None:
    rules(project, "[[rule]]\nactoin = 'ask'\n")
    done = assent.run(*arguments, str(project), stdin="", **env)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: .assent/policy.toml, rule 1: 'actoin' is not a key of a rule.\nhint: known: ")


@pytest.mark.promise("S", "L7")
def test_tool_obeys_the_rules_of_its_directory(assent: Any, project: Path, env: dict[str, str]) -> None:
    write = json.dumps({"path": "migrations/1.py", "content": "x"})
    done = assent.here("tool", "write_file", write, "--workspace", str(project), **env)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "success": False,
        "error": "The project's own rule says: Migrations are generated.",
        "error_type": "refused",
        "hint": "run make migrations",
    }
    own = json.dumps({"path": ".assent/policy.toml", "content": ""})
    assert assent.here("tool", "write_file", own, "--workspace", str(project), **env).returncode == 1
    rules(project, "rule = 1")
    broken = assent.here("tool", "read_file", '{"path": "a.txt"}', "--workspace", str(project), **env)
    assert broken.returncode == 1
    assert "`rule` is not a list of tables" in json.loads(broken.stdout)["error"]


@pytest.mark.promise("L1", "S")
def test_up_says_which_rules_hold(assent: Any, project: Path, env: dict[str, str]) -> None:
    kept = assent.start("up", str(project), "--no-chat", **env)
    line = kept.line_with("rules ", of="stderr")
    assert line.strip() == "rules      device 0, project 1 (2 held back: run `assent trust`)"
    assert kept.stop()[0] == 0


@pytest.mark.promise("L1", "S")
def test_up_does_not_start_under_broken_rules(assent: Any, project: Path, env: dict[str, str]) -> None:
    rules(project, "rule = 1")
    done = assent.run("up", str(project), "--no-chat", **env)
    assert done.returncode == 1
    assert "`rule` is not a list of tables" in done.stderr
