"""Background tasks of one owner, and the pauses between their tries."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


def pause(attempt: int, first: float = FIRST_PAUSE_SECONDS, longest: float = LONGEST_PAUSE_SECONDS) -> float:
    """Return the seconds before the next try: doubling, with jitter so that clients do not all retry at once."""
    return min(longest, first * 2**attempt) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


async def cancel(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel tasks and wait until they have ended; their errors are dropped."""
    ending = [task for task in tasks if task is not None]
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


class Tasks(set["asyncio.Task[Any]"]):
    """Background tasks, held until they end."""

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start work in the background."""
        return self.hold(asyncio.get_running_loop().create_task(work))

    def hold(self, task: asyncio.Task[Result]) -> asyncio.Task[Result]:
        """Hold a task that was started elsewhere."""
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    async def close(self, seconds: float = 0.0) -> None:
        """Cancel all tasks; give them some seconds before."""
        if self and seconds:
            await asyncio.wait(self, timeout=seconds)
        await cancel(*self)
