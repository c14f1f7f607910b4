"""`byleave conversations` and `byleave undo --conversation`, against a real server and a real client."""

import json

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
    assert "no conversation yet" in site.here("conversations").stderr
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


@pytest.mark.promise("L8-undo-all")
def test_all_of_a_conversation_is_undone_on_the_machine(site: Site) -> None:
    session = talk(site, "write notes.md: one", "append to notes.md: two", "write made.md: new")
    changes = site.here("conversations", "changes", session)
    assert "created  made.md" in changes.stdout
    assert f"byleave undo --conversation {session}" in changes.stderr
    told = json.loads(site.here("conversations", "changes", session, "--json").stdout)
    assert [file["path"] for file in told["files"]] == ["made.md", "notes.md"]

    refused = site.here("undo", "--conversation", session)
    assert refused.returncode == 1
    assert "3 calls of this conversation can be undone here." in refused.stderr
    assert (site.workspace / "made.md").exists()
    done = site.here("undo", "--conversation", session, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["undone"]) == 3
    assert not (site.workspace / "made.md").exists()
    assert not (site.workspace / "notes.md").exists()
    again = site.here("undo", "--conversation", session, "--yes")
    assert "Nothing to do" in again.stderr
    unknown = site.here("undo", "--conversation", "sess_none", "--yes")
    assert unknown.returncode == 1
    assert "`byleave conversations` lists yours" in unknown.stderr
    assert site.here("undo", "exec_1", "--conversation", session).returncode == 2


@pytest.mark.promise("L8-undo-all")
def test_file_changed_since_stops_the_undo_of_a_conversation(site: Site) -> None:
    session = talk(site, "write notes.md: one")
    (site.workspace / "notes.md").write_text("mine")
    refused = site.here("undo", "--conversation", session, "--yes")
    assert refused.returncode == 1
    assert "Changed since these calls: notes.md" in refused.stderr
    assert (site.workspace / "notes.md").read_text() == "mine"
