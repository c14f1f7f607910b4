"""The audit chain: whole when untouched, and any tampering shows."""

import asyncio
import sqlite3

import pytest

from byleave.store.calls import Clearance
from byleave.store.sqlite import SqliteDatabase
from harness.records import Records

pytestmark = pytest.mark.promise("D")


async def fill(records: Records) -> None:
    for _ in range(5):
        await records.store.executions.begin(records.call(), Clearance("risk:LOW"), client_id="c1")


@pytest.mark.parametrize(
    ("tampering", "fault"),
    [
        ("UPDATE audit SET actor = 'somebody' WHERE seq = 3", "record 3 was changed"),
        ("UPDATE audit SET detail = '{}' WHERE seq = 2", "record 2 was changed"),
        ("UPDATE audit SET at = '2020-01-01T00:00:00.000Z' WHERE seq = 4", "record 4 was changed"),
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
        ("DELETE FROM audit; DELETE FROM feeds", "the chain is gone"),
    ],
)
async def test_tampering_with_the_record_is_found(records: Records, tampering: str, fault: str) -> None:
    await fill(records)
    assert [check.fault for check in await records.store.audit.verify()] == [None]
    database = records.store.database
    assert isinstance(database, SqliteDatabase)
    connection = sqlite3.connect(database.path)
    connection.executescript(tampering)
    connection.commit()
    connection.close()
    (check,) = await records.store.audit.verify()
    assert check.fault is not None
    assert fault in check.fault


async def test_records_of_a_project_that_was_removed_are_still_missed(records: Records) -> None:
    await fill(records)
    database = records.store.database
    assert isinstance(database, SqliteDatabase)
    connection = sqlite3.connect(database.path)
    connection.execute("DELETE FROM feeds")
    connection.commit()
    connection.close()
    (check,) = await records.store.audit.verify()
    assert check.fault is not None


async def test_concurrent_writers_leave_one_unbroken_chain_and_a_feed_without_gaps(records: Records) -> None:
    await asyncio.gather(
        *(records.store.executions.begin(records.call(), Clearance("risk:LOW"), client_id="c1") for _ in range(100))
    )
    (check,) = await records.store.audit.verify()
    assert (check.fault, check.records) == (None, 101)
    numbers: list[int] = []
    seen = 0
    while True:
        events, seen, _ = await records.store.feed.after(records.project.id, seen, client_id="c1", limit=7)
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
            await records.store.executions.begin(records.call(), Clearance("risk:LOW"), client_id="c1")

    writing = asyncio.create_task(write_on())
    while not writing.done():
        assert [check.fault for check in await records.store.audit.verify()] == [None]
    await writing
