"""Span ids, computed from ids that every process has.

A call of an agent's run belongs to the run's trace; any other call is its own trace. Trace and span ids are hashes of
our ids, never the ids themselves. So a call's end can have a parent that another process would have opened before a
restart, and samplers that look at the bits of a trace id find them evenly spread.
"""

import hashlib
from typing import NamedTuple

from byleave.protocol.traces import TRACEPARENT

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
    return SpanId(_number("trace", run_id or tool_id, 16), _number("call", tool_id, 8))


def place_of_client(tool_id: str, run_id: str | None) -> SpanId:
    """Return the span of a call on the user's machine, as the server sees it."""
    return SpanId(_number("trace", run_id or tool_id, 16), _number("client", tool_id, 8))


def arriving(traceparent: object) -> SpanId | None:
    """Parse a traceparent; None if it is malformed."""
    parts = TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    return None if parts is None else SpanId(int(parts[1], 16), int(parts[2], 16), int(parts[3], 16) & SAMPLED)


def written(place: SpanId, flags: int) -> str:
    """Format a traceparent."""
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{flags:02x}"


def _number(kind: str, value: str, size: int) -> int:
    digest = hashlib.blake2b(f"{kind}/{value}".encode(), digest_size=size).digest()
    return int.from_bytes(digest, "big") or 1  # zero is invalid
