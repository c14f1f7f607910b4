"""`byleave grants`, and giving one on a terminal: allowed, used, listed, revoked, asked again."""

import json
import re

import pytest

from byleave.cli.grants import _grant_lines
from byleave.protocol.grants import Grant, GrantStatus
from byleave.protocol.states import ApprovalScope

from .conftest import PROMPT, OnTerminal, Site

pytestmark = pytest.mark.promise("G8", "L8")

BELOW = "Write text files below 'docs'"
RULE = '{"tool": "write_file", "paths": ["docs/**"]}'


def give(terminal: OnTerminal, *, limit: str) -> None:
    """Answer the question on the screen with a grant for all below docs."""
    terminal.expect_question()
    terminal.type("s")
    said = terminal.expect("[b] back")
    [number] = [line.lstrip("→ ").split()[0] for line in said.splitlines() if f"  {BELOW}." in line]
    terminal.type(number)
    terminal.expect("rule: write_file  docs/**")
    terminal.expect("It would have covered")
    terminal.expect("[b] back")
    terminal.type("t")
    terminal.expect("For how long?")
    terminal.type("30m\n")
    terminal.expect("[b] back")
    terminal.type("u")
    terminal.expect("How many times")
    terminal.type(limit)
    terminal.expect("limits: for 30 minutes, ")
    terminal.expect("[b] back")
    terminal.type("\r")
    terminal.expect(f"Allowed in this conversation from now on: {BELOW}")
    terminal.expect("`byleave grants`")


def test_similar_writes_run_by_the_grant_until_it_is_revoked(site: Site) -> None:
    terminal = site.on_terminal("chat")
    terminal.expect(PROMPT)
    terminal.type("write docs/a.md: one\n")
    give(terminal, limit="5\n")
    terminal.expect("✓ Write docs/a.md")
    terminal.expect(PROMPT)
    terminal.type("write docs/b.md: two\n")
    terminal.expect("✓ Write docs/b.md · now 3 bytes")
    terminal.expect("by a grant (")
    terminal.expect("text files below 'docs')")
    terminal.expect(PROMPT)
    assert (site.workspace / "docs" / "b.md").read_text(encoding="utf-8") == "two"

    listed = site.here("grants")
    assert listed.returncode == 0
    for told in (f"{BELOW}.", "used once, 4 left", "expires in 30 minutes", "in conversation "):
        assert told in listed.stdout
    assert "byleave grants revoke" in listed.stderr
    [grant] = site.json("grants", "--json")["grants"]
    history = site.here("history", "--session", grant["session_id"]).stdout
    assert f"Write docs/b.md · medium risk · by a grant ({BELOW})" in history
    assert "Write docs/a.md · medium risk · approved by you" in history

    revoked = site.here("grants", "revoke", grant["id"])
    assert (revoked.returncode, revoked.stdout) == (0, f"Revoked: {BELOW}. ({grant['id']})\n")
    again = site.here("grants", "revoke", grant["id"])
    assert again.returncode == 1
    assert "revoked already" in again.stderr
    assert "hint: " in again.stderr
    assert "Nothing is allowed beyond single calls." in site.here("grants").stderr
    assert "revoked 20" in site.here("grants", "--all").stdout

    terminal.type("write docs/c.md: three\n")
    terminal.deny("no more")
    terminal.expect("Denied by you.")
    terminal.expect(PROMPT)
    assert not (site.workspace / "docs" / "c.md").exists()
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_all_grants_in_force_are_revoked_at_once(site: Site) -> None:
    for name in ("d", "e"):
        terminal = site.on_terminal("chat", f"write docs/{name}.md: hello")
        give(terminal, limit="1\n")
        assert terminal.wait() == 0
    assert len(site.json("grants", "--json")["grants"]) == 2
    assert len(site.json("grants", "revoke", "--all-of-them", "--json")["revoked"]) == 2
    assert site.json("grants", "--json")["grants"] == []
    assert "There was nothing to revoke." in site.here("grants", "revoke", "--all-of-them").stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": GrantStatus.EXPIRED, "uses": 3}, "used 3 times, expired 2026-11-15 20:00"),
        ({"status": GrantStatus.USED_UP, "uses": 1, "max_uses": 1}, "used once, 0 left, used up"),
        ({"status": GrantStatus.REVOKED, "revoked_at": "2026-11-15T13:00:00.000Z"}, "revoked 2026-11-15 13:00"),
    ],
)
def test_how_a_grant_ended_is_told(changes: dict[str, object], words: str) -> None:
    known: dict[str, object] = {
        "id": "grant_1\x1b[2J",
        "user_id": "alice",
        "project_id": "proj_1",
        "session_id": "sess_1",
        "scope": ApprovalScope.SESSION,
        "rule": None,
        "text": "Everything\u202e.",
        "approval_id": None,
        "uses": 0,
        "max_uses": None,
        "created_at": "2026-11-15T12:00:00.000Z",
        "created_by": "person:alice",
        "expires_at": "2026-11-15T20:00:00.000Z",
        "revoked_at": None,
        "revoked_by": None,
    }
    told = "\n".join(line.plain for line in _grant_lines(Grant.model_validate(known | changes)))
    assert words in told
    assert not {"\x1b", "\u202e"} & set(told)


def test_rule_is_tried_out_before_it_is_given(site: Site) -> None:
    kept, approval_id = site.waiting("docs/preview.md")
    site.here("approvals", "reject", approval_id)
    kept.process.wait(60)
    done = site.here("grants", "preview", RULE)
    assert done.returncode == 0
    assert f"{BELOW}." in done.stdout
    assert re.search(r"It would have covered \d+ of your last \d+ calls?, among them \d+ you refused", done.stdout)
    assert "you denied: Write docs/preview.md" in done.stdout
    wide = site.here("grants", "preview", '{"tool": "write_file", "paths": ["**"]}', "--project", site.project_id)
    assert "It may not be saved: " in wide.stdout
    assert site.json("grants", "preview", RULE, "--json")["problem"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["revoke"], 2, "give the ID of a grant, or --all-of-them"),
        (["revoke", "grant_1", "--all-of-them"], 2, "give the ID of a grant, or --all-of-them"),
        (["revoke", "grant_unknown"], 1, "You have no grant 'grant_unknown'."),
        (["--json", "revoke", "grant_1"], 2, "write it after `revoke`"),
        (["preview", "nonsense"], 1, "This is no rule"),
        (["preview", '{"tool": 1}'], 1, "This is no rule: tool: "),
        (["preview", RULE, "--project", "proj_unknown"], 1, "You have no project 'proj_unknown'"),
    ],
)
def test_what_cannot_work_is_a_sentence(site: Site, arguments: list[str], code: int, words: str) -> None:
    done = site.here("grants", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_agents_token_neither_lists_nor_revokes(site: Site) -> None:
    token = site.program.here("token", "--user", "alice", "--scope", "agent").stdout.strip()
    for arguments in ([], ["revoke", "grant_1"]):
        done = site.here("grants", *arguments, BYLEAVE_TOKEN=token)
        assert done.returncode == 1
        assert "error: " in done.stderr


def test_all_of_what_waits_can_be_shown(site: Site) -> None:
    kept, approval_id = site.waiting("docs/whole.md")
    done = site.here("approvals", "show", approval_id)
    assert done.returncode == 0
    assert re.search(r"  \| content: '?hello", done.stdout)
    assert "hello" in json.loads(site.here("approvals", "show", approval_id, "--json").stdout)["whole"]
    site.here("approvals", "reject", approval_id)
    kept.process.wait(60)
    assert site.here("approvals", "show", approval_id).returncode == 1


@pytest.mark.promise("X-reveal")
def test_what_is_masked_in_a_file_that_would_run_can_be_shown(site: Site) -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    (site.workspace / "run.py").write_text(f'settings = {{"api_token": "{token}"}}\n', encoding="utf-8")
    kept, approval_id = site.asking("run python run.py")
    masked = site.here("approvals", "show", approval_id)
    assert '"api_token": "[masked:github-token, 40 characters]"' in masked.stdout
    assert f"byleave approvals show {approval_id} --reveal" in masked.stderr
    real = site.here("approvals", "show", approval_id, "--reveal")
    assert (f'"api_token": "{token}"' in real.stdout, "--reveal" in real.stderr) == (True, False)
    told = {way: str(site.json("approvals", "show", approval_id, "--json", *way)) for way in ((), ("--reveal",))}
    assert [token in each for each in told.values()] == [False, True]
    site.here("approvals", "reject", approval_id)
    kept.process.wait(60)
