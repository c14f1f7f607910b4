"""`byleave db copy`: all of a record or nothing of it arrives in another database, and is proven there."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.protocol.errors import ConfigurationError
from byleave.settings import ServerSettings
from byleave.store import InUseError, Store, transfer
from byleave.store.ledger import COPIED
from byleave.store.transfer import Copied, copied_tables, copy_record
from harness.records import SEAL_KEYS, Clock, Records

pytestmark = [pytest.mark.promise("D"), pytest.mark.postgres]


@pytest.fixture
def at_home(tmp_path: Path) -> ServerSettings:
    """The record in SQLite."""
    return ServerSettings(home=tmp_path / "home")


@asynccontextmanager
async def filled(settings: ServerSettings) -> AsyncGenerator[Records]:
    """A record with two users' calls."""
    clock = Clock()
    store = await Store.open(settings, seal_keys=SEAL_KEYS, clock=clock)
    for user in ("bob", "alice"):
        project = await store.chat.create_project(user, "bücher")
        session = await store.chat.create_session(user, project.id, "first")
        records = Records(store, clock, settings, project, session)
        for number in range(3):
            row = await begin(store, records.call(user_id=user), Clearance("risk:LOW"), client_id="c1")
            if number:
                result = '{"success":true,"content":"it\'s\\\\\\n\\t\\\\N"}'
                await settle(
                    store,
                    row.id,
                    user_id=user,
                    project_id=project.id,
                    client_id="c1",
                    result=result,
                    result_hash="h",
                )
    yield records  # pyright: ignore[reportPossiblyUnboundVariable]
    await store.close()


async def copy(settings: ServerSettings, source: str, target: str, **options: Any) -> Copied:
    options = {"seal_keys": SEAL_KEYS, "progress": lambda *_: None, **options}
    return await copy_record(settings, source, target, **options)


async def refusal(settings: ServerSettings, source: str, target: str, **options: Any) -> tuple[str, str]:
    with pytest.raises(ConfigurationError) as refused:
        await copy(settings, source, target, **options)
    return refused.value.message, refused.value.hint or ""


def rows(url: str) -> dict[str, list[tuple[object, ...]]]:
    """All of a record; truth values as numbers."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in copied_tables()}
    with psycopg.connect(url) as connection:
        found = {table: connection.execute(f"SELECT * FROM {table}".encode()).fetchall() for table in copied_tables()}
    return {
        table: sorted((tuple(int(v) if isinstance(v, bool) else v for v in row) for row in some), key=repr)
        for table, some in found.items()
    }


def execute(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursors = [connection.execute(statement.encode()) for statement in statements]
        return cursors[-1].fetchall() if cursors[-1].description else []


def is_empty(url: str) -> bool:
    ((tables,),) = execute(url, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")
    return tables == 0


async def test_a_record_moves_to_postgresql_and_back_as_it_is(at_home: ServerSettings, database_url: str) -> None:
    async with filled(at_home):
        pass
    told: list[tuple[str, int, int]] = []
    copied = await copy(at_home, at_home.database, database_url, progress=lambda *step: told.append(step))
    assert rows(at_home.database) == rows(database_url)
    assert copied.rows["tool_executions"] == 6
    assert [check.fault for check in copied.checks] == [None, None]
    assert told[-1] == ("", sum(copied.rows.values()), sum(copied.rows.values()))
    back = at_home.home / "back.db"
    await copy(at_home, database_url, f"sqlite:///{back}")
    assert rows(f"sqlite:///{back}") == rows(database_url)
    assert back.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("back", [False, True])
async def test_the_server_goes_on_with_the_copy(at_home: ServerSettings, database_url: str, *, back: bool) -> None:
    async with filled(at_home) as records:
        project_id = records.project.id
    await copy(at_home, at_home.database, database_url)
    there = at_home.model_copy(update={"database_url": database_url})
    if back:
        there = at_home.model_copy(update={"database_url": f"sqlite:///{at_home.home / 'back.db'}"})
        await copy(at_home, database_url, there.database)
    store = await Store.open(there, seal_keys=SEAL_KEYS)
    await store.chat.create_session("alice", project_id, "in the copy")
    assert [check.fault for check in await store.audit.verify()] == [None, None]
    await store.close()


async def test_an_empty_record_is_copied(at_home: ServerSettings, database_url: str) -> None:
    await (await Store.open(at_home, seal_keys=SEAL_KEYS)).close()
    assert (await copy(at_home, at_home.database, database_url)).checks == []
    there = at_home.model_copy(update={"database_url": database_url})
    store = await Store.open(there, seal_keys=SEAL_KEYS)
    await store.chat.create_project("alice", "demo")
    assert [check.fault for check in await store.audit.verify()] == [None]
    await store.close()


async def test_a_nul_is_replaced_and_the_chain_says_so(at_home: ServerSettings, database_url: str) -> None:
    async with filled(at_home) as records:
        project_id = records.project.id
        await records.store.chat.create_session("alice", project_id, "a\x00b")
    copied = await copy(at_home, at_home.database, database_url)
    assert (copied.changed, [check.fault for check in copied.checks]) == (1, [None, None])
    assert execute(database_url, "SELECT title FROM sessions WHERE title LIKE 'a%'") == [("a␀b",)]
    assert execute(database_url, f"SELECT project_id, actor FROM audit WHERE action = '{COPIED}'") == [
        (project_id, "operator")
    ]


async def test_chunks_are_bounded_by_rows_and_by_size(
    at_home: ServerSettings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CHUNK_ROWS", 4)
    monkeypatch.setattr(transfer, "CHUNK_CHARACTERS", 2000)
    async with filled(at_home):
        pass
    steps: list[int] = []
    await copy(at_home, at_home.database, database_url, progress=lambda table, done, total: steps.append(done))
    assert max(b - a for a, b in pairwise(steps)) <= 4
    assert rows(at_home.database) == rows(database_url)


# Refusals


async def test_a_target_that_holds_anything_is_left_alone(at_home: ServerSettings, database_url: str) -> None:
    async with filled(at_home):
        pass
    await copy(at_home, at_home.database, database_url)
    before = rows(database_url)
    message, hint = await refusal(at_home, at_home.database, database_url)
    assert "holds a record already; nothing was copied" in message
    assert "createdb" in hint
    assert rows(database_url) == before
    message, hint = await refusal(at_home, database_url, at_home.database)
    assert "exists already; nothing was copied" in message
    execute(database_url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "CREATE TABLE precious (id INTEGER)")
    message, hint = await refusal(at_home, at_home.database, database_url)
    assert "no record of Byleave" in message


async def test_a_record_in_use_is_not_copied(at_home: ServerSettings, database_url: str) -> None:
    async with filled(at_home):
        with pytest.raises(InUseError, match="in use by another Byleave server"):
            await copy(at_home, at_home.database, database_url)
    assert is_empty(database_url)
    await copy(at_home, at_home.database, database_url)
    there = at_home.model_copy(update={"database_url": database_url})
    back = f"sqlite:///{at_home.home / 'back.db'}"
    store = await Store.open(there, seal_keys=SEAL_KEYS)
    with pytest.raises(InUseError, match="would be missing in the copy"):
        await copy(at_home, database_url, back)
    await store.close()
    await copy(at_home, database_url, back)


async def test_a_record_of_another_secret_is_not_copied(at_home: ServerSettings, database_url: str) -> None:
    async with filled(at_home):
        pass
    message, hint = await refusal(at_home, at_home.database, database_url, seal_keys=(b"another",))
    assert "sealed with another secret; nothing was copied" in message
    assert "BYLEAVE_SECRET" in hint
    assert is_empty(database_url)


async def test_a_record_that_does_not_verify_leaves_no_copy(at_home: ServerSettings, database_url: str) -> None:
    async with filled(at_home):
        pass
    with closing(sqlite3.connect(at_home.home / "byleave.db")) as connection, connection:
        connection.execute("UPDATE sessions SET title = 'forged'")
    message, hint = await refusal(at_home, at_home.database, database_url)
    assert "does not verify, and was not kept" in message
    assert "was changed" in message
    assert "audit verify" in hint
    assert is_empty(database_url)


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE tool_executions SET network = 7",
        "UPDATE tool_executions SET network = x'00'",
        "UPDATE messages SET position = 'first'",
    ],
)
async def test_values_that_no_server_wrote_leave_no_copy(
    at_home: ServerSettings, database_url: str, tampering: str
) -> None:
    async with filled(at_home):
        pass
    with closing(sqlite3.connect(at_home.home / "byleave.db")) as connection, connection:
        connection.execute(
            "INSERT INTO messages SELECT 'm1', project_id, id, NULL, 'user', 'hi', 77, created_at FROM sessions LIMIT 1"
        )
        connection.execute(tampering)
    message, _ = await refusal(at_home, at_home.database, database_url)
    assert "cannot be written" in message or "does not verify" in message
    assert is_empty(database_url)


async def test_an_older_record_is_to_be_migrated_first(at_home: ServerSettings, database_url: str) -> None:
    async with filled(at_home):
        pass
    with closing(sqlite3.connect(at_home.home / "byleave.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0009'")
    message, hint = await refusal(at_home, at_home.database, database_url)
    assert "older Byleave" in message
    assert "byleave db migrate" in hint


async def test_a_target_that_is_down_or_a_missing_source_is_told(
    at_home: ServerSettings, database_url: str, tmp_path: Path
) -> None:
    async with filled(at_home):
        pass
    message, hint = await refusal(at_home, at_home.database, "postgresql://byleave:hush@127.0.0.1:1/byleave")
    assert "'postgresql://byleave@127.0.0.1:1/byleave' cannot be written" in message
    assert "host, port" in hint
    assert "hush" not in message + hint
    message, hint = await refusal(at_home, f"sqlite:///{tmp_path / 'no.db'}", database_url)
    assert "There is no database" in message
    message, hint = await refusal(at_home, database_url, f"sqlite:///{tmp_path / 'new.db'}")
    assert "There is no record" in message
    assert not (tmp_path / "new.db").exists()


async def test_a_copy_that_is_stopped_leaves_nothing(
    at_home: ServerSettings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CHUNK_ROWS", 1)
    async with filled(at_home):
        pass
    half = asyncio.Event()
    task = asyncio.create_task(
        copy(
            at_home, at_home.database, database_url, progress=lambda table, done, total: done * 2 > total and half.set()
        )
    )
    await half.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_empty(database_url)
    back = at_home.home / "back.db"
    await copy(at_home, at_home.database, database_url)
    task = asyncio.create_task(copy(at_home, database_url, f"sqlite:///{back}"))
    while not back.exists():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not back.exists()
