"""`byleave history`, `approvals` and `audit verify`."""

import json
import sqlite3
from pathlib import Path

import pytest

from .conftest import FreePort, Program, Site

pytestmark = pytest.mark.promise("L8")


@pytest.fixture(scope="module")
def told(site: Site) -> Site:
    """A site where something was read, and something refused."""
    assert site.run("chat", "read package.json").returncode == 0
    site.run("chat", "run rm -rf /")
    return site


def test_history_tells_all_also_what_was_refused(told: Site) -> None:
    done = told.here("history")
    assert done.returncode == 0
    assert "Read package.json · not asked: low risk  exec_" in done.stdout
    assert "Command not allowed: rm" in done.stdout
    assert "\x1b" not in done.stdout


def test_one_call_is_told_with_all_it_printed(site: Site) -> None:
    site.run("chat", "run ls package.json")
    [call] = site.json("history", "--tool", "execute_command", "--limit", "1", "--json")["executions"]
    told = site.here("history", call["tool_id"])
    assert told.stdout.splitlines()[0].endswith(
        f"done      Run ls package.json · not asked: low risk  {call['tool_id']}"
    )
    assert told.stdout.splitlines()[1:] == ["  | package.json", "exit code 0"]
    assert site.json("history", call["tool_id"], "--json")["tool_id"] == call["tool_id"]
    unknown = site.here("history", "exec_unknown")
    assert (unknown.returncode, "No execution 'exec_unknown'" in unknown.stderr) == (1, True)


def test_history_is_filtered(told: Site) -> None:
    def named(*filters: str) -> set[tuple[str, str, str]]:
        page = told.json("history", "--json", *filters)
        return {(each["tool_name"], each["status"], each["risk_level"]) for each in page["executions"]}

    assert {tool for tool, _, _ in named("--tool", "read_file")} == {"read_file"}
    assert {status for _, status, _ in named("--status", "failed")} == {"failed"}
    assert {risk for _, _, risk in named("--risk", "LOW")} == {"LOW"}
    assert named("--project", told.project_id)
    assert named("--session", "sess_unknown") == set()
    assert "Nothing yet." in told.here("history", "--session", "sess_unknown").stderr


def test_history_goes_on_page_by_page(told: Site) -> None:
    first = told.here("history", "--limit", "1")
    assert "1 of " in first.stderr
    cursor = first.stderr.split("--cursor '")[1].split("'")[0]
    page = told.json("history", "--json", "--limit", "1", "--cursor", cursor)
    assert page["executions"][0]["tool_id"] not in first.stdout
    wrong = told.here("history", "--cursor", "nonsense")
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (1, False)


def test_approvals_are_listed_and_decided(site: Site) -> None:
    assert "All clear: nothing waits" in site.here("approvals").stderr
    kept, approval_id = site.waiting("listed.md")
    listed = site.here("approvals")
    assert f"MEDIUM {approval_id}" in listed.stdout
    assert "listed.md" in listed.stdout
    assert "expires in " in listed.stdout
    assert "Create listed.md\n  medium risk · new file" in listed.stdout
    assert [each["id"] for each in site.json("approvals", "--json")["approvals"]] == [approval_id]
    done = site.here("approvals", "approve", approval_id)
    assert done.returncode == 0
    assert "listed.md" in done.stderr, "what is decided is shown"
    assert kept.process.wait(60) == 0
    again = site.here("approvals", "approve", approval_id)
    assert again.returncode == 1
    assert f"No approval '{approval_id}' waits for you." in again.stderr


def test_rejection_as_json_tells_the_agent_why(site: Site) -> None:
    kept, approval_id = site.waiting("rejected.md")
    answer = site.json("approvals", "reject", approval_id, "--reason", "no", "--json")
    assert (answer["success"], answer["status"]) == (True, "rejected")
    kept.process.wait(60)
    assert not (site.workspace / "rejected.md").exists()


def test_agents_token_cannot_decide(site: Site) -> None:
    kept, approval_id = site.waiting("agents.md")
    token = site.program.here("token", "--user", "alice", "--scope", "agent").stdout.strip()
    done = site.here("approvals", "approve", approval_id, BYLEAVE_TOKEN=token)
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert not (site.workspace / "agents.md").exists()
    site.here("approvals", "reject", approval_id)
    kept.process.wait(60)


def test_unreachable_server_is_exit_code_3(site: Site, free_port: FreePort) -> None:
    for command in ("history", "approvals"):
        done = site.here(command, "--server", f"http://127.0.0.1:{free_port()}")
        assert done.returncode == 3
        assert "Traceback" not in done.stderr


def test_whole_record_is_verified_while_the_server_runs(told: Site) -> None:
    done = told.here("audit", "verify")
    assert done.returncode == 0
    assert "The record is whole." in done.stderr
    assert told.project_id in done.stdout
    checked = told.json("audit", "verify", "--json")
    assert checked["whole"] is True
    assert {"project_id", "records", "head", "fault", "since"} == set(checked["projects"][0])
    assert checked["projects"][0]["since"] is None


def test_changed_record_is_named(told: Site, tmp_path: Path, byleave: Program) -> None:
    copy = tmp_path / "copy.db"
    with sqlite3.connect(told.program.home / "byleave.db") as source, sqlite3.connect(copy) as target:
        source.backup(target)
        target.execute("UPDATE audit SET actor = 'somebody else' WHERE seq = 2")
        target.commit()
    source.close()
    target.close()
    env = {"BYLEAVE_DATABASE_URL": f"sqlite:///{copy}"}
    done = byleave.here("audit", "verify", **env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no secret here" in done.stderr
    env["BYLEAVE_SECRET"] = (told.program.home / "secret").read_text()
    done = byleave.here("audit", "verify", **env)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout
    assert "record 2 was changed" in done.stderr
    as_json = byleave.here("audit", "verify", "--json", **env)
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["whole"] is False


def test_missing_database_is_a_sentence(byleave: Program) -> None:
    done = byleave.here("audit", "verify")
    assert done.returncode == 1
    assert "There is no database" in done.stderr
    assert "hint: " in done.stderr
