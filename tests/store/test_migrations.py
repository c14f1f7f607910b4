"""Migrations make exactly the tables the code expects."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from byleave.store import migrations
from byleave.store.migrations import NEWEST, bring_up_to_date, revision_in, script_of, upgrade
from byleave.store.tables import metadata


def test_a_migrated_database_has_exactly_the_tables_of_the_metadata(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    upgrade(url)
    upgrade(url)
    engine = create_engine(url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def _content(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()
        return [*made, *connection.execute("SELECT version_num FROM alembic_version")]


def test_a_new_database_is_exactly_what_the_migrations_make(tmp_path: Path) -> None:
    migrated, made = tmp_path / "migrated.db", tmp_path / "made.db"
    upgrade(f"sqlite:///{migrated}")
    bring_up_to_date(made)
    assert _content(made) == _content(migrated)
    assert script_of(made) == NEWEST.read_text(encoding="utf-8")
    config = Config()
    config.set_main_option("script_location", str(NEWEST.parent))
    assert revision_in(NEWEST.read_text(encoding="utf-8")) == ScriptDirectory.from_config(config).get_current_head()


def test_only_an_older_database_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    migrated: list[str] = []
    monkeypatch.setattr(migrations, "upgrade", migrated.append)
    bring_up_to_date(path)
    bring_up_to_date(path)
    assert migrated == []
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    bring_up_to_date(path)
    assert migrated == [f"sqlite:///{path}"]


def test_a_database_that_an_interrupted_start_left_empty_gets_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    bring_up_to_date(path)
    assert revision_in(script_of(path)) == revision_in(NEWEST.read_text(encoding="utf-8"))
