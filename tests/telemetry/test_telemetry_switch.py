"""Switching telemetry on and off, what is said when it cannot be, and what it may say at all."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from structlog.testing import capture_logs

from byleave import telemetry
from byleave.installation import install_command
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.wire import well_formed
from byleave.settings import ClientSettings, ServerSettings
from byleave.telemetry import SpanId, otel
from byleave.telemetry.otel import Sdk
from harness.recorded import Seen

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def _off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.delenv(ENDPOINT, raising=False)
    yield
    telemetry.switch_off()


def test_it_is_off_unless_a_collector_is_named() -> None:
    telemetry.configure("auto", "tests")
    assert not telemetry.on()
    with telemetry.configured("off", "tests"):
        assert not telemetry.on()


def test_off_it_records_nothing_and_makes_nothing() -> None:
    with telemetry.span("byleave.gate", tool="read_file") as mark:
        mark(outcome="completed")
    assert telemetry.span("byleave.gate") is telemetry.span("byleave.client") is telemetry.within(SpanId(1, 2))
    assert telemetry.carry("exec_1", None) is None
    telemetry.record("byleave.gate", 1, 2, parent=None)
    telemetry.count("byleave.calls", tool="read_file")
    telemetry.observe("byleave.approval.wait", 1.0)
    telemetry.gauge("byleave.clients", lambda: [(1, {})])()
    assert telemetry.begun("exec_1") is None


def test_nothing_of_opentelemetry_is_imported_while_it_is_off() -> None:
    script = "import byleave.client, byleave.telemetry, sys; print([m for m in sys.modules if 'opentelemetry' in m])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("variable", [ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_a_named_collector_switches_it_on(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with telemetry.configured("auto", "tests"):
        assert telemetry.on()
        telemetry.configure("console", "again")  # changes nothing
    assert not telemetry.on()


def test_opentelemetrys_own_switch_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    telemetry.configure("otlp", "tests")
    assert not telemetry.on()


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "byleave.telemetry.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match="not installed") as caught:
        telemetry.configure("otlp", "tests")
    assert caught.value.hint == install_command("telemetry")
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    with capture_logs() as logs:
        telemetry.configure("auto", "tests")  # the variable may be meant for another program
    assert not telemetry.on()
    assert [line["event"] for line in logs] == ["no telemetry"]


def test_a_fault_of_ours_is_not_called_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "byleave.telemetry.otel", None)
    with pytest.raises(ModuleNotFoundError):
        telemetry.configure("otlp", "tests")


def test_a_protocol_we_do_not_speak_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ConfigurationError, match="'grpc'"):
        telemetry.configure("otlp", "tests")


def test_the_console_is_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")  # none of its business
    with telemetry.configured("console", "tests"):
        with telemetry.span("byleave.client.check"):
            pass
        telemetry.count("byleave.runs.ended", state="done")
    out, err = capsys.readouterr()
    assert out == ""
    assert '"byleave.client.check"' in err
    assert '"byleave.runs.ended"' in err


def test_a_collector_that_is_not_there_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setattr(otel, "CLOSE_SECONDS", 0.2)
    began = time.monotonic()
    with telemetry.configured("auto", "tests"), telemetry.span("byleave.client.check"):
        pass
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(("said", "meant"), [("true", "otlp"), ("1", "otlp"), ("False", "off"), ("console", "console")])
def test_the_setting_takes_yes_and_no(monkeypatch: pytest.MonkeyPatch, said: str, meant: str) -> None:
    monkeypatch.setenv("BYLEAVE_TELEMETRY", said)
    assert ServerSettings().telemetry == ClientSettings().telemetry == meant


def test_an_attribute_that_is_not_in_the_table_cannot_be_set(seen: Seen) -> None:
    with pytest.raises(KeyError):
        telemetry.record("byleave.gate", 1, 2, parent=None, tool_params="secret")
    with pytest.raises(KeyError), telemetry.span("byleave.gate", prompt="secret"):
        pass


def test_a_name_an_agent_gave_itself_is_masked(seen: Seen) -> None:
    secret = "sk-ant-api03-" + "Ab1" * 30
    telemetry.record("byleave.gate", 1, 2, parent=None, agent_id=secret)
    assert secret not in str(seen.spans[0].attributes)
    assert telemetry.known_tool(secret) == "other"


def test_an_exception_leaves_its_kind_and_not_its_words(seen: Seen) -> None:
    for error in (ValueError("password=hunter2"), ConfigurationError("password=hunter2")):
        with pytest.raises(type(error)), telemetry.span("byleave.client.run"):
            raise error
    kinds = [span.attributes["error.type"] for span in seen.named("byleave.client.run")]
    assert kinds == ["ValueError", ConfigurationError("").error_type.value]
    assert all("hunter2" not in span.text for span in seen.spans)


def test_a_span_without_a_parent_hangs_below_the_place_it_is_in(seen: Seen) -> None:
    place = telemetry.place_of_run("run_1")
    with telemetry.about(place, run_id="run_1"), telemetry.span("byleave.model"):
        pass
    assert seen.one("byleave.model").parent == place.span_id


@pytest.mark.parametrize("value", [None, 5, b"00", "00", "00-" + "a" * 32 + "-" + "b" * 16 + "-01\n"])
def test_what_is_not_a_traceparent_is_none(value: object) -> None:
    assert well_formed(value) is None
    assert telemetry.arriving(value) is None


def test_a_sampled_out_trace_is_out_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    here, there = Sdk("server", [], []), Sdk("another server", [], [])
    places = [telemetry.place_of_call(f"exec_{number}", None) for number in range(400)]
    flags = [here.traceparent(place)[-2:] for place in places]
    assert flags == [there.traceparent(place)[-2:] for place in places]
    assert 150 < flags.count("01") < 250  # hashes: the ids themselves have bits that never change
    client = telemetry.arriving(here.traceparent(places[0]))
    assert client is not None
    assert here.traceparent(client)[-2:] == flags[0]


def test_memory_of_calls_is_bounded(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byleave.telemetry.MOST_REMEMBERED", 3)

    class Call:
        project_id, session_id, run_id = "p", "s", None

        def __init__(self, tool_id: str) -> None:
            self.id = tool_id

    for number in range(5):
        telemetry.judged(Call(f"exec_{number}"), "LOW", number)
    assert [telemetry.begun(f"exec_{number}") is None for number in range(5)] == [True, True, False, False, False]


def test_a_version_is_said_also_from_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise otel.PackageNotFoundError(name)

    monkeypatch.setattr(otel, "version", missing)
    assert isinstance(Sdk("tests", [], [])._tracing, TracerProvider)
