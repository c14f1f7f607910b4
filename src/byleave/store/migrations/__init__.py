"""Bringing a database's tables up to date. Runs at every start; a no-op when nothing is new.

A new file gets the newest tables at once, from `newest.sql`, which `make schema` writes from what the migrations make.
Only an older database is migrated, by Alembic. It is loaded for that alone: with SQLAlchemy below it, it would take as
long as everything else at a start.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

NEWEST = Path(__file__).parent / "newest.sql"
_REVISION = re.compile(r"INSERT INTO \"?alembic_version\"? VALUES\('(\w+)'\)")


def bring_up_to_date(path: Path) -> None:
    """Make or migrate the tables of an SQLite file that nobody else has open."""
    newest = NEWEST.read_text(encoding="utf-8")
    with closing(sqlite3.connect(path)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if not tables:
            connection.executescript(newest)  # one transaction: half of it is never there
            return
        if "alembic_version" in tables:
            stored = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            if stored == [(revision_in(newest),)]:
                return
    upgrade(f"sqlite:///{path}")


def revision_in(script: str) -> str | None:
    """The revision a script of tables leaves behind."""
    found = _REVISION.search(script)
    return found.group(1) if found else None


def upgrade(url: str) -> None:
    """Migrate to the newest revision, one by one."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine = create_engine(url, poolclass=NullPool)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()


def script_of(path: Path) -> str:
    """The tables of an SQLite file as the script that makes them: what `newest.sql` holds."""
    with closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump()) + "\n"
