"""An agent elsewhere in bad company: cancelled at the wrong moment, turned away, or handed nonsense by its model."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import byleave
from byleave.protocol.errors import UnreachableError
from byleave.protocol.executions import ExecuteRequest, ToolResponse
from byleave.protocol.states import ErrorType, ExecutionStatus, ResponseStatus, Scope
from byleave.server import feed as streams
from harness.household import Household, open_household
from harness.json_values import Json, JsonObject

pytestmark = pytest.mark.promise("R7")


@pytest.fixture
async def household(tmp_path: Path) -> AsyncIterator[Household]:
    async with open_household(tmp_path, max_wait_seconds=7) as household:
        yield household


async def test_agent_cancelled_while_its_call_begins_still_calls_it_off(household: Household) -> None:
    async with household.agent() as agent:
        api = agent.client.api
        execute, begun, answer = api.execute, asyncio.Event(), asyncio.Event()

        async def slow(request: ExecuteRequest, parent: str | None) -> ToolResponse:
            response = await execute(request, parent)
            begun.set()
            await answer.wait()  # the server has it; the answer is on its way
            return response

        api.execute = slow  # type: ignore[method-assign]
        calling = asyncio.create_task(agent.execute("write_file", {"path": "a.txt", "content": "x"}))
        await begun.wait()
        calling.cancel()
        answer.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
    (row,) = await household.person.record()
    assert (row.status, row.error_type) == (ExecutionStatus.FAILED, ErrorType.CANCELLED)


async def test_agent_cancelled_in_a_call_that_asks_nobody_calls_it_off(household: Household) -> None:
    empty = (await household.person.api.create_project("no machine")).project_id
    async with byleave.Client(household.url, household.token()) as client:
        calling = asyncio.create_task(
            byleave.Machine(project_id=empty, client=client).execute("read_file", {"path": "a.txt"})
        )
        async with asyncio.timeout(10):
            while not (rows := await household.person.record()):
                await asyncio.sleep(0)
        assert rows[0].status is ExecutionStatus.APPROVED
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    (row,) = await household.person.record()
    assert (row.status, row.error_type) == (ExecutionStatus.FAILED, ErrorType.CANCELLED)


async def test_agent_cancelled_while_the_server_is_away_does_not_hang(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byleave.sdk.client.CALL_OFF_SECONDS", 0.1)
    async with household.agent() as agent:
        calling = asyncio.create_task(agent.execute("write_file", {"path": "a.txt", "content": "x"}))
        await household.person.until("tool.approval_request")

        async def away(*_: object) -> Any:
            raise UnreachableError("away")

        agent.client.api.cancel = away  # type: ignore[method-assign]
        began = time.monotonic()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert time.monotonic() - began < 5


async def test_waiting_gets_along_with_a_server_that_allows_only_short_waits(household: Household) -> None:
    async with household.agent() as agent:
        asked = await agent.start("write_file", {"path": "a.txt", "content": "x"})
        waiting = asyncio.create_task(agent.wait(asked.tool_id))
        await household.person.approve(asked.approval_id or "")
        assert (await waiting).status is ResponseStatus.COMPLETED


async def test_stream_that_is_turned_away_is_not_asked_for_again_at_once(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAMS_PER_USER", 0)
    tried: list[float] = []
    async with household.agent() as agent:
        asked = await agent.start("write_file", {"path": "a.txt", "content": "x"})
        api = agent.client.api
        tool_stream = api.tool_stream

        def counted(tool_id: str, last_event_id: int | None = None) -> Any:
            tried.append(time.monotonic())
            if len(tried) == 4:
                monkeypatch.setattr(streams, "STREAMS_PER_USER", 32)
                household.person.decide = lambda question: True
                answering.append(asyncio.create_task(household.person.approve(asked.approval_id or "")))
            return tool_stream(tool_id, last_event_id)

        answering: list[asyncio.Task[None]] = []
        api.tool_stream = counted  # type: ignore[method-assign]
        told = [item async for item in agent.follow(asked.tool_id)]
        await asyncio.gather(*answering)
    assert isinstance(told[-1], ToolResponse)
    assert told[-1].status is ResponseStatus.COMPLETED
    assert tried[3] - tried[0] > 0.5


@pytest.mark.promise("S")
async def test_streams_of_an_agent_never_keep_the_person_out(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAMS_PER_USER", 3)
    async with household.agent() as agent:
        asked = await agent.start("write_file", {"path": "a.txt", "content": "x"})
        api = agent.client.api
        async with api.tool_stream(asked.tool_id), api.tool_stream(asked.tool_id), api.tool_stream(asked.tool_id):
            with pytest.raises(UnreachableError, match="streams open already"):
                async with api.tool_stream(asked.tool_id):
                    pass
            async with (
                byleave.Client(household.url, household.token(Scope.CHAT)) as page,
                page.api.stream(household.project_id) as stream,
            ):
                assert stream.server_time is not None


@pytest.mark.parametrize(
    "params",
    [{"path": "\ud800"}, {"path": "a", "\ud800": 1}, {"path": object()}, {"path": float("nan")}],
    ids=["half a character", "half a key", "no JSON", "no number"],
)
async def test_what_cannot_be_sent_is_refused_on_the_record_and_raises_nothing(
    household: Household, params: JsonObject
) -> None:
    async with household.agent() as agent:
        response = await agent.execute("read_file", params)
    assert (response.status, response.error_type) == (ResponseStatus.FAILED, ErrorType.INVALID)
    assert len(await household.person.record()) == 1


async def test_parameters_nested_without_end_are_refused_and_raise_nothing(household: Household) -> None:
    nested: Json = "x"
    for _ in range(500):
        nested = [nested]
    async with household.agent() as agent:
        response = await agent.execute("read_file", {"path": nested})
        long = await agent.execute("x" * 500, {})
    assert response.error_type is long.error_type is ErrorType.INVALID
