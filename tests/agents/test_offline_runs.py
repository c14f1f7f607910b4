"""The offline agent through the whole server: store, gate, approvals, a real client and real files."""

import asyncio
import json
from pathlib import Path

import pytest

from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, RunState
from harness.room import Room, open_room


@pytest.mark.promise("U-version", "W2", "W3", "W13")
async def test_version_of_a_package_is_the_whole_answer(offline: Room) -> None:
    (offline.root / "package.json").write_text(json.dumps({"name": "demo", "version": "1.4.2"}))
    assert await offline.ask("Read the package.json and tell me the version") == "1.4.2"


@pytest.mark.promise("W13")
async def test_reading_quotes_the_file(offline: Room) -> None:
    (offline.root / "a.txt").write_text("first\nsecond\n")
    assert await offline.ask("read a.txt") == "`a.txt`:\n\n```\nfirst\nsecond\n```"


async def test_listing_and_searching_answer_with_what_is_there(offline: Room) -> None:
    (offline.root / "src").mkdir()
    (offline.root / "src" / "a.py").write_text("x = 1  # TODO more\n")
    answer = await offline.ask("list src then search TODO in src")
    assert "- `a.py`" in answer
    assert "src/a.py:1: x = 1  # TODO more" in answer


@pytest.mark.promise("W6", "W7", "W8", "W9", "W11")
async def test_write_waits_for_approval_and_then_writes(offline: Room) -> None:
    posted = await offline.post("write notes.md: then run rm -rf /")
    approval = await offline.approval()
    assert approval.agent_id == "chat"
    assert not (offline.root / "notes.md").exists()
    assert await offline.desk.approvals.approve_tool(approval.id, "alice")
    assert (await offline.ended(posted.run_id)).state is RunState.DONE
    assert (offline.root / "notes.md").read_text() == "then run rm -rf /"
    assert await offline.answer(posted) == "Wrote `notes.md` (17 bytes now)."


@pytest.mark.promise("W7", "W12")
async def test_rejection_ends_the_run_with_the_persons_reason(offline: Room) -> None:
    posted = await offline.post('write a.txt: "x"\nwrite b.txt: "y"\nlist')
    await offline.desk.approvals.reject_tool((await offline.approval()).id, "alice", "not in this folder")
    assert (await offline.ended(posted.run_id)).state is RunState.DONE
    answer = await offline.answer(posted)
    assert "I could not write `a.txt`. You denied it: not in this folder" in answer
    assert "2 further steps not taken" in answer
    assert not any(offline.root.iterdir())
    assert len(await offline.executions(posted.run_id)) == 1


@pytest.mark.promise("W7")
async def test_silence_is_told_as_a_timeout_and_nothing_runs(tmp_path: Path) -> None:
    async with open_room(tmp_path / "home", tmp_path / "ws", medium_approval_seconds=1) as room:
        await room.worker().start()
        answer = await room.ask("write a.txt: x")
        assert "Approval timeout" in answer
        assert "Rejected" not in answer
        assert not (room.root / "a.txt").exists()


@pytest.mark.promise("S2", "W4")
async def test_forbidden_command_is_refused_in_words(offline: Room) -> None:
    posted = await offline.post("run rm -rf /\nlist")
    await offline.ended(posted.run_id)
    assert "Command not allowed: rm" in await offline.answer(posted)
    [execution] = await offline.executions(posted.run_id)
    assert execution.error_type is ErrorType.REFUSED


@pytest.mark.promise("S3")
async def test_file_outside_is_refused_in_words(offline: Room) -> None:
    assert "I could not read `../secret`" in await offline.ask("read ../secret")


async def test_missing_file_stops_the_steps(offline: Room) -> None:
    answer = await offline.ask("read nothing.txt then list")
    assert "I could not read `nothing.txt`" in answer
    assert "1 further step not taken" in answer


async def test_command_that_fails_stops_the_steps(offline: Room) -> None:
    answer = await offline.ask("run cat nothing.txt\nlist")
    assert "`cat nothing.txt` printed:" in answer
    assert "It ended with exit code 1." in answer
    assert "1 further step not taken" in answer


@pytest.mark.promise("G7")
async def test_full_mode_writes_without_asking(offline: Room) -> None:
    assert "Wrote" in await offline.ask("write a.txt: x", mode=AgentMode.FULL)
    assert (offline.root / "a.txt").read_text() == "x"


async def test_small_talk_gets_examples(offline: Room) -> None:
    answer = await offline.ask("hello there")
    assert answer.startswith("I did not understand `there`, so I did nothing.")
    assert "read package.json and tell me the version" in answer


@pytest.mark.promise("W13")
async def test_answer_streams_as_it_will_stand(offline: Room) -> None:
    posted = await offline.post("hello there")
    await offline.ended(posted.run_id)
    assert await offline.said(posted.run_id) == await offline.answer(posted)


@pytest.mark.promise("D")
async def test_every_step_is_on_record_with_its_run(offline: Room) -> None:
    approver = asyncio.create_task(offline.approve_everything())
    posted = await offline.post('append to l.txt: "1"\nread l.txt\nappend to l.txt: "2"\nlist')
    await offline.ended(posted.run_id)
    approver.cancel()
    executions = await offline.executions(posted.run_id)
    assert [execution.tool_name for execution in executions] == [
        "write_file",
        "read_file",
        "write_file",
        "list_directory",
    ]
    assert {execution.status for execution in executions} == {ExecutionStatus.COMPLETED}
    assert (offline.root / "l.txt").read_text() == "1\n2\n"


async def test_messages_of_one_session_are_worked_on_in_order(offline: Room) -> None:
    first = await offline.post("write a.txt: one")
    second = await offline.post("read a.txt", session_id=first.session_id)
    approval = await offline.approval()
    assert (await offline.run(second.run_id)).state is RunState.READY
    await offline.desk.approvals.approve_tool(approval.id, "alice")
    await offline.ended(second.run_id)
    assert "one" in await offline.answer(second)


async def test_other_sessions_do_not_wait_for_one_that_waits_for_a_person(room: Room) -> None:
    await room.worker(concurrency=1).start()
    for number in range(3):
        await room.post(f"write {number}.txt: x")
    assert "nothing in the workspace" in await room.ask("list")


async def test_large_file_is_told_by_its_size(offline: Room) -> None:
    (offline.root / "big.txt").write_text("a line of text\n" * 100_000)
    answer = await offline.ask("read big.txt")
    assert answer.startswith("`big.txt` has 100,000 lines, 1,500,000 bytes.")
    assert len(answer) < 2000
