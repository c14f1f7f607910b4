"""A trace's context as it travels: W3C `traceparent`, version 00, in the one form there is (55 characters).

Whoever sends it may lie: what is not exactly of that form counts as not given. A trace is never a reason for a call
to fail, and nothing but where a span hangs is ever decided by it.
"""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


def well_formed(value: object) -> str | None:
    """The value when it is a traceparent, else None."""
    return value if isinstance(value, str) and TRACEPARENT.fullmatch(value) else None


Traceparent = Annotated[
    str | None,
    BeforeValidator(well_formed),
    Field(examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]),
]
