"""The OpenAI Agents SDK on Byleave: its tools, its interruptions, and nothing it says is an approval."""

import asyncio
import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    RunResultStreaming,
    RunState,
    Tool,
    ToolCallOutputItem,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from byleave.adapters.openai_agents import byleave_tools, settle, withdraw
from byleave.protocol.errors import CallerError
from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import ExecutionStatus
from byleave.protocol.tools import ReadFileResult
from harness.household import Household
from harness.json_values import JsonObject
from harness.model_server import ModelServer, by_step, call, calls, open_model_server, say

from .conftest import Connect, check_task

set_tracing_disabled(disabled=True)
pytestmark = pytest.mark.promise("I")


def worker(client: AsyncOpenAI, tools: Sequence[Tool], *, responses: bool = False) -> Agent[Any]:
    kind = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
    return Agent(name="worker", model=kind(model="scripted", openai_client=client), tools=list(tools))


@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
async def test_a_task_with_a_read_a_write_a_rejection_and_a_timeout_is_completed(
    household: Household, connect: Connect, task: ModelServer, responses: bool
) -> None:
    async with household.agent(name="sdk") as agent:
        result = await Runner.run(worker(connect(task), byleave_tools(agent), responses=responses), "go")
    assert result.final_output == "All done."
    await check_task(household, task)


async def test_an_interrupted_run_is_saved_and_goes_on_in_another_process_after_the_answer(
    household: Household, connect: Connect
) -> None:
    script = by_step(call("write_file", {"path": "a.txt", "content": "x"}), say("Written."))
    household.person.decide = lambda question: None
    with open_model_server(script) as server:
        async with household.agent() as agent:
            tools = byleave_tools(agent, interrupt=True, scope="thread-1")
            result = await Runner.run(worker(connect(server), tools), "go")
            assert [item.tool_name for item in result.interruptions] == ["write_file"]
            saved = json.dumps(result.to_state().to_json())
        question = await household.person.until("tool.approval_request")
        async with household.agent() as agent:
            again = worker(connect(server), byleave_tools(agent, interrupt=True, scope="thread-1"))
            state = await RunState.from_json(again, json.loads(saved))
            assert await settle(state, agent, scope="thread-1", seconds=0) is False
            await household.person.approve(question.approval_id)  # type: ignore[union-attr]
            assert await settle(state, agent, scope="thread-1") is True
            result = await Runner.run(again, state)
    assert result.final_output == "Written."
    assert (household.workspace / "a.txt").read_text() == "x"
    assert len(await household.person.record()) == 1


async def test_a_rejection_of_an_interrupted_call_reaches_the_model_with_its_reason(
    household: Household, connect: Connect
) -> None:
    script = by_step(call("write_file", {"path": "a.txt", "content": "x"}), say("Understood."))
    household.person.decide = lambda question: "keep it as it is"
    with open_model_server(script) as server:
        async with household.agent() as agent:
            one = worker(connect(server), byleave_tools(agent, interrupt=True, scope="t"))
            result = await Runner.run(one, "go")
            state = result.to_state()
            assert await settle(state, agent, scope="t")
            await Runner.run(one, state)
        assert "keep it as it is" in server.requests[-1].results[0][1]
    assert not (household.workspace / "a.txt").exists()


@pytest.mark.promise("S")
async def test_a_state_that_somebody_else_approved_runs_nothing(household: Household, connect: Connect) -> None:
    """The SDK's own approve() is the framework's word, not the person's."""
    script = by_step(call("write_file", {"path": "a.txt", "content": "x"}), say("Written."))
    household.person.decide = lambda question: None
    with open_model_server(script) as server:
        async with household.agent() as agent:
            one = worker(connect(server), byleave_tools(agent, interrupt=True, scope="t"))
            result = await Runner.run(one, "go")
            state = result.to_state()
            state.approve(state.get_interruptions()[0], always_approve=True)
            running = asyncio.create_task(Runner.run(one, state))
            question = await household.person.until("tool.approval_request")
            assert not (household.workspace / "a.txt").exists()
            await household.person.reject(question.approval_id, "never asked for")  # type: ignore[union-attr]
            await running
    assert not (household.workspace / "a.txt").exists()
    (row,) = await household.person.record()
    assert row.status is ExecutionStatus.REJECTED


async def test_reads_are_not_interrupted(household: Household, connect: Connect) -> None:
    script = by_step(call("read_file", {"path": "README.md"}), say("It says hello."))
    with open_model_server(script) as server:
        async with household.agent() as agent:
            result = await Runner.run(worker(connect(server), byleave_tools(agent, interrupt=True, scope="t")), "go")
    assert result.final_output == "It says hello."


async def test_the_same_call_of_another_conversation_is_made_again(household: Household, connect: Connect) -> None:
    """Tools are made once and used for one conversation after the other; many models number calls from one in each."""
    script = by_step(calls(("read_file", {"path": "README.md"}, "call_1")), say("Done."))
    with open_model_server(script) as server:
        async with household.agent() as agent:
            reader = worker(connect(server), byleave_tools(agent))
            await Runner.run(reader, "go")
            (household.workspace / "README.md").write_text("news\n")
            await Runner.run(reader, "go")
        assert "news" in server.requests[-1].results[0][1]


async def test_broken_arguments_are_told_to_the_model(household: Household, connect: Connect) -> None:
    script = by_step(call("read_file", '["README.md"]'), say("Sorry."))
    with open_model_server(script) as server:
        async with household.agent() as agent:
            await Runner.run(worker(connect(server), byleave_tools(agent)), "go")
        assert "not a JSON object" in server.requests[-1].results[0][1]


async def test_cancelling_a_run_calls_its_call_off(household: Household, connect: Connect) -> None:
    household.person.decide = lambda question: None
    with open_model_server(by_step(call("write_file", {"path": "a.txt", "content": "x"}), say("."))) as server:
        async with household.agent() as agent:
            running = asyncio.create_task(Runner.run(worker(connect(server), byleave_tools(agent)), "go"))
            question = await household.person.until("tool.approval_request")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await household.person.until("tool.finished", tool_id=question.tool_id)  # type: ignore[union-attr]
    (row,) = await household.person.record()
    assert row.status is ExecutionStatus.FAILED


async def test_cancelling_a_streamed_run_takes_its_question_back(household: Household, connect: Connect) -> None:
    household.person.decide = lambda question: None
    with open_model_server(by_step(call("write_file", {"path": "a.txt", "content": "x"}), say("."))) as server:
        async with household.agent() as machine:
            run = Runner.run_streamed(worker(connect(server), byleave_tools(machine)), "go")
            streaming = asyncio.create_task(_read(run))
            question = await household.person.until("tool.approval_request")
            run.cancel()
            await streaming
            await household.person.until("tool.finished", tool_id=question.tool_id)  # type: ignore[union-attr]
    assert not (await household.person.api.approvals()).approvals


async def _read(run: RunResultStreaming) -> None:
    async for _ in run.stream_events():
        pass


async def test_a_machine_that_closes_right_after_a_cancellation_still_takes_its_question_back(
    household: Household, connect: Connect
) -> None:
    """The SDK leaves the task of a cancelled tool behind, so nobody waits for it."""
    household.person.decide = lambda question: None
    with open_model_server(by_step(call("write_file", {"path": "a.txt", "content": "x"}), say("."))) as server:
        async with household.agent() as machine:
            running = asyncio.create_task(Runner.run(worker(connect(server), byleave_tools(machine)), "go"))
            await household.person.until("tool.approval_request")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
    (row,) = await household.person.record()
    assert row.status is ExecutionStatus.FAILED


async def test_a_run_cancelled_while_it_asks_takes_all_its_questions_back(
    household: Household, connect: Connect
) -> None:
    household.person.decide = lambda question: None
    both = calls(("write_file", {"path": "a.txt", "content": "x"}), ("write_file", {"path": "b.txt", "content": "x"}))
    with open_model_server(by_step(both, say("."))) as server:
        async with household.agent() as machine:
            start, second = machine.start, asyncio.Event()

            async def slow(tool_name: str, params: JsonObject, *, key: str | None = None) -> ToolResponse:
                if params["path"] == "b.txt":
                    await household.person.until("tool.approval_request")
                    second.set()
                    await asyncio.Event().wait()
                return await start(tool_name, params, key=key)

            machine.start = slow  # type: ignore[method-assign]
            tools = byleave_tools(machine, interrupt=True, scope="t")
            running = asyncio.create_task(Runner.run(worker(connect(server), tools), "go"))
            await second.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await household.person.until("tool.finished")
    assert [row.status for row in await household.person.record()] == [ExecutionStatus.FAILED]


async def test_an_interrupted_run_that_is_dropped_takes_its_question_back(
    household: Household, connect: Connect
) -> None:
    household.person.decide = lambda question: None
    with open_model_server(by_step(call("write_file", {"path": "a.txt", "content": "x"}), say("."))) as server:
        async with household.agent() as machine:
            tools = byleave_tools(machine, interrupt=True, scope="t")
            result = await Runner.run(worker(connect(server), tools), "go")
            await withdraw(result.to_state(), machine, scope="t")
            await withdraw(result.to_state(), machine, scope="t")
    assert not (await household.person.api.approvals()).approvals
    (row,) = await household.person.record()
    assert row.status is ExecutionStatus.FAILED


async def test_the_output_of_a_call_has_the_typed_result(household: Household, connect: Connect) -> None:
    script = by_step(call("read_file", {"path": "README.md"}), say("It says hello."))
    with open_model_server(script) as server:
        async with household.agent() as machine:
            result = await Runner.run(worker(connect(server), byleave_tools(machine)), "go")
        assert '"content": "hello' in server.requests[-1].results[0][1]
    (output,) = (item.output for item in result.new_items if isinstance(item, ToolCallOutputItem))
    assert isinstance(output.result, ReadFileResult)
    assert output.result.content == "hello\n"
    assert copy.deepcopy(output) == output


async def test_a_blocking_machine_serves_a_run_without_a_loop(household: Household) -> None:
    script = by_step(call("read_file", {"path": "README.md"}), say("It says hello."))

    def work() -> str:
        with household.agent().blocking() as machine, asyncio.Runner() as runner:
            client = AsyncOpenAI(base_url=server.url, api_key="test")
            result = runner.run(Runner.run(worker(client, byleave_tools(machine)), "go"))
            runner.run(client.close())
            return result.final_output

    with open_model_server(script) as server:
        assert await asyncio.to_thread(work) == "It says hello."


async def test_only_the_tools_that_were_chosen_are_offered(household: Household) -> None:
    async with household.agent() as agent:
        assert [tool.name for tool in byleave_tools(agent, tools=["read_file"])] == ["read_file"]
        with pytest.raises(CallerError, match="no tool 'rm'"):
            byleave_tools(agent, tools=["rm"])
        with pytest.raises(CallerError, match="need a scope"):
            byleave_tools(agent, interrupt=True)
