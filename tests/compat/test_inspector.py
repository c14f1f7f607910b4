"""The MCP Inspector lists the tools and calls them, over both transports and in both eras of the protocol."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from byleave.protocol.events import ApprovalRequested
from byleave.protocol.tools import TOOLS
from harness.household import Household, open_household
from harness.json_values import JsonObject
from harness.node import COMPAT, installed, run_node

pytestmark = [pytest.mark.promise("I"), pytest.mark.timeout(300)]
IS_ERROR = 5
"""Its exit code for a tool's result that is an error."""


@dataclass(frozen=True)
class Inspector:
    """The Inspector's command line, pointed at a household in one way."""

    program: Path
    household: Household
    way: str
    era: str

    async def ask(self, *arguments: str) -> tuple[int, JsonObject]:
        """Its exit code, and the result it prints."""
        home = self.household.home.parent
        target, options = self._target()
        done = await run_node(
            self.program,
            *("--cli", *target, *arguments, *options),
            *("--protocol-era", self.era, "--format", "json", "--connect-timeout", "60000"),
            env={**os.environ, "HOME": str(home)},
            cwd=home,
            seconds=120,
        )
        assert done.stdout, done.stderr
        return done.code, json.loads(done.stdout)["result"]

    async def call(self, name: str, **params: object) -> tuple[int, JsonObject]:
        return await self.ask("--method", "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(params))

    def _target(self) -> tuple[Sequence[str], Sequence[str]]:
        url, token = self.household.url, self.household.token()
        if self.way == "http":
            address = f"{url}/mcp/{self.household.project_id}"
            return (), ("--transport", "http", "--server-url", address, "--header", f"Authorization: Bearer {token}")
        own = {"SERVER_URL": url, "TOKEN": token, "HOME": str(self.household.home / "host")}
        variables = [part for name, value in own.items() for part in ("-e", f"BYLEAVE_{name}={value}")]
        return (sys.executable, "-m", "byleave.cli.main", "mcp"), variables


@pytest.fixture(params=[("http", "legacy"), ("http", "modern"), ("stdio", "legacy"), ("stdio", "modern")], ids="-".join)
async def inspector(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Inspector]:
    packages = installed(COMPAT / "inspector", "test-compat") / "@modelcontextprotocol" / "inspector"
    async with open_household(tmp_path) as household:
        (household.workspace / "README.md").write_text("hello\n")
        yield Inspector(packages / "clients" / "launcher" / "build" / "index.js", household, *request.param)


async def test_inspector_lists_reads_writes_after_a_yes_and_is_told_why_not(inspector: Inspector) -> None:
    household = inspector.household
    # Strict: it fails on a schema that some host could not take.
    code, listed = await inspector.ask("--method", "tools/list", "--strict")
    assert (code, [tool["name"] for tool in listed["tools"]]) == (0, list(TOOLS))

    code, read = await inspector.call("read_file", path="README.md")
    assert (code, read["structuredContent"]["content"]) == (0, "hello\n")

    writing = asyncio.create_task(inspector.call("write_file", path="notes.md", content="hi"))
    question = await household.person.until("tool.approval_request")
    assert isinstance(question, ApprovalRequested)
    assert not (household.workspace / "notes.md").exists()
    await household.person.approve(question.approval_id)
    code, written = await writing
    assert (code, written["structuredContent"]["path"]) == (0, "notes.md")
    assert (household.workspace / "notes.md").read_text() == "hi"

    code, refused = await inspector.call("execute_command", command="sudo", args=["true"])
    assert (code, refused["isError"]) == (IS_ERROR, True)
    assert "sudo" in refused["content"][0]["text"]
    rows = await household.person.record()
    assert [(row.tool_name, row.status.value, row.approved_by) for row in rows] == [
        ("read_file", "completed", "risk:LOW"),
        ("write_file", "completed", "person:alice"),
        ("execute_command", "failed", None),
    ]
