"""Spans and metrics of a call's whole way, and the ids on its log lines. Off until `configure` switches it on.

Off, every function here returns at once and nothing of OpenTelemetry is imported. On, only `otel` knows the SDK. What
a span or a metric may say is the list in `words`: ids, names and outcomes, never parameters, results, prompts or
errors' own words. Which trace a span belongs to is computed (`traces`), so that nothing has to be stored or kept open.
"""

from .spans import (
    about,
    begun,
    called_from,
    carry,
    clock,
    configure,
    configured,
    count,
    gauge,
    judged,
    observe,
    on,
    record,
    span,
    switch_off,
    switch_on,
    within,
)
from .traces import SpanId, arriving, place_of_call, place_of_client, place_of_run
from .words import CallIds, ids_of, known_tool

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
