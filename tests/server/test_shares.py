"""Users' shares of the record are measured at the start, and again soon after one of them was met."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
import structlog

from byleave.calls.executor import RecordFullError
from byleave.calls.limits import MEGABYTE
from byleave.server.shares import ShareTask
from byleave.settings import ServerSettings
from byleave.store import StorageError
from byleave.store.retention import Retention
from harness.desk import Desk, open_desk

pytestmark = pytest.mark.promise("D")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    async with open_desk(ServerSettings(home=tmp_path / "home", durability="normal", user_mb=1)) as desk:
        yield desk


async def _until_pass(task: ShareTask, passes: int) -> None:
    async with asyncio.timeout(30):
        while task.passes < passes:
            await asyncio.sleep(0.005)


async def test_share_that_was_met_is_measured_again_and_the_user_goes_on(desk: Desk) -> None:
    task = ShareTask(desk.store, desk.executor.limits, soonest_seconds=0)
    task.start()
    await _until_pass(task, 1)
    desk.executor.limits.add("alice", "x" * MEGABYTE)  # removed since
    with pytest.raises(RecordFullError):
        await desk.executor.call("read_file", {"path": "a.txt"}, desk.session, seconds=0)
    await _until_pass(task, 2)
    row = await desk.executor.call("read_file", {"path": "a.txt"}, desk.session, seconds=0)
    assert row.status == "approved"
    await task.stop()
    await task.stop()


async def test_user_without_room_is_named_in_the_log(desk: Desk) -> None:
    await desk.executor.call("write_file", {"path": "a.txt", "content": "x" * MEGABYTE}, desk.session, seconds=0)
    with structlog.testing.capture_logs() as lines:
        await ShareTask(desk.store, desk.executor.limits).measure()
    assert (lines[-1]["users"], lines[-1]["first"], "db prune" in lines[-1]["hint"]) == (1, ["alice"], True)


async def test_measurement_that_fails_is_logged_and_tried_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Retention) -> AsyncIterator[tuple[str, int]]:
        raise StorageError("the disk fails")
        yield "alice", 0

    task = ShareTask(desk.store, desk.executor.limits, every_seconds=0.01, soonest_seconds=0)
    with structlog.testing.capture_logs() as lines:
        monkeypatch.setattr(Retention, "shares", broken)
        task.start()
        await _until_pass(task, 1)
        monkeypatch.undo()
        failed = task.passes
        await _until_pass(task, failed + 1)
    assert "could not be measured" in lines[0]["event"]
    await task.stop()


async def test_without_a_limit_nothing_is_measured(tmp_path: Path) -> None:
    async with open_desk(ServerSettings(home=tmp_path / "home", durability="normal")) as desk:
        task = ShareTask(desk.store, desk.executor.limits)
        task.start()
        await task.stop()
        assert task.passes == 0
