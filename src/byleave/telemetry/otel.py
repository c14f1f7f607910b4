"""The only module that knows OpenTelemetry's SDK; imported when telemetry is enabled.

Its providers are our own, not the global ones: another library's instrumentation neither uses our exporter nor loses
its own. Exceptions are never recorded, only their type: their messages may quote anything.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from opentelemetry import context as otel_context
from opentelemetry import trace as otel_trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from byleave.telemetry import METRICS, SAMPLED, Mark, SpanId, Value, named, readings_of, written

SCOPE = "byleave"
CLOSE_SECONDS = 3.0
SERVER_SPANS = frozenset({"byleave.request"})
CLIENT_SPANS = frozenset({"byleave.client"})

Attributes = Mapping[str, Value | None]


def otlp_sdk(service: str) -> "Sdk":
    """Return an SDK that sends to OTEL_EXPORTER_OTLP_ENDPOINT, or to the default collector on this machine."""
    spans = OTLPSpanExporter() if _exports("TRACES") else None
    metrics = OTLPMetricExporter() if _exports("METRICS") else None
    return Sdk(
        service,
        [BatchSpanProcessor(spans)] if spans is not None else [],
        [PeriodicExportingMetricReader(metrics)] if metrics is not None else [],
        exporters=[exporter for exporter in (spans, metrics) if exporter is not None],
    )


def console_sdk(service: str) -> "Sdk":
    """Return an SDK that writes to stderr: stdout belongs to the command."""
    processors = [SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr))] if _exports("TRACES") else []
    readers = [PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr))] if _exports("METRICS") else []
    return Sdk(service, processors, readers)


def _exports(signal: str) -> bool:
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() != "none"


class Exporter(Protocol):
    """An exporter that can be stopped."""

    def shutdown(self) -> None: ...


class ChosenIds(RandomIdGenerator):
    """Gives a span its chosen ids; random ones otherwise."""

    def __init__(self) -> None:
        self._local = threading.local()

    @contextlib.contextmanager
    def chosen(self, own: SpanId | None) -> Generator[None]:
        self._local.own = own
        try:
            yield
        finally:
            self._local.own = None

    def generate_trace_id(self) -> int:
        own: SpanId | None = getattr(self._local, "own", None)
        return super().generate_trace_id() if own is None else own.trace_id

    def generate_span_id(self) -> int:
        own: SpanId | None = getattr(self._local, "own", None)
        return super().generate_span_id() if own is None else own.span_id


class Sdk:
    """Records spans and metrics."""

    def __init__(
        self,
        service: str,
        processors: Sequence[SpanProcessor],
        readers: Sequence[MetricReader],
        *,
        exporters: Sequence[Exporter] = (),
    ) -> None:
        """`exporters` are those that may have to be stopped."""
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win; names of the machine and the command are left out.
        resource = Resource({"service.name": service, "service.version": _version()}).merge(
            OTELResourceDetector().detect()
        )
        self._exporters = exporters
        self._ids = ChosenIds()
        self._tracing = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        for processor in processors:
            self._tracing.add_span_processor(processor)
        self._metering = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        self._tracer = self._tracing.get_tracer(SCOPE, _version())
        meter = self._metering.get_meter(SCOPE, _version())
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for name, metric in METRICS.items():
            match metric.kind:
                case "counter":
                    self._counters[name] = meter.create_counter(name, metric.unit, metric.description)
                case "histogram":
                    self._histograms[name] = meter.create_histogram(
                        name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.buckets
                    )
                case _:
                    meter.create_observable_gauge(name, [_callback(name)], metric.unit, metric.description)

    # Spans

    @contextlib.contextmanager
    def span(self, name: str, parent: SpanId | None, attributes: Attributes) -> Generator[Mark]:
        context = None if parent is None else self._context(parent)
        with self._tracer.start_as_current_span(
            name, context, attributes=named(attributes), record_exception=False, set_status_on_exception=False
        ) as opened:

            def mark(**more: Value | None) -> None:
                opened.set_attributes(named(more))

            try:
                yield mark
            except BaseException as error:
                _failed(opened, str(getattr(error, "error_type", type(error).__name__)))
                raise

    def record(
        self,
        name: str,
        began: int,
        ended: int,
        parent: SpanId | None,
        own: SpanId | None,
        attributes: Attributes,
        *,
        failed: bool,
    ) -> None:
        public = named(attributes)
        kind = SpanKind.SERVER if name in SERVER_SPANS else SpanKind.CLIENT if name in CLIENT_SPANS else None
        with self._ids.chosen(own):
            opened = self._tracer.start_span(
                name,
                otel_context.Context() if parent is None else self._context(parent),
                kind or SpanKind.INTERNAL,
                attributes=public,
                start_time=began,
            )
        if failed:
            opened.set_status(Status(StatusCode.ERROR))
        opened.end(ended)

    @contextlib.contextmanager
    def within(self, place: SpanId) -> Generator[None]:
        token = otel_context.attach(self._context(place))
        try:
            yield
        finally:
            otel_context.detach(token)

    def traceparent(self, place: SpanId) -> str:
        return written(place, self._flags(place))

    def _context(self, place: SpanId) -> otel_context.Context:
        return otel_trace.set_span_in_context(NonRecordingSpan(self._span_context(place)), otel_context.Context())

    def _span_context(self, place: SpanId) -> SpanContext:
        return SpanContext(place.trace_id, place.span_id, is_remote=True, trace_flags=TraceFlags(self._flags(place)))

    def _flags(self, place: SpanId) -> int:
        if place.flags is not None:
            return place.flags
        # Sampled as a root: samplers decide by the trace id, so every process gets the same answer.
        root = otel_context.Context()
        sampled = self._tracing.sampler.should_sample(root, place.trace_id, SCOPE).decision.is_sampled()
        return SAMPLED if sampled else 0

    # Metrics

    def count(self, metric: str, attributes: Attributes) -> None:
        self._counters[metric].add(1, named(attributes))

    def observe(self, metric: str, value: float, attributes: Attributes) -> None:
        self._histograms[metric].record(value, named(attributes))

    def close(self) -> None:
        """Send the rest. Wait for the collector, but not long if it does not answer."""
        ends = [threading.Thread(target=end, daemon=True) for end in (self._tracing.shutdown, self._metering.shutdown)]
        for end in ends:
            end.start()
        deadline = time.monotonic() + CLOSE_SECONDS
        for end in ends:
            end.join(max(0.0, deadline - time.monotonic()))
        if any(end.is_alive() for end in ends):
            for exporter in self._exporters:
                exporter.shutdown()
            for end in ends:
                end.join(1.0)


def _callback(metric: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, named(dict(key))) for key, value in readings_of(metric).items()]

    return read


def _failed(opened: Span, error_type: str) -> None:
    opened.set_attributes(named({"error_type": error_type}))
    opened.set_status(Status(StatusCode.ERROR))


def _version() -> str:
    try:
        return version("byleave")
    except PackageNotFoundError:  # an uninstalled checkout
        return "0"
