"""`byleave chat`: one turn or many, on a terminal and without one, against a real server and client."""

import json
import signal
from pathlib import Path

import pytest

from .conftest import PROMPT, FreePort, Program, Site

pytestmark = pytest.mark.promise("L5")


@pytest.mark.promise("W13")
def test_one_turn_reads_a_file_and_answers(site: Site) -> None:
    done = site.run("chat", "read package.json and tell me the version")
    assert done.returncode == 0
    assert "1.2.3" in done.stdout
    assert "→ read_file package.json [LOW]" in done.stderr
    assert "← read_file: " in done.stderr
    assert "→" not in done.stdout, "only the agent's words are data"


def test_without_a_terminal_it_says_what_waits_and_keeps_waiting(site: Site) -> None:
    kept, approval_id = site.waiting("waits.md")
    assert kept.process.poll() is None
    assert not (site.workspace / "waits.md").exists()
    assert site.here("approvals", "reject", approval_id, "--reason", "use another name").returncode == 0
    out, err = kept.process.communicate(timeout=60)
    assert "use another name" in err
    assert "use another name" in out
    assert not (site.workspace / "waits.md").exists()


def test_events_of_a_run_can_be_had_as_json(site: Site) -> None:
    done = site.run("chat", "read package.json and tell me the version", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["kind"] for event in events]
    assert kinds[-1] == "chat.run"
    assert events[-1]["state"] == "done"
    assert {"tool.started", "tool.finished", "chat.text", "chat.message"} <= set(kinds)


def test_agent_is_picked_by_name_and_one_that_is_not_there_is_told(site: Site) -> None:
    assert "1.2.3" in site.run("chat", "--agent", "chat", "read package.json and tell me the version").stdout
    done = site.here("chat", "--agent", "nobody", "hello")
    assert done.returncode == 1
    assert "No agent 'nobody' in this project." in done.stderr
    assert "It has: chat." in done.stderr
    odd = site.here("chat", "--agent", "no body!", "hello")
    assert odd.returncode == 1
    assert "This message cannot be sent: agent: " in odd.stderr
    assert "Traceback" not in odd.stderr


def test_conversation_on_a_terminal_goes_from_turn_to_turn(site: Site) -> None:
    terminal = site.on_terminal("chat")
    terminal.expect(f"Ctrl-D leaves.{PROMPT}")
    terminal.type("read package.json and tell me the version\n")
    terminal.expect("✓ Read package.json · ")
    terminal.expect("1.2.3")
    terminal.expect(PROMPT)
    terminal.type("\n")
    terminal.expect(PROMPT)
    terminal.type("write talk.md: hello\n")
    said = terminal.expect_question()
    assert "Create talk.md\n  medium risk · new file" in said
    terminal.type("maybe")
    terminal.expect("Press one of the keys in brackets.")
    terminal.expect_question()
    terminal.type("y")
    terminal.expect("Allowed by you.")
    terminal.expect("✓ Write talk.md · now 5 bytes")
    terminal.expect(PROMPT)
    assert (site.workspace / "talk.md").read_text(encoding="utf-8") == "hello"
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_ctrl_c_cancels_the_run_first_and_then_leaves(site: Site) -> None:
    terminal = site.on_terminal("chat")
    terminal.expect(PROMPT)
    terminal.type("write never.md: hello\n")
    terminal.expect_question()
    terminal.type("\x03")
    terminal.expect("Cancelling. Ctrl-C again leaves.")
    terminal.expect("Stopped by you.")
    terminal.expect(PROMPT)
    terminal.type("\x03")
    terminal.expect("Ctrl-C again leaves")
    terminal.type("read package.json\n")
    terminal.expect("1.2.3")
    terminal.expect(PROMPT)
    terminal.type("\x03")
    terminal.expect("Ctrl-C again leaves")  # a line lies between
    terminal.type("\x03")
    assert terminal.wait() == 0
    assert "Traceback" not in terminal.seen
    assert not (site.workspace / "never.md").exists()


def test_question_of_another_session_interrupts_the_line(site: Site) -> None:
    terminal = site.on_terminal("chat")
    terminal.expect(PROMPT)
    terminal.type("half a lin")
    terminal.expect("half a lin")
    kept, _ = site.waiting("other.md")
    terminal.deny("not now")
    terminal.expect(f"{PROMPT} half a lin")
    _, err = kept.process.communicate(timeout=60)
    assert "not now" in err
    second, approval_id = site.waiting("elsewhere.md")
    terminal.expect_question()
    assert site.here("approvals", "approve", approval_id).returncode == 0
    terminal.expect("Allowed by ")
    terminal.expect(f"{PROMPT} half a lin")
    assert second.process.wait(60) == 0
    terminal.type("\x03\x04")
    assert terminal.wait() == 0


def test_one_turn_on_a_terminal_asks_inline_and_ends(site: Site) -> None:
    terminal = site.on_terminal("chat", "write once.md: hello")
    terminal.expect_question()
    terminal.type("y")
    assert terminal.wait() == 0
    assert (site.workspace / "once.md").exists()


def test_run_that_was_cancelled_is_exit_code_1_and_a_second_ctrl_c_130(site: Site) -> None:
    kept, _ = site.waiting("cancelled.md")
    code, _, err = kept.stop(signal.SIGINT)
    assert (code, "Cancelling." in err, "Traceback" in err) == (1, True, False)
    second, approval_id = site.waiting("left.md")
    code, _, err = second.stop(signal.SIGTERM)
    assert (code, "Traceback" in err) == (130, False)
    assert site.here("approvals", "reject", approval_id).returncode == 0, "the question is still there for others"


def test_session_goes_on_when_named(site: Site) -> None:
    first = site.run("chat", "read package.json", "--json")
    session = json.loads(first.stdout.splitlines()[0])["session_id"]
    again = site.run("chat", "read package.json", "--session", session, "--project", site.project_id, "--json")
    assert again.returncode == 0
    assert {json.loads(line)["session_id"] for line in again.stdout.splitlines()} == {session}


@pytest.mark.parametrize(
    ("arguments", "env", "code", "words"),
    [
        ([], {}, 2, "There is no terminal to chat on."),
        (["hello", "--session", "sess_unknown"], {}, 1, "sess_unknown"),
        (["hello", "--project", "proj_unknown"], {}, 1, "proj_unknown"),
        (["hello"], {"BYLEAVE_TOKEN": "a.b.c"}, 1, "token"),
        (["hello"], {"BYLEAVE_SERVER_URL": "http://127.0.0.1:9"}, 3, "Cannot reach the server"),
    ],
)
def test_what_cannot_work_is_a_sentence(
    site: Site, arguments: list[str], env: dict[str, str], code: int, words: str
) -> None:
    done = site.run("chat", *arguments, **env)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_user_without_a_project_is_told_what_to_do(site: Site, tmp_path: Path) -> None:
    token = site.program.here("token", "--user", "dora").stdout.strip()
    done = site.run("chat", "hello", BYLEAVE_TOKEN=token)
    assert done.returncode == 1
    assert "You have no project on this server yet." in done.stderr


@pytest.mark.promise("R2")
def test_chat_goes_on_after_the_server_was_killed_and_started_again(
    byleave: Program, workspace: Path, free_port: FreePort
) -> None:
    port = str(free_port())
    serving = byleave.start("serve", "--port", port)
    serving.line()
    byleave.here("token", "--user", "alice", "--save")
    env = {"BYLEAVE_SERVER_URL": f"http://127.0.0.1:{port}"}
    byleave.start("connect", "--workspace", str(workspace), "--json", **env).line()
    kept = byleave.start("chat", "write notes.md: hello", **env)
    approval_id = kept.line_with("byleave approvals approve", of="stderr").split("approve ")[1].split("`")[0]
    serving.stop(signal.SIGKILL)
    byleave.start("serve", "--port", port).line()
    assert byleave.here("approvals", "approve", approval_id, **env).returncode == 0
    assert kept.process.wait(60) == 0
    assert (workspace / "notes.md").read_text(encoding="utf-8") == "hello"


def test_earlier_lines_come_back_in_the_next_chat_but_no_secrets(byleave: Program, site: Site) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    for lines in (["read package.json", f"what is {secret}"], []):
        terminal = byleave.on_terminal("chat", cwd=None, **site.env)
        terminal.expect(PROMPT)
        for line in lines:
            terminal.type(f"{line}\n")
            terminal.expect(line)
            terminal.expect(PROMPT)
        if not lines:
            terminal.type("\x1b[A")
            terminal.expect("read package.json")
            terminal.type("\x03")
        terminal.type("\x04")
        assert terminal.wait() == 0
    kept = byleave.home / "chat_history"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert secret not in kept.read_text(encoding="utf-8")


def test_what_is_typed_while_the_agent_works_begins_the_next_line(site: Site) -> None:
    terminal = site.on_terminal("chat")
    terminal.expect(PROMPT)
    terminal.type("read package.json and tell me the version\nand th")
    terminal.expect("1.2.3")
    terminal.expect(f"{PROMPT} and th")
    terminal.type("\x03\x04")
    assert terminal.wait() == 0


def test_words_of_the_agent_go_to_a_file_as_they_are(site: Site, tmp_path: Path) -> None:
    with (tmp_path / "out.md").open("wb") as output:
        terminal = site.program.with_output_to(output.fileno(), ["chat", "read package.json"], site.env)
    assert terminal.wait() == 0
    assert "✓ Read package.json" in terminal.seen
    said = (tmp_path / "out.md").read_text(encoding="utf-8")
    assert '"version": "1.2.3"' in said
    assert "\x1b" not in said
    assert "```" in said, "Markdown, not what a terminal makes of it"
