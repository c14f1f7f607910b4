"""Policies on the wire: the layers a machine's owner wrote, and what it cannot do, declared by its client.

The server parses them with the same parser the client used, so that both read the same rules. A declaration can turn
questions into runs for this machine only, and the client holds every call against its own copy again.
"""

from typing import Annotated

from pydantic import Field, StrictBool, StringConstraints

from .states import Layer
from .wire import Identifier, WireModel

MAX_POLICY_CHARACTERS = 64 * 1024


class PolicyText(WireModel):
    """One layer as it was written."""

    layer: Layer
    source: str = Field(max_length=400)
    """Where it was read, for people: a file's name."""
    text: str = Field(max_length=MAX_POLICY_CHARACTERS)
    trusted: StrictBool = True
    """A project's file may loosen only after the owner trusts it; what tightens counts anyway."""


class PolicyDeclaration(WireModel):
    """What a client says of its machine's rules."""

    client_id: Identifier
    layers: list[PolicyText] = Field(max_length=8)
    unable: dict[Identifier, Annotated[str, StringConstraints(max_length=400)]] = Field(
        default_factory=dict, max_length=16
    )
    """Tools that cannot work on this machine, and why: their calls are refused before anybody is asked."""
