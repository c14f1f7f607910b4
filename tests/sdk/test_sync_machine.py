"""A machine for code without a loop: it waits, works beside a loop that runs, and takes its questions back."""

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import byleave
from byleave import errors
from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import ErrorType, ExecutionStatus, ResponseStatus
from harness.household import LIMIT_SECONDS, Household, open_household

pytestmark = pytest.mark.promise("R7")


@pytest.fixture
async def household(tmp_path: Path) -> AsyncIterator[Household]:
    async with open_household(tmp_path) as household:
        (household.workspace / "README.md").write_text("hello\n")
        yield household


def blocking(household: Household) -> byleave.SyncMachine:
    return byleave.SyncMachine(household.url, household.agent_token, household.project_id)


async def test_every_tool_of_a_machine_blocks_until_its_result_is_there(household: Household) -> None:
    household.person.decide = lambda question: True

    def work() -> None:
        with blocking(household) as machine:
            assert machine.read_file("README.md").content == "hello\n"
            assert machine.write_file("notes.md", "milk").size == 4
            assert machine.execute_command("pwd").exit_code == 0
            assert machine.list_directory().total_count == 2
            assert machine.search_files("milk").total_count == 1
            with pytest.raises(errors.RefusedError, match="No web search provider"):
                machine.search_web("byleave")
            with pytest.raises(errors.RefusedError):
                machine.read_file("../outside")
            assert len(machine.tools().tools) == 6
            begun = machine.start("read_file", {"path": "README.md"})
            assert machine.wait(begun.tool_id).status is ResponseStatus.COMPLETED
            assert machine.cancel(begun.tool_id) is False
            told = list(machine.stream("write_file", {"path": "a.txt", "content": "x"}))
            assert isinstance(told[-1], ToolResponse)
            assert told[-1].status is ResponseStatus.COMPLETED

    await asyncio.to_thread(work)


async def test_a_thread_whose_loop_runs_may_wait_too(household: Household) -> None:
    """As in a notebook: the cell is called from the loop that runs."""

    def notebook() -> str:
        async def cell() -> str:
            with blocking(household) as machine:
                return machine.read_file("README.md").content

        return asyncio.run(cell())

    assert await asyncio.to_thread(notebook) == "hello\n"


async def test_time_that_is_over_takes_the_question_back(household: Household) -> None:
    def work() -> ToolResponse:
        with blocking(household) as machine:
            return machine.execute("write_file", {"path": "a.txt", "content": "x"}, seconds=0.5)

    assert (await asyncio.to_thread(work)).error_type is ErrorType.CANCELLED
    assert not (await household.person.api.approvals()).approvals


async def test_ctrl_c_takes_the_question_back(household: Household) -> None:
    program = (
        "import byleave, sys\n"
        "with byleave.SyncMachine(*sys.argv[1:]) as machine:\n"
        "    machine.write_file('a.txt', 'x')\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, household.url, household.agent_token, household.project_id,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await household.person.until("tool.approval_request")
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(LIMIT_SECONDS):
        _, said = await process.communicate()
    assert b"KeyboardInterrupt" in said
    (row,) = await household.person.record()
    assert (row.status, row.error_type) == (ExecutionStatus.FAILED, ErrorType.CANCELLED)


async def test_leaving_a_stream_ends_it_and_leaves_the_call_open(household: Household) -> None:
    def work() -> None:
        with blocking(household) as machine:
            for _ in machine.stream("write_file", {"path": "a.txt", "content": "x"}):
                break

    await asyncio.to_thread(work)
    assert len((await household.person.api.approvals()).approvals) == 1


async def test_threads_that_block_at_once_share_one_connection(household: Household) -> None:
    """A framework without a loop runs the calls of a turn in threads."""
    async with household.agent() as machine:
        together = threading.Barrier(8)

        def work() -> byleave.SyncMachine:
            together.wait(LIMIT_SECONDS)
            return machine.blocking()

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: work(), range(8)))) == 1


async def test_the_same_machine_serves_loops_and_blocking_code(household: Household) -> None:
    """What an adapter needs: `blocking()` of one for a loop, `caller` of one that blocks."""
    async with household.agent() as machine:
        assert machine.blocking() is machine.blocking()
        response = await asyncio.to_thread(machine.blocking().execute, "read_file", {"path": "README.md"})
        assert response.status is ResponseStatus.COMPLETED
    sync = await asyncio.to_thread(blocking, household)
    caller = sync.caller
    begun = await caller.start("write_file", {"path": "a.txt", "content": "x"})
    assert (await caller.wait(begun.tool_id, 0)).status is ResponseStatus.AWAITING_APPROVAL
    assert await caller.cancel(begun.tool_id) is True
    calling = asyncio.create_task(caller.execute("execute_command", {"command": "gcc", "args": ["--version"]}))
    question = await household.person.until("tool.approval_request", tool_name="execute_command")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await household.person.until("tool.finished", tool_id=question.tool_id)  # type: ignore[union-attr]
    await asyncio.to_thread(sync.close)
    assert not [thread for thread in threading.enumerate() if thread.name == "byleave"]
