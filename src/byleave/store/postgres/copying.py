"""PostgreSQL as an end of a copied record: see `byleave.store.transfer`."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from byleave.protocol.errors import ConfigurationError
from byleave.store.migrations import check_up_to_date

from .connections import NOW, TOOL, Connection, Statements, connect, name_of, roll_back, told_in_words
from .tables import (
    UNHURRIED,
    begin_alone,
    look_at_server,
    make_tables,
    note_writer,
    refuse_beside_servers,
    stored_revision,
)

ROWS_AT_ONCE = 20
"""Rows of one round trip: each may be as large as a file."""


class PostgresEnd:
    """An open transaction on a record that is read, or on an empty database that is filled."""

    def __init__(self, connection: Connection, name: str, seal_keys: tuple[bytes, ...]) -> None:
        self.name = name
        self._connection = connection
        self._statements = statements = Statements(connection)
        moment: Any = statements.execute(f"SELECT {NOW}").fetchone()
        self.transaction = statements.transaction(moment["now"], seal_keys)
        self._flags: dict[str, frozenset[str]] = {}

    def rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        with self._connection.cursor(name="byleave_copy") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(f"SELECT * FROM {table}".encode())  # noqa: S608 - our own names
            for row in cursor:
                yield dict(zip(row.keys(), row, strict=True))

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        flags = self._flags_of(table)
        with self._connection.cursor() as cursor, cursor.copy(_copy(table, columns)) as copy:
            for row in rows:
                copy.write_row([_flag(row[name]) if name in flags else row[name] for name in columns])

    def commit(self) -> None:
        self._statements.send("COMMIT")

    def _flags_of(self, table: str) -> frozenset[str]:
        """Columns of truth values, which SQLite keeps as numbers."""
        if table not in self._flags:
            found = self._statements.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(:table) AND atttypid = 'bool'::regtype",
                {"table": table},
            ).fetchall()
            self._flags[table] = frozenset(row["attname"] for row in found)
        return self._flags[table]


@contextmanager
def reading(url: str, seal_keys: tuple[bytes, ...]) -> Generator[PostgresEnd]:
    """A snapshot of a record that no server uses."""
    name = name_of(url)
    with told_in_words(name, "read"), connect(url, TOOL) as connection:
        look_at_server(connection, writes=False)
        revision = stored_revision(connection, name)
        if revision is None:
            raise ConfigurationError(f"There is no record at {name!r}.", hint="Name the database of a server.")
        check_up_to_date(name, revision)
        refuse_beside_servers(connection, "what it writes from now on would be missing in the copy")
        connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {UNHURRIED}".encode())
        try:
            yield PostgresEnd(connection, name, seal_keys)
        finally:
            roll_back(connection)


@contextmanager
def filling(url: str, seal_keys: tuple[bytes, ...]) -> Generator[PostgresEnd]:
    """An empty database with new tables; it is empty again unless this is committed."""
    name = name_of(url)
    with told_in_words(name, "written"), connect(url, TOOL) as connection:
        facts = look_at_server(connection, writes=True)
        begin_alone(connection)
        if not facts.commits_are_durable:
            connection.execute("SET LOCAL synchronous_commit = on")
        try:
            if stored_revision(connection, name) is not None:
                raise ConfigurationError(
                    f"The database {name!r} holds a record already; nothing was copied.",
                    hint="Copy into an empty database: createdb -O byleave NAME.",
                )
            make_tables(connection)
            note_writer(connection)
            yield PostgresEnd(connection, name, seal_keys)
        finally:
            roll_back(connection)


def _copy(table: str, columns: Sequence[str]) -> bytes:
    return f"COPY {table} ({', '.join(columns)}) FROM STDIN".encode()


def _flag(value: object) -> object:
    """A truth value; anything else is somebody's tampering, which PostgreSQL refuses."""
    return bool(value) if value in (0, 1) else value
