"""ToolHandler on a real workspace: what is checked, what runs, what is reported."""

import asyncio
import hashlib
import json
import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from byleave.client.handler import ToolHandler
from byleave.client.outbox import ending
from byleave.protocol.errors import ConflictError, MachineError, NotFound, RefusedError, UnreachableError
from byleave.protocol.events import ApprovalDecided, ResultAcknowledged
from byleave.protocol.states import AgentMode, ApprovalStatus, ClientResultStatus, ExecutionStatus
from byleave.protocol.tools import ReadFileResult
from byleave.protocol.wire import now, timestamp
from harness.json_values import JsonObject

from .conftest import MakeApproved, MakeCancel, MakeHandler, MakeRequest, MakeSignal, RecordingLink


def ack(tool_id: str, status: ExecutionStatus = ExecutionStatus.COMPLETED) -> ResultAcknowledged:
    return ResultAcknowledged(timestamp=now(), tool_id=tool_id, status=status, session_id="session_1")


def ago(seconds: float) -> str:
    return timestamp(datetime.now(UTC) - timedelta(seconds=seconds))


# What runs


@pytest.mark.promise("C1", "W9", "W10")
async def test_a_low_signal_runs_and_its_result_is_posted(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    handler.handle_tool_execution_signal(signal("exec_1"))
    report = await link.report("exec_1")
    assert report["status"] == "completed"
    assert report["result"]["content"] == "hello\n"
    assert report["duration_ms"] >= 0
    assert report["timestamp"].endswith("Z")


@pytest.mark.promise("C1", "W9")
async def test_an_approved_write_changes_the_file(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "b.txt", "content": "new"}))
    assert (await link.report("exec_1"))["status"] == "completed"
    assert (root / "b.txt").read_text() == "new"


@pytest.mark.promise("C2", "G8")
@pytest.mark.parametrize(("by", "allowed"), [("person:alice", True), ("grant:g1", False), ("mode:full", False)])
async def test_only_what_a_person_was_asked_about_reads_secrets_and_writes_through_links(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, by: str, allowed: bool
) -> None:
    (root / ".env").write_text("needle\n")
    (root / "src").mkdir()
    (root / "src/up").symlink_to("..")
    grep = {"command": "git", "args": ["grep", "--no-index", "needle"]}
    more = {"approved_by": by, "mode": AgentMode.FULL if by == "mode:full" else AgentMode.SANDBOX}
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", grep, **more))
    assert ("needle" in (await link.report("exec_1"))["result"]["stdout"]) is allowed
    write = {"path": "src/up/a.txt", "content": "new"}
    handler.handle_tool_execution_signal(approved("exec_2", "write_file", write, **more))
    assert ((await link.report("exec_2"))["status"] == "completed") is allowed
    assert (root / "a.txt").read_text() == ("new" if allowed else "hello\n")


@pytest.mark.promise("C1")
async def test_a_command_reports_its_output_and_relays_it_while_it_runs(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved
) -> None:
    code = "import sys,time; print('first', flush=True); sys.stdin.read(); time.sleep(0.4); print('second')"
    handler.handle_tool_execution_signal(
        approved("exec_1", "execute_command", {"command": "python", "args": ["-c", code]})
    )
    await link.until(lambda: bool(link.output))
    assert link.output[0].text == "first\n"
    report = await link.report("exec_1")
    assert report["status"] == "completed", report
    assert report["result"]["stdout"] == "first\nsecond\n"


@pytest.mark.promise("C7")
async def test_a_command_past_its_time_is_a_timeout_and_keeps_its_output(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved
) -> None:
    code = "import time; print('begun', flush=True); time.sleep(60)"
    params = {"command": "python", "args": ["-c", code], "timeout": 1}
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", params))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "execution_timeout")
    assert report["result"]["stdout"] == "begun\n"
    assert handler.history[-1].status is ClientResultStatus.TIMEOUT


@pytest.mark.promise("C4", "C7")
async def test_the_history_says_how_each_execution_ended(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal, approved: MakeApproved, root: Path
) -> None:
    (root / "large.txt").write_text("x" * 10_000)
    handler.handle_tool_execution_signal(signal("exec_1"))
    await link.report("exec_1")
    handler.handle_tool_execution_signal(signal("exec_2", params={"path": "missing.txt"}))
    await link.report("exec_2")
    handler.handle_tool_execution_signal(signal("exec_3", params={"path": "large.txt"}))
    await link.report("exec_3")
    handler.handle_tool_execution_signal(
        approved("exec_4", "execute_command", {"command": "python", "args": ["-c", "1/0"]})
    )
    await link.report("exec_4")
    first, second, third, fourth = handler.history
    assert first.result is not None
    assert (first.status, first.result["content"]) == (ClientResultStatus.SUCCESS, "hello\n")
    assert (second.status, second.result) == (ClientResultStatus.ERROR, None)
    assert second.error is not None
    assert "missing.txt" in second.error
    assert (third.status, third.result) == (ClientResultStatus.SUCCESS, None)
    assert (fourth.status, fourth.error) == (ClientResultStatus.SUCCESS, None)
    assert fourth.result is not None
    assert fourth.result["exit_code"] == 1
    assert handler.active == []


# What is refused


@pytest.mark.promise("C1", "C10")
async def test_an_unknown_tool_is_refused_with_a_report(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    handler.handle_tool_execution_signal(signal("exec_1", "format_disk"))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "invalid")
    assert "format_disk" in report["error"]


@pytest.mark.promise("C1")
async def test_a_repeated_signal_is_not_run_again(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    event = approved("exec_1", "write_file", {"path": "log.txt", "content": "once\n", "mode": "append"})
    handler.handle_tool_execution_signal(event)
    handler.handle_tool_execution_signal(event)
    await link.report("exec_1")
    handler.handle_tool_execution_signal(event)
    handler.handle_tool_execution_signal(approved("exec_2", "write_file", {"path": "c.txt", "content": ""}))
    await link.report("exec_2")
    assert (root / "log.txt").read_text() == "once\n"
    assert [tool_id for tool_id, _ in link.results] == ["exec_1", "exec_2"]


@pytest.mark.promise("C1", "C5")
async def test_a_repeated_signal_sends_a_kept_report_again(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    link.failures = [RefusedError("The token has no scope `execute`.")]
    handler.handle_tool_execution_signal(signal("exec_1"))
    await link.until(lambda: not link.failures)
    await asyncio.gather(*handler._tasks)
    assert link.results == []
    handler.handle_tool_execution_signal(signal("exec_1"))
    assert (await link.report("exec_1"))["status"] == "completed"


@pytest.mark.promise("C1")
async def test_a_signal_for_another_client_is_left_to_it(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    handler.handle_tool_execution_signal(signal("exec_1", client_id="client_2"))
    handler.handle_tool_execution_signal(signal("exec_2"))
    await link.report("exec_2")
    assert [tool_id for tool_id, _ in link.results] == ["exec_2"]


@pytest.mark.promise("C2")
async def test_parameters_other_than_the_approved_ones_are_drift(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    shown = approved("exec_1", "write_file", {"path": "b.txt", "content": "shown"})
    params = {"path": "b.txt", "content": "other"}
    handler.handle_tool_execution_signal(shown.model_copy(update={"tool_params": params}))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "drifted")
    assert not (root / "b.txt").exists()


@pytest.mark.promise("C2")
async def test_parameters_that_have_no_digest_are_drift(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    handler.handle_tool_execution_signal(signal("exec_1", params={"path": "a.txt", "x": float("nan")}, digest="d" * 64))
    assert (await link.report("exec_1"))["error_type"] == "drifted"


@pytest.mark.promise("C2")
async def test_the_digest_of_a_large_call_is_checked_too(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    params = {"path": "b.txt", "content": "x" * 300_000}
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", params, digest="0" * 64))
    handler.handle_tool_execution_signal(approved("exec_2", "write_file", params))
    assert (await link.report("exec_1"))["error_type"] == "drifted"
    assert (await link.report("exec_2"))["status"] == "completed"


@pytest.mark.promise("C2", "G1")
@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link/x"])
async def test_a_path_outside_is_refused_whatever_was_approved(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, path: str
) -> None:
    (root / "link").symlink_to("/etc")
    handler.handle_tool_execution_signal(approved("exec_1", "read_file", {"path": path}))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "refused")


@pytest.mark.promise("C2", "G2")
async def test_a_command_off_the_list_is_refused_whatever_was_approved(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved
) -> None:
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", {"command": "rm", "args": ["-rf", "."]}))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "refused")
    assert "Command not allowed: rm" in report["error"]


@pytest.mark.promise("C2")
async def test_malformed_parameters_are_invalid(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved
) -> None:
    handler.handle_tool_execution_signal(approved("exec_1", "read_file", {"path": "a.txt", "approved": True}))
    assert (await link.report("exec_1"))["error_type"] == "invalid"


@pytest.mark.promise("C2")
@pytest.mark.parametrize(
    "told",
    [
        {"approved_by": "risk:LOW", "approval_id": None},
        {"approved_by": "", "approval_id": None},
        {"approved_by": "risk:LOW", "approval_id": "approval_1"},
        {"approved_by": "person:alice", "approval_id": None},
        {"approved_by": "person:", "approval_id": "approval_1"},
        {"approved_by": "grant:", "approval_id": None},
        {"approved_by": "mode:full", "approval_id": None, "mode": AgentMode.SANDBOX},
        {"approved_by": "mode:other", "approval_id": None, "mode": AgentMode.FULL},
        {"approved_by": "alice", "approval_id": "approval_1"},
        *({"approved_by": word, "approval_id": "approval_1"} for word in ("person", "personx", "grant", "grantx")),
        {"approved_by": "rulex", "approval_id": "approval_1"},
    ],
)
async def test_what_needed_approval_and_has_none_is_not_run(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, told: JsonObject
) -> None:
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "b.txt", "content": "x"}, **told))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "refused")
    assert "needed approval and has none" in report["error"]
    assert not (root / "b.txt").exists()


@pytest.mark.promise("C2", "G7")
@pytest.mark.parametrize(
    "told",
    [
        {"approved_by": "grant:g1", "approval_id": None},
        {"approved_by": "mode:full", "approval_id": None, "mode": AgentMode.FULL},
    ],
)
async def test_a_grant_or_full_mode_is_an_approval(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, told: JsonObject
) -> None:
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "b.txt", "content": "x"}, **told))
    assert (await link.report("exec_1"))["status"] == "completed"


@pytest.mark.promise("C2", "G7", "G8", "S")
@pytest.mark.parametrize(
    "told",
    [
        {"approved_by": "grant:g1", "approval_id": None},
        {"approved_by": "grant:g1", "approval_id": "approval_1"},
        {"approved_by": "mode:full", "approval_id": None, "mode": AgentMode.FULL},
        {"approved_by": "mode:full", "approval_id": "approval_1", "mode": AgentMode.FULL},
    ],
)
async def test_neither_a_grant_nor_full_mode_covers_what_always_asks(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, told: JsonObject
) -> None:
    (root / ".env").write_text("A=1\n")
    handler.handle_tool_execution_signal(approved("exec_1", "read_file", {"path": ".env"}, **told))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "refused")
    assert "needed approval" in report["error"]
    handler.handle_tool_execution_signal(approved("exec_2", "read_file", {"path": ".env"}))
    assert (await link.report("exec_2"))["status"] == "completed"


@pytest.mark.promise("C2")
async def test_the_network_needs_the_approval_and_the_own_gate(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    run = handler._workspace.run

    async def watched(*args: Any, network: bool, **kwargs: Any) -> Any:
        seen.append(network)
        return await run(*args, network=network, **kwargs)

    monkeypatch.setattr(handler._workspace, "run", watched)
    handler.handle_tool_execution_signal(
        approved("exec_1", "execute_command", {"command": "python", "args": ["-V"]}, network=True)
    )
    await link.report("exec_1")
    handler.handle_tool_execution_signal(approved("exec_2", "search_web", {"query": "x"}, network=False))
    await link.report("exec_2")
    handler.handle_tool_execution_signal(approved("exec_3", "search_web", {"query": "x"}, network=True))
    await link.report("exec_3")
    assert seen == [False, False, True]


# Late signals


@pytest.mark.promise("C2")
async def test_a_signal_past_its_deadline_is_not_run(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    event = approved("exec_1", "write_file", {"path": "b.txt", "content": "x"}, deadline=ago(1))
    handler.handle_tool_execution_signal(event)
    assert (await link.report("exec_1"))["error_type"] == "execution_timeout"
    assert not (root / "b.txt").exists()


@pytest.mark.promise("C2")
async def test_deadlines_are_read_on_the_servers_clock(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    handler.set_server_time(datetime.now(UTC) - timedelta(hours=1))
    assert -3601 < handler.server_ahead < -3599
    handler.handle_tool_execution_signal(signal("exec_1", deadline=ago(1800)))
    assert (await link.report("exec_1"))["status"] == "completed"


@pytest.mark.promise("C2")
@pytest.mark.parametrize(
    ("status", "runs"),
    [
        (ExecutionStatus.EXECUTING, True),
        (ExecutionStatus.FAILED, False),
        (NotFound("No such execution."), False),
        (UnreachableError("Cannot reach the server."), True),
    ],
)
async def test_an_old_signal_is_run_only_while_it_is_still_wanted(
    handler: ToolHandler,
    link: RecordingLink,
    approved: MakeApproved,
    root: Path,
    status: ExecutionStatus | Exception,
    runs: bool,
) -> None:
    link.status = status
    event = approved("exec_1", "write_file", {"path": "b.txt", "content": "x"}, timestamp=ago(30))
    handler.handle_tool_execution_signal(event)
    report = await link.report("exec_1")
    assert link.asked == ["exec_1"]
    assert (report["status"] == "completed", (root / "b.txt").exists()) == (runs, runs)


@pytest.mark.promise("C1")
async def test_a_signal_that_cannot_be_understood_is_reported_once(handler: ToolHandler, link: RecordingLink) -> None:
    handler.handle_unreadable_signal("exec_1")
    handler.handle_unreadable_signal("exec_1")
    assert (await link.report("exec_1"))["error_type"] == "invalid"
    assert len(link.results) == 1


# Places and order


def waiting_command(name: str) -> JsonObject:
    """A command that runs until a file appears in the workspace."""
    code = (
        f"import os,time\nopen('{name}.started','w').close()\nwhile not os.path.exists('{name}.go'): time.sleep(0.01)"
    )
    return {"command": "python", "args": ["-c", code], "timeout": 60}


async def until_exists(*paths: Path) -> None:
    async with asyncio.timeout(10):
        while not all(path.exists() for path in paths):
            await asyncio.sleep(0.01)


@pytest.mark.promise("C3", "C4")
async def test_three_run_at_once_and_the_rest_wait_in_order(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    for number in range(1, 6):
        handler.handle_tool_execution_signal(
            approved(f"exec_{number}", "execute_command", waiting_command(f"c{number}"))
        )
    await until_exists(*(root / f"c{number}.started" for number in (1, 2, 3)))
    assert [active.event.tool_id for active in handler.active] == ["exec_1", "exec_2", "exec_3"]
    assert [event.tool_id for event in handler.queued] == ["exec_4", "exec_5"]
    assert not (root / "c4.started").exists()
    (root / "c2.go").touch()
    await link.report("exec_2")
    await until_exists(root / "c4.started")
    assert [active.event.tool_id for active in handler.active] == ["exec_1", "exec_3", "exec_4"]
    for number in range(1, 6):
        (root / f"c{number}.go").touch()
    for number in range(1, 6):
        assert (await link.report(f"exec_{number}"))["status"] == "completed"


@pytest.mark.promise("C3", "C10")
async def test_a_full_queue_is_reported(
    make_handler: MakeHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    handler = await make_handler(concurrency=1, queue_limit=1)
    for number in (1, 2, 3):
        handler.handle_tool_execution_signal(
            approved(f"exec_{number}", "execute_command", waiting_command(f"c{number}"))
        )
    report = await link.report("exec_3")
    assert (report["status"], report["error_type"]) == ("failed", "tool_error")
    assert "wait on this machine already" in report["error"]


@pytest.mark.promise("C3", "C10")
async def test_a_queue_that_holds_too_many_bytes_is_reported(
    make_handler: MakeHandler,
    link: RecordingLink,
    approved: MakeApproved,
    cancel: MakeCancel,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("byleave.client.handler.MAX_QUEUED_BYTES", 1000)
    handler = await make_handler(concurrency=1)
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", waiting_command("c1")))
    for number, content in ((2, "x" * 700), (3, "é" * 200)):
        params = {"path": f"{number}.txt", "content": content}
        handler.handle_tool_execution_signal(approved(f"exec_{number}", "write_file", params))
    report = await link.report("exec_3")
    assert (report["status"], report["error_type"]) == ("failed", "tool_error")
    assert "wait on this machine already" in report["error"]
    assert [event.tool_id for event in handler.queued] == ["exec_2"]
    handler.handle_tool_cancel_signal(cancel("exec_2"))
    await link.report("exec_2")
    args = ["-c", "", "y" * 700]
    handler.handle_tool_execution_signal(approved("exec_4", "execute_command", {"command": "python", "args": args}))
    handler.handle_tool_execution_signal(approved("exec_5", "read_file", {"path": {"deep": "z" * 300}}))
    assert "already" in (await link.report("exec_5"))["error"]
    (root / "c1.go").touch()
    assert (await link.report("exec_4"))["status"] == "completed"
    assert not (root / "3.txt").exists()


@pytest.mark.promise("C3")
async def test_a_fault_of_ours_is_reported_too(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(handler._workspace, "run", broken)
    handler.handle_tool_execution_signal(signal("exec_1"))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "internal")
    assert "ZeroDivisionError" in report["error"]


@pytest.mark.promise("C3")
async def test_a_tool_that_never_ends_is_given_up(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(*args: object, **kwargs: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(handler._workspace, "run", endless)
    monkeypatch.setattr("byleave.client.handler.OVERTIME_SECONDS", -29.9)
    handler.handle_tool_execution_signal(signal("exec_1"))
    assert (await link.report("exec_1"))["error_type"] == "execution_timeout"


@pytest.mark.promise("C3")
async def test_a_name_that_is_no_text_does_not_stop_the_report(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal, root: Path
) -> None:
    os.close(os.open(os.fsencode(root) + b"/bad-\xff.txt", os.O_CREAT | os.O_WRONLY))
    handler.handle_tool_execution_signal(signal("exec_1", "list_directory", {"path": "."}))
    assert (await link.report("exec_1"))["status"] in ("completed", "failed")


@pytest.mark.promise("C3")
def test_a_result_that_json_cannot_hold_is_a_failure_that_says_so() -> None:
    half = ReadFileResult(content="half a pair: \udcff", encoding="utf-8", size=1)
    report = json.loads(ending("exec_1", "read_file", half).report())
    assert (report["status"], report["error_type"]) == ("failed", "internal")
    failed = ending("exec_1", "read_file", MachineError("no \udcff"))
    assert json.loads(failed.report())["error"] == "no ?"
    assert failed.summary(10).error == "no ?"


@pytest.mark.promise("C3")
async def test_where_the_journal_cannot_be_written_nothing_runs(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(line: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handler._journal, "_append", full)
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "b.txt", "content": "x"}))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "tool_error")
    assert MachineError.error_type.value == "tool_error"
    assert "nothing was run" in report["error"]
    assert not (root / "b.txt").exists()


@pytest.fixture
async def busy(
    make_handler: MakeHandler, link: RecordingLink, approved: MakeApproved, root: Path, monkeypatch: pytest.MonkeyPatch
) -> ToolHandler:
    """A handler with one place, which is taken until `c1.go` is there."""
    monkeypatch.setattr("byleave.client.handler.MOMENT_SECONDS", 0.01)
    handler = await make_handler(concurrency=1)
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", waiting_command("c1")))
    await until_exists(root / "c1.started")
    return handler


@pytest.mark.promise("C3")
async def test_the_time_of_a_queued_call_begins_when_it_is_begun(
    busy: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    # Its own deadline passes while it waits.
    params = {"path": "b.txt", "content": "x"}
    busy.handle_tool_execution_signal(approved("exec_2", "write_file", params, timestamp=ago(60), deadline=ago(1)))
    await link.until(lambda: link.queued == ["exec_2"])
    assert link.begun == []
    (root / "c1.go").touch()
    report = await link.report("exec_2")
    assert (report["status"], link.begun, link.asked) == ("completed", ["exec_2"], [])
    waited = (await link.report("exec_1"))["duration_ms"]
    assert report["duration_ms"] <= waited
    assert (root / "b.txt").read_text() == "x"


async def test_a_queued_call_that_ended_on_the_server_never_runs(
    busy: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    link.begin_failure = ConflictError("It is over.", state="failed")
    busy.handle_tool_execution_signal(approved("exec_2", "write_file", {"path": "b.txt", "content": "x"}))
    await link.until(lambda: link.queued == ["exec_2"])
    (root / "c1.go").touch()
    assert (await link.report("exec_2"))["error_type"] == "cancelled"
    assert not (root / "b.txt").exists()


@pytest.mark.parametrize("late", [True, False])
async def test_where_the_server_cannot_be_told_of_a_beginning_the_signals_own_deadline_holds(
    busy: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path, late: bool
) -> None:
    link.begin_failure = UnreachableError("away")
    deadline = ago(1) if late else ago(-60)
    params = {"path": "b.txt", "content": "x"}
    busy.handle_tool_execution_signal(approved("exec_2", "write_file", params, deadline=deadline))
    await link.until(lambda: link.queued == ["exec_2"])
    (root / "c1.go").touch()
    report = await link.report("exec_2")
    assert (report["status"], (root / "b.txt").exists()) == (("failed", False) if late else ("completed", True))


async def test_what_waits_is_told_until_the_server_knows_and_again_when_it_forgot(
    busy: ToolHandler, link: RecordingLink, signal: MakeSignal, cancel: MakeCancel
) -> None:
    link.failures = [UnreachableError("away")]
    busy.handle_tool_execution_signal(signal("exec_2"))
    busy.handle_tool_execution_signal(signal("exec_3"))
    await link.until(lambda: link.queued == ["exec_2", "exec_3"])
    busy.handle_tool_execution_signal(signal("exec_3"))
    await link.until(lambda: link.queued == ["exec_2", "exec_3", "exec_3"])
    busy.handle_tool_cancel_signal(cancel("exec_2"))
    assert (await link.report("exec_2"))["error_type"] == "cancelled"
    assert busy._reports._confirmed == {"exec_3": True}


async def test_what_waits_for_a_moment_costs_no_request(
    make_handler: MakeHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    handler = await make_handler(concurrency=1)
    for number in range(20):
        handler.handle_tool_execution_signal(signal(f"exec_{number}"))
    for number in range(20):
        await link.report(f"exec_{number}")
    assert (link.queued, link.begun) == ([], [])


# Calling off


@pytest.mark.promise("C7", "C10", "X21")
async def test_calling_off_ends_the_process(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, cancel: MakeCancel, root: Path
) -> None:
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", waiting_command("c1")))
    await until_exists(root / "c1.started")
    handler.handle_tool_cancel_signal(cancel("exec_1", client_id="client_2"))
    assert handler.active
    handler.handle_tool_cancel_signal(cancel("exec_1"))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "cancelled")
    assert handler.history[-1].status is ClientResultStatus.CANCELLED
    assert handler.history[-1].result == report["result"]
    handler.handle_tool_cancel_signal(cancel("exec_1"))
    assert len(link.results) == 1


PRINTS_AND_WAITS = (
    "import sys, time; open('made.txt', 'w').close(); print('before the stop', flush=True); "
    "print('a warning', file=sys.stderr, flush=True); time.sleep(60)"
)


@pytest.mark.parametrize("bound", [False, True], ids=["plain", "bound"])
async def test_what_a_command_printed_before_it_was_stopped_is_reported(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, cancel: MakeCancel, root: Path, bound: bool
) -> None:
    args, seen = ["-c", PRINTS_AND_WAITS], dict[str, str]()
    if bound:
        (root / "x.py").write_text(PRINTS_AND_WAITS)
        args, seen = ["x.py"], {"x.py": hashlib.sha256(PRINTS_AND_WAITS.encode()).hexdigest()}
    params = {"command": "python", "args": args}
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", params, bound=seen))
    await link.until(lambda: "a warning" in "".join(chunk.text for chunk in link.output))
    handler.handle_tool_cancel_signal(cancel("exec_1"))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "cancelled"), report
    kept = report["result"]
    assert (kept["success"], kept["exit_code"]) == (False, None)
    assert (kept["stdout"], kept["stderr"]) == ("before the stop\n", "a warning\n")
    assert kept["changed"] == [{"path": "made.txt", "change": "created"}]


async def test_what_a_command_printed_before_the_client_gave_up_is_reported(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    params = {"command": "python", "args": ["-c", PRINTS_AND_WAITS]}
    deadline = timestamp(datetime.now(UTC) + timedelta(seconds=5))
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", params, deadline=deadline))
    report = await link.report("exec_1")
    assert report["error_type"] == "execution_timeout"
    assert report["result"]["stdout"] == "before the stop\n"


@pytest.mark.promise("C7")
async def test_what_is_called_off_before_it_begins_never_runs(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, cancel: MakeCancel, root: Path
) -> None:
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", {"path": "b.txt", "content": "x"}))
    handler.handle_tool_cancel_signal(cancel("exec_1"))
    assert (await link.report("exec_1"))["error_type"] == "cancelled"
    assert not (root / "b.txt").exists()


@pytest.mark.promise("C7")
async def test_what_is_called_off_in_the_queue_never_runs(
    make_handler: MakeHandler, link: RecordingLink, approved: MakeApproved, cancel: MakeCancel, root: Path
) -> None:
    handler = await make_handler(concurrency=1)
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", waiting_command("c1")))
    handler.handle_tool_execution_signal(approved("exec_2", "write_file", {"path": "b.txt", "content": "x"}))
    handler.handle_tool_cancel_signal(cancel("exec_2"))
    assert (await link.report("exec_2"))["error_type"] == "cancelled"
    assert handler.queued == []
    (root / "c1.go").touch()
    await link.report("exec_1")
    assert not (root / "b.txt").exists()


# Acknowledgements and approvals


@pytest.mark.promise("C5")
async def test_a_result_whose_call_the_server_gave_up_is_sent_all_the_same(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    link.failures = [RefusedError("no scope")]
    handler.handle_tool_execution_signal(signal("exec_1"))
    await link.until(lambda: not link.failures)
    await asyncio.gather(*handler._tasks)
    handler.handle_tool_result_ack(ack("exec_1", ExecutionStatus.FAILED))
    await link.until(lambda: [tool_id for tool_id, _ in link.results] == ["exec_1"])


@pytest.mark.promise("C1", "W11")
async def test_an_acknowledged_result_is_not_sent_again(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    link.failures = [RefusedError("no scope")]
    handler.handle_tool_execution_signal(signal("exec_1"))
    await link.until(lambda: not link.failures)
    await asyncio.gather(*handler._tasks)
    handler.handle_tool_result_ack(ack("exec_1", ExecutionStatus.EXECUTING))
    assert handler._journal.unsent == ["exec_1"]
    handler.handle_tool_result_ack(ack("exec_1"))
    handler.handle_tool_result_ack(ack("exec_unknown"))
    await handler.outbox.resend()
    assert link.results == []
    assert handler._journal.unsent == []


@pytest.mark.promise("C9")
async def test_an_acknowledgement_is_logged_as_what_it_is(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="byleave.client")
    handler.handle_tool_execution_signal(signal("exec_1"))
    await link.report("exec_1")
    await asyncio.gather(*handler._tasks)
    handler.handle_tool_result_ack(ack("exec_1"))
    handler.handle_tool_result_ack(ack("exec_2"))
    said = [record.getMessage() for record in caplog.records if "acknowledged" in record.getMessage()]
    assert [line.partition(" status=")[0] for line in said] == [
        "event='result acknowledged' tool_id='exec_1'",
        "event=\"another client's result acknowledged\" tool_id='exec_2'",
    ]


@pytest.mark.promise("C1", "C4")
async def test_approval_requests_wait_until_they_are_decided(handler: ToolHandler, request_event: MakeRequest) -> None:
    handler.handle_tool_approval_request(request_event("approval_1"))
    handler.handle_tool_approval_request(request_event("approval_1"))
    assert [event.approval_id for event in handler.pending_approvals] == ["approval_1"]
    handler.handle_tool_approval_decided(
        ApprovalDecided(
            timestamp=now(),
            approval_id="approval_1",
            tool_ids=["exec_1"],
            status=ApprovalStatus.APPROVED,
            decided_by="bob",
            reason=None,
            session_id=None,
        )
    )
    assert handler.pending_approvals == []
    assert [(past.status, past.decided_by) for past in handler.approval_history] == [(ApprovalStatus.APPROVED, "bob")]


# The end


@pytest.mark.promise("C8")
async def test_dispose_ends_everything_and_reports_it(
    make_handler: MakeHandler,
    link: RecordingLink,
    approved: MakeApproved,
    signal: MakeSignal,
    request_event: MakeRequest,
    root: Path,
) -> None:
    handler = await make_handler(concurrency=1)
    handler.handle_tool_approval_request(request_event("approval_1"))
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", waiting_command("c1")))
    handler.handle_tool_execution_signal(approved("exec_2", "write_file", {"path": "b.txt", "content": "x"}))
    await until_exists(root / "c1.started")
    await handler.dispose()
    await handler.dispose()
    assert {tool_id: report["error_type"] for tool_id, report in link.results} == {
        "exec_1": "cancelled",
        "exec_2": "cancelled",
    }
    assert (handler.active, handler.queued, handler.pending_approvals) == ([], [], [])
    assert [past.status for past in handler.approval_history] == [None]
    assert link.decisions == []
    assert not (root / "b.txt").exists()
    handler.handle_tool_execution_signal(signal("exec_3"))
    handler.handle_tool_approval_request(request_event("approval_2"))
    handler.handle_unreadable_signal("exec_4")
    assert (handler.active, handler.pending_approvals) == ([], [])


@pytest.mark.promise("C8", "C5")
async def test_what_dispose_cannot_deliver_stays_in_the_journal(
    make_handler: MakeHandler, link: RecordingLink, approved: MakeApproved, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.client.handler.LAST_POST_SECONDS", 0.05)
    handler = await make_handler()
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", waiting_command("c1")))
    await until_exists(root / "c1.started")
    link.failures = [UnreachableError("gone")] * 50
    await handler.dispose()
    assert link.results == []
    assert handler._journal.unsent == ["exec_1"]


# Reading from memory


@pytest.mark.promise("C6")
async def test_a_repeated_read_is_answered_from_memory_until_the_file_changes(
    handler: ToolHandler,
    link: RecordingLink,
    signal: MakeSignal,
    approved: MakeApproved,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("byleave.client.cache.SETTLED_SECONDS", 0)
    ran: list[str] = []
    run = handler._workspace.run

    async def watched(tool_name: str, *args: Any, **kwargs: Any) -> Any:
        ran.append(tool_name)
        return await run(tool_name, *args, **kwargs)

    monkeypatch.setattr(handler._workspace, "run", watched)

    async def read(tool_id: str) -> str:
        handler.handle_tool_execution_signal(signal(tool_id))
        return (await link.report(tool_id))["result"]["content"]

    assert (await read("exec_1"), await read("exec_2")) == ("hello\n", "hello\n")
    assert ran == ["read_file"]
    (root / "a.txt").write_text("other\n")
    assert await read("exec_3") == "other\n"
    handler.handle_tool_execution_signal(approved("exec_4", "write_file", {"path": "a.txt", "content": "third\n"}))
    await link.report("exec_4")
    assert await read("exec_5") == "third\n"


@pytest.mark.promise("C6")
async def test_the_cache_can_be_turned_off(
    make_handler: MakeHandler, link: RecordingLink, signal: MakeSignal, root: Path
) -> None:
    handler = await make_handler(cache_enabled=False)
    for number in (1, 2):
        handler.handle_tool_execution_signal(signal(f"exec_{number}"))
        assert (await link.report(f"exec_{number}"))["result"]["content"] == "hello\n"
    assert handler._cache is None


# The log


@pytest.mark.promise("C9")
async def test_steps_arguments_and_failures_are_logged_at_their_levels(
    handler: ToolHandler,
    link: RecordingLink,
    signal: MakeSignal,
    approved: MakeApproved,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="byleave.client")
    handler.handle_tool_execution_signal(signal("exec_1"))
    await link.report("exec_1")
    handler.handle_tool_execution_signal(signal("exec_2", params={"path": "missing.txt"}))
    await link.report("exec_2")
    handler.handle_tool_execution_signal(approved("exec_3", "write_file", {"path": "b.txt", "content": "hello"}))
    await link.report("exec_3")
    levels = {(record.levelname, record.getMessage().split()[0]) for record in caplog.records}
    assert ("INFO", "event='signal") in levels
    assert ("DEBUG", "event='executing'") in levels
    assert ("DEBUG", "event='timing'") in levels
    assert ("ERROR", "event='failed'") in levels
    assert "hello" not in caplog.text


@pytest.mark.promise("C9", "S")
async def test_a_secret_in_an_error_is_not_logged(
    handler: ToolHandler, link: RecordingLink, signal: MakeSignal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="byleave.client")
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    handler.handle_tool_execution_signal(signal("exec_1", params={"path": f"{secret}.txt"}))
    assert (await link.report("exec_1"))["status"] == "failed"
    assert "event='failed'" in caplog.text
    assert "[masked:" in caplog.text
    assert secret not in caplog.text
