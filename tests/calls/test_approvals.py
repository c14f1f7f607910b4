"""ApprovalManager: the signatures of the spec, deciding once, waiting."""

import asyncio
import inspect
from uuid import UUID, uuid4

import pytest

from byleave.calls.approvals import ApprovalManager
from byleave.protocol.errors import NotFound
from byleave.protocol.states import ApprovalStatus, RiskLevel
from byleave.settings import ServerSettings
from harness.desk import Desk

pytestmark = pytest.mark.promise("A")

PARAMS = {"path": "a.txt", "content": "hello"}


@pytest.mark.promise("A1")
def test_the_signatures_are_the_ones_that_were_agreed() -> None:
    agreed = {
        "request_tool_approval": [
            "self",
            "user_id",
            "tool_name",
            "tool_params",
            "risk_level",
            "timeout_seconds",
            "agent_id",
            "session_id",
        ],
        "get_pending_approvals": ["self", "user_id"],
        "approve_tool": ["self", "approval_id", "user_id"],
        "reject_tool": ["self", "approval_id", "user_id", "reason"],
    }
    for name, parameters in agreed.items():
        signature = inspect.signature(getattr(ApprovalManager, name))
        assert list(signature.parameters)[: len(parameters)] == parameters


async def test_a_question_can_be_asked_listed_and_answered(desk: Desk) -> None:
    request = await desk.approvals.request_tool_approval(
        "alice", "write_file", PARAMS, RiskLevel.MEDIUM, 300, agent_id="a1", session_id=desk.session.id
    )
    assert (request.status, request.project_id, request.agent_id) == ("pending", desk.project.id, "a1")
    assert [pending.id for pending in await desk.approvals.get_pending_approvals("alice")] == [request.id]
    waiting = asyncio.create_task(desk.approvals.wait_for_decision(request.id, "alice"))
    await asyncio.sleep(0)
    assert await desk.approvals.approve_tool(request.id, "alice")
    decided = await waiting
    assert (decided.status, decided.decided_by, decided.scope) == (ApprovalStatus.APPROVED, "person:alice", "once")
    assert await desk.approvals.get_pending_approvals("alice") == []


async def test_a_question_without_a_session_goes_to_the_first_project(desk: Desk) -> None:
    request = await desk.approvals.request_tool_approval("alice", "write_file", PARAMS, RiskLevel.HIGH, 600)
    assert request.project_id == desk.project.id
    with pytest.raises(NotFound, match="no project"):
        await desk.approvals.request_tool_approval("bob", "write_file", PARAMS, RiskLevel.HIGH, 600)


async def test_the_first_decision_wins_and_a_later_one_is_told_so(desk: Desk) -> None:
    request = await desk.approvals.request_tool_approval("alice", "write_file", PARAMS, RiskLevel.MEDIUM, 300)
    assert await desk.approvals.reject_tool(request.id, "alice", "no")
    assert not await desk.approvals.approve_tool(request.id, "alice")
    assert (await desk.approvals.wait_for_decision(request.id, "alice")).status == "rejected"


async def test_another_users_approval_does_not_exist(desk: Desk) -> None:
    request = await desk.approvals.request_tool_approval("alice", "write_file", PARAMS, RiskLevel.MEDIUM, 300)
    assert not await desk.approvals.approve_tool(request.id, "mallory")
    assert not await desk.approvals.reject_tool(request.id, "mallory")
    assert not await desk.approvals.confirm_approval(request.id, "mallory", "approved")
    with pytest.raises(NotFound):
        await desk.approvals.wait_for_decision(request.id, "mallory")
    assert len(await desk.approvals.get_pending_approvals("alice")) == 1


@pytest.mark.promise("A")
async def test_an_approval_is_named_by_its_uuid_too_and_an_unknown_one_is_false(desk: Desk) -> None:
    opened = await desk.store.chat.create_session("alice", desk.project.id, "a conversation")
    session = UUID(opened.id.removeprefix("sess_"))
    request = await desk.approvals.request_tool_approval(
        "alice", "write_file", PARAMS, RiskLevel.MEDIUM, 300, agent_id=uuid4(), session_id=session
    )
    named = UUID(request.id.removeprefix("appr_"))
    assert not await desk.approvals.wait_for_approval(named, 0.01), "nobody has answered"
    waiting = asyncio.create_task(desk.approvals.wait_for_approval(named, 10))
    assert await desk.approvals.approve_tool(str(named), "alice")
    assert await waiting
    assert await desk.approvals.wait_for_approval(str(named).upper(), 10)
    for unknown in (uuid4(), "appr_unknown", "\ud800"):
        assert not await desk.approvals.approve_tool(unknown, "alice")
        assert not await desk.approvals.reject_tool(unknown, uuid4())
        assert not await desk.approvals.confirm_approval(unknown, "alice", "approved")
        assert not await desk.approvals.wait_for_approval(unknown, 10)
    assert await desk.approvals.get_pending_approvals(uuid4()) == []


@pytest.mark.promise("A")
async def test_only_the_two_words_decide(desk: Desk) -> None:
    for decision, status in (("approved", ApprovalStatus.APPROVED), ("rejected", ApprovalStatus.REJECTED)):
        request = await desk.approvals.request_tool_approval("alice", "write_file", PARAMS, RiskLevel.MEDIUM, 300)
        for no_word in ("", "yes", "approve", None, True):
            assert not await desk.approvals.confirm_approval(request.id, "alice", no_word)  # type: ignore[arg-type]
        assert await desk.approvals.confirm_approval(request.id, "alice", decision)  # type: ignore[arg-type]
        assert (await desk.approvals.wait_for_decision(request.id, "alice")).status is status
        assert await desk.approvals.wait_for_approval(request.id, 10) is (decision == "approved")


async def test_an_unanswered_question_times_out_for_whoever_waits(
    desk: Desk, settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.calls.approvals.LOOK_AGAIN_SECONDS", 0.1)
    request = await desk.approvals.request_tool_approval("alice", "write_file", PARAMS, RiskLevel.MEDIUM, 1)
    decided = await desk.approvals.wait_for_decision(request.id, "alice")
    assert (decided.status, decided.decided_by) == (ApprovalStatus.TIMEOUT, None)
