"""Runs that mean harm to their server, or meet bad luck: they end, in words, and take nobody along."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaThinkingCalls, DeltaThinkingPart, FunctionModel

from byleave.agents import chat
from byleave.agents.chat import ChatAgent
from byleave.agents.toolset import LocalCaller
from byleave.agents.worker import MAX_ATTEMPTS
from byleave.calls import executor
from byleave.calls.executor import Caller
from byleave.protocol.states import AgentMode, ErrorType, RunState
from byleave.store.executions import HistoryFilter
from harness.room import Room, open_room
from harness.scripted import Turn, scripted, turns


class Killed(BaseException):
    """The process ends here."""


async def test_run_that_kills_its_worker_in_the_model_call_after_a_tool_is_given_up(room: Room) -> None:
    def turn(number: int, messages: list[ModelMessage]) -> Turn:
        if number == 0:
            return [("list_directory", {"path": "."}, "c1")]
        raise Killed

    posted = await room.post("go")
    agent = ChatAgent(room.desk.store, room.desk.executor, scripted(turn))
    attempts: list[int] = []
    for _ in range(MAX_ATTEMPTS + 2):
        run = await room.desk.store.runs.claim("test")
        assert run is not None
        attempts.append(run.attempts)
        with pytest.raises(Killed):
            await agent.work(run)
        await room.desk.store.runs.recover()
    assert max(attempts) > MAX_ATTEMPTS
    await room.worker(turns("never asked")).start()
    ended = await room.ended(posted.run_id)
    assert ended.state is RunState.FAILED
    assert "given up" in (ended.error or "")


@pytest.mark.parametrize(
    "said",
    [
        "half a character \ud800",
        [("read_file", '{"path": "\\ud800.txt"}', "c1")],
        [("list_directory", "{}", "c\ud800")],
        [("read_\ud800file", "{}", "c1")],
    ],
)
async def test_model_that_sends_half_a_character_ends_or_goes_on_in_words(room: Room, said: Turn) -> None:
    await room.worker(turns(said, "done")).start()
    posted = await room.post("go")
    run = await room.ended(posted.run_id)
    assert run.attempts <= 1
    assert run.state is RunState.DONE or run.error


async def test_model_that_thinks_without_end_is_stopped(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MOST_CHARACTERS", 10_000)
    thought = 0

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[DeltaThinkingCalls]:
        nonlocal thought
        while thought < 100:
            thought += 1
            yield {0: DeltaThinkingPart(content="hm " * 1000)}

    await room.worker(FunctionModel(stream_function=stream, model_name="thinker")).start()
    posted = await room.post("go")
    run = await room.ended(posted.run_id)
    assert run.error == "The model 'thinker' did not come to an end, so it was stopped."
    assert thought < 100


async def test_model_that_asks_for_a_thousand_things_at_once_asks_the_person_nothing(room: Room) -> None:
    wanted: Turn = [("search_web", {"query": f"q{number}"}, f"c{number}") for number in range(1000)]
    await room.worker(turns(wanted, "done")).start()
    posted = await room.post("go")
    run = await room.ended(posted.run_id)
    assert run.error == "The model 'scripted' asked for 1,000 calls at once, so it was stopped; 100 are allowed."
    assert not await room.executions(posted.run_id)
    assert not await room.desk.store.approvals.pending("alice")


async def test_role_that_a_project_has_no_more_does_not_go_on_there(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text('[agents.builder]\nmode = "full"\nprojects = ["proj_other"]')
    async with open_room(tmp_path / "home", tmp_path / "ws", agents=path) as room:
        await room.worker(turns([("write_file", {"path": "a.txt", "content": "x"}, "c1")], "done")).start()
        posted = await room.desk.store.chat.post(
            "alice", room.desk.project.id, "go", session_id=None, mode=AgentMode.FULL, agent="builder"
        )
        run = await room.ended(posted.run_id)
        assert (run.state, run.error) == (RunState.FAILED, "This project no longer has the agent 'builder'.")
        assert not await room.executions(posted.run_id)


async def test_caller_that_is_cancelled_while_its_call_begins_leaves_nothing_open(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = room.desk
    session = await desk.store.chat.create_session("alice", desk.project.id, "s")
    caller = LocalCaller(desk.executor, desk.store, desk.presence, session, Caller(agent_id="here"))
    begin, begun = executor.begin, asyncio.Event()

    async def slow(*args: Any, **kwargs: Any) -> Any:
        row = await begin(*args, **kwargs)
        begun.set()
        await asyncio.Event().wait()
        return row

    monkeypatch.setattr(executor, "begin", slow)
    calling = asyncio.create_task(caller.execute("write_file", {"path": "a.txt", "content": "x"}))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert not await desk.store.approvals.pending("alice")
    rows = (await desk.store.executions.page(HistoryFilter(user_id="alice", limit=9))).rows
    assert [row.error_type for row in rows] == [ErrorType.CANCELLED]


async def test_provider_that_fails_after_a_tool_is_asked_again_and_the_tool_is_not_repeated(room: Room) -> None:
    asked = 0

    def turn(number: int, messages: list[ModelMessage]) -> Turn:
        nonlocal asked
        asked += 1
        if asked == 1:
            return [("list_directory", {"path": "."}, "c1")]
        if asked < 4:
            raise ModelHTTPError(503, "scripted")
        return f"answer {number}"

    await room.worker(scripted(turn)).start()
    posted = await room.post("go")
    await room.ended(posted.run_id)
    assert await room.answer(posted) == "answer 1"
    assert len(await room.executions(posted.run_id)) == 1
