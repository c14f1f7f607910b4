"""The command line as a whole: help, version, and errors as sentences with a hint."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import byleave.cli
from byleave.cli.token import user_name
from byleave.installation import install_command
from byleave.server.auth.secret import seal_keys
from byleave.settings import ServerSettings
from byleave.store import Store

from .conftest import Program

COMMANDS = ["demo", "up", "serve", "token", "connect", "chat", "check", "tool", "history", "approvals", "version"]
NESTED = [["approvals", "approve"], ["approvals", "reject"], ["audit", "verify"], ["db", "prune"]]
HEAVY = ("fastapi", "sqlalchemy", "uvicorn", "pydantic_ai", "aiohttp", "jwt")

CLI = Path(byleave.cli.__path__[0])


@pytest.mark.promise("L8")
def test_version_is_printed(byleave: Program) -> None:
    from importlib.metadata import version

    for way in ("version", "--version"):
        assert byleave.run(way).stdout == f"byleave {version('byleave')}\n"
    assert byleave.json("version", "--json") == {"version": version("byleave"), "engine": 1}


def test_help_names_every_command(byleave: Program) -> None:
    for arguments in ((), ("--help",)):
        done = byleave.run(*arguments)
        assert done.returncode == 0
        assert all(f"\n  {name} " in done.stdout for name in [*COMMANDS, "audit"])


@pytest.mark.parametrize("command", [[name] for name in COMMANDS] + NESTED, ids=" ".join)
def test_every_command_has_help_with_an_example(byleave: Program, command: list[str]) -> None:
    done = byleave.here(*command, "--help")
    assert done.returncode == 0
    assert "Example:" in done.stdout
    assert f"byleave {command[0]}" in done.stdout
    assert "\x1b" not in done.stdout


def test_light_commands_import_no_server_library() -> None:
    script = (
        "import sys; from byleave.cli.main import run; run(['--help']); run(['version']);"
        "run(['check', 'read_file', '{\"path\": \"a\"}']);"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-command"], "no-such-command"),
        (["check", "--no-such-option"], "--no-such-option"),
        (["serve", "--port", "banana"], "--port"),
        (["serve", "--port", "70000"], "--port"),
        (["history", "--status", "NEVER"], "NEVER"),
        (["approvals", "--json", "approve", "x"], "approve"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_sentence_with_a_hint(byleave: Program, arguments: list[str], words: str) -> None:
    done = byleave.here(*arguments)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert words in first
    assert second.startswith("hint: see `byleave")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("variable", "value", "command"),
    [
        ("BYLEAVE_CONCURRENCY", "many", ["check", "read_file", '{"path": "a"}']),
        ("BYLEAVE_CONCURRENCY", "0", ["tool", "read_file", '{"path": "a"}']),
        ("BYLEAVE_LEASE_SECONDS", "x", ["audit", "verify"]),
    ],
)
def test_wrong_setting_names_the_variable(byleave: Program, variable: str, value: str, command: list[str]) -> None:
    done = byleave.here(*command, **{variable: value})
    assert done.returncode == 1
    assert variable in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "there is no such file"), (b"= broken", "cannot be read"), (b"\xff", "cannot be read")],
)
def test_wrong_settings_file_is_one_sentence(
    byleave: Program, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "byleave.toml"
    if content is not None:
        path.write_bytes(content)
    done = byleave.here("check", "read_file", '{"path": "a"}', BYLEAVE_CONFIG=str(path))
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_come_from_the_file(byleave: Program, tmp_path: Path) -> None:
    path = tmp_path / "byleave.toml"
    path.write_text('allowed_commands = ["ls"]\n', encoding="utf-8")
    done = byleave.here("check", "execute_command", '{"command": "git"}', "--json", BYLEAVE_CONFIG=str(path))
    assert json.loads(done.stdout)["verdict"] == "REFUSE"


def test_reader_that_leaves_ends_it_quietly(byleave: Program, tmp_path: Path) -> None:
    lines = json.dumps({"tool_name": "read_file", "tool_params": {"path": "a"}}) + "\n"
    process = subprocess.Popen(
        [sys.executable, "-m", "byleave.cli.main", "check", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BYLEAVE_HOME": str(tmp_path)},
    )
    assert process.stdout is not None
    process.stdout.close()
    with process:
        _, err = process.communicate(lines * 10)
    assert (process.returncode, err) == (1, "")


def test_colour_is_never_needed_or_forced(byleave: Program, workspace: Path) -> None:
    plain = byleave.run("check", "read_file", '{"path": "a"}')
    assert plain.stdout.startswith("LOW  read_file: runs at once")
    assert "\x1b[" not in plain.stdout
    terminal = byleave.on_terminal("check", "read_file", '{"path": "a"}', NO_COLOR="1")
    assert terminal.wait() == 0
    assert "LOW  read_file" in terminal.raw


def test_unknown_fault_is_a_sentence_unless_debugging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from byleave.cli import check, main

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(check, "check_one", fail)
    assert main.run(["check", "read_file", "{}"]) == 1
    told = capsys.readouterr().err
    assert "Something in Byleave itself went wrong (RuntimeError)." in told
    assert "BYLEAVE_DEBUG=1" in told
    assert "Traceback" not in told
    monkeypatch.setenv("BYLEAVE_DEBUG", "1")
    assert main.run(["check", "read_file", "{}"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["1", "2", "1 2", "0 1 2"])
def test_closed_streams_are_no_failure(closed: str) -> None:
    script = f"import os, sys\nfor n in {closed.split()!r}: os.close(int(n))\nos.execv(sys.executable, sys.argv[1:])"
    program = [sys.executable, "-c", script, sys.executable, "-m", "byleave.cli.main", "version"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_audit_alone_is_its_help(byleave: Program) -> None:
    done = byleave.here("audit")
    assert (done.returncode, done.stderr) == (0, "")
    assert "verify" in done.stdout


def test_refusal_of_the_system_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from byleave.cli import check, main

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "somewhere")

    monkeypatch.setattr(check, "check_one", fail)
    assert main.run(["check", "read_file", "{}"]) == 1
    assert "error: The system refused 'somewhere': Permission denied." in capsys.readouterr().err


def _without_the_server(home: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys\n"
        "for name in ('fastapi', 'starlette', 'uvicorn', 'sqlalchemy', 'alembic', 'jwt'): sys.modules[name] = None\n"
        "from byleave.cli.main import run\n"
        f"sys.exit(run({command!r}))"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "BYLEAVE_HOME": str(home)},
    )


def _token(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "byleave.cli.main", "token", "--user", "a", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "BYLEAVE_HOME": str(home)},
    )


@pytest.mark.promise("L3", "S4")
@pytest.mark.parametrize(
    "words",
    [
        ["--scope", "agent", "--scope", "execute"],
        ["--scope", "agent", "--scope", "approve"],
        ["--scope", "chat", "--agent", "nightly"],
        ["--scope", "chat", "--mode", "full"],
        ["--agent", "no name"],
    ],
    ids=" ".join,
)
def test_a_token_that_would_be_more_than_an_agents_is_not_made(tmp_path: Path, words: list[str]) -> None:
    done = _token(tmp_path, *words)
    assert (done.returncode != 0, done.stdout) == (True, "")


@pytest.mark.promise("L3", "X23")
def test_a_named_agents_token_says_its_name_and_the_most_its_mode_may_be(tmp_path: Path) -> None:
    made = _token(tmp_path, "--agent", "nightly", "--mode", "full").stdout.strip()
    claims = json.loads(base64.urlsafe_b64decode(made.split(".")[1] + "=="))
    assert (claims["scope"], claims["agent"], claims["mode"]) == ("agent", "nightly", "full")
    assert "5 seconds longer" in " ".join(_token(tmp_path, "--help").stdout.split())


@pytest.mark.promise("L3")
def test_a_token_without_a_name_is_for_who_asks_and_says_so(byleave: Program) -> None:
    made = byleave.here("token", "--scope", "agent")
    claims = json.loads(base64.urlsafe_b64decode(made.stdout.split(".")[1] + "=="))
    assert (claims["sub"], claims["scope"]) == (user_name(), "agent")
    assert made.stderr == f"For {user_name()!r}; --user names another.\n"


@pytest.mark.parametrize("command", [["serve"], ["up"], ["token", "--user", "a"]], ids=" ".join)
def test_missing_server_extra_is_said(tmp_path: Path, command: list[str]) -> None:
    done = _without_the_server(tmp_path, command)
    assert done.returncode == 1
    assert done.stderr == f"error: This needs the server.\nhint: {install_command('server')}\n"


async def test_a_record_can_be_verified_where_no_server_is_installed(tmp_path: Path) -> None:
    settings = ServerSettings(home=tmp_path)
    store = await Store.open(settings, seal_keys=seal_keys(settings))
    await store.chat.create_project("alice", "demo")
    await store.close()
    done = _without_the_server(tmp_path, ["audit", "verify"])
    assert (done.returncode, done.stderr) == (0, "The record is whole.\n")


def test_every_command_is_listed_and_found_in_the_module_of_its_name() -> None:
    from typer.main import get_command

    from byleave.cli.main import COMMANDS, app

    group = get_command(app)
    context = group.make_context("byleave", ["version"], resilient_parsing=True)
    modules = {path.stem for path in CLI.glob("*.py") if "\napp = new_app()" in path.read_text("utf-8")}
    assert modules | {"version"} == set(COMMANDS)
    for name, listed in COMMANDS.items():
        command = group.get_command(context, name)  # pyright: ignore[reportAttributeAccessIssue]
        assert command is not None
        assert command.help
        assert len(listed.help) < 66, "a line of `byleave --help` is cut"
