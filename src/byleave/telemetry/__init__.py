"""Spans and metrics of a call, and the ids on its log lines. Off until `configure` enables it.

While it is off, every function here returns at once and OpenTelemetry is not imported. Only `otel` knows the SDK.
Attributes are ids, names and outcomes, never parameters, results, prompts or error messages. A span's trace is computed
from ids, so that nothing has to be stored or kept open.
"""

from .spans import (
    CallIds,
    SpanId,
    about,
    arriving,
    begun,
    called_from,
    carry,
    clock,
    configure,
    configured,
    count,
    gauge,
    ids_of,
    judged,
    known_tool,
    observe,
    on,
    place_of_call,
    place_of_client,
    place_of_run,
    record,
    span,
    switch_off,
    switch_on,
    within,
)

__all__ = [
    "CallIds",
    "SpanId",
    "about",
    "arriving",
    "begun",
    "called_from",
    "carry",
    "clock",
    "configure",
    "configured",
    "count",
    "gauge",
    "ids_of",
    "judged",
    "known_tool",
    "observe",
    "on",
    "place_of_call",
    "place_of_client",
    "place_of_run",
    "record",
    "span",
    "switch_off",
    "switch_on",
    "within",
]
