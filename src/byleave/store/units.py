"""Units of work that wait for their commit, and threads that run jobs in order."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from byleave.protocol.errors import ConfigurationError

from .database import Hint, Lookup, Transaction

Result = TypeVar("Result")

MAX_BATCH = 64
"""Most units in one transaction: limits how long the first of them waits for the others."""
OnCommit = Callable[[str, object | None], None]


@dataclass(slots=True)
class Unit:
    """One unit of work and its result."""

    work: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    relaxed: bool
    heavy: bool
    ahead: Sequence[Lookup] = ()
    result: Any = None
    error: BaseException | None = None
    hints: list[Hint] = field(default_factory=list[Hint])

    def answer(self, loop: asyncio.AbstractEventLoop, on_commit: OnCommit) -> None:
        """Send the hints, then tell the caller."""
        for hint in self.hints:
            try:
                on_commit(hint.topic, hint.fact)
            except Exception as error:  # noqa: BLE001 - a listener's error must not keep a caller waiting
                loop.call_exception_handler({"message": f"a listener to {hint.topic} failed", "exception": error})
        if self.future.done():  # the caller was cancelled, but the work is committed
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Worker:
    """A thread that runs jobs in order."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self.waiting = 0
        """Jobs that have not ended."""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], Result]) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = self._loop.create_future()
        self.waiting += 1
        future.add_done_callback(self._done)
        self._jobs.put((job, future))
        return future

    async def close(self) -> None:
        """Finish all jobs, then end the thread."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _done(self, future: "asyncio.Future[Any]") -> None:
        self.waiting -= 1

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            self._do(*item)
            del item  # it may hold a file, and the next job may come in hours

    def _do(self, job: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - carried to the caller, whatever it is
            self._loop.call_soon_threadsafe(_fail, future, error)
        else:
            self._loop.call_soon_threadsafe(_finish, future, result)


def _finish(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def closed() -> ConfigurationError:
    return ConfigurationError("The database is closed.", hint="The server is shutting down; try again later.")
