"""PostgreSQL alone: several servers, lost connections, a pooler, and errors in words."""

import asyncio
import itertools
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
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
from byleave.store import StorageError, Store, UnknownEndError
from byleave.store.database import Hint, Lookup, Transaction
from byleave.store.executions import HistoryFilter
from byleave.store.ledger import UNSEALED
from byleave.store.migrations import NEWEST
from byleave.store.postgres import PostgresDatabase, database
from byleave.store.postgres import notices as wake_ups
from byleave.store.postgres.connections import Statements
from byleave.store.postgres.notices import notices
from harness.postgres import LOCKED_USER, PASSWORD, PostgresServer, pooling, program
from harness.records import SEAL_KEYS, Records, outside

pytestmark = [pytest.mark.promise("D"), pytest.mark.postgres]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """A loaded machine is slow to connect again, which is no fault; tests of giving up have limits of their own."""
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(database, "FIND_OUT_SECONDS", 60.0)


def execute(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursors = [connection.execute(statement.encode()) for statement in statements]
        return cursors[-1].fetchall() if cursors[-1].description else []


COMMITS = "SELECT commits FROM servers WHERE id = 'all'"
KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@asynccontextmanager
async def notes(url: str, **options: Any) -> AsyncGenerator[PostgresDatabase]:
    """A database with a table of notes beside Byleave's."""
    database = PostgresDatabase(url, **options)
    await database.open(lambda transaction, was: None)
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
        (before,) = execute(database_url, COMMITS)
        await asyncio.gather(*(database.write(add(f"{number:03}")) for number in range(200)))
        (after,) = execute(database_url, COMMITS)
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


# Round trips


async def test_each_transaction_of_a_low_call_asks_the_server_twice(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    real = psycopg.Connection.execute

    def counted(connection: psycopg.Connection[Any], query: bytes) -> object:
        asked.append(query)
        return real(connection, query)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)

    async def call() -> tuple[int, int]:
        """Questions to the server of each transaction."""
        asked.clear()
        row = await begin(records.store, records.call(), Clearance("risk:LOW"), client_id="c1")
        begun = len(asked)
        await settle(
            records.store,
            row.id,
            user_id="alice",
            project_id=records.project.id,
            client_id="c1",
            result="{}",
            result_hash="h" * 64,
        )
        return begun, len(asked) - begun

    await call()  # finds out who wrote before
    assert await call() == (2, 2)


def find(note: str) -> Lookup:
    return Lookup("notes", note, "SELECT * FROM notes WHERE id = :id", {"id": note})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("INSERT INTO notes (id) VALUES (:id)", ["kept", "new"]),
        ("UPDATE notes SET text = 'new' WHERE id = :id", ["kept"]),
        ("UPDATE notes SET text = 'new' WHERE id = :id OR id = 'kept'", ["new"]),
        ("DELETE FROM notes WHERE id = :id", ["kept"]),
        ("DELETE FROM notes", []),
    ],
)
async def test_answers_asked_ahead_are_those_that_a_unit_would_get(
    database_url: str, change: str, found: list[str]
) -> None:
    together = threading.Event()

    def look(transaction: Transaction) -> list[str]:
        lookups = [find("kept"), find("new")]
        rows = [transaction.execute(lookup.sql, lookup.parameters).fetchall() for lookup in lookups]
        return [row["text"] or row["id"] for each in rows for row in each]

    async with notes(database_url) as database:
        execute(database_url, "ALTER TABLE notes ADD COLUMN text TEXT")
        await database.write(add("kept"))
        first = database.write(lambda transaction: together.wait(10))
        made = database.write(lambda transaction: transaction.execute(change, {"id": "new"}))
        looked = database.write(look, ahead=lambda: [find("kept"), find("new")])
        together.set()
        await asyncio.gather(first, made)
        assert await looked == found


async def test_row_that_was_changed_from_outside_in_between_is_looked_at_again(database_url: str) -> None:
    seen: list[str] = []

    def work(transaction: Transaction) -> None:
        (row,) = transaction.execute("SELECT text FROM notes").fetchall()
        seen.append(row["text"])
        if len(seen) == 1:
            execute(database_url, "UPDATE notes SET text = 'outside'")
        values = {"text": "ours", "id": "a", "was": row["text"]}
        transaction.change("UPDATE notes SET text = :text WHERE id = :id AND text = :was", values)

    async with notes(database_url) as database:
        execute(database_url, "ALTER TABLE notes ADD COLUMN text TEXT DEFAULT 'first'")
        await database.write(add("a"))
        await database.write(work)
        assert execute(database_url, "SELECT text FROM notes") == [("ours",)]
    assert seen == ["first", "outside"]


async def test_change_of_a_row_that_never_is_as_found_fails(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.1)
    async with notes(database_url) as opened:
        with pytest.raises(StorageError):
            await opened.write(lambda transaction: transaction.change("UPDATE notes SET id = id", {}))


async def test_units_that_come_while_others_run_join_their_transaction(database_url: str) -> None:
    loop = asyncio.get_running_loop()
    joined: list[asyncio.Future[str]] = []

    async def join() -> None:
        joined.append(database.write(add("b"), ahead=lambda: [find("b")]))

    def work(transaction: Transaction) -> None:
        asyncio.run_coroutine_threadsafe(join(), loop).result(10)
        add("a")(transaction)

    async with notes(database_url) as database:
        (before,) = execute(database_url, COMMITS)
        await database.write(work)
        assert await joined[0] == "b"
        (after,) = execute(database_url, COMMITS)
        assert (after[0] - before[0], await database.read(all_notes)) == (1, ["a", "b"])


# Several servers


async def test_servers_that_write_at_once_keep_one_whole_record(settings: ServerSettings) -> None:
    stores = [await Store.open(settings, seal_keys=SEAL_KEYS) for _ in range(3)]
    project = await stores[0].chat.create_project("alice", "demo")

    async def write(store: Store, number: int) -> str:
        return (await store.chat.create_session("alice", project.id, f"{number}")).id

    made = await asyncio.gather(*(write(store, number) for number in range(40) for store in stores))
    assert len(set(made)) == 120
    for store in stores:
        assert [check.fault for check in await store.audit.verify()] == [None]
    events, head, _, _ = await stores[1].feed.after(project.id, 0, client_id=None, limit=1000)
    assert [event.seq for event in events] == list(range(1, head + 1))
    for store in stores:
        await store.close()
    # Each signed off; only the row that they took turns at is left.
    assert execute(settings.database, "SELECT id FROM servers") == [("all",)]


async def test_an_idle_server_extends_its_lease(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "RENEW_SECONDS", 0.01)
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    execute(settings.database, "UPDATE servers SET until = '' WHERE id <> 'all'")
    async with asyncio.timeout(30):
        while execute(settings.database, "SELECT until FROM servers WHERE id <> 'all'") == [("",)]:
            await asyncio.sleep(0.01)
    assert [server.lapsed for server in await store.servers.look()] == [False]
    await store.close()


async def test_a_server_that_the_others_forgot_registers_again(settings: ServerSettings) -> None:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    execute(settings.database, "DELETE FROM servers WHERE id <> 'all'")
    with capture_logs() as logs:
        await store.chat.create_project("alice", "demo")
    assert not logs
    assert [server.id for server in await store.servers.look()] == [store.servers.own_id]
    await store.close()


async def test_a_server_with_another_secret_is_refused_while_others_live(settings: ServerSettings) -> None:
    store = await Store.open(settings, seal_keys=SEAL_KEYS)
    with pytest.raises(ConfigurationError, match=r"Another server \(.+, process \d+\) keeps the record") as refused:
        await Store.open(settings, seal_keys=(b"another" * 5,))
    assert "BYLEAVE_SECRET" in (refused.value.hint or "")
    assert [server.id for server in await store.servers.look()] == [store.servers.own_id]
    await store.close()
    await (await Store.open(settings, seal_keys=(b"another" * 5,))).close()  # alone it is told, as with SQLite


@pytest.mark.promise("W9")
async def test_a_rollback_under_running_servers_shows_in_the_chain(settings: ServerSettings) -> None:
    stores = [await Store.open(settings, seal_keys=SEAL_KEYS) for _ in range(2)]
    project = await stores[0].chat.create_project("alice", "demo")
    (feed,), (heads,) = [execute(settings.database, f"SELECT * FROM {table}") for table in ("feeds", "seals")]
    session = await stores[0].chat.create_session("alice", project.id, "rolled back")
    execute(
        settings.database,
        f"DELETE FROM sessions WHERE id = '{session.id}'",
        "DELETE FROM audit WHERE seq > 1",
        f"UPDATE feeds SET seq = {feed[1]}, audit_seq = {feed[2]}, audit_hash = '{feed[3]}', audit_seal = '{feed[4]}'",
        f"UPDATE seals SET value = '{heads[1]}', seal = '{heads[2]}'",
    )
    for store in reversed(stores):  # the other one writes first, and sees nothing wrong
        await store.check_writable()
        await store.chat.create_session("alice", project.id, "after")
    actions = [link.action for link in await stores[0].audit.records(project.id)]
    assert actions.count(UNSEALED) == 1
    for store in stores:
        await store.close()


async def test_commits_tell_the_other_servers_of_their_topics(settings: ServerSettings) -> None:
    stores = [await Store.open(settings, seal_keys=SEAL_KEYS) for _ in range(2)]
    heard: asyncio.Queue[str] = asyncio.Queue()
    listening = [store.wake_ups(None) for store in stores]

    def hear(topics: Iterable[str]) -> None:
        for topic in topics:
            heard.put_nowait(topic)

    for each in listening:
        assert each is not None
        await each.start(hear)
    async with asyncio.timeout(10):
        while heard.empty():  # until it listens
            project = await stores[1].chat.create_project("alice", "demo")
            await stores[1].chat.post("alice", project.id, "hello", session_id=None, mode=AgentMode.SANDBOX)
            await asyncio.sleep(0.01)
    while not (topic := await heard.get()).startswith("feed:"):
        assert topic == "servers"
    for each, store in zip(listening, stores, strict=True):
        assert each is not None
        await each.stop()
        await store.close()


def test_topics_of_a_large_commit_travel_in_several_notices() -> None:
    topics = [f"feed:{number:030}" for number in range(1000)]
    texts = notices("me", topics)
    assert max(map(len, texts)) < 8000
    assert [topic for text in texts for topic in text.split(" ")[1:]] == topics
    assert notices("me", []) == []


# Lost connections


async def test_a_connection_lost_while_idle_is_replaced(database_url: str) -> None:
    async with notes(database_url) as database:
        await database.read(all_notes)
        execute(database_url, KILL)
        assert await database.write(add("a")) == "a"
        assert await database.read(all_notes) == ["a"]


async def test_units_of_a_transaction_that_was_lost_run_again_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def lost(transaction: Transaction) -> str:
        transaction.execute("INSERT INTO notes (id) VALUES ('lost')")
        if not runs:
            execute(database_url, KILL)
        runs.append(transaction.now)
        assert transaction.execute("SELECT 1 AS one").fetchone() is not None
        return "lost"

    async with notes(database_url) as record:
        assert await asyncio.gather(record.write(add("a")), record.write(lost)) == ["a", "lost"]
        assert len(runs) == 2
        assert await record.read(all_notes) == ["a", "lost"]

        def always(transaction: Transaction) -> None:
            add("never")(transaction)
            transaction.execute("SELECT 1 AS one").fetchone()
            execute(database_url, KILL)

        with monkeypatch.context() as given_up:
            given_up.setattr(database, "PATIENCE_SECONDS", 0.3)
            with pytest.raises(StorageError) as failure:
                await record.write(always)
        assert not isinstance(failure.value, UnknownEndError)
        assert await record.read(all_notes) == ["a", "lost"]


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
        away.setattr(database, "PATIENCE_SECONDS", 0.3)
        cut_at_commit(away, kept=True)

        def refuse(url: str) -> None:
            raise psycopg.OperationalError("connection refused")

        away.setattr(database, "connect", refuse)
        with pytest.raises(UnknownEndError, match="not known if that was kept"):
            await begin(store, records.call(key="once"), Clearance("risk:LOW"), client_id="c1")
        with pytest.raises(StorageError, match="refused"):
            await store.chat.create_project("alice", "away")
        execute(records.settings.database, KILL)
        with pytest.raises(StorageError, match="cannot be read") as failure:
            await store.chat.projects("alice")
        assert "Nothing" not in failure.value.hint, "its caller may have written before"
    row = await begin(store, records.call(key="once"), Clearance("risk:LOW"), client_id="c1")
    rows = (await store.executions.page(HistoryFilter("alice"))).rows
    assert [row.id for row in rows] == [row.id], "it was kept, and is found by its key"
    assert [check.fault for check in await store.audit.verify()] == [None]


async def test_nothing_is_lost_or_doubled_while_connections_are_killed(database_url: str) -> None:
    async with notes(database_url) as database:

        def kill() -> None:
            for _ in range(15):
                execute(database_url, KILL)

        killing = asyncio.create_task(asyncio.to_thread(kill))
        results: dict[str, object] = {}

        async def write(name: str) -> None:
            for number in itertools.count():
                if killing.done() and number >= 25:
                    return
                note = f"{name}-{number:02}"
                (results[note],) = await asyncio.gather(database.write(add(note)), return_exceptions=True)

        await asyncio.gather(*(write(name) for name in "abcdefgh"))
        await killing
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
    kept = [execute(settings.database, f"SELECT * FROM {table}") for table in ("feeds", "seals", "servers")]
    session = await store.chat.create_session("alice", project.id, "lost")
    (feed,), (heads,), servers = kept
    execute(
        settings.database,
        f"DELETE FROM sessions WHERE id = '{session.id}'",
        "DELETE FROM audit WHERE seq > 1",
        f"UPDATE feeds SET seq = {feed[1]}, audit_seq = {feed[2]}, audit_hash = '{feed[3]}', audit_seal = '{feed[4]}'",
        f"UPDATE seals SET value = '{heads[1]}', seal = '{heads[2]}'",
        *(f"UPDATE servers SET commits = {commits} WHERE id = '{name}'" for name, _, commits, _ in servers),
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
        await (await Store.open(pooled, seal_keys=SEAL_KEYS)).close()
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


async def test_a_server_that_hears_nothing_says_so_and_what_helps(
    settings: ServerSettings, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not program("pgbouncer"):
        pytest.skip("PgBouncer is not installed (scripts/setup-tests)")
    monkeypatch.setattr(wake_ups, "DEAF_SECONDS", 0.5)
    monkeypatch.setattr(wake_ups, "AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(database, "RENEW_SECONDS", 0.05)
    with pooling(postgres_server) as directory:
        name = settings.database.partition("@/")[2].partition("?")[0]
        pooled = settings.model_copy(update={"database_url": postgres_server.url(name, directory=directory)})
        store = await Store.open(pooled, seal_keys=SEAL_KEYS)
        deaf, hearing = store.wake_ups(None), store.wake_ups(settings.database)
        assert deaf is not None
        assert hearing is not None
        with capture_logs() as logs:
            async with asyncio.timeout(60):
                for each in (deaf, hearing):
                    await each.start(lambda topics: None)
                # On a loaded machine half a second may bring nothing to the other one, either; it hears again.
                while deaf.trouble is None or hearing.trouble is not None:
                    await asyncio.sleep(0.01)
        assert {"BYLEAVE_BUS_URL" in line["hint"] for line in logs} == {True}
        for each in (deaf, hearing):
            await each.stop()
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
        ("DROP TABLE servers", "index servers_pkey"),
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
    execute(
        settings.database,
        "UPDATE alembic_version SET version_num = '9999'",
        "COMMENT ON TABLE alembic_version IS 'oldest writer: 9998'",
    )
    assert "newer Byleave (its tables are '9999', and" in (await refusal(tmp_path, settings.database))[0]
    with pytest.raises(ConfigurationError, match="newer"):
        await Store.inspect(settings, seal_keys=SEAL_KEYS)
    execute(settings.database, "COMMENT ON TABLE alembic_version IS NULL")
    assert "newer Byleave (its tables are '9999')" in (await refusal(tmp_path, settings.database))[0]
    execute(settings.database, "UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(ConfigurationError, match="older") as refused:
        await Store.inspect(settings, seal_keys=SEAL_KEYS)
    assert "byleave db migrate" in (refused.value.hint or "")
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
    assert "[postgres]" in hint
