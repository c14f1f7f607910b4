"""PostgreSQL alone: one server at a time, lost connections, a pooler, and errors in words."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.states import AgentMode
from byleave.protocol.wire import plain_json
from byleave.settings import ServerSettings
from byleave.store import InUseError, StorageError, Store, UnknownEndError
from byleave.store.database import Hint, Transaction
from byleave.store.executions import HistoryFilter
from byleave.store.ledger import UNSEALED
from byleave.store.migrations import NEWEST
from byleave.store.postgres import PostgresDatabase, database
from byleave.store.postgres.connections import Statements
from harness.postgres import LOCKED_USER, PASSWORD, PostgresServer, pooling, program
from harness.records import SEAL_KEYS, Records, outside

pytestmark = pytest.mark.promise("D")


@pytest.fixture
def database_url(postgres_server: PostgresServer) -> Generator[str]:
    with postgres_server.database() as url:
        yield url


def execute(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursors = [connection.execute(statement.encode()) for statement in statements]
        return cursors[-1].fetchall() if cursors[-1].description else []


KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@asynccontextmanager
async def notes(url: str, **options: Any) -> AsyncGenerator[PostgresDatabase]:
    """A database with a table of notes beside Byleave's."""
    database = PostgresDatabase(url, **options)
    await database.open(lambda transaction: None)
    await database.write(
        lambda transaction: transaction.execute("CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY)").rowcount
    )
    yield database
    await database.close()


def add(note: str) -> Callable[[Transaction], str]:
    def work(transaction: Transaction) -> str:
        transaction.execute("INSERT INTO notes (id) VALUES (:id)", {"id": note})
        transaction.hints.append(Hint("added", note))
        return note

    return work


def all_notes(transaction: Transaction) -> list[str]:
    return [row["id"] for row in transaction.execute("SELECT id FROM notes ORDER BY id").fetchall()]


async def test_a_failing_unit_takes_none_of_its_neighbours_with_it(database_url: str) -> None:
    def fail_late(transaction: Transaction) -> str:
        add("late")(transaction)
        raise ValueError("too late")

    heard: list[Hint] = []
    async with notes(database_url, on_commit=lambda *hint: heard.append(Hint(*hint))) as database:
        results = await asyncio.gather(
            *(database.write(add(note)) for note in ("a", "b", "a", "c")),
            database.write(fail_late),
            database.write(add("d"), heavy=True),
            return_exceptions=True,
        )
        kinds = [type(result) for result in results]
        assert kinds == [str, str, psycopg.errors.UniqueViolation, str, ValueError, str]
        assert await database.read(all_notes) == ["a", "b", "c", "d"]
        assert [hint.fact for hint in heard] == ["a", "b", "c", "d"]


async def test_units_that_wait_together_are_committed_together(database_url: str) -> None:
    async with notes(database_url) as database:
        (before,) = execute(database_url, "SELECT commits FROM server_lease")
        await asyncio.gather(*(database.write(add(f"{number:03}")) for number in range(200)))
        (after,) = execute(database_url, "SELECT commits FROM server_lease")
        assert len(await database.read(all_notes)) == 200
        assert after[0] - before[0] < 10


async def test_readers_cannot_write_and_work_after_close_is_refused(database_url: str) -> None:
    async with notes(database_url) as database:
        with pytest.raises(StorageError, match="read-only"):
            await database.read(lambda transaction: (add("sneaked")(transaction), all_notes(transaction)))
    with pytest.raises(ConfigurationError, match="closed"):
        await database.write(add("late"))


async def test_transactions_bring_their_own_limits(database_url: str) -> None:
    def limits(transaction: Transaction) -> tuple[str, str]:
        row = transaction.execute(
            "SELECT current_setting('statement_timeout') AS one, "
            "current_setting('idle_in_transaction_session_timeout') AS other"
        ).fetchone()
        assert row is not None
        return row["one"], row["other"]

    async with notes(database_url) as database:
        assert await database.write(limits) == await database.read(limits) == ("30s", "10s")


# One server at a time


async def test_a_second_server_is_refused_while_the_first_lives(settings: ServerSettings) -> None:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    with pytest.raises(InUseError, match=r"in use by another Byleave server \(.+, process \d+\)"):
        await Store.open(settings, seal_keys=SEAL_KEYS)
    await store.close()
    await (await Store.open(settings, seal_keys=SEAL_KEYS)).close()


async def test_a_server_waits_for_the_lease_of_one_that_died(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(database, "END_LEASE", "SELECT 1")
        await (await Store.open(settings, seal_keys=SEAL_KEYS)).close()
    execute(settings.database, "UPDATE server_lease SET until = clock_timestamp() + interval '1 second'")
    async with asyncio.timeout(9):
        store = await Store.open(settings, seal_keys=SEAL_KEYS)
    await store.chat.create_project("alice", "demo")
    await store.close()


async def test_a_server_that_was_taken_over_writes_nothing_any_more(settings: ServerSettings) -> None:
    paused = await Store.open(settings, seal_keys=SEAL_KEYS)
    execute(settings.database, "UPDATE server_lease SET until = clock_timestamp() - interval '1 second'")
    other = await Store.open(settings, seal_keys=SEAL_KEYS)
    for _ in range(2):
        with pytest.raises(StorageError, match="taken the database over"):
            await paused.chat.create_project("alice", "late")
    with pytest.raises(StorageError, match="taken the database over"):
        await paused.check_writable()
    await paused.close()
    project = await other.chat.create_project("alice", "demo")
    assert await other.chat.projects("alice") == [project]
    await other.close()


async def test_a_lease_that_ran_out_is_extended_if_nobody_took_it(settings: ServerSettings) -> None:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    execute(settings.database, "UPDATE server_lease SET until = clock_timestamp() - interval '1 second'")
    await store.check_writable()
    (row,) = execute(settings.database, "SELECT until > clock_timestamp() FROM server_lease")
    assert row[0]
    await store.close()


async def test_idle_server_extends_its_lease(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "RENEW_SECONDS", 0.01)
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    look = "SELECT commits FROM server_lease"
    before = execute(settings.database, look)
    async with asyncio.timeout(5):
        while execute(settings.database, look) == before:
            await asyncio.sleep(0.01)
    await store.close()


# Lost connections


async def test_a_connection_lost_while_idle_is_replaced(database_url: str) -> None:
    async with notes(database_url) as database:
        await database.read(all_notes)
        execute(database_url, KILL)
        assert await database.write(add("a")) == "a"
        assert await database.read(all_notes) == ["a"]


async def test_units_of_a_transaction_that_was_lost_run_again_once(database_url: str) -> None:
    runs: list[str] = []

    def lost(transaction: Transaction) -> str:
        transaction.execute("INSERT INTO notes (id) VALUES ('lost')")
        if not runs:
            execute(database_url, KILL)
        runs.append(transaction.now)
        assert transaction.execute("SELECT 1 AS one").fetchone() is not None
        return "lost"

    async with notes(database_url) as database:
        assert await asyncio.gather(database.write(add("a")), database.write(lost)) == ["a", "lost"]
        assert len(runs) == 2
        assert await database.read(all_notes) == ["a", "lost"]

        def always(transaction: Transaction) -> None:
            add("never")(transaction)
            transaction.execute("SELECT 1 AS one").fetchone()
            execute(database_url, KILL)

        with pytest.raises(StorageError) as failure:
            await database.write(always)
        assert not isinstance(failure.value, UnknownEndError)
        assert await database.read(all_notes) == ["a", "lost"]


def cut_at_commit(monkeypatch: pytest.MonkeyPatch, *, kept: bool) -> None:
    """Lose the connection at the next commit, after or before the server has it."""
    real, cuts = Statements.send, [1]

    def send(statements: Statements, *last: str) -> None:
        if last != ("COMMIT",) or not cuts:
            return real(statements, *last)
        cuts.pop()
        if kept:
            real(statements, *last)
        statements._connection.close()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(Statements, "send", send)


@pytest.mark.parametrize("kept", [False, True])
async def test_end_of_a_commit_without_an_answer_is_found_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    runs: list[str] = []

    def counted(transaction: Transaction) -> str:
        runs.append("run")
        return add("a")(transaction)

    async with notes(database_url) as database:
        cut_at_commit(monkeypatch, kept=kept)
        assert await database.write(counted) == "a"
        assert len(runs) == (1 if kept else 2)
        assert await database.read(all_notes) == ["a"]


async def test_an_end_that_nobody_can_tell_is_said_so_and_never_tried_again(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = records.store
    with monkeypatch.context() as away:
        away.setattr(database, "FIND_OUT_SECONDS", 0.3)
        cut_at_commit(away, kept=True)

        def refuse(url: str) -> None:
            raise psycopg.OperationalError("connection refused")

        away.setattr(database, "connect", refuse)
        with pytest.raises(UnknownEndError, match="not known if that was kept"):
            await begin(store, records.call(key="once"), Clearance("risk:LOW"), client_id="c1")
        with pytest.raises(StorageError, match="refused"):
            await store.chat.create_project("alice", "away")
    row = await begin(store, records.call(key="once"), Clearance("risk:LOW"), client_id="c1")
    rows = (await store.executions.page(HistoryFilter("alice"))).rows
    assert [row.id for row in rows] == [row.id], "it was kept, and is found by its key"
    assert [check.fault for check in await store.audit.verify()] == [None]


async def test_nothing_is_lost_or_doubled_while_connections_are_killed(database_url: str) -> None:
    async with notes(database_url) as database:
        done = asyncio.Event()

        def kill() -> int:
            kills = 0
            while not done.is_set():
                execute(database_url, KILL)
                kills += 1
            return kills

        killing = asyncio.create_task(asyncio.to_thread(kill))
        results: dict[str, object] = {}

        async def write(name: str) -> None:
            for number in range(25):
                note = f"{name}-{number:02}"
                (results[note],) = await asyncio.gather(database.write(add(note)), return_exceptions=True)

        await asyncio.gather(*(write(name) for name in "abcdefgh"))
        done.set()
        assert await killing > 10
        kept = set(await database.read(all_notes))
        acknowledged = {note for note, result in results.items() if result == note}
        unknown = {note for note, result in results.items() if isinstance(result, UnknownEndError)}
        assert {type(result) for result in results.values()} <= {str, StorageError, UnknownEndError}
        assert acknowledged <= kept
        assert kept <= acknowledged | unknown
        assert len(acknowledged) > 100


@pytest.mark.parametrize(("durability", "links"), [("full", 1), ("normal", 0)])
async def test_commits_that_the_database_lost_are_told(settings: ServerSettings, durability: str, links: int) -> None:
    store = await Store.open(settings.model_copy(update={"durability": durability}), seal_keys=SEAL_KEYS)
    project = await store.chat.create_project("alice", "demo")
    kept = [execute(settings.database, f"SELECT * FROM {table}") for table in ("feeds", "seals", "server_lease")]
    session = await store.chat.create_session("alice", project.id, "lost")
    ((feed,), (heads,), (lease,)) = kept
    execute(
        settings.database,
        f"DELETE FROM sessions WHERE id = '{session.id}'",
        "DELETE FROM audit WHERE seq > 1",
        f"UPDATE feeds SET seq = {feed[1]}, audit_seq = {feed[2]}, audit_hash = '{feed[3]}', audit_seal = '{feed[4]}'",
        f"UPDATE seals SET value = '{heads[1]}', seal = '{heads[2]}'",
        f"UPDATE server_lease SET commits = {lease[3]}",
    )
    with capture_logs() as logs:
        await store.chat.create_session("alice", project.id, "after")
    assert [line["commits"] for line in logs if "lost commits" in line["event"]] == [1]
    actions = [link.action for link in await store.audit.records(project.id)]
    assert actions.count(UNSEALED) == links
    await store.close()


async def test_a_restart_of_the_server_is_survived(settings: ServerSettings, postgres_server: PostgresServer) -> None:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    project = await store.chat.create_project("alice", "before")
    postgres_server.control("-m", "immediate", "restart")
    session = await store.chat.create_session("alice", project.id, "after")
    assert await store.chat.sessions("alice", project.id) == [session]
    assert [check.fault for check in await store.audit.verify()] == [None]
    await store.close()


# A pooler


@pytest.mark.skipif(program("pgbouncer") is None, reason="PgBouncer is not installed (scripts/setup-tests)")
async def test_pooler_in_transaction_mode_changes_nothing(
    settings: ServerSettings, postgres_server: PostgresServer, database_url: str
) -> None:
    name = database_url.partition("@/")[2].partition("?")[0]
    with pooling(postgres_server) as directory:
        url = postgres_server.url(name, directory=directory)
        pooled = settings.model_copy(update={"database_url": url})
        store = await Store.open(pooled, seal_keys=SEAL_KEYS)
        with pytest.raises(InUseError):
            await Store.open(pooled, seal_keys=SEAL_KEYS)
        with pytest.raises(InUseError):
            await Store.open(settings, seal_keys=SEAL_KEYS)
        project = await store.chat.create_project("alice", "demo")
        session = await store.chat.create_session("alice", project.id, "first")
        records = Records(store, None, pooled, project, session)  # type: ignore[arg-type]

        async def call(number: int) -> None:
            row = await begin(store, records.call(key=f"n{number}"), Clearance("risk:LOW"), client_id="c1")
            if number % 10 == 0:
                execute(database_url, KILL)
            await settle(
                store,
                row.id,
                user_id="alice",
                project_id=project.id,
                client_id="c1",
                result="{}",
                result_hash="h",
            )
            await store.executions.get(row.id, user_id="alice")

        await asyncio.gather(*(call(number) for number in range(60)))
        assert [check.fault for check in await store.audit.verify()] == [None]
        looking = await Store.inspect(pooled, seal_keys=SEAL_KEYS)
        page = await looking.executions.page(HistoryFilter("alice", limit=100))
        assert {row.status.value for row in page.rows} == {"completed"}
        assert page.total == 60
        await looking.close()
        await store.close()


# What PostgreSQL stores otherwise


async def test_text_with_nul_is_kept_with_a_sign_for_it(records: Records) -> None:
    store = records.store
    posted = await store.chat.post("alice", records.project.id, "a\x00b", session_id=None, mode=AgentMode.SANDBOX)
    project = await store.chat.create_project("alice", "c\x00d")
    (message,) = await store.chat.messages("alice", posted.session_id)
    assert message.content == "a\u2400b"
    row = await begin(store, records.call(), Clearance("risk:LOW"), client_id="c1")
    settled = await settle(
        store,
        row.id,
        user_id="alice",
        project_id=records.project.id,
        client_id="c1",
        result=plain_json({"stdout": "e\x00f"}),
        result_hash="h",
        error="g\x00h",
    )
    assert (settled.error, settled.result) == ("g\u2400h", plain_json({"stdout": "e\x00f"}))
    assert "c\u2400d" in {one.name for one in await store.chat.projects("alice")}
    assert project.id
    assert [check.fault for check in await store.audit.verify()] == [None, None]


async def test_long_output_is_left_out_whatever_a_command_printed(records: Records) -> None:
    store = records.store
    output = 'NUL \x00, a quote " and \\ and "stderr":"x" and \ud83d'.encode("utf-8", "replace").decode() * 4000
    call = records.call(tool_name="execute_command", params=plain_json({"command": ["x"]}))
    row = await begin(store, call, Clearance("risk:LOW"), client_id="c1")
    result = {"success": True, "stdout": output, "stderr": "e", "changes": ["a.txt"], "exit_code": 0}
    await settle(
        store,
        row.id,
        user_id="alice",
        project_id=records.project.id,
        client_id="c1",
        result=plain_json(result),
        result_hash="h",
    )
    (shown,) = (await store.executions.page(HistoryFilter("alice"))).rows
    told = shown.to_wire().result
    assert told == {"success": True, "changes": ["a.txt"], "exit_code": 0, "shortened": True}


@pytest.mark.parametrize(
    ("tampering", "name"),
    [
        ('ALTER TABLE messages ALTER content TYPE TEXT COLLATE "POSIX"', "table messages"),
        ("CREATE RULE r AS ON DELETE TO messages DO INSTEAD NOTHING", "table messages"),
        ("ALTER TABLE messages ENABLE ROW LEVEL SECURITY", "table messages"),
        ("ALTER TABLE messages DROP CONSTRAINT messages_session_id_fkey", "table messages"),
        ("DROP TABLE server_lease", "index server_lease_pkey"),
        (
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
            "CREATE TRIGGER t BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION f()",
            "function f",
        ),
    ],
)
async def test_tables_that_were_changed_are_found(records: Records, tampering: str, name: str) -> None:
    assert [check.fault for check in await records.store.audit.verify()] == [None]
    with outside(records) as connection:
        connection.do(tampering)
    assert (await records.store.audit.verify())[0].fault == f"the {name} is not as this server made it"


# Errors in words


async def refusal(tmp_path: Path, url: str, **options: Any) -> tuple[str, str]:
    with pytest.raises(ConfigurationError) as refused:
        await Store.open(ServerSettings(home=tmp_path, database_url=url, **options), seal_keys=SEAL_KEYS)
    return refused.value.message, refused.value.hint or ""


async def test_a_database_that_cannot_be_opened_is_told_in_words(
    tmp_path: Path, postgres_server: PostgresServer, database_url: str
) -> None:
    message, hint = await refusal(tmp_path, "postgresql://byleave:hush@127.0.0.1:1/byleave")
    assert "'postgresql://byleave@127.0.0.1:1/byleave' cannot be opened" in message
    assert "hush" not in message + hint
    assert "host, port" in hint
    message, hint = await refusal(tmp_path, postgres_server.url("nowhere"))
    assert '"nowhere" does not exist' in message
    assert "createdb" in hint
    locked = postgres_server.url(user=LOCKED_USER)
    assert "~/.pgpass" in (await refusal(tmp_path, locked))[1]
    message, hint = await refusal(tmp_path, locked.replace("@", ":wrong@"))
    assert "password is wrong" in hint
    assert PASSWORD not in message
    message, hint = await refusal(tmp_path, "postgresql://byleave:hush@h/db?nonsense=1")
    assert "hush" not in message + hint
    assert "postgresql://USER:PASSWORD@HOST" in hint
    assert "RETENTION_DAYS" in (await refusal(tmp_path, database_url, retention_mb=1))[1]


async def test_a_user_who_may_make_no_tables_is_told_so(
    tmp_path: Path, postgres_server: PostgresServer, database_url: str
) -> None:
    execute(database_url, "REVOKE ALL ON SCHEMA public FROM PUBLIC", f"GRANT USAGE ON SCHEMA public TO {LOCKED_USER}")
    name = database_url.partition("@/")[2].partition("?")[0]
    url = postgres_server.url(name, user=f"{LOCKED_USER}:{PASSWORD.replace(' ', '%20')}")
    message, hint = await refusal(tmp_path, url)
    assert "permission denied" in message
    assert "owner" in hint


async def test_tables_of_somebody_else_are_left_alone(tmp_path: Path, database_url: str) -> None:
    execute(database_url, "CREATE TABLE precious (id INTEGER)")
    message, hint = await refusal(tmp_path, database_url)
    assert "no record of Byleave" in message
    assert "createdb" in hint
    assert execute(database_url, "SELECT count(*) FROM pg_class WHERE relname = 'feeds'") == [(0,)]


async def test_records_of_other_versions_are_refused(settings: ServerSettings, tmp_path: Path) -> None:
    await (await Store.open(settings, seal_keys=SEAL_KEYS)).close()
    execute(settings.database, "UPDATE alembic_version SET version_num = '9999'")
    assert "newer Byleave (its tables are '9999')" in (await refusal(tmp_path, settings.database))[0]
    with pytest.raises(ConfigurationError, match="newer"):
        await Store.inspect(settings, seal_keys=SEAL_KEYS)
    execute(settings.database, "UPDATE alembic_version SET version_num = '0001'")
    assert "older Byleave" in (await refusal(tmp_path, settings.database))[0]
    execute(settings.database, f"UPDATE alembic_version SET version_num = '{NEWEST}'")
    await (await Store.open(settings, seal_keys=SEAL_KEYS)).close()


async def test_inspecting_an_empty_database_says_where_to_look(settings: ServerSettings) -> None:
    with pytest.raises(ConfigurationError, match="no record") as refused:
        await Store.inspect(settings, seal_keys=SEAL_KEYS)
    assert "BYLEAVE_DATABASE_URL" in (refused.value.hint or "")


async def test_inspecting_works_while_a_server_runs_and_writes_nothing(settings: ServerSettings) -> None:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    await store.chat.create_project("alice", "demo")
    looking = await Store.inspect(settings, seal_keys=SEAL_KEYS)
    assert [check.fault for check in await looking.audit.verify()] == [None]
    with pytest.raises(StorageError, match="reading only"):
        await looking.chat.create_project("alice", "more")
    await looking.close()
    await store.close()


async def test_without_psycopg_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("byleave.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    message, hint = await refusal(tmp_path, "postgresql://h/db")
    assert "psycopg" in message
    assert "byleave[postgres]" in hint
