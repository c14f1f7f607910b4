"""A call's whole way as spans and metrics: a real server, a real client and the offline agent, recorded into memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.sdk.trace import TracerProvider

from byleave import telemetry
from byleave.protocol.chat import MessageBody
from byleave.protocol.events import ExecutionSignal
from byleave.protocol.states import Scope
from byleave.protocol.wire import TRACEPARENT
from byleave.telemetry import written
from harness.household import Household, open_household
from harness.json_values import JsonObject
from harness.recorded import Seen

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def household(seen: Seen, tmp_path: Path) -> AsyncIterator[Household]:
    async with open_household(tmp_path) as household:
        (household.workspace / "a.txt").write_text("hello\n")
        yield household


async def execute(household: Household, tool_name: str, tool_params: JsonObject, **headers: str) -> JsonObject:
    body = {"project_id": household.project_id, "tool_name": tool_name, "tool_params": tool_params}
    known = {"Authorization": f"Bearer {household.token(Scope.AGENT, Scope.CHAT)}", **headers}
    url = f"{household.url}/my/tools/execute"
    async with aiohttp.ClientSession(headers=known) as http, http.post(url, json=body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def say(household: Household, content: str) -> str:
    return (await household.person.api.post_message(household.project_id, MessageBody(content=content))).run_id


async def test_an_agents_approved_write_is_one_trace_from_the_run_to_the_result(
    seen: Seen, household: Household
) -> None:
    household.person.decide = lambda question: True
    run_id = await say(household, "write notes.md: remember the milk")
    await household.person.until("chat.run", run_id=run_id, state="done")
    await household.listening.parts.observer.settled()  # type: ignore[union-attr]
    call = (await household.person.record())[0]

    run = seen.one("byleave.run")
    execute_tool = seen.one("execute_tool write_file")
    client = seen.one("byleave.client")
    on_client = seen.one("byleave.client.execute")
    assert run.place == telemetry.place_of_run(run_id)[:2]
    assert run.parent is None
    assert execute_tool.parent == run.place[1]
    assert [span.parent for span in seen.named("byleave.model")] == [run.place[1]] * 2
    for name in ("byleave.gate", "byleave.approval", "byleave.client"):
        assert seen.one(name).parent == execute_tool.place[1], name
    assert seen.one("byleave.result").parent == on_client.parent == client.place[1]
    for name in ("byleave.client.check", "byleave.client.run"):
        assert seen.one(name).parent == on_client.place[1], name
    assert {span.place[0] for span in seen.spans} == {run.place[0]}

    assert execute_tool.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "write_file",
        "byleave.risk": "MEDIUM",
        "byleave.mode": "sandbox",
        "byleave.outcome": "completed",
        "byleave.approved_by": "person",
        "byleave.agent_id": "chat",
        "byleave.tool_id": call.tool_id,
        "byleave.session_id": call.session_id,
        "byleave.project_id": household.project_id,
        "byleave.run_id": run_id,
    }
    assert seen.one("byleave.approval").attributes["byleave.decision"] == "approved"
    assert seen.one("byleave.client.run").attributes["byleave.isolation"]
    assert all(span.end >= span.start for span in seen.spans)
    assert all(span.start >= run.start and span.end <= run.end + 10**9 for span in seen.spans)


async def test_a_call_belongs_to_its_callers_trace(seen: Seen, household: Household) -> None:
    answer = await execute(household, "read_file", {"path": "a.txt"}, traceparent=CALLER)
    assert answer["status"] == "completed"
    request, call = seen.one("byleave.request"), seen.one("execute_tool read_file")
    assert {f"{span.place[0]:032x}" for span in seen.spans} == {CALLER[3:35]}
    assert f"{request.parent:016x}" == f"{call.parent:016x}" == CALLER[36:52]
    on_client = seen.one("byleave.client.execute")
    assert on_client.parent == seen.one("byleave.result").parent == seen.one("byleave.client").place[1]


async def test_a_caller_that_is_not_sampled_keeps_no_call_from_being_recorded(seen: Seen, household: Household) -> None:
    answer = await execute(household, "read_file", {"path": "a.txt"}, traceparent=CALLER[:-2] + "00")
    call = seen.one("execute_tool read_file")
    assert call.place == telemetry.place_of_call(answer["tool_id"], None)[:2]
    assert call.parent is None


async def test_the_current_span_of_an_agent_is_the_parent_of_its_call(seen: Seen, household: Household) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("an agent")
    with tracer.start_as_current_span("its work") as work:
        async with household.agent() as machine:
            await machine.read_file("a.txt")
    call = seen.one("execute_tool read_file")
    assert call.parent == work.get_span_context().span_id
    assert call.place[0] == work.get_span_context().trace_id


LIES = (
    CALLER + "-00",
    CALLER.upper(),
    "00-" + "0" * 32 + CALLER[35:],
    CALLER[:36] + "0" * 16 + CALLER[52:],
    "01" + CALLER[2:],
    "x" * 5000,
    "",
)


async def test_a_traceparent_of_another_form_counts_as_none(seen: Seen, household: Household) -> None:
    for lie in LIES:
        assert (await execute(household, "list_directory", {"path": "."}, traceparent=lie))["status"] == "completed"
    assert not seen.named("byleave.request")
    calls = seen.named("execute_tool list_directory")
    assert len(calls) == len(LIES)
    assert {call.parent for call in calls} == {None}


async def test_two_traceparents_count_as_none(seen: Seen, household: Household) -> None:
    headers = [("Authorization", f"Bearer {household.token()}"), ("traceparent", CALLER), ("traceparent", CALLER)]
    body = {"project_id": household.project_id, "tool_name": "read_file", "tool_params": {"path": "a.txt"}}
    url = f"{household.url}/my/tools/execute"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as answer:
        assert answer.status == 200
    assert not seen.named("byleave.request")


async def test_what_was_refused_is_told_with_a_bounded_name(seen: Seen, household: Household) -> None:
    for name in ("make_coffee", "sk-ant-api03-" + "a" * 80, "make_tea"):
        assert (await execute(household, name, {}))["status"] == "failed"
    assert seen.points("byleave.calls") == [
        (
            {
                "gen_ai.tool.name": "other",
                "byleave.risk": "HIGH",
                "byleave.outcome": "failed",
                "error.type": "invalid",
            },
            3,
        )
    ]
    spans = seen.named("execute_tool other")
    assert len(spans) == 3
    assert all(span.failed for span in spans)


async def test_a_rejection_and_its_wait_are_told_apart_from_a_result(seen: Seen, household: Household) -> None:
    household.person.decide = lambda question: "not today"
    answer = await execute(household, "write_file", {"path": "b.txt", "content": "b"})
    await household.person.until("tool.finished", tool_id=answer["tool_id"])
    assert seen.one("byleave.approval").attributes["byleave.decision"] == "rejected"
    assert seen.one("execute_tool write_file").attributes["error.type"] == "rejected"
    assert not seen.named("byleave.client")
    assert seen.points("byleave.approval.wait") == [({"byleave.decision": "rejected"}, 1)]
    assert seen.points("byleave.execution.duration") == []


async def test_a_call_that_is_called_off_ends_its_question(seen: Seen, household: Household) -> None:
    answer = await execute(household, "write_file", {"path": "b.txt", "content": "b"})
    await household.person.api.cancel(household.project_id, answer["tool_id"])
    await household.person.until("tool.finished", tool_id=answer["tool_id"])
    assert seen.one("byleave.approval").attributes["byleave.decision"] == "cancelled"
    assert seen.points("byleave.approval.wait") == [({"byleave.decision": "cancelled"}, 1)]


async def test_the_signal_says_where_the_clients_spans_hang(seen: Seen, household: Household) -> None:
    signals: list[ExecutionSignal] = []
    handler = household.connection.handler
    handle = handler.handle_tool_execution_signal

    def listen(event: ExecutionSignal) -> None:
        signals.append(event)
        handle(event)

    handler.handle_tool_execution_signal = listen
    answer = await execute(household, "read_file", {"path": "a.txt"})
    expected = written(telemetry.place_of_client(answer["tool_id"], None), 1)
    assert [signal.traceparent for signal in signals] == [expected]
    assert TRACEPARENT.fullmatch(expected)
    assert len(expected) == 55


async def test_what_waits_is_counted(seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    async with open_household(tmp_path) as household:
        observer = household.listening.parts.observer
        assert observer is not None
        await say(household, "write notes.md: remember the milk")
        await execute(household, "write_file", {"path": "b.txt", "content": "b"})
        await household.person.until("tool.approval_request", agent_id="chat")
        await observer.look()
        waiting = {point["byleave.waiting_for"]: value for point, value in seen.points("byleave.queue.depth")}
        assert waiting == {"client": 0, "approval": 2}
        runs = {point["byleave.state"]: value for point, value in seen.points("byleave.runs")}
        assert sum(runs.values()) == 1
        assert set(runs) == {"ready", "running", "waiting"}
        assert seen.points("byleave.clients") == [({}, 1)]
        assert seen.points("byleave.client.queue") == [
            ({"byleave.state": "active"}, 0),
            ({"byleave.state": "queued"}, 0),
        ]
    assert seen.points("byleave.clients") == []


async def test_a_question_answered_after_a_restart_hangs_in_the_same_trace(seen: Seen, tmp_path: Path) -> None:
    async with open_household(tmp_path) as household:
        answer = await execute(household, "write_file", {"path": "b.txt", "content": "b"})
        assert answer["status"] == "awaiting_approval"
        asked = (await household.person.api.approvals()).approvals[0]
        old_project = household.project_id
    gate = seen.one("byleave.gate")
    telemetry.switch.begun.clear()  # what was remembered in the process is gone, as after a crash
    async with open_household(tmp_path) as household:
        household.person.project_id = old_project
        await household.person.reject(asked.id, "no")
        approval, call = seen.one("byleave.approval"), seen.one("execute_tool write_file")
        assert call.place == telemetry.place_of_call(answer["tool_id"], None)[:2]
        assert gate.parent == approval.parent == call.place[1]
        assert gate.place[0] == approval.place[0] == call.place[0]
        # It lasted from the question, which the earlier process put, to the answer here.
        assert approval.start < gate.end + 10**9
        assert call.start <= approval.start


async def test_telemetry_that_cannot_be_sent_harms_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    monkeypatch.setattr("byleave.telemetry.otel.CLOSE_SECONDS", 0.1)
    with telemetry.configured("auto", "tests"):
        async with open_household(tmp_path) as household:
            for _ in range(3):
                assert (await execute(household, "list_directory", {"path": "."}))["status"] == "completed"
