"""How a program gets its own token from a one-time link, and how a server proves that it is the one a token is from.

Nothing here carries a token to a server: what proves a server to a client is made so that a server which cannot prove
itself has learnt nothing it could use.
"""

from typing import Annotated

from pydantic import Field, StringConstraints

from .states import Scope
from .wire import WireModel

PROOF_PREFIX = b"byleave server proof 1\n"
"""What every proof begins with: no other use of a signature as a key has it."""


class ExchangeBody(WireModel):
    """The code of a one-time link, to be exchanged for a token."""

    code: str = Field(min_length=1, max_length=200)


class ExchangedToken(WireModel):
    """A program's own token."""

    token: str
    user_id: str
    scopes: list[Scope]
    expires_in_seconds: int


class ProofBody(WireModel):
    """Are you the server that signed this token? The token's signature stays with the one who asks."""

    claims: Annotated[str, StringConstraints(max_length=16384, pattern=r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$")]
    """The token up to its second dot."""
    challenge: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{22,100}$")]
    """Random, and new each time."""


class ServerProof(WireModel):
    """What only the one who can sign that token can say."""

    host: str
    """The address this server was reached at, as it sees it itself."""
    port: int
    proof: str
    """HMAC-SHA256, in hex, over `byleave server proof 1`, the challenge, the host and the port, each on a line of its
    own; the key is the token's signature."""


def proof_message(challenge: str, host: str, port: int) -> bytes:
    """What a proof is made over."""
    return PROOF_PREFIX + f"{challenge}\n{host}\n{port}\n".encode()
