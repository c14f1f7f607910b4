"""Limits of one user: a call too many is refused in words, another user's calls go on, and reports are always taken."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from byleave.calls import limits as limits_module
from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin
from byleave.calls.limits import MEGABYTE, RecordFullError, UserLimits
from byleave.protocol.states import ErrorType, ExecutionStatus, ResponseStatus
from byleave.settings import ServerSettings
from byleave.store import transitions
from byleave.store.database import Transaction
from harness.desk import Desk, completed, open_desk
from harness.records import Records

pytestmark = pytest.mark.promise("D")
LOW = Clearance("risk:LOW")


def _limits(**settings: int) -> UserLimits:
    return UserLimits(ServerSettings(**settings))  # type: ignore[arg-type]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was found each time that open calls were counted."""
    found: list[int] = []
    count = transitions.count_open

    def counted(transaction: Transaction, user_id: str, *, from_elsewhere: bool, most: int) -> int:
        found.append(count(transaction, user_id, from_elsewhere=from_elsewhere, most=most))
        return found[-1]

    monkeypatch.setattr(limits_module, "count_open", counted)
    return found


@pytest.fixture
async def records(desk: Desk, settings: ServerSettings) -> Records:
    from harness.records import Clock

    return Records(desk.store, Clock(), settings, desk.project, desk.session)


async def test_call_beyond_the_open_ones_is_refused_in_words_until_one_ends(records: Records) -> None:
    limits = _limits(user_open_calls=3)

    async def call(key: str) -> tuple[ExecutionStatus, str | None]:
        row = await begin(records.store, records.call(key=key), LOW, client_id="c1", limits=limits)
        return row.status, row.error

    assert [await call(f"open{number}") for number in range(3)] == [(ExecutionStatus.EXECUTING, None)] * 3
    status, error = await call("fourth")
    assert (status, error) == (
        ExecutionStatus.FAILED,
        "3 calls of this user are open already; no more begin until some have ended or are cancelled.",
    )
    assert await call("fourth") == (status, error), "the same key is the same call"
    await records.store.executions.cancel("open0", user_id="alice", actor="user:alice", connected=frozenset())
    assert await call("fifth") == (ExecutionStatus.EXECUTING, None)
    assert (await call("sixth"))[0] is ExecutionStatus.FAILED


async def test_open_calls_of_all_projects_of_a_user_count_and_of_no_other_user(records: Records) -> None:
    limits, store = _limits(user_open_calls=2), records.store

    async def call(user_id: str) -> ExecutionStatus:
        project = await store.chat.create_project(user_id, "another")
        session = await store.chat.create_session(user_id, project.id, "first")
        new = records.call(user_id=user_id, project_id=project.id, session_id=session.id)
        return (await begin(store, new, LOW, client_id="c1", limits=limits)).status

    assert [await call("alice") for _ in range(3)] == [*[ExecutionStatus.EXECUTING] * 2, ExecutionStatus.FAILED]
    assert await call("bob") is ExecutionStatus.EXECUTING


async def test_an_agent_elsewhere_that_fills_its_calls_leaves_its_person_theirs(records: Records) -> None:
    limits = _limits(user_open_calls=2)

    async def call(agent_id: str | None) -> str | None:
        new = replace(records.call(), agent_id=agent_id)
        return (await begin(records.store, new, LOW, client_id="c1", limits=limits)).error

    full = "2 calls of this user's agents elsewhere are open already; no more begin until some have ended or are "
    full += "cancelled."
    helper, another = "helper-0123456789ab", "another-ba9876543210"
    assert [await call(agent) for agent in (helper, another, helper, another)] == [None, None, full, full]
    assert [await call(agent) for agent in (None, "program")] == [None, None]
    assert "calls of this user are open" in (await call("program") or "")


async def test_open_calls_are_counted_again_only_when_their_room_is_used_up(
    records: Records, counts: list[int]
) -> None:
    limits = _limits(user_open_calls=8)
    for number in range(20):
        await begin(records.store, records.call(key=f"k{number}"), LOW, client_id="c1", limits=limits)
        if number >= 2:
            await records.store.executions.cancel(
                f"k{number}", user_id="alice", actor="user:alice", connected=frozenset()
            )
    assert counts == [0, 2, 2]


async def test_users_beyond_those_remembered_are_counted_again(
    records: Records, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "MOST_USERS", 1)
    limits = _limits(user_open_calls=2)
    calls = [await begin(records.store, records.call(), LOW, client_id="c1", limits=limits) for _ in range(3)]
    assert [row.error_type for row in calls] == [None, None, ErrorType.REFUSED]
    assert counts[-1] == 2


async def test_without_limits_nothing_is_counted(records: Records, counts: list[int]) -> None:
    limits = _limits(user_open_calls=0, user_mb=0)
    limits.add("alice", "x" * 10)
    for _ in range(5):
        row = await begin(records.store, records.call(), LOW, client_id="c1", limits=limits)
        assert row.status is ExecutionStatus.EXECUTING
    assert counts == []


async def test_call_of_a_user_whose_record_is_full_leaves_no_trace_and_reports_are_taken(tmp_path: Path) -> None:
    settings = ServerSettings(home=tmp_path / "full", durability="normal", user_mb=1)
    async with open_desk(settings) as desk:
        reporting, settled = asyncio.Event(), asyncio.Event()

        async def answer(signal: object) -> object:
            reporting.set()
            await settled.wait()
            return completed(content="y" * MEGABYTE)

        async def read(session_id: str) -> tuple[ResponseStatus, str | None, str | None]:
            response = await desk.executor.execute_tool("read_file", {"path": "a.txt"}, session_id)
            return response.status, response.error, response.hint

        async with desk.client(answer) as signals:  # type: ignore[arg-type]
            under_way = asyncio.create_task(read(desk.session.id))
            await reporting.wait()
            desk.executor.limits.measured({"alice": MEGABYTE})
            status, error, hint = await read(desk.session.id)
            assert (status, error) == (
                ResponseStatus.FAILED,
                "This user's part of the record is full: it has 1 MB, the most that BYLEAVE_USER_MB allows.",
            )
            assert "byleave db prune" in (hint or "")
            settled.set()
            assert (await under_way)[0] is ResponseStatus.COMPLETED
            assert len(signals) == 1
        rows = await desk.store.database.read(
            lambda transaction: transaction.execute("SELECT count(*) AS calls FROM tool_executions", {}).fetchone()
        )
        assert rows is not None
        assert rows["calls"] == 1


async def test_what_is_recorded_after_a_measurement_counts_and_a_new_one_forgets_it(records: Records) -> None:
    limits = _limits(user_mb=1)

    async def call(key: str, size: int) -> bool:
        new = records.call(key=key, params=f'{{"path":"{"x" * size}"}}')
        try:
            await begin(records.store, new, LOW, client_id="c1", limits=limits)
        except RecordFullError:
            return False
        return True

    assert await call("first", MEGABYTE)
    assert not await call("second", 1)
    assert await call("first", MEGABYTE), "a call that began is found again by its key"
    limits.measuring()
    limits.add("alice", "x" * 10)
    limits.measured({"alice": MEGABYTE - 20})
    assert await call("third", 1)
    limits.measuring()
    limits.measured({"alice": MEGABYTE - 10, "bob": 5})
    limits.add("alice", "x" * 10, None)
    assert not await call("fourth", 1)
