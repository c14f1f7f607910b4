"""Creates a record's tables, and migrates those of an older record. Runs at every start; mostly a no-op.

`schema.sql` is the schema: a new file is made from it. Only an older database is migrated, by Alembic, in one
transaction: a start that is killed, or runs out of disk, leaves the record as it was. Alembic is imported only then:
with SQLAlchemy it would take as long as the rest of a start.
"""

import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from byleave.protocol.errors import ConfigurationError
from byleave.store.database import Execute

HERE = Path(__file__).parent
SCHEMA = HERE.parent / "schema.sql"
COVERED_SINCE = "0007"
"""From this revision on the audit chain covers rows."""
REVISIONS = sorted(path.name[:4] for path in HERE.glob("versions/[0-9]*.py"))
NEWEST = REVISIONS[-1]
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
            # Only an empty file takes it: retention can then give pages back a few at a time.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            # One transaction: all tables or none.
            connection.executescript(f"BEGIN; {SCHEMA.read_text(encoding='utf-8')}")
            connection.execute("INSERT INTO alembic_version VALUES (?)", (NEWEST,))
            take_in(connection, None)
            connection.execute("COMMIT")
    elif stored != NEWEST:
        upgrade(path, finish=lambda connection: take_in(connection, stored))


def stored_revision(path: Path) -> str | None:
    """The revision of a record; None for an empty file. Raises ConfigurationError if this version cannot read it."""
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
    if revision not in REVISIONS:
        raise ConfigurationError(
            f"The record {str(path)!r} was written by a newer Byleave (its tables are {revision!r}).",
            hint="Install that version again, or put back the backup from before the upgrade.",
        )
    return revision


def check_up_to_date(path: Path) -> None:
    """Refuse a record that this version could only read after migrating it."""
    if stored_revision(path) != NEWEST:
        raise ConfigurationError(
            f"The record {str(path)!r} was written by an older Byleave.",
            hint="Start the server once: it brings the record up to date.",
        )


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
    """Migrate to a revision in one transaction."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import URL, create_engine, event
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=NullPool)
    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))

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
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            if finish is not None:
                finish(connection.connection.dbapi_connection)  # type: ignore[arg-type] - it is pysqlite's
    except DBAPIError as error:
        raise (error.orig if isinstance(error.orig, sqlite3.Error) else error) from error
    finally:
        engine.dispose()
