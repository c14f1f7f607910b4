"""Numbers for Prometheus: true, under the names that a dashboard asks for, and read by those who may."""

import re

import pytest
from pydantic import SecretStr, ValidationError

from byleave import telemetry
from byleave.protocol.errors import RefusedError
from byleave.server.metrics import check_may_read
from byleave.settings import ServerSettings
from byleave.telemetry.prometheus import CONTENT_TYPE, Registry, public_name
from harness.http_server import Answer, Server, StartServer
from harness.recorded import recording

TOKEN = "a token of prometheus"
SERIES = re.compile(r'[a-z_]+(\{[a-z_]+="(?:[^"\\]|\\.)*"(,[a-z_]+="(?:[^"\\]|\\.)*")*\})? [0-9.e+-]+')


async def _read(server: Server, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await server.bearer("").get("/metrics", headers={"Authorization": "", **named})


def _values(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SERIES.fullmatch(line) for line in lines), text
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_calls_and_clients_are_counted_from_the_first_reading_on(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    async with alice.machine(project):
        first = await _read(server)
        assert (first.status, first.headers["Content-Type"]) == (200, CONTENT_TYPE)
        assert first.headers["Cache-Control"] == "no-store"
        assert _values(first.text)["byleave_clients"] == 1
        await alice.execute(project, "read_file", {"path": "a.txt"})
        observer = server.parts.on_demand["metrics"]._observer  # type: ignore[attr-defined]
        await observer.settled()
    values = _values((await _read(server)).text)
    called = 'byleave_calls_total{byleave_outcome="completed",byleave_risk="LOW",gen_ai_tool_name="read_file"}'
    assert values[called] == 1
    took = 'byleave_execution_duration_seconds_{}{{gen_ai_tool_name="read_file"{}}}'
    assert values[took.format("count", "")] == values[took.format("bucket", ',le="+Inf"')] == 1
    assert values['byleave_queue_depth{byleave_waiting_for="approval"}'] == 0


async def test_otlp_and_prometheus_count_the_same(start_server: StartServer) -> None:
    with recording() as seen:
        server = await start_server()
        alice = server.user()
        project = await alice.project()
        await _read(server)
        async with alice.machine(project):
            await alice.execute(project, "read_file", {"path": "a.txt"})
        observer = server.parts.observer
        assert observer is not None
        await observer.settled()
        text = (await _read(server)).text
        assert [value for _, value in seen.points("byleave.calls")] == [1]
    assert sum(value for name, value in _values(text).items() if name.startswith("byleave_calls_total")) == 1


async def test_with_a_token_nobody_reads_without_it(start_server: StartServer) -> None:
    server = await start_server(metrics_token=SecretStr(TOKEN))
    for wrong in ("", f"Bearer {TOKEN}x", TOKEN, f"Basic {TOKEN}", f"Bearer {server.user().token}", "Bearer ü"):
        answer = await _read(server, Authorization=wrong)
        assert (answer.status, "BYLEAVE_METRICS_TOKEN" in answer.json["hint"]) == (401, True)
    right = await _read(server, Authorization=f"Bearer {TOKEN}", X_Forwarded_For="198.51.100.7")
    assert right.status == 200
    assert (await server.bearer(TOKEN).get("/my/me")).status == 401, "it opens nothing else"


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Forwarded_For": "127.0.0.1"},
        {"X_Forwarded_Proto": "https"},
        {"X_Forwarded_Host": "localhost"},
        {"X_Real_IP": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"Host": "byleave.example.com"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
async def test_without_a_token_nothing_that_a_proxy_or_page_passed_on_is_answered(
    start_server: StartServer, headers: dict[str, str]
) -> None:
    for proxies in ((), ("127.0.0.1",)):
        server = await start_server(
            trusted_proxies=proxies, allowed_hosts=("127.0.0.1", "localhost", "byleave.example.com")
        )
        assert (await _read(server)).status == 200
        assert (await _read(server, **headers)).status == 403
        server.listening.stop()
        await server.task


def test_another_machine_needs_a_token() -> None:
    for client in (("198.51.100.7", 1), ("2001:db8::1", 1), None):
        with pytest.raises(RefusedError):
            check_may_read(None, {"client": client}, "", "localhost:8477")
    for client in (("127.0.0.1", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)):
        check_may_read(None, {"client": client}, "", "[::1]:8477")


def test_short_token_is_refused() -> None:
    with pytest.raises(ValidationError):
        ServerSettings(metrics_token=SecretStr("short"))


def test_values_are_put_into_buckets_and_texts_escaped() -> None:
    registry = Registry()
    for value in (0.5, 1, 1.5, 9999):
        registry.observe("byleave.approval.wait", value, {"decision": 'a"b\\\n'})
    lines = registry.text().splitlines()
    label = 'byleave_decision="a\\"b\\\\\\n"'
    name = "byleave_approval_wait_seconds"
    assert f'{name}_bucket{{{label},le="1"}} 2' in lines
    assert f'{name}_bucket{{{label},le="2.5"}} 3' in lines
    assert f'{name}_bucket{{{label},le="3600"}} 3' in lines
    assert f'{name}_bucket{{{label},le="+Inf"}} 4' in lines
    assert f"{name}_sum{{{label}}} 10002.0" in lines
    assert f"# TYPE {name} histogram" in lines


def test_every_metric_has_a_name_of_prometheus() -> None:
    assert {public_name(name) for name in telemetry.METRICS} >= {"byleave_calls_total", "byleave_runs_ended_total"}
    assert all(re.fullmatch(r"byleave(_[a-z]+)+", public_name(name)) for name in telemetry.METRICS)


async def test_server_that_ended_counts_nothing(start_server: StartServer) -> None:
    before = telemetry.switch.meters
    server = await start_server()
    await _read(server)
    assert len(telemetry.switch.meters) == len(before) + 1
    server.listening.stop()
    await server.task
    assert telemetry.switch.meters == before
