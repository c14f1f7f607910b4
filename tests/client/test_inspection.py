"""What a call would run, asked for by the server and held by the client: real files, real sandbox, real HTTP."""

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import TypedDict

import pytest

from byleave.client import checks as inspector_module
from byleave.client.api import ServerApi
from byleave.client.checks import check_bound, has_approval
from byleave.client.connection import connect_client
from byleave.client.handler import ToolHandler
from byleave.gate import Gate
from byleave.protocol.approvals import Inspection
from byleave.protocol.errors import DriftedError, NotFound, UnreachableError
from byleave.protocol.events import InspectionRequested
from byleave.protocol.states import AgentMode
from byleave.protocol.verdicts import Finding, Verdict, VerdictLevel
from byleave.protocol.wire import now
from byleave.settings import ClientSettings
from harness.json_values import JsonObject

from .conftest import MakeApproved, MakeHandler, MakeSignal, RecordingLink, StubServer

pytestmark = pytest.mark.promise("A", "C2")

CLIENT = "client_00000000000000000000000000000001"
PROJECT = "project_1"
GOOD = "print('good')\n"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def command(*argv: str) -> JsonObject:
    return {"command": argv[0], "args": list(argv[1:])}


def asked(tool_id: str, *argv: str, client_id: str = CLIENT) -> InspectionRequested:
    return InspectionRequested(
        timestamp=now(),
        tool_id=tool_id,
        tool_name="execute_command",
        tool_params=command(*argv),
        client_id=client_id,
        session_id="session_1",
    )


async def answer(link: RecordingLink, tool_id: str, times: int = 1) -> Inspection:
    await link.until(lambda: sum(posted == tool_id for posted, _ in link.inspections) >= times)
    return [inspection for posted, inspection in link.inspections if posted == tool_id][-1]


@pytest.fixture
def script(root: Path) -> Path:
    path = root / "x.py"
    path.write_text(GOOD)
    return path


# Looking


async def test_the_server_is_told_what_would_run(handler: ToolHandler, link: RecordingLink, script: Path) -> None:
    handler.handle_tool_inspection_request(asked("exec_1", "python", "x.py"))
    inspection = await answer(link, "exec_1")
    assert inspection.problem is None
    assert inspection.bound == {"x.py": sha(GOOD)}
    assert inspection.files[0].text == GOOD


async def test_a_repeated_question_is_answered_again_with_what_is_there_then(
    handler: ToolHandler, link: RecordingLink, script: Path
) -> None:
    for times, content in enumerate((GOOD, "print('new')\n"), 1):
        script.write_text(content)
        handler.handle_tool_inspection_request(asked("exec_1", "python", "x.py"))
        assert (await answer(link, "exec_1", times)).bound == {"x.py": sha(content)}
        await _idle(handler)


async def _idle(handler: ToolHandler) -> None:
    await asyncio.gather(*handler._inspector._tasks.values())


async def test_a_question_that_is_being_answered_is_not_answered_twice(
    handler: ToolHandler, link: RecordingLink, script: Path
) -> None:
    for _ in range(3):
        handler.handle_tool_inspection_request(asked("exec_1", "python", "x.py"))
    await answer(link, "exec_1")
    await _idle(handler)
    assert len(link.inspections) == 1


async def test_a_call_that_was_changed_meanwhile_is_inspected_as_it_is_now(
    handler: ToolHandler, link: RecordingLink, root: Path, script: Path
) -> None:
    (root / "y.py").write_text(GOOD)
    handler.handle_tool_inspection_request(asked("exec_1", "python", "x.py"))
    handler.handle_tool_inspection_request(asked("exec_1", "python", "y.py"))
    assert (await answer(link, "exec_1")).bound == {"y.py": sha(GOOD)}
    await _idle(handler)
    assert len(link.inspections) == 1
    handler.handle_tool_inspection_request(asked("exec_1", "python", "x.py"))
    assert (await answer(link, "exec_1", 2)).bound == {"x.py": sha(GOOD)}


async def test_questions_to_other_clients_and_after_the_end_are_left_alone(
    handler: ToolHandler, link: RecordingLink, script: Path
) -> None:
    handler.handle_tool_inspection_request(asked("exec_1", "python", "x.py", client_id="client_2"))
    handler.handle_tool_inspection_request(asked("exec_2", "python", "x.py"))
    await answer(link, "exec_2")
    await handler.dispose()
    handler.handle_tool_inspection_request(asked("exec_3", "python", "x.py"))
    assert [tool_id for tool_id, _ in link.inspections] == ["exec_2"]
    assert not handler._inspector._tasks


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (("python", "/etc/passwd"), "Refused on this machine: "),
        (("rm", "x.py"), "Refused on this machine: Command not allowed: rm"),
        (("python", "y.py"), "There is no 'y.py' in the workspace."),
    ],
)
async def test_what_this_machine_refuses_or_cannot_see_is_said(
    handler: ToolHandler, link: RecordingLink, argv: tuple[str, ...], problem: str
) -> None:
    handler.handle_tool_inspection_request(asked("exec_1", *argv))
    inspection = await answer(link, "exec_1")
    assert inspection.files == []
    assert (inspection.problem or "").startswith(problem)


async def test_a_program_that_is_not_installed_is_said_before_anybody_is_asked(
    handler: ToolHandler, link: RecordingLink, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.workspace.sandbox.environment.search_path", lambda workspace: ())
    for tool_id, argv in (("exec_1", ("git", "status")), ("exec_2", ("python", "x.py"))):
        handler.handle_tool_inspection_request(asked(tool_id, *argv))
        assert (await answer(link, tool_id)).problem == f"{argv[0]} is not installed on this machine."


async def test_a_call_that_runs_no_file_is_bound_to_nothing(handler: ToolHandler, link: RecordingLink) -> None:
    handler.handle_tool_inspection_request(asked("exec_1", "python", "-c", "1"))
    assert await answer(link, "exec_1") == Inspection(files=[])


async def test_looking_takes_no_place_of_an_execution(
    make_handler: MakeHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    handler = await make_handler(concurrency=1)
    (root / "x.py").write_text(GOOD)
    code = "import time; print('up', flush=True); time.sleep(30)"
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", command("python", "-c", code)))
    await link.until(lambda: bool(link.output))
    handler.handle_tool_inspection_request(asked("exec_2", "python", "x.py"))
    assert (await answer(link, "exec_2")).bound == {"x.py": sha(GOOD)}
    assert len(handler.active) == 1


async def test_no_more_questions_are_kept_than_there_is_room_for(
    handler: ToolHandler, link: RecordingLink, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector_module, "WAITING", 2)
    for number in range(5):
        handler.handle_tool_inspection_request(asked(f"exec_{number}", "python", "x.py"))
    await answer(link, "exec_1")
    await _idle(handler)
    assert sorted(tool_id for tool_id, _ in link.inspections) == ["exec_0", "exec_1"]


@pytest.mark.promise("C5")
@pytest.mark.parametrize(
    ("failures", "delivered"),
    [
        ([UnreachableError("away"), UnreachableError("away")], True),
        ([UnreachableError("away")] * 3, False),
        ([NotFound("No such execution.")], False),
    ],
)
async def test_an_answer_is_tried_three_times_and_then_dropped(
    handler: ToolHandler,
    link: RecordingLink,
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: list[Exception],
    delivered: bool,
) -> None:
    monkeypatch.setattr(inspector_module, "pause", lambda attempt: 0.0)
    link.failures = list(failures)
    handler.handle_tool_inspection_request(asked("exec_1", "python", "x.py"))
    await link.until(lambda: not link.failures)
    await _idle(handler)
    assert bool(link.inspections) is delivered


async def test_over_http_the_answer_goes_to_the_calls_own_route(server: StubServer, tmp_path: Path, root: Path) -> None:
    settings = ClientSettings(home=tmp_path / "home", server_url=server.url, token="a.b.c")  # pyright: ignore[reportArgumentType]
    (root / "x.py").write_text(GOOD)
    connection = connect_client(settings, PROJECT, root)
    running = asyncio.create_task(connection.run())
    await connection.connected.wait()
    server.event(1, asked("exec_1", "python", "x.py", client_id=connection.client_id))
    await server.until(lambda: bool(server.seen("/inspection")))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await connection.close()
    (post,) = server.seen("/inspection")
    assert (post.method, post.path) == ("POST", f"/my/projects/{PROJECT}/tools/exec_1/inspection")
    assert post.headers["Byleave-Client"] == connection.client_id
    assert Inspection.model_validate(post.body).bound == {"x.py": sha(GOOD)}


async def test_an_empty_answer_of_the_server_is_enough(server: StubServer) -> None:
    server.answers["/inspection"] = [(204, "")]
    async with ServerApi(server.url, "a.b.c", client_id=CLIENT) as api:
        await api.post_inspection(PROJECT, "exec_1", Inspection(files=[]))
    assert server.seen("/inspection")[0].body == {"files": [], "problem": None}


# Running only what was shown


async def test_what_was_shown_and_approved_runs(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, script: Path
) -> None:
    handler.handle_tool_inspection_request(asked("exec_1", "python", "x.py"))
    bound = (await answer(link, "exec_1")).bound
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", command("python", "x.py"), bound=bound))
    assert (await link.report("exec_1"))["result"]["stdout"] == "good\n"


@pytest.mark.parametrize("by", ["person:alice", "grant:g1"])
async def test_a_script_that_changed_after_it_was_shown_is_drift(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, script: Path, by: str
) -> None:
    script.write_text("open('ran', 'w')\n")
    event = approved("exec_1", "execute_command", command("python", "x.py"), bound={"x.py": sha(GOOD)}, approved_by=by)
    handler.handle_tool_execution_signal(event)
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "drifted")
    assert "'x.py' changed after it was shown; nothing was run" in report["error"]
    assert not (script.parent / "ran").exists()


@pytest.mark.parametrize("by", ["person:alice", "grant:g1"])
@pytest.mark.parametrize(
    "bound", [{}, {"y.py": sha(GOOD)}, {"x.py": sha(GOOD), "y.py": "missing"}], ids=["nothing", "another", "more"]
)
async def test_an_answer_that_is_not_bound_to_exactly_what_runs_runs_nothing(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, script: Path, by: str, bound: dict[str, str]
) -> None:
    event = approved("exec_1", "execute_command", command("python", "x.py"), bound=bound, approved_by=by)
    handler.handle_tool_execution_signal(event)
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"]) == ("failed", "drifted")
    assert "What was shown is not what it would run" in report["error"]


async def test_other_digests_than_the_approved_ones_are_drift(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, script: Path
) -> None:
    shown = approved("exec_1", "execute_command", command("python", "x.py"), bound={"x.py": sha("other")})
    handler.handle_tool_execution_signal(shown.model_copy(update={"bound": {"x.py": sha(GOOD)}}))
    report = await link.report("exec_1")
    assert (report["error_type"], "What was signalled" in report["error"]) == ("drifted", True)


@pytest.mark.promise("G7")
async def test_in_full_mode_nothing_had_to_be_shown(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, script: Path
) -> None:
    told = {"approved_by": "mode:full", "approval_id": None, "mode": AgentMode.FULL}
    handler.handle_tool_execution_signal(approved("exec_1", "execute_command", command("python", "x.py"), **told))
    assert (await link.report("exec_1"))["result"]["stdout"] == "good\n"
    # What was bound all the same is held to.
    handler.handle_tool_execution_signal(
        approved("exec_2", "execute_command", command("python", "x.py"), bound={"x.py": sha("other")}, **told)
    )
    assert (await link.report("exec_2"))["error_type"] == "drifted"


async def test_a_test_run_is_bound_to_the_package_it_was_shown_with(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    package = root / "package.json"
    package.write_text(json.dumps({"scripts": {"test": "echo tested"}}))
    handler.handle_tool_inspection_request(asked("exec_1", "npm", "test"))
    inspection = await answer(link, "exec_1")
    assert inspection.files[0].text == '"test": "echo tested"'
    signal = approved("exec_1", "execute_command", command("npm", "test"), bound=inspection.bound)
    handler.handle_tool_execution_signal(signal)
    assert "tested" in (await link.report("exec_1"))["result"]["stdout"]
    (root / ".npmrc").write_text("script-shell=./evil.sh\n")
    handler.handle_tool_execution_signal(signal.model_copy(update={"tool_id": "exec_2"}))
    report = await link.report("exec_2")
    assert (report["error_type"], ".npmrc" in report["error"]) == ("drifted", True)


async def test_swapping_the_script_during_many_approved_runs_never_shows_the_other_output(
    make_handler: MakeHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    handler = await make_handler()
    script, other = root / "x.py", root / "y.py"
    script.write_text(GOOD)
    for number in range(30):
        other.write_text("print('evil')\n" if number % 2 else GOOD)
        handler.handle_tool_execution_signal(
            approved(f"exec_{number}", "execute_command", command("python", "x.py"), bound={"x.py": sha(GOOD)})
        )
        os.replace(other, script)
        await asyncio.sleep(0)
    for number in range(30):
        report = await link.report(f"exec_{number}")
        drifted = report.get("error_type") == "drifted"
        assert drifted or report["result"]["stdout"] == "good\n", report


# Who allowed it


class Judged(TypedDict, total=False):
    always: bool
    waived_by: str


def verdict(*, always: bool = False, waived_by: str | None = None, runs: tuple[str, ...] = ()) -> Verdict:
    finding = Finding(level=VerdictLevel.MEDIUM, reason="Runs.", rule="x", always_asks=always)
    return Verdict(level=VerdictLevel.MEDIUM, findings=(finding,), waived_by=waived_by, runs=runs)


@pytest.mark.promise("G5")
@pytest.mark.parametrize(
    ("by", "judged", "allowed"),
    [
        ("rule:user 3", {"waived_by": "user 3"}, True),
        ("rule:user 3", {"waived_by": "another"}, True),
        ("rule:user 3", {}, False),
        ("rule:", {"waived_by": "user 3"}, False),
        ("rule:user 3", {"waived_by": "user 3", "always": True}, False),
    ],
)
def test_a_rule_allows_only_what_this_machines_own_rules_allow(
    signal: MakeSignal, by: str, judged: Judged, allowed: bool
) -> None:
    event = signal("exec_1", approved_by=by)
    assert has_approval(event, verdict(**judged)) is allowed


def test_a_rule_needs_no_binding_and_a_person_does(signal: MakeSignal) -> None:
    runs = verdict(runs=("x.py",), waived_by="user 3")
    check_bound(signal("exec_1", approved_by="rule:user 3"), runs)
    with pytest.raises(DriftedError):
        check_bound(signal("exec_1", approved_by="person:alice"), runs)
    assert Gate().judge("execute_command", command("python", "x.py")).verdict.runs == ("x.py",)
