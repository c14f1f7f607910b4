"""The sweeper sleeps until the next deadline, and through none."""

import asyncio
from datetime import UTC, datetime, timedelta

from byleave.calls.deadlines import Sweeper
from byleave.protocol.wire import timestamp
from byleave.store.transitions import DEADLINES_TOPIC
from harness.desk import Desk


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
