"""IdentityProvider: signs people in to the page by OpenID Connect, with an authorization code and PKCE.

A browser takes a ticket along: the state, nonce and code verifier of its attempt, signed by us. It is kept where only
our origin reads it, so neither another page nor a program on another port can end an attempt that it did not begin, and
any server of a record can. The provider's answer is believed only if it is signed with a key that the configured issuer
publishes, for our client, with the ticket's nonce. Nothing of it is kept but the claims of who somebody is.
"""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode, urlsplit

import jwt
import structlog

from byleave.protocol.errors import ConfigurationError
from byleave.server.errors import Unauthenticated, Unavailable
from byleave.settings import ServerSettings

from .claims import ClaimMap
from .keys import PublishedKeys
from .tokens import LEEWAY_SECONDS, LONGEST_TOKEN

if TYPE_CHECKING:
    import aiohttp

log = structlog.stdlib.get_logger(__name__)

TICKET_SECONDS = 600
DISCOVERY_SECONDS = 3600.0
ANSWER_SECONDS = 10
LONGEST_ANSWER = 1024 * 1024
CHUNK = 64 * 1024
AT_ONCE = 8
"""Codes that are exchanged at the same time: whoever sends made-up ones must not make us flood the provider."""
AGAIN_HINT = "Sign in again."
LATER_HINT = "Try again in a while; a link from `byleave link` works meanwhile."


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses that the provider's discovery document names."""

    authorization: str
    token: str
    keys: str
    user_info: str | None
    end_session: str | None
    takes_basic: bool
    """True if the token endpoint takes the client's secret in the Authorization header."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sign-in that begins."""

    address: str
    """The provider's page."""
    ticket: str


class IdentityProvider:
    """The operator's identity provider."""

    def __init__(self, settings: ServerSettings, ticket_key: bytes, claim_map: ClaimMap) -> None:
        issuer, client_id = settings.oidc_issuer, settings.oidc_client_id
        if issuer is None or client_id is None:
            raise ConfigurationError(
                "Sign-in by an identity provider needs its address and our name there.",
                hint="Set both BYLEAVE_OIDC_ISSUER and BYLEAVE_OIDC_CLIENT_ID.",
            )
        if not _is_safe(issuer, issuer):
            raise ConfigurationError(
                f"BYLEAVE_OIDC_ISSUER is not an https address: {issuer!r}.", hint="Write it as https://…."
            )
        self.name = settings.oidc_name or urlsplit(issuer).hostname or issuer
        self._issuer = issuer
        self._client_id = client_id
        self._secret = settings.oidc_client_secret
        self._scopes = settings.oidc_scopes
        self.claim_map = claim_map
        self._ticket_key = ticket_key
        self._endpoints: tuple[Endpoints, PublishedKeys, float] | None = None
        self._finding = asyncio.Lock()
        self._exchanging = asyncio.Semaphore(AT_ONCE)
        self._http: aiohttp.ClientSession | None = None

    async def begin(self, return_to: str) -> Attempt:
        """Begin a sign-in that the provider ends at `return_to`."""
        endpoints, _ = await self._discovered()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": return_to,
            "scope": self._scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        claims = {"state": state, "nonce": nonce, "verifier": verifier, "return_to": return_to}
        until = int(time.time()) + TICKET_SECONDS
        ticket = jwt.encode({**claims, "exp": until}, self._ticket_key, algorithm="HS256")
        return Attempt(_with_query(endpoints.authorization, asked), ticket)

    async def finish(self, ticket: str, *, code: str, state: str, issuer: str | None) -> dict[str, Any]:
        """Exchange the code of an attempt; return the verified claims of who signed in."""
        try:
            attempt = jwt.decode(ticket, self._ticket_key, algorithms=["HS256"], options={"require": ["exp"]})
        except jwt.PyJWTError:
            raise Unauthenticated("This sign-in took too long, or began elsewhere.", hint=AGAIN_HINT) from None
        if not hmac.compare_digest(attempt["state"].encode(), state.encode("utf-8", "replace")):
            raise Unauthenticated("This is the answer to another sign-in.", hint=AGAIN_HINT)
        if issuer is not None and issuer != self._issuer:
            raise Unauthenticated("Another identity provider answered.", hint=AGAIN_HINT)
        endpoints, keys = await self._discovered()
        async with self._exchanging:
            answer = await self._exchange(endpoints, code, attempt["verifier"], attempt["return_to"])
            claims = await self._verified(answer.get("id_token"), keys, attempt["nonce"])
            if self.claim_map.wanted - claims.keys() and endpoints.user_info is not None:
                claims = {**await self._user_info(endpoints.user_info, answer.get("access_token"), claims), **claims}
        return claims

    async def sign_out_address(self, back_to: str) -> str | None:
        """The provider's page that signs a person out there; None if it has none."""
        endpoints, _ = await self._discovered()
        if endpoints.end_session is None:
            return None
        return _with_query(endpoints.end_session, {"client_id": self._client_id, "post_logout_redirect_uri": back_to})

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def _discovered(self) -> tuple[Endpoints, PublishedKeys]:
        """The provider's addresses and keys, asked for once an hour; the last ones while it does not answer."""
        async with self._finding:
            known = self._endpoints
            if known is not None and known[2] > time.monotonic():
                return known[0], known[1]
            address = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
            try:
                found = self._read(await self._asked("GET", address))
            except Unavailable:
                if known is None:
                    raise
                return known[0], known[1]
            keys = known[1] if known is not None and known[0].keys == found.keys else PublishedKeys(found.keys)
            self._endpoints = found, keys, time.monotonic() + DISCOVERY_SECONDS
            return found, keys

    def _read(self, document: Mapping[str, Any]) -> Endpoints:
        if document.get("issuer") != self._issuer:
            log.error("the identity provider names another issuer", issuer=str(document.get("issuer"))[:200])
            raise Unavailable(
                "The identity provider says it is another one.",
                hint="BYLEAVE_OIDC_ISSUER must be exactly the `issuer` of its openid-configuration.",
            )
        methods = document.get("token_endpoint_auth_methods_supported")
        return Endpoints(
            self._address(document, "authorization_endpoint"),
            self._address(document, "token_endpoint"),
            self._address(document, "jwks_uri"),
            self._address(document, "userinfo_endpoint") if "userinfo_endpoint" in document else None,
            self._address(document, "end_session_endpoint") if "end_session_endpoint" in document else None,
            # What holds when nothing is said, by the standard.
            not isinstance(methods, list) or "client_secret_basic" in methods,
        )

    def _address(self, document: Mapping[str, Any], name: str) -> str:
        address = document.get(name)
        if not isinstance(address, str) or not _is_safe(address, self._issuer):
            log.error("the identity provider's configuration is of no use", field=name)
            raise Unavailable("The identity provider's configuration cannot be used.", hint=LATER_HINT)
        return address

    async def _exchange(self, endpoints: Endpoints, code: str, verifier: str, return_to: str) -> dict[str, Any]:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": return_to,
            "client_id": self._client_id,
            "code_verifier": verifier,
        }
        login = None
        if self._secret is not None and endpoints.takes_basic:
            from aiohttp import encode_basic_auth

            login = encode_basic_auth(quote(self._client_id, ""), quote(self._secret.get_secret_value(), ""))
        elif self._secret is not None:
            fields["client_secret"] = self._secret.get_secret_value()
        headers = {} if login is None else {"Authorization": login}
        return await self._asked("POST", endpoints.token, data=fields, headers=headers)

    async def _verified(self, token: object, keys: PublishedKeys, nonce: str) -> dict[str, Any]:
        if not isinstance(token, str) or len(token) > LONGEST_TOKEN:
            raise Unauthenticated("The identity provider did not say who you are.", hint=AGAIN_HINT)
        key, algorithm = await keys.key_for(token)
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._client_id,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "sub", "aud", "iss"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            log.warning("an ID token was refused", error=type(error).__name__)
            raise Unauthenticated("The identity provider's answer is not valid.", hint=AGAIN_HINT) from None
        party = claims.get("azp", self._client_id)
        if party != self._client_id or not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
            raise Unauthenticated("The identity provider's answer is to another sign-in.", hint=AGAIN_HINT)
        return claims

    async def _user_info(self, address: str, token: object, claims: Mapping[str, Any]) -> dict[str, Any]:
        """Further claims, which many providers leave out of the ID token."""
        if not isinstance(token, str):
            return {}
        told = await self._asked("GET", address, headers={"Authorization": f"Bearer {token}"})
        if told.get("sub") != claims["sub"]:
            raise Unauthenticated("The identity provider told of somebody else.", hint=AGAIN_HINT)
        return told

    async def _asked(self, method: str, address: str, **options: Any) -> dict[str, Any]:
        """A JSON object from the provider. An error of its own is Unavailable; a refusal is Unauthenticated."""
        import aiohttp

        if self._http is None:
            # No connection is kept: the provider may close it just as a code is sent, which is not sent twice.
            connector, limit = aiohttp.TCPConnector(force_close=True), aiohttp.ClientTimeout(total=ANSWER_SECONDS)
            self._http = aiohttp.ClientSession(connector=connector, timeout=limit, trust_env=True)
        try:
            async with self._http.request(method, address, allow_redirects=False, **options) as response:
                if method == "POST" and response.status in (400, 401, 403):
                    log.warning("the identity provider refused a code", status=response.status)
                    raise Unauthenticated("The identity provider did not accept this sign-in.", hint=AGAIN_HINT)
                if response.status != 200:
                    raise ValueError(f"status {response.status}")
                body = bytearray()
                async for chunk in response.content.iter_chunked(CHUNK):
                    body += chunk
                    if len(body) > LONGEST_ANSWER:
                        raise ValueError("the answer is too long")
                answer: object = json.loads(body)
                if not isinstance(answer, dict):
                    raise ValueError("not an object")
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
            log.error("the identity provider did not answer", address=address, error=str(error) or type(error).__name__)
            raise Unavailable("The identity provider does not answer.", hint=LATER_HINT) from None
        return cast("dict[str, Any]", answer)


def _with_query(address: str, fields: Mapping[str, str]) -> str:
    return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(fields)}"


def _is_safe(address: str, issuer: str) -> bool:
    """True for https, and for plain http on this machine if the issuer is here too."""
    try:
        parts, home = urlsplit(address), urlsplit(issuer)
    except ValueError:
        return False
    if not parts.hostname or parts.username is not None or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_here(parts.hostname) and _is_here(home.hostname))


def _is_here(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
