"""The sweeper sleeps until the next deadline, and through none."""

import asyncio
import gc
import sqlite3
import tracemalloc
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from byleave.calls import deadlines
from byleave.calls.deadlines import Sweeper
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.executions import CompletedReport
from byleave.protocol.states import ExecutionStatus
from byleave.protocol.wire import timestamp
from byleave.settings import ServerSettings
from byleave.store.executions import HistoryFilter
from byleave.store.sqlite import SqliteDatabase
from byleave.store.transitions import DEADLINES_TOPIC
from harness.desk import Desk, completed, open_desk
from harness.json_values import JsonObject

MEGABYTE = 2**20
TIMED_OUT = HistoryFilter(user_id="alice", status=ExecutionStatus.TIMEOUT)


def ahead(seconds: float) -> str:
    return timestamp(datetime.now(UTC) + timedelta(seconds=seconds))


async def test_a_deadline_that_is_set_during_a_sweep_is_not_slept_through(desk: Desk) -> None:
    swept: asyncio.Queue[None] = asyncio.Queue()

    async def sweep() -> tuple[str | None, float]:
        if swept.empty():
            desk.bus.publish(DEADLINES_TOPIC, ahead(60))
            desk.bus.publish(DEADLINES_TOPIC, ahead(0.1))
        swept.put_nowait(None)
        return None, 30.0

    sweeper = Sweeper(desk.store, desk.bus, sweep)
    sweeper.start()
    async with asyncio.timeout(10):
        while swept.qsize() < 2:
            await asyncio.sleep(0)
    await sweeper.stop()


async def test_only_a_deadline_before_the_next_look_wakes_the_sweeper(desk: Desk) -> None:
    looked = asyncio.Event()

    async def sweep() -> tuple[str | None, float]:
        looked.set()
        return None, 30.0

    sweeper = Sweeper(desk.store, desk.bus, sweep)
    sweeper.start()
    async with asyncio.timeout(10):
        await looked.wait()
        looked.clear()
        for seconds in (31, 60, 600):
            desk.bus.publish(DEADLINES_TOPIC, ahead(seconds))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not looked.is_set()
        desk.bus.publish(DEADLINES_TOPIC, ahead(5))
        await looked.wait()
    await sweeper.stop()


async def test_writes_that_nobody_answered_end_without_being_loaded(desk: Desk) -> None:
    """Their content may be hundreds of megabytes, and all are overdue at once when a server starts again."""
    content = "words " * (MEGABYTE // 3)
    for number in (0, 1, 2, 3, 4, 5, 5):
        params = {"path": f"{number}.txt", "content": content}
        row = await desk.executor.call("write_file", params, desk.session, until_asked=True)
        assert row.status is ExecutionStatus.AWAITING_APPROVAL
        del row
    assert len(await desk.store.approvals.pending("alice")) == 6, "two are the same"
    sql = "UPDATE tool_executions SET deadline = :past WHERE status = 'AWAITING_APPROVAL'"
    await desk.store.database.write(lambda transaction: transaction.execute(sql, {"past": ahead(-1)}).rowcount)
    del content
    gc.collect()
    tracemalloc.start()
    try:
        desk.bus.publish(DEADLINES_TOPIC, ahead(-1))
        async with asyncio.timeout(30):
            while (await desk.store.executions.page(TIMED_OUT)).total < 7:
                await asyncio.sleep(0.02)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * MEGABYTE, f"{peak / MEGABYTE:.1f} MB"
    assert await desk.store.approvals.pending("alice") == []


async def test_server_that_was_paused_spares_its_clients_before_it_looks(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: asyncio.Queue[str] = asyncio.Queue()

    async def sweep() -> tuple[str | None, float]:
        steps.put_nowait("sweep")
        return None, 30.0

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=60)

    sweeper = Sweeper(desk.store, desk.bus, sweep, lambda: steps.put_nowait("resumed"))
    sweeper.start()
    async with asyncio.timeout(10):
        assert await steps.get() == "sweep"
        await asyncio.sleep(0)
        sweeper.wake()
        assert await steps.get() == "sweep", "a look that is not late spares nobody"
        await asyncio.sleep(0)
        monkeypatch.setattr(deadlines, "datetime", Later)
        sweeper.wake()
        assert [await steps.get(), await steps.get()] == ["resumed", "sweep"]
    await sweeper.stop()


async def test_sweeper_goes_on_when_the_record_can_neither_be_written_nor_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: asyncio.Queue[None] = asyncio.Queue()

    async def failing() -> list[str]:
        raise sqlite3.OperationalError("disk I/O error")

    async def sweep() -> tuple[str | None, float]:
        swept.put_nowait(None)
        await failing()
        return None, 30.0

    monkeypatch.setattr(desk.store.executions, "overdue", failing)
    sweeper = Sweeper(desk.store, desk.bus, sweep)
    sweeper.start()
    async with asyncio.timeout(10):
        await swept.get()
        sweeper.wake()
        await swept.get()
    await sweeper.stop()


@pytest.mark.sqlite
async def test_caller_is_answered_when_the_end_of_its_call_cannot_be_recorded(settings: ServerSettings) -> None:
    async with open_desk(settings.model_copy(update={"result_grace_seconds": 0.1})) as desk:
        database = desk.store.database
        assert isinstance(database, SqliteDatabase)

        async def hangs(signal: JsonObject) -> CompletedReport:
            database._writer.execute("PRAGMA query_only = ON")  # as on a disk that takes nothing any more
            await asyncio.Event().wait()
            return completed()

        async with desk.client(hangs), asyncio.timeout(20):
            line: JsonObject = {"command": "ls", "timeout": 1}
            with pytest.raises(ConfigurationError, match="how it ended cannot be recorded"):
                await desk.executor.call("execute_command", line, desk.session, until_asked=True)
        database._writer.execute("PRAGMA query_only = OFF")
