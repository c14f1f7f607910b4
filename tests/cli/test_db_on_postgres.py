"""`byleave db` and `byleave audit` on a record in PostgreSQL, and the way there."""

import asyncio
import json
import sqlite3
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.server.auth.secret import seal_keys
from byleave.settings import ServerSettings
from byleave.store import Store
from byleave.store.migrations import NEWEST, REVISIONS
from harness.postgres import PostgresServer
from harness.records import Clock, Records

from .conftest import Program

pytestmark = pytest.mark.promise("D")

OLD_CALLS = 3


@pytest.fixture
def url(postgres_server: PostgresServer) -> Generator[str]:
    with postgres_server.database() as url:
        yield url


async def _fill(settings: ServerSettings) -> None:
    """Calls of half a year ago, and one of today."""
    clock = Clock(datetime.now(UTC) - timedelta(days=200))
    store = await Store.open(settings, seal_keys=seal_keys(settings), clock=clock)
    project = await store.chat.create_project("alice", "demo")
    records = Records(store, clock, settings, project, await store.chat.create_session("alice", project.id, "first"))
    for number in range(OLD_CALLS + 1):
        if number == OLD_CALLS:
            clock.moment = datetime.now(UTC)
        row = await begin(store, records.call(), Clearance("risk:LOW"), client_id="c1")
        await settle(
            store,
            row.id,
            user_id="alice",
            project_id=project.id,
            client_id="c1",
            result='{"content":"x"}',
            result_hash="h",
        )
    await store.close()


@pytest.fixture
def record(byleave: Program) -> Path:
    asyncio.run(_fill(ServerSettings(home=byleave.home)))
    return byleave.home / "byleave.db"


def test_a_record_moves_to_postgresql_and_is_proven_and_served_there(byleave: Program, record: Path, url: str) -> None:
    done = byleave.here("db", "copy", str(record), url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Copied ")
    assert "1 projects" in done.stdout
    assert done.stdout.endswith("the record is whole.\n")
    assert "Verifying …" in done.stderr
    assert "same secret" in done.stderr
    assert "The record is whole." in byleave.here("audit", "verify", BYLEAVE_DATABASE_URL=url).stderr
    heads = [
        byleave.here("audit", "verify", BYLEAVE_DATABASE_URL=there).stdout for there in (url, f"sqlite:///{record}")
    ]
    assert heads[0] == heads[1]
    serving = byleave.start("serve", "--port", "0", "--json", BYLEAVE_DATABASE_URL=url)
    assert json.loads(serving.line())["ready"]
    again = byleave.run("db", "copy", url, str(byleave.home / "back.db"))
    assert (again.returncode, "in use by a Byleave server" in again.stderr) == (1, True)
    assert serving.stop()[0] == 0
    told = byleave.json("db", "copy", url, str(byleave.home / "back.db"), "--json")
    assert told["rows"]["tool_executions"] == OLD_CALLS + 1
    assert (told["projects"][0]["fault"], told["changed"]) == (None, 0)


def test_a_copy_without_the_secret_or_into_nowhere_is_refused(byleave: Program, record: Path, url: str) -> None:
    done = byleave.here("db", "copy", str(record), url, BYLEAVE_SECRET="z" * 40)
    assert (done.returncode, "another secret; nothing was copied" in done.stderr) == (1, True)
    done = byleave.here("db", "copy", str(record), "postgresql://byleave:hush@127.0.0.1:1/byleave")
    assert (done.returncode, "cannot be written" in done.stderr, "hush" in done.stderr) == (1, True, False)
    assert "hint: Check that the server runs" in done.stderr
    done = byleave.here("db", "copy", str(record), "mysql://byleave@h/byleave")
    assert (done.returncode, "cannot keep its record in 'mysql'" in done.stderr) == (1, True)
    (byleave.home / "secret").unlink()
    done = byleave.here("db", "copy", str(record), url)
    assert (done.returncode, "There is no secret here" in done.stderr) == (1, True)
    assert not (byleave.home / "secret").exists()


def test_a_nul_that_was_replaced_is_told(byleave: Program, record: Path, url: str) -> None:
    async def more() -> None:
        settings = ServerSettings(home=byleave.home)
        store = await Store.open(settings, seal_keys=seal_keys(settings))
        (project,) = await store.chat.projects("alice")
        await store.chat.create_session("alice", project.id, "a\x00b")
        await store.close()

    asyncio.run(more())
    done = byleave.here("db", "copy", str(record), url)
    assert "note: PostgreSQL stores no NUL: 1 rows have ␀ for it" in done.stderr


def test_records_are_made_and_brought_up_to_date(byleave: Program, record: Path, url: str) -> None:
    assert byleave.here("db", "migrate").stdout == f"The record is up to date ({NEWEST}).\n"
    assert byleave.json("db", "migrate", "--json", BYLEAVE_DATABASE_URL=url) == {"was": None, "now": NEWEST}
    assert "up to date" in byleave.here("db", "migrate", BYLEAVE_DATABASE_URL=url).stdout
    with closing(sqlite3.connect(record)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0010'")
        connection.execute("DROP INDEX ix_approvals_deadline")
    refused = byleave.here("db", "prune", "--older-than", "90d", "--yes")
    assert "hint: Run `byleave db migrate`" in refused.stderr
    if REVISIONS[10] == NEWEST:  # later tables are there already
        assert byleave.here("db", "migrate").stdout == f"The record was brought from 0010 to {NEWEST}.\n"
        assert "The record is whole." in byleave.here("audit", "verify").stderr


def test_a_record_of_a_newer_version_is_not_migrated(byleave: Program, record: Path, url: str) -> None:
    assert byleave.here("db", "copy", str(record), url).returncode == 0
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("COMMENT ON TABLE alembic_version IS 'oldest writer: 9998'")
    done = byleave.here("db", "migrate", BYLEAVE_DATABASE_URL=url)
    assert (done.returncode, "newer Byleave" in done.stderr) == (1, True)


def test_old_calls_are_removed_in_postgresql(byleave: Program, record: Path, url: str) -> None:
    assert byleave.here("db", "copy", str(record), url).returncode == 0
    prune = ("db", "prune", "--older-than", "90d")
    look = byleave.here(*prune, "--dry-run", BYLEAVE_DATABASE_URL=url)
    assert (look.returncode, look.stdout.startswith(f"{OLD_CALLS} calls")) == (0, True)
    done = byleave.here(*prune, "--yes", BYLEAVE_DATABASE_URL=url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Removed {OLD_CALLS} calls")
    assert done.stdout.endswith("; new rows use their room.\n")
    assert "The record is whole." in byleave.here("audit", "verify", BYLEAVE_DATABASE_URL=url).stderr
    assert "Nothing to remove" in byleave.here(*prune, "--yes", BYLEAVE_DATABASE_URL=url).stderr


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("db", "migrate"), ("audit", "verify")])
def test_a_database_that_is_gone_at_the_start_is_a_sentence(
    byleave: Program, record: Path, command: tuple[str, ...]
) -> None:
    done = byleave.run(*command, BYLEAVE_DATABASE_URL="postgresql://byleave:hush@127.0.0.1:1/byleave")
    assert done.returncode == 1
    assert "error: The record at 'postgresql://byleave@127.0.0.1:1/byleave' cannot be opened" in done.stderr
    assert "hint: Check that the server runs" in done.stderr
    assert "Traceback" not in done.stderr
    assert "hush" not in done.stderr
