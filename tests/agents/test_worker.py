"""The worker: starting, stopping, losing and giving up runs."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from byleave.agents.chat import FLUSH_CHARACTERS, ChatAgent, TextStream
from byleave.agents.history import REMEMBERED_CHARACTERS, dump, remember
from byleave.agents.models import offline_model
from byleave.agents.slots import ModelSlots
from byleave.agents.worker import MAX_ATTEMPTS, MAX_RUNS, RunWorker
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, RunState
from byleave.store import RunRow, StorageError
from byleave.store.transitions import RUNS_TOPIC
from harness.room import Room, open_room
from harness.scripted import Piece, scripted, turns


async def claimed(room: Room) -> RunRow:
    run = await room.desk.store.runs.claim("test")
    assert run is not None
    return run


async def test_stopping_fails_nothing_and_the_next_start_goes_on(room: Room) -> None:
    first = room.worker()
    await first.start()
    posted = await room.post("write a.txt: x")
    approval = await room.approval()
    await first.stop()
    assert (await room.run(posted.run_id)).state is RunState.READY
    await room.desk.approvals.approve_tool(approval.id, "alice")
    await room.worker().start()
    assert (await room.ended(posted.run_id)).state is RunState.DONE
    assert await room.answer(posted) == "Wrote `a.txt` (1 bytes now)."
    assert len(await room.executions(posted.run_id)) == 1


async def test_stopping_before_starting_is_harmless(room: Room) -> None:
    worker = room.worker()
    await worker.stop()
    posted = await room.post("hello")
    assert (await room.run(posted.run_id)).state is RunState.READY
    await worker.start()
    assert (await room.ended(posted.run_id)).state is RunState.DONE


async def test_text_is_not_said_again_after_a_restart(room: Room) -> None:
    """The answer was kept, but the process died before the run was finished."""
    posted = await room.post("hello")
    run = await claimed(room)
    agent = ChatAgent(room.desk.store, room.desk.executor, offline_model())
    kept = room.desk.store.runs.finish

    async def die(*args: object, **kwargs: object) -> None:
        raise asyncio.CancelledError

    room.desk.store.runs.finish = die  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await agent.work(run)
    room.desk.store.runs.finish = kept  # type: ignore[method-assign]
    await room.worker().start()
    await room.ended(posted.run_id)
    assert await room.said(posted.run_id) == await room.answer(posted)


@pytest.mark.promise("W12")
@pytest.mark.parametrize("failure", [StorageError("The database failed."), sqlite3.OperationalError("disk I/O error")])
async def test_database_that_is_away_for_a_moment_fails_no_run(tmp_path: Path, failure: Exception) -> None:
    async with open_room(tmp_path / "home", tmp_path / "ws", lease_seconds=1.2) as room:
        runs = room.desk.store.runs
        finish, failed = runs.finish, asyncio.Event()

        async def fail_once(*args: object, **kwargs: object) -> None:
            runs.finish = finish  # type: ignore[method-assign]
            failed.set()
            raise failure

        runs.finish = fail_once  # type: ignore[method-assign]
        await room.worker().start()
        posted = await room.post("hello")
        run = await room.ended(posted.run_id)
        assert failed.is_set()
        assert (run.state, run.error) == (RunState.DONE, None)
        assert await room.said(posted.run_id) == await room.answer(posted)


@pytest.mark.promise("W12")
async def test_user_stops_a_run_that_waits_for_approval(offline: Room) -> None:
    posted = await offline.post("write a.txt: x\nlist")
    approval = await offline.approval()
    await offline.desk.store.runs.cancel(posted.run_id, user_id="alice")
    run = await offline.ended(posted.run_id)
    assert (run.state, run.error) == (RunState.FAILED, None)
    assert not await offline.desk.approvals.approve_tool(approval.id, "alice")
    answer = await offline.ask("list", session_id=posted.session_id)
    assert answer == "There is nothing in the workspace."
    [execution] = await offline.executions(posted.run_id)
    assert (execution.status, execution.error_type) == (ExecutionStatus.FAILED, ErrorType.CANCELLED)
    assert not [event for event in await offline.events("chat.message") if event["role"] == "agent"][:-1]


async def test_user_stops_a_run_while_the_model_speaks(room: Room) -> None:
    speaking = asyncio.Event()
    ended = asyncio.Event()

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        try:
            yield "a" * FLUSH_CHARACTERS
            speaking.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    await room.worker(FunctionModel(stream_function=stream, model_name="talker")).start()
    posted = await room.post("go")
    await speaking.wait()
    await room.desk.store.runs.cancel(posted.run_id, user_id="alice")
    async with asyncio.timeout(10):
        await ended.wait()
    assert (await room.run(posted.run_id)).error is None


async def test_worker_that_lost_its_run_changes_nothing(room: Room) -> None:
    (room.root / "a.txt").write_text("x")
    posted = await room.post("read a.txt")
    stale = await claimed(room)
    await room.desk.store.runs.recover()
    fresh = await claimed(room)
    agent = ChatAgent(room.desk.store, room.desk.executor, offline_model())
    await agent.work(stale)
    assert (await room.run(posted.run_id)).state is RunState.RUNNING
    assert not await room.executions(posted.run_id)
    await agent.work(fresh)
    assert (await room.run(posted.run_id)).state is RunState.DONE


async def test_run_taken_over_while_it_waits_is_let_go(tmp_path: Path) -> None:
    async with open_room(tmp_path / "home", tmp_path / "ws", lease_seconds=1.2) as room:
        worker = room.worker()
        await worker.start()
        posted = await room.post("write a.txt: x")
        approval = await room.approval()
        await room.desk.store.runs.recover()
        taken = await claimed(room)
        assert taken.fence == 2
        while worker._held:
            await asyncio.sleep(0.01)
        await room.desk.approvals.approve_tool(approval.id, "alice")
        assert (await room.run(posted.run_id)).state is RunState.RUNNING


async def test_lease_of_a_run_that_waits_is_renewed(tmp_path: Path) -> None:
    async with open_room(tmp_path / "home", tmp_path / "ws", lease_seconds=1.2) as room:
        await room.worker().start()
        await room.post("write a.txt: x")
        approval = await room.approval()
        began = time.monotonic()
        while time.monotonic() - began < 1.5:
            assert await room.desk.store.runs.claim("another") is None
            await asyncio.sleep(0.02)
        assert approval.id


async def test_run_that_keeps_killing_its_process_is_given_up(room: Room) -> None:
    posted = await room.post("list")
    for _ in range(MAX_ATTEMPTS):
        await claimed(room)
        await room.desk.store.runs.recover()
    await room.worker().start()
    run = await room.ended(posted.run_id)
    assert run.state is RunState.FAILED
    assert run.error == f"This message was given up: the server failed {MAX_ATTEMPTS} times while working on it."


async def test_worker_survives_an_error_of_the_database(room: Room) -> None:
    worker = room.worker()
    claim = room.desk.store.runs.claim
    failed = asyncio.Event()

    async def broken(owner: str, *, resting: Sequence[str] = ()) -> RunRow | None:
        if not failed.is_set():
            failed.set()
            raise OSError("disk gone")
        return await claim(owner, resting=resting)

    room.desk.store.runs.claim = broken  # type: ignore[method-assign]
    await worker.start()
    await failed.wait()
    assert await room.ask("list") == "There is nothing in the workspace."


async def test_run_whose_end_cannot_be_written_stays_for_later(room: Room) -> None:
    tried = asyncio.Event()

    async def broken(*args: object, **kwargs: object) -> None:
        tried.set()
        raise OSError("disk full")

    runs = room.desk.store.runs
    finish, fail = runs.finish, runs.fail
    runs.finish = broken  # type: ignore[method-assign]
    runs.fail = broken  # type: ignore[method-assign]
    worker = room.worker()
    await worker.start()
    posted = await room.post("list")
    await tried.wait()
    while worker._held:
        await asyncio.sleep(0.01)
    assert (await room.run(posted.run_id)).state is RunState.RUNNING
    runs.finish, runs.fail = finish, fail  # type: ignore[method-assign]
    await runs.recover()
    room.desk.bus.publish(RUNS_TOPIC)
    assert (await room.ended(posted.run_id)).state is RunState.DONE


async def test_agent_remembers_the_session_and_only_that(room: Room) -> None:
    seen: list[str] = []

    def turn(number: int, messages: list[ModelMessage]) -> str:
        seen.append(dump(messages))
        return f"answer {number}"

    await room.worker(scripted(turn)).start()
    first = await room.post("my name is Ada")
    await room.ended(first.run_id)
    await room.ask("who am I?", session_id=first.session_id)
    await room.ask("and here?")
    assert "Ada" in seen[1]
    assert "answer 0" in seen[1]
    assert "Ada" not in seen[2]


async def test_memory_that_cannot_be_read_does_not_stop_a_session(offline: Room) -> None:
    first = await offline.post("list")
    await offline.ended(first.run_id)
    await offline.desk.store.database.write(lambda tx: tx.execute("UPDATE runs SET history = '[{]'").rowcount)
    assert "nothing" in await offline.ask("list", session_id=first.session_id)


async def test_state_that_cannot_be_read_fails_the_run_in_words(room: Room) -> None:
    posted = await room.post("list")
    await room.desk.store.database.write(lambda tx: tx.execute("UPDATE runs SET history = '{}'").rowcount)
    await room.worker().start()
    assert (await room.ended(posted.run_id)).error == "The saved state of this run cannot be read."


async def test_long_answer_is_a_few_events_and_arrives_whole(room: Room) -> None:
    words = [f"word{number} " for number in range(3000)]

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        for word in words:
            yield word

    await room.worker(FunctionModel(stream_function=stream, model_name="talker")).start()
    posted = await room.post("go")
    await room.ended(posted.run_id)
    assert await room.answer(posted) == "".join(words)
    assert await room.said(posted.run_id) == "".join(words)
    assert 1 <= len(await room.events("chat.text")) <= 200


async def test_text_between_tools_is_part_of_the_answer(room: Room) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        if len(messages) == 1:
            yield "Let me look."
            yield {1: DeltaToolCall(name="list_directory", json_args="{}", tool_call_id="c1")}
        else:
            yield "Nothing there."

    await room.worker(FunctionModel(stream_function=stream, model_name="talker")).start()
    posted = await room.post("go")
    await room.ended(posted.run_id)
    assert await room.answer(posted) == "Let me look.\n\nNothing there."
    assert await room.said(posted.run_id) == "Let me look.\n\nNothing there."


async def test_text_arrives_while_the_model_still_thinks(room: Room) -> None:
    going_on = asyncio.Event()

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        yield "first "
        await going_on.wait()
        yield "second"

    await room.worker(FunctionModel(stream_function=stream, model_name="talker")).start()
    posted = await room.post("go")
    async with asyncio.timeout(10):
        while not await room.events("chat.text"):
            await asyncio.sleep(0.01)
    going_on.set()
    await room.ended(posted.run_id)
    assert await room.answer(posted) == "first second"


async def test_text_that_cannot_be_written_is_an_error_and_not_silence(room: Room) -> None:
    posted = await room.post("go")
    run = await claimed(room)

    async def broken(run: RunRow, text: str) -> None:
        raise OSError("disk full")

    room.desk.store.runs.say = broken  # type: ignore[method-assign]
    async with TextStream(room.desk.store, run) as speech:
        speech.add("")
        speech.add("x")
        with pytest.raises(OSError, match="disk full"):
            await speech.finish()
        with pytest.raises(OSError, match="disk full"):
            speech.add("y")
    assert posted.run_id == run.id


async def test_history_holds_the_calls_before_they_run(offline: Room) -> None:
    posted = await offline.post("write a.txt: x")
    await offline.approval()
    history = json.loads((await offline.run(posted.run_id)).history or "[]")
    assert history[-1]["kind"] == "response"
    assert history[-1]["parts"][0]["tool_call_id"] == "offline_1"


async def test_unknown_model_is_refused_before_anything_starts(room: Room) -> None:
    desk = room.desk
    with pytest.raises(ConfigurationError, match="no model 'gpt'"):
        RunWorker(desk.store, desk.bus, desk.executor, room.settings, model="gpt")


async def test_mode_reaches_the_model(room: Room) -> None:
    seen: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        seen.append(info.instructions or "")
        yield "ok"

    await room.worker(FunctionModel(stream_function=stream, model_name="m")).start()
    await room.ask("go")
    assert "The mode is `sandbox`" in seen[0]
    assert "execute_command" in seen[0]


async def test_many_sessions_are_worked_on_at_once(room: Room) -> None:
    await room.worker(turns([("list_directory", {"path": "."}, "c")], "done"), concurrency=2).start()
    posts = [await room.post(f"go {number}") for number in range(12)]
    for posted in posts:
        assert (await room.ended(posted.run_id)).state is RunState.DONE


async def test_many_messages_of_one_user_do_not_keep_another_waiting(room: Room) -> None:
    answers = asyncio.Event()

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        if "much" in str(messages[-1]):
            await answers.wait()
        yield "done"

    chat = room.desk.store.chat
    much = [await room.post(f"much {number}") for number in range(MAX_RUNS + 20)]
    project = await chat.create_project("bob", "another")
    worker = room.worker(FunctionModel(stream_function=model), concurrency=4)
    await worker.start()
    async with asyncio.timeout(20):
        while worker.held < MAX_RUNS // 2:
            await asyncio.sleep(0.01)
    posted = await chat.post("bob", project.id, "little", session_id=None, mode=AgentMode.SANDBOX)
    async with asyncio.timeout(20):
        while (await room.desk.store.runs.get(posted.run_id, user_id="bob")).state is not RunState.DONE:
            await asyncio.sleep(0.01)
    assert (await room.run(much[0].run_id)).state is RunState.RUNNING
    answers.set()
    for each in much:
        assert (await room.ended(each.run_id)).state is RunState.DONE


async def test_users_whose_requests_wait_for_a_model_take_turns() -> None:
    slots, order, begun = ModelSlots(4), list[str](), asyncio.Event()

    async def ask(user: str, until: asyncio.Event) -> None:
        async with slots.take(user):
            order.append(user)
            await until.wait()

    first, later = asyncio.Event(), asyncio.Event()
    later.set()
    much = [asyncio.create_task(ask("alice", first)) for _ in range(4)]
    much += [asyncio.create_task(ask("alice", later)) for _ in range(3)]
    await asyncio.sleep(0)
    assert order == ["alice"] * 3, "one slot is left for others"
    stays = asyncio.create_task(ask("bob", begun))
    await asyncio.sleep(0)
    waits = [asyncio.create_task(ask("bob", later)), asyncio.create_task(ask("carol", later))]
    gone = asyncio.create_task(ask("carol", later))
    await asyncio.sleep(0)
    assert order == ["alice"] * 3 + ["bob"]
    for task in (gone, much[0], much[1]):
        task.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*waits)
    first.set()
    begun.set()
    await asyncio.gather(*much, stays, gone, return_exceptions=True)
    assert (order[4:7], len(order)) == (["alice", "bob", "carol"], 10)
    async with asyncio.timeout(5), slots.take("dave"):
        pass


def test_a_run_begins_with_the_newest_of_a_long_conversation() -> None:
    def turn(number: int, text: str) -> list[ModelMessage]:
        return [ModelRequest([UserPromptPart(f"{number}")]), ModelResponse([TextPart(text)])]

    long, short = "x" * (REMEMBERED_CHARACTERS // 3), "y"
    messages = [*turn(1, short), *turn(2, long), *turn(3, long), *turn(4, short), *turn(5, short)]
    assert remember(dump(messages)) == messages
    longer = [*turn(1, long), *messages, *turn(6, long)]
    assert remember(dump(longer)) == longer[6:]
    last = turn(8, short)
    assert remember(dump([*longer, *turn(7, 3 * long), *last])) == last
