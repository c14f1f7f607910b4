"""Spans and metrics of a call, and the ids on its log lines. Off until `configure` enables it; read this first.

While it is off, every function here returns at once and OpenTelemetry is not imported. Only `otel` knows the SDK;
metrics may also be kept for `/metrics` (`prometheus`), with or without it.
Attributes are ids, names and outcomes. One that is not in the table cannot be set, so parameters, results, prompts and
error messages have no way in. Tool names that an agent makes up become `other`: a metric has a series per tool, never
as many as an agent likes.

A call of an agent's run belongs to the run's trace, and one that came with a sampled traceparent to its caller's, while
this process remembers it; any other call is its own trace. Trace and span ids are hashes of our ids, never the ids
themselves, and nothing has to be stored or kept open. So a call's end can have a parent that another process opened
before a restart, and samplers that look at the bits of a trace id find them evenly spread.
"""

import contextlib
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from byleave.gate import mask_start
from byleave.installation import install_command
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.tools import TOOLS
from byleave.protocol.wire import TRACEPARENT

if TYPE_CHECKING:
    from .otel import Sdk


Value = str | int | float | bool
MAX_CHARACTERS = 100
OTHER = "other"

ATTRIBUTES = {
    "tool": "gen_ai.tool.name",
    "operation": "gen_ai.operation.name",
    "model": "gen_ai.request.model",
    "error_type": "error.type",
    **{
        name: f"byleave.{name}"
        for name in (
            "agent_id",
            "approval_id",
            "approved_by",
            "attempts",
            "decision",
            "isolation",
            "kind",
            "mode",
            "outcome",
            "project_id",
            "risk",
            "run_id",
            "session_id",
            "state",
            "tool_id",
            "verdict",
            "waiting_for",
        )
    },
}

FOREIGN = frozenset({"agent_id"})
"""Chosen by somebody else (an agent names itself): secrets are masked."""

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
LONG = (1, 2.5, 5, 10, 20, 30, 60, 120, 180, 300, 450, 600, 1800, 3600)


class Metric(NamedTuple):
    """Declaration of a metric."""

    kind: str
    unit: str
    description: str
    buckets: tuple[float, ...] = ()


METRICS = {
    "byleave.calls": Metric("counter", "{call}", "Calls that ended, by tool, risk, outcome and error type."),
    "byleave.approval.wait": Metric("histogram", "s", "From the question to its end, by decision.", LONG),
    "byleave.execution.duration": Metric("histogram", "s", "From the signal to the result, by tool.", SHORT),
    "byleave.queue.depth": Metric("gauge", "{call}", "Waiting calls, by what they wait for: client or approval."),
    "byleave.runs": Metric("gauge", "{run}", "Runs that are not over, by state."),
    "byleave.runs.ended": Metric("counter", "{run}", "Runs that ended, by state."),
    "byleave.clients": Metric("gauge", "{client}", "Clients connected to this server."),
    "byleave.client.queue": Metric("gauge", "{call}", "Calls on this machine, by state: active or queued."),
}


class CallIds(Protocol):
    """Ids of a call: an execution's row, or a call that will become one."""

    @property
    def id(self) -> str: ...
    @property
    def project_id(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def run_id(self) -> str | None: ...


def ids_of(call: CallIds) -> dict[str, str]:
    """Return the ids for log lines about a call."""
    ids = {"tool_id": call.id, "session_id": call.session_id, "project_id": call.project_id}
    return ids if call.run_id is None else {**ids, "run_id": call.run_id}


def known_tool(name: str) -> str:
    """Return the tool's name, or `other` if it does not exist."""
    return name if name in TOOLS else OTHER


def named(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    """Return attributes under their public names. Raise for an unknown one."""
    return {ATTRIBUTES[key]: _safe(key, value) for key, value in attributes.items() if value is not None}


def _safe(key: str, value: Value) -> Value:
    return mask_start(value, MAX_CHARACTERS) if key in FOREIGN and isinstance(value, str) else value


SAMPLED = 1


class SpanId(NamedTuple):
    """A span, by its trace id and its own id."""

    trace_id: int
    span_id: int
    flags: int | None = None
    """Sampling flag of the sender; None if we decide."""


def place_of_run(run_id: str) -> SpanId:
    """Return the span of an agent's run."""
    return SpanId(_number("trace", run_id, 16), _number("run", run_id, 8))


def place_of_call(tool_id: str, run_id: str | None) -> SpanId:
    """Return the span of a call, from its request to its end."""
    return SpanId(_trace_of(tool_id, run_id), _number("call", tool_id, 8))


def place_of_client(tool_id: str, run_id: str | None) -> SpanId:
    """Return the span of a call on the user's machine, as the server sees it."""
    return SpanId(_trace_of(tool_id, run_id), _number("client", tool_id, 8))


def _trace_of(tool_id: str, run_id: str | None) -> int:
    begun = switch.begun.get(tool_id)
    return _number("trace", run_id or tool_id, 16) if begun is None or begun.caller is None else begun.caller.trace_id


def arriving(traceparent: object) -> SpanId | None:
    """Parse a traceparent; None if it is malformed."""
    parts = TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    return None if parts is None else SpanId(int(parts[1], 16), int(parts[2], 16), int(parts[3], 16) & SAMPLED)


def calling(traceparent: object) -> SpanId | None:
    """Parse the traceparent of a caller; None unless it is sampled: nobody keeps the spans of its calls from us."""
    caller = arriving(traceparent)
    return caller if caller is not None and caller.flags else None


def written(place: SpanId, flags: int) -> str:
    """Format a traceparent."""
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{flags:02x}"


def _number(kind: str, value: str, size: int) -> int:
    digest = hashlib.blake2b(f"{kind}/{value}".encode(), digest_size=size).digest()
    return int.from_bytes(digest, "big") or 1  # zero is invalid


Mark = Callable[..., None]
"""Adds attributes to an open span."""
Readings = Callable[[], Iterable[tuple[int, dict[str, str]]]]
"""Returns the values of a gauge with their attributes. Called from another thread, so it must only read."""

MOST_REMEMBERED = 10_000


class Begun(NamedTuple):
    """Data kept for a call."""

    began: int
    caller: SpanId | None


@dataclass
class _Incoming:
    """A request that came with a trace."""

    place: SpanId
    call: CallIds | None = None


class Meter(Protocol):
    """Keeps metrics."""

    def count(self, metric: str, attributes: Mapping[str, Value | None]) -> None: ...
    def observe(self, metric: str, value: float, attributes: Mapping[str, Value | None]) -> None: ...


@dataclass
class _Switch:
    sdk: "Sdk | None" = None
    meters: tuple[Meter, ...] = ()
    """The SDK, and the registry of `/metrics` once somebody has asked."""
    gauges: dict[str, list[Readings]] = field(default_factory=dict[str, list[Readings]])
    begun: OrderedDict[str, Begun] = field(default_factory=OrderedDict[str, Begun])


switch = _Switch()
"""Hot paths look at `switch.sdk` before they call anything here."""
_incoming: ContextVar[_Incoming | None] = ContextVar("byleave_incoming", default=None)


class _Off:
    """A span that records nothing. Shared: opening it allocates nothing."""

    __slots__ = ()

    def __enter__(self) -> Mark:
        return _ignore

    def __exit__(self, *_: object) -> None:
        return None


def _ignore(**_: Value | None) -> None:
    return None


_OFF = _Off()


def on() -> bool:
    """Return True if telemetry is enabled."""
    return switch.sdk is not None


def switch_on(sdk: "Sdk") -> None:
    """Record with this SDK from now on."""
    switch.sdk = sdk
    add_meter(sdk)


def switch_off() -> None:
    """Send the rest, and stop recording."""
    sdk, switch.sdk = switch.sdk, None
    switch.begun.clear()
    if sdk is not None:
        remove_meter(sdk)
        sdk.close()


def add_meter(meter: Meter) -> None:
    """Keep metrics here, too, from now on."""
    switch.meters = (*switch.meters, meter)


def remove_meter(meter: Meter) -> None:
    switch.meters = tuple(one for one in switch.meters if one is not meter)


clock = time.time_ns
"""The clock of spans: nanoseconds since 1970."""


def span(name: str, parent: SpanId | None = None, **attributes: Value | None) -> AbstractContextManager[Mark]:
    """Open a span around a block, below `parent` or else below the current span."""
    sdk = switch.sdk
    return _OFF if sdk is None else sdk.span(name, parent, attributes)


def record(
    name: str,
    began: int,
    ended: int,
    *,
    parent: SpanId | None,
    own: SpanId | None = None,
    failed: bool = False,
    **attributes: Value | None,
) -> None:
    """Record a finished span. `own` is an id that other spans may already refer to as parent."""
    sdk = switch.sdk
    if sdk is not None:
        sdk.record(name, began, max(began, ended), parent, own, attributes, failed=failed)


def count(metric: str, **attributes: Value | None) -> None:
    """Increment a counter."""
    for meter in switch.meters:
        meter.count(metric, attributes)


def observe(metric: str, value: float, **attributes: Value | None) -> None:
    """Record a value of a histogram."""
    for meter in switch.meters:
        meter.observe(metric, value, attributes)


def gauge(metric: str, readings: Readings) -> Callable[[], None]:
    """Export `readings` as a gauge until the returned function is called."""
    if not switch.meters:
        return lambda: None
    sources = switch.gauges.setdefault(metric, [])
    sources.append(readings)

    def stop() -> None:
        with contextlib.suppress(ValueError):
            sources.remove(readings)

    return stop


def readings_of(metric: str) -> dict[tuple[tuple[str, str], ...], int]:
    """Values of a gauge by attributes. Several sources, such as two clients in one process, are added up."""
    totals: dict[tuple[tuple[str, str], ...], int] = {}
    for readings in tuple(switch.gauges.get(metric, ())):
        for value, attributes in readings():
            key = tuple(sorted(attributes.items()))
            totals[key] = totals.get(key, 0) + value
    return totals


def carry(tool_id: str, run_id: str | None) -> str | None:
    """Return the traceparent to send with a signal; None while nothing is recorded."""
    sdk = switch.sdk
    return None if sdk is None else sdk.traceparent(place_of_client(tool_id, run_id))


def within(place: SpanId) -> AbstractContextManager[object]:
    """Make `place` the parent of spans opened inside."""
    sdk = switch.sdk
    return _OFF if sdk is None else sdk.within(place)


@contextlib.contextmanager
def about(place: SpanId, **ids: str) -> Generator[None]:
    """Add ids to log lines, and make `place` the parent of spans."""
    import structlog  # imported late: the client uses this module, and loads structlog only with its first log line

    with structlog.contextvars.bound_contextvars(**ids), within(place):
        yield


def called_from(caller: SpanId | None) -> AbstractContextManager[object]:
    """Record a span for an HTTP request in the caller's trace, if it sent one."""
    return _OFF if caller is None or switch.sdk is None else _called_from(caller)


@contextlib.contextmanager
def _called_from(caller: SpanId) -> Generator[None]:
    incoming, began = _Incoming(caller), time.time_ns()
    token = _incoming.set(incoming)
    try:
        yield
    finally:
        _incoming.reset(token)
        call = incoming.call
        if call is not None:
            ids: dict[str, Value | None] = {**ids_of(call)}
            record("byleave.request", began, clock(), parent=caller, own=None, failed=False, **ids)


def judged(call: CallIds, verdict: str, began: int) -> None:
    """Record the gate's judgement of a call; `began` is from `clock`."""
    if switch.sdk is None:
        return
    incoming = _incoming.get()
    if incoming is not None:
        incoming.call = call
    begun = switch.begun
    begun.setdefault(call.id, Begun(began, None if incoming is None else incoming.place))
    if len(begun) > MOST_REMEMBERED:
        begun.popitem(last=False)
    parent = place_of_call(call.id, call.run_id)
    record("byleave.gate", began, clock(), parent=parent, verdict=verdict, tool_id=call.id)


def begun(tool_id: str) -> Begun | None:
    """Return the data kept for a call. It stays after the end: a client's report is recorded later."""
    return switch.begun.get(tool_id)


Choice = Literal["auto", "off", "otlp", "console"]

ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
PROTOCOLS = tuple(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL" for signal in ("", "TRACES_", "METRICS_"))
PROTOCOL = "http/protobuf"


def configure(choice: Choice, service: str) -> None:
    """Enable telemetry if wanted; a second call changes nothing."""
    if not on() and _wanted(choice):
        try:
            _start(choice, service)
        except ConfigurationError as error:
            if choice != "auto":
                raise
            import structlog  # imported late: see `about`

            structlog.stdlib.get_logger(__name__).warning("no telemetry", reason=error.message, hint=error.hint)


@contextlib.contextmanager
def configured(choice: Choice, service: str) -> Generator[None]:
    """Enable telemetry for a long-running command, if wanted; flush it at the end."""
    configure(choice, service)
    try:
        yield
    finally:
        switch_off()


def _wanted(choice: Choice) -> bool:
    if choice == "off" or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return choice != "auto" or any(os.environ.get(name) for name in ENDPOINTS)


def _start(choice: Choice, service: str) -> None:
    for name in PROTOCOLS:
        protocol = os.environ.get(name) or PROTOCOL
        if protocol != PROTOCOL and choice != "console":
            raise ConfigurationError(f"Byleave does not send telemetry by {protocol!r}.", hint=f"set {name}={PROTOCOL}")
    try:
        # Imported late: a client without telemetry loads nothing of it.
        from .otel import console_sdk, otlp_sdk
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigurationError(
            "Telemetry needs OpenTelemetry, which is not installed.",
            hint=install_command("telemetry"),
        ) from error
    switch_on(console_sdk(service) if choice == "console" else otlp_sdk(service))
