"""Every example, run as a user would: in a process of its own, with nothing but its environment."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from harness.household import Household
from harness.model_server import MODEL, Asked, ModelServer, Turn, call, open_model_server, say

pytestmark = pytest.mark.promise("I")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIMIT_SECONDS = 60


def model(asked: Asked) -> Turn:
    """Reads, writes, and says that it is done; deepagents' tools call the path `file_path` and start at `/`."""
    deep = "edit_file" in asked.tools
    name, root = ("file_path", "/") if deep else ("path", "")
    turns = (
        call("read_file", {name: f"{root}README.md"}),
        call("write_file", {name: f"{root}summary.md", "content": "A short summary.\n"}),
        say("All done."),
    )
    return turns[min(asked.steps, 2)]


async def run_example(name: str, household: Household, server: ModelServer) -> str:
    # Not traced: it doubles the start, and the same parts are tested in this process.
    unwanted = ("BYLEAVE_", "OPENAI_", "COVERAGE_")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(unwanted)},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BYLEAVE_SERVER_URL": household.url,
        "BYLEAVE_TOKEN": household.token(),
        "BYLEAVE_PROJECT": household.project_id,
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": "test",
        "MODEL": MODEL,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
async def test_example_reads_and_writes_what_the_person_approves(name: str, household: Household) -> None:
    household.person.decide = lambda question: question.tool_name == "write_file"
    with open_model_server(model) as server:
        said = await run_example(name, household, server)
        assert ("All done." in said) is bool(server.requests)
    assert (household.workspace / "summary.md").read_text() == "A short summary.\n"
    rows = await household.person.record()
    assert [(row.tool_name, row.status.value) for row in rows if row.tool_name != "list_directory"][-1] == (
        "write_file",
        "completed",
    )
    assert any(row.tool_name == "read_file" for row in rows)


def test_every_example_is_listed_and_short() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        if path.is_file() and path.name != "README.md":
            assert f"({path.name})" in listed, path.name
            assert len(path.read_text().splitlines()) <= 30, path.name
    assert json.loads((EXAMPLES / "mcp_host.json").read_text())["mcpServers"]["byleave"]["command"] == "byleave"
