"""Loopback servers: resolve their names once, and have them prove their identity.

A port of this machine belongs to whoever takes it first, so another user's program may listen in our server's place.
Each new connection must therefore prove, before the token is sent, that its other end can sign it. The other end gets
the token without its signature, so an impostor learns nothing. The proof names its address, so it cannot be relayed
from the real server. A loopback name is resolved once and kept until a request fails, because it may resolve
differently later. Not checked here: https, which has a certificate, and tokens signed by an identity provider.
Addresses are compared as numbers: `127.1` and `::ffff:127.0.0.1` are this machine too.
"""

import asyncio
import base64
import contextlib
import hmac
import json
import secrets
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from pydantic import ValidationError
from yarl import URL

from byleave.addresses import is_local_name, system_number
from byleave.protocol.errors import ConfigurationError, UnreachableError
from byleave.protocol.sign_in import ProofBody, ServerProof, proof_message

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.tracing import Trace

CONNECT_SECONDS = 10.0
_BOTH = ("127.0.0.1", "::1")


def loopback_numbers(host: str) -> tuple[str, ...]:
    """Return the addresses by which `host` reaches this machine, likeliest first; empty for another machine."""
    number = system_number(host)
    if number is None:
        return _BOTH if is_local_name(host) else ()
    if number.is_unspecified:  # connecting to it ends at loopback
        return _BOTH[:1] if number.version == 4 else _BOTH[1:]
    return (str(number),) if number.is_loopback else ()


def same_address(first: str, second: str) -> bool:
    """Return True if both spell the same address."""
    number = system_number(first)
    return number is not None and number == system_number(second)


PROOF_SECONDS = 10.0
MAX_PROOF_BYTES = 4096
_MISDIRECTED = 421


class ProvingConnector(aiohttp.TCPConnector):
    """Connections to one server with one token; none is used before it is proven."""

    def __init__(self, url: URL, token: str, *, keepalive_timeout: float) -> None:
        super().__init__(limit=0, keepalive_timeout=keepalive_timeout)  # pyright: ignore[reportUnknownMemberType]
        self._url = url
        claims, _, signature = token.rpartition(".")
        self._claims = claims
        self._signature = _decoded(signature)
        self._provable = url.scheme == "http" and _is_ours(claims) and bool(self._signature)
        self._proven: WeakSet[ResponseHandler] = WeakSet()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: "list[Trace]",
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - its form is aiohttp's
    ) -> Connection:
        """Return a connection that may carry the token. Raise ConfigurationError if it is not proven."""
        connection = await super().connect(req, traces, timeout)
        if not self._provable or req.proxy is not None:
            return connection
        # No other request can get it meanwhile: it is ours until it is released.
        try:
            protocol = connection.protocol
            if protocol is None:
                raise aiohttp.ServerDisconnectedError
            if protocol not in self._proven:
                async with asyncio.timeout(PROOF_SECONDS):
                    await self._prove(protocol, req.url)
                self._proven.add(protocol)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _prove(self, protocol: "ResponseHandler", url: URL) -> None:
        """Prove the other end. Raise aiohttp's errors if nothing answers."""
        transport = protocol.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        if transport is None or peer is None:
            raise aiohttp.ServerDisconnectedError
        host, port = peer[:2]
        # Check the peer's address, not the name: any name can be given to a loopback address.
        if not loopback_numbers(host):
            return
        challenge = secrets.token_urlsafe(32)
        protocol.set_response_params(read_until_eof=True, auto_decompress=False)
        transport.write(self._question(challenge, url))
        answer = await self._answer(protocol)
        expected = hmac.digest(self._signature, proof_message(challenge, answer.host, answer.port), "sha256").hex()
        # In a container the server sees the container's address; another loopback address means another server.
        here = answer.port == port and (same_address(answer.host, host) or not loopback_numbers(answer.host))
        if not hmac.compare_digest(answer.proof.encode(), expected.encode()) or not here:
            raise self._unproven()
        if protocol.should_close:
            raise aiohttp.ServerDisconnectedError("The server closes each connection after one answer.")

    def _question(self, challenge: str, url: URL) -> bytes:
        body = ProofBody(claims=self._claims, challenge=challenge).model_dump_json().encode()
        lines = (
            f"POST {self._url.joinpath('proof').raw_path} HTTP/1.1",
            f"Host: {url.host_port_subcomponent}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
        return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body

    async def _answer(self, protocol: "ResponseHandler") -> ServerProof:
        try:
            message, content = await protocol.read()
        except HttpProcessingError:
            raise self._unproven() from None
        if message.code >= 500:
            raise UnreachableError(f"The server at {self._url.origin()} could not answer ({message.code}).")
        if message.code == _MISDIRECTED:
            raise self._misdirected()
        answer = b""
        while len(answer) <= MAX_PROOF_BYTES and (piece := await content.read(MAX_PROOF_BYTES + 1 - len(answer))):
            answer += piece
        try:
            if message.code != 200 or len(answer) > MAX_PROOF_BYTES:
                raise self._unproven()
            return ServerProof.model_validate_json(answer)
        except ValidationError:
            raise self._unproven() from None

    def _unproven(self) -> ConfigurationError:
        return ConfigurationError(
            f"The program at {self._url.origin()} did not prove that it is the server your token is from, so the "
            "token was not sent.",
            hint="does another program use this port? start your server again, or get a new token if its secret "
            "changed; through a tunnel use the same port on both sides, through a proxy use https",
        )

    def _misdirected(self) -> ConfigurationError:
        """Return the error for a server that says it is not the one, and so does not prove itself."""
        return ConfigurationError(
            f"The program at {self._url.origin()} says that this is not its name and proves nothing under it, so the "
            "token was not sent.",
            hint=f"if this is your server, use its own address (http://127.0.0.1:{self._url.port}), or start it with "
            f"{self._url.host} added to BYLEAVE_ALLOWED_HOSTS",
        )


def _is_ours(claims: str) -> bool:
    """Return True if this is the head of a token that a server signs with its own secret."""
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


class LoopbackAddress:
    """Resolved address of one server."""

    def __init__(self, url: URL, *, connect_seconds: float) -> None:
        self._port = url.port
        self._numbers: tuple[str, ...] = loopback_numbers(url.host or "") if url.scheme == "http" else ()
        self._seconds = connect_seconds
        self._resolved: str | None = None

    def lost(self) -> None:
        """Forget the address: the server may listen at another one by now."""
        self._resolved = None

    async def at(self, url: URL) -> URL:
        """Return `url` with its host resolved."""
        if not self._numbers:
            return url
        if self._resolved is None:
            self._resolved = await self._find()
        return url.with_host(self._resolved)

    async def _find(self) -> str:
        *before, last = self._numbers
        for number in before:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(self._seconds):
                    _, writer = await asyncio.open_connection(number, self._port)
                writer.close()
                return number
        return last  # if nobody listens there either, the request fails and says so
