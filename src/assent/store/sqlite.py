"""SQLite: one writer thread with group commit, one reader thread, WAL.

Everything that waits while a commit is on its way to the disk goes into the next one together, each unit in a
savepoint of its own, so that one failing unit takes none of its neighbours with it. A future is answered only
after its commit is durable; hints go out in commit order, before the futures.

A lock file keeps a second server out: two writers would each believe they are alone.
"""

import asyncio
import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from assent.protocol.errors import ConfigurationError
from assent.protocol.values import timestamp

from .database import Hint, Row, Transaction

Result = TypeVar("Result")

StorageError = sqlite3.OperationalError
"""What a full or failing disk raises; nothing of the unit was kept."""

MAX_BATCH = 256
"""Most units in one commit: bounds how long the first of them waits."""


def database_clock() -> str:
    """SQLite has no server, so its clock is the machine's; taken once per transaction."""
    return timestamp(datetime.now(UTC))


class SqliteTransaction:
    """A transaction on one connection; see `database.Transaction`."""

    def __init__(self, connection: sqlite3.Connection, now: str) -> None:
        self._connection = connection
        self._now = now
        self.hints: list[Hint] = []

    @property
    def now(self) -> str:
        return self._now

    def one(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Row | None:
        return self._connection.execute(sql, parameters or {}).fetchone()

    def all(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Row]:
        return self._connection.execute(sql, parameters or {}).fetchall()

    def change(self, sql: str, parameters: Mapping[str, Any] | None = None) -> int:
        return self._connection.execute(sql, parameters or {}).rowcount

    def change_many(self, sql: str, parameters: Sequence[Mapping[str, Any]]) -> None:
        self._connection.executemany(sql, parameters)

    def hint(self, topic: str, fact: object | None = None) -> None:
        self.hints.append(Hint(topic, fact))


@dataclass
class _Unit:
    """One piece of work on its way through a thread."""

    work: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    hints: list[Hint] = field(default_factory=list[Hint])

    def answer(self) -> None:
        if self.future.done():  # the caller was cancelled; the work is committed all the same
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteDatabase:
    """See `database.Database`."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Literal["full", "normal"] = "full",
        on_commit: Callable[[Hint], None] = lambda hint: None,
        clock: Callable[[], str] = database_clock,
        prepare: Callable[[], None] = lambda: None,
        read_only: bool = False,
    ) -> None:
        """`prepare` brings the tables up to date under the lock. `read_only` looks at a file that may be in use."""
        self.path = path
        self._on_commit = on_commit
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._lock = None if read_only else _lock(path)
        self._writes: queue.SimpleQueue[_Unit | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[_Unit | None] = queue.SimpleQueue()
        self._closed = False
        prepare()
        self._threads: list[threading.Thread] = []
        if not read_only:
            self._start(self._write_loop, _connect(path, durability), "assent-writer")
        reader = _connect(path, durability)
        reader.execute("PRAGMA query_only = ON")
        self._start(self._read_loop, reader, "assent-reader")

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        # The unit is queued before the first await, so that callers who ask in an order are served in it.
        return await self._submit(self._writes, work)

    async def read(self, work: Callable[[Transaction], Result]) -> Result:
        return await self._submit(self._reads, work)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for units in (self._writes, self._reads):
            units.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        if self._lock is not None:
            os.close(self._lock)

    def _start(self, loop: Callable[[sqlite3.Connection], None], connection: sqlite3.Connection, name: str) -> None:
        thread = threading.Thread(target=loop, args=(connection,), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _submit(
        self, units: "queue.SimpleQueue[_Unit | None]", work: Callable[[Transaction], Result]
    ) -> "asyncio.Future[Result]":
        if self._closed:
            raise ConfigurationError("The database is closed.", hint="The server is shutting down; try again later.")
        future: asyncio.Future[Result] = self._loop.create_future()
        units.put(_Unit(work, future))
        return future

    def _write_loop(self, connection: sqlite3.Connection) -> None:
        while (first := self._writes.get()) is not None:
            batch = [first]
            last = False
            with contextlib.suppress(queue.Empty):
                while len(batch) < MAX_BATCH:
                    unit = self._writes.get_nowait()
                    if unit is None:
                        last = True
                        break
                    batch.append(unit)
            self._commit(connection, batch)
            self._loop.call_soon_threadsafe(self._answer, batch)
            if last:
                break
        connection.close()

    def _commit(self, connection: sqlite3.Connection, batch: list[_Unit]) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            if len(batch) == 1:
                self._attempt_alone(connection, batch[0])
                return
            for unit in batch:
                self._attempt(connection, unit)
            connection.execute("COMMIT")
        except sqlite3.Error as error:  # the disk is full or gone: nothing of this batch happened
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for unit in batch:
                unit.error, unit.hints = unit.error or error, []

    def _attempt_alone(self, connection: sqlite3.Connection, unit: _Unit) -> None:
        """Without neighbours the transaction itself is the savepoint."""
        transaction = SqliteTransaction(connection, self._clock())
        try:
            unit.result = unit.work(transaction)
        except Exception as error:  # noqa: BLE001 - carried to the caller, whatever it is
            unit.error = error
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        else:
            unit.hints = transaction.hints
            connection.execute("COMMIT")

    def _attempt(self, connection: sqlite3.Connection, unit: _Unit) -> None:
        transaction = SqliteTransaction(connection, self._clock())
        connection.execute("SAVEPOINT unit")
        try:
            unit.result = unit.work(transaction)
        except Exception as error:
            unit.error = error
            if not connection.in_transaction:
                raise  # a full disk makes SQLite roll everything back: the whole batch failed
            connection.execute("ROLLBACK TO unit")
        else:
            unit.hints = transaction.hints
        connection.execute("RELEASE unit")

    def _read_loop(self, connection: sqlite3.Connection) -> None:
        while (unit := self._reads.get()) is not None:
            try:
                connection.execute("BEGIN")
                unit.result = unit.work(SqliteTransaction(connection, self._clock()))
            except Exception as error:  # noqa: BLE001 - carried to the caller, whatever it is
                unit.error = error
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            self._loop.call_soon_threadsafe(unit.answer)
        connection.close()

    def _answer(self, batch: list[_Unit]) -> None:
        for unit in batch:
            for hint in unit.hints:
                self._on_commit(hint)
        for unit in batch:
            unit.answer()


def _connect(path: Path, durability: Literal["full", "normal"]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {durability.upper()}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("PRAGMA secure_delete = ON")  # a dropped parameter may have held a secret
    return connection


def _lock(path: Path) -> int:
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ConfigurationError(
            f"The database {path.name!r} is in use by another Assent server.",
            hint="Stop the other one, or give this one its own state directory with ASSENT_HOME.",
        ) from None
    return descriptor
