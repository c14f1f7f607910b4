"""Creates a record's tables, and migrates those of an older record. Runs at every start; mostly a no-op.

`schema.sql` is the schema: a new file is made from it. Only an older database is migrated, by Alembic, in one
transaction: a start that is killed, or runs out of disk, leaves the record as it was. Alembic is imported only then:
with SQLAlchemy it would take as long as the rest of a start.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from byleave.protocol.errors import ConfigurationError

HERE = Path(__file__).parent
SCHEMA = HERE.parent / "schema.sql"
COVERED_SINCE = "0007"
"""From this revision on the audit chain covers rows."""
REVISIONS = sorted(path.name[:4] for path in HERE.glob("versions/[0-9]*.py"))
NEWEST = REVISIONS[-1]


def bring_up_to_date(path: Path, adopt: Callable[[sqlite3.Connection], None] = lambda connection: None) -> None:
    """Make or migrate the tables of an SQLite file that nobody else has open.

    `adopt` adds the rows of a new or older record to its chain, in the same transaction.
    """
    stored = stored_revision(path)
    if stored is None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            # Only an empty file takes it: retention can then give pages back a few at a time.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            # One transaction: all tables or none.
            connection.executescript(f"BEGIN; {SCHEMA.read_text(encoding='utf-8')}")
            connection.execute("INSERT INTO alembic_version VALUES (?)", (NEWEST,))
            adopt(connection)
            connection.execute("COMMIT")
    elif stored != NEWEST:
        upgrade(f"sqlite:///{path}", finish=adopt if stored < COVERED_SINCE else None)


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


def upgrade(url: str, revision: str = "head", *, finish: Callable[[sqlite3.Connection], None] | None = None) -> None:
    """Migrate to a revision in one transaction."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine, event
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    engine = create_engine(url, poolclass=NullPool)
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
