"""Sign-in by a one-time link, the user it is for, and a server's proof that it signed a token.

Nothing here carries a token to a server. The proof is designed so that a server which cannot prove itself learns
nothing it could use.
"""

from typing import Annotated

from pydantic import Field, StringConstraints

from .states import Scope
from .wire import WireModel

PROOF_PREFIX = b"byleave server proof 1\n"
"""Prefix of every proof: no other use of a signature as a key has it."""


class Me(WireModel):
    """The requesting user, and the server."""

    user_id: str
    scopes: list[Scope]
    version: str
    """Version of the server."""
    chat: bool
    """True if an agent works on messages here."""


class SignInLink(WireModel):
    """A one-time link that signs a browser in."""

    path: str
    """Relative to the server's address: `/signin?code=…`."""
    expires_in_seconds: int


class PhoneLink(WireModel):
    """A one-time link that signs another device in, as an address it can open and as a QR code of that."""

    url: str
    qr: list[str]
    """Rows of the QR code from the top, `1` for dark and `0` for light, without the light border."""
    expires_in_seconds: int


class SignInWays(WireModel):
    """Ways to sign in to the page, beside one-time links."""

    provider: str | None
    """Name of the identity provider; null if there is none."""


class SignInFinishBody(WireModel):
    """What an identity provider led back with, and the ticket of the attempt."""

    ticket: str = Field(max_length=16384)
    code: str = Field(min_length=1, max_length=4096)
    state: str = Field(max_length=4096)
    iss: str | None = Field(default=None, max_length=4096)
    """The provider's own name, if it says one (RFC 9207)."""


class SignInFinished(WireModel):
    """A browser that an identity provider signed in; its cookie came with this."""

    key: str
    """The page's key, without which the cookie opens nothing."""
    user_id: str


class ExchangeBody(WireModel):
    """Code of a one-time link, to be exchanged for a token."""

    code: str = Field(min_length=1, max_length=200)


class ExchangedToken(WireModel):
    """Token of a program."""

    token: str
    user_id: str
    scopes: list[Scope]
    expires_in_seconds: int


class ProofBody(WireModel):
    """Challenge to a server: did you sign this token? The token's signature stays with the sender."""

    claims: Annotated[str, StringConstraints(max_length=16384, pattern=r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$")]
    """The token up to its second dot."""
    challenge: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{22,100}$")]
    """Random, new for each request."""


class ServerProof(WireModel):
    """Proof that only the signer of that token can give."""

    host: str
    """Address this server was reached at, as it sees it."""
    port: int
    proof: str
    """HMAC-SHA256, in hex, over `byleave server proof 1`, the challenge, the host and the port, each on its own line;
    the key is the token's signature.
    """


def proof_message(challenge: str, host: str, port: int) -> bytes:
    """Return the message that a proof signs."""
    return PROOF_PREFIX + f"{challenge}\n{host}\n{port}\n".encode()
