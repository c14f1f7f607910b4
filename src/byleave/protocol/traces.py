"""Trace context on the wire: W3C `traceparent`, version 00, 55 characters.

The sender may lie: any other form counts as absent. A trace never makes a call fail, and it decides nothing but the
parent of a span.
"""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


def well_formed(value: object) -> str | None:
    """Return the value if it is a traceparent, else None."""
    return value if isinstance(value, str) and TRACEPARENT.fullmatch(value) else None


Traceparent = Annotated[
    str | None,
    BeforeValidator(well_formed),
    Field(examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]),
]
