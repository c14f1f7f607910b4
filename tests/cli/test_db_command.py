"""`byleave db prune`: says what would go, asks, removes it, and leaves a record that verifies."""

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.protocol.wire import timestamp
from byleave.server.auth.secret import seal_keys
from byleave.settings import ServerSettings
from byleave.store import Store
from harness.records import Clock, Records

from .conftest import Program

pytestmark = pytest.mark.promise("L8")

OLD_CALLS = 3


async def _make(home: Path) -> None:
    settings = ServerSettings(home=home)
    clock = Clock(datetime.now(UTC) - timedelta(days=200))
    store = await Store.open(settings, seal_keys=seal_keys(settings), clock=clock)
    project = await store.chat.create_project("alice", "demo")
    session = await store.chat.create_session("alice", project.id, "first")
    records = Records(store, clock, settings, project, session)
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
            result='{"content":"' + "x" * 400_000 + '"}',
            result_hash="h",
        )
    await store.close()


@pytest.fixture
def record(byleave: Program) -> Path:
    """Three calls of half a year ago, and one of today."""
    asyncio.run(_make(byleave.home))
    return byleave.home / "byleave.db"


def _calls(record: Path) -> int:
    connection = sqlite3.connect(record)
    try:
        return connection.execute("SELECT count(*) FROM tool_executions").fetchone()[0]
    finally:
        connection.close()


def test_a_dry_run_says_what_would_go_and_removes_nothing(byleave: Program, record: Path) -> None:
    done = byleave.here("db", "prune", "--older-than", "90d", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{OLD_CALLS} calls, 0 approvals, ")
    assert "about 1.1 MB" in done.stdout or "about 1.2 MB" in done.stdout
    told = byleave.json("db", "prune", "--older-than", "90d", "--dry-run", "--json")
    assert (told["dry_run"], told["calls"], told["approvals"]) == (True, OLD_CALLS, 0)
    assert told["oldest"] < told["newest"] < told["before"] or told["oldest"] == told["newest"]
    assert "Nothing to remove" in byleave.here("db", "prune", "--older-than", "300d", "--dry-run").stderr
    assert _calls(record) == OLD_CALLS + 1


def test_old_calls_are_removed_and_the_record_is_whole(byleave: Program, record: Path) -> None:
    size = record.stat().st_size
    done = byleave.here("db", "prune", "--older-than", "90d", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Removed {OLD_CALLS} calls, 0 approvals, ")
    assert _calls(record) == 1
    assert record.stat().st_size < size - 1_000_000
    assert "The record is whole." in byleave.here("audit", "verify").stderr
    again = byleave.json("db", "prune", "--older-than", "90d", "--yes", "--json")
    assert (again["dry_run"], again["calls"], again["freed_bytes"]) == (False, 0, 0)
    connection = sqlite3.connect(record)
    assert connection.execute("SELECT DISTINCT actor FROM audit WHERE action = 'pruned'").fetchall() == [("operator",)]
    connection.close()


def test_a_run_gives_back_the_space_of_one_that_was_killed_after_the_removal(byleave: Program, record: Path) -> None:
    async def removal_alone() -> None:
        settings = ServerSettings(home=byleave.home)
        store = await Store.open(settings, seal_keys=seal_keys(settings))
        async for _ in store.retention.prune(await store.retention.moment(90 * 24 * 3600)):
            pass
        await store.close()

    asyncio.run(removal_alone())
    size = record.stat().st_size
    done = byleave.here("db", "prune", "--older-than", "90d", "--yes")
    assert "Nothing to remove" in done.stderr
    assert "MB of free space given back" in done.stderr
    assert record.stat().st_size < size - 1024 * 1024
    again = byleave.here("db", "prune", "--older-than", "90d", "--yes")
    assert "given back" not in again.stderr


def test_a_run_that_removes_nothing_leaves_little_free_space_to_the_next_calls(byleave: Program, record: Path) -> None:
    async def removal_with_little_left() -> int:
        settings = ServerSettings(home=byleave.home)
        store = await Store.open(settings, seal_keys=seal_keys(settings))
        async for _ in store.retention.prune(await store.retention.moment(90 * 24 * 3600)):
            pass
        while await store.retention.give_back(keep_bytes=500_000):
            pass
        free = (await store.retention.space()).free
        await store.close()
        return free

    assert 500_000 <= asyncio.run(removal_with_little_left()) < 520_000
    size = record.stat().st_size
    done = byleave.here("db", "prune", "--older-than", "90d", "--yes")
    assert "Nothing to remove" in done.stderr
    assert "given back" not in done.stderr
    assert record.stat().st_size == size


def test_an_older_file_is_written_anew(byleave: Program, record: Path) -> None:
    connection = sqlite3.connect(record, isolation_level=None)
    for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA auto_vacuum = NONE", "VACUUM"):
        connection.execute(statement)
    connection.close()
    size = record.stat().st_size
    done = byleave.here("db", "prune", "--older-than", "90d", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Writing the file anew" in done.stderr
    assert record.stat().st_size < size - 1_000_000
    assert "The record is whole." in byleave.here("audit", "verify").stderr


def test_a_person_is_asked_first(byleave: Program, record: Path) -> None:
    alone = byleave.run("db", "prune", "--older-than", "90d")
    assert alone.returncode == 1
    assert "Nobody can be asked here; nothing was removed." in alone.stderr
    for answer, code, left in (("n\n", 1, OLD_CALLS + 1), ("y\n", 0, 1)):
        terminal = byleave.on_terminal("db", "prune", "--older-than", "90d")
        terminal.expect(f"{OLD_CALLS} calls")
        terminal.expect("Remove this for good? [y/N] ")
        terminal.type(answer)
        assert terminal.wait() == code, terminal.seen
        assert _calls(record) == left


def test_a_record_in_use_is_only_looked_at(byleave: Program, record: Path) -> None:
    settings = ServerSettings(home=byleave.home)

    async def beside_a_server() -> tuple[int, str, int]:
        store = await Store.open(settings, seal_keys=seal_keys(settings))
        try:
            done = await asyncio.to_thread(byleave.run, "db", "prune", "--older-than", "90d", "--yes")
            looked = await asyncio.to_thread(byleave.run, "db", "prune", "--older-than", "90d", "--dry-run")
            return done.returncode, done.stderr, looked.returncode
        finally:
            await store.close()

    code, said, looked = asyncio.run(beside_a_server())
    assert (code, looked) == (1, 0)
    assert "is in use by another Byleave server" in said
    assert "hint: Stop the server first, or set BYLEAVE_RETENTION_DAYS" in said
    assert _calls(record) == OLD_CALLS + 1


def test_another_secret_removes_nothing(byleave: Program, record: Path) -> None:
    done = byleave.here("db", "prune", "--older-than", "90d", "--yes", BYLEAVE_SECRET="z" * 40)
    assert done.returncode == 1
    assert "sealed with another secret; nothing was removed" in done.stderr
    (byleave.home / "secret").rename(byleave.home / "aside")
    done = byleave.here("db", "prune", "--older-than", "90d", "--yes")
    assert "There is no secret here" in done.stderr
    assert _calls(record) == OLD_CALLS + 1
    (byleave.home / "aside").rename(byleave.home / "secret")
    assert "The record is whole." in byleave.here("audit", "verify").stderr


def test_a_missing_record_and_a_wrong_age_are_sentences(byleave: Program) -> None:
    for more in ("--dry-run", "--yes"):
        done = byleave.here("db", "prune", "--older-than", "90d", more)
        assert done.returncode == 1
        assert "There is no database" in done.stderr
    for age in ("0d", "90", "d", "-1d", "5w"):
        done = byleave.here("db", "prune", f"--older-than={age}", "--dry-run")
        assert done.returncode == 2
        assert "is not an age; write 90d or 36h" in done.stderr
    assert not (byleave.home / "byleave.db").exists()
    assert "prune" in byleave.here("db").stdout


def test_the_moment_is_told_as_the_record_counts_time(byleave: Program, record: Path) -> None:
    told = byleave.json("db", "prune", "--older-than", "36h", "--dry-run", "--json")
    wanted = datetime.now(UTC) - timedelta(hours=36)
    assert timestamp(wanted - timedelta(minutes=5)) < told["before"] <= timestamp(wanted)
