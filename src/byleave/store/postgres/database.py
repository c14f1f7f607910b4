"""PostgreSQL: a writer with group commit in a thread, and readers beside it.

Units that wait share a transaction, as in SQLite: one flush of the server's disk answers all of them. If one fails
after a change, all are rolled back and each runs again alone, so work may run twice. Statements run in the writer's
thread, since each waits for the network; hints are sent and futures answered on the event loop, in commit order. The
time of a transaction is the server's clock.

A lost connection is replaced, and units that were not committed run again, a few times. When it was lost at the commit,
the count in this server's row of `servers` says whether the commit was kept. Only if the database stays away are
callers told that the end is unknown; nothing that may have happened is ever done again.

Several servers share a record: their transactions take turns (`tables.py`), and each notifies the others of its topics.
"""

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, TypeVar
from uuid import uuid4

import psycopg
import structlog

from byleave.protocol.errors import ConfigurationError
from byleave.store.database import (
    MAX_BATCH,
    Batch,
    Hint,
    Lookup,
    OnCommit,
    Space,
    StorageError,
    Transaction,
    Unit,
    UnknownEndError,
    Worker,
    closed,
)
from byleave.store.migrations import check_up_to_date

from .connections import (
    FAILURES,
    LIMITS,
    NOW,
    READ,
    TOOL,
    Connection,
    Statements,
    connect,
    is_lost,
    name_of,
    roll_back,
    told_in_words,
)
from .notices import NOTIFY, notices
from .sizes import space
from .tables import (
    EXTEND_LEASE,
    LEASE_SECONDS,
    REGISTER,
    TAKE_TURN,
    Facts,
    TakeIn,
    bring_up_to_date,
    difference_from_schema,
    look_at_server,
    stored_revision,
)

log = structlog.stdlib.get_logger(__name__)

Result = TypeVar("Result")

READERS = 4
"""Connections that read: a long search must not hold up everybody else who looks at something."""
RENEW_SECONDS = LEASE_SECONDS / 4
"""An idle writer extends its lease so often."""
LOOK_SECONDS = 0.25
AGAIN_SECONDS = 0.02
FIND_OUT_SECONDS = 10.0
"""A writer tries so long to learn the end of a commit."""
PATIENCE_SECONDS = 4.0
"""Units and reads are tried so long while connections are lost: a database that restarts is back by then."""
SIGN_OFF = ("DELETE FROM connections WHERE server_id = :id", "DELETE FROM servers WHERE id = :id")
TRANSIENT = "40"
"""Class of the errors that tell a transaction to run again: a deadlock, a conflict."""


@dataclass(slots=True)
class _Reader:
    worker: Worker
    connection: Connection | None = None


@dataclass(slots=True)
class _Attempt:
    """One transaction of the writer."""

    number: int = 0
    """The count it leaves in its server's row; 0 before it began."""
    total: int = 0
    """The count it leaves in the row of all servers."""
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
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """`clock` takes the place of the server's, for tests. `before_commit` completes each transaction.

        `tell` sends a committed topic to the other servers; without it, transactions notify them of theirs.
        """
        self.name = name_of(url)
        self._url = url
        self._durability = durability
        self._on_commit = on_commit
        self._clock = clock
        self._before_commit = before_commit
        self._seal_keys = seal_keys
        self._loop = asyncio.get_running_loop()
        self.server_id: str | None = uuid4().hex
        self._place = f"{socket.gethostname()}, process {os.getpid()}"
        self._tell = tell
        self._writing = Worker("byleave-writer", self._loop)
        self._writer: Connection | None = None
        self._readers = [_Reader(Worker(f"byleave-reader-{number}", self._loop)) for number in range(READERS)]
        self._units: deque[Unit] = deque()
        self._busy = False
        self._closed = False
        self._may_write = False
        self._renewal: asyncio.TimerHandle | None = None
        self._all_heads = ""
        self._number = 0
        """Count of the last commit that is known to be kept; 0 if there is none."""
        self._total = 0
        """Count of all servers' commits then."""
        self._facts = Facts(flushes=True, commits_are_durable=True)

    async def open(self, take_in: TakeIn) -> None:
        """Make or migrate the tables, and register this server. `take_in` seals a record that is new or older."""
        try:
            with self.told_in_words():
                await self._writing.run(lambda: self._prepare(take_in))
                self._may_write = True
                await self.write(lambda transaction: None)
        except BaseException:
            await self.close()
            raise
        self._renew_later()

    async def open_to_read(self) -> None:
        """Open a record that another server may have open for writing."""
        try:
            with self.told_in_words():
                revision = await self._writing.run(self._look)
                if revision is None:
                    raise ConfigurationError(
                        f"There is no record at {self.name!r}.",
                        hint="Point BYLEAVE_DATABASE_URL at the server's, or start a server first.",
                    )
                check_up_to_date(self.name, revision)
        except BaseException:
            await self.close()
            raise

    @staticmethod
    def revision(url: str) -> str | None:
        """The revision of a record; None for an empty database."""
        with told_in_words(name_of(url)), connect(url, TOOL) as connection:
            look_at_server(connection, writes=False)
            return stored_revision(connection, name_of(url))

    def write(
        self,
        work: Callable[[Transaction], Result],
        *,
        relaxed: bool = False,
        heavy: bool = False,
        ahead: Callable[[], Sequence[Lookup]] | None = None,
    ) -> "asyncio.Future[Result]":
        # Queued now and not when awaited, so that calls are served in their order.
        future: asyncio.Future[Result] = self._loop.create_future()
        if self._closed:
            future.set_exception(closed())
        elif not self._may_write:
            future.set_exception(StorageError("The record was opened for reading only."))
        else:
            self._units.append(Unit(work, future, relaxed, heavy, ahead))
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

    async def space(self, above: int = 0) -> Space:
        return await self.read(lambda transaction: space(transaction, above))

    async def give_back(self, keep_bytes: int) -> int:
        """Nothing to do: autovacuum gives room to new rows."""
        return 0

    async def rewrite(self) -> None:
        """Nothing to do: autovacuum gives room to new rows."""

    async def close(self) -> None:
        """Commit all waiting units, sign this server off, close the connections."""
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

    def _prepare(self, take_in: TakeIn) -> None:
        with connect(self._url, TOOL) as connection:
            self._facts = look_at_server(connection, writes=True)
            bring_up_to_date(connection, self._url, take_in, self._clock, self._seal_keys)
        if not self._facts.flushes:
            log.warning("the database does not flush its disk: fsync is off", database=self.name)

    def _look(self) -> str | None:
        self._writer = connect(self._url)
        look_at_server(self._writer, writes=False)
        return stored_revision(self._writer, self.name)

    def _end(self) -> None:
        if self._writer is None:
            return
        try:
            if self._may_write and not is_lost(self._writer):
                statements = Statements(self._writer)
                for statement in ("BEGIN", TAKE_TURN, *SIGN_OFF):
                    statements.execute(statement, {"id": self.server_id})
                self._notify(statements, ["servers"])
                statements.send("COMMIT")
        except psycopg.Error as error:
            log.warning("the lease was not given back: it runs out by itself", error=str(error))
        self._writer.close()

    def _renew_later(self) -> None:
        self._renewal = self._loop.call_later(RENEW_SECONDS, self._renew)

    def _renew(self) -> None:
        """Extend the lease, as any transaction does."""
        if not self._units and not self._busy:
            self.write(_tell_of_us, relaxed=True).add_done_callback(_hear)
        self._renew_later()

    # Writing

    def _pump(self) -> None:
        if self._busy or not self._units:
            return
        batch = [self._units.popleft()]
        self._busy = True
        self._writing.run(lambda: self._commit(batch, grows=True)).add_done_callback(lambda done: self._settle(batch))

    def _take_waiting(self, batch: list[Unit]) -> list[Unit]:
        """Add units that wait to a batch; return them."""
        taken: list[Unit] = []
        # As much text as a file goes alone: the whole transaction is held in memory.
        while self._units and len(batch) < MAX_BATCH and not (batch[0].heavy or self._units[0].heavy):
            batch.append(self._units.popleft())
            taken.append(batch[-1])
        return taken

    def _settle(self, batch: list[Unit]) -> None:
        self._busy = False
        for unit in batch:
            unit.answer(self._loop, self._on_commit)
        if self._tell is not None:
            for topic in {hint.topic for unit in batch for hint in unit.hints if not hint.stays}:
                self._tell(topic)
        self._pump()

    def _commit(self, units: list[Unit], *, grows: bool = False) -> None:
        """Run units in one transaction, each alone if one of them fails. Never raises: errors are the units'.

        `grows`: units that come while the others wait for their turn or run are added to them.
        """
        try:
            done = self._try(units, grows=grows)
        except psycopg.Error as error:
            failure = StorageError(f"The database failed: {_brief(error)}.")
            failure.__cause__ = error  # what it was, for who must tell one from another
            _fail(units, failure)
        except Exception as error:  # noqa: BLE001 - carried to the callers, whatever it is
            _fail(units, error)
        else:
            if not done:
                for unit in units:
                    unit.error, unit.hints = None, []
                    self._commit([unit])

    def _try(self, units: list[Unit], *, grows: bool) -> bool:
        """False, with nothing done, if a unit failed after a change and is not alone."""
        until = time.monotonic() + PATIENCE_SECONDS
        while (done := self._try_once(units, until, grows=grows)) is None:
            pass
        return done

    def _try_once(self, units: list[Unit], until: float, *, grows: bool) -> bool | None:
        """None if it must be tried again."""
        attempt = _Attempt()
        for unit in units:
            unit.error, unit.hints = None, []
        try:
            return self._run(units, attempt, grows=grows)
        except FAILURES as error:
            lost = self._writer is None or is_lost(self._writer)
            if attempt.is_committing and lost:
                is_kept = self._find_out(attempt.number)
                if is_kept:
                    self._keep(attempt)
                    return True
                if is_kept is None:
                    self._keep(_Attempt(all_heads=self._all_heads))
                    raise UnknownEndError(
                        f"The database went away at a commit; it is not known if that was kept: {_brief(error)}."
                    ) from error
            if time.monotonic() > until or not (lost or (error.sqlstate or "").startswith(TRANSIENT)):
                raise
            time.sleep(AGAIN_SECONDS)
            return None
        except psycopg.errors.DivisionByZero:  # somebody who takes no turns changed a row that we had read
            if time.monotonic() > until:
                raise
            return None
        except psycopg.Error as error:  # a statement's own: which unit's it was is known only when each runs alone
            units[0].error = error
            units[0].hints = []
            return len(units) == 1
        finally:
            self._roll_back()

    def _run(self, units: list[Unit], attempt: _Attempt, *, grows: bool) -> bool:
        connection = self._connected()
        batch, statements = Batch(), Statements(connection)
        if grows:
            self._take_waiting(units)
        transaction = self._begin(statements, batch, attempt, units)
        ready = [*units]
        while ready:
            for unit in ready:
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
            ready = self._take_waiting(units) if grows else []
            statements.look_ahead(_lookups(ready))
        self._before_commit(transaction)
        self._notify(statements, (hint.topic for unit in units for hint in unit.hints if not hint.stays))
        attempt.all_heads, attempt.is_committing = batch.all_heads, True
        statements.send("COMMIT")
        self._keep(attempt)
        return True

    def _keep(self, attempt: _Attempt) -> None:
        """Note what the next transaction must find."""
        self._number, self._total, self._all_heads = attempt.number, attempt.total, attempt.all_heads

    def _notify(self, statements: Statements, topics: Iterable[str]) -> None:
        if self._tell is None:
            for text in notices(self.server_id or "", topics):
                statements.execute(NOTIFY, {"text": text})

    def _begin(self, statements: Statements, batch: Batch, attempt: _Attempt, units: list[Unit]) -> Transaction:
        """Begin, wait for our turn, extend the lease, learn the time and look ahead, in one round trip."""
        statements.execute("BEGIN")
        for limit in LIMITS.split("; "):
            statements.execute(limit)
        # A relaxed unit is as durable as any: the database may crash while we, who told of it, live.
        if self._durability == "normal":
            statements.execute("SET LOCAL synchronous_commit = off")
        elif not self._facts.commits_are_durable:
            statements.execute("SET LOCAL synchronous_commit = on")
        turn = statements.execute(TAKE_TURN)
        lease = statements.execute(EXTEND_LEASE, {"id": self.server_id})
        statements.look_ahead(_lookups(units))
        row = lease.fetchone()
        attempt.total = turn.fetchone()["commits"]
        if row is None:  # new, or forgotten by the others while it slept
            self._number = 0
            row = statements.execute(REGISTER, {"id": self.server_id, "place": self._place}).fetchone()
        attempt.number = row["commits"]
        missing = max(self._number + 1 - attempt.number if self._number else 0, self._total + 1 - attempt.total)
        batch.all_heads = self._all_heads
        if missing > 0:
            log.error(
                "the database has lost commits of this server",
                commits=missing,
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
                found: Any = connection.execute(
                    "SELECT commits FROM servers WHERE id = %s FOR UPDATE", (self.server_id,)
                ).fetchone()
            except psycopg.Error:
                time.sleep(LOOK_SECONDS)
                continue
            finally:
                self._roll_back()
            return None if found is None else found["commits"] == number
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
            for statement in READ.split("; "):
                statements.execute(statement)
            row = statements.execute(f"SELECT {NOW}").fetchone()
            return work(self._transaction(statements, row["now"], Batch()))

        return self._with_reader(reader, run)

    def _with_reader(self, reader: _Reader, job: Callable[[Connection], Result]) -> Result:
        """Run a job that only reads, on a living connection: again if that was lost."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if reader.connection is None or is_lost(reader.connection):
                    reader.connection = connect(self._url)
                return job(reader.connection)
            except FAILURES as error:
                if time.monotonic() > until or not (reader.connection is None or is_lost(reader.connection)):
                    raise StorageError(
                        f"The database cannot be read: {_brief(error)}.",
                        hint="Try again in a moment; if you sent something, look first whether it was kept.",
                    ) from error
            finally:
                if reader.connection is not None:
                    roll_back(reader.connection)
            time.sleep(AGAIN_SECONDS)

    def _transaction(self, statements: Statements, moment: str, batch: Batch) -> Transaction:
        return statements.transaction(moment if self._clock is None else self._clock(), self._seal_keys, batch)


def _tell_of_us(transaction: Transaction) -> None:
    transaction.hints.append(Hint("servers"))


def _lookups(units: list[Unit]) -> Iterator[Lookup]:
    return chain.from_iterable(unit.ahead() for unit in units if unit.ahead is not None)


def _fail(units: list[Unit], error: Exception) -> None:
    for unit in units:
        unit.error, unit.hints = error, []


def _brief(error: Exception) -> str:
    """The first line, without the rows that PostgreSQL quotes after it."""
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


def _hear(done: "asyncio.Future[None]") -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.warning("the lease was not extended", error=str(error))
