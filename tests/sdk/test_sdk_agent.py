"""An agent that runs elsewhere: calls over HTTP, waits for people, and never runs a thing twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import byleave
from byleave.protocol.approvals import ApproveBody
from byleave.protocol.errors import CallerError, ConfigurationError, NotFound, RefusedError, UnreachableError
from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, ResponseStatus, Scope
from byleave.server import issue_token
from harness.household import Household, open_household

pytestmark = pytest.mark.promise("R7")


@pytest.fixture
async def household(tmp_path: Path) -> AsyncIterator[Household]:
    async with open_household(tmp_path) as household:
        (household.workspace / "README.md").write_text("hello\n")
        yield household


async def test_a_read_comes_back_with_its_result(household: Household) -> None:
    async with household.agent(name="reader") as agent:
        response = await agent.execute("read_file", {"path": "README.md"})
    assert response.status is ResponseStatus.COMPLETED
    assert response.result is not None
    assert response.result["content"] == "hello\n"
    assert ((await household.person.record())[0].agent_id or "").startswith("agent-"), "as the token says"


async def test_a_result_beyond_a_megabyte_arrives(household: Household) -> None:
    (household.workspace / "big.txt").write_text("\x1b[31m" * 60_000)  # as JSON three times as large
    async with household.agent() as agent:
        response = await agent.execute("read_file", {"path": "big.txt"})
    assert response.status is ResponseStatus.COMPLETED
    assert response.result is not None
    assert len(response.result["content"]) == 300_000


async def test_a_write_waits_for_the_person_and_is_done_once_with_the_same_key(household: Household) -> None:
    household.person.decide = lambda question: True
    async with household.agent() as agent:
        asked = await agent.start("write_file", {"path": "a.txt", "content": "x"}, key="one")
        assert asked.status is ResponseStatus.AWAITING_APPROVAL
        done = await agent.wait(asked.tool_id)
        again = await agent.execute("write_file", {"path": "a.txt", "content": "x"}, key="one")
    assert done.status is again.status is ResponseStatus.COMPLETED
    assert done.tool_id == again.tool_id
    assert len(await household.person.record()) == 1


async def test_the_mode_of_an_agent_reaches_its_calls_and_is_bounded_by_its_token(household: Household) -> None:
    wide = issue_token(household.settings, "alice", (Scope.AGENT,), 600, mode=AgentMode.FULL)
    statuses: list[ResponseStatus] = []
    for token, mode in (
        (wide, AgentMode.FULL),
        (wide, AgentMode.SANDBOX),
        (household.agent_token, AgentMode.FULL),
    ):
        async with byleave.Machine(household.url, token, household.project_id, mode=mode) as agent:
            statuses.append((await agent.start("write_file", {"path": "a.txt", "content": "x"})).status)
    waits = ResponseStatus.AWAITING_APPROVAL
    assert statuses == [ResponseStatus.COMPLETED, waits, waits]
    assert (await household.person.record())[0].approved_by == "mode:full"


async def test_a_rejection_comes_back_with_its_reason(household: Household) -> None:
    household.person.decide = lambda question: "not today"
    async with household.agent() as agent:
        response = await agent.execute("write_file", {"path": "a.txt", "content": "x"})
    assert (response.status, response.error_type) == (ResponseStatus.REJECTED, ErrorType.REJECTED)
    assert response.error is not None
    assert "not today" in response.error
    assert not (household.workspace / "a.txt").exists()


async def test_waiting_with_a_limit_comes_back_while_nobody_has_answered(household: Household) -> None:
    async with household.agent() as agent:
        asked = await agent.start("write_file", {"path": "a.txt", "content": "x"})
        assert (await agent.wait(asked.tool_id, 0)).status is ResponseStatus.AWAITING_APPROVAL


async def test_a_stream_tells_question_decision_and_end(household: Household) -> None:
    household.person.decide = lambda question: True
    async with household.agent() as agent:
        told = [item async for item in agent.stream("execute_command", {"command": "git", "args": ["--version"]})]
    # Output is told as it comes; of a command that is over at once it is only in the result.
    kinds = [item.kind for item in told if not isinstance(item, ToolResponse) and item.kind != "tool.output"]
    assert kinds == [
        "tool.started",
        "tool.approval_request",
        "tool.approval_decided",
        "tool.finished",
    ]
    assert isinstance(told[-1], ToolResponse)
    assert told[-1].status is ResponseStatus.COMPLETED


async def test_a_stream_tells_only_of_its_own_call(household: Household) -> None:
    async with household.agent() as agent:
        await agent.start("write_file", {"path": "other.txt", "content": "x"})
        household.person.decide = lambda question: question.tool_params["path"] == "mine.txt"
        told = [item async for item in agent.stream("write_file", {"path": "mine.txt", "content": "x"})]
    assert "other.txt" not in repr(told)


async def test_a_stream_of_a_refused_call_is_its_response(household: Household) -> None:
    async with household.agent() as agent:
        told = [item async for item in agent.stream("read_file", {"path": "../outside"})]
    assert [type(item) for item in told] == [ToolResponse]


async def test_an_agent_that_is_cancelled_calls_its_call_off(household: Household) -> None:
    async with household.agent() as agent:
        calling = asyncio.create_task(agent.execute("write_file", {"path": "a.txt", "content": "x"}))
        await household.person.until("tool.approval_request")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    (row,) = await household.person.record()
    assert (row.status, row.error_type) == (ExecutionStatus.FAILED, ErrorType.CANCELLED)


async def test_calling_off_what_has_ended_says_so(household: Household) -> None:
    async with household.agent() as agent:
        response = await agent.execute("read_file", {"path": "README.md"})
        assert await agent.cancel(response.tool_id) is False


@pytest.mark.promise("S")
async def test_a_token_for_agents_approves_nothing(household: Household) -> None:
    async with household.agent() as agent, byleave.Client(household.url, household.token()) as client:
        asked = await agent.start("write_file", {"path": "a.txt", "content": "x"})
        with pytest.raises(RefusedError):
            await client.api.approve(household.project_id, asked.approval_id or "", ApproveBody(decision="approved"))


@pytest.mark.promise("S")
async def test_another_users_call_has_no_stream(household: Household) -> None:
    async with household.agent() as agent:
        asked = await agent.start("write_file", {"path": "a.txt", "content": "x"})
    async with byleave.Client(household.url, household.token(Scope.AGENT, user="mallory")) as client:
        with pytest.raises(NotFound):
            async with client.api.tool_stream(asked.tool_id):
                pass


async def test_a_client_finds_projects_by_name_and_says_which_there_are(household: Household) -> None:
    token = household.token(Scope.CHAT)
    async with byleave.Client(household.url, token) as client:
        assert (await client.project("demo")).project_id == household.project_id
        assert len((await byleave.Machine(project_id=household.project_id, client=client).tools()).tools) == 6
        with pytest.raises(NotFound, match="No project 'nope'"):
            await client.project("nope")


def test_an_agent_without_a_project_or_a_token_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BYLEAVE_TOKEN", raising=False)
    with pytest.raises(CallerError, match="that of a project"):
        byleave.Machine("http://127.0.0.1:1", "token")
    with pytest.raises(ConfigurationError, match="no token"):
        byleave.Client("http://127.0.0.1:1")


async def test_a_server_that_stays_away_is_given_up_after_patience_ends() -> None:
    async with byleave.Client("http://127.0.0.1:9", "token", patience_seconds=0.1) as client:
        with pytest.raises(UnreachableError):
            await client.projects()
