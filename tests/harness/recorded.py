"""Telemetry recorded into memory with OpenTelemetry's own SDK, for tests to look at."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from byleave import telemetry
from byleave.telemetry.otel import Sdk
from harness.json_values import JsonObject


@dataclass(frozen=True)
class Span:
    """A span that has ended."""

    name: str
    place: tuple[int, int]
    """Its trace, and its own id."""
    parent: int | None
    attributes: JsonObject
    start: int
    end: int
    failed: bool
    text: str
    """All of it."""


class Seen:
    """What was recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.sdk = Sdk("tests", [SimpleSpanProcessor(self._exporter)], [self._reader])

    @property
    def spans(self) -> list[Span]:
        return [_span(span) for span in self._exporter.get_finished_spans()]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Span:
        found = self.named(name)
        assert len(found) == 1, [span.name for span in self.spans]
        return found[0]

    def points(self, metric: str) -> list[tuple[JsonObject, Any]]:
        """Each series of a metric: its attributes, and its value (of a histogram: how many)."""
        data = self._reader.get_metrics_data()
        points = [
            cast(Any, point)
            for group in (data.resource_metrics if data else ())
            for scope in group.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
        ]
        return [(dict(point.attributes), point.value if hasattr(point, "value") else point.count) for point in points]


def _span(span: ReadableSpan) -> Span:
    context = span.get_span_context()
    assert context is not None
    return Span(
        name=span.name,
        place=(context.trace_id, context.span_id),
        parent=span.parent.span_id if span.parent else None,
        attributes=dict(cast(Any, span.attributes or {})),
        start=span.start_time or 0,
        end=span.end_time or 0,
        failed=not span.status.is_ok,
        text=span.to_json(),
    )


@contextmanager
def recording() -> Generator[Seen]:
    """Telemetry is on in here."""
    seen = Seen()
    telemetry.switch_on(seen.sdk)
    try:
        yield seen
    finally:
        telemetry.switch_off()
