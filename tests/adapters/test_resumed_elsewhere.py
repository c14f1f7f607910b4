"""A run that waits for a person ends with its process; another process goes on where it stopped, after the answer."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from byleave.protocol.events import ApprovalRequested
from byleave.protocol.states import ExecutionStatus
from harness.household import Household
from harness.model_server import ModelServer, by_step, call, open_model_server, say

from .pausing import FRAMEWORKS

pytestmark = [pytest.mark.promise("I", "S"), pytest.mark.parametrize("framework", sorted(FRAMEWORKS))]
PROGRAM = Path(__file__).with_name("pausing.py")
LIMIT_SECONDS = 60
SCRIPT = by_step(call("write_file", {"path": "a.txt", "content": "x"}), say("Done."))


async def run(framework: str, state: Path, household: Household, server: ModelServer) -> str:
    """Run the program to its end, in a process of its own."""
    unwanted = ("BYLEAVE_", "OPENAI_", "COVERAGE_")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(unwanted)},
        "BYLEAVE_SERVER_URL": household.url,
        "BYLEAVE_TOKEN": household.agent_token,
        "BYLEAVE_PROJECT": household.project_id,
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": "test",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), framework, str(state), env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return out.decode().strip()


async def paused(framework: str, state: Path, household: Household, server: ModelServer) -> ApprovalRequested:
    """Run it until it has paused and its process is gone; return the question that stays."""
    household.person.decide = lambda question: None
    assert await run(framework, state, household, server) == "paused"
    question = await household.person.until("tool.approval_request")
    assert isinstance(question, ApprovalRequested)
    assert [one.id for one in (await household.person.api.approvals()).approvals] == [question.approval_id]
    return question


async def test_an_approved_call_has_its_result_in_the_second_process(
    framework: str, household: Household, tmp_path: Path
) -> None:
    with open_model_server(SCRIPT) as server:
        question = await paused(framework, tmp_path / "state", household, server)
        assert not (household.workspace / "a.txt").exists()
        await household.person.approve(question.approval_id)
        assert await run(framework, tmp_path / "state", household, server) == "Done."
        ((_, result),) = server.requests[-1].results
    assert '"size": 1' in result
    assert (household.workspace / "a.txt").read_text() == "x"
    assert [row.status for row in await household.person.record()] == [ExecutionStatus.COMPLETED]


async def test_a_rejection_reaches_the_model_of_the_second_process(
    framework: str, household: Household, tmp_path: Path
) -> None:
    with open_model_server(SCRIPT) as server:
        question = await paused(framework, tmp_path / "state", household, server)
        await household.person.reject(question.approval_id, "keep it as it is")
        assert await run(framework, tmp_path / "state", household, server) == "Done."
        ((_, result),) = server.requests[-1].results
    assert "keep it as it is" in result
    assert not (household.workspace / "a.txt").exists()
