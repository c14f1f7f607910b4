"""A call's whole way inside the server: judged, asked, signalled, settled, and what every end looks like."""

import asyncio
import json
import time
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from byleave.calls import deadlines
from byleave.calls.executor import Caller
from byleave.calls.machines import ConnectedClient
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.executions import CompletedReport, FailedReport
from byleave.protocol.states import AgentMode, ErrorType, ResponseStatus
from byleave.protocol.wire import moment
from byleave.settings import ServerSettings
from byleave.store import ExecutionRow
from harness.desk import Desk, completed, open_desk
from harness.json_values import JsonObject

READ = ("read_file", {"path": "a.txt"})
WRITE = ("write_file", {"path": "a.txt", "content": "hello"})


@pytest.mark.promise("W3", "W6", "W9", "W10", "W11", "W12")
async def test_a_low_read_comes_back_with_its_result(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(content="hi", encoding="utf-8", size=2)) as signals:
        response = await desk.executor.execute_tool(*READ, desk.session.id)
    assert response.status is ResponseStatus.COMPLETED
    assert response.result == {"success": True, "content": "hi", "encoding": "utf-8", "size": 2}
    assert (response.error, response.approval_id) == (None, None)
    assert signals[0]["approved_by"] == "risk:LOW"


@pytest.mark.promise("W4", "G2", "S")
async def test_a_command_outside_the_list_is_refused_and_recorded(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        response = await desk.executor.execute_tool(
            "execute_command", {"command": "rm", "args": ["-rf", "/"]}, desk.session.id
        )
    assert (response.status, response.error) == ("failed", "Command not allowed: rm")
    assert response.hint is not None
    assert signals == []
    row = await desk.store.executions.get(response.tool_id, user_id="alice")
    assert (row.status, row.error_type) == ("failed", "refused")


@pytest.mark.promise("W4")
@pytest.mark.parametrize(
    ("tool_name", "params"),
    [
        ("delete_everything", {}),
        ("read_file", {}),
        ("read_file", {"path": 7}),
        ("read_file", {"path": "a", "approved": True}),
        ("read_file", {"path": "x" * 10_000_000}),
        ("read_file", {"path": "a\0b"}),
        ("read_file", {"path": float("nan")}),
        ("read_file", {"path": {1, 2}}),
        ("write_file", {"path": "a.txt", "content": "x" * (100 * 1024 * 1024 + 1)}),
        ("execute_command", {"command": "ls", "timeout": 301}),
        ("execute_command", {"command": "ls", "env": {"PATH": "/tmp"}}),
    ],
)
async def test_a_malformed_call_fails_with_a_clear_error_and_is_recorded(
    desk: Desk, tool_name: str, params: JsonObject
) -> None:
    response = await desk.executor.execute_tool(tool_name, params, desk.session.id)
    assert (response.status, response.error_type) == ("failed", "invalid")
    assert response.error
    row = await desk.store.executions.get(response.tool_id, user_id="alice")
    assert len(row.tool_params) < 100_000


SECRETS = "password=hunter2x " * 500_000


@pytest.mark.promise("W3", "W4")
@pytest.mark.parametrize(
    ("tool_name", "params"), [("read_file", {"path": "a", "x": SECRETS}), ("delete_everything", {"x": [SECRETS]})]
)
async def test_a_malformed_call_with_much_in_it_does_not_stop_the_server(
    desk: Desk, tool_name: str, params: JsonObject
) -> None:
    began = time.thread_time()  # of this thread alone, which is the event loop's
    response = await desk.executor.execute_tool(tool_name, params, desk.session.id)
    assert time.thread_time() - began < 1
    row = await desk.store.executions.get(response.tool_id, user_id="alice")
    assert "left_out" in json.loads(row.tool_params)


@pytest.mark.promise("W3", "W4")
@pytest.mark.parametrize("args", [["https://a:b@c/" * 8900, "a.txt"], ["a" * 10_000_000]])
async def test_a_call_with_long_arguments_does_not_stop_the_server(desk: Desk, args: list[str]) -> None:
    began = time.thread_time()
    row = await desk.executor.call("execute_command", {"command": "grep", "args": args}, desk.session, until_asked=True)
    assert time.thread_time() - began < 0.2
    assert len(row.tool_params) < 1_000_000


@pytest.mark.promise("W3", "W11")
@pytest.mark.parametrize(
    "report",
    [
        FailedReport(status="failed", error=SECRETS),
        CompletedReport(status="completed", result={"success": False, "error": SECRETS}),
    ],
)
async def test_a_long_error_of_a_client_does_not_stop_the_server(
    desk: Desk, report: CompletedReport | FailedReport
) -> None:
    async with desk.client(lambda signal: report):
        began = time.thread_time()
        response = await desk.executor.execute_tool(*READ, desk.session.id)
        assert time.thread_time() - began < 1
    assert (response.status, len(response.error or "")) == ("failed", 1000)
    assert "hunter" not in (response.error or "")


@pytest.mark.promise("W7", "A")
async def test_a_write_runs_only_after_a_person_said_yes(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(path="a.txt", size=5)) as signals:
        call = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
        approval = await desk.next_approval()
        assert (approval.risk_level, approval.timeout_seconds) == ("MEDIUM", 300)
        assert signals == []
        assert await desk.approvals.approve_tool(approval.id, "alice")
        assert not await desk.approvals.reject_tool(approval.id, "alice")
        response = await call
    assert (response.status, response.approval_id) == ("completed", approval.id)
    assert (signals[0]["approved_by"], signals[0]["digest"]) == ("person:alice", approval.digest)


@pytest.mark.promise("W7", "W12")
async def test_a_rejection_reaches_the_agent_with_its_reason(desk: Desk) -> None:
    async with desk.client(lambda signal: completed()) as signals:
        call = asyncio.create_task(desk.executor.execute_tool(*WRITE, desk.session.id))
        approval = await desk.next_approval()
        assert await desk.approvals.reject_tool(approval.id, "alice", "use docs/ instead")
        response = await call
    assert (response.status, response.error_type) == ("rejected", "rejected")
    assert "use docs/ instead" in (response.error or "")
    assert signals == []


@pytest.mark.promise("W7", "G6")
async def test_an_unanswered_question_times_out_and_nothing_runs(settings: ServerSettings) -> None:
    short = settings.model_copy(update={"medium_approval_seconds": 1})
    async with open_desk(short) as desk, desk.client(lambda signal: completed()) as signals:
        response = await desk.executor.execute_tool(*WRITE, desk.session.id)
    assert (response.status, response.error) == ("timeout", "Approval timeout")
    assert response.error_type is ErrorType.APPROVAL_TIMEOUT
    assert signals == []


@pytest.mark.promise("W7")
async def test_a_deadline_that_passed_while_the_server_was_down_fires_after_the_restart(
    settings: ServerSettings,
) -> None:
    short = settings.model_copy(update={"medium_approval_seconds": 1})
    async with open_desk(short) as desk:
        row = await desk.executor.call(*WRITE, desk.session, until_asked=True)
    async with open_desk(short) as desk:
        ended = await desk.executor.wait(row, 10)
    assert ended.status == "timeout"


@pytest.mark.promise("W8")
async def test_without_a_client_the_call_fails_as_no_client(settings: ServerSettings) -> None:
    async with open_desk(settings.model_copy(update={"client_wait_seconds": 0.2})) as desk:
        response = await desk.executor.execute_tool(*READ, desk.session.id)
    assert (response.status, response.error_type) == ("failed", "no_client")


@pytest.mark.promise("W8")
async def test_a_call_waits_for_a_client_to_come(desk: Desk) -> None:
    call = asyncio.create_task(desk.executor.execute_tool(*READ, desk.session.id))
    while not await desk.store.executions.waiting_projects():
        await asyncio.sleep(0)
    async with desk.client(lambda signal: completed(content="late")):
        response = await call
    assert response.status == "completed"


async def test_an_anonymous_stream_executes_only_while_no_client_says_who_it_is(desk: Desk) -> None:
    anonymous = ConnectedClient("anon", desk.project.id, declared=False)
    leave = desk.presence.connect(anonymous)
    assert desk.presence.choose(desk.project.id) == anonymous
    async with desk.client(lambda signal: completed()):
        chosen = desk.presence.choose(desk.project.id)
        assert chosen is not None
        assert chosen.client_id == "c1"
        assert {client.client_id for client in desk.presence.clients(desk.project.id)} == {"anon", "c1"}
    leave()
    leave()
    assert desk.presence.choose(desk.project.id) is None


@pytest.mark.promise("G7")
async def test_full_mode_does_not_ask_but_still_refuses(desk: Desk) -> None:
    full = Caller(mode=AgentMode.FULL)
    async with desk.client(lambda signal: completed(path="a.txt", size=5)) as signals:
        response = await desk.executor.execute_tool(*WRITE, desk.session.id, caller=full)
        refused = await desk.executor.execute_tool("read_file", {"path": "../secret"}, desk.session.id, caller=full)
    assert (response.status, signals[0]["approved_by"], signals[0]["mode"]) == ("completed", "mode:full", "full")
    assert refused.status == "failed"


async def test_without_isolation_nothing_is_low(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), isolation="none"):
        row = await desk.executor.call(*READ, desk.session, until_asked=True)
    assert row.status == "awaiting_approval"


async def test_what_the_machine_said_is_remembered_while_no_client_is_connected(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(), workspace="/home/alice/ws", isolation="none"):
        pass
    row = await desk.executor.call("read_file", {"path": "/home/alice/ws/a.txt"}, desk.session, until_asked=True)
    assert row.status == "awaiting_approval"
    refused = await desk.executor.call("read_file", {"path": "/home/alice/ws-evil/a.txt"}, desk.session)
    assert refused.error_type == "refused"


async def test_the_same_key_is_the_same_call(desk: Desk) -> None:
    caller = Caller(run_id="run_1", key="call_1")
    async with desk.client(lambda signal: completed(content="once")) as signals:
        first = await desk.executor.execute_tool(*READ, desk.session.id, caller=caller)
        again = await desk.executor.execute_tool(*READ, desk.session.id, caller=caller)
    assert first == again
    assert len(signals) == 1


@pytest.mark.promise("D")
async def test_secrets_in_a_result_are_masked_before_anyone_sees_them(desk: Desk) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    big = "x" * 300_000
    for padding in ("", big):
        async with desk.client(lambda signal, padding=padding: completed(content=f"token {secret} {padding}")):
            response = await desk.executor.execute_tool(*READ, desk.session.id)
        assert secret not in str(response.result)
        row = await desk.store.executions.get(response.tool_id, user_id="alice")
        assert secret not in (row.result or "")


@pytest.mark.promise("D")
async def test_secrets_in_parameters_reach_the_client_but_not_the_record(desk: Desk) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    async with desk.client(lambda signal: completed(path="a.txt", size=1)) as signals:
        call = asyncio.create_task(
            desk.executor.execute_tool(
                "write_file", {"path": "a.txt", "content": f"api_key: {secret}\n"}, desk.session.id
            )
        )
        approval = await desk.next_approval()
        assert secret not in approval.model_dump_json()
        await desk.approvals.approve_tool(approval.id, "alice")
        response = await call
    assert secret in signals[0]["tool_params"]["content"]
    row = await desk.store.executions.get(response.tool_id, user_id="alice")
    assert secret not in row.tool_params
    assert row.true_params is None


@pytest.mark.promise("D")
async def test_a_reason_shows_the_person_what_could_act_and_the_record_masks_it(desk: Desk) -> None:
    push = {"command": "git", "args": ["push", "https://me:hunter2$x1@host.example/r", "main"]}
    row = await desk.executor.call("execute_command", push, desk.session, until_asked=True)
    approval = await desk.next_approval()
    assert "hunter2$x1" in approval.findings[0].reason
    assert "hunter2" not in str(row.to_wire().reasons)
    refused = await desk.executor.execute_tool("read_file", {"path": "../PASSWORD=hunter2$x1"}, desk.session.id)
    assert "leads out of the workspace" in (refused.error or "")
    assert "hunter2" not in (refused.error or "")


async def test_a_failed_report_keeps_its_kind(desk: Desk) -> None:
    async with desk.client(
        lambda signal: FailedReport(status="failed", error="No such file: 'a.txt'.", error_type=ErrorType.TOOL_ERROR)
    ):
        response = await desk.executor.execute_tool(*READ, desk.session.id)
    assert (response.status, response.error, response.error_type) == ("failed", "No such file: 'a.txt'.", "tool_error")


@pytest.mark.parametrize(
    ("report", "error"),
    [
        (
            CompletedReport(status="completed", result={"success": False, "error": "Disk full."}),
            "Disk full.",
        ),
        (CompletedReport(status="completed", result={"success": False, "error": ["x"]}), "The client gave no reason."),
        (CompletedReport(status="completed", result={"success": None}), "The client gave no reason."),
        (FailedReport(status="failed", error=" \n"), "The client gave no reason."),
    ],
)
async def test_what_did_not_succeed_has_failed_and_says_why(
    desk: Desk, report: CompletedReport | FailedReport, error: str
) -> None:
    async with desk.client(lambda signal: report):
        response = await desk.executor.execute_tool(*READ, desk.session.id)
    assert (response.status, response.error, response.error_type) == ("failed", error, "tool_error")
    row = await desk.store.executions.get(response.tool_id, user_id="alice")
    assert (row.status, json.loads(row.result or "null")) == ("failed", report.result)
    again = await desk.executor.settle(
        row.id, report, user_id="alice", project_id=desk.project.id, client_id=row.client_id or ""
    )
    assert again == row, "the same report again is accepted"


async def test_a_wait_with_a_limit_returns_what_holds_then(desk: Desk) -> None:
    row = await desk.executor.call(*WRITE, desk.session, until_asked=True)
    assert (await desk.executor.wait(row, 0.05)).status == "awaiting_approval"
    approval = await desk.next_approval()
    await desk.approvals.reject_tool(approval.id, "alice")
    assert (await desk.executor.wait(row)).status == "rejected"
    ended = await desk.store.executions.get(row.id, user_id="alice")
    assert await desk.executor.wait(ended) is ended


async def test_a_lost_hint_costs_time_but_not_the_answer(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byleave.calls.deadlines.LOOK_AGAIN_SECONDS", 0.05)
    row = await desk.executor.call(*WRITE, desk.session, until_asked=True)
    waiting = asyncio.create_task(desk.executor.wait(row))
    await asyncio.sleep(0)
    monkeypatch.setattr(desk.bus, "publish", lambda topic, fact=None: None)
    await desk.approvals.reject_tool(row.approval_id or "", "alice")
    assert (await waiting).status == "rejected"


async def test_a_hint_that_says_nothing_makes_the_waiter_look(desk: Desk) -> None:
    row = await desk.executor.call(*WRITE, desk.session, until_asked=True)
    waiting = asyncio.create_task(desk.executor.wait(row))
    await asyncio.sleep(0.01)
    desk.bus.publish(row.id)
    await desk.approvals.reject_tool(row.approval_id or "", "alice")
    assert (await waiting).status == "rejected"


@pytest.mark.promise("X23")
async def test_calls_of_one_agent_share_a_session_and_foreign_sessions_are_not_found(desk: Desk) -> None:
    first = await desk.executor.agent_session("alice", desk.project.id, None, "one")
    assert await desk.executor.agent_session("alice", desk.project.id, None, "one") == first
    assert await desk.executor.agent_session("alice", desk.project.id, first.id, "one") == first
    assert (await desk.executor.agent_session("alice", desk.project.id, None, "two")).id != first.id
    for project in (desk.project.id, None):
        assert (await desk.executor.agent_session("alice", project, desk.session.id, "one")).id == desk.session.id
    for user, session, agent in (
        ("mallory", desk.session.id, "one"),
        ("alice", "sess_unknown", "one"),
        ("alice", first.id, "two"),
    ):
        with pytest.raises(NotFound):
            await desk.executor.agent_session(user, desk.project.id, session, agent)


@pytest.mark.promise("W4")
async def test_a_session_is_named_by_its_uuid_too_and_an_unknown_one_is_a_failed_response(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(content="x")):
        opened = await desk.store.chat.create_session("alice", desk.project.id, "a conversation")
        named = UUID(opened.id.removeprefix("sess_"))
        assert (await desk.executor.execute_tool(*READ, named)).status == "completed"
    for unknown in (uuid4(), "sess_unknown", "", "\ud800"):
        response = await desk.executor.execute_tool(*READ, unknown)
        assert (response.status, response.error_type) == ("failed", "invalid")
        assert "No session" in (response.error or "")


async def test_a_result_for_a_finished_execution_is_a_conflict(desk: Desk) -> None:
    async with desk.client(lambda signal: completed(content="x")):
        response = await desk.executor.execute_tool(*READ, desk.session.id)
    with pytest.raises(ConflictError):
        await desk.executor.settle(
            response.tool_id, completed(content="y"), user_id="alice", project_id=desk.project.id, client_id="c1"
        )


async def test_deadlines_are_checked_again_after_a_database_error(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_desk(settings.model_copy(update={"client_wait_seconds": 0.1})) as desk:
        expire = deadlines.expire
        failures = iter([True, False])

        async def sometimes(*clients: Any) -> Any:
            if next(failures, False):
                raise OSError("disk I/O error")
            return await expire(*clients)

        monkeypatch.setattr("byleave.calls.executor.expire", sometimes)
        response = await desk.executor.execute_tool(*READ, desk.session.id)
    assert response.error_type == "no_client"


# What waits in a client's queue

QUICK = ("execute_command", {"command": "ls", "timeout": 1})
"""LOW, and given up after a second and the grace."""


async def row_of(desk: Desk, tool_id: str) -> ExecutionRow:
    return await desk.store.executions.get(tool_id, user_id="alice")


@pytest.mark.promise("W11", "C3")
async def test_a_call_that_waits_in_the_clients_queue_does_not_run_out_of_time(settings: ServerSettings) -> None:
    short = settings.model_copy(update={"client_wait_seconds": 0.2, "result_grace_seconds": 0.1})
    async with open_desk(short) as desk:
        whose = {"user_id": "alice", "project_id": desk.project.id, "client_id": "c1"}

        async def waits_then_works(signal: JsonObject) -> CompletedReport:
            tool_id, executions = signal["tool_id"], desk.store.executions
            await executions.queued([tool_id, "exec_unknown"], **whose)
            assert (await row_of(desk, tool_id)).to_wire().started_at is None
            async with asyncio.timeout(20):
                while ((await row_of(desk, tool_id)).deadline or "") <= signal["deadline"]:
                    await asyncio.sleep(0.02)
            begun = await executions.start(tool_id, **whose)
            assert begun == await row_of(desk, tool_id)
            assert begun == await executions.start(tool_id, **whose), "the same again is the same"
            assert moment(begun.deadline or "") - moment(begun.started_at or "") == timedelta(seconds=1.1)
            return completed().model_copy(update={"duration_ms": 7})

        async with desk.client(waits_then_works):
            row = await desk.executor.call(*QUICK, desk.session)
        events, *_ = await desk.store.feed.after(desk.project.id, 0, client_id=None, limit=1000)
    assert (row.status, row.execution_time_ms) == ("completed", 7)
    told = [json.loads(event.payload) for event in events if event.kind == "tool.queued"]
    assert [event["waits"] for event in told] == [True, False]


@pytest.mark.parametrize("stays", [True, False])
async def test_waiting_in_a_clients_queue_has_an_end(settings: ServerSettings, stays: bool) -> None:
    waits = {"client_wait_seconds": 0.1, "result_grace_seconds": 0.1, "queue_wait_seconds": 0.5 if stays else 600}
    async with open_desk(settings.model_copy(update=waits)) as desk:
        whose = {"user_id": "alice", "project_id": desk.project.id, "client_id": "c1"}
        waiting = asyncio.Event()

        async def waits_for_ever(signal: JsonObject) -> CompletedReport:
            await desk.store.executions.queued([signal["tool_id"]], **whose)
            waiting.set()
            await asyncio.Event().wait()
            return completed()

        async with desk.client(waits_for_ever):
            call = asyncio.create_task(desk.executor.call(*QUICK, desk.session))
            await waiting.wait()
            if stays:
                row = await call
        row = await call
        assert row.error_type == ("execution_timeout" if stays else "interrupted")
        assert stays is ("never begun" in (row.error or ""))
        with pytest.raises(ConflictError, match="not wanted any more"):
            await desk.store.executions.start(row.id, **whose)


async def test_client_that_comes_and_goes_does_not_keep_its_call_open(
    settings: ServerSettings,
) -> None:
    async with open_desk(settings.model_copy(update={"result_grace_seconds": 0.1})) as desk:

        async def hangs(signal: JsonObject) -> CompletedReport:
            await asyncio.Event().wait()
            return completed()

        async with desk.client(hangs) as signals, asyncio.timeout(10):
            call = asyncio.create_task(desk.executor.call(*QUICK, desk.session))
            while not signals:
                await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while not call.done():
                desk.presence.connect(ConnectedClient("c1", desk.project.id, declared=True))()
                await asyncio.sleep(0.01)
        assert (await call).error_type == "interrupted"


async def test_only_the_client_that_got_the_signal_says_what_waits_and_begins(desk: Desk) -> None:
    got: list[str] = []

    async def holds(signal: JsonObject) -> CompletedReport:
        got.append(signal["tool_id"])
        await asyncio.Event().wait()
        return completed()

    async with desk.client(holds):
        call = asyncio.create_task(desk.executor.call(*QUICK, desk.session))
        async with asyncio.timeout(10):
            while not got:
                await asyncio.sleep(0)
        whose = {"user_id": "alice", "project_id": desk.project.id}
        for client_id in (None, "c2"):
            await desk.store.executions.queued(got, **whose, client_id=client_id)
            with pytest.raises(ConflictError, match="another client"):
                await desk.store.executions.start(got[0], **whose, client_id=client_id)
        assert not (await row_of(desk, got[0])).queued
        await desk.store.executions.queued(got, **whose, client_id="c1")
        before = await row_of(desk, got[0])
        assert before.queued
        # Its queue is gone with what it knew: signalled afresh, its time begins afresh.
        await desk.store.executions.repeat_signals(desk.project.id, "c1")
        assert not (await row_of(desk, got[0])).queued
        await desk.store.executions.cancel(got[0], user_id="alice", actor="user:alice")
        with pytest.raises(ConflictError, match="not wanted any more"):
            await desk.store.executions.start(got[0], **whose, client_id="c1")
        call.cancel()
