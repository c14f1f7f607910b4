"""A write that asks, from the look to the disk: the client alone, then a whole Byleave with a person."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from byleave.client.api import ServerApi
from byleave.client.handler import ToolHandler
from byleave.protocol.approvals import ApproveBody, Inspection, SeenRole
from byleave.protocol.errors import CallerError, ConflictError, NotFound, RefusedError, UnreachableError
from byleave.protocol.events import ApprovalRequested, InspectionRequested
from byleave.protocol.executions import Execution
from byleave.protocol.grants import GrantRule, GrantTerms
from byleave.protocol.states import ApprovalScope, Scope
from byleave.protocol.wire import now
from harness.household import Household, open_household

from .conftest import MakeApproved, RecordingLink

pytestmark = pytest.mark.promise("A", "C2")

CLIENT = "client_00000000000000000000000000000001"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def asked(tool_id: str, path: str) -> InspectionRequested:
    return InspectionRequested(
        timestamp=now(),
        tool_id=tool_id,
        tool_name="write_file",
        tool_params={"path": path, "content": ""},
        client_id=CLIENT,
        session_id="session_1",
    )


async def looked(handler: ToolHandler, link: RecordingLink, path: str) -> Inspection:
    handler.handle_tool_inspection_request(asked(f"exec_{len(link.inspections)}", path))
    before = len(link.inspections)
    await link.until(lambda: len(link.inspections) > before)
    return link.inspections[-1][1]


# The client


async def test_the_server_is_told_what_a_write_would_replace(
    handler: ToolHandler, link: RecordingLink, root: Path
) -> None:
    (root / "a.md").write_text("old\n")
    look = await looked(handler, link, "a.md")
    assert (look.files[0].role, look.bound, look.files[0].text) == (SeenRole.REPLACES, {"a.md": sha("old\n")}, "old\n")
    assert (await looked(handler, link, "new.md")).bound == {"new.md": "missing"}
    assert "Refused on this machine" in ((await looked(handler, link, "../x")).problem or "")
    assert (await looked(handler, link, "../x")).files == []


async def test_a_look_that_is_too_long_for_the_server_is_told_by_its_digest(
    handler: ToolHandler, link: RecordingLink, root: Path
) -> None:
    (root / "a.md").write_text("old\n")
    link.failures = [CallerError("The body is too large.")]
    look = await looked(handler, link, "a.md")
    assert (look.bound, look.files[0].text, look.files[0].shortened) == ({"a.md": sha("old\n")}, None, True)
    assert look.files[0].note == "It is too long for this server."
    link.failures = [NotFound("No such execution."), UnreachableError("gone")]
    handler.handle_tool_inspection_request(asked("exec_gone", "a.md"))
    await asyncio.gather(*handler._inspector._tasks.values())
    assert len(link.failures) == 1  # told once, and not again


async def test_a_bound_write_is_done_only_while_what_was_shown_is_there(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    target = root / "a.md"
    target.write_text("old\n")
    params = {"path": "a.md", "content": "new\n"}
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", params, bound={"a.md": sha("shown\n")}))
    report = await link.report("exec_1")
    assert (report["status"], report["error_type"], target.read_text()) == ("failed", "drifted", "old\n")
    handler.handle_tool_execution_signal(approved("exec_2", "write_file", params, bound={"a.md": sha("old\n")}))
    assert (await link.report("exec_2"))["status"] == "completed"
    assert target.read_text() == "new\n"


async def test_an_answer_is_bound_to_one_file_and_a_grant_to_none(
    handler: ToolHandler, link: RecordingLink, approved: MakeApproved, root: Path
) -> None:
    (root / "a.md").write_text("old\n")
    params = {"path": "a.md", "content": "new\n"}
    two = {"a.md": sha("old\n"), "b.md": "missing"}
    handler.handle_tool_execution_signal(approved("exec_1", "write_file", params, bound=two))
    assert (await link.report("exec_1"))["error_type"] == "drifted"
    handler.handle_tool_execution_signal(approved("exec_2", "write_file", params, bound={"b.md": sha("old\n")}))
    assert (await link.report("exec_2"))["error_type"] == "drifted"
    assert (root / "a.md").read_text() == "old\n"
    granted = {"approved_by": "grant:grant_1", "approval_id": None, "bound": {"a.md": sha("other\n")}}
    handler.handle_tool_execution_signal(approved("exec_3", "write_file", params, **granted))
    assert (await link.report("exec_3"))["status"] == "completed"


# All of it


async def question(house: Household, tool_id: str) -> ApprovalRequested:
    event = await house.person.until("tool.approval_request", tool_id=tool_id)
    assert isinstance(event, ApprovalRequested)
    return event


async def write(house: Household, content: str, path: str = "a.md", mode: str = "write") -> str:
    async with house.agent() as agent:
        return (await agent.start("write_file", {"path": path, "content": content, "mode": mode})).tool_id


async def ended(house: Household, tool_id: str) -> Execution:
    await house.person.until("tool.finished", tool_id=tool_id)
    return await house.person.api.get_tool(tool_id)


async def test_what_is_approved_is_the_difference_that_was_shown(tmp_path: Path) -> None:
    async with open_household(tmp_path) as house:
        target = house.workspace / "a.md"
        target.write_text("one\ntwo\n")
        tool_id = await write(house, "one\nthree\n")
        event = await question(house, tool_id)
        change = await house.person.api.change(event.approval_id)
        assert (change.digest, change.before_sha256) == (event.digest, sha("one\ntwo\n"))
        assert (change.change.before, change.change.after) == ("one\ntwo\n", "one\nthree\n")
        # The file changes between the question and the write.
        target.write_text("one\ntwo and a half\n")
        await house.person.approve(event.approval_id)
        end = await ended(house, tool_id)
        assert (end.status, end.error_type) == ("failed", "drifted")
        assert target.read_text() == "one\ntwo and a half\n"
        # Asked again, it shows what is there now; the yes to the older question decides nothing here.
        tool_id = await write(house, "one\nthree\n")
        newer = await question(house, tool_id)
        body = ApproveBody(decision="approved", digest=event.digest)
        with pytest.raises(ConflictError):
            await house.person.api.approve(house.project_id, newer.approval_id, body)
        await house.person.approve(newer.approval_id)
        assert (await ended(house, tool_id)).status == "completed"
        assert target.read_text() == "one\nthree\n"


async def test_a_file_that_appears_vanishes_or_becomes_a_link_stops_the_write(tmp_path: Path) -> None:
    async with open_household(tmp_path) as house:
        target = house.workspace / "a.md"
        (house.workspace / "other.md").write_text("old\n")
        for before, meanwhile in (
            (lambda: None, lambda: target.write_text("theirs\n")),
            (lambda: target.write_text("old\n"), target.unlink),
            (lambda: target.write_text("old\n"), lambda: (target.unlink(), target.symlink_to("other.md"))),
            (lambda: (target.unlink(), target.write_text("old\n")), lambda: (target.unlink(), os.mkfifo(target))),
        ):
            before()
            tool_id = await write(house, f"new\n{len(house.person.events)}\n", mode="append")
            event = await question(house, tool_id)
            meanwhile()
            await house.person.approve(event.approval_id)
            end = await ended(house, tool_id)
            assert (end.status, end.error_type) == ("failed", "drifted")
        assert (house.workspace / "other.md").read_text() == "old\n"


async def test_a_class_that_is_granted_lets_waiting_writes_go_whatever_is_there_by_then(tmp_path: Path) -> None:
    async with open_household(tmp_path) as house:
        logs = house.workspace / "logs"
        logs.mkdir()
        (logs / "b.md").write_text("start\n")
        first = await write(house, "one\n", "logs/a.md")
        event = await question(house, first)
        second = await write(house, "two\n", "logs/b.md", "append")
        await question(house, second)
        (logs / "b.md").write_text("another start\n")
        terms = GrantTerms(rule=GrantRule(tool="write_file", paths=("logs/**",)))
        body = ApproveBody(decision="approved", scope=ApprovalScope.CLASS, terms=terms)
        await house.person.api.approve(house.project_id, event.approval_id, body)
        assert [(await ended(house, one)).status for one in (first, second)] == ["completed", "completed"]
        assert (logs / "b.md").read_text() == "another start\ntwo\n"


@pytest.mark.promise("R5")
async def test_only_the_people_who_decide_see_the_difference(tmp_path: Path) -> None:
    async with open_household(tmp_path) as house:
        event = await question(house, await write(house, "new\n"))
        async with ServerApi(house.url, house.token(Scope.AGENT)) as agent:
            with pytest.raises(RefusedError):
                await agent.change(event.approval_id)
        async with ServerApi(house.url, house.token(Scope.CHAT, Scope.APPROVE, user="bob")) as bob:
            with pytest.raises(NotFound):
                await bob.change(event.approval_id)
        async with ServerApi(house.url, house.token(Scope.APPROVE)) as alice:
            assert (await alice.change(event.approval_id)).before_sha256 == "missing"
