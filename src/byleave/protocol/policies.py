"""Policies on the wire: a machine's own rules and the tools it cannot run.

The client declares them; the server parses them with the same parser, so both read the same rules. A declaration can
waive questions for its own machine only, and the client checks every call against its own copy again.
"""

from typing import Annotated

from pydantic import Field, StrictBool, StringConstraints

from .states import Layer
from .wire import Identifier, WireModel

MAX_POLICY_CHARACTERS = 64 * 1024


class PolicyText(WireModel):
    """Text of one layer."""

    layer: Layer
    source: str = Field(max_length=400)
    """Name of the file, for people."""
    text: str = Field(max_length=MAX_POLICY_CHARACTERS)
    trusted: StrictBool = True
    """A project's file may loosen rules only after the owner trusts it; it may always tighten them."""


class PolicyDeclaration(WireModel):
    """A client's declaration of its machine's rules."""

    client_id: Identifier
    layers: list[PolicyText] = Field(max_length=8)
    unable: dict[Identifier, Annotated[str, StringConstraints(max_length=400)]] = Field(
        default_factory=dict, max_length=16
    )
    """Tools that cannot work on this machine, with the reason: their calls are refused before anybody is asked."""
