"""The interface: what the rest of Byleave calls. Each function looks first whether anything is switched on.

It is on for a whole process (OpenTelemetry has one exporter for it), unlike everything else here. What is remembered
of a call between its judgement and its end is a convenience (a finer start, a link to the caller's trace): a restart
that forgets it costs nothing but that.

Switching it on: by `BYLEAVE_TELEMETRY`, or by the variables OpenTelemetry itself defines.

Left to itself (`auto`) it is on exactly when a variable names a collector; what then cannot be done is said in one
line of the log and nothing is recorded, because such variables are often meant for another program. Asked for by our
own setting, what cannot be done stops the command.
"""

import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from byleave.protocol.errors import ConfigurationError

from .traces import SpanId, place_of_call, place_of_client
from .words import CallIds, Value, ids_of

if TYPE_CHECKING:
    from .otel import Sdk

Mark = Callable[..., None]
"""Adds attributes to an open span."""
Readings = Callable[[], Iterable[tuple[int, dict[str, str]]]]
"""What a gauge shows now: values with their attributes. Asked from another thread, so it only reads."""

MOST_REMEMBERED = 10_000


class Begun(NamedTuple):
    """What is remembered of a call that is under way."""

    began: int
    caller: SpanId | None


@dataclass
class _Incoming:
    """A request that came with a trace."""

    place: SpanId
    call: CallIds | None = None


@dataclass
class _Switch:
    sdk: "Sdk | None" = None
    begun: OrderedDict[str, Begun] = field(default_factory=OrderedDict[str, Begun])


_switch = _Switch()
_incoming: ContextVar[_Incoming | None] = ContextVar("byleave_incoming", default=None)


class _Off:
    """A span that is none. One for all: opening it allocates nothing."""

    __slots__ = ()

    def __enter__(self) -> Mark:
        return _ignore

    def __exit__(self, *_: object) -> None:
        return None


def _ignore(**_: Value | None) -> None:
    return None


_OFF = _Off()


def on() -> bool:
    """Whether anything is recorded."""
    return _switch.sdk is not None


def switch_on(sdk: "Sdk") -> None:
    """Record with this from now on."""
    _switch.sdk = sdk


def switch_off() -> None:
    """Send what is left, and record nothing any more."""
    sdk, _switch.sdk = _switch.sdk, None
    _switch.begun.clear()
    if sdk is not None:
        sdk.close()


def clock() -> int:
    """Nanoseconds since 1970; 0 while nothing is recorded."""
    return 0 if _switch.sdk is None else time.time_ns()


def span(name: str, parent: SpanId | None = None, **attributes: Value | None) -> AbstractContextManager[Mark]:
    """A span around a block, below `parent` or else below the one that is open here."""
    sdk = _switch.sdk
    return _OFF if sdk is None else sdk.span(name, parent, attributes)


def record(
    name: str,
    began: int,
    ended: int,
    *,
    parent: SpanId | None,
    own: SpanId | None = None,
    link: SpanId | None = None,
    failed: bool = False,
    **attributes: Value | None,
) -> None:
    """A span after the fact. `own`: the place others already hang below; left out, any."""
    sdk = _switch.sdk
    if sdk is not None:
        sdk.record(name, began, max(began, ended), parent, own, link, attributes, failed=failed)


def count(metric: str, **attributes: Value | None) -> None:
    """One more."""
    if _switch.sdk is not None:
        _switch.sdk.count(metric, attributes)


def observe(metric: str, value: float, **attributes: Value | None) -> None:
    """A value of a distribution."""
    if _switch.sdk is not None:
        _switch.sdk.observe(metric, value, attributes)


def gauge(metric: str, readings: Readings) -> Callable[[], None]:
    """Show what `readings` says at each export, until the returned function is called."""
    sdk = _switch.sdk
    return (lambda: None) if sdk is None else sdk.gauge(metric, readings)


def carry(tool_id: str, run_id: str | None) -> str | None:
    """The traceparent that goes to the client with a signal; None while nothing is recorded."""
    sdk = _switch.sdk
    return None if sdk is None else sdk.traceparent(place_of_client(tool_id, run_id))


def within(place: SpanId) -> AbstractContextManager[object]:
    """Spans opened in here without a parent hang below `place`."""
    sdk = _switch.sdk
    return _OFF if sdk is None else sdk.within(place)


@contextlib.contextmanager
def about(place: SpanId, **ids: str) -> Generator[None]:
    """Log lines in here carry these ids, and spans hang below `place`."""
    import structlog  # here: the client uses this module, and loads structlog only when it has something to say

    with structlog.contextvars.bound_contextvars(**ids), within(place):
        yield


def called_from(caller: SpanId | None) -> AbstractContextManager[object]:
    """Around a call that came over HTTP: where the caller sent its trace, that trace gets a span for the request."""
    return _OFF if caller is None or _switch.sdk is None else _called_from(caller)


@contextlib.contextmanager
def _called_from(caller: SpanId) -> Generator[None]:
    incoming, began = _Incoming(caller), time.time_ns()
    token = _incoming.set(incoming)
    try:
        yield
    finally:
        _incoming.reset(token)
        call = incoming.call
        if call is not None and _switch.sdk is not None:
            link = place_of_call(call.id, call.run_id)
            ids: dict[str, Value | None] = {**ids_of(call)}
            _switch.sdk.record("byleave.request", began, time.time_ns(), caller, None, link, ids, failed=False)


def judged(call: CallIds, verdict: str, began: int) -> None:
    """The gate has judged a call; `began` by `clock`."""
    if _switch.sdk is None:
        return
    incoming = _incoming.get()
    if incoming is not None:
        incoming.call = call
    begun = _switch.begun
    begun.setdefault(call.id, Begun(began, None if incoming is None else incoming.place))
    if len(begun) > MOST_REMEMBERED:
        begun.popitem(last=False)
    parent = place_of_call(call.id, call.run_id)
    record("byleave.gate", began, clock(), parent=parent, verdict=verdict, tool_id=call.id)


def begun(tool_id: str) -> Begun | None:
    """What is remembered of a call that now ends; it is forgotten by this."""
    return _switch.begun.pop(tool_id, None)


Choice = Literal["auto", "off", "otlp", "console"]

ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "METRICS_"))
PROTOCOLS = tuple(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL" for signal in ("", "TRACES_", "METRICS_"))
SPOKEN = "http/protobuf"


def configure(choice: Choice, service: str) -> None:
    """Switch it on where it is wanted; a second time changes nothing."""
    if not on() and _wanted(choice):
        try:
            _start(choice, service)
        except ConfigurationError as error:
            if choice != "auto":
                raise
            import structlog  # here: see `spans.about`

            structlog.stdlib.get_logger(__name__).warning("no telemetry", reason=error.message, hint=error.hint)


@contextlib.contextmanager
def configured(choice: Choice, service: str) -> Generator[None]:
    """Around a command that stays: switched on at its start where wanted; at its end what is left is sent."""
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
        protocol = os.environ.get(name) or SPOKEN
        if protocol != SPOKEN and choice != "console":
            raise ConfigurationError(f"Byleave does not send telemetry by {protocol!r}.", hint=f"set {name}={SPOKEN}")
    try:
        # Here and not at the top: a client without telemetry loads nothing of it.
        from .otel import console_sdk, otlp_sdk
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigurationError(
            "Telemetry needs OpenTelemetry, which is not installed.",
            hint="in a checkout: pip install '.[telemetry]'",
        ) from error
    switch_on(console_sdk(service) if choice == "console" else otlp_sdk(service))
