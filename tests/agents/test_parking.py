"""Runs that wait long: nothing of them is held, and they go on when what they waited for has ended."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from byleave.protocol.approvals import ApprovalRequest
from byleave.protocol.errors import ConflictError
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, RunState
from byleave.store.chat import Posted
from harness.room import Room, open_room
from harness.scripted import turns

pytestmark = pytest.mark.promise("W3", "W12")


@pytest.fixture
async def room(tmp_path: Path, database_url: str | None) -> AsyncIterator[Room]:
    async with open_room(tmp_path / "home", tmp_path / "ws", database_url=database_url, park_seconds=0) as room:
        yield room


async def parked(room: Room, content: str, mode: AgentMode = AgentMode.SANDBOX) -> tuple[Posted, ApprovalRequest]:
    """A message whose run has parked, and the question it waits for."""
    posted = await room.post(content, mode=mode)
    approval = await room.approval()
    await room.until(posted.run_id, RunState.WAITING)
    return posted, approval


async def test_a_run_that_waits_for_a_person_is_held_by_nobody_and_goes_on_after_the_answer(room: Room) -> None:
    worker = room.worker()
    await worker.start()
    posted, approval = await parked(room, "list\nwrite a.txt: x")
    async with asyncio.timeout(10):
        while worker.held:
            await asyncio.sleep(0)
    await room.desk.approvals.approve_tool(approval.id, "alice")
    assert (await room.ended(posted.run_id)).state is RunState.DONE
    assert [row.tool_name for row in await room.executions(posted.run_id)] == ["list_directory", "write_file"]
    states = [event["state"] for event in await room.events("chat.run") if event["run_id"] == posted.run_id]
    # On a slow machine it parks for the list as well.
    assert states[-4:] == ["waiting", "ready", "running", "done"]


async def test_the_answer_may_come_while_no_server_runs_the_agent(room: Room) -> None:
    first = room.worker()
    await first.start()
    posted, approval = await parked(room, "write a.txt: x")
    await first.stop()
    assert (await room.run(posted.run_id)).state is RunState.WAITING
    await room.desk.approvals.approve_tool(approval.id, "alice")
    await room.until(posted.run_id, RunState.READY)
    await room.worker().start()
    assert (await room.ended(posted.run_id)).state is RunState.DONE
    assert len(await room.executions(posted.run_id)) == 1


async def test_a_parked_run_survives_a_new_server_on_the_same_database(
    tmp_path: Path, database_url: str | None
) -> None:
    where = (tmp_path / "home", tmp_path / "ws")
    async with open_room(*where, database_url=database_url, park_seconds=0) as room:
        await room.worker().start()
        posted, approval = await parked(room, "write a.txt: x")
        project = room.desk.project
    async with open_room(*where, database_url=database_url, park_seconds=0) as room:
        room.desk.project = project
        await room.worker().start()
        async with room.desk.client(room.act, workspace=str(room.root)):
            await room.desk.approvals.approve_tool(approval.id, "alice")
            assert (await room.ended(posted.run_id)).state is RunState.DONE
    assert (tmp_path / "ws" / "a.txt").read_text() == "x"


async def test_a_rejection_reaches_the_model_of_a_parked_run_with_its_reason(room: Room) -> None:
    await room.worker().start()
    posted, approval = await parked(room, "write a.txt: x")
    await room.desk.approvals.reject_tool(approval.id, "alice", "not that file")
    assert (await room.ended(posted.run_id)).state is RunState.DONE
    assert "not that file" in await room.answer(posted)


async def test_a_parked_run_goes_on_when_nobody_answers_in_time(tmp_path: Path, database_url: str | None) -> None:
    async with open_room(
        tmp_path / "home",
        tmp_path / "ws",
        database_url=database_url,
        park_seconds=0,
        medium_approval_seconds=1,
        high_approval_seconds=1,
    ) as room:
        await room.worker().start()
        posted, _ = await parked(room, "write a.txt: x")
        assert (await room.ended(posted.run_id)).state is RunState.DONE
        assert "Approval timeout" in await room.answer(posted)


async def test_a_parked_run_that_is_stopped_asks_nothing_any_more(room: Room) -> None:
    await room.worker().start()
    posted, approval = await parked(room, "write a.txt: x")
    await room.desk.store.runs.cancel(posted.run_id, user_id="alice")
    assert (await room.run(posted.run_id)).state is RunState.FAILED
    assert not await room.desk.approvals.approve_tool(approval.id, "alice")
    [execution] = await room.executions(posted.run_id)
    assert (execution.status, execution.error_type) == (ExecutionStatus.FAILED, ErrorType.CANCELLED)


async def test_the_next_message_of_a_session_waits_for_a_parked_run(room: Room) -> None:
    await room.worker().start()
    posted, approval = await parked(room, "write a.txt: x")
    second = await room.post("read a.txt", session_id=posted.session_id)
    other = await room.post("list")
    await room.ended(other.run_id)
    assert (await room.run(second.run_id)).state is RunState.READY
    await room.desk.approvals.approve_tool(approval.id, "alice")
    assert (await room.ended(second.run_id)).state is RunState.DONE
    assert "x" in await room.answer(second)


async def test_calls_made_side_by_side_are_all_answered_before_a_parked_run_goes_on(room: Room) -> None:
    calls = [
        ("search_web", {"query": "one"}, "a"),
        ("search_web", {"query": "two"}, "b"),
        ("list_directory", {"path": "."}, "c"),
    ]
    await room.worker(turns(calls, "done")).start()
    posted = await room.post("go")
    first = await room.approval()
    await room.until(posted.run_id, RunState.WAITING)
    open_calls = [row for row in await room.executions(posted.run_id) if not row.status.ended]
    await room.desk.approvals.reject_tool(first.id, "alice", "no")
    if len(open_calls) > 1:
        assert (await room.run(posted.run_id)).state is RunState.WAITING
    second = await room.approval()
    await room.desk.approvals.reject_tool(second.id, "alice", "no")
    assert (await room.ended(posted.run_id)).state is RunState.DONE
    names = sorted(row.tool_name for row in await room.executions(posted.run_id))
    assert names == ["list_directory", "search_web", "search_web"]


async def test_what_ended_while_the_run_was_parking_is_not_waited_for(room: Room) -> None:
    await room.post("list")
    run = await room.desk.store.runs.claim("test")
    assert run is not None
    assert await room.desk.store.runs.park(run) is RunState.READY
    with pytest.raises(ConflictError):
        await room.desk.store.runs.park(run)
