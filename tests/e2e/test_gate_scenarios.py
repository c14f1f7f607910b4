"""The gate's second half in separate processes: scripts that are seen first, grants, and the owner's rules."""

import os

import pytest

from harness.json_values import JsonObject
from harness.processes import Site, User

pytestmark = pytest.mark.timeout(90)


async def connected(site: Site, alice: User) -> str:
    await site.serve()
    project_id = (await alice.post("/my/projects", {"name": "demo"})).body["project_id"]
    await site.connect(project_id, alice.token)
    return project_id


async def waiting(alice: User) -> JsonObject:
    [approval] = (await alice.get("/my/approvals")).body["approvals"]
    return approval


async def confirm(alice: User, approval_id: str, **body: object) -> JsonObject:
    answer = await alice.post(f"/my/approvals/{approval_id}/confirm", {"decision": "approved", **body})
    assert answer.status == 200, answer.body
    return answer.body


@pytest.mark.promise("X18")
async def test_a_script_is_shown_before_it_runs_and_runs_as_it_was_shown(site: Site, alice: User) -> None:
    (site.workspace / "x.py").write_text("print('six', 3 + 3)\n")
    project_id = await connected(site, alice)
    call = await alice.execute(project_id, "execute_command", command="python", args=["x.py"])
    assert call["status"] == "awaiting_approval"
    approval = await waiting(alice)
    assert approval["inspection"]["files"][0]["text"] == "print('six', 3 + 3)\n"
    await confirm(alice, call["approval_id"])
    ended = await alice.end_of(call["tool_id"])
    assert (ended["status"], ended["result"]["stdout"]) == ("completed", "six 6\n")


@pytest.mark.promise("X18", "A2")
async def test_a_script_that_changed_after_it_was_shown_does_not_run(site: Site, alice: User) -> None:
    script = site.workspace / "x.py"
    script.write_text("print('shown')\n")
    project_id = await connected(site, alice)
    call = await alice.execute(project_id, "execute_command", command="python", args=["x.py"])
    script.write_text("open('ran', 'w').write('x')\n")
    await confirm(alice, call["approval_id"])
    ended = await alice.end_of(call["tool_id"])
    assert (ended["status"], ended["error_type"]) == ("failed", "drifted")
    assert not (site.workspace / "ran").exists()
    again = await alice.execute(project_id, "execute_command", command="python", args=["x.py"])
    assert "ran" in (await waiting(alice))["inspection"]["files"][0]["text"]
    assert again["approval_id"] != call["approval_id"]


@pytest.mark.promise("G8", "G12")
async def test_a_granted_script_runs_again_until_it_changes(site: Site, alice: User) -> None:
    script = site.workspace / "x.py"
    script.write_text("print('one')\n")
    project_id = await connected(site, alice)
    call = await alice.execute(project_id, "execute_command", command="python", args=["x.py"])
    rule = (await waiting(alice))["suggestions"][0]["rule"]
    answer = await confirm(alice, call["approval_id"], scope="class", terms={"rule": rule, "max_uses": 5})
    assert (await alice.end_of(call["tool_id"]))["status"] == "completed"
    again = await alice.execute(project_id, "execute_command", command="python", args=["x.py"])
    assert (again["status"], again["result"]["stdout"]) == ("completed", "one\n")
    record = (await alice.get(f"/my/tools/{again['tool_id']}")).body
    assert record["approved_by"] == f"grant:{answer['grant_id']}"
    script.write_text("print('two')\n")
    changed = await alice.execute(project_id, "execute_command", command="python", args=["x.py"])
    assert changed["status"] == "awaiting_approval"


@pytest.mark.promise("G9", "G10", "G12")
async def test_the_owners_rules_hold_on_server_and_machine(site: Site, alice: User) -> None:
    rules = site.workspace / ".byleave" / "policy.toml"
    rules.parent.mkdir()
    rules.write_text("""
        commands = ["sort"]
        [[rule]]
        action = "allow"
        tool = "write_file"
        paths = ["docs/**"]
        [[rule]]
        action = "deny"
        command = ["git", "push"]
        because = "Releases are made by hand."
        match = ["git push", "git -C . push origin main"]
        not_match = ["git pull"]
    """)
    os.chmod(rules, 0o644)
    (site.workspace / "names.txt").write_text("b\na\n")
    project_id = await connected(site, alice)
    denied = await alice.execute(project_id, "execute_command", command="git", args=["-C", "src", "push"])
    assert (denied["status"], denied["error_type"]) == ("failed", "refused")
    assert "Releases are made by hand." in denied["error"]
    # A repository's file loosens nothing before its owner trusts it.
    write = {"path": "docs/a.md", "content": "x"}
    assert (await alice.execute(project_id, "write_file", **write))["status"] == "awaiting_approval"
    off = await alice.execute(project_id, "execute_command", command="sort", args=["names.txt"])
    assert off["error"] == "Command not allowed: sort"
    assert await site.processes[-1].stop() == 0
    site.byleave("trust", str(site.workspace), "--yes")
    await site.connect(project_id, alice.token)
    trusted = await alice.execute(project_id, "write_file", path="docs/b.md", content="x")
    assert trusted["status"] == "completed"
    record = (await alice.get(f"/my/tools/{trusted['tool_id']}")).body
    assert record["approved_by"].startswith("rule:project.1")
    on = await alice.execute(project_id, "execute_command", command="sort", args=["names.txt"])
    assert (on["status"], on["result"]["stdout"]) == ("completed", "a\nb\n")
