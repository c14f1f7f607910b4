"""Where a span belongs, computed from ids that every process has.

A call that an agent's run makes belongs to the run's trace; any other call is a trace of its own. Trace and span ids
are hashes of our ids, never the ids themselves: a call's end can hang below a span that another process, before a
restart, would have opened, and samplers that look at the bits of a trace id find them evenly spread.
"""

import hashlib
from typing import NamedTuple

from byleave.protocol.traces import TRACEPARENT

SAMPLED = 1


class SpanId(NamedTuple):
    """A span, by its trace and its own id."""

    trace_id: int
    span_id: int
    flags: int | None = None
    """What the sender said of sampling; None where it is ours to find out."""


def place_of_run(run_id: str) -> SpanId:
    """The span of an agent's run."""
    return SpanId(_number("trace", run_id, 16), _number("run", run_id, 8))


def place_of_call(tool_id: str, run_id: str | None) -> SpanId:
    """The span of a call, from its request to its end."""
    return SpanId(_number("trace", run_id or tool_id, 16), _number("call", tool_id, 8))


def place_of_client(tool_id: str, run_id: str | None) -> SpanId:
    """The span of a call's stay on the user's machine, as the server sees it."""
    return SpanId(_number("trace", run_id or tool_id, 16), _number("client", tool_id, 8))


def arriving(traceparent: object) -> SpanId | None:
    """The place somebody else names; None when it is not of the form."""
    parts = TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    return None if parts is None else SpanId(int(parts[1], 16), int(parts[2], 16), int(parts[3], 16) & SAMPLED)


def written(place: SpanId, flags: int) -> str:
    """As it travels."""
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{flags:02x}"


def _number(kind: str, value: str, size: int) -> int:
    digest = hashlib.blake2b(f"{kind}/{value}".encode(), digest_size=size).digest()
    return int.from_bytes(digest, "big") or 1  # zero is the one number that names nothing
