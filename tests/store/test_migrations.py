"""A migrated record has exactly the tables of a new one, and keeps its data."""

import asyncio
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event

from byleave.cli.audit import verify
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.wire import now
from byleave.settings import ServerSettings
from byleave.store import Store, migrations
from byleave.store.database import Transaction
from byleave.store.ledger import GENESIS, NOT_COVERED, adopt, link_hash, seal
from byleave.store.migrations import (
    COVERED_SINCE,
    HERE,
    NEWEST,
    OLDEST_WRITER,
    REVISIONS,
    bring_up_to_date,
    objects,
    stored_revision,
    upgrade,
)
from byleave.store.records import AuditRecord
from byleave.store.sqlite import begun
from harness.records import SEAL_KEYS

pytestmark = pytest.mark.sqlite


def _objects(path: Path) -> dict[str, object]:
    with closing(sqlite3.connect(path)) as connection:
        return objects(connection.execute)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_record_of_any_version_gets_exactly_the_tables_of_a_new_one(tmp_path: Path, revision: str) -> None:
    path, fresh = tmp_path / "byleave.db", tmp_path / "fresh.db"
    data = old_record(path, revision, calls=3)
    assert await _start(tmp_path) == [None]
    bring_up_to_date(fresh)
    assert _objects(path) == _objects(fresh)
    assert (_data(path), stored_revision(path), stored_revision(fresh)) == (data, NEWEST, NEWEST)


def test_migrations_go_one_after_the_other_to_the_newest() -> None:
    config = Config()
    config.set_main_option("script_location", str(HERE))
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()][::-1] == REVISIONS
    assert scripts.get_current_head() == NEWEST


def test_migrations_since_the_oldest_writer_only_add(tmp_path: Path) -> None:
    """Servers of that revision go on writing beside newer ones: see "Rolling upgrades" in docs/servers.md."""
    path, fresh = tmp_path / "then.db", tmp_path / "now.db"
    upgrade(path, OLDEST_WRITER)
    bring_up_to_date(fresh)
    then, now = _objects(path), _objects(fresh)
    assert then.keys() <= now.keys(), "a table or index was dropped: raise OLDEST_WRITER"
    assert not [name for name in now.keys() - then.keys() if name.startswith(("trigger", "view"))]
    with closing(sqlite3.connect(path)) as older, closing(sqlite3.connect(fresh)) as newer:
        for table in (name.removeprefix("table ") for name in then if name.startswith("table ")):
            columns = [
                {row[1]: row[2:] for row in connection.execute(f"PRAGMA table_info({table})")}
                for connection in (older, newer)
            ]
            added = columns[1].keys() - columns[0].keys()
            assert columns[0] == {name: columns[1].get(name) for name in columns[0]}, f"columns of {table} changed"
            assert not (added and table in NOT_COVERED), f"older servers would leave {added} out of digests of {table}"
            for name in added:
                _type, not_null, default, _key = columns[1][name]
                assert default is not None or not not_null, f"older servers insert no {name} into {table}"
        for index in now.keys() - then.keys():
            (kind, _, name) = index.partition(" ")
            sql = newer.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
            assert kind == "table" or "UNIQUE" not in (sql or "").upper(), f"{name} refuses rows of older servers"


def test_only_an_older_database_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    migrated: list[str] = []
    monkeypatch.setattr(migrations, "upgrade", lambda url, **_: migrated.append(url))
    bring_up_to_date(path)
    bring_up_to_date(path)
    assert migrated == []
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    bring_up_to_date(path)
    assert migrated == [path]


def test_events_of_an_older_record_tell_their_states_in_lower_case(tmp_path: Path) -> None:
    """Old events are sent as they are kept, to whoever was away."""
    path = tmp_path / "a.db"
    upgrade(path, "0006")
    old = [
        (
            "tool.finished",
            '{"kind":"tool.finished","status":"COMPLETED","result":{"content":"is \\"status\\":\\"FAILED\\""}}',
        ),
        ("tool.result_ack", '{"kind":"tool.result_ack","status":"FAILED"}'),
        ("chat.run", '{"kind":"chat.run","state":"RUNNING"}'),
        ("chat.message", '{"kind":"chat.message","content":"","state":"RUNNING"}'),
    ]
    with closing(sqlite3.connect(path)) as connection, connection:
        for seq, (kind, payload) in enumerate(old):
            row = ("p", seq, kind, payload, "2026-01-01T00:00:00.000Z")
            connection.execute(
                "INSERT INTO events (project_id, seq, kind, payload, created_at) VALUES (?,?,?,?,?)", row
            )
    bring_up_to_date(path)
    with closing(sqlite3.connect(path)) as connection:
        now = [payload for (payload,) in connection.execute("SELECT payload FROM events ORDER BY seq")]
    lowered = [old[0][1].replace('"COMPLETED"', '"completed"'), old[1][1].replace("FAILED", "failed")]
    assert now == [*lowered, old[2][1].replace("RUNNING", "running"), old[3][1]]


def test_a_database_that_an_interrupted_start_left_empty_gets_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    bring_up_to_date(path)
    assert stored_revision(path) == NEWEST


KILLS = 25
LAST_UNCOVERED = REVISIONS[REVISIONS.index(COVERED_SINCE) - 1]
WORK = 200
"""SQLite's instructions between two moments at which a migration may be killed."""


def old_record(path: Path, revision: str = "0001", calls: int = 3000) -> dict[str, list[tuple[object, ...]]]:
    """A record with data, as an older version left it; returns what it holds."""
    before = min(revision, LAST_UNCOVERED)
    upgrade(path, before)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(OLD_DATA.replace(":calls", str(calls)))
    if revision != before:
        upgrade(
            path,
            revision,
            finish=lambda connection: adopt(_transaction(connection)),
        )
        if revision < "0010":
            with closing(sqlite3.connect(path)) as connection, connection:
                _list_projects(connection)
    return _data(path)


def _list_projects(connection: sqlite3.Connection) -> None:
    """Seal the list of projects, as versions did that did not seal the heads together."""
    value = hashlib.sha256(b"proj_1").hexdigest()
    connection.execute("DELETE FROM seals")
    connection.execute("INSERT INTO seals VALUES ('projects', ?, ?)", (value, seal(SEAL_KEYS[0], "projects", 0, value)))


def _transaction(connection: sqlite3.Connection) -> Transaction:
    connection.row_factory = sqlite3.Row
    return begun(connection, now, SEAL_KEYS)


def _data(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """What people and agents left in a record, by the columns that every version has."""
    columns = {
        "projects": "id, user_id, name",
        "tool_executions": "id, tool_params, result, status",
        "approvals": "id, description, status",
        "messages": "id, content",
    }
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: connection.execute(f"SELECT {names} FROM {table} ORDER BY id").fetchall()
            for table, names in columns.items()
        }


OLD_DATA = """
INSERT INTO projects (id, user_id, name, created_at) VALUES ('proj_1', 'alice', 'demo', '2026-01-01T00:00:00.000Z');
INSERT INTO feeds VALUES ('proj_1', 0, 1, '{hash}');
INSERT INTO audit VALUES ('proj_1', 1, '2026-01-01T00:00:00.000Z', 'user:alice', 'project_created', NULL, NULL, '{{}}',
    '{genesis}', '{hash}');
INSERT INTO sessions VALUES ('sess_1', 'proj_1', 'alice', 'first', '2026-01-01T00:00:00.000Z');
INSERT INTO messages VALUES ('msg_1', 'proj_1', 'sess_1', NULL, 'user', 'hello', 1, '2026-01-01T00:00:00.000Z');
INSERT INTO approvals (id, user_id, project_id, session_id, tool_name, tool_params, digest, risk_level, findings,
    network, description, status, timeout_seconds, created_at, deadline)
    VALUES ('appr_1', 'alice', 'proj_1', 'sess_1', 'write_file', '{{}}', 'd', 'MEDIUM', '[]', 0, 'Write a.txt',
    'rejected', 300, '2026-01-01T00:00:00.000Z', '2026-01-01T00:05:00.000Z');
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :calls)
INSERT INTO tool_executions (id, user_id, project_id, session_id, mode, tool_name, tool_params, digest, result,
    risk_level, requires_approval, findings, network, status, timeout_seconds, output_seq, cancel_requested, created_at)
    SELECT 'exec_' || i, 'alice', 'proj_1', 'sess_1', 'sandbox', 'read_file', '{{"path":"a.txt"}}', 'd' || i,
    '{{"success":true,"content":"' || i || '"}}', 'LOW', 0, '[]', 0, 'COMPLETED', 30, 0, 0, '2026-01-01T00:00:00.000Z'
    FROM n;
""".format(
    genesis=GENESIS,
    hash=link_hash(
        GENESIS,
        AuditRecord("proj_1", 1, "2026-01-01T00:00:00.000Z", "user:alice", "project_created", None, None, "{}", "", ""),
    ),
)


async def _start(home: Path) -> list[str | None]:
    """Open a record as a server does; gives the faults of its chains."""
    store = await Store.open(ServerSettings(home=home), seal_keys=SEAL_KEYS)
    try:
        return [check.fault for check in await store.audit.verify()]
    finally:
        await store.close()


def _migrate(home: Path, at_each: Callable[[], object]) -> None:
    """Start on a record in a process of its own; `at_each` is called every few instructions of the migration."""
    child = os.fork()
    if child == 0:
        try:
            event.listen(
                Engine, "connect", lambda connection, _: connection.set_progress_handler(lambda: at_each(), WORK)
            )
            asyncio.run(_start(home))
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def test_a_record_with_data_survives_a_migration_that_is_killed_at_any_moment(tmp_path: Path) -> None:
    old, told = tmp_path / "old.db", tmp_path / "told"
    data = old_record(old)

    def copy(name: str) -> Path:
        (tmp_path / name).mkdir()
        with (
            closing(sqlite3.connect(old)) as source,
            closing(sqlite3.connect(tmp_path / name / "byleave.db")) as target,
        ):
            source.backup(target)
        return tmp_path / name

    with told.open("ab", buffering=0) as log:
        _migrate(copy("whole"), lambda: log.write(b"x") and None)
    moments = told.stat().st_size
    assert moments > KILLS
    seed = random.randrange(2**32)
    for number in sorted(random.Random(seed).sample(range(moments), KILLS)):
        home, left = copy(str(number)), iter(range(number))
        _migrate(home, lambda left=left: os.kill(os.getpid(), signal.SIGKILL) if next(left, None) is None else None)
        assert stored_revision(home / "byleave.db") == "0001", (seed, number)
        assert asyncio.run(_start(home)) == [None], (seed, number)
        assert _objects(home / "byleave.db") == _objects(tmp_path / "whole" / "byleave.db"), (seed, number)
        assert stored_revision(home / "byleave.db") == NEWEST, (seed, number)
        assert _data(home / "byleave.db") == data, (seed, number)


async def test_a_full_disk_during_a_migration_is_told_and_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    settings = ServerSettings(home=tmp_path)
    path = tmp_path / "byleave.db"
    data = old_record(path)

    def fill(connection: sqlite3.Connection, _: object) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    event.listen(Engine, "connect", fill)
    try:
        with pytest.raises(ConfigurationError, match="full") as refusal:
            await Store.open(settings, seal_keys=SEAL_KEYS)
    finally:
        event.remove(Engine, "connect", fill)
    assert "Free disk space" in (refusal.value.hint or "")
    assert (_data(path), stored_revision(path)) == (data, "0001")
    assert await _start(tmp_path) == [None]
    assert _data(path) == data


async def test_rows_from_before_the_chain_covered_them_are_covered_and_cannot_be_taken_in_again(tmp_path: Path) -> None:
    path = tmp_path / "byleave.db"
    old_record(path, calls=3)
    assert await _start(tmp_path) == [None]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE tool_executions SET result = '{}' WHERE id = 'exec_2'")
    assert await _start(tmp_path) == ["the row 'exec_2' of tool_executions was changed"]
    with closing(sqlite3.connect(path)) as connection, connection:
        for index in ("tool_executions", "approvals", "messages"):
            connection.execute(f"DROP INDEX ix_{index}_project")
        connection.execute("DROP INDEX ix_tool_executions_unasked")
        for table in ("seals", "client_tokens"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("ALTER TABLE feeds DROP COLUMN audit_seal")
        connection.execute("UPDATE alembic_version SET version_num = '0006'")
    (fault,) = await _start(tmp_path)
    assert "takes in rows that were covered before" in (fault or "")


@pytest.mark.parametrize(
    ("tampering", "fault"),
    [
        ("DELETE FROM seals", "the chains' ends together"),
        (
            "INSERT INTO projects SELECT 'proj_2', user_id, name, NULL, NULL, created_at FROM projects",
            "the chain is gone",
        ),
    ],
)
async def test_heads_of_an_older_record_are_sealed_only_if_its_projects_were(
    tmp_path: Path, tampering: str, fault: str
) -> None:
    path = tmp_path / "byleave.db"
    old_record(path, "0009", calls=3)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(tampering)
    faults = [found or "" for found in await _start(tmp_path)]
    assert any(fault in found for found in faults)
    assert "the chains' ends together" in faults[-1]


async def test_an_older_record_waits_for_the_secret_that_sealed_it(tmp_path: Path) -> None:
    old_record(tmp_path / "byleave.db", "0009", calls=3)
    with pytest.raises(ConfigurationError, match="sealed with another secret") as refused:
        await Store.open(ServerSettings(home=tmp_path), seal_keys=(b"another",))
    assert "BYLEAVE_PREVIOUS_SECRET" in str(refused.value.hint)
    assert stored_revision(tmp_path / "byleave.db") == "0009"
    assert await _start(tmp_path) == [None]


@pytest.mark.parametrize("name", ["what?", "a%20b", "x#y"])
async def test_a_record_is_migrated_whatever_its_directory_is_called(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    home.mkdir()
    old_record(home / "byleave.db", "0006", calls=1)
    assert await _start(home) == [None]
    assert [path.name for path in tmp_path.iterdir()] == [name]


async def test_a_record_made_to_look_older_is_not_sealed_again(tmp_path: Path) -> None:
    path = tmp_path / "byleave.db"
    old_record(path, "0009", calls=3)
    assert await _start(tmp_path) == [None]
    with closing(sqlite3.connect(path)) as connection, connection:
        _list_projects(connection)  # as it is in a copy from before the upgrade
        connection.execute("UPDATE alembic_version SET version_num = '0009'")
    assert "somebody made the record look like an old one" in ((await _start(tmp_path))[0] or "")


async def test_a_new_record_made_to_look_older_is_not_sealed(tmp_path: Path) -> None:
    assert await _start(tmp_path) == []
    with closing(sqlite3.connect(tmp_path / "byleave.db")) as connection, connection:
        connection.execute("DELETE FROM seals")
        connection.execute("UPDATE alembic_version SET version_num = '0009'")
    (fault,) = await _start(tmp_path)
    assert "the chains' ends together" in (fault or "")


async def test_verifying_says_when_rows_were_taken_in_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes the whole chain anew, as versions before the seals did, gets it taken in: that shows by its date."""
    old_record(tmp_path / "byleave.db", calls=3)
    before = now()
    assert await _start(tmp_path) == [None]
    monkeypatch.setenv("BYLEAVE_HOME", str(tmp_path))
    monkeypatch.setattr("byleave.cli.audit.seal_keys", lambda settings: SEAL_KEYS)
    monkeypatch.setattr("byleave.cli.audit.has_secret", lambda settings: True)
    assert await verify(as_json=True) == 0
    (project,) = json.loads(capsys.readouterr().out)["projects"]
    assert before <= project["since"] <= now()
    assert await verify(as_json=False) == 0
    assert f"an upgrade took older rows in at {project['since']}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("done_to_it", "told"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "written by a newer Byleave"),
        ("ALTER TABLE approvals ADD COLUMN inspection TEXT", "cannot be opened: duplicate column"),
        ("DROP TABLE alembic_version", "not a record of Byleave"),
    ],
)
async def test_a_record_that_cannot_be_migrated_is_told_in_words(tmp_path: Path, done_to_it: str, told: str) -> None:
    old_record(tmp_path / "byleave.db", calls=1)
    with closing(sqlite3.connect(tmp_path / "byleave.db")) as connection, connection:
        connection.execute(done_to_it)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=told) as refusal:
            await Store.open(ServerSettings(home=tmp_path), seal_keys=SEAL_KEYS)
        assert refusal.value.hint


async def test_looking_at_a_record_of_an_older_version_says_to_start_the_server(tmp_path: Path) -> None:
    old_record(tmp_path / "byleave.db", calls=1)
    with pytest.raises(ConfigurationError, match="older Byleave"):
        await Store.inspect(ServerSettings(home=tmp_path), seal_keys=SEAL_KEYS)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_record_that_is_no_file_is_told_in_words(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "byleave.db"
    make(path)
    script = f"import pathlib, byleave.store.migrations as all; all.bring_up_to_date(pathlib.Path({str(path)!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert "is not a file" in done.stderr
