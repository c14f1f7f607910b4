"""The threads that wait for the disk, so that the event loop does not.

`Worker` runs one thing after the other off the loop. `Syncer` flushes the write-ahead log, once for everything that
was committed before, and moves a log that has grown long into the database file: most of it while writing goes on,
then, when the writer pauses for it, the little that came meanwhile, so that the log starts anew. Neither touches a row.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

LOG_BYTES = 8 * 1024 * 1024
"""A log longer than this is moved into the database file."""
FLUSHES_BETWEEN_LOOKS = 100
"""How often the log's length is looked at."""


class Worker:
    """A thread that runs what it is given, in order."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], Result]) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put((job, future))
        return future

    async def close(self) -> None:
        """Finish what was given, then end."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
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


class Syncer:
    """Flushes the log when asked. At most one flush is under way; what is asked for meanwhile shares the next."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop, *, flush: bool, pause: Callable[[], None]) -> None:
        """`pause` is called when most of a long log was moved: the writer should call `start_anew` and wait."""
        self._pause = pause
        self._log_path = f"{path}-wal"
        self._flush = flush
        self._loop = loop
        self._worker = Worker("byleave-syncer", loop)
        self._keeper = Worker("byleave-keeper", loop)
        self._busy = False
        self._moving = False
        self._flushes = 0
        self._descriptor: int | None = None
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def request(self, done: Callable[[int, OSError | None], None], count: int) -> None:
        """Flush, then say that the first `count` units are safe. Ignored while a flush runs: `done` asks again."""
        if self._busy:
            return
        self._busy = True
        if not self._flush:
            self._loop.call_soon(self._finished, done, count, None)
            return
        future = self._worker.run(self._sync)
        future.add_done_callback(lambda settled: self._finished(done, count, settled.result()))

    def _finished(self, done: Callable[[int, OSError | None], None], count: int, error: OSError | None) -> None:
        self._busy = False
        self._keep_short()
        done(count, error)

    def _sync(self) -> OSError | None:
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._log_path, os.O_RDONLY | os.O_CLOEXEC)
            os.fdatasync(self._descriptor)
        except OSError as error:
            return error
        return None

    def _keep_short(self) -> None:
        self._flushes += 1
        if self._flushes % FLUSHES_BETWEEN_LOOKS == 0:
            self.look()

    def look(self) -> None:
        """See whether the log has grown long, and move it if so."""
        if self._moving:
            return
        self._moving = True
        self._keeper.run(self._move).add_done_callback(self._moved)

    def _moved(self, done: "asyncio.Future[bool]") -> None:
        if done.result():
            self._pause()
        else:
            self._moving = False

    def _move(self) -> bool:
        try:
            long = os.stat(self._log_path).st_size > LOG_BYTES
        except OSError:  # gone with the last connection: nothing to move
            return False
        return long and self._checkpoint()

    def start_anew(self) -> "asyncio.Future[bool]":
        """Move the rest while nobody writes; the next commit then begins at the log's start."""
        self._moving = False
        return self._keeper.run(self._checkpoint)

    def _checkpoint(self) -> bool:
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error:  # a full disk, say: the log just grows until a later look succeeds
            return False
        return True

    async def close(self) -> None:
        await self._worker.close()
        await self._keeper.close()
        self._connection.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
