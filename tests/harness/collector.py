"""A collector as operators run one: takes OTLP over HTTP on a free port, decodes it, and keeps what came."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from harness.json_values import JsonObject

LIMIT_SECONDS = 30


@dataclass(frozen=True)
class Sent:
    """A span as it came over the wire."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: JsonObject


@dataclass
class Collector:
    """What was received."""

    url: str = ""
    spans: list[Sent] = field(default_factory=list[Sent])
    metrics: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Names of metrics, by service."""
    bodies: list[bytes] = field(default_factory=list[bytes])
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until what came makes it true."""
        async with asyncio.timeout(LIMIT_SECONDS), self.news:
            await self.news.wait_for(true)

    async def traces(self, request: web.Request) -> web.Response:
        body = await request.read()
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _attributes(group.resource.attributes)["service.name"]
            for scope in group.scope_spans:
                for span in scope.spans:
                    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    self.spans.append(Sent(service, span.name, *ids, _attributes(span.attributes)))
        await self._came(body)
        return web.Response(body=ExportTraceServiceResponse().SerializeToString())

    async def measures(self, request: web.Request) -> web.Response:
        body = await request.read()
        for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            service = _attributes(group.resource.attributes)["service.name"]
            for scope in group.scope_metrics:
                self.metrics.setdefault(service, set()).update(metric.name for metric in scope.metrics)
        await self._came(body)
        return web.Response(body=ExportMetricsServiceResponse().SerializeToString())

    async def _came(self, body: bytes) -> None:
        async with self.news:
            self.bodies.append(body)
            self.news.notify_all()


def _attributes(pairs: Any) -> JsonObject:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}


@asynccontextmanager
async def open_collector() -> AsyncGenerator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.traces)
    app.router.add_post("/v1/metrics", collector.measures)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        collector.url = f"http://127.0.0.1:{port}"
        yield collector
    finally:
        await runner.cleanup()
