"""The state machine on rows: every edge once, no other edge, and each with its event and audit link."""

import asyncio
import json
from functools import partial

import pytest

from byleave.calls import executor
from byleave.calls.approvals import Clearance, Refusal
from byleave.calls.deadlines import expire
from byleave.calls.executor import begin
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.executions import group_prefix, id_of_call
from byleave.protocol.states import AgentMode, ApprovalStatus, ErrorType, ExecutionStatus
from byleave.store import ExecutionRow
from byleave.store import executions as executions_module
from byleave.store.approvals import MOST_REFUSALS, Question
from byleave.store.executions import HistoryFilter
from byleave.store.transitions import NewExecution, count_open
from harness.records import Records, answer

ASK = Question(description="write a.txt", timeout_seconds=300)
LOW = Clearance("risk:LOW")


async def settle(records: Records, tool_id: str, **changes: object):
    values = {
        "user_id": "alice",
        "project_id": records.project.id,
        "client_id": "c1",
        "result": '{"success":true}',
        "result_hash": "h1",
    }
    return await executor.settle(records.store, tool_id, **(values | changes))  # type: ignore[arg-type]


async def decide(records: Records, approval_id: str | None, *, approve: bool = True, **changes: object):
    assert approval_id is not None
    values = {"user_id": "alice", "client_id": "c1"}
    return await answer(records.store, approval_id, approve=approve, **(values | changes))  # type: ignore[arg-type]


@pytest.mark.promise("W5", "W6", "W8", "W11", "D")
async def test_a_low_call_is_signalled_at_once_and_ends_with_its_result(records: Records) -> None:
    running = await begin(records.store, records.call(), LOW, client_id="c1")
    assert (running.status, running.approved_by, running.requires_approval) == ("executing", "risk:LOW", False)
    records.clock.turn(0.25)
    ended = await settle(records, running.id)
    assert ended.status is ExecutionStatus.COMPLETED
    assert ended.execution_time_ms == 250
    assert ended.completed_at == "2026-01-01T00:00:00.250Z"
    assert ended.true_params is None
    assert await records.kinds() == ["tool.started", "tool.result_ack", "tool.finished"]  # the old signal is not resent
    assert (await records.store.audit.verify())[0].fault is None


@pytest.mark.promise("D")
async def test_open_calls_of_a_user_are_counted_in_all_their_projects(records: Records) -> None:
    async def call(user_id: str, end: bool) -> None:
        project = await records.store.chat.create_project(user_id, "another")
        session = await records.store.chat.create_session(user_id, project.id, "first")
        new = records.call(user_id=user_id, project_id=project.id, session_id=session.id)
        row = await begin(records.store, new, LOW, client_id="c1")
        if end:
            await settle(records, row.id, user_id=user_id, project_id=project.id)

    async def count(user_id: str, most: int = 10) -> int:
        return await records.store.database.read(
            lambda transaction: count_open(transaction, user_id, from_elsewhere=False, most=most)
        )

    for end in (False, False, True):
        await call("alice", end)
    await call("bob", end=False)
    assert [await count(user_id) for user_id in ("alice", "bob", "carol")] == [2, 1, 0]
    assert await count("alice", most=1) == 1


@pytest.mark.promise("W4", "D")
async def test_a_refused_call_is_recorded_and_never_runs(records: Records) -> None:
    row = await begin(
        records.store, records.call(), Refusal("Command not allowed: rm", ErrorType.REFUSED), client_id="c1"
    )
    assert (row.status, row.error, row.error_type) == ("failed", "Command not allowed: rm", "refused")
    assert await records.kinds() == ["tool.started", "tool.finished"]
    with pytest.raises(ConflictError):
        await settle(records, row.id)


@pytest.mark.promise("W6", "W7", "W8")
async def test_an_approved_call_is_signalled_to_the_client_with_its_true_parameters(records: Records) -> None:
    call = records.call(true_params='{"path":"a.txt","content":"secret"}')
    asked = await begin(records.store, call, ASK, client_id="c1")
    assert (asked.status, asked.requires_approval) == ("awaiting_approval", True)
    await decide(records, asked.approval_id)
    events, *_ = await records.store.feed.after(records.project.id, 0, client_id="c1", limit=100)
    signal = json.loads(events[-1].payload)
    assert events[-1].kind == "tool.execution_signal"
    assert signal["tool_params"] == {"path": "a.txt", "content": "secret"}
    assert (signal["approved_by"], signal["client_id"], signal["digest"]) == ("person:alice", "c1", call.digest)
    others, *_ = await records.store.feed.after(records.project.id, 0, client_id="c2", limit=100)
    assert "tool.execution_signal" not in [event.kind for event in others]


@pytest.mark.promise("W7")
async def test_a_rejection_ends_the_call_and_keeps_the_reason(records: Records) -> None:
    asked = await begin(records.store, records.call(), ASK, client_id="c1")
    await decide(records, asked.approval_id, approve=False, reason="not now")
    ended = await records.store.executions.get(asked.id, user_id="alice")
    assert (ended.status, ended.error_type, ended.error) == (
        "rejected",
        "rejected",
        "Rejected by the user: not now",
    )


@pytest.mark.promise("W7")
async def test_nobody_answering_is_a_timeout_and_not_a_persons_no(records: Records) -> None:
    asked = await begin(records.store, records.call(), ASK, client_id="c1")
    records.clock.turn(299)
    assert await expire(records.store, frozenset()) == ([], asked.deadline)
    records.clock.turn(1)
    ended, upcoming = await expire(records.store, frozenset())
    assert upcoming is None
    assert [(row.status, row.error, row.error_type) for row in ended] == [
        ("timeout", "Approval timeout", "approval_timeout")
    ]
    approval = await records.store.approvals.get(asked.approval_id or "", user_id="alice")
    assert approval.status is ApprovalStatus.TIMEOUT
    assert approval.decided_by is None


@pytest.mark.promise("A")
async def test_a_late_yes_loses_even_when_no_sweeper_has_run(records: Records) -> None:
    asked = await begin(records.store, records.call(), ASK, client_id="c1")
    records.clock.turn(300)
    with pytest.raises(ConflictError, match="ran out of time") as conflict:
        await decide(records, asked.approval_id)
    assert conflict.value.state == "timeout"
    assert (await records.store.executions.get(asked.id, user_id="alice")).status == "timeout"


@pytest.mark.promise("A")
async def test_of_fifty_decisions_at_once_exactly_one_counts(records: Records) -> None:
    asked = await begin(records.store, records.call(), ASK, client_id="c1")
    outcomes = await asyncio.gather(
        *(decide(records, asked.approval_id, approve=number % 2 == 0) for number in range(50)),
        return_exceptions=True,
    )
    assert len([outcome for outcome in outcomes if not isinstance(outcome, ConflictError)]) == 1
    links = await records.store.audit.records(records.project.id)
    assert len([link for link in links if link.action in ("approved", "rejected") and link.execution_id is None]) == 1


@pytest.mark.promise("A")
async def test_an_approval_for_other_parameters_is_refused(records: Records) -> None:
    asked = await begin(records.store, records.call(), ASK, client_id="c1")
    with pytest.raises(ConflictError, match="other parameters"):
        await decide(records, asked.approval_id, digest="0" * 64)
    await decide(records, asked.approval_id, digest=asked.digest)


@pytest.mark.promise("S")
async def test_another_user_can_neither_see_nor_decide_nor_settle(records: Records) -> None:
    asked = await begin(records.store, records.call(), ASK, client_id="c1")
    with pytest.raises(NotFound):
        await decide(records, asked.approval_id, user_id="mallory")
    with pytest.raises(NotFound):
        await records.store.approvals.get(asked.approval_id or "", user_id="mallory")
    with pytest.raises(NotFound):
        await records.store.executions.get(asked.id, user_id="mallory")
    with pytest.raises(NotFound):
        await records.store.executions.cancel(asked.id, user_id="mallory", actor="user:mallory")
    with pytest.raises(NotFound):
        await settle(records, asked.id, user_id="mallory")
    with pytest.raises(NotFound):
        await settle(records, asked.id, project_id="proj_other")
    assert await records.store.approvals.pending("mallory") == []
    assert (await records.store.executions.page(HistoryFilter("mallory"))).total == 0
    with pytest.raises(NotFound):
        await begin(records.store, records.call(key=asked.id, user_id="mallory"), ASK, client_id=None)


@pytest.mark.promise("X19")
async def test_identical_calls_that_wait_join_one_approval(records: Records) -> None:
    first = await begin(records.store, records.call(), ASK, client_id="c1")
    records.clock.turn(10)
    second = await begin(records.store, records.call(), ASK, client_id="c1")
    other = await begin(records.store, records.call(params='{"path":"b.txt"}'), ASK, client_id="c1")
    assert first.approval_id == second.approval_id != other.approval_id
    assert first.deadline == second.deadline
    assert len(await records.store.approvals.pending("alice", records.project.id)) == 2
    with pytest.raises(ConflictError, match="2 identical calls wait") as refused:
        await decide(records, first.approval_id)
    assert refused.value.state == "pending"
    assert (await records.store.executions.get(first.id, user_id="alice")).status == "awaiting_approval"
    events, *_ = await records.store.feed.after(records.project.id, 0, client_id="c1", limit=1000)
    told = [json.loads(event.payload) for event in events if event.kind == "tool.approval_request"]
    assert [(event["tool_id"], event["calls"]) for event in told] == [(first.id, 1), (second.id, 2), (other.id, 1)]
    decided = await decide(records, first.approval_id, calls=2)
    assert set(decided.approval.tool_ids) == {first.id, second.id}
    for tool_id in (first.id, second.id):
        assert (await records.store.executions.get(tool_id, user_id="alice")).status == "executing"


async def test_joined_calls_time_out_together(records: Records) -> None:
    for _ in range(2):
        await begin(records.store, records.call(), ASK, client_id="c1")
    records.clock.turn(301)
    ended, _ = await expire(records.store, frozenset())
    assert [row.status for row in ended] == ["timeout", "timeout"]
    assert (await records.kinds()).count("tool.approval_decided") == 1


@pytest.mark.promise("X20")
async def test_a_call_refused_three_times_by_a_person_is_not_asked_again(records: Records) -> None:
    for _ in range(3):
        asked = await begin(records.store, records.call(), ASK, client_id="c1")
        assert asked.status == "awaiting_approval"
        await decide(records, asked.approval_id, approve=False)
    fourth = await begin(records.store, records.call(), ASK, client_id="c1")
    assert (fourth.status, fourth.error_type) == ("failed", "refused")
    assert "three times" in (fourth.error or "")


@pytest.mark.promise("X20")
@pytest.mark.parametrize(
    ("tool", "one", "other"),
    [
        ("write_file", '{"path":"r.md","content":"evil"}', '{"path":".//r.md","content":"evil"}'),
        ("write_file", '{"path":"r.md","content":"evil"}', '{"path":"docs/../r.md","content":"evil"}'),
        (
            "execute_command",
            '{"command":"git","args":["push"],"timeout":30}',
            '{"command":"git","args":["push"],"timeout":31}',
        ),
        ("execute_command", '{"command":"rm","args":["-rf","x"]}', '{"command":"rm","args":["-f","-r","./x"]}'),
        (
            "execute_command",
            '{"command":"cp","args":["-rv","a","b"]}',
            '{"command":"cp","args":["-vr","a","./c/../b"]}',
        ),
        ("execute_command", '{"command":"python","args":["x.py"]}', '{"command":"python3","args":[".//x.py"]}'),
        ("execute_command", '{"command":"frob","args":["x"]}', '{"command":"frob","args":["./x"]}'),
    ],
)
async def test_a_call_refused_three_times_is_not_asked_again_in_another_spelling(
    records: Records, tool: str, one: str, other: str
) -> None:
    for _ in range(3):
        asked = await begin(records.store, records.call(tool_name=tool, params=one), ASK, client_id="c1")
        await decide(records, asked.approval_id, approve=False)
    fourth = await begin(records.store, records.call(tool_name=tool, params=other), ASK, client_id="c1")
    assert fourth.error_type is ErrorType.REFUSED
    another = other.replace("evil", "good").replace('"]', '","y"]')
    fresh = await begin(records.store, records.call(tool_name=tool, params=another), ASK, client_id="c1")
    assert fresh.status == "awaiting_approval"


@pytest.mark.parametrize("pushed_out", [False, True])
async def test_refusals_count_by_question_however_many_calls_joined_each(records: Records, pushed_out: bool) -> None:
    async def refuse(params: str, calls: int) -> None:
        asked = [await begin(records.store, records.call(params=params), ASK, client_id="c1") for _ in range(calls)]
        assert {row.status for row in asked} == {"awaiting_approval"}
        await decide(records, asked[0].approval_id, approve=False)
        records.clock.turn(1)

    for _ in range(3):
        await refuse('{"path":"a.txt"}', 1 if pushed_out else MOST_REFUSALS // 2)
    if pushed_out:
        await refuse('{"path":"filler.txt"}', MOST_REFUSALS)
    assert (await begin(records.store, records.call(), ASK, client_id="c1")).error_type is ErrorType.REFUSED


async def test_third_refusal_withdraws_what_waits_about_the_same_call(records: Records) -> None:
    def call(seconds: int, agent: str = "one") -> NewExecution:
        params = f'{{"command":"git","args":["push"],"timeout":{seconds}}}'
        return records.call(tool_name="execute_command", params=params, agent_id=agent)

    asked = [await begin(records.store, call(seconds), ASK, client_id="c1") for seconds in range(1, 7)]
    of_another = await begin(records.store, call(1, "two"), ASK, client_id="c1")
    for row in asked[:3]:
        await decide(records, row.approval_id, approve=False)
    rows = [await records.store.executions.get(row.id, user_id="alice") for row in (*asked, of_another)]
    assert [row.status for row in rows] == [*["rejected"] * 3, *["failed"] * 3, "awaiting_approval"]
    assert {row.error_type for row in rows[3:6]} == {ErrorType.REFUSED}
    waiting = await records.store.approvals.pending("alice", records.project.id)
    assert [question.id for question in waiting] == [of_another.approval_id]
    with pytest.raises(ConflictError, match="withdrawn"):
        await decide(records, asked[3].approval_id)


async def test_calls_with_different_secrets_are_different_calls(records: Records) -> None:
    def call(secret: str) -> NewExecution:
        params = '{"path":"deploy.json","content":"password: [masked:password, 9 characters]"}'
        return records.call(tool_name="write_file", params=params, digest=secret)

    for _ in range(2):
        for secret in ("one", "two"):
            asked = await begin(records.store, call(secret), ASK, client_id="c1")
            await decide(records, asked.approval_id, approve=False)
    assert (await begin(records.store, call("three"), ASK, client_id="c1")).status == "awaiting_approval"
    await decide(records, (await begin(records.store, call("one"), ASK, client_id="c1")).approval_id, approve=False)
    assert (await begin(records.store, call("one"), ASK, client_id="c1")).error_type is ErrorType.REFUSED


async def test_three_refusals_hold_for_an_hour_and_for_the_agent_that_asked(records: Records) -> None:
    async def begin(agent: str) -> ExecutionRow:
        return await executor.begin(records.store, records.call(agent_id=agent), ASK, client_id="c1")

    for _ in range(3):
        await decide(records, (await begin("one")).approval_id, approve=False)
    assert (await begin("one")).error_type is ErrorType.REFUSED
    assert (await begin("two")).status == "awaiting_approval"
    records.clock.turn(3601)
    assert (await begin("one")).status == "awaiting_approval"


async def test_timeouts_do_not_count_as_refusals(records: Records) -> None:
    for _ in range(4):
        asked = await begin(records.store, records.call(), ASK, client_id="c1")
        assert asked.status == "awaiting_approval"
        records.clock.turn(301)
        await expire(records.store, frozenset())


@pytest.mark.promise("W8")
async def test_with_no_client_an_approved_call_waits_and_then_fails_as_no_client(records: Records) -> None:
    row = await begin(records.store, records.call(), LOW, client_id=None)
    assert row.status == "approved"
    assert await records.store.executions.waiting_projects() == [records.project.id]
    records.clock.turn(60)
    ended, _ = await expire(records.store, frozenset())
    assert [(row.status, row.error_type) for row in ended] == [("failed", "no_client")]


@pytest.mark.promise("W8")
async def test_what_waited_goes_to_the_client_that_comes_in_order_and_once(records: Records) -> None:
    rows = []
    for number in range(3):
        rows.append(await begin(records.store, records.call(params=f'{{"n":{number}}}'), LOW, client_id=None))
        records.clock.turn(1)
    sent = await records.store.executions.dispatch_waiting(records.project.id, "c1")
    assert [row.id for row in sent] == [row.id for row in rows]
    assert await records.store.executions.dispatch_waiting(records.project.id, "c2") == []


async def test_a_client_that_lost_its_place_is_told_again_what_it_should_be_doing(records: Records) -> None:
    mine = await begin(records.store, records.call(), LOW, client_id="c1")
    await begin(records.store, records.call(), LOW, client_id="c2")
    assert await records.store.executions.repeat_signals(records.project.id, "c1") == 1
    events, *_ = await records.store.feed.after(records.project.id, 0, client_id="c1", limit=100)
    signals = [event.ref for event in events if event.kind == "tool.execution_signal"]
    assert signals == [mine.id, mine.id]


async def test_the_same_result_twice_is_accepted_and_a_different_one_is_a_conflict(records: Records) -> None:
    running = await begin(records.store, records.call(), LOW, client_id="c1")
    first = await settle(records, running.id)
    assert await settle(records, running.id) == first
    with pytest.raises(ConflictError) as conflict:
        await settle(records, running.id, result_hash="h2")
    assert conflict.value.state == "completed"


async def test_a_result_from_another_client_is_refused(records: Records) -> None:
    running = await begin(records.store, records.call(), LOW, client_id="c1")
    with pytest.raises(ConflictError, match="another client"):
        await settle(records, running.id, client_id="c2")
    assert (await settle(records, running.id, client_id="c1")).status == "completed"


async def test_a_result_for_a_call_that_waits_for_approval_changes_nothing(records: Records) -> None:
    asked = await begin(records.store, records.call(), ASK, client_id="c1")
    with pytest.raises(ConflictError, match="takes no result"):
        await settle(records, asked.id)
    assert (await records.store.executions.get(asked.id, user_id="alice")).status == "awaiting_approval"


@pytest.mark.parametrize(("connected", "error_type"), [({"c1"}, "execution_timeout"), (set(), "interrupted")])
async def test_a_result_that_never_comes_ends_by_the_deadline(
    records: Records, connected: set[str], error_type: str
) -> None:
    await begin(records.store, records.call(timeout_seconds=30), LOW, client_id="c1")
    records.clock.turn(60)
    ended, _ = await expire(records.store, frozenset(connected))
    assert [(row.status, row.error_type) for row in ended] == [("failed", error_type)]
    assert ("tool.cancel_signal" in await records.kinds()) == bool(connected)


async def test_what_a_client_may_be_about_to_report_is_left_to_it(records: Records) -> None:
    running = await begin(records.store, records.call(timeout_seconds=30), LOW, client_id="c1")
    waiting = await begin(records.store, records.call(), LOW, client_id=None)
    records.clock.turn(61)
    ended, upcoming = await expire(records.store, frozenset(), None)
    assert ([row.id for row in ended], upcoming) == ([waiting.id], None)
    assert await expire(records.store, frozenset({"c1"}), frozenset({"c1", "c2"})) == ([], None)
    assert (await settle(records, running.id)).status == "completed"
    other = await begin(records.store, records.call(timeout_seconds=30), LOW, client_id="c1")
    records.clock.turn(61)
    ended, _ = await expire(records.store, frozenset(), frozenset({"c2"}))
    assert [row.id for row in ended] == [other.id]


@pytest.mark.promise("W11", "D")
@pytest.mark.parametrize("given_up", [False, True])
async def test_a_call_that_left_its_queue_during_an_outage_counts_as_begun_when_its_result_comes(
    records: Records, given_up: bool
) -> None:
    """Its client works on without being able to say that it begins."""
    running = await begin(records.store, records.call(timeout_seconds=30), LOW, client_id="c1")
    mine = {"user_id": "alice", "project_id": records.project.id, "client_id": "c1"}
    await records.store.executions.queued([running.id], **mine)
    records.clock.turn(100)
    if given_up:
        (ended,), _ = await expire(records.store, frozenset())
        assert (ended.error_type, ended.started_at) == ("interrupted", None)
    reported = await settle(records, running.id, duration_ms=20 if given_up else 10**30)
    assert (reported.status, reported.result) == ("failed" if given_up else "completed", '{"success":true}')
    assert reported.started_at is not None
    assert reported.execution_time_ms == (20 if given_up else 100_000)
    other = await begin(records.store, records.call(timeout_seconds=30), LOW, client_id="c1")
    await records.store.executions.queued([other.id], **mine)
    if given_up:
        await records.store.executions.cancel(other.id, user_id="alice", actor="user:alice", connected=frozenset())
    called_off = {"result": None, "error": "Nothing was run.", "error_type": ErrorType.CANCELLED}
    unrun = await settle(records, other.id, **called_off)
    assert (unrun.status, unrun.started_at) == ("failed", None)


@pytest.mark.promise("W11", "D")
async def test_a_result_that_comes_after_its_call_was_given_up_is_kept_as_late(records: Records) -> None:
    running = await begin(records.store, records.call(timeout_seconds=30), LOW, client_id="c1")
    records.clock.turn(60)
    await expire(records.store, frozenset())
    assert "tool.result_ack" not in await records.kinds(), "nobody has reported yet"
    with pytest.raises(ConflictError, match="another client"):
        await settle(records, running.id, client_id="c2")
    late = await settle(records, running.id)
    assert (late.status, late.error_type, late.result) == ("failed", "interrupted", '{"success":true}')
    assert (late.error or "").endswith("Its client reported later: it completed")
    assert await settle(records, running.id) == late
    with pytest.raises(ConflictError, match="takes no result"):
        await settle(records, running.id, result_hash="h2")
    assert (await records.kinds())[-2:] == ["tool.result_ack", "tool.finished"]
    assert [check.fault for check in await records.store.audit.verify()] == [None]


async def test_the_same_id_again_finds_the_call_and_changes_nothing(records: Records) -> None:
    first = await begin(records.store, records.call(key="exec_1"), ASK, client_id="c1")
    again = await begin(records.store, records.call(key="exec_1"), LOW, client_id="c1")
    assert again == first


async def test_cancelling_before_it_runs_ends_it_and_withdraws_its_question(records: Records) -> None:
    asked = await begin(records.store, records.call(), ASK, client_id="c1")
    joined = await begin(records.store, records.call(), ASK, client_id="c1")
    await records.store.executions.cancel(asked.id, user_id="alice", actor="user:alice")
    assert len(await records.store.approvals.pending("alice")) == 1
    ended = await records.store.executions.cancel(joined.id, user_id="alice", actor="user:alice")
    assert (ended.status, ended.error_type) == ("failed", "cancelled")
    assert await records.store.approvals.pending("alice") == []
    link = (await records.store.audit.records(records.project.id))[-1]
    assert (link.action, link.actor) == ("cancelled", "user:alice")
    with pytest.raises(ConflictError, match="withdrawn"):
        await decide(records, asked.approval_id)
    with pytest.raises(ConflictError, match="already"):
        await records.store.executions.cancel(asked.id, user_id="alice", actor="user:alice")


async def test_cancelling_what_runs_asks_the_client_and_waits_for_its_report(records: Records) -> None:
    posted = await records.store.chat.post("alice", records.project.id, "hi", session_id=None, mode=AgentMode.SANDBOX)
    running = await begin(records.store, records.call(run_id=posted.run_id), LOW, client_id="c1")
    waiting = await begin(records.store, records.call(run_id=posted.run_id), LOW, client_id=None)
    rows = await records.store.runs.cancel(posted.run_id, user_id="alice", connected=frozenset({"c1"}))
    assert {row.id: row.status.value for row in rows} == {running.id: "executing", waiting.id: "failed"}
    assert "tool.cancel_signal" in await records.kinds()
    ended = await settle(records, running.id, result=None, error="Cancelled.", error_type=ErrorType.CANCELLED)
    assert (ended.status, ended.error_type) == ("failed", "cancelled")


@pytest.mark.promise("W11")
@pytest.mark.parametrize("waits", [False, True])
async def test_cancelled_call_ends_soon_also_if_its_client_does_not_answer(records: Records, waits: bool) -> None:
    running = await begin(records.store, records.call(timeout_seconds=300), LOW, client_id="c1")
    mine = {"user_id": "alice", "project_id": records.project.id, "client_id": "c1"}
    cancel = partial(records.store.executions.cancel, running.id, user_id="alice", actor="user:alice")
    if waits:
        await records.store.executions.queued([running.id], **mine)
    await cancel()
    records.clock.turn(records.settings.result_grace_seconds - 1)
    await cancel()
    await records.store.executions.queued([running.id], **mine)
    assert (await expire(records.store, frozenset({"c1"})))[0] == []
    records.clock.turn(1)
    (ended,), _ = await expire(records.store, frozenset({"c1"}))
    assert (ended.status, ended.error_type) == ("failed", "cancelled")
    assert "did not say that it stopped" in (ended.error or "")


async def test_output_pieces_arrive_once_and_only_while_it_runs(records: Records) -> None:
    running = await begin(records.store, records.call(), LOW, client_id="c1")

    async def send(sequence: int) -> bool:
        return await records.store.executions.append_output(
            running.id,
            user_id="alice",
            project_id=records.project.id,
            client_id="c1",
            stream="stdout",
            text=f"{sequence}\n",
            sequence=sequence,
        )

    assert [await send(sequence) for sequence in (0, 0, 1, 0, 2)] == [True, False, True, False, True]
    await settle(records, running.id)
    assert not await send(3)
    assert (await records.kinds()).count("tool.output") == 3


@pytest.mark.promise("R8", "D")
async def test_history_is_filtered_and_paged_without_a_gap(records: Records) -> None:
    for number in range(7):
        records.clock.turn(1 if number % 2 else 0)
        await begin(
            records.store, records.call(tool_name="read_file" if number < 5 else "search_files"), LOW, client_id="c1"
        )
    seen: list[str] = []
    cursor = None
    while True:
        page, total, exact, cursor = await records.store.executions.page(HistoryFilter("alice", limit=2, cursor=cursor))
        seen += [row.id for row in page]
        if cursor is None:
            break
    assert (len(seen), len(set(seen)), total, exact) == (7, 7, 7, True)
    page, total, _, _ = await records.store.executions.page(
        HistoryFilter("alice", tool_name="search_files", status=ExecutionStatus.EXECUTING)
    )
    assert (len(page), total) == (2, 2)


async def test_a_project_whose_feed_was_damaged_stops_no_other(records: Records) -> None:
    """A row from outside stands where the next event would: that project's calls fail, and no neighbour's."""
    store, damaged = records.store, records.project.id
    sound = await store.chat.create_project("alice", "sound")
    session = await store.chat.create_session("alice", sound.id, "first")
    elsewhere = {"project_id": sound.id, "session_id": session.id}
    waiting = [
        await begin(store, records.call(**project), LOW, client_id="c1")  # type: ignore[arg-type]
        for project in ({}, elsewhere)
    ]
    head = await store.feed.head(damaged)
    await store.database.write(
        lambda transaction: (
            transaction.execute(
                "INSERT INTO events (project_id, seq, kind, payload, created_at) VALUES (:id, :seq, 'x', '{}', :now)",
                {"id": damaged, "seq": head + 1, "now": transaction.now},
            ).rowcount
        )
    )
    calls = (records.call(**project) for project in ({}, elsewhere, {}, elsewhere))  # type: ignore[arg-type]
    begun = await asyncio.gather(*(begin(store, call, LOW, client_id="c1") for call in calls), return_exceptions=True)
    assert [isinstance(outcome, ExecutionRow) for outcome in begun] == [False, True, False, True]
    records.clock.turn(3600)
    ended, _ = await expire(store, frozenset())
    assert waiting[1].id in {row.id for row in ended}
    assert waiting[0].id not in {row.id for row in ended}


@pytest.mark.promise("R8", "D")
async def test_rare_calls_of_a_long_history_are_found_piece_by_piece(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few rows one read looks through, a page is full as long as there is something to put on it."""
    monkeypatch.setattr(executions_module, "MOST_LOOKED_THROUGH", 3)
    monkeypatch.setattr(executions_module, "MOST_COUNTED", 8)
    for number in range(20):
        records.clock.turn(1 if number % 3 else 0)
        await begin(
            records.store, records.call(tool_name="read_file" if number % 5 else "search_files"), LOW, client_id="c1"
        )
    seen: list[str] = []
    cursor, pages, total, exact = None, 0, 0, True
    while pages == 0 or cursor is not None:
        wanted = HistoryFilter("alice", tool_name="search_files", limit=3, cursor=cursor)
        page, total, exact, cursor = await records.store.executions.page(wanted)
        assert len(page) == 3 or cursor is None
        seen += [row.id for row in page]
        pages += 1
    assert (len(seen), len(set(seen))) == (4, 4)
    assert (total, exact) == (1, False), "counted among the newest alone"
    page, _, _, cursor = await records.store.executions.page(HistoryFilter("alice", limit=20))
    assert (len(page), cursor) == (20, None)


async def test_errors_are_kept_to_a_thousand_characters(records: Records) -> None:
    running = await begin(records.store, records.call(), LOW, client_id="c1")
    ended = await settle(records, running.id, error="x" * 5000, error_type=ErrorType.TOOL_ERROR)
    assert len(ended.error or "") == 1000


async def test_a_call_of_a_run_that_was_stopped_begins_nothing(records: Records) -> None:
    posted = await records.store.chat.post("alice", records.project.id, "hi", session_id=None, mode=AgentMode.FULL)
    run = await records.store.runs.claim("w1")
    assert run is not None
    asked = await begin(
        records.store, records.call(run_id=run.id, fence=run.fence, params='{"n":1}'), ASK, client_id="c1"
    )
    await records.store.runs.cancel(posted.run_id, user_id="alice")
    assert (await records.store.executions.get(asked.id, user_id="alice")).error_type == "cancelled"
    assert await records.store.approvals.pending("alice") == []
    with pytest.raises(ConflictError) as conflict:
        await begin(records.store, records.call(run_id=run.id, fence=run.fence), LOW, client_id="c1")
    assert conflict.value.state == "fenced"


async def test_a_run_that_failed_leaves_no_question_behind(records: Records) -> None:
    await records.store.chat.post("alice", records.project.id, "hi", session_id=None, mode=AgentMode.SANDBOX)
    run = await records.store.runs.claim("w1")
    assert run is not None
    await begin(records.store, records.call(run_id=run.id, fence=run.fence), ASK, client_id="c1")
    await records.store.runs.fail(run, error="gone")
    assert await records.store.approvals.pending("alice") == []


async def test_an_orderly_stop_is_not_an_attempt(records: Records) -> None:
    await records.store.chat.post("alice", records.project.id, "hi", session_id=None, mode=AgentMode.SANDBOX)
    for _ in range(3):
        run = await records.store.runs.claim("w1")
        assert run is not None
        assert run.attempts == 1
        await records.store.runs.release(run)


async def test_what_was_called_off_is_never_signalled_again(records: Records) -> None:
    running = await begin(records.store, records.call(), LOW, client_id="c1")
    told = await records.store.executions.cancel(
        running.id, user_id="alice", actor="user:alice", connected=frozenset({"c1"})
    )
    assert told.status == "executing"
    await records.store.executions.repeat_signals(records.project.id, "c1")
    ended = await records.store.executions.get(running.id, user_id="alice")
    assert (ended.status, ended.error_type) == ("failed", "cancelled")
    away = await begin(records.store, records.call(), LOW, client_id="c1")
    ended = await records.store.executions.cancel(away.id, user_id="alice", actor="user:alice", connected=frozenset())
    assert (ended.status, ended.error_type) == ("failed", "cancelled")


async def test_a_question_that_shows_something_else_is_not_joined(records: Records) -> None:
    first = await begin(records.store, records.call(), ASK, client_id="c1")
    finding = '[{"level":"MEDIUM","reason":"no sandbox","rule":"gate.isolation"}]'
    second = await begin(records.store, records.call(findings=finding), ASK, client_id="c2")
    third = await begin(records.store, records.call(network=True), ASK, client_id="c2")
    assert len({first.approval_id, second.approval_id, third.approval_id}) == 3


async def test_an_idempotency_key_names_one_call_only(records: Records) -> None:
    await begin(records.store, records.call(key="exec_k"), LOW, client_id="c1")
    with pytest.raises(ConflictError, match="another call"):
        await begin(records.store, records.call(key="exec_k", params='{"path":"b"}'), LOW, client_id="c1")


async def test_questions_do_not_pile_up_without_end(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byleave.calls.approvals.MAX_WAITING", 3)
    for number in range(3):
        row = await begin(records.store, records.call(params=f'{{"n":{number}}}'), ASK, client_id="c1")
        assert row.status == "awaiting_approval"
    fourth = await begin(records.store, records.call(params='{"n":9}'), ASK, client_id="c1")
    assert (fourth.status, fourth.error_type) == ("failed", "refused")


async def test_history_keeps_what_a_command_changed_and_leaves_out_its_output(records: Records) -> None:
    running = await begin(records.store, records.call(tool_name="execute_command"), LOW, client_id="c1")
    told = {"stdout": "x" * 100_000, "stderr": "", "exit_code": 0, "changed_count": 1, "warnings": ["it runs later"]}
    await settle(records, running.id, result=json.dumps(told))
    (row,), _, _, _ = await records.store.executions.page(HistoryFilter("alice"))
    kept = {"exit_code": 0, "changed_count": 1, "warnings": ["it runs later"], "shortened": True}
    assert json.loads(row.result or "") == kept


async def test_history_leaves_out_what_is_as_long_as_a_file(records: Records) -> None:
    running = await begin(records.store, records.call(), LOW, client_id="c1")
    await settle(records, running.id, result=json.dumps({"content": "x" * 100_000}))
    (row,), _, _, _ = await records.store.executions.page(HistoryFilter("alice"))
    assert row.result == '{"shortened":true}'
    assert len((await records.store.executions.get(running.id, user_id="alice")).result or "") > 100_000


async def test_open_calls_of_a_group_are_found_by_what_their_ids_begin_with(records: Records) -> None:
    scope, project_id = "alice/proj/agent", records.project.id
    mine, ended, other = (
        id_of_call(scope, key, group) for key, group in (("1", "mine"), ("2", "mine"), ("1", "other"))
    )
    for number, tool_id in enumerate((mine, ended, other)):
        await begin(records.store, records.call(key=tool_id, params=f'{{"path":"{number}"}}'), ASK, client_id="c1")
    await records.store.executions.cancel(ended, user_id="alice", actor="agent:x")
    prefix = group_prefix(scope, "mine")
    assert await records.store.executions.open_in_group(project_id, prefix) == [mine]
    assert await records.store.executions.open_in_group("proj_other", prefix) == []
