"""Requests for undos in the record: who waits, what is under way, and that nothing of them stays."""

from functools import partial

from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin
from byleave.store import ExecutionRow, Store
from byleave.store.undos import AWAITED_LONGER_SECONDS, Left, Pending, report_topic
from harness.records import Records

AWAITED_SECONDS = 15.0


async def _ask(records: Records, call: ExecutionRow, request_id: str) -> Pending:
    """Ask for a preview; returns what was pending before."""
    seen: list[Pending] = []
    await records.store.undos.ask(
        call,
        request_id,
        actor="user:alice",
        plan=None,
        partial=False,
        seconds=10,
        awaited_seconds=AWAITED_SECONDS,
        keep_off={},
        admit=seen.append,
    )
    return seen[0]


async def _stored(records: Records) -> list[tuple[str, str | None]]:
    rows = await records.store.database.read(
        lambda transaction: transaction.execute(
            "SELECT request_id, report FROM undo_reports ORDER BY request_id"
        ).fetchall()
    )
    return [(row["request_id"], row["report"]) for row in rows]


async def _call(records: Records) -> ExecutionRow:
    return await begin(records.store, records.call(), Clearance("risk:LOW"), client_id="c1")


async def test_report_is_told_of_and_taken_once(records: Records) -> None:
    call, other = await _call(records), Store(records.store.database, records.settings).undos
    assert await _ask(records, call, "r1") == Pending(0, is_under_way=False)
    assert not await other.is_reported("r1")
    await other.tell(call, "r1", "the plan")
    assert report_topic("r1") in {hint.topic for hint in records.hints}
    await other.tell(call, "r1", "another plan")
    assert await records.store.undos.is_reported("r1")
    assert await records.store.undos.leave("r1") == Left("the plan")
    assert await records.store.undos.leave("r1") == Left()
    assert await _stored(records) == []


async def test_report_about_another_call_ends_no_request(records: Records) -> None:
    call, other = await _call(records), await _call(records)
    await _ask(records, call, "r1")
    await records.store.undos.tell(other, "r1", "a plan")
    await records.store.undos.has_begun(other, "r1", seconds=60)
    assert await _stored(records) == [("r1", None)]
    assert await records.store.undos.leave("r1") == Left()


async def test_report_that_nobody_waits_for_is_not_kept(records: Records) -> None:
    """Its waiter has left, or died with its server."""
    call, undos = await _call(records), records.store.undos
    await _ask(records, call, "left")
    await undos.leave("left")
    await undos.tell(call, "left", "a plan")
    assert await _stored(records) == []
    await _ask(records, call, "died")
    records.clock.turn(AWAITED_SECONDS + AWAITED_LONGER_SECONDS)
    await undos.tell(call, "died", "a plan")
    assert await _stored(records) == []


async def test_request_whose_server_died_counts_no_longer_and_goes(records: Records) -> None:
    call = await _call(records)
    ask = partial(_ask, records, call)
    assert [(await ask(name)).awaited for name in ("a", "b", "c")] == [0, 1, 2]
    await records.store.undos.tell(call, "a", "a plan that nobody took")
    records.clock.turn(AWAITED_SECONDS + AWAITED_LONGER_SECONDS)
    assert await ask("d") == Pending(0, is_under_way=False)
    assert await _stored(records) == [("d", None)]


async def test_begun_undo_is_under_way_until_its_end_or_its_time(records: Records) -> None:
    call, other, undos = await _call(records), await _call(records), records.store.undos
    await _ask(records, call, "r1")
    await undos.has_begun(call, "r1", seconds=600)
    assert await undos.leave("r1") == Left(has_begun=True)
    assert await _ask(records, call, "r2") == Pending(0, is_under_way=True)
    assert not (await _ask(records, other, "r3")).is_under_way
    await undos.tell(call, "r1", "done")
    assert not (await _ask(records, call, "r4")).is_under_way
    await undos.has_begun(call, "r4", seconds=600)
    records.clock.turn(600)
    assert not (await _ask(records, call, "r5")).is_under_way
    assert await _stored(records) == [("r5", None)]


async def test_report_that_came_as_its_waiter_gave_up_is_taken(records: Records) -> None:
    call, undos = await _call(records), records.store.undos
    await _ask(records, call, "r1")
    await undos.has_begun(call, "r1", seconds=600)
    await undos.tell(call, "r1", "done")
    assert await undos.leave("r1") == Left("done", has_begun=True)
    assert not (await _ask(records, call, "r2")).is_under_way
