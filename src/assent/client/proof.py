"""Whether what answers at a loopback address is the server a token is from, found out before the token is sent.

A port of this machine belongs to whoever takes it first, so another user's program may stand where our server stood.
It is asked to prove that it can sign our token, which it is shown without its signature: who cannot sign it has learnt
nothing. The proof names the address it was given at, so it cannot be passed on from the real server at another one.
Over https the certificate says who answers; a token that another party signed (an identity provider) cannot be proven
this way, and neither kind is looked at here.
"""

import base64
import hmac
import ipaddress
import json
import secrets
import time
from typing import Any

import aiohttp
from pydantic import ValidationError
from yarl import URL

from assent.protocol.entering import ProofBody, ServerProof, proof_message
from assent.protocol.errors import ConfigurationError, UnreachableError

from .addresses import is_loopback
from .log import log

PROOF_SECONDS = 10.0
MAX_PROOF_BYTES = 4096


class Proof:
    """What is known of one server, for one token."""

    def __init__(self, url: URL, token: str, *, lasts: float) -> None:
        self._url = url
        self._lasts = lasts
        self._seen: float | None = None
        claims, _, signature = token.rpartition(".")
        self._claims = claims
        self._key = _decoded(signature)
        self.needed = url.scheme == "http" and is_loopback(url.host or "") and _is_ours(claims) and bool(self._key)
        self._host: str | None = None

    def seen(self) -> None:
        """It has just answered: connections to it may stay open for a while."""
        if self._seen is not None:
            self._seen = time.monotonic()

    def lost(self) -> None:
        """It is gone, or may be: whatever answers next must prove itself."""
        self._seen = None

    async def ensure(self, url: URL, *, anew: bool = False) -> URL:
        """Where to send what was meant for `url`, once it is proven: at the number that was, for a name could lead
        elsewhere the next time. ConfigurationError when it is not proven; aiohttp's errors when nothing answers."""
        if not self.needed:
            return url
        if anew or self._seen is None or time.monotonic() - self._seen > self._lasts:
            self._seen = None
            await self._find()
        return url if self._host is None else url.with_host(self._host)

    async def _find(self) -> None:
        *before, last = self._numbers()
        for host in before:
            try:
                await self._prove(host)
            except (aiohttp.ClientConnectorError, TimeoutError):
                log.debug("nothing at this address", host=host)
            else:
                return
        await self._prove(last)

    def _numbers(self) -> list[str]:
        host = self._url.host or ""
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            return ["127.0.0.1", "::1"]

    async def _prove(self, host: str) -> None:
        """Raises aiohttp's errors when nothing answers."""
        challenge = secrets.token_urlsafe(32)
        told = await self._ask(self._url.with_host(host), challenge)
        right = hmac.digest(self._key, proof_message(challenge, told.host, told.port), "sha256").hex()
        # In a container it was reached at an address of that; at another loopback address it is another server.
        here = told.port == self._url.port and (told.host == host or not is_loopback(told.host))
        if not hmac.compare_digest(told.proof.encode(), right.encode()) or not here:
            raise self._unproven()
        self._host = None if host == self._url.host else host
        self._seen = time.monotonic()

    async def _ask(self, url: URL, challenge: str) -> ServerProof:
        body = ProofBody(claims=self._claims, challenge=challenge).model_dump_json().encode()
        # A session of its own: nothing of the other one, above all not the token, may come along.
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=PROOF_SECONDS), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            ) as session,
            session.post(
                url.joinpath("proof"),
                data=body,
                headers={"Content-Type": "application/json"},
                allow_redirects=False,
            ) as response,
        ):
            if response.status >= 500:
                raise UnreachableError(f"The server at {self._url.origin()} could not answer ({response.status}).")
            told = await response.content.read(MAX_PROOF_BYTES)
        try:
            return ServerProof.model_validate_json(told)
        except ValidationError:
            raise self._unproven() from None

    def _unproven(self) -> ConfigurationError:
        return ConfigurationError(
            f"What answers at {self._url.origin()} did not prove that it is the server your token is from, so the "
            "token was not sent.",
            hint="does another program use this port? start your server again, or get a new token if its secret "
            "changed; through a tunnel use the same port on both sides, through a proxy use https",
        )


def _is_ours(claims: str) -> bool:
    """Whether this is the beginning of a token that a server signs with its own secret."""
    head, dot, rest = claims.partition(".")
    try:
        header: Any = json.loads(_decoded(head))
        return bool(dot and rest) and header["alg"] == "HS256"
    except (ValueError, KeyError, TypeError):
        return False


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
