"""Base class of every wire model; timestamps, ids, trace context and JSON text.

A `traceparent` is W3C's, version 00, 55 characters. Its sender may lie: any other form counts as absent. A trace never
makes a call fail, and it decides nothing but the parent of a span.
"""

import json
import re
import secrets
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StringConstraints
from pydantic_core import to_json

TIMESTAMP_PATTERN = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"

Timestamp = Annotated[
    str,
    StringConstraints(pattern=TIMESTAMP_PATTERN),
    Field(description="ISO 8601, UTC, milliseconds", examples=["2026-11-15T12:00:00.000Z"]),
]

Identifier = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"),
]

Digest = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64}|missing)$")]
"""SHA-256 of a file's content, or `missing` if there is no file."""

NOT_BLANK = r"^[^\u0000]*[^\s\u0000-\u001f\u0085][^\u0000]*$"
"""Pattern of a text in which there is something to see, whatever a language takes for a blank."""
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=NOT_BLANK)]
"""What a person calls a project or a conversation."""

JsonObject = dict[str, Any]


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""Comes last in a type: bounds that come after it are checked, but are not in the schema."""
Whole = Annotated[StrictInt, WHOLE]
"""An integer, as JSON Schema has it: `7.0` is one, `"7"` and `true` are none."""
Count = Annotated[StrictInt, Field(ge=0), WHOLE]


class WireModel(BaseModel):
    """A value on the wire."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        # Models are built on first use: a process uses a few of about a hundred.
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )


def timestamp(moment: datetime) -> str:
    """Format a moment as a `Timestamp`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z"


def moment(text: str) -> datetime:
    """Parse a `Timestamp`."""
    return datetime.fromisoformat(text)


def now() -> str:
    """The process's clock. Deadlines use the database's (`Transaction.now`), which is this one for SQLite."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")[:23] + "Z"


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # on macOS the latter runs on in sleep


def steady() -> float:
    """Seconds on a clock that nobody can set and that runs on while the machine sleeps."""
    return time.clock_gettime(_STEADY)


def later(text: str, seconds: float) -> str:
    """A timestamp some seconds after another."""
    return timestamp(moment(text) + timedelta(seconds=seconds))


Id = str | UUID
"""An id as callers pass it."""


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def id_text(kind: str, value: Id) -> str:
    """Return the stored form of an id; a UUID, or its text, becomes `exec_0193…`."""
    text = str(value)
    if not text.isascii():  # half of a character, which no database takes, is in no id
        text = text.encode("utf-8", "replace").decode()
    return f"{kind}_{text.replace('-', '').lower()}" if _UUID.fullmatch(text) else text


def new_id(kind: str) -> str:
    """Return a new id with its kind as prefix (`exec_0193…`) and 128 random bits."""
    return f"{kind}_{secrets.token_hex(16)}"


TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


def well_formed(value: object) -> str | None:
    """Return the value if it is a traceparent, else None."""
    return value if isinstance(value, str) and TRACEPARENT.fullmatch(value) else None


Traceparent = Annotated[
    str | None,
    BeforeValidator(well_formed),
    Field(examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]),
]


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Encode a value in its one canonical form."""
    return _CANONICAL.encode(value)


def plain_json(value: Any) -> str:
    """Encode a value for storage: fast, keys in insertion order, text not escaped."""
    return to_json(value).decode()
