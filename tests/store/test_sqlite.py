"""The one writer: group commit, isolation of neighbours, the lock, the files' modes, a full disk."""

import asyncio
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from byleave.protocol.errors import ConfigurationError
from byleave.settings import ServerSettings
from byleave.store import DamagedError, StorageError, Store, UnknownEndError
from byleave.store.database import Hint, Transaction
from byleave.store.sqlite import SqliteDatabase
from harness.records import SEAL_KEYS
from harness.trouble import damage

pytestmark = pytest.mark.sqlite


async def opened(path: Path, **options: object) -> SqliteDatabase:
    database = SqliteDatabase(path, **options)  # type: ignore[arg-type]
    await database.write(lambda transaction: transaction.execute("CREATE TABLE notes (id TEXT PRIMARY KEY)").rowcount)
    return database


def add(note: str):
    def work(transaction: Transaction) -> str:
        transaction.execute("INSERT INTO notes (id) VALUES (:id)", {"id": note})
        transaction.hints.append(Hint("added", note))
        return note

    return work


def all_notes(transaction: Transaction) -> list[str]:
    return [row["id"] for row in transaction.execute("SELECT id FROM notes ORDER BY id").fetchall()]


async def test_a_failing_unit_takes_none_of_its_neighbours_with_it(tmp_path: Path) -> None:
    database = await opened(tmp_path / "a.db")
    results = await asyncio.gather(
        *(database.write(add(note)) for note in ("a", "b", "a", "c")), return_exceptions=True
    )
    assert [type(result) for result in results] == [str, str, sqlite3.IntegrityError, str]
    assert await database.read(all_notes) == ["a", "b", "c"]
    await database.close()


async def test_a_unit_that_fails_after_a_change_leaves_its_neighbours_whole(tmp_path: Path) -> None:
    def fail_late(transaction: Transaction) -> None:
        add("b")(transaction)
        raise ValueError("too late")

    database = await opened(tmp_path / "a.db")
    results = await asyncio.gather(
        database.write(add("a")), database.write(fail_late), database.write(add("c")), return_exceptions=True
    )
    assert [type(result) for result in results] == [str, ValueError, str]
    assert await database.read(all_notes) == ["a", "c"]
    await database.close()


class CountingDatabase(SqliteDatabase):
    """Counts what really reaches the disk."""

    commits = 0

    def _commit(self, units: list[Any]) -> None:
        self.commits += 1
        super()._commit(units)


async def test_change_of_a_row_that_is_not_as_found_fails(tmp_path: Path) -> None:
    database = await opened(tmp_path / "a.db")
    with pytest.raises(StorageError, match="not as this transaction found it"):
        await database.write(
            lambda transaction: transaction.change("UPDATE notes SET id = 'b' WHERE id = :id", {"id": "a"})
        )
    await database.close()


async def test_units_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    database = CountingDatabase(tmp_path / "a.db")
    await database.write(lambda transaction: transaction.execute("CREATE TABLE notes (id TEXT PRIMARY KEY)").rowcount)
    await asyncio.gather(*(database.write(add(str(number))) for number in range(200)))
    assert len(await database.read(all_notes)) == 200
    assert database.commits < 50
    await database.close()


async def test_hints_leave_only_after_the_commit_and_in_its_order(tmp_path: Path) -> None:
    heard: list[Hint] = []
    database = await opened(tmp_path / "a.db", on_commit=lambda *hint: heard.append(Hint(*hint)))
    results = await asyncio.gather(
        *(database.write(add(note)) for note in ("x", "y", "x", "z")), return_exceptions=True
    )
    assert isinstance(results[2], sqlite3.IntegrityError)
    assert [hint.fact for hint in heard] == ["x", "y", "z"]
    await database.close()


async def test_a_cancelled_caller_does_not_undo_what_was_committed(tmp_path: Path) -> None:
    database = await opened(tmp_path / "a.db")
    task = asyncio.ensure_future(database.write(add("kept")))
    await asyncio.sleep(0)
    task.cancel()
    await database.write(add("later"))
    assert await database.read(all_notes) == ["kept", "later"]
    await database.close()


async def test_readers_cannot_write(tmp_path: Path) -> None:
    database = await opened(tmp_path / "a.db")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await database.read(add("sneaked"))
    assert await database.read(all_notes) == []
    await database.close()


async def test_work_after_close_is_refused_with_a_clear_error(tmp_path: Path) -> None:
    database = await opened(tmp_path / "a.db")
    await database.close()
    await database.close()
    with pytest.raises(ConfigurationError, match="closed"):
        await database.write(add("late"))


async def test_work_queued_before_close_is_still_committed(tmp_path: Path) -> None:
    database = await opened(tmp_path / "a.db")
    tasks = [asyncio.ensure_future(database.write(add(str(number)))) for number in range(5)]
    await asyncio.sleep(0)
    await database.close()
    assert [await task for task in tasks] == [str(number) for number in range(5)]
    reopened = SqliteDatabase(tmp_path / "a.db")
    assert len(await reopened.read(all_notes)) == 5
    await reopened.close()


async def test_a_second_server_on_the_same_record_is_kept_out(settings: ServerSettings) -> None:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    with pytest.raises(ConfigurationError, match="in use by another") as refusal:
        await Store.open(settings, seal_keys=SEAL_KEYS)
    assert "BYLEAVE_HOME" in (refusal.value.hint or "")
    await store.close()
    await (await Store.open(settings, seal_keys=SEAL_KEYS)).close()


@pytest.mark.promise("D")
async def test_the_record_is_readable_by_its_owner_alone(settings: ServerSettings) -> None:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    await store.chat.create_project("alice", "demo")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in settings.home.iterdir()}
    assert modes.keys() >= {"byleave.db", "byleave.db-wal", "byleave.db.lock"}
    assert set(modes.values()) == {0o600}
    await store.close()


async def test_a_full_disk_fails_the_write_and_loses_nothing(tmp_path: Path) -> None:
    database = await opened(tmp_path / "a.db")
    await database.write(add("before"))
    # A page limit is how SQLite itself says "disk full", without filling the machine's.
    await database.write(lambda transaction: transaction.execute("PRAGMA max_page_count = 3").fetchone())
    results = await asyncio.gather(
        database.write(add("neighbour")), database.write(add("x" * 100_000)), return_exceptions=True
    )
    assert isinstance(results[1], sqlite3.OperationalError)
    assert "full" in str(results[1])
    failed = [note for note, result in zip(("neighbour", "big"), results, strict=True) if isinstance(result, Exception)]
    await database.write(lambda transaction: transaction.execute("PRAGMA max_page_count = 1000000").fetchone())
    await database.write(add("after"))
    # A neighbour in the same commit was told that it failed, too: what a caller hears is what is there.
    expected = ["after", "before"] if "neighbour" in failed else ["after", "before", "neighbour"]
    assert await database.read(all_notes) == expected
    await database.close()


@pytest.mark.parametrize("url", ["oracle://h/db", "sqlite://", "sqlite:///", "mysql://x"])
async def test_an_unknown_database_is_a_clear_configuration_error(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot keep its record") as refusal:
        await Store.open(ServerSettings(home=tmp_path, database_url=url), seal_keys=SEAL_KEYS)
    assert "BYLEAVE_DATABASE_URL" in (refusal.value.hint or "")


async def test_a_state_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(ConfigurationError, match="Cannot open the database"):
        await Store.open(ServerSettings(home=tmp_path / "file" / "home"), seal_keys=SEAL_KEYS)


async def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("not a database")
    precious.chmod(0o644)
    with pytest.raises(ConfigurationError, match="is not a database"):
        await Store.open(ServerSettings(home=tmp_path, database_url=f"sqlite:///{precious}"), seal_keys=SEAL_KEYS)
    assert (precious.read_text(), stat.S_IMODE(precious.stat().st_mode)) == ("not a database", 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


async def test_inspecting_works_while_a_server_has_the_record_open(settings: ServerSettings) -> None:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    await store.chat.create_project("alice", "demo")
    looking = await Store.inspect(settings, seal_keys=SEAL_KEYS)
    assert [check.fault for check in await looking.audit.verify()] == [None]
    await looking.close()
    await store.close()


async def test_inspecting_a_record_that_is_not_there_says_where_to_look(settings: ServerSettings) -> None:
    with pytest.raises(ConfigurationError, match="no database"):
        await Store.inspect(settings, seal_keys=SEAL_KEYS)


async def test_a_long_log_is_moved_into_the_file_while_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.store.sqlite.LOG_BYTES", 64 * 1024)
    monkeypatch.setattr("byleave.store.sqlite.FLUSHES_BETWEEN_LOOKS", 5)
    database = await opened(tmp_path / "a.db")
    for number in range(300):
        await database.write(add(f"{number}-" + "x" * 2000))
    assert (tmp_path / "a.db-wal").stat().st_size < 600_000  # all of it would be over a megabyte
    await database.close()
    assert not (tmp_path / "a.db-wal").exists()


@pytest.mark.parametrize("heavy", [False, True])
async def test_long_log_is_cut_when_nothing_is_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, heavy: bool
) -> None:
    monkeypatch.setattr("byleave.store.sqlite.LOG_BYTES", 64 * 1024)
    monkeypatch.setattr("byleave.store.sqlite.LOOK_SECONDS", 0.01)
    database = await opened(tmp_path / "a.db")
    log = tmp_path / "a.db-wal"
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as reader:
        # Whoever reads holds the log; the writer must not wait for them.
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM notes").fetchall()
        async with asyncio.timeout(4):
            for number in range(10):
                await database.write(add(f"{number}" + "x" * 100_000), heavy=heavy)
        assert log.stat().st_size > 1_000_000
    async with asyncio.timeout(10):
        while log.stat().st_size > 0:
            await asyncio.sleep(0.01)
    await database.write(add("after"))
    assert len(await database.read(all_notes)) == 11
    await database.close()


@pytest.mark.promise("D")
async def test_nothing_is_promised_from_a_flush_that_fails_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Hint] = []
    database = await opened(tmp_path / "a.db", on_commit=lambda *hint: heard.append(Hint(*hint)))
    flushing, tried = threading.Event(), threading.Event()

    def fail_once(descriptor: int) -> None:
        # The kernel may report the next flush as good although it dropped what came before.
        if not flushing.is_set():
            flushing.set()
            tried.wait(10)
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fdatasync", fail_once)
    waiting = [database.write(add("first"))]
    async with asyncio.timeout(10):
        while not flushing.is_set():
            await asyncio.sleep(0)
        waiting += [
            database.write(add("second")),
            database.write(add("relaxed"), relaxed=True),
            database.write(add("heavy"), heavy=True),
        ]
        while "heavy" not in await database.read(all_notes):
            await asyncio.sleep(0)
        tried.set()
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, UnknownEndError)
            assert "Input/output" in str(result)
            assert "disk" in result.hint
    for later in (database.write(add("later")), database.write(add("z"), relaxed=True), database.read(all_notes)):
        with pytest.raises(StorageError, match="since a flush failed") as refusal:
            await later
        assert not isinstance(refusal.value, UnknownEndError)
        assert "restart the server" in refusal.value.hint
    assert heard == []
    await database.close()


async def test_an_error_of_ours_around_the_commit_is_told_and_the_next_unit_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for heavy in (False, True):
        database = await opened(tmp_path / f"{heavy}.db")
        with monkeypatch.context() as broken:

            def fail(*arguments: object) -> None:
                raise MemoryError

            broken.setattr(SqliteDatabase, "_commit_together", fail)
            with pytest.raises(MemoryError):
                await database.write(add("lost"), heavy=heavy)
        assert await database.write(add("kept")) == "kept"
        assert await database.read(all_notes) == ["kept"]
        await database.close()


async def test_a_listener_that_fails_keeps_no_caller_waiting(tmp_path: Path) -> None:
    def fail(topic: str, fact: object | None) -> None:
        raise RuntimeError("a listener's fault")

    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    database = await opened(tmp_path / "a.db", on_commit=fail)
    assert await asyncio.gather(*(database.write(add(note)) for note in ("a", "b", "c"))) == ["a", "b", "c"]
    assert faults
    await database.close()


async def test_a_relaxed_unit_never_overtakes_one_that_waits_for_the_disk(tmp_path: Path) -> None:
    heard: list[Hint] = []
    database = await opened(tmp_path / "a.db", on_commit=lambda *hint: heard.append(Hint(*hint)))
    await asyncio.gather(
        database.write(add("durable")),
        database.write(add("relaxed"), relaxed=True),
        database.write(add("heavy"), heavy=True),
        database.write(add("last"), relaxed=True),
    )
    assert [hint.fact for hint in heard] == ["durable", "relaxed", "heavy", "last"]
    await database.close()


async def test_a_failing_heavy_unit_fails_alone(tmp_path: Path) -> None:
    database = await opened(tmp_path / "a.db")
    results = await asyncio.gather(
        database.write(add("a")),
        database.write(add("a"), heavy=True),
        database.write(add("b"), heavy=True),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [str, sqlite3.IntegrityError, str]
    await database.close()


async def test_without_full_durability_nothing_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "nobody should flush")

    monkeypatch.setattr("os.fdatasync", fail)
    database = await opened(tmp_path / "a.db", durability="normal")
    assert await database.write(add("kept")) == "kept"
    await database.close()


async def test_damaged_file_is_told_from_errors_of_one_unit(tmp_path: Path) -> None:
    database = await opened(tmp_path / "a.db")
    await database.write(add("a"))
    with pytest.raises(sqlite3.IntegrityError):
        await database.write(add("a"))
    assert database.damage is None
    await database.close()
    damage(tmp_path / "a.db", "sqlite_autoindex_notes_1")
    database = SqliteDatabase(tmp_path / "a.db")
    with capture_logs() as logs:
        for work in (database.read(all_notes), database.write(add("b")), database.write(add("c"), heavy=True)):
            with pytest.raises(DamagedError, match="malformed"):
                await work
    assert isinstance(database.damage, DamagedError)
    assert [line["event"] for line in logs] == ["the record is damaged"]
    await database.close()


async def test_record_of_another_secret_is_told_at_the_start(settings: ServerSettings) -> None:
    await (await Store.open(settings, seal_keys=SEAL_KEYS)).close()
    other = (b"another secret",)
    for keys, told in ((SEAL_KEYS, 0), (other, 1), ((*other, *SEAL_KEYS), 0), (other, 0)):
        with capture_logs() as logs:
            await (await Store.open(settings, seal_keys=keys)).close()
        assert ["BYLEAVE_PREVIOUS_SECRET" in line["hint"] for line in logs] == [True] * told
