"""Long work: users take turns, one user's jobs run in order, and a job that fails fails for its caller alone."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from byleave.calls.long_work import AT_ONCE, LongWork


@asynccontextmanager
async def opened() -> AsyncGenerator[LongWork]:
    work = LongWork()
    try:
        yield work
    finally:
        work.close()


async def test_a_user_with_many_jobs_keeps_nobody_waiting_for_more_than_one() -> None:
    done: list[str] = []
    begun, go_on = threading.Barrier(AT_ONCE + 1, timeout=20), threading.Event()

    def held() -> None:
        begun.wait()
        go_on.wait(20)

    def noted(name: str) -> Callable[[], None]:
        return lambda: done.append(name)

    async with opened() as work, asyncio.TaskGroup() as group:
        for user in ("alice", "carol"):  # all threads are at work
            group.create_task(work.run(user, held))
        await asyncio.to_thread(begun.wait)
        for number in range(3):
            group.create_task(work.run("alice", noted(f"alice {number}")))
        group.create_task(work.run("bob", noted("bob")))
        await asyncio.sleep(0)
        go_on.set()
    assert [name for name in done if name != "bob"] == ["alice 0", "alice 1", "alice 2"]
    assert done.index("bob") <= 1


async def test_one_user_has_one_job_at_work() -> None:
    at_work: list[int] = []
    most = [0]

    def job() -> None:
        at_work.append(1)
        most[0] = max(most[0], len(at_work))
        at_work.pop()

    async with opened() as work:
        await asyncio.gather(*(work.run("alice", job) for _ in range(50)))
    assert most == [1]


async def test_error_is_its_callers_and_others_go_on() -> None:
    def fail() -> None:
        raise ValueError("no text")

    async with opened() as work:
        failed, fine = await asyncio.gather(
            work.run("alice", fail), work.run("alice", lambda: "fine"), return_exceptions=True
        )
    assert (str(failed), fine) == ("no text", "fine")


async def test_who_waits_when_it_closes_is_told() -> None:
    go_on = threading.Event()
    async with opened() as work:
        first = asyncio.create_task(work.run("alice", lambda: go_on.wait(20)))
        second = asyncio.create_task(work.run("alice", lambda: None))
        await asyncio.sleep(0)
        work.close()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert await first
