"""`byleave undo` and `byleave history --files`: shown, asked, brought back, without a server."""

import io
import json
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from byleave.cli.main import run
from harness.json_values import JsonObject

from .conftest import Program

pytestmark = pytest.mark.promise("L8-undo")


def call(byleave: Program, workspace: Path, name: str, **params: object) -> JsonObject:
    done = byleave.here("tool", name, json.dumps(params), "--workspace", str(workspace))
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout)


def python(byleave: Program, workspace: Path, code: str) -> JsonObject:
    (workspace / "work.py").write_text(code)
    return call(byleave, workspace, "execute_command", command="python3", args=["work.py"])


def test_the_last_call_is_undone_and_the_difference_is_shown(byleave: Program, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")
    call(byleave, workspace, "write_file", path="a.txt", content="one\n2\x1b[31m\n")
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert done.returncode == 0, done.stderr
    assert "write_file a.txt" in done.stdout
    assert "+two" in done.stdout
    assert "-2" in done.stdout
    assert "\x1b" not in done.stdout
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"
    again = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert (again.returncode, f"nothing to undo in '{workspace}'" in again.stderr) == (1, True)
    assert "--workspace" in again.stderr, "who stands in another directory is told how to name the right one"


def test_a_person_is_asked_on_a_terminal(byleave: Program, workspace: Path) -> None:
    (workspace / "a.txt").write_text("old\n")
    call(byleave, workspace, "write_file", path="a.txt", content="new\n")
    for key, code, left in (("n", 1, "new\n"), ("\n", 1, "new\n"), ("y", 0, "old\n")):
        terminal = byleave.on_terminal("undo", cwd=workspace)
        terminal.expect("+old")
        terminal.expect("Undo this, as shown above? [y/N] ")
        terminal.type(key)
        assert terminal.wait() == code
        assert (workspace / "a.txt").read_text() == left


def test_no_letter_of_a_pasted_word_agrees(byleave: Program, workspace: Path) -> None:
    (workspace / "a.txt").write_text("old\n")
    call(byleave, workspace, "write_file", path="a.txt", content="new\n")
    terminal = byleave.on_terminal("undo", cwd=workspace)
    terminal.expect("[y/N] ")
    terminal.type("why\n")
    terminal.expect("[y/N] ")
    terminal.type("n")
    assert terminal.wait() == 1
    assert (workspace / "a.txt").read_text() == "new\n"


def test_who_leaves_the_question_is_told_that_nothing_was_changed(byleave: Program, workspace: Path) -> None:
    (workspace / "a.txt").write_text("old\n")
    call(byleave, workspace, "write_file", path="a.txt", content="new\n")
    for key, code in (("\x03", 130), ("\x04", 1)):
        terminal = byleave.on_terminal("undo", cwd=workspace)
        terminal.expect("[y/N] ")
        terminal.type(key)
        assert terminal.wait() == code
        assert "\nNothing was changed." in terminal.seen
    assert (workspace / "a.txt").read_text() == "new\n"


def test_without_a_terminal_and_without_yes_nothing_is_changed(byleave: Program, workspace: Path) -> None:
    call(byleave, workspace, "write_file", path="a.txt", content="new")
    done = byleave.run("undo", "--workspace", str(workspace))
    assert (done.returncode, "--yes" in done.stderr) == (1, True)
    assert (workspace / "a.txt").exists()


def test_a_file_that_changed_since_is_named(byleave: Program, workspace: Path) -> None:
    call(byleave, workspace, "write_file", path="a.txt", content="new")
    (workspace / "a.txt").write_text("mine")
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert (done.returncode, "Changed since this call: a.txt" in done.stderr) == (1, True)
    assert (workspace / "a.txt").read_text() == "mine"


def test_json_says_what_was_undone_and_how_to_take_it_back(byleave: Program, workspace: Path) -> None:
    (workspace / "b.txt").write_text("b")
    result = python(byleave, workspace, "import os; os.unlink('b.txt'); open('c.txt','w')")
    assert {one["path"]: one["change"] for one in result["changed"]} == {"b.txt": "deleted", "c.txt": "created"}
    listed = byleave.json("undo", "--list", "--workspace", str(workspace), "--json")["entries"]
    assert listed[0]["summary"] == "python3 work.py"
    assert listed[0]["files"] == [{"path": "b.txt", "change": "deleted"}, {"path": "c.txt", "change": "created"}]
    undone = byleave.json("undo", listed[0]["tool_id"], "--workspace", str(workspace), "--yes", "--json")
    assert {one["path"]: one["change"] for one in undone["files"]} == {"b.txt": "create", "c.txt": "delete"}
    assert (workspace / "b.txt").read_text() == "b"
    assert not (workspace / "c.txt").exists()
    byleave.json("undo", undone["undo_id"], "--workspace", str(workspace), "--yes", "--json")
    assert (workspace / "c.txt").exists()


def test_secrets_modes_links_and_binaries_are_told_without_their_content(byleave: Program, workspace: Path) -> None:
    (workspace / ".env").write_text("KEY=hunter2secret\n")
    (workspace / "pic").write_bytes(b"\0\1")
    (workspace / "run.sh").write_text("x")
    (workspace / "run.sh").chmod(0o755)
    (workspace / "link").symlink_to("pic")
    (workspace / "long.txt").write_text("".join(f"{n}\n" for n in range(500)))
    code = (
        "import os; open('.env','w').write('K=1'); open('pic','wb').write(b'\\0'); os.chmod('run.sh',0o644)\n"
        "os.unlink('link'); os.symlink('run.sh','link'); open('long.txt','w')\n"
    )
    python(byleave, workspace, code)
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert done.returncode == 0, done.stderr
    assert "hunter2secret" not in done.stdout
    assert "may hold secrets" in done.stdout
    assert "no text" in done.stdout
    assert "(mode 644 becomes 755)" in done.stdout
    assert "+link to pic" in done.stdout
    assert "more lines" in done.stdout
    assert (workspace / ".env").read_text() == "KEY=hunter2secret\n"


def test_history_of_files_lists_the_current_directory(
    byleave: Program, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    assert "No call has changed a file" in byleave.here("history", "--files").stderr
    call(byleave, workspace, "write_file", path="a.txt", content="new")
    assert "created  a.txt" in byleave.here("history", "--files").stdout
    byleave.here("undo", "--yes")
    assert "(undone)" in byleave.here("undo", "--list").stdout
    assert len(byleave.json("history", "--files", "--json")["entries"]) == 2


def test_what_cannot_be_brought_back_needs_partial(byleave: Program, workspace: Path) -> None:
    (workspace / "node_modules").mkdir()
    (workspace / "a.txt").write_text("a")
    python(byleave, workspace, "import os; os.rmdir('node_modules'); os.unlink('a.txt')")
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert (done.returncode, "node_modules" in done.stderr, "--partial" in done.stderr) == (1, True, True)
    assert not (workspace / "a.txt").exists()
    assert byleave.here("undo", "--workspace", str(workspace), "--yes", "--partial").returncode == 0
    assert (workspace / "a.txt").read_text() == "a"


def test_an_unknown_call_is_told(byleave: Program, workspace: Path) -> None:
    done = byleave.here("undo", "exec_9", "--workspace", str(workspace), "--yes")
    assert (done.returncode, "exec_9" in done.stderr) == (1, True)


def test_json_asks_nobody_and_so_needs_yes(byleave: Program, workspace: Path) -> None:
    call(byleave, workspace, "write_file", path="a.txt", content="new")
    done = byleave.here("undo", "--workspace", str(workspace), "--json")
    assert (done.returncode, "add --yes" in done.stderr) == (1, True)
    assert (workspace / "a.txt").exists()


def test_what_is_already_as_it_was_is_said_and_counts_as_undone(byleave: Program, workspace: Path) -> None:
    for name in ("a.txt", "b.txt"):
        call(byleave, workspace, "write_file", path=name, content="new")
    (workspace / "b.txt").unlink()
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert (done.returncode, "already as it was" in done.stderr) == (0, True)
    assert "To take that back" not in done.stderr
    assert "Undone: 1 path is as before" in byleave.here("undo", "--workspace", str(workspace), "--yes").stderr
    assert not (workspace / "a.txt").exists()


def test_line_endings_are_part_of_the_difference(byleave: Program, workspace: Path) -> None:
    (workspace / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    call(byleave, workspace, "write_file", path="a.txt", content="one\ntwo")
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert "+one␍" in done.stdout
    assert "-two  (no newline at the end)" in done.stdout
    assert (workspace / "a.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_a_difference_that_would_take_for_ever_is_cut(byleave: Program, workspace: Path) -> None:
    def text(step: int) -> str:
        return "same\n" + "".join(f"{number * step % 211}\n" for number in range(20_000)) + "end\n"

    (workspace / "a.txt").write_text(text(7))
    call(byleave, workspace, "write_file", path="a.txt", content=text(11))
    began = time.monotonic()
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert time.monotonic() - began < 20
    assert "@@ from line 3: 19999 lines go, 19999 come @@" in done.stdout
    assert (workspace / "a.txt").read_text() == text(7)


def test_only_the_lines_around_a_change_are_shown_with_their_number(byleave: Program, workspace: Path) -> None:
    lines = [f"line {number}\n" for number in range(1, 2001)]
    (workspace / "a.txt").write_text("".join(lines))
    call(byleave, workspace, "write_file", path="a.txt", content="".join([*lines[:1499], "other\n", *lines[1500:]]))
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert done.stdout.splitlines()[2:] == [
        "@@ line 1497 @@",
        " line 1497",
        " line 1498",
        " line 1499",
        "-other",
        "+line 1500",
        " line 1501",
        " line 1502",
        " line 1503",
    ]


def test_paths_are_shown_in_order_and_lines_are_counted_from_one(byleave: Program, workspace: Path) -> None:
    (workspace / "b.txt").write_text("a much longer text than the other one\n")
    (workspace / "a.txt").write_text("a\n")
    (workspace / "c").mkdir()
    (workspace / "c" / "d.txt").write_text("")
    python(byleave, workspace, "import os\nos.unlink('b.txt'); os.unlink('a.txt'); os.unlink('c/d.txt'); os.rmdir('c')")
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    lines = done.stdout.splitlines()[1:]
    assert [line for line in lines if line.startswith("create ")] == [
        "create a.txt",
        "create b.txt",
        "create c",
        "create c/d.txt",
    ]
    assert lines[1] == "@@ line 1 @@"


def test_when_everything_is_undone_that_is_said(byleave: Program, workspace: Path) -> None:
    call(byleave, workspace, "write_file", path="a.txt", content="new")
    assert byleave.here("undo", "--workspace", str(workspace), "--yes").returncode == 0
    again = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert again.returncode == 1
    assert "all that is known is undone" in again.stderr
    assert "byleave undo --list" in again.stderr


def test_who_stands_below_the_workspace_is_sent_there(byleave: Program, workspace: Path) -> None:
    call(byleave, workspace, "write_file", path="sub/deep/a.txt", content="new")
    below = workspace / "sub" / "deep"
    for told in (
        byleave.here("undo", "--workspace", str(below), "--yes").stderr,
        byleave.here("undo", "--list", "--workspace", str(below)).stderr,
    ):
        assert f"byleave undo --workspace {workspace}" in told
        assert str(workspace) in told
    elsewhere = byleave.here("undo", "--list", "--workspace", str(workspace.parent)).stderr
    assert str(workspace) not in elsewhere, "what lies below is not looked through"


def test_moments_are_told_by_the_clock_on_this_machines_wall(
    byleave: Program, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(byleave, workspace, "write_file", path="a.txt", content="new")
    at = byleave.json("undo", "--list", "--workspace", str(workspace), "--json")["entries"][0]["at"]
    monkeypatch.setenv("TZ", "XXX-5:45")
    time.tzset()
    try:
        listed = byleave.here("undo", "--list", "--workspace", str(workspace)).stdout
    finally:
        monkeypatch.undo()
        time.tzset()
    there = datetime.fromisoformat(at) + timedelta(hours=5, minutes=45)
    assert listed.startswith(there.strftime("%Y-%m-%d %H:%M:%S  "))


def test_what_a_terminal_cannot_show_is_escaped_and_stops_nothing(
    byleave: Program, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(byleave, workspace, "write_file", path="a.txt", content="漢字 é\n")
    old = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", old)
    monkeypatch.setenv("BYLEAVE_HOME", str(byleave.home))
    assert run(["undo", "--workspace", str(workspace), "--yes"]) == 0
    assert b"-\\u6f22\\u5b57 \xe9\n" in old.buffer.getvalue()
    assert not (workspace / "a.txt").exists()


def test_odd_names_are_shown_on_one_line_and_many_are_cut(byleave: Program, workspace: Path) -> None:
    code = "for n in range(150): open(f'{n:03}\\nx', 'w')\nopen(b'\\xff', 'w')"
    python(byleave, workspace, code)
    listed = byleave.here("undo", "--list", "--workspace", str(workspace))
    assert r"created  000\x0ax" in listed.stdout
    assert "and 51 more" in listed.stdout
    assert len(byleave.json("undo", "--list", "--workspace", str(workspace), "--json")["entries"][0]["files"]) == 151
    done = byleave.here("undo", "--workspace", str(workspace), "--yes")
    assert (done.returncode, "Undone: 151 paths" in done.stderr) == (0, True)
    assert {path.name for path in workspace.iterdir()} == {"package.json", "work.py"}


def test_a_store_that_cannot_be_read_is_told(byleave: Program, workspace: Path) -> None:
    home = workspace.parent / "elsewhere"
    home.mkdir()
    (home / "undo").write_text("in the way")
    done = byleave.here("undo", "--list", "--workspace", str(workspace), BYLEAVE_HOME=str(home))
    assert (done.returncode, "cannot be read" in done.stderr) == (1, True)


def test_what_a_stopped_client_left_is_passed_over_where_it_cannot_be_written(
    byleave: Program, workspace: Path
) -> None:
    call(byleave, workspace, "write_file", path="a.txt", content="new")
    index = next(byleave.home.glob("undo/workspaces/*/index.db"))
    (index.parent / "recovery").unlink()
    (index.parent / "recovery").mkdir()
    done = byleave.here("undo", "--list", "--workspace", str(workspace))
    assert (done.returncode, "could not be looked at" in done.stderr) == (0, True)
    assert "created  a.txt" in done.stdout
