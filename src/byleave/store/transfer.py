"""A record copied into an empty database, of the same kind or the other: `byleave db copy`.

All is read in one snapshot and written in one transaction, which is committed only once the copy was verified: the
number of rows in each table, every audit chain, every covered row and all seals. Before that the target is as it was.
What is about running servers alone is not copied. The source is never written.

Rows are copied as they are, but for one thing: PostgreSQL cannot store NUL, and keeps a sign for it. Rows that this
changes get a link `copied` in the chain, with their digests before and after.
"""

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from byleave.protocol.errors import ConfigurationError
from byleave.protocol.wire import now
from byleave.settings import ServerSettings

from .audit import Audit, ChainCheck
from .database import Database, Transaction
from .ledger import COPIED, NOT_COVERED, Ledger, row_digest, sealed_value, write_batch
from .migrations import SCHEMA, begin_tables, check_up_to_date, stored_revision
from .records import placeholders
from .sqlite import begun, connect, lock, told_in_words
from .store import POSTGRES_PREFIXES, make_file, postgres, sqlite_path

Result = TypeVar("Result")

CHUNK_ROWS = 500
CHUNK_CHARACTERS = 4 * 1024 * 1024
"""A chunk ends with the row that reaches one of these; others get a turn, and Ctrl-C is heard, between two."""
NOT_COPIED = frozenset({"alembic_version", "connections", "servers"})
"""Tables of which a new record has its own rows, and those about running servers."""


class End(Protocol):
    """An open transaction on one of the two records."""

    @property
    def name(self) -> str: ...

    @property
    def transaction(self) -> Transaction: ...

    def rows(self, table: str) -> Iterator[Mapping[str, Any]]: ...

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None: ...

    def commit(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy that was made and verified."""

    rows: Mapping[str, int]
    """Numbers of copied rows, by table."""
    checks: Sequence[ChainCheck]
    changed: int
    """Rows in which NUL was replaced."""


@dataclass(slots=True)
class _Chunk:
    """Rows that are inserted together."""

    rows: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    size: int = 0

    def add(self, row: Mapping[str, Any]) -> bool:
        """True if it is full."""
        self.rows.append(row)
        self.size += sum(len(value) for value in row.values() if isinstance(value, str))
        return len(self.rows) >= CHUNK_ROWS or self.size >= CHUNK_CHARACTERS


def copied_tables() -> list[str]:
    """Tables in the order of the schema, in which none refers to a later one."""
    names = re.findall(r"^CREATE TABLE (\w+)", SCHEMA.read_text(encoding="utf-8"), re.MULTILINE)
    return [name for name in names if name not in NOT_COPIED]


async def copy_record(
    settings: ServerSettings,
    source_url: str,
    target_url: str,
    *,
    seal_keys: tuple[bytes, ...],
    progress: Callable[[str, int, int], None],
) -> Copied:
    """Copy a record that no server uses into an empty database, and verify it there.

    `progress` gets the table, the rows that were copied so far, and those there are.
    """
    with _end(settings, source_url, seal_keys, fill=False) as source:
        if sealed_value(source.transaction) is None:
            raise ConfigurationError(
                f"The record {source.name!r} was sealed with another secret; nothing was copied.",
                hint="Run this with the server's BYLEAVE_HOME, or set BYLEAVE_SECRET to the server's.",
            )
        with _end(settings, target_url, seal_keys, fill=True) as target:
            copied = await _copy(source, target, progress)
            target.commit()
            return copied


async def _copy(source: End, target: End, progress: Callable[[str, int, int], None]) -> Copied:
    counts = {table: _count(source, table) for table in copied_tables()}
    total, done = sum(counts.values()), 0
    changed: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
    for table in counts:
        for chunk in _chunks(source.rows(table)):
            storable = target.transaction.storable
            rows = chunk if storable is None else [storable(row) for row in chunk]
            changed += ((table, was, row) for was, row in zip(chunk, rows, strict=True) if was is not row)
            target.insert(table, list(rows[0]), rows)
            done += len(rows)
            progress(table, done, total)
            await asyncio.sleep(0)
    progress("", done, total)
    for table, count in counts.items():
        if (found := _count(target, table)) != count:
            raise ConfigurationError(
                f"The copy has {found:,} rows of {count:,} in {table}; nothing was kept.", hint="Try again."
            )
    _cover(target.transaction, changed)
    checks = await _verify(target)
    faults = [check for check in checks if check.fault is not None]
    if faults:
        raise ConfigurationError(
            f"The copy does not verify, and was not kept: {faults[0].project_id or 'the record'}: {faults[0].fault}.",
            hint="See what `byleave audit verify` says of the record itself.",
        )
    return Copied(counts, checks, len(changed))


def _chunks(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    chunk = _Chunk()
    for row in rows:
        if chunk.add(row):
            yield chunk.rows
            chunk = _Chunk()
    if chunk.rows:
        yield chunk.rows


def _count(end: End, table: str) -> int:
    row = end.transaction.execute(f"SELECT count(*) AS rows FROM {table}").fetchone()  # noqa: S608 - our own names
    return row["rows"] if row else 0


def _cover(transaction: Transaction, changed: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any]]]) -> None:
    """Tell the chain of rows that are not stored as they were, if it covers them."""
    by_project: dict[str, list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]] = {}
    for table, was, row in changed:
        if table in NOT_COVERED and row_digest(table, was) != row_digest(table, row):
            by_project.setdefault(row["id" if table == "projects" else "project_id"], []).append((table, was, row))
    for project_id, rows in by_project.items():
        with Ledger(transaction, project_id) as ledger:
            for table, was, row in rows:
                ledger.found(table, was)
                ledger.kept(table, row)
            ledger.audit(COPIED, "operator")
    write_batch(transaction)


class _Uncommitted:
    """The reads that verification needs, inside the transaction that made the copy."""

    errors: tuple[type[Exception], ...] = ()

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def read(self, work: Callable[[Transaction], Result]) -> Result:
        await asyncio.sleep(0)
        return work(self._transaction)

    async def check(self) -> str | None:
        """The tables were made a moment ago, where nobody else sees them."""
        return None


async def _verify(end: End) -> list[ChainCheck]:
    return await Audit(cast("Database", _Uncommitted(end.transaction))).verify()


# The ends


def _end(
    settings: ServerSettings, url: str, seal_keys: tuple[bytes, ...], *, fill: bool
) -> AbstractContextManager[End]:
    if url.startswith(POSTGRES_PREFIXES):
        postgres()
        from .postgres import copying

        return (copying.filling if fill else copying.reading)(url, seal_keys)
    return (_filling if fill else _reading)(url, seal_keys)


class SqliteEnd:
    """An open transaction on a file."""

    def __init__(self, connection: sqlite3.Connection, name: str, seal_keys: tuple[bytes, ...]) -> None:
        self.name = name
        self._connection = connection
        self.transaction = begun(connection, now, seal_keys)

    def rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        for row in self._connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - our own names
            yield dict(row)

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        self._connection.executemany(f"INSERT INTO {table} {placeholders(columns)}", rows)

    def commit(self) -> None:
        self._connection.execute("COMMIT")


@contextmanager
def _reading(url: str, seal_keys: tuple[bytes, ...]) -> Generator[SqliteEnd]:
    """A file that no server uses; none can start on it meanwhile."""
    path = sqlite_path(url)
    if not path.is_file():
        raise ConfigurationError(f"There is no database at {str(path)!r}.", hint="Name the file of a server's record.")
    with told_in_words(path):
        check_up_to_date(str(path), stored_revision(path))
        held = lock(path)
        try:
            with closing(connect(path)) as connection:
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
                yield SqliteEnd(connection, str(path), seal_keys)
        finally:
            os.close(held)


@contextmanager
def _filling(url: str, seal_keys: tuple[bytes, ...]) -> Generator[SqliteEnd]:
    """A new file with tables; it is gone again unless this is committed."""
    path = sqlite_path(url)
    if path.exists():
        raise ConfigurationError(
            f"The file {str(path)!r} exists already; nothing was copied.", hint="Name a file that does not exist."
        )
    make_file(path)
    kept = False
    try:
        with told_in_words(path), closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            begin_tables(connection)
            yield SqliteEnd(connection, str(path), seal_keys)
            kept = not connection.in_transaction
    finally:
        if not kept:
            path.unlink()
