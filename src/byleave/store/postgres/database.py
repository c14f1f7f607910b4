"""PostgreSQL: a writer with group commit in a thread, and readers beside it.

Units that wait share a transaction, as in SQLite: one flush of the server's disk answers all of them. If one fails
after a change, all are rolled back and each runs again alone, so work may run twice. Statements run in the writer's
thread, since each waits for the network; hints are sent and futures answered on the event loop, in commit order. The
time of a transaction is the server's clock.

A lost connection is replaced, and units that were not committed run again, a few times. When it was lost at the commit,
the count in `server_lease` says whether the commit was kept. Only if the server stays away are callers told that the
end is unknown; nothing that may have happened is ever done again.
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from uuid import uuid4

import psycopg
import structlog

from byleave.protocol.errors import ConfigurationError
from byleave.store.database import Batch, InUseError, Space, StorageError, Transaction, UnknownEndError
from byleave.store.units import MAX_BATCH, OnCommit, Unit, Worker, closed

from .connections import (
    FAILURES,
    LIMITS,
    NOW,
    READ,
    Connection,
    Statements,
    connect,
    is_lost,
    name_of,
    roll_back,
    storable,
    told_in_words,
)
from .tables import (
    END_LEASE,
    EXTEND_LEASE,
    LEASE_SECONDS,
    LOOK_AT_LEASE,
    Facts,
    difference_from_schema,
    look_at_server,
    make_tables,
    stored_revision,
    take_lease,
)

log = structlog.stdlib.get_logger(__name__)

Result = TypeVar("Result")

READERS = 4
"""Connections that read: a long search must not hold up everybody else who looks at something."""
RENEW_SECONDS = LEASE_SECONDS / 4
"""An idle writer extends its lease so often."""
PATIENCE_SECONDS = 2.5 * LEASE_SECONDS
"""A starting server waits so long for the lease of one that died."""
LOOK_SECONDS = 0.25
FIND_OUT_SECONDS = 10.0
"""A writer tries so long to learn the end of a commit."""
TRIES = 4
"""Times that units run before they fail: behind a pooler, several connections may have died at once."""
TRANSIENT = "40"
"""Class of the errors that tell a transaction to run again: a deadlock, a conflict."""


class _TakenOverError(Exception):
    """Another server has the lease."""


@dataclass(slots=True)
class _Reader:
    worker: Worker
    connection: Connection | None = None


@dataclass(slots=True)
class _Attempt:
    """One transaction of the writer."""

    number: int = 0
    """The count it leaves in `server_lease`; 0 before it began."""
    is_committing: bool = False
    all_heads: str = ""


class PostgresDatabase:
    """See `byleave.store.database.Database`."""

    errors: tuple[type[Exception], ...] = (psycopg.Error, StorageError)

    def __init__(
        self,
        url: str,
        *,
        durability: Literal["full", "normal"] = "full",
        on_commit: OnCommit = lambda topic, fact: None,
        clock: Callable[[], str] | None = None,
        before_commit: Callable[[Transaction], None] = lambda transaction: None,
        seal_keys: tuple[bytes, ...] = (),
    ) -> None:
        """`clock` takes the place of the server's, for tests. `before_commit` completes each transaction."""
        self.name = name_of(url)
        self._url = url
        self._durability = durability
        self._on_commit = on_commit
        self._clock = clock
        self._before_commit = before_commit
        self._seal_keys = seal_keys
        self._loop = asyncio.get_running_loop()
        self._owner = uuid4().hex
        self._writing = Worker("byleave-writer", self._loop)
        self._writer: Connection | None = None
        self._readers = [_Reader(Worker(f"byleave-reader-{number}", self._loop)) for number in range(READERS)]
        self._units: deque[Unit] = deque()
        self._busy = False
        self._closed = False
        self._may_write = False
        self._taken_over = False
        self._renewal: asyncio.TimerHandle | None = None
        self._all_heads = ""
        self._number = 0
        """Count of the last commit that is known to be kept; 0 if there is none."""
        self._facts = Facts(flushes=True, commits_are_durable=True)

    async def open(self, take_in: Callable[[Transaction], None]) -> None:
        """Make the tables of an empty database, and take the lease. `take_in` seals a new record."""
        try:
            with self.told_in_words():
                await self._writing.run(lambda: self._prepare(take_in))
                await self._take_lease()
        except BaseException:
            await self.close()
            raise
        self._may_write = True
        self._renew_later()

    async def open_to_read(self) -> None:
        """Open a record that another server may have open for writing."""
        try:
            with self.told_in_words():
                if await self._writing.run(self._look) is None:
                    raise ConfigurationError(
                        f"There is no record at {self.name!r}.",
                        hint="Point BYLEAVE_DATABASE_URL at the server's, or start a server first.",
                    )
        except BaseException:
            await self.close()
            raise

    def write(
        self, work: Callable[[Transaction], Result], *, relaxed: bool = False, heavy: bool = False
    ) -> "asyncio.Future[Result]":
        # Queued now and not when awaited, so that calls are served in their order.
        future: asyncio.Future[Result] = self._loop.create_future()
        if self._closed:
            future.set_exception(closed())
        elif not self._may_write:
            future.set_exception(StorageError("The record was opened for reading only."))
        else:
            self._units.append(Unit(work, future, relaxed, heavy))
            self._pump()
        return future

    async def read(self, work: Callable[[Transaction], Result]) -> Result:
        if self._closed:
            raise closed()
        reader = min(self._readers, key=lambda reader: reader.worker.waiting)
        return await reader.worker.run(lambda: self._read(reader, work))

    def shortened(self, column: str, without: Sequence[str]) -> str:
        # Not by PostgreSQL's JSON, which refuses what a command may well print, such as NUL. In JSON no text contains a
        # quoted name followed by a colon: its own quotes are escaped.
        strings = f'"({"|".join(without)})": ?"([^"\\\\]|\\\\.)*"'
        return f"""'{{"shortened":true,' || substr(regexp_replace({column}, '{strings}', '"shortened":true', 'g'), 2)"""

    def told_in_words(self) -> AbstractContextManager[None]:
        return told_in_words(self.name)

    async def check(self) -> str | None:
        """Compare the tables with the schema. Pages are PostgreSQL's own to check, by checksums and amcheck."""
        reader = self._readers[0]
        return await reader.worker.run(lambda: self._with_reader(reader, difference_from_schema))

    async def check_writable(self) -> None:
        await self.write(lambda transaction: None, relaxed=True)

    async def space(self) -> Space:
        """The size of all tables. Free room in them is not known here: PostgreSQL's autovacuum sees to it."""

        def work(transaction: Transaction) -> Space:
            row = transaction.execute(
                "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS used FROM pg_class "
                "WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
            ).fetchone()
            return Space(row["used"] if row else 0, 0, shrinks=True)

        return await self.read(work)

    async def give_back(self, keep_bytes: int) -> int:
        """Nothing to do: autovacuum gives room back."""
        return 0

    async def rewrite(self) -> None:
        """Nothing to do: autovacuum gives room back."""

    async def close(self) -> None:
        """Commit all waiting units, give the lease back, close the connections."""
        if self._closed:
            return
        self._closed = True
        if self._renewal is not None:
            self._renewal.cancel()
        while self._units or self._busy:  # noqa: ASYNC110 - nothing tells of an empty queue
            await asyncio.sleep(0.001)
        await self._writing.run(self._end)
        await self._writing.close()
        for reader in self._readers:
            await reader.worker.close()
            if reader.connection is not None:
                reader.connection.close()

    # Opening and closing, in the writer's thread

    def _prepare(self, take_in: Callable[[Transaction], None]) -> None:
        self._writer = connect(self._url)
        self._facts = look_at_server(self._writer, writes=True)
        if not self._facts.flushes:
            log.warning("the database does not flush its disk: fsync is off", database=self.name)
        if stored_revision(self._writer) is None:
            make_tables(self._writer, take_in, self._clock, self._seal_keys)

    def _look(self) -> str | None:
        self._writer = connect(self._url)
        look_at_server(self._writer, writes=False)
        return stored_revision(self._writer)

    async def _take_lease(self) -> None:
        """Take the lease; wait for that of a server that died without giving it back."""
        place = f"{socket.gethostname()}, process {os.getpid()}"

        def take() -> Any:
            return take_lease(self._connected(), self._owner, place)

        first = lease = await self._writing.run(take)
        until = self._loop.time() + PATIENCE_SECONDS
        while not lease.taken:
            if lease.until > first.until or self._loop.time() > until:
                raise InUseError(
                    f"The database {self.name!r} is in use by another Byleave server ({lease.place}).",
                    hint="Stop the other one, or give this one a database of its own: several servers on one "
                    "database are not supported yet.",
                )
            await asyncio.sleep(LOOK_SECONDS)
            lease = await self._writing.run(take)

    def _end(self) -> None:
        if self._writer is None:
            return
        try:
            if self._may_write and not is_lost(self._writer):
                statements = Statements(self._writer)
                statements.execute(END_LEASE, {"owner": self._owner})
                statements.send()
        except psycopg.Error as error:
            log.warning("the lease was not given back: it runs out by itself", error=str(error))
        self._writer.close()

    def _renew_later(self) -> None:
        self._renewal = self._loop.call_later(RENEW_SECONDS, self._renew)

    def _renew(self) -> None:
        """Extend the lease, as any transaction does."""
        if not self._units and not self._busy and not self._taken_over:
            self.write(lambda transaction: None, relaxed=True).add_done_callback(_hear)
        self._renew_later()

    # Writing

    def _pump(self) -> None:
        if self._busy or not self._units:
            return
        batch = [self._units.popleft()]
        # As much text as a file goes alone: the whole transaction is held in memory.
        while self._units and len(batch) < MAX_BATCH and not (batch[0].heavy or self._units[0].heavy):
            batch.append(self._units.popleft())
        self._busy = True
        self._writing.run(lambda: self._commit(batch)).add_done_callback(lambda done: self._settle(batch))

    def _settle(self, batch: list[Unit]) -> None:
        self._busy = False
        for unit in batch:
            unit.answer(self._loop, self._on_commit)
        self._pump()

    def _commit(self, units: list[Unit]) -> None:
        """Run units in one transaction, each alone if one of them fails. Never raises: errors are the units'."""
        try:
            done = self._try(units)
        except psycopg.Error as error:
            _fail(units, StorageError(f"The database failed: {_brief(error)}."))
        except Exception as error:  # noqa: BLE001 - carried to the callers, whatever it is
            _fail(units, error)
        else:
            if not done:
                for unit in units:
                    unit.error, unit.hints = None, []
                    self._commit([unit])

    def _try(self, units: list[Unit], tries: int = TRIES) -> bool:
        """False, with nothing done, if a unit failed after a change and is not alone."""
        attempt = _Attempt()
        for unit in units:
            unit.error, unit.hints = None, []
        try:
            return self._run(units, attempt)
        except _TakenOverError:
            if not self._taken_over:
                self._taken_over = True
                log.error("another server has taken the database over; this one writes nothing any more")
            raise StorageError("Another server has taken the database over.") from None
        except FAILURES as error:
            lost = self._writer is None or is_lost(self._writer)
            if attempt.is_committing and lost:
                is_kept = self._find_out(attempt.number)
                if is_kept:
                    self._number, self._all_heads = attempt.number, attempt.all_heads
                    return True
                if is_kept is None:
                    self._number, self._all_heads = 0, ""  # whatever is stored then, if it is sealed
                    raise UnknownEndError(
                        f"The database went away at a commit; it is not known if that was kept: {_brief(error)}."
                    ) from error
            if tries > 1 and (lost or (error.sqlstate or "").startswith(TRANSIENT)):
                self._roll_back()
                return self._try(units, tries - 1)
            raise
        except psycopg.Error as error:  # a statement's own: which unit's it was is known only when each runs alone
            units[0].error = error
            units[0].hints = []
            return len(units) == 1
        finally:
            self._roll_back()

    def _run(self, units: list[Unit], attempt: _Attempt) -> bool:
        connection = self._connected()
        batch, statements = Batch(all_heads=self._all_heads), Statements(connection)
        transaction = self._begin(statements, batch, attempt)
        for unit in units:
            transaction.hints = unit.hints
            before = statements.changes, len(batch.events), len(batch.links)
            try:
                unit.result = unit.work(transaction)
            except psycopg.Error:
                raise
            except Exception as error:  # noqa: BLE001 - carried to the caller, whatever it is
                unit.error, unit.hints = error, []
                if len(units) == 1 or before != (statements.changes, len(batch.events), len(batch.links)):
                    return len(units) == 1
        self._before_commit(transaction)
        attempt.all_heads, attempt.is_committing = batch.all_heads, True
        statements.send("COMMIT")
        self._number, self._all_heads = attempt.number, batch.all_heads
        return True

    def _begin(self, statements: Statements, batch: Batch, attempt: _Attempt) -> Transaction:
        """Begin, extend the lease and learn the time, in one round trip."""
        statements.execute("BEGIN")
        for limit in LIMITS.split("; "):
            statements.execute(limit)
        # A relaxed unit is as durable as any: the database may crash while we, who told of it, live.
        if self._durability == "normal":
            statements.execute("SET LOCAL synchronous_commit = off")
        elif not self._facts.commits_are_durable:
            statements.execute("SET LOCAL synchronous_commit = on")
        row = statements.execute(EXTEND_LEASE, {"owner": self._owner}).fetchone()
        if row is None:
            raise _TakenOverError
        attempt.number = row["commits"]
        if self._number and attempt.number != self._number + 1:
            log.error(
                "the database has lost commits of this server",
                commits=self._number + 1 - attempt.number,
                hint="Did it crash without flushing its disk, or fail over to a standby that missed them? What was "
                "acknowledged may be gone.",
            )
            if self._durability == "normal":
                batch.all_heads = ""  # as could be expected; else the audit chain says so from here on
        return self._transaction(statements, row["now"], batch)

    def _find_out(self, number: int) -> bool | None:
        """True if the commit with this number was kept; None if nobody can say."""
        until = time.monotonic() + FIND_OUT_SECONDS
        while time.monotonic() < until:
            try:
                connection = self._connected()
                connection.execute(f"BEGIN; {LIMITS}".encode())
                # Its old connection may still be at it: wait for its lock.
                lease: Any = connection.execute(f"{LOOK_AT_LEASE} FOR UPDATE".encode()).fetchone()
            except psycopg.Error:
                time.sleep(LOOK_SECONDS)
                continue
            finally:
                self._roll_back()
            if lease is None or lease["owner"] != self._owner:
                return None
            return lease["commits"] == number
        return None

    def _connected(self) -> Connection:
        if self._writer is None or is_lost(self._writer):
            self._writer = connect(self._url)
        return self._writer

    def _roll_back(self) -> None:
        if self._writer is not None:
            roll_back(self._writer)

    # Reading

    def _read(self, reader: _Reader, work: Callable[[Transaction], Result]) -> Result:
        def run(connection: Connection) -> Result:
            statements = Statements(connection)
            connection.execute(READ.encode())
            row = statements.execute(f"SELECT {NOW}").fetchone()
            return work(self._transaction(statements, row["now"], Batch()))

        return self._with_reader(reader, run)

    def _with_reader(self, reader: _Reader, job: Callable[[Connection], Result]) -> Result:
        """Run a job that only reads, on a living connection: again if that was lost."""
        for tries in range(TRIES, 0, -1):
            try:
                if reader.connection is None or is_lost(reader.connection):
                    reader.connection = connect(self._url)
                return job(reader.connection)
            except FAILURES as error:
                if tries == 1 or not (reader.connection is None or is_lost(reader.connection)):
                    raise StorageError(f"The database cannot be read: {_brief(error)}.") from error
            finally:
                if reader.connection is not None:
                    roll_back(reader.connection)
        raise AssertionError

    def _transaction(self, statements: Statements, moment: str, batch: Batch) -> Transaction:
        now = moment if self._clock is None else self._clock()
        execute, executemany = statements.execute, statements.executemany
        return Transaction(execute, executemany, now, self._seal_keys, batch, storable=storable)


def _fail(units: list[Unit], error: Exception) -> None:
    for unit in units:
        unit.error, unit.hints = error, []


def _brief(error: Exception) -> str:
    """The first line, without the rows that PostgreSQL quotes after it."""
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


def _hear(done: "asyncio.Future[None]") -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.warning("the lease was not extended", error=str(error))
