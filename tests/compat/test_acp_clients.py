"""Editors that use the ACP packages of npm, today's and the earlier one, work with `byleave acp`."""

import json
import os
import sys
from pathlib import Path

import pytest

from byleave.protocol.states import Scope
from harness.household import open_household
from harness.node import COMPAT, installed, run_node

pytestmark = pytest.mark.promise("I")


@pytest.mark.parametrize("package", ["@agentclientprotocol/sdk", "@zed-industries/agent-client-protocol"])
async def test_editor_prompts_allows_a_write_and_opens_the_session_again(package: str, tmp_path: Path) -> None:
    installed()
    async with open_household(tmp_path) as household:
        (household.workspace / "README.md").write_text("hello\n")
        (household.workspace / "notes.md").write_text("before\n")
        job = {
            "program": [sys.executable, "-m", "byleave.cli.main", "acp", "--project", household.project_id],
            "env": {
                **{name: value for name, value in os.environ.items() if not name.startswith("BYLEAVE_")},
                "BYLEAVE_SERVER_URL": household.url,
                "BYLEAVE_TOKEN": household.token(Scope.CHAT, Scope.APPROVE, Scope.EXECUTE),
                "BYLEAVE_HOME": str(tmp_path / "client"),
            },
            "cwd": str(household.workspace),
            "prompts": ["read README.md", "write notes.md: hi"],
        }
        done = await run_node(COMPAT / "acp_client.mjs", package, json.dumps(job), cwd=tmp_path)
        assert (done.code, done.stderr) == (0, ""), "the package complains of nothing it was sent"
        first, again = json.loads(done.stdout).values()
        assert (first["code"], again["code"]) == (0, 0), "it ends when the editor leaves"
        assert first["initialized"]["protocolVersion"] == 1
        assert first["stopped"] == ["end_turn", "end_turn"]

        said = "".join(one["content"]["text"] for one in first["updates"] if one["sessionUpdate"].endswith("chunk"))
        assert "hello" in said
        (question,) = first["asked"]
        (change,) = [part for part in question["toolCall"]["content"] if part["type"] == "diff"]
        assert change["path"] == str(household.workspace / "notes.md")
        assert (change["oldText"], change["newText"].strip()) == ("before\n", "hi"), "as the editor has the file"
        assert (household.workspace / "notes.md").read_text().strip() == "hi"
        rows = await household.person.record()
        assert [(row.tool_name, row.approved_by) for row in rows] == [
            ("read_file", "risk:LOW"),
            ("write_file", "person:alice"),
        ]

        calls = [one for one in again["updates"] if one["sessionUpdate"] == "tool_call"]
        assert [(one["kind"], one["status"]) for one in calls] == [("read", "completed"), ("edit", "completed")]
        told = [one["content"]["text"] for one in again["updates"] if one["sessionUpdate"] == "user_message_chunk"]
        assert told == job["prompts"]
