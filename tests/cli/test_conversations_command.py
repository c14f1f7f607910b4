"""`byleave conversations` and `byleave undo --conversation`, against a real server and a real client."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from .conftest import PROMPT, Site

pytestmark = pytest.mark.promise("L8-conversations", "L8")


def talk(site: Site, *messages: str) -> str:
    """A conversation in the terminal, with everything allowed; returns its id."""
    terminal = site.on_terminal("chat")
    terminal.expect(PROMPT)
    for message in messages:
        terminal.type(f"{message}\n")
        if message.startswith(("write", "append")):
            terminal.expect_question()
            terminal.type("y")
        terminal.expect(PROMPT)
    (session, *_) = json.loads(site.here("conversations", "--json").stdout)["sessions"]
    return session["session_id"]


def test_conversation_is_listed_found_renamed_exported_and_deleted(site: Site) -> None:
    session = talk(site, "read package.json")
    listed = site.here("conversations")
    assert "read package.json" in listed.stdout
    assert session in listed.stdout

    found = site.here("conversations", "search", "PACKAGE.json")
    assert session in found.stdout
    assert "messages" in found.stdout
    assert "Nothing was found." in site.here("conversations", "search", "no such words").stderr
    as_json = json.loads(site.here("conversations", "search", "package", "--json").stdout)
    assert as_json["found"][0]["session"]["session_id"] == session

    renamed = site.here("conversations", "rename", session, "Which version")
    assert "Which version" in renamed.stdout
    assert site.here("conversations", "rename", session, "x" * 201).returncode == 1

    document = site.here("conversations", "export", session)
    assert document.stdout.startswith("# Which version\n")
    assert "### Read `package.json`" in document.stdout
    whole = json.loads(site.here("conversations", "export", session, "--format", "json").stdout)
    assert whole["session"]["title"] == "Which version"
    assert "It changed nothing." in site.here("conversations", "changes", session).stderr

    asked = site.here("conversations", "delete", session)
    assert asked.returncode == 1
    assert "Nobody can be asked here" in asked.stderr
    assert "stays on record" in asked.stderr
    assert site.here("conversations", "delete", session, "--yes").returncode == 0
    assert session not in site.here("conversations").stdout
    gone = site.here("conversations", "export", session)
    assert gone.returncode == 1
    assert "`byleave conversations` lists yours" in gone.stderr
    assert site.here("history", "--session", session, "--json").stdout.count("exec_") >= 1


def undo(site: Site, session: str, *more: str) -> CompletedProcess[str]:
    return site.here("undo", "--conversation", session, "--workspace", str(site.workspace), *more)


@pytest.mark.promise("L8-undo-all")
def test_all_of_a_conversation_is_undone_on_the_machine(site: Site, tmp_path: Path) -> None:
    session = talk(site, "write all/notes.md: one", "append to all/notes.md: two", "write all/made.md: new")
    changes = site.here("conversations", "changes", session)
    assert "created  all/made.md" in changes.stdout
    assert f"byleave undo --conversation {session}" in changes.stderr
    told = json.loads(site.here("conversations", "changes", session, "--json").stdout)
    assert [file["path"] for file in told["files"]] == ["all/made.md", "all/notes.md"]

    elsewhere = site.here("undo", "--conversation", session, "--workspace", str(tmp_path))
    assert elsewhere.returncode == 1
    assert "--workspace DIR" in elsewhere.stderr
    refused = undo(site, session)
    assert refused.returncode == 1
    assert "3 calls of this conversation can be undone here." in refused.stderr
    assert "delete all/made.md" in refused.stdout
    assert (site.workspace / "all" / "made.md").exists()
    assert undo(site, session, "--json").returncode == 1
    done = undo(site, session, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["undone"]) == 3
    assert not (site.workspace / "all").exists()
    assert "Nothing to do" in undo(site, session, "--yes").stderr
    unknown = undo(site, "sess_none", "--yes")
    assert unknown.returncode == 1
    assert "`byleave conversations` lists yours" in unknown.stderr
    assert site.here("undo", "exec_1", "--conversation", session).returncode == 2


@pytest.mark.promise("L8-undo-all")
def test_file_changed_since_stops_the_undo_of_a_conversation(site: Site) -> None:
    session = talk(site, "write since.md: one")
    (site.workspace / "since.md").write_text("mine")
    refused = undo(site, session, "--yes")
    assert refused.returncode == 1
    assert "Changed since these calls: since.md" in refused.stderr
    assert (site.workspace / "since.md").read_text() == "mine"
    (site.workspace / "since.md").write_text("one")
    done = undo(site, session, "--yes")
    assert "Undone: 1 path is as before this conversation." in done.stderr
    assert not (site.workspace / "since.md").exists()
