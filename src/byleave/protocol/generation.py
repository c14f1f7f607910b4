"""The generation of a client: which start of it speaks, and so whether its state was copied or restored.

A client counts its starts in its journal, on disk before it connects, and gives each a random name. Of two clients with
the same identity the server lets in the newer one; two that count alike were copied from one another.
"""

import re
from functools import lru_cache
from typing import NamedTuple, Self

GENERATION = "Byleave-Generation"
"""The header that carries it."""
SUPERSEDED = "superseded"
"""State of the conflict that an older generation, or a copy, is refused with."""
GENERATION_FORM = "[1-9][0-9]{0,14}-[0-9a-f]{32}"
_FORM = re.compile(GENERATION_FORM)


class Generation(NamedTuple):
    """A start of a client."""

    number: int
    instance: str

    def __str__(self) -> str:
        return f"{self.number}-{self.instance}"

    @classmethod
    @lru_cache
    def parse(cls, text: str) -> Self | None:
        """Return the generation in a header; None if it has another form."""
        number, _, instance = text.partition("-")
        return cls(int(number), instance) if _FORM.fullmatch(text) else None

    def supersedes(self, known: "Generation | None") -> bool:
        """True if this start is later than the known one."""
        return known is not None and self.number > known.number

    def is_superseded_by(self, known: "Generation | None") -> bool:
        """True if the known start is later, or counts alike and is another."""
        return known is not None and known != self and not self.supersedes(known)
