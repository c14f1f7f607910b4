"""Models that do not do as they should: each ends in words, and nothing gets past the gate."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from pydantic_ai.exceptions import ContentFilterError, ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from byleave.agents.chat import ChatAgent
from byleave.agents.failures import RunLimits
from byleave.protocol.states import ErrorType, ExecutionStatus, RunState
from harness.json_values import Json
from harness.room import Room
from harness.scripted import Piece, Turn, returns, scripted, turns


async def error_of(room: Room, model: FunctionModel, content: str = "go") -> str:
    """The error of a run that fails, checked to have reached the feed as well."""
    await room.worker(model).start()
    posted = await room.post(content)
    run = await room.ended(posted.run_id)
    assert run.state is RunState.FAILED
    assert run.error
    [event] = await room.events("chat.error")
    assert event["message"] == run.error
    assert event["hint"]
    assert "Traceback" not in run.error
    return run.error


@pytest.mark.promise("W4", "D")
async def test_unknown_tool_is_recorded_and_the_model_may_do_better(room: Room) -> None:
    (room.root / "a.txt").write_text("x")
    model = turns([("delete_all", {"path": "/"}, "c1")], [("read_file", {"path": "a.txt"}, "c2")], "read it")
    await room.worker(model).start()
    posted = await room.post("go")
    await room.ended(posted.run_id)
    assert await room.answer(posted) == "read it"
    unknown, known = await room.executions(posted.run_id)
    assert (unknown.status, unknown.error_type) == (ExecutionStatus.FAILED, ErrorType.INVALID)
    assert unknown.tool_name == "delete_all"
    assert known.status is ExecutionStatus.COMPLETED


async def test_model_that_insists_on_an_unknown_tool_is_given_up(room: Room) -> None:
    model = scripted(lambda number, messages: [("delete_all", "{", f"c{number}")])
    error = await error_of(room, model)
    assert error.startswith("The model 'scripted' answered in a way that cannot be used:")
    assert "https://" not in error


async def test_name_of_a_tool_in_a_script_is_understood(room: Room) -> None:
    (room.root / "a.txt").write_text("x")
    await room.worker(turns([("readFile", {"path": "a.txt"}, "c1")], "done")).start()
    posted = await room.post("go")
    await room.ended(posted.run_id)
    [execution] = await room.executions(posted.run_id)
    assert (execution.tool_name, execution.status) == ("read_file", ExecutionStatus.COMPLETED)


@pytest.mark.parametrize(
    "arguments", ["{", "[1]", '"x"', "NaN", '{"path": 1}', "{}", '{"path": "a", "approved": true}']
)
@pytest.mark.promise("W4", "S1")
async def test_wrong_arguments_can_be_mended_once_and_then_fail(room: Room, arguments: str) -> None:
    seen: list[tuple[str, str]] = []

    def turn(number: int, messages: list[ModelMessage]) -> Turn:
        seen[:] = [(part.outcome, str(part.content)) for part in returns(messages)]
        return [("read_file", arguments, f"c{number}")] if number < 3 else "I give up"

    await room.worker(scripted(turn)).start()
    assert await room.ask("go") == "I give up"
    assert [outcome for outcome, _ in seen] == ["retried", "failed", "failed"]
    if arguments in ("{", "[1]", '"x"', "NaN"):
        assert "not a JSON object" in seen[0][1]


async def test_refusal_reaches_the_model_as_a_failure_with_its_reason(room: Room) -> None:
    seen: list[tuple[str, str]] = []

    def turn(number: int, messages: list[ModelMessage]) -> Turn:
        seen[:] = [(part.outcome, str(part.content)) for part in returns(messages)]
        return [("execute_command", {"command": "sudo", "args": ["ls"]}, "c1")] if number == 0 else "fine"

    await room.worker(scripted(turn)).start()
    await room.ask("go")
    [(outcome, content)] = seen
    assert outcome == "failed"
    assert "Command not allowed: sudo" in content


async def test_results_reach_the_model_as_text(room: Room) -> None:
    (room.root / "a.txt").write_text('{"kind": "image-url", "url": "http://127.0.0.1/x"}')
    seen: list[Json] = []

    def turn(number: int, messages: list[ModelMessage]) -> Turn:
        seen[:] = [part.content for part in returns(messages)]
        return [("read_file", {"path": "a.txt"}, "c1")] if number == 0 else "fine"

    await room.worker(scripted(turn)).start()
    await room.ask("go")
    assert isinstance(seen[0], str)
    assert json.loads(seen[0])["content"].startswith('{"kind"')


async def test_endless_loop_ends_at_the_step_limit(room: Room) -> None:
    model = scripted(lambda number, messages: [("list_directory", {"path": "."}, f"c{number}")])
    error = await error_of(room, model)
    assert error == f"The agent stopped after {room.settings.run_steps} steps without an answer."


async def test_ids_that_repeat_do_not_hand_out_an_older_result(room: Room) -> None:
    (room.root / "a.txt").write_text("aaa")
    (room.root / "b.txt").write_text("bbb")
    (room.root / "c.txt").write_text("ccc")
    seen: list[Json] = []

    def turn(number: int, messages: list[ModelMessage]) -> Turn:
        seen[:] = [json.loads(str(part.content))["content"] for part in returns(messages)]
        same: Turn = [("read_file", {"path": "a.txt"}, "call_0"), ("read_file", {"path": "b.txt"}, "call_0")]
        return [same, [("read_file", {"path": "c.txt"}, "call_0")], "done"][number]

    await room.worker(scripted(turn)).start()
    posted = await room.post("go")
    await room.ended(posted.run_id)
    assert seen == ["aaa", "bbb", "ccc"]
    assert len(await room.executions(posted.run_id)) == 3


async def test_calls_that_change_things_run_in_the_order_of_the_model(room: Room) -> None:
    model = turns(
        [("write_file", {"path": "l.txt", "content": f"{n}\n", "mode": "append"}, f"c{n}") for n in range(4)], "done"
    )
    await room.worker(model).start()
    posted = await room.post("go")
    for _ in range(4):
        approval = await room.approval()
        await room.desk.approvals.approve_tool(approval.id, "alice")
    await room.ended(posted.run_id)
    assert (room.root / "l.txt").read_text() == "0\n1\n2\n3\n"


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (ModelHTTPError(401, "m", {"error": "bad key"}), "did not accept the key"),
        (ModelHTTPError(429, "m"), "asked too often"),
        (ModelHTTPError(404, "m"), "does not know the model"),
        (ModelHTTPError(500, "m"), "answered with status 500"),
        (ModelAPIError("m", "connection refused"), "could not be reached: connection refused"),
        (ContentFilterError("filtered"), "refused to answer"),
        (TimeoutError(), "did not answer within 300 seconds"),
        (RuntimeError("secret inside"), "something failed inside the server (RuntimeError)"),
    ],
)
async def test_failing_model_is_told_in_one_sentence(room: Room, raised: Exception, words: str) -> None:
    def turn(number: int, messages: list[ModelMessage]) -> Turn:
        raise raised

    error = await error_of(room, scripted(turn))
    assert words in error
    assert "\n" not in error
    assert "secret inside" not in error


async def test_model_that_says_nothing_is_given_up(room: Room) -> None:
    assert await error_of(room, turns("")) == "The model 'scripted' returned nothing."


async def test_session_goes_on_after_a_failed_run(room: Room) -> None:
    def turn(number: int, messages: list[ModelMessage]) -> Turn:
        if number == 0:
            return [("list_directory", {"path": "."}, "c1")]
        if len(returns(messages)) == 1 and "once more" not in str(messages):
            raise ModelHTTPError(500, "m")
        return "better now"

    await room.worker(scripted(turn)).start()
    first = await room.post("go")
    assert (await room.ended(first.run_id)).state is RunState.FAILED
    assert await room.ask("once more", session_id=first.session_id) == "better now"


async def test_model_that_hangs_is_given_up(room: Room) -> None:
    async def hang(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        await asyncio.Event().wait()
        yield ""

    agent = ChatAgent(
        room.desk.store, room.desk.executor, FunctionModel(stream_function=hang, model_name="slow"), model_seconds=0.05
    )
    posted = await room.post("go")
    run = await room.desk.store.runs.claim("test")
    assert run is not None
    await agent.work(run)
    assert (await room.run(posted.run_id)).error == "The model 'slow' did not answer within 0.05 seconds."


async def test_step_limit_counts_the_steps_before_a_restart(room: Room) -> None:
    model = scripted(lambda number, messages: [("list_directory", {"path": "."}, f"c{number}")])
    posted = await room.post("go")
    for _ in range(2):
        run = await room.desk.store.runs.claim("test")
        assert run is not None
        agent = ChatAgent(room.desk.store, room.desk.executor, model, limits=RunLimits(steps=3))
        if run.history is None:
            await agent.work(run)
            # As after a crash just before the failure was written.
            await room.desk.store.database.write(
                lambda transaction: transaction.execute("UPDATE runs SET state = 'READY', error = NULL").rowcount
            )
        else:
            await agent.work(run)
    assert (await room.run(posted.run_id)).error == "The agent stopped after 3 steps without an answer."
    assert len(await room.executions(posted.run_id)) == 3
