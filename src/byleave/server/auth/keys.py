"""Keys that sign and verify tokens.

The configured key decides the algorithm, never the token: a public key is never used as a shared secret, and `none` is
not an algorithm.
"""

import asyncio
import hmac
import time
from collections.abc import Callable
from typing import Any, Protocol

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from byleave.protocol.errors import ConfigurationError
from byleave.server.errors import Unauthenticated, Unavailable
from byleave.settings import ServerSettings

from .secret import server_secret

log = structlog.stdlib.get_logger(__name__)

SMALLEST_RSA_BITS = 2048
REFRESH_SECONDS = 30.0
"""Least time between fetches for an unknown key: a forged `kid` must not make us ask often."""
KEYS_SECONDS = 3600.0
"""Time that fetched keys are trusted before the next fetch: a withdrawn key ends within it."""
LONGEST_SECONDS = 24 * 3600.0
"""Time that they are trusted while the provider does not answer."""
FETCH_SECONDS = 10


class KeySource(Protocol):
    """Source of the key for a token."""

    async def key_for(self, token: str) -> tuple[Any, str]:
        """Return the key and its one algorithm, or raise Unauthenticated."""
        ...


class SharedSecret:
    """HS256 with the server's own secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    async def key_for(self, token: str) -> tuple[Any, str]:
        return self._secret, "HS256"

    def signature(self, claims: str) -> bytes:
        """Signature of a token with these claims. Never send it: it completes the token."""
        return hmac.digest(self._secret, claims.encode("ascii"), "sha256")

    def derived(self, purpose: str) -> bytes:
        """A key of its own for one purpose."""
        return hmac.digest(self._secret, f"byleave {purpose}".encode("ascii"), "sha256")


class PublicKey:
    """One public key from the settings."""

    def __init__(self, pem: str) -> None:
        try:
            key = load_pem_public_key(pem.replace("\\n", "\n").strip().encode())
        except ValueError:
            raise ConfigurationError(
                "BYLEAVE_PUBLIC_KEY is not a PEM public key.", hint="It begins with -----BEGIN PUBLIC KEY-----."
            ) from None
        algorithm = algorithm_of(key)
        if algorithm is None:
            raise ConfigurationError(
                "BYLEAVE_PUBLIC_KEY is of a kind that is not accepted.",
                hint="Use RSA of 2048 bits or more, EC P-256 or Ed25519.",
            )
        self._key, self._algorithm = key, algorithm

    async def key_for(self, token: str) -> tuple[Any, str]:
        return self._key, self._algorithm


class PublishedKeys:
    """The keys an identity provider publishes (JWKS), fetched when needed and remembered."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        if not url.startswith(("https://", "http://")):
            raise ConfigurationError(f"BYLEAVE_JWKS_URL is not an address: {url!r}.", hint="Write it as https://….")
        # Its own cache is off: this class limits how often we ask.
        self._fetcher = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=FETCH_SECONDS)
        self._clock = clock
        self._keys: dict[str | None, tuple[Any, str]] = {}
        self._asked_at: float | None = None
        self._fetched_at: float | None = None
        self._asking = asyncio.Lock()

    async def key_for(self, token: str) -> tuple[Any, str]:
        try:
            kid = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            raise Unauthenticated("The token is not a JWT.", hint="Send the token exactly as it was issued.") from None
        if self._stale() or self._find(kid) is None:
            await self._refresh()
        found = self._find(kid)
        if found is None:
            if self._fetched_at is None:
                raise Unavailable("The identity provider's keys cannot be fetched.", hint="Try again in a while.")
            raise Unauthenticated("The token is signed with a key we do not know.", hint="Sign in again.")
        return found

    def _find(self, kid: str | None) -> tuple[Any, str] | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _stale(self) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at > KEYS_SECONDS

    async def _refresh(self) -> None:
        async with self._asking:
            asked = self._asked_at
            if asked is not None and self._clock() - asked < REFRESH_SECONDS:
                return  # fetched just now, or too early to ask again
            self._asked_at = self._clock()
            try:
                published = (await asyncio.to_thread(self._fetcher.get_jwk_set)).keys
            except jwt.PyJWKSetError:  # no usable key: all were withdrawn
                published = []
            except (jwt.PyJWTError, OSError, ValueError) as error:
                log.error("keys could not be fetched", error=type(error).__name__)
                if self._fetched_at is not None and self._clock() - self._fetched_at > LONGEST_SECONDS:
                    self._keys, self._fetched_at = {}, None
                return
            self._keys = {}
            for jwk in published:
                algorithm = algorithm_of(jwk.key)
                if algorithm is not None and jwk.public_key_use in (None, "sig"):
                    self._keys[jwk.key_id] = (jwk.key, algorithm)
            self._fetched_at = self._clock()


def algorithm_of(key: object) -> str | None:
    """The one algorithm a public key may be used with; None if we do not accept the key."""
    if isinstance(key, RSAPublicKey):
        return "RS256" if key.key_size >= SMALLEST_RSA_BITS else None
    if isinstance(key, EllipticCurvePublicKey):
        return "ES256" if isinstance(key.curve, SECP256R1) else None
    return "EdDSA" if isinstance(key, Ed25519PublicKey | Ed448PublicKey) else None


def key_source(settings: ServerSettings) -> KeySource:
    """Choose the source: published keys, else a public key, else the shared secret."""
    if settings.jwks_url:
        return PublishedKeys(settings.jwks_url)
    if settings.public_key:
        return PublicKey(settings.public_key)
    return SharedSecret(server_secret(settings))
