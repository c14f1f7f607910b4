"""Older and newer records in PostgreSQL: migrated in one transaction, shared by two versions, or refused in words."""

import asyncio
import shutil
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from byleave.protocol.errors import ConfigurationError
from byleave.settings import ServerSettings
from byleave.store import InUseError, Store, migrations
from byleave.store.postgres import tables
from byleave.store.postgres.connections import TOOL, connect
from harness.records import SEAL_KEYS

pytestmark = [pytest.mark.promise("D"), pytest.mark.postgres]

FIRST = Path(__file__).parent / "records" / "0011-postgres.sql"
"""A record of the first revision that PostgreSQL had."""
ADDS = "CREATE TABLE later (id VARCHAR(64) NOT NULL PRIMARY KEY, note TEXT, at VARCHAR(24))"
CHANGES = "ALTER TABLE later ADD COLUMN more VARCHAR(9)"
LATER = "9000"


def execute(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursors = [connection.execute(statement.encode()) for statement in statements]
        return cursors[-1].fetchall() if cursors[-1].description else []


@pytest.fixture
def old_record(settings: ServerSettings) -> ServerSettings:
    execute(settings.database, FIRST.read_text(encoding="utf-8"))
    return settings


NextVersion = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NextVersion:
    """Be the next version of Byleave, whose one migration runs these statements."""

    @contextmanager
    def patched(*statements: str, oldest_writer: str = migrations.NEWEST) -> Generator[None]:
        here = tmp_path / "migrations"
        shutil.copytree(migrations.HERE, here, dirs_exist_ok=True)
        lines = "".join(f"    op.execute({statement!r})\n" for statement in statements)
        (here / "versions" / f"{LATER}_later.py").write_text(
            "from alembic import op\n"
            f"revision, down_revision = {LATER!r}, {migrations.NEWEST!r}\n\n\ndef upgrade() -> None:\n{lines}"
        )
        schema = tmp_path / "schema.sql"
        schema.write_text(f"{migrations.SCHEMA.read_text(encoding='utf-8')}\n{';'.join(statements)};\n")
        with monkeypatch.context() as version:
            version.setattr(migrations, "HERE", here)
            version.setattr(migrations, "SCHEMA", schema)
            version.setattr(migrations, "REVISIONS", [*migrations.REVISIONS, LATER])
            version.setattr(migrations, "NEWEST", LATER)
            version.setattr(migrations, "OLDEST_WRITER", oldest_writer)
            yield

    return patched


async def start(settings: ServerSettings) -> list[str | None]:
    """Start on the record and stop; gives the faults of its chains, and of its tables."""
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    try:
        return [check.fault for check in await store.audit.verify()]
    finally:
        await store.close()


def stored_revision(settings: ServerSettings) -> str:
    ((revision,),) = execute(settings.database, "SELECT version_num FROM alembic_version")
    return revision


def migrate(settings: ServerSettings) -> None:
    """Migrate as a start does, beside whatever runs."""
    with connect(settings.database, TOOL) as connection:
        tables.bring_up_to_date(connection, settings.database, lambda transaction, was: None, None, SEAL_KEYS)


async def test_the_first_record_gets_exactly_the_tables_of_a_new_one_and_verifies(old_record: ServerSettings) -> None:
    look = "SELECT id, status, result FROM tool_executions ORDER BY id"
    before = execute(old_record.database, look)
    assert len(before) == 6
    assert await start(old_record) == [None, None]
    assert (stored_revision(old_record), execute(old_record.database, look)) == (migrations.NEWEST, before)
    store = await Store.open(old_record, seal_keys=SEAL_KEYS)
    (project,) = await store.chat.projects("alice")
    await store.chat.create_session("alice", project.id, "after")
    await store.close()
    assert await start(old_record) == [None, None]


async def test_an_older_record_is_migrated_with_the_types_of_postgresql(
    old_record: ServerSettings, next_version: NextVersion
) -> None:
    with next_version(ADDS, CHANGES):
        assert await start(old_record) == [None, None]
        assert stored_revision(old_record) == LATER
        assert await Store.revision(old_record) == LATER


async def test_a_migration_that_fails_leaves_the_record_as_it_was(
    old_record: ServerSettings, next_version: NextVersion
) -> None:
    assert await start(old_record) == [None, None]
    with (
        next_version(ADDS, "ALTER TABLE nowhere ADD COLUMN note TEXT"),
        pytest.raises(ConfigurationError, match='relation "nowhere" does not exist') as refused,
    ):
        await start(old_record)
    assert "as it was" in (refused.value.hint or "")
    assert execute(old_record.database, "SELECT to_regclass('later')") == [(None,)]
    assert await start(old_record) == [None, None]


async def test_of_two_starts_at_once_one_migrates(old_record: ServerSettings, next_version: NextVersion) -> None:
    with next_version(ADDS):
        await asyncio.gather(*(asyncio.to_thread(migrate, old_record) for _ in range(4)))
        assert await start(old_record) == [None, None]


# Rolling upgrades


async def test_a_server_goes_on_beside_a_newer_version_whose_migration_only_adds(
    old_record: ServerSettings, next_version: NextVersion
) -> None:
    store = await Store.open(old_record, seal_keys=SEAL_KEYS)
    (project,) = await store.chat.projects("alice")
    with next_version(ADDS):
        await asyncio.to_thread(migrate, old_record)
    await store.chat.create_session("alice", project.id, "beside a newer one")
    (fault,) = {check.fault for check in await store.audit.verify()} - {None}
    assert fault == "its tables are those of a newer Byleave ('9000'): verify it with that version"
    await store.close()
    again = await Store.open(old_record, seal_keys=SEAL_KEYS)
    await again.chat.create_session("alice", project.id, "after a restart of the older one")
    await again.close()
    assert stored_revision(old_record) == LATER
    with next_version(ADDS):
        assert await start(old_record) == [None, None]


async def test_a_server_refuses_a_record_that_needs_a_newer_writer(
    old_record: ServerSettings, next_version: NextVersion
) -> None:
    with next_version(ADDS, oldest_writer=LATER):
        await start(old_record)
    with pytest.raises(ConfigurationError, match="must know '9000' to write in them") as refused:
        await start(old_record)
    assert "newer Byleave (its tables are '9000'" in refused.value.message
    assert "Install that version again" in (refused.value.hint or "")


async def test_tables_are_not_changed_under_servers_that_could_not_go_on(
    old_record: ServerSettings, next_version: NextVersion
) -> None:
    store = await Store.open(old_record, seal_keys=SEAL_KEYS)
    with next_version(ADDS, oldest_writer=LATER):
        with pytest.raises(InUseError, match="in use by a Byleave server") as refused:
            await asyncio.to_thread(migrate, old_record)
        assert "Stop all servers" in (refused.value.hint or "")
        await store.close()
        assert await start(old_record) == [None, None]
