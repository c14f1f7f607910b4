"""What the client tells of its part of a call: below the place the server named, and whatever that says."""

import asyncio
from collections.abc import Iterator

import pytest

from byleave import telemetry
from byleave.protocol.events import FEED_EVENT, ExecutionSignal
from harness.recorded import Seen, recording

from .conftest import MakeCancel, MakeHandler, MakeSignal, RecordingLink

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def seen() -> Iterator[Seen]:
    with recording() as seen:
        yield seen


async def reported(link: RecordingLink, count: int) -> None:
    async with asyncio.timeout(20), link.changed:
        await link.changed.wait_for(lambda: len(link.results) >= count)


async def test_spans_hang_below_the_place_the_server_named(
    seen: Seen, make_handler: MakeHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    handler = await make_handler()
    handler.handle_tool_execution_signal(signal("exec_1", traceparent=PARENT))
    await reported(link, 1)
    execute = seen.one("byleave.client.execute")
    assert f"00-{execute.place[0]:032x}-{execute.parent:016x}-01" == PARENT
    assert seen.one("byleave.client.check").parent == seen.one("byleave.client.run").parent == execute.place[1]
    assert not seen.named("byleave.client.queue")


async def test_a_wait_for_a_place_is_a_span_of_its_own(
    seen: Seen, make_handler: MakeHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    handler = await make_handler(concurrency=1)
    for number in range(3):
        handler.handle_tool_execution_signal(signal(f"exec_{number}", traceparent=PARENT))
    states = {point["byleave.state"]: value for point, value in seen.points("byleave.client.queue")}
    assert states == {"active": 1, "queued": 2}
    await reported(link, 3)
    waits = seen.named("byleave.client.queue")
    assert [span.attributes["byleave.tool_id"] for span in waits] == ["exec_1", "exec_2"]
    assert all(f"{span.parent:016x}" == PARENT[36:52] for span in waits)


async def test_what_is_called_off_while_it_waits_leaves_nothing_behind(
    seen: Seen, make_handler: MakeHandler, link: RecordingLink, signal: MakeSignal, cancel: MakeCancel
) -> None:
    handler = await make_handler(concurrency=1)
    for number in range(2):
        handler.handle_tool_execution_signal(signal(f"exec_{number}"))
    handler.handle_tool_cancel_signal(cancel("exec_1"))
    await reported(link, 2)
    assert handler._queued_at == {}
    assert not seen.named("byleave.client.queue")


async def test_a_refusal_leaves_its_kind(
    seen: Seen, make_handler: MakeHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    handler = await make_handler()
    handler.handle_tool_execution_signal(signal("exec_1", digest="0" * 64, traceparent=PARENT))
    await reported(link, 1)
    assert seen.one("byleave.client.execute").attributes["error.type"] == "drifted"
    assert not seen.named("byleave.client.run")


@pytest.mark.promise("C2")
@pytest.mark.parametrize("lie", ["x" * 10_000, 7, {"a": 1}, "00-" + "0" * 32 + "-b7ad6b7169203331-01", PARENT + " "])
def test_a_server_that_lies_about_the_trace_is_heard_without_it(signal: MakeSignal, lie: object) -> None:
    wire = {**signal("exec_1").model_dump(mode="json"), "traceparent": lie}
    event = FEED_EVENT.validate_python(wire)
    assert isinstance(event, ExecutionSignal)
    assert event.traceparent is None


async def test_off_a_signal_with_a_trace_runs_as_any_other(
    make_handler: MakeHandler, link: RecordingLink, signal: MakeSignal
) -> None:
    assert not telemetry.on()
    handler = await make_handler()
    handler.handle_tool_execution_signal(signal("exec_1", traceparent=PARENT))
    await reported(link, 1)
    assert link.results[0][1]["status"] == "completed"
