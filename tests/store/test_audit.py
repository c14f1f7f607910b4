"""The audit chain: whole when untouched, and any tampering shows."""

import asyncio
import sqlite3
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.protocol.grants import GrantRule
from byleave.protocol.states import AgentMode, ApprovalScope, RiskLevel
from byleave.protocol.wire import plain_json
from byleave.settings import ServerSettings
from byleave.store import Store
from byleave.store.approvals import Question
from byleave.store.grants import NewGrant
from byleave.store.ledger import NOT_COVERED, UNSEALED
from byleave.store.sqlite import SqliteDatabase
from harness.records import SEAL_KEYS, Records, answer, outside

pytestmark = pytest.mark.promise("D")


SQLITE = pytest.mark.sqlite
ALL_OF_A_PROJECT = ("events", "audit", "feeds", *NOT_COVERED)


async def fill(records: Records) -> None:
    for _ in range(4):
        await begin(records.store, records.call(), Clearance("risk:LOW"), client_id="c1")


async def fill_every_table(records: Records) -> None:
    """A message with its run, a call that a person allowed with a grant, and one that waits."""
    store = records.store
    await store.chat.post("alice", records.project.id, "hello", session_id=None, mode=AgentMode.SANDBOX)
    for name in ("a", "b"):
        params = plain_json({"path": f"src/{name}.py", "content": "x", "create_dirs": True})
        call = records.call(tool_name="write_file", key=name, params=params, risk_level=RiskLevel.MEDIUM)
        row = await begin(store, call, Question("write", 300), client_id="c1")
        if name == "a":
            grant = NewGrant(ApprovalScope.CLASS, GrantRule(tool="write_file", paths=("lib/**",)), "lib", 3600, 9)
            await answer(
                store,
                row.approval_id or "",
                user_id="alice",
                approve=True,
                client_id="c1",
                grant=grant,
            )
    await settle(
        store, "a", user_id="alice", project_id=records.project.id, client_id="c1", result="{}", result_hash="h"
    )


async def whole_then_broken(records: Records, tampering: str) -> str:
    """Do something to the file behind the server's back; gives what verification then says."""
    assert [check.fault for check in await records.store.audit.verify()] == [None]
    with outside(records) as connection:
        connection.do(tampering)
    return " / ".join(check.fault or "whole" for check in await records.store.audit.verify())


@pytest.mark.parametrize(
    ("tampering", "fault"),
    [
        ("UPDATE audit SET actor = 'somebody' WHERE seq = 3", "record 3 was changed"),
        ("UPDATE audit SET detail = '{}' WHERE seq = 2", "record 2 was changed"),
        ("UPDATE audit SET at = '2020-01-01T00:00:00.000Z' WHERE seq = 4", "record 4 was changed"),
        ("UPDATE audit SET execution_id = '-' WHERE seq = 1", "record 1 was changed"),
        ("UPDATE audit SET execution_id = '' WHERE seq = 1", "record 1 was changed"),
        ("UPDATE audit SET approval_id = '-' WHERE seq = 2", "record 2 was changed"),
        ("UPDATE audit SET previous_hash = 'x' WHERE seq = 2", "record 2 does not follow"),
        ("DELETE FROM audit WHERE seq = 3", "record 3 is missing"),
        ("DELETE FROM audit WHERE seq = 6", "record 6 of 6 is missing"),
        ("DELETE FROM audit", "record 1 of 6 is missing"),
        ("UPDATE feeds SET audit_hash = 'x'", "not the one the project remembers"),
        ("UPDATE audit SET seq = 99 WHERE seq = 3", "behind the project's back"),
        (
            "INSERT INTO audit SELECT project_id, 7, at, actor, action, execution_id, approval_id, detail, "
            "previous_hash, hash FROM audit WHERE seq = 6",
            "record 7 was added",
        ),
        (
            "INSERT INTO audit SELECT project_id, -1, at, 'person:bob', 'approved', execution_id, approval_id, detail, "
            "previous_hash, hash FROM audit WHERE seq = 6",
            "a record was added before the first one",
        ),
        ("DELETE FROM audit; DELETE FROM feeds", "the chain is gone"),
        pytest.param("UPDATE audit SET actor = CAST(actor AS BLOB) WHERE seq = 3", "cannot be read", marks=SQLITE),
        pytest.param("UPDATE feeds SET audit_seq = 'many'", "cannot be read", marks=SQLITE),
    ],
)
async def test_tampering_with_the_record_is_found(records: Records, tampering: str, fault: str) -> None:
    await fill(records)
    assert fault in await whole_then_broken(records, tampering)


@pytest.mark.parametrize(
    ("tampering", "fault"),
    [
        (
            "UPDATE tool_executions SET result = '{\"success\":false}' WHERE id = 'a'",
            "'a' of tool_executions was changed",
        ),
        ("UPDATE tool_executions SET tool_params = '{}' WHERE id = 'b'", "'b' of tool_executions was changed"),
        ("UPDATE tool_executions SET approved_by = 'person:bob' WHERE id = 'a'", "was changed"),
        ("UPDATE tool_executions SET client_id = 'c2', error = 'x' WHERE id = 'b'", "was changed"),
        ("UPDATE tool_executions SET project_id = 'proj_other' WHERE id = 'a'", "was changed"),
        ("DELETE FROM tool_executions WHERE id = 'a'", "'a' of tool_executions is gone"),
        ("UPDATE approvals SET status = 'rejected', reason = 'no' WHERE status = 'approved'", "approvals was changed"),
        ("UPDATE approvals SET description = 'Write b.txt' WHERE status = 'pending'", "approvals was changed"),
        ("DELETE FROM approvals WHERE status = 'pending'", "of approvals is gone"),
        ("UPDATE messages SET content = 'delete everything'", "of messages was changed"),
        ("UPDATE runs SET prompt = 'delete everything'", "of runs was changed"),
        ("DELETE FROM messages", "of messages is gone"),
        ("UPDATE grants SET rule = NULL", "of grants was changed"),
        (
            "UPDATE grants SET uses = 0, revoked_at = NULL, expires_at = '2099-01-01T00:00:00.000Z'",
            "grants was changed",
        ),
        ("DELETE FROM grants", "of grants is gone"),
        ("UPDATE sessions SET user_id = 'bob'", "of sessions was changed"),
        ("UPDATE projects SET user_id = 'bob'", "of projects was changed"),
        (
            "CREATE TEMP TABLE t AS SELECT * FROM tool_executions WHERE id = 'a'; UPDATE t SET id = 'forged'; "
            "INSERT INTO tool_executions SELECT * FROM t",
            "'forged' of tool_executions is not in the chain",
        ),
        (
            "CREATE TEMP TABLE t AS SELECT * FROM messages; UPDATE t SET id = 'msg_forged', position = 9, "
            "project_id = 'proj_nobodys'; INSERT INTO messages SELECT * FROM t",
            "the chain is gone",
        ),
        pytest.param("UPDATE messages SET content = x'ff00'", "of messages was changed", marks=SQLITE),
        pytest.param("UPDATE grants SET project_id = x'ff00'", "of grants was changed", marks=SQLITE),
        pytest.param(
            "UPDATE grants SET project_id = x'ff00'",
            r"a row of grants was changed or slipped in: its project b'\xff",
            marks=SQLITE,
        ),
        pytest.param(
            "CREATE TEMP TABLE t AS SELECT * FROM messages; UPDATE t SET id = 'msg_forged', position = 9, "
            "project_id = x'ff00'; INSERT INTO messages SELECT * FROM t",
            "a row of messages was changed or slipped in",
            marks=SQLITE,
        ),
        pytest.param("UPDATE projects SET id = x'ff00'", "a row of projects was changed or slipped in", marks=SQLITE),
        pytest.param("UPDATE messages SET content = CAST(x'ff' AS TEXT)", "cannot be read", marks=SQLITE),
        (
            "CREATE TEMP TABLE t AS SELECT * FROM approvals LIMIT 1; UPDATE t SET id = ''; "
            "INSERT INTO approvals SELECT * FROM t",
            "'' of approvals is not in the chain",
        ),
        ("UPDATE feeds SET audit_seal = 'é'", "not sealed"),
        ("DROP TABLE grants", "cannot be read"),
        (
            "; ".join(f"DELETE FROM {table}" for table in ALL_OF_A_PROJECT),
            "the chains' ends together are not those this server wrote",
        ),
        ("DELETE FROM seals", "the chains' ends together are not those this server wrote"),
    ],
)
async def test_a_falsified_row_is_found(records: Records, tampering: str, fault: str) -> None:
    await fill_every_table(records)
    assert fault in await whole_then_broken(records, tampering)


@pytest.mark.parametrize(
    ("tampering", "name"),
    [
        ("UPDATE approvals SET description = 'Read a.txt' WHERE status = 'pending'", "of approvals"),
        ("UPDATE tool_executions SET tool_params = '{}' WHERE id = 'b'", "'b' of tool_executions"),
        ("UPDATE grants SET expires_at = '2099-01-01T00:00:00.000Z'", "of grants"),
    ],
)
async def test_a_falsified_row_is_found_also_after_the_server_has_written_it_again(
    records: Records, tampering: str, name: str
) -> None:
    await fill_every_table(records)
    assert name in await whole_then_broken(records, tampering)
    store = records.store
    (waiting,) = await store.approvals.pending("alice")
    await answer(store, waiting.id, user_id="alice", approve=True, client_id="c1")
    (grant,), _ = await store.grants.page("alice")
    await store.grants.revoke(grant.id, user_id="alice", actor="user:alice")
    (check,) = await store.audit.verify()
    assert check.fault is not None
    assert name in check.fault
    assert "before record" in check.fault


async def test_a_row_slipped_in_is_found_also_after_the_server_has_written_it(records: Records) -> None:
    await fill_every_table(records)
    store = records.store
    copy = "CREATE TEMP TABLE t AS SELECT * FROM grants; UPDATE t SET id = 'grant_forged'; "
    slip = f"{copy} INSERT INTO grants SELECT * FROM t"
    assert "'grant_forged' of grants is not in the chain" in await whole_then_broken(records, slip)
    await store.grants.revoke("grant_forged", user_id="alice", actor="user:alice")
    (check,) = await store.audit.verify()
    assert check.fault is not None
    assert "somebody other than this server changed the row 'grant_forged' of grants" in check.fault


async def test_a_removed_row_is_missed_also_after_the_server_has_made_one_with_its_id(records: Records) -> None:
    await begin(records.store, records.call(key="once"), Clearance("risk:LOW"), client_id="c1")
    removed = "DELETE FROM tool_executions WHERE id = 'once'"
    assert "'once' of tool_executions is gone" in await whole_then_broken(records, removed)
    await begin(records.store, records.call(key="once"), Clearance("risk:LOW"), client_id="c1")
    (check,) = await records.store.audit.verify()
    assert check.fault is not None
    assert "somebody other than this server changed the row 'once' of tool_executions" in check.fault


async def test_records_outside_the_chain_are_not_listed(records: Records) -> None:
    await fill(records)
    slip = (
        "INSERT INTO audit SELECT project_id, {}, at, 'person:bob', 'approved', execution_id, approval_id, detail, "
        "previous_hash, hash FROM audit WHERE seq = 6;"
    )
    await whole_then_broken(records, slip.format(0) + slip.format(7))
    entries, count = await records.store.audit.newest(records.project.id, None, 100)
    assert ([entry.seq for entry in entries], count) == ([6, 5, 4, 3, 2, 1], 6)


CUT = """
DELETE FROM tool_executions WHERE id = 'last'; DELETE FROM audit WHERE seq > 5;
UPDATE feeds SET audit_seq = 5, audit_hash = (SELECT hash FROM audit WHERE seq = 5)
"""


async def test_a_tail_that_was_cut_off_with_its_rows_is_found_also_after_more_was_written(records: Records) -> None:
    await fill(records)
    await begin(records.store, records.call(key="last"), Clearance("risk:LOW"), client_id="c1")
    assert "not sealed with this server's secret" in await whole_then_broken(records, CUT)
    await fill(records)
    (check, together) = await records.store.audit.verify()
    assert "before record 6 somebody other than this server" in (check.fault or "")
    assert together.fault


class Outsider:
    """Somebody who may read and write the file, and keeps what was in it: each row with its true seal."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._kept = {table: self._rows(table) for table in (*ALL_OF_A_PROJECT, "seals")}

    def put_back(self, project_id: str, *, seals: bool = False) -> None:
        """Make one project what it was, or remove it if it was not there yet."""
        with outside(self._records) as connection:
            for table, rows in self._kept.items():
                key = {"projects": "id", "seals": "name"}.get(table, "project_id")
                if table == "seals" and not seals:
                    continue
                of = "1 = 1" if table == "seals" else f"{key} = '{project_id}'"
                connection.do(f"DELETE FROM {table} WHERE {of}")
                for row in rows:
                    if table == "seals" or row[key] == project_id:
                        marks = ", ".join("?" * len(row))
                        connection.do(f"INSERT INTO {table} VALUES ({marks})", tuple(row.values()))

    def _rows(self, table: str) -> list[dict[str, object]]:
        with outside(self._records) as connection:
            return connection.rows(f"SELECT * FROM {table}")


TOGETHER = "the chains' ends together are not those this server wrote"


async def faults(records: Records) -> list[str]:
    return [check.fault for check in await records.store.audit.verify() if check.fault]


@pytest.mark.parametrize("seals", [False, True])
async def test_a_project_that_alone_was_made_what_it_was_is_found(records: Records, seals: bool) -> None:
    store = records.store
    other = await store.chat.create_project("bob", "other")
    await fill(records)
    outsider = Outsider(records)
    await begin(store, records.call(key="evil"), Clearance("risk:LOW"), client_id="c1")
    await store.chat.create_session("bob", other.id, "more")
    assert await faults(records) == []
    outsider.put_back(records.project.id, seals=seals)
    for _ in range(2):
        assert any(TOGETHER in fault for fault in await faults(records))
        for project_id in (records.project.id, other.id):
            assert (await store.audit.verify_project(project_id)).fault
        await begin(store, records.call(), Clearance("risk:LOW"), client_id="c1")
        await store.chat.create_session("bob", other.id, "more")


async def test_a_project_that_was_removed_with_an_older_seal_is_missed(records: Records) -> None:
    outsider = Outsider(records)
    other = await records.store.chat.create_project("bob", "other")
    await fill(records)
    outsider.put_back(other.id, seals=True)
    assert any(TOGETHER in fault for fault in await faults(records))


async def test_a_running_server_notices_that_the_whole_record_was_made_what_it_was(records: Records) -> None:
    await fill(records)
    outsider = Outsider(records)
    await begin(records.store, records.call(key="evil"), Clearance("risk:LOW"), client_id="c1")
    outsider.put_back(records.project.id, seals=True)
    assert await faults(records) == []  # which nothing in the file could show
    with capture_logs() as logs:
        await fill(records)
    assert [entry["log_level"] for entry in logs if "from outside" in entry["event"]] == ["error"]
    assert any("before record 7 somebody other than this server" in fault for fault in await faults(records))


@pytest.mark.parametrize(
    "tampering", ["UPDATE seals SET value = 'x'", "UPDATE seals SET seal = ''", "DELETE FROM seals"]
)
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_seal_on_all_chains_that_is_not_ours_stays_found_after_more_was_written(
    records: Records, tampering: str, restarted: bool
) -> None:
    await fill(records)
    assert TOGETHER in await whole_then_broken(records, tampering)
    if restarted:
        await records.store.close()
        records.store = await Store.open(records.settings, seal_keys=SEAL_KEYS)
    await fill(records)
    links = [link.action for link in await records.store.audit.records(records.project.id)]
    assert links.count(UNSEALED) == 1
    assert any("before record 7 somebody other than this server" in fault for fault in await faults(records))


def hide_from_index(records: Records, index: str, forging: str) -> None:
    """Change a table while SQLite does not know one of its indexes, which then shows what was there before."""
    database = records.store.database
    assert isinstance(database, SqliteDatabase)

    def change(statement: str, values: tuple[object, ...], *, schema: bool) -> None:
        with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
            if schema:
                version = connection.execute("PRAGMA schema_version").fetchone()[0]
                connection.execute("PRAGMA writable_schema = ON")
                connection.execute(f"PRAGMA schema_version = {version + 1}")
                connection.execute(statement, values)
            else:
                connection.executescript(statement)

    with closing(sqlite3.connect(database.path)) as connection:
        row = connection.execute("SELECT * FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    change("DELETE FROM sqlite_master WHERE name = ?", (index,), schema=True)
    change(forging, (), schema=False)
    change("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", row, schema=True)


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("index", "forging"),
    [
        (
            "ix_tool_executions_project",
            "CREATE TEMP TABLE t AS SELECT * FROM tool_executions WHERE id = 'a'; UPDATE t SET id = 'forged'; "
            "INSERT INTO tool_executions SELECT * FROM t",
        ),
        (
            "ix_messages_project",
            "CREATE TEMP TABLE t AS SELECT * FROM messages; UPDATE t SET id = 'msg_forged', position = 9; "
            "INSERT INTO messages SELECT * FROM t",
        ),
    ],
)
async def test_a_row_that_an_index_does_not_show_is_found(records: Records, index: str, forging: str) -> None:
    await fill_every_table(records)
    hide_from_index(records, index, forging)
    assert any("the file is not sound: row " in (check.fault or "") for check in await records.store.audit.verify())
    check = await records.store.audit.verify_project(records.project.id)
    assert "the file is not sound: row " in (check.fault or "")


@pytest.mark.parametrize(
    ("tampering", "name"),
    [
        pytest.param(
            "CREATE TRIGGER t AFTER INSERT ON messages BEGIN DELETE FROM messages; END", "trigger t", marks=SQLITE
        ),
        ("CREATE VIEW v AS SELECT 1", "view v"),
        ("CREATE TABLE more (id INTEGER)", "table more"),
        ("CREATE INDEX ix_more ON messages (content)", "index ix_more"),
        ("DROP INDEX ix_messages_project", "index ix_messages_project"),
        (
            "DROP INDEX ix_messages_project; "
            "CREATE INDEX ix_messages_project ON messages (project_id, id) where(false)",
            "index ix_messages_project",
        ),
        (
            "DROP INDEX ix_grants_session; CREATE INDEX ix_grants_session ON grants (session_id) where(false) "
            "-- WHERE revoked_at IS NULL",
            "index ix_grants_session",
        ),
        ("ALTER TABLE messages ADD COLUMN more TEXT", "table messages"),
        pytest.param("ALTER TABLE messages ADD COLUMN more AS ('x')", "table messages", marks=SQLITE),
        pytest.param(
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'content TEXT NOT NULL', "
            "'content TEXT NOT NULL COLLATE NOCASE') WHERE name = 'messages'",
            "table messages",
            marks=SQLITE,
        ),
    ],
)
async def test_tables_that_are_not_ours_are_found(records: Records, tampering: str, name: str) -> None:
    await fill_every_table(records)
    fault = f"the {name} is not as this server made it"
    assert fault in await whole_then_broken(records, tampering)
    assert fault in ((await records.store.audit.verify_project(records.project.id)).fault or "")


async def test_calls_that_join_waiting_questions_are_no_fault(records: Records) -> None:
    params = plain_json({"path": "a.md", "content": "x"})
    for _ in range(4):
        call = records.call(tool_name="write_file", params=params, risk_level=RiskLevel.MEDIUM)
        await begin(records.store, call, Question("write", 300), client_id="c1")
    assert [check.fault for check in await records.store.audit.verify()] == [None]


@pytest.mark.parametrize("column", ["true_params", "asked_params"])
async def test_other_parameters_behind_an_ended_call_are_found_and_never_shown(records: Records, column: str) -> None:
    await fill_every_table(records)
    fault = await whole_then_broken(records, f"UPDATE tool_executions SET {column} = '{{}}' WHERE id = 'a'")
    assert "'a' of tool_executions was given other parameters after its end" in fault
    ended = await records.store.executions.get("a", user_id="alice")
    assert (ended.true_params, ended.asked_params) == (None, None)
    _, _, call = await records.store.approvals.replaced(
        ended.approval_id or "", user_id="alice", whole=lambda approval: True
    )
    assert call is None


async def test_statistics_are_no_fault(records: Records) -> None:
    await fill_every_table(records)
    assert await whole_then_broken(records, "ANALYZE") == "whole"


async def test_another_secret_is_no_fault_once_the_one_before_it_was_named(
    records: Records, settings: ServerSettings
) -> None:
    await fill(records)
    await records.store.close()
    new = (b"another secret",)
    for keys, whole in ((new, False), ((*new, *SEAL_KEYS), True), (new, True), (SEAL_KEYS, False)):
        store = await Store.open(settings, seal_keys=keys)
        assert all(check.fault is None for check in await store.audit.verify()) == whole
        await store.close()


async def test_records_of_a_project_that_was_removed_are_still_missed(records: Records) -> None:
    await fill(records)
    with outside(records) as connection:
        connection.do("DELETE FROM feeds")
    assert all(check.fault is not None for check in await records.store.audit.verify())


async def test_concurrent_writers_leave_one_unbroken_chain_and_a_feed_without_gaps(records: Records) -> None:
    await asyncio.gather(
        *(begin(records.store, records.call(), Clearance("risk:LOW"), client_id="c1") for _ in range(100))
    )
    (check,) = await records.store.audit.verify()
    assert (check.fault, check.records) == (None, 102)
    numbers: list[int] = []
    seen = 0
    while True:
        events, seen, *_ = await records.store.feed.after(records.project.id, seen, client_id="c1", limit=7)
        if not events:
            break
        numbers += [event.seq for event in events]
    assert numbers == list(range(1, 201))
    assert await records.store.feed.head(records.project.id) == 200
    assert await records.store.feed.head("proj_unknown") == 0


async def test_verification_while_others_write_is_not_a_false_alarm(records: Records) -> None:
    await fill(records)

    async def write_on() -> None:
        for _ in range(30):
            await begin(records.store, records.call(), Clearance("risk:LOW"), client_id="c1")

    writing = asyncio.create_task(write_on())
    while not writing.done():
        assert [check.fault for check in await records.store.audit.verify()] == [None]
    await writing
