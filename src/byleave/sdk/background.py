"""BackgroundLoop: an event loop in a thread of its own, for code without one, and for code whose loop must go on.

Whoever waits for it and is interrupted (Ctrl-C, a cancelled task) cancels the work there, and gives it a moment to
take back what it asked for.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")

LEAVE_SECONDS = 10.0
"""For cancelled work to end: longer than a cancellation needs to reach the server."""


class BackgroundLoop:
    """A loop that starts with its first work and runs until it is closed. No thread waits for it at exit."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def submit(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Start work there. Cancelling the future cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do work there and wait for it."""
        ended = threading.Event()

        async def tracked() -> Result:
            try:
                return await work
            finally:
                ended.set()

        future = self.submit(tracked())
        try:
            return future.result()
        except BaseException:
            if future.cancel():  # the waiting was interrupted, not the work
                ended.wait(LEAVE_SECONDS)
            raise

    def close(self) -> None:
        with self._starting:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(LEAVE_SECONDS)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="byleave", daemon=True)
                self._thread.start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()
