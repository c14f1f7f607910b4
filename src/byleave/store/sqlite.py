"""SQLite: one writer on the event loop, group commit, and threads that wait for the disk.

Units of one turn of the loop share a transaction. If one fails after a change, all are rolled back and each runs again
in a transaction of its own, so that a failing unit takes no other with it: work may run twice. Statements run on the
loop: a thread would spend more time waiting for the interpreter than SQLite spends working. Waiting for the disk does
not: with full durability a `Syncer` thread flushes the log once for everything committed before it, and only then are
hints sent and futures answered, in commit order. A `relaxed` unit is answered before it is on the disk; the next flush
keeps it.

A lock file keeps a second server out: two writers would each believe they are alone.

`Syncer` flushes the write-ahead log, and moves a long log into the database
file: most of it while writing goes on, then the rest while the writer pauses, so that the log starts anew. A file
that load made much longer is cut then, even when nothing is written any more. Neither touches a row.
"""

import asyncio
import fcntl
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import structlog

from byleave.protocol.errors import ConfigurationError
from byleave.protocol.wire import now

from .database import (
    MAX_BATCH,
    Batch,
    InUseError,
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
from .migrations import difference, objects, own_objects

log = structlog.stdlib.get_logger(__name__)

Result = TypeVar("Result")

LOG_BYTES = 8 * 1024 * 1024
"""A log longer than this is moved into the database file."""
FLUSHES_BETWEEN_LOOKS = 100
"""Flushes between two checks of the log's length."""
LOOK_SECONDS = 5.0
"""Time from a commit to a check of the log's length, at the latest."""
CUT_FACTOR = 4
"""A file of so many times `LOG_BYTES` is cut when the log starts anew; a shorter one is faster written over."""


class Syncer:
    """Flushes the log on request. At most one flush runs; requests that come meanwhile share the next."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop, *, flush: bool, pause: Callable[[], None]) -> None:
        """`pause` is called when most of a long log was moved: the writer must then call `start_anew` and wait."""
        self._pause = pause
        self._log_path = f"{path}-wal"
        self._flush = flush
        self._loop = loop
        self._worker = Worker("byleave-syncer", loop)
        self._keeper = Worker("byleave-keeper", loop)
        self._busy = False
        self._moving = False
        self._flushes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._descriptor: int | None = None
        # Cutting waits for readers by default, and the writer would wait with it: a later look tries again.
        self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)

    def request(self, done: Callable[[int, OSError | None], None], count: int) -> None:
        """Flush, then report the first `count` units as safe. Ignored while a flush runs: `done` asks again."""
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

    def look_soon(self) -> None:
        """See to the log although nothing may be written any more."""
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look_now)

    def _look_now(self) -> None:
        self._timer = None
        self.look()

    def look(self) -> None:
        """Move the log into the database file if it has grown long."""
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
        return self._is_longer(LOG_BYTES) and self._checkpoint("PASSIVE")

    def start_anew(self) -> "asyncio.Future[bool]":
        """Move the rest while nobody writes; the next commit then begins at the log's start."""
        self._moving = False
        future = self._keeper.run(self._restart)
        future.add_done_callback(lambda done: self.look_soon() if done.result() else None)
        return future

    def _restart(self) -> bool:
        """True if the file is still far too long, as while somebody reads."""
        self._checkpoint("TRUNCATE" if self._is_longer(CUT_FACTOR * LOG_BYTES) else "PASSIVE")
        return self._is_longer(CUT_FACTOR * LOG_BYTES)

    def _is_longer(self, size: int) -> bool:
        try:
            return os.stat(self._log_path).st_size > size
        except OSError:  # gone with the last connection: nothing to move
            return False

    def _checkpoint(self, mode: Literal["PASSIVE", "TRUNCATE"]) -> bool:
        try:
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})")
        except sqlite3.Error:  # such as a full disk: the log grows until a later try succeeds
            return False
        return True

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._worker.close()
        await self._keeper.close()
        self._connection.close()
        if self._descriptor is not None:
            os.close(self._descriptor)


class DamagedError(sqlite3.OperationalError):
    """The record's file is damaged, or its disk fails."""


DAMAGE_HINT = "Stop the server and look at its disk; then put back a backup."
FLUSH_HINT = "Look at the server's disk, then restart the server."
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
UNREADABLE = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS)

VACUUM_PAGES = 16
"""Pages given back in one step."""
INCREMENTAL = 2
READERS = 3
"""Connections that read: a long search must not hold up everybody else who looks at something."""


def begun(
    connection: sqlite3.Connection,
    clock: Callable[[], str],
    seal_keys: tuple[bytes, ...] = (),
    batch: Batch | None = None,
) -> Transaction:
    """A transaction on a connection that is in one."""

    def change(sql: str, parameters: Mapping[str, Any], /) -> None:
        if connection.execute(sql, parameters).rowcount != 1:
            raise StorageError("A row is not as this transaction found it.")

    return Transaction(connection.execute, connection.executemany, change, clock(), seal_keys, batch or Batch())


class SqliteDatabase:
    """See `database.Database`."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    server_id: str | None = None

    def __init__(
        self,
        path: Path,
        *,
        durability: Literal["full", "normal"] = "full",
        on_commit: OnCommit = lambda topic, fact: None,
        clock: Callable[[], str] = now,
        prepare: Callable[[], None] = lambda: None,
        before_commit: Callable[[Transaction], None] = lambda transaction: None,
        read_only: bool = False,
        seal_keys: tuple[bytes, ...] = (),
    ) -> None:
        """`prepare` migrates the tables under the lock. `before_commit` completes each transaction.

        `read_only` reads a file that may be in use.
        """
        self.path = path
        self._on_commit = on_commit
        self._before_commit = before_commit
        self._clock = clock
        self._seal_keys = seal_keys
        self._loop = asyncio.get_running_loop()
        self._lock = None if read_only else lock(path)
        try:
            prepare()
            readers = [connect(path) for _ in range(READERS)]
        except BaseException:
            if self._lock is not None:
                os.close(self._lock)
            raise
        for reader in readers:
            reader.execute("PRAGMA query_only = ON")
        self._readers = [
            (Worker(f"byleave-reader-{number}", self._loop), reader) for number, reader in enumerate(readers)
        ]
        self._large_writes = Worker("byleave-large-writes", self._loop)
        self._writer = connect(path)
        if read_only:
            self._writer.execute("PRAGMA query_only = ON")
        self._syncer = Syncer(path, self._loop, flush=durability == "full", pause=self._pause)
        self._units: deque[Unit] = deque()
        self._committed: deque[Unit] = deque()
        self._pump_is_due = False
        self._pause_is_due = False
        self._heavy: asyncio.Future[Any] | None = None
        self._closed = False
        self._all_heads = ""
        self.failure: OSError | None = None
        """The failed flush after which nothing is written or read any more."""
        self.damage: DamagedError | None = None

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
        else:
            self._units.append(Unit(work, future, relaxed, heavy))
            self._schedule()
        return future

    async def read(self, work: Callable[[Transaction], Result]) -> Result:
        if self._closed:
            raise closed()
        worker, connection = min(self._readers, key=lambda reader: reader[0].waiting)
        found = await worker.run(lambda: self._read(connection, work))
        self._check_flushes()  # only now: a read that was under way may have seen what was not kept
        return found

    @property
    def name(self) -> str:
        return str(self.path)

    def shortened(self, column: str, without: Sequence[str]) -> str:
        paths = ", ".join(f"'$.{key}'" for key in without)
        return f"json_set(json_remove({column}, {paths}), '$.shortened', json('true'))"

    def told_in_words(self) -> AbstractContextManager[None]:
        return told_in_words(self.path)

    async def check(self) -> str | None:
        return await self.read(_file_fault)

    async def check_writable(self) -> None:
        """Write one page with its old content.

        A damaged page may be any other, so damage that was met once is raised until the next start.
        """
        if self.damage is not None:
            raise self.damage
        await self.write(lambda transaction: transaction.execute("PRAGMA user_version = 0").rowcount, relaxed=True)

    async def space(self, above: int = 0) -> Space:
        return await self.read(_space)

    async def give_back(self, keep_bytes: int) -> int:
        return await self.write(lambda transaction: _give_back(transaction, keep_bytes), relaxed=True)

    async def rewrite(self) -> None:
        while self._units or self._heavy is not None or self._pump_is_due:  # noqa: ASYNC110 - nothing tells of an empty queue
            await asyncio.sleep(0.001)
        rewriting = self._large_writes.run(self._vacuum)
        self._heavy = rewriting  # nothing else is written meanwhile
        rewriting.add_done_callback(lambda done: self._resume())
        try:
            await asyncio.shield(rewriting)
        except asyncio.CancelledError:
            self._writer.interrupt()  # the file is then as it was
            await asyncio.wait([rewriting])
            rewriting.exception()
            raise

    def _vacuum(self) -> None:
        self._writer.execute("PRAGMA auto_vacuum = INCREMENTAL")  # for the file that VACUUM writes
        self._writer.execute("VACUUM")

    async def close(self) -> None:
        """Commit all waiting units, then close the file."""
        if self._closed:
            return
        self._closed = True
        while self._units or self._committed or self._heavy or self._pump_is_due:
            self._schedule()
            await asyncio.sleep(0.001)
        for worker, connection in self._readers:
            await worker.close()
            connection.close()
        await self._large_writes.close()
        await self._syncer.close()
        self._writer.close()
        if self._lock is not None:
            os.close(self._lock)

    def _schedule(self) -> None:
        if not self._pump_is_due and self._heavy is None and (self._units or self._pause_is_due):
            self._pump_is_due = True
            self._loop.call_soon(self._pump)

    def _pause(self) -> None:
        self._pause_is_due = True
        if not self._closed:
            self._schedule()

    def _pump(self) -> None:
        self._pump_is_due = False
        if self._pause_is_due:
            self._pause_is_due = False
            self._heavy = self._syncer.start_anew()
            self._heavy.add_done_callback(lambda done: self._resume())
            return
        if self._units[0].heavy:
            # As much text as a file would hold up everybody: it gets a thread and the connection to itself.
            unit = self._units.popleft()
            self._heavy = asyncio.ensure_future(self._large_writes.run(lambda: self._commit([unit])))
            self._heavy.add_done_callback(lambda done: self._heavy_done(unit))
            return
        batch: list[Unit] = []
        while self._units and len(batch) < MAX_BATCH and not self._units[0].heavy:
            batch.append(self._units.popleft())
        self._commit(batch)
        self._syncer.look_soon()
        self._schedule()
        self._settle(batch)

    def _heavy_done(self, unit: Unit) -> None:
        self._syncer.look()
        self._settle([unit])
        self._resume()

    def _resume(self) -> None:
        self._heavy = None
        self._schedule()

    def _check_flushes(self) -> None:
        if self.failure is not None:
            raise StorageError(
                f"Nothing is written or read since a flush failed: {self.failure.strerror}.", hint=FLUSH_HINT
            )

    def _commit(self, units: list[Unit]) -> None:
        try:
            self._check_flushes()
            done = self._commit_together(units)
        except Exception as error:  # noqa: BLE001 - the disk is full or gone, or memory is: nothing of these happened
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            for unit in units:
                unit.error, unit.hints = unit.error or self._sorted(error), []
            self._pause_is_due = True  # moving the log into the file may free the only room
            return
        if not done:
            for unit in units:
                unit.error, unit.hints = None, []
                self._commit([unit])

    def _commit_together(self, units: list[Unit]) -> bool:
        """Run units in one transaction. False, with nothing done, if one fails after a change and is not alone."""
        connection, batch = self._writer, Batch(all_heads=self._all_heads)
        connection.execute("BEGIN IMMEDIATE")
        transaction = begun(connection, self._clock, self._seal_keys, batch)
        for unit in units:
            transaction.hints = unit.hints
            before = connection.total_changes, len(batch.events), len(batch.links)
            try:
                unit.result = unit.work(transaction)
            except Exception as error:
                unit.error = self._sorted(error)
                if not connection.in_transaction and len(units) > 1:
                    raise  # a full disk makes SQLite roll everything back: all of them failed
                unit.hints = []
                if len(units) == 1 or before != (connection.total_changes, len(batch.events), len(batch.links)):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    return len(units) == 1
        try:
            self._before_commit(transaction)
        except sqlite3.IntegrityError as error:  # a row from outside is in the way of one unit's
            connection.execute("ROLLBACK")
            units[0].error, units[0].hints = self._sorted(error), []
            return len(units) == 1
        connection.execute("COMMIT")
        self._all_heads = batch.all_heads
        return True

    def _settle(self, batch: list[Unit]) -> None:
        """Answer units in commit order: one that waits for the disk holds back those behind it."""
        self._committed.extend(batch)
        while self._committed and (self.failure or self._committed[0].relaxed or self._committed[0].error is not None):
            unit = self._committed.popleft()
            if self.failure is not None and unit.error is None:
                told = f"A flush failed; it is not known if this was kept: {self.failure.strerror}."
                unit.error, unit.hints = UnknownEndError(told, hint=f"{FLUSH_HINT} {UnknownEndError.hint}"), []
            unit.answer(self._loop, self._on_commit)
        if self._committed:
            self._syncer.request(self._flushed, len(self._committed))

    def _flushed(self, count: int, error: OSError | None) -> None:
        """Answer the first `count` units, which are on the disk; with an error that is unknown."""
        if error is not None:
            # The kernel may have dropped the data it could not write, and would report the next flush as good: promise
            # nothing more until somebody has checked the disk and restarted.
            self.failure = error
            log.error("a flush of the record failed", path=str(self.path), error=str(error), hint=FLUSH_HINT)
        else:
            for _ in range(count):
                self._committed.popleft().answer(self._loop, self._on_commit)
        # Units at the front that need not wait are answered first: a flush only ever runs for a unit that needs it, so
        # nothing else takes units away before it is done.
        if self._committed:
            self._settle([])

    def _read(self, connection: sqlite3.Connection, work: Callable[[Transaction], Result]) -> Result:
        connection.execute("BEGIN")
        try:
            return work(begun(connection, self._clock, self._seal_keys))
        except sqlite3.Error as error:
            raise self._sorted(error) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _sorted(self, error: Exception) -> Exception:
        """Return a failing disk's error as a `DamagedError`; keep and log the first that says the file is damaged."""
        code = getattr(error, "sqlite_errorcode", None) or 0
        lasting = code & 0xFF in DAMAGED or code in UNREADABLE
        if not lasting and code & 0xFF != sqlite3.SQLITE_IOERR:
            return error
        damaged = DamagedError(str(error))
        if lasting and self.damage is None:
            self.damage = damaged
            log.error("the record is damaged", path=str(self.path), error=str(error), hint=DAMAGE_HINT)
        return damaged


def connect(path: Path) -> sqlite3.Connection:
    """A connection that begins and ends transactions only when told."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # the flush at a commit is the Syncer's
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # and so is moving the log into the file
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("PRAGMA secure_delete = ON")  # a dropped parameter may have held a secret
    return connection


def lock(path: Path) -> int:
    """Keep every other server from the record, until the returned descriptor is closed."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InUseError(
            f"The database {path.name!r} is in use by another Byleave server.",
            hint="Stop the other one, or give this one its own state directory with BYLEAVE_HOME.",
        ) from None
    return descriptor


@contextmanager
def told_in_words(path: Path) -> Generator[None]:
    """Turn SQLite's error about a record into a ConfigurationError with a hint."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        hint = "It was left as it was. Put back a backup, or begin a new record with another BYLEAVE_HOME."
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            hint = "Free disk space and start again; the record is as it was."
        raise ConfigurationError(f"The record {str(path)!r} cannot be opened: {error}.", hint=hint) from error


def _file_fault(transaction: Transaction) -> str | None:
    (told,) = transaction.execute("PRAGMA integrity_check(1)").fetchall()
    if told["integrity_check"] != "ok":
        return f"the file is not sound: {told['integrity_check']}"
    return difference(objects(transaction.execute), own_objects())


def _space(transaction: Transaction) -> Space:
    size, pages, free, mode = (
        _pragma(transaction, name) for name in ("page_size", "page_count", "freelist_count", "auto_vacuum")
    )
    return Space((pages - free) * size, free * size, mode == INCREMENTAL)


def _give_back(transaction: Transaction, keep_bytes: int) -> int:
    space = _space(transaction)
    pages = (space.free - keep_bytes) // _pragma(transaction, "page_size") if space.shrinks else 0
    if pages <= 0:
        return 0
    for _ in range(min(pages, VACUUM_PAGES)):
        # One by one: Python's sqlite3 ends this statement after its first page, whatever number it has.
        transaction.execute("PRAGMA incremental_vacuum(1)").fetchall()
    return max(0, pages - VACUUM_PAGES)


def _pragma(transaction: Transaction, name: str) -> int:
    row = transaction.execute(f"PRAGMA {name}").fetchone()
    return row[name] if row else 0
