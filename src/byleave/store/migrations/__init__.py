"""Creates a record's tables, and migrates those of an older record. Runs at every start; mostly a no-op.

`schema.sql` is the schema: a new file is made from it. Only an older database is migrated, by Alembic, in one
transaction: a start that is killed, or runs out of disk, leaves the record as it was. Alembic is imported only then:
with SQLAlchemy it would take as long as the rest of a start. PostgreSQL's part is in `store/postgres/tables.py`.
"""

import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byleave.protocol.errors import ConfigurationError
from byleave.store.database import Execute

if TYPE_CHECKING:
    import sqlalchemy

HERE = Path(__file__).parent
SCHEMA = HERE.parent / "schema.sql"
COVERED_SINCE = "0007"
"""From this revision on the audit chain covers rows."""
REVISIONS = sorted(path.name[:4] for path in HERE.glob("versions/[0-9]*.py"))
NEWEST = REVISIONS[-1]
OLDEST_WRITER = "0015"
"""The oldest revision whose servers may go on writing into a record of this one, beside newer ones.

A migration that only adds leaves this as it is; any other raises it to its own revision. What "only adds" means is
under "Rolling upgrades" in docs/servers.md, and is tested.
"""
_TEXT = re.compile(r"\b(?:VARCHAR\(\d+\)|TEXT)(?=[\s,);]|$)")
_TABLES = ("CREATE TABLE", "ALTER TABLE")
TELLING = ("collate", "on conflict", "check", "strict", "without rowid")
"""Words of a statement that change what a table or index holds, and that SQLite does not tell in another way."""
STATISTICS = ("sqlite_stat1", "sqlite_stat4")
"""Made by ANALYZE, which any operator may run."""


def bring_up_to_date(
    path: Path, take_in: Callable[[sqlite3.Connection, str | None], None] = lambda connection, revision: None
) -> None:
    """Make or migrate the tables of an SQLite file that nobody else has open.

    `take_in` seals a new or older record in the same transaction; it gets the revision that the record had.
    """
    stored = stored_revision(path)
    if stored is None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            begin_tables(connection)
            take_in(connection, None)
            connection.execute("COMMIT")
    elif stored != NEWEST:
        upgrade(path, finish=lambda connection: take_in(connection, stored))


def begin_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of a new record, in a transaction that is left open: all tables or none."""
    # Only an empty file takes it: retention can then give pages back a few at a time.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.executescript(f"BEGIN; {SCHEMA.read_text(encoding='utf-8')}")
    connection.execute("INSERT INTO alembic_version VALUES (?)", (NEWEST,))


def stored_revision(path: Path) -> str | None:
    """The revision of a record; None for an empty file. Raises ConfigurationError if this version cannot read it."""
    if path.exists() and not path.is_file():  # a pipe would be waited for without end
        raise ConfigurationError(
            f"The database {str(path)!r} is not a file.", hint="Point BYLEAVE_DATABASE_URL at a file, or leave it out."
        )
    with closing(sqlite3.connect(path)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if not tables:
            return None
        versioned = "alembic_version" in tables
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall() if versioned else []
    if len(rows) != 1 or "feeds" not in tables:
        raise ConfigurationError(
            f"The database {str(path)!r} is not a record of Byleave.",
            hint="Point BYLEAVE_DATABASE_URL at a new file, or leave it out.",
        )
    revision = str(rows[0][0])
    check_known(str(path), revision)
    return revision


def check_known(name: str, revision: str, oldest_writer: str | None = None) -> None:
    """Refuse a record of a newer version, unless that lets servers of this one write into it."""
    is_shared = oldest_writer is not None and oldest_writer <= NEWEST < revision
    if revision not in REVISIONS and not is_shared:
        needed = f", and a server must know {oldest_writer!r} to write in them" if oldest_writer else ""
        raise ConfigurationError(
            f"The record {name!r} was written by a newer Byleave (its tables are {revision!r}{needed}).",
            hint="Install that version again, or put back the backup from before the upgrade.",
        )


def check_up_to_date(name: str, revision: str | None) -> None:
    """Refuse a record that this version could only read after migrating it."""
    if revision is None or revision < NEWEST:
        raise ConfigurationError(
            f"The record {name!r} was written by an older Byleave.",
            hint="Run `byleave db migrate`, or start the server once: either brings the record up to date.",
        )


def in_postgres(sql: str) -> str:
    """The statements in PostgreSQL's words: ids and times compare byte by byte, whatever language it is set up for."""
    return _TEXT.sub('TEXT COLLATE "C"', sql)


def typed(sql: str, dialect: str) -> str:
    """A statement of a migration, with the column types that a new record has in the database that is migrated."""
    return in_postgres(sql) if dialect == "postgresql" and sql.lstrip().startswith(_TABLES) else sql


def objects(execute: Execute) -> dict[str, object]:
    """Tables, indexes and all else in a database, whatever the order of columns and the way they were written down."""

    def told(pragma: str, name: str, columns: str, which: str = "1") -> list[tuple[Any, ...]]:
        query = f"SELECT {columns} FROM pragma_{pragma}(:of) WHERE {which}"  # noqa: S608 - our own words
        return sorted((tuple(row) for row in execute(query, {"of": name}).fetchall()), key=repr)

    found: dict[str, object] = {}
    for kind, name, table, sql in execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall():
        if kind == "table" and name in STATISTICS:
            continue
        text = " ".join((sql or "").split())
        about: list[object] = [table, [word for word in TELLING if word in text.lower()]]
        if kind == "table":
            about += told("table_xinfo", name, 'name, type, "notnull", dflt_value, pk, hidden')
            about += told("foreign_key_list", name, '"table", "from", "to", on_update, on_delete')
        elif kind == "index":
            about += told("index_xinfo", name, 'seqno, name, "desc", coll', "key")
            about += (row for row in told("index_list", table, 'name, "unique", origin, partial') if row[0] == name)
            about += re.split("where", text, maxsplit=1, flags=re.IGNORECASE)[1:]
        found[f"{kind} {name}"] = about
    return found


def difference(found: Mapping[str, object], own: Mapping[str, object]) -> str | None:
    """The first table, index or other object that is not as this server made it."""
    for name in sorted(found.keys() | own.keys()):
        if found.get(name) != own.get(name):
            return f"the {name} is not as this server made it"
    return None


@cache
def own_objects() -> Mapping[str, object]:
    """Objects of a new record."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA.read_text(encoding="utf-8"))
        return objects(connection.execute)


def upgrade(path: Path, revision: str = "head", *, finish: Callable[[sqlite3.Connection], None] | None = None) -> None:
    """Migrate an SQLite file to a revision in one transaction."""
    from sqlalchemy import URL, create_engine, event
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=NullPool)

    # By default pysqlite begins a transaction only at the first INSERT: every CREATE and ALTER before it would be
    # committed on its own, and a start that is killed between two of them could never be completed.
    @event.listens_for(engine, "connect")
    def _leave_transactions_to_us(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    try:
        with engine.begin() as connection:
            migrate(connection, revision)
            if finish is not None:
                finish(connection.connection.dbapi_connection)  # type: ignore[arg-type] - it is pysqlite's
    except DBAPIError as error:
        raise (error.orig if isinstance(error.orig, sqlite3.Error) else error) from error
    finally:
        engine.dispose()


def migrate(connection: "sqlalchemy.Connection", revision: str = "head") -> None:
    """Migrate to a revision inside the connection's transaction.

    Migrations are written in the types of `schema.sql`, for both databases.
    """
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import event

    @event.listens_for(connection, "before_cursor_execute", retval=True)
    def _type(connection: Any, _cursor: object, sql: str, parameters: Any, *_: object) -> tuple[str, Any]:
        return typed(sql, connection.dialect.name), parameters

    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
