"""Retention: old calls, questions and events go; the chain still proves everything; what is needed stays."""

import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from byleave.calls import grants as calls_grants
from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.protocol.errors import NotFound
from byleave.protocol.grants import GrantRule
from byleave.protocol.states import AgentMode, ApprovalScope, RiskLevel
from byleave.protocol.wire import plain_json
from byleave.settings import ServerSettings
from byleave.store import Store, retention
from byleave.store.approvals import NewApproval, Question
from byleave.store.database import Transaction
from byleave.store.executions import HistoryFilter
from byleave.store.grants import NewGrant
from byleave.store.ledger import row_digest
from byleave.store.retention import Removed
from harness.records import SEAL_KEYS, Clock, Records, answer, outside

pytestmark = pytest.mark.promise("D")

DAY = 24 * 3600.0


async def read_once(records: Records, key: str | None = None, *, result: str = "{}") -> str:
    """A LOW read that ended."""
    row = await begin(records.store, records.call(key=key), Clearance("risk:LOW"), client_id="c1")
    await settle(
        records.store,
        row.id,
        user_id="alice",
        project_id=records.project.id,
        client_id="c1",
        result=result,
        result_hash="h",
    )
    return row.id


async def ask(records: Records, key: str, *, path: str | None = None) -> str:
    """A write that waits for a person; gives its approval."""
    params = plain_json({"path": path or f"{key}.md", "content": "x", "create_dirs": True})
    call = records.call(tool_name="write_file", key=key, params=params, risk_level=RiskLevel.MEDIUM)
    row = await begin(records.store, call, Question("write", 10**6, replaced="old text"), client_id="c1")
    return row.approval_id or ""


async def refuse(records: Records, key: str) -> str:
    approval_id = await ask(records, key)
    await answer(records.store, approval_id, user_id="alice", approve=False, client_id="c1")
    return approval_id


async def total(steps: AsyncIterator[Removed]) -> Removed:
    removed = Removed()
    async for step in steps:
        removed += step
    return removed


async def prune(records: Records, days: float) -> Removed:
    before = await records.store.retention.moment(days * DAY)
    return await total(records.store.retention.prune(before))


async def faults(records: Records) -> list[str | None]:
    return [check.fault for check in await records.store.audit.verify()]


async def ids(records: Records, table: str) -> set[str]:
    rows = await records.store.database.read(
        lambda transaction: transaction.execute(f"SELECT * FROM {table}").fetchall()
    )
    return {row["approval_id" if table == "replaced_texts" else "id"] for row in rows}


def tamper(records: Records, *statements: str) -> None:
    with outside(records) as connection:
        for statement in statements:
            connection.do(statement)


async def test_old_calls_go_with_their_questions_and_the_chain_still_holds(records: Records) -> None:
    for number in range(3):
        await read_once(records, f"old{number}")
    await refuse(records, "refused")
    records.clock.turn(10 * DAY)
    young = await read_once(records)
    events = (await records.store.feed.span(records.project.id))[1]
    assert await faults(records) == [None]
    outlook = await records.store.retention.outlook(await records.store.retention.moment(5 * DAY))
    removed = await prune(records, 5)
    assert removed == outlook.removed
    assert (removed.calls, removed.approvals) == (4, 1)
    assert 0 < removed.events < events
    assert await ids(records, "tool_executions") == {young}
    assert await ids(records, "approvals") == set()
    assert await ids(records, "replaced_texts") == set()
    assert await faults(records) == [None]
    link = (await records.store.audit.records(records.project.id))[-1]
    assert (link.action, link.actor) == ("pruned", "server")
    assert '"tool_executions/old0":' in link.detail
    page = await records.store.executions.page(HistoryFilter("alice"))
    assert ([row.id for row in page.rows], page.cursor, page.total) == ([young], None, 1)
    with pytest.raises(NotFound):
        await records.store.executions.get("old0", user_id="alice")
    assert await prune(records, 5) == Removed()


async def test_a_dry_run_changes_nothing_and_tells_what_would_go(records: Records) -> None:
    first = records.clock()
    await read_once(records, result=plain_json({"content": "x" * 5000}))
    records.clock.turn(DAY)
    last = records.clock()
    await refuse(records, "refused")
    records.clock.turn(10 * DAY)
    store = records.store
    before = await store.audit.records(records.project.id)
    outlook = await store.retention.outlook(await store.retention.moment(DAY))
    assert (outlook.removed.calls, outlook.removed.approvals) == (2, 1)
    assert (outlook.oldest, outlook.newest) == (first, last)
    assert 5000 < outlook.bytes < 30_000
    assert await store.audit.records(records.project.id) == before
    assert len(await ids(records, "tool_executions")) == 2
    nothing = await store.retention.outlook(await store.retention.moment(100 * DAY))
    assert (nothing.removed, nothing.oldest, nothing.bytes) == (Removed(), None, 0)


async def test_each_users_share_grows_with_what_is_stored_and_shrinks_with_what_goes(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "LOOKED_AT", 2)

    async def shares() -> dict[str, int]:
        found = Counter[str]()
        async for user_id, size in records.store.retention.shares():
            found[user_id] += size
        return found

    await records.store.chat.create_project("bob", "empty")
    assert await shares() == {"alice": 0, "bob": 0}
    for number in range(5):
        await read_once(records, f"small{number}")
    small = (await shares())["alice"]
    assert 5 * retention.ROW_BYTES < small < 20_000
    await read_once(records, "large", result=plain_json({"content": "x" * 100_000}))
    params = plain_json({"path": "a.txt", "content": "x" * 50_000})
    await begin(records.store, records.call(key="open", params=params), Clearance("risk:LOW"), client_id="c1")
    await refuse(records, "asked")
    full = (await shares())["alice"]
    assert full > small + 200_000, "a call under way also has its parameters unmasked"
    records.clock.turn(2 * DAY)
    await prune(records, 1)
    assert (await shares())["alice"] < full - 100_000


async def test_what_is_open_stays_however_old(records: Records) -> None:
    store = records.store
    running = await begin(store, records.call(), Clearance("risk:LOW"), client_id="c1")
    asked = await ask(records, "waits")
    joined = await ask(records, "joined", path="waits.md")
    assert joined == asked, "the same question"
    alone = await store.approvals.create(
        NewApproval(
            "alice", records.project.id, None, None, "read_file", {}, "d" * 64, RiskLevel.MEDIUM, "may I?", 10**6
        )
    )
    await store.executions.cancel("joined", user_id="alice", actor="person:alice")
    records.clock.turn(5 * DAY)
    assert (await prune(records, 1)).calls == 1
    assert await ids(records, "tool_executions") == {running.id, "waits"}
    assert await ids(records, "approvals") == {asked, alone.id}
    assert await faults(records) == [None]
    for approval_id in (asked, alone.id):
        await answer(store, approval_id, user_id="alice", approve=False, client_id="c1")
    records.clock.turn(5 * DAY)
    removed = await prune(records, 1)
    assert (removed.calls, removed.approvals) == (1, 2), "the question that stood alone goes as well"
    assert await faults(records) == [None]


async def test_calls_of_a_run_that_is_not_over_stay(records: Records) -> None:
    posted = await records.store.chat.post(
        "alice", records.project.id, "hello", session_id=None, mode=AgentMode.SANDBOX
    )
    run_id = posted.run_id
    call = replace(records.call(), run_id=run_id)
    row = await begin(records.store, call, Clearance("risk:LOW"), client_id="c1")
    await records.store.executions.cancel(row.id, user_id="alice", actor="person:alice", connected=frozenset())
    records.clock.turn(5 * DAY)
    assert (await prune(records, 1)).calls == 0
    assert await ids(records, "tool_executions") == {row.id}


async def test_changes_nobody_has_looked_at_stay_known(records: Records) -> None:
    """A call that runs code names them, and a rule does not let it run without."""
    for name in ("a", "b"):
        params = plain_json({"path": f"{name}.py", "content": "x", "create_dirs": True})
        call = records.call(tool_name="write_file", key=name, params=params, risk_level=RiskLevel.MEDIUM)
        await begin(records.store, call, Clearance("mode:full"), client_id="c1")
        await settle(
            records.store,
            name,
            user_id="alice",
            project_id=records.project.id,
            client_id="c1",
            result="{}",
            result_hash="h",
        )
    records.clock.turn(5 * DAY)

    def unreviewed(transaction: Transaction) -> tuple[str, ...]:
        return calls_grants.unreviewed_changes(transaction, "alice", records.project.id)

    known = await records.store.database.read(unreviewed)
    assert set(known) == {"a.py", "b.py"}
    assert (await prune(records, 1)).calls == 0
    assert await records.store.database.read(unreviewed) == known
    assert retention.UNREVIEWED_KEPT >= calls_grants.MOST_LOOKED_AT
    assert retention.CHANGING_TOOLS == calls_grants.CHANGING_TOOLS


async def test_the_question_of_a_grant_in_force_stays_until_it_ends(records: Records) -> None:
    approval_id = await ask(records, "a")
    grant = NewGrant(ApprovalScope.CLASS, GrantRule(tool="write_file", paths=("lib/**",)), "lib", 3 * 24 * 3600, 9)
    await answer(records.store, approval_id, user_id="alice", approve=True, client_id="c1", grant=grant)
    await settle(
        records.store, "a", user_id="alice", project_id=records.project.id, client_id="c1", result="{}", result_hash="h"
    )
    records.clock.turn(2 * DAY)
    assert (await prune(records, 1)).approvals == 0
    assert await ids(records, "approvals") == {approval_id}
    records.clock.turn(2 * DAY)
    assert (await prune(records, 1)).approvals == 1
    assert len(await ids(records, "grants")) == 1
    assert await faults(records) == [None]


@pytest.mark.parametrize(
    ("tampering", "fault"),
    [
        ("UPDATE tool_executions SET tool_params = '{}' WHERE id = 'old'", "somebody other than this server changed"),
        ("DELETE FROM tool_executions WHERE id = 'old'", "the row 'old' of tool_executions is gone"),
        ("UPDATE approvals SET decided_by = 'person:eve'", "somebody other than this server changed"),
    ],
)
async def test_tampering_before_pruning_stays_found(records: Records, tampering: str, fault: str) -> None:
    await read_once(records, "old")
    await refuse(records, "refused")
    records.clock.turn(5 * DAY)
    tamper(records, tampering)
    await prune(records, 1)
    assert fault in ((await faults(records))[0] or "")


async def test_a_pruned_row_that_comes_back_is_found(records: Records) -> None:
    await read_once(records, "old")
    records.clock.turn(5 * DAY)
    with outside(records) as connection:
        (kept,) = connection.rows("SELECT * FROM tool_executions")
    await prune(records, 1)
    assert await faults(records) == [None]
    with outside(records) as connection:
        marks = ", ".join("?" * len(kept))
        connection.do(f"INSERT INTO tool_executions VALUES ({marks})", tuple(kept.values()))
    assert await faults(records) == ["the row 'old' of tool_executions is not in the chain"]


async def test_a_young_row_deleted_behind_the_server_is_found_beside_pruned_ones(records: Records) -> None:
    await read_once(records, "old")
    records.clock.turn(5 * DAY)
    await read_once(records, "young")
    await prune(records, 1)
    tamper(records, "DELETE FROM tool_executions WHERE id = 'young'")
    assert await faults(records) == ["the row 'young' of tool_executions is gone"]


async def test_a_link_cannot_remove_what_is_never_removed(records: Records) -> None:
    from byleave.store.ledger import PRUNED, Ledger

    def work(transaction: Transaction) -> None:
        row = transaction.execute("SELECT * FROM sessions").fetchone()
        assert row is not None
        transaction.execute("DELETE FROM sessions")
        with Ledger(transaction, records.project.id) as ledger:
            ledger.audit(PRUNED, "server", was={f"sessions/{row['id']}": row_digest("sessions", row)})

    await records.store.database.write(work)
    assert "removes rows that are never removed" in ((await faults(records))[0] or "")


async def test_the_same_key_may_be_used_again_after_its_call_was_pruned(records: Records) -> None:
    await read_once(records, "again")
    records.clock.turn(5 * DAY)
    await prune(records, 1)
    await read_once(records, "again")
    assert await faults(records) == [None]


async def test_a_failing_step_leaves_a_whole_record_and_the_next_pass_ends_the_work(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        await (refuse(records, f"n{number}") if number % 2 else read_once(records))
    records.clock.turn(5 * DAY)
    monkeypatch.setattr(retention, "STEP_ROWS", 2)
    real, steps = retention._remove_calls, 0

    def failing(*arguments: object) -> Removed:
        nonlocal steps
        steps += 1
        removed = real(*arguments)  # type: ignore[arg-type]
        if steps == 3:
            raise sqlite3.OperationalError("disk I/O error")
        return removed

    monkeypatch.setattr(retention, "_remove_calls", failing)
    with pytest.raises(sqlite3.OperationalError):
        await prune(records, 1)
    assert len(await ids(records, "tool_executions")) == 5
    assert await faults(records) == [None]
    assert (await prune(records, 1)).calls == 5
    assert await faults(records) == [None]


async def test_a_call_that_changes_between_look_and_step_is_left(records: Records) -> None:
    approval_id = await refuse(records, "refused")
    records.clock.turn(5 * DAY)
    before = await records.store.retention.moment(DAY)
    steps = records.store.retention.prune(before)
    real = records.store.database.write

    async def reopened(work: Callable[[Transaction], Removed], *, relaxed: bool, heavy: bool) -> Removed:
        def first(transaction: Transaction) -> Removed:
            transaction.execute("UPDATE tool_executions SET completed_at = :now", {"now": transaction.now})
            return work(transaction)

        return await real(first, relaxed=relaxed, heavy=heavy)

    records.store.database.write = reopened  # type: ignore[method-assign,assignment]
    try:
        assert await anext(steps) == Removed()
    finally:
        records.store.database.write = real  # type: ignore[method-assign]
    assert await ids(records, "approvals") == {approval_id}


async def test_a_large_record_shrinks_to_its_limit_oldest_first(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "LOOKED_AT", 4)
    for number in range(20):
        content = random.Random(number).randbytes(50_000).hex()  # PostgreSQL compresses what it can
        await read_once(records, f"n{number:02}", result=plain_json({"content": content}))
        records.clock.turn(3600)
    store = records.store
    used = (await store.retention.space()).used
    assert used > 2_000_000
    records.clock.turn(4 * 3600)
    limit = used - 900_000
    # Twenty hours of calls, four hours ago: everything but the first hours is younger than a day.
    assert (await total(store.retention.prune_to(100_000))).calls <= 1
    records.clock.turn(DAY)
    removed = await total(store.retention.prune_to(limit))
    assert 5 <= removed.calls <= 12
    assert (await store.retention.space()).used <= limit
    left = await ids(records, "tool_executions")
    assert left == {f"n{number:02}" for number in range(20 - len(left), 20)}
    assert await total(store.retention.prune_to(limit)) == Removed()
    assert await faults(records) == [None]


@pytest.mark.sqlite
async def test_free_pages_go_back_to_the_disk_in_steps(records: Records) -> None:
    for _ in range(10):
        await read_once(records, result=plain_json({"content": "x" * 100_000}))
    records.clock.turn(5 * DAY)
    await prune(records, 1)
    store = records.store
    space = await store.retention.space()
    assert space.shrinks
    assert space.free > 900_000
    left, steps = 1, 0
    while left:
        left, steps = await store.retention.give_back(keep_bytes=100_000), steps + 1
    assert steps > 2
    assert (await store.retention.space()).free in range(90_000, 110_000)
    assert await store.retention.give_back(keep_bytes=100_000) == 0
    assert await faults(records) == [None]


@pytest.mark.sqlite
async def test_an_older_record_is_written_anew(settings: ServerSettings, records: Records) -> None:
    for _ in range(10):
        await read_once(records, result=plain_json({"content": "x" * 100_000}))
    records.clock.turn(5 * DAY)
    await records.store.close()
    path = settings.home / "byleave.db"
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA auto_vacuum = NONE", "VACUUM"):
        connection.execute(statement)
    connection.close()
    clock = Clock(records.clock.moment)
    store = await Store.open(settings, seal_keys=SEAL_KEYS, clock=clock)
    try:
        await total(store.retention.prune(await store.retention.moment(DAY)))
        space = await store.retention.space()
        assert not space.shrinks
        assert space.free > 900_000
        assert await store.retention.give_back() == 0
        await store.retention.rewrite()
        space = await store.retention.space()
        assert (space.shrinks, space.free) == (True, 0)
        await store.chat.create_project("alice", "another")
        assert {check.fault for check in await store.audit.verify()} == {None}
    finally:
        await store.close()
    assert path.stat().st_size < 900_000
