"""Bringing a database's tables up to date. Runs at every start; a no-op when nothing is new.

A new file gets the newest tables at once, from `newest.sql`, which `make schema` writes from what the migrations make.
Only an older database is migrated, by Alembic, in one transaction: a start that is killed, or runs out of disk, leaves
the record as it was. Alembic is loaded for that alone: with SQLAlchemy below it, it would take as long as everything
else at a start.
"""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from byleave.protocol.errors import ConfigurationError

NEWEST = Path(__file__).parent / "newest.sql"
COVERED_SINCE = "0007"
"""From this revision on the audit chain covers rows."""
_REVISION = re.compile(r"INSERT INTO \"?alembic_version\"? VALUES\('(\w+)'\)")
_KNOWN = frozenset(path.name[:4] for path in NEWEST.parent.glob("versions/[0-9]*.py"))


def bring_up_to_date(path: Path, adopt: Callable[[sqlite3.Connection], None] = lambda connection: None) -> None:
    """Make or migrate the tables of an SQLite file that nobody else has open.

    `adopt` takes the rows of a record from before the chain covered them into it, along with the migration.
    """
    newest = NEWEST.read_text(encoding="utf-8")
    stored = stored_revision(path)
    if stored is None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            # One transaction: half of it is never there.
            connection.executescript(newest.removesuffix("COMMIT;\n"))
            adopt(connection)
            connection.execute("COMMIT")
    elif stored != revision_in(newest):
        upgrade(f"sqlite:///{path}", finish=adopt if stored < COVERED_SINCE else None)


def stored_revision(path: Path) -> str | None:
    """The revision of a record; None for an empty file. One that this version cannot read is told in words."""
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
    if revision not in _KNOWN:
        raise ConfigurationError(
            f"The record {str(path)!r} was written by a newer Byleave (its tables are {revision!r}).",
            hint="Install that version again, or put back the backup from before the upgrade.",
        )
    return revision


def check_up_to_date(path: Path) -> None:
    """Refuse a record that this version could only read after migrating it."""
    if stored_revision(path) != revision_in(NEWEST.read_text(encoding="utf-8")):
        raise ConfigurationError(
            f"The record {str(path)!r} was written by an older Byleave.",
            hint="Start the server once: it brings the record up to date.",
        )


def revision_in(script: str) -> str | None:
    """The revision a script of tables leaves behind."""
    found = _REVISION.search(script)
    return found.group(1) if found else None


def upgrade(url: str, revision: str = "head", *, finish: Callable[[sqlite3.Connection], None] | None = None) -> None:
    """Migrate to a revision: all of the way, or not a step."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine, event
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    engine = create_engine(url, poolclass=NullPool)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))

    # Left to itself, pysqlite begins a transaction at the first INSERT only: every CREATE and ALTER before it would be
    # committed on its own, and a start that is killed between two of them could never be finished.
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


def script_of(path: Path) -> str:
    """The tables of an SQLite file as the script that makes them: what `newest.sql` holds."""
    with closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump()) + "\n"
