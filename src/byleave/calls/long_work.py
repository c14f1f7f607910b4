"""LongWork: masking and rendering of long texts, in threads, where users take turns.

A text of megabytes takes a processor for seconds. On the event loop it would stop everybody, and in a shared queue the
texts of one user would keep all others waiting. So one user has one job at work, and few are at work in all: threads
that compute take the interpreter from the loop. Short texts are not worth a thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")

LONG_CHARACTERS = 16 * 1024
"""A call or a text longer than this is worth a thread."""
AT_ONCE = 2
"""Jobs at work: while one user's takes minutes, another's begins."""


class LongWork:
    """Jobs of a server."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="byleave-long")
        self._waiting: dict[str, deque[tuple[Callable[[], Any], asyncio.Future[Any]]]] = {}
        """Jobs of each user who has any; who waits longest comes first."""
        self._working: set[str] = set()

    async def run(self, user_id: str, job: Callable[[], Result]) -> Result:
        """Run a job when it is this user's turn; their own run in order."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user_id, deque()).append((job, future))
        self._begin()
        return await future

    def close(self) -> None:
        """Begin no more jobs; who waits for one is cancelled."""
        for mine in self._waiting.values():
            for _, future in mine:
                future.cancel()
        self._waiting.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        for user_id in [user_id for user_id in self._waiting if user_id not in self._working]:
            if len(self._working) == AT_ONCE:
                return
            mine = self._waiting.pop(user_id)
            job, future = mine.popleft()
            if mine:
                self._waiting[user_id] = mine  # behind the others
            self._working.add(user_id)
            done = asyncio.get_running_loop().run_in_executor(self._threads, job)
            done.add_done_callback(partial(self._end, user_id, future))

    def _end(self, user_id: str, future: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
        self._working.discard(user_id)
        if done.cancelled():
            future.cancel()
        elif (error := done.exception()) is not None:
            if not future.done():  # else its caller has gone
                future.set_exception(error)
        elif not future.done():
            future.set_result(done.result())
        self._begin()
