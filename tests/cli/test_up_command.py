"""`byleave up`: everything in one process, with and without a terminal."""

import contextlib
import json
import os
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from byleave.cli.acp import SessionMemory

from .conftest import PROMPT, FreePort, Program

pytestmark = pytest.mark.promise("L1")


def test_everything_starts_and_other_commands_find_it(byleave: Program, workspace: Path, free_port: FreePort) -> None:
    port = free_port()
    running = byleave.start("up", str(workspace), "--port", str(port))
    running.line_with(f"Byleave is up for {workspace}", of="stderr")
    link = running.line_with("chat page", of="stderr").split()[-1]
    assert link.startswith(f"http://127.0.0.1:{port}/signin?code=")
    with urllib.request.urlopen(link, timeout=30) as page:
        assert page.status == 200
    running.line_with("project", of="stderr")
    answer = byleave.run("chat", "read package.json and tell me the version", cwd=workspace)
    assert (answer.returncode, "1.2.3" in answer.stdout) == (0, True)
    listed = byleave.here("history")
    assert "completed" in listed.stdout
    assert "read_file package.json" in listed.stdout
    code, out, err = running.stop(signal.SIGINT)
    assert (code, out) == (0, "")
    assert "Stopped." in err
    assert "Traceback" not in err
    gone = byleave.here("history")
    assert (gone.returncode, "There is no token for" in gone.stderr) == (1, True)


def test_what_it_keeps_is_its_owners_alone(byleave: Program, workspace: Path) -> None:
    before = os.umask(0o022)  # what most people have: who asks for 0666 gets 0644
    try:
        running = byleave.start("up", str(workspace), "--json")
        running.line()
        assert byleave.run("chat", "list the files", cwd=workspace).returncode == 0
        SessionMemory(byleave.home)["editor"] = "sess_1"
        modes = {path: path.lstat().st_mode & 0o777 for path in [byleave.home, *byleave.home.rglob("*")]}
    finally:
        os.umask(before)
    assert {"projects.json", "acp.json", "byleave.db", "secret"} <= {path.name for path in modes}
    assert {path: oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


def test_next_start_finds_the_project_again_on_any_port(byleave: Program, workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with contextlib.ExitStack() as held:
        taken = held.enter_context(socket.socket())
        with contextlib.suppress(OSError):  # whoever has the usual port, it is taken
            taken.bind(("127.0.0.1", 8477))
            taken.listen()
        first = byleave.start("up", str(workspace), "--json")
        told = json.loads(first.line())
        assert not told["server_url"].endswith(":8477")
        joined = byleave.start("up", str(other), "--json")
        second = json.loads(joined.line())
        assert second["server_url"] == told["server_url"], "a directory joins the server that is up"
        assert second["project_id"] != told["project_id"]
        assert second["sign_in_url"] is None
        assert joined.stop()[0] == 0
        assert first.stop()[0] == 0
        again = json.loads(byleave.start("up", str(workspace), "--json").line())
        assert again["project_id"] == told["project_id"]
        assert (again["model"], again["isolation"]) == ("offline", "bwrap")


@pytest.mark.promise("W13")
def test_chat_goes_on_in_the_terminal_with_approvals_inline(
    byleave: Program, workspace: Path, free_port: FreePort
) -> None:
    terminal = byleave.on_terminal("up", str(workspace), "--port", str(free_port()))
    terminal.expect(f"Ctrl-D leaves.{PROMPT}")
    terminal.type("read package.json and tell me the version\n")
    terminal.expect("1.2.3")
    terminal.expect(PROMPT)
    terminal.type("write notes.md: hello\n")
    assert "Create notes.md\n  medium risk" in terminal.expect_question()
    terminal.type("y")
    terminal.expect("✓ Write notes.md · now 5 bytes")
    terminal.expect(PROMPT)
    assert (workspace / "notes.md").read_text(encoding="utf-8") == "hello"
    terminal.type("\x03")
    terminal.expect("Ctrl-C again leaves")
    terminal.type("\x03")
    assert terminal.wait() == 0
    assert "Stopped." in terminal.seen
    assert "Traceback" not in terminal.seen


def test_terminal_without_chat_just_serves(byleave: Program, workspace: Path, free_port: FreePort) -> None:
    terminal = byleave.on_terminal("up", str(workspace), "--no-chat", "--port", str(free_port()))
    terminal.expect("project    ")
    terminal.type("\x03")
    assert terminal.wait() == 0
    assert "> " not in terminal.seen


@pytest.mark.parametrize("options", [(), ("--no-chat",)], ids=["chat", "no chat"])
def test_window_that_is_closed_ends_it_in_order(
    byleave: Program, workspace: Path, free_port: FreePort, options: tuple[str, ...]
) -> None:
    terminal = byleave.on_terminal("up", str(workspace), *options, "--port", str(free_port()))
    terminal.expect("project    " if options else f"Ctrl-D leaves.{PROMPT}")
    terminal.hang_up()  # with which code it leaves is seen by nobody
    assert "There is no token for" in byleave.here("history").stderr, "it still says that it is up"
    assert not list(byleave.home.glob("*.db-wal")), "the record was not closed"


def test_missing_directory_and_taken_port_are_sentences(byleave: Program, workspace: Path, tmp_path: Path) -> None:
    done = byleave.run("up", str(tmp_path / "absent"))
    assert (done.returncode, "does not exist" in done.stderr) == (1, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = byleave.run("up", str(workspace), "--port", str(taken.getsockname()[1]))
    assert (done.returncode, "Cannot listen" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr


def test_key_in_the_environment_is_proposed_and_not_used(
    byleave: Program, workspace: Path, free_port: FreePort
) -> None:
    key = "sk-not-to-be-shown"
    running = byleave.start("up", str(workspace), "--port", str(free_port()), ANTHROPIC_API_KEY=key)
    running.line_with("agent      offline", of="stderr")
    assert "ANTHROPIC_API_KEY is set, but is not used unasked" in running.line(of="stderr")
    assert running.line(of="stderr").strip() == "export BYLEAVE_MODEL=anthropic:claude-sonnet-4-5"
    _, out, err = running.stop(signal.SIGINT)
    assert key not in out + err


def test_who_chose_the_offline_agent_gets_no_proposal(byleave: Program, workspace: Path, free_port: FreePort) -> None:
    port = str(free_port())
    running = byleave.start("up", str(workspace), "--port", port, OPENAI_API_KEY="any", BYLEAVE_MODEL="offline")
    running.line_with("agent      offline: understands a few phrases such as `read package.json and", of="stderr")
    assert "BYLEAVE_MODEL names a model" in running.line(of="stderr")
    assert "project" in running.line(of="stderr")


@pytest.mark.parametrize(
    ("files", "phrase"),
    [
        (
            {"pyproject.toml": '[project]\nname = "shop"\n', "README.md": "x"},
            "read pyproject.toml and tell me the name",
        ),
        ({"README.md": "Welcome to the shop.\n"}, "read README.md"),
        ({"shop.py": "x = 1\n"}, "list the files"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_phrase_that_it_proposes_works_here(
    byleave: Program, tmp_path: Path, free_port: FreePort, files: dict[str, str], phrase: str
) -> None:
    directory = tmp_path / "mine"
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    running = byleave.start("up", str(directory), "--port", str(free_port()))
    assert f"`{phrase}`" in running.line_with("agent      offline", of="stderr")
    running.line_with("project", of="stderr")
    answer = byleave.run("chat", phrase, cwd=directory)
    assert (answer.returncode, "shop" in answer.stdout) == (0, True), answer.stdout
