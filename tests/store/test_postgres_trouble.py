"""A PostgreSQL that takes no changes or has no room: said in words, and nothing is lost."""

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from byleave.protocol.errors import ConfigurationError
from byleave.settings import ServerSettings
from byleave.store import StorageError, Store
from byleave.store.transfer import copy_record
from harness import postgres
from harness.postgres import PostgresServer
from harness.records import SEAL_KEYS

pytestmark = [pytest.mark.promise("D"), pytest.mark.postgres]

KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def execute(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        cursors = [connection.execute(statement.encode()) for statement in statements]
        return cursors[-1].fetchall() if cursors[-1].description else []


@pytest.fixture
async def store(settings: ServerSettings) -> AsyncIterator[Store]:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    yield store
    await store.close()


async def refusal(settings: ServerSettings) -> tuple[str, str]:
    with pytest.raises(ConfigurationError) as refused:
        await Store.open(settings, seal_keys=SEAL_KEYS)
    return refused.value.message, refused.value.hint or ""


# Read-only


@contextmanager
def read_only(url: str) -> Generator[None]:
    """Every connection from now on may only read; those that are open are ended."""
    name = url.partition("@/")[2].partition("?")[0]
    execute(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on", KILL)
    try:
        yield
    finally:
        execute(url, f"ALTER DATABASE {name} RESET default_transaction_read_only", KILL)


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_server_does_not_start_on_a_database_that_takes_no_changes(
    settings: ServerSettings, *, is_new: bool
) -> None:
    if not is_new:
        await (await Store.open(settings, seal_keys=SEAL_KEYS)).close()
    with read_only(settings.database):
        message, hint = await refusal(settings)
        assert message == "The database is read-only: it takes no changes."
        assert "default_transaction_read_only" in hint
        if not is_new:
            looking = await Store.inspect(settings, seal_keys=SEAL_KEYS)
            assert await looking.audit.verify() == []
            await looking.close()
    await (await Store.open(settings, seal_keys=SEAL_KEYS)).close()


async def test_a_database_that_takes_no_changes_any_more_keeps_nothing_and_says_so(
    store: Store, settings: ServerSettings
) -> None:
    project = await store.chat.create_project("alice", "demo")
    with read_only(settings.database):
        with pytest.raises(StorageError, match="in a read-only transaction") as failure:
            await store.chat.create_session("alice", project.id, "late")
        assert "Nothing of this request was kept" in failure.value.hint
        with pytest.raises(StorageError, match="read-only"):
            await store.check_writable()
        assert await store.chat.projects("alice") == [project]
    await store.chat.create_session("alice", project.id, "again")
    assert [check.fault for check in await store.audit.verify()] == [None]


# Full


@dataclass(frozen=True)
class LittleRoom:
    """An empty database on a disk of 24 MB."""

    url: str
    directory: Path

    def grow(self) -> None:
        subprocess.run(["mount", "-o", "remount,size=96m", str(self.directory)], check=True)


@pytest.fixture
def little_room() -> Generator[LittleRoom]:
    """At a server of its own: without room, a server can look after no other database either."""
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield from _little_room(server)


def _little_room(postgres_server: PostgresServer) -> Generator[LittleRoom]:
    directory = Path(tempfile.mkdtemp(prefix="byleave-full-"))
    name = f"little_{uuid4().hex}"
    command = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "tmpfs", str(directory)]
    try:
        if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("a small disk can be mounted by root alone")
        shutil.chown(directory, "postgres")
        postgres_server.do(f"CREATE TABLESPACE {name} LOCATION '{directory}'")
        try:
            postgres_server.do(f"CREATE DATABASE {name} TABLESPACE {name}")
            yield LittleRoom(postgres_server.url(name), directory)
            postgres_server.do(f"DROP DATABASE {name} WITH (FORCE)")
        finally:
            postgres_server.do(f"DROP TABLESPACE {name}")
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=False, capture_output=True)
        directory.rmdir()


def long_title(number: int) -> str:
    return random.Random(number).randbytes(400_000).hex()


async def test_a_full_disk_is_told_and_loses_nothing(little_room: LittleRoom, tmp_path: Path) -> None:
    settings = ServerSettings(home=tmp_path, database_url=little_room.url)
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    try:
        project = await store.chat.create_project("alice", "demo")
        kept: list[str] = []

        async def fill() -> None:
            for number in range(100):
                kept.append((await store.chat.create_session("alice", project.id, long_title(number))).id)

        with pytest.raises(StorageError, match="No space left on device") as failure:
            await fill()
        assert "Nothing of this request was kept" in failure.value.hint
        assert kept
        little_room.grow()
        assert {session.id for session in await store.chat.sessions("alice", project.id)} == set(kept)
        await store.chat.create_session("alice", project.id, "again")
        assert [check.fault for check in await store.audit.verify()] == [None]
    finally:
        await store.close()


async def test_a_copy_that_finds_no_room_leaves_the_target_empty(little_room: LittleRoom, tmp_path: Path) -> None:
    settings = ServerSettings(home=tmp_path)
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    project = await store.chat.create_project("alice", "demo")
    for number in range(30):
        await store.chat.create_session("alice", project.id, long_title(number))
    await store.close()
    with pytest.raises(ConfigurationError, match=r"cannot be written: .*No space left on device") as refused:
        await copy_record(
            settings, settings.database, little_room.url, seal_keys=SEAL_KEYS, progress=lambda table, done, total: None
        )
    assert "Free room on the database's disk" in (refused.value.hint or "")
    assert execute(little_room.url, "SELECT to_regclass('projects')") == [(None,)]


async def test_a_table_without_room_is_told_and_others_are_kept(store: Store, settings: ServerSettings) -> None:
    """The same where no small disk can be made: a quota, by a trigger."""
    project = await store.chat.create_project("alice", "demo")
    execute(
        settings.database,
        "CREATE FUNCTION full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$",
        "CREATE TRIGGER quota BEFORE INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION full()",
    )
    with pytest.raises(StorageError, match="No space left on device"):
        await store.chat.create_session("alice", project.id, "late")
    other = await store.chat.create_project("alice", "more")
    execute(settings.database, "DROP TRIGGER quota ON sessions", "DROP FUNCTION full")
    await store.chat.create_session("alice", other.id, "again")
    assert [check.fault for check in await store.audit.verify()] == [None, None]
