"""Verify, issue and cache tokens, and check the page's key.

The user comes from a signed token and from nowhere else. A token must say who (`sub`) and until when (`exp`); `scope`
lists what it may do. An agent's token never approves, whatever else it carries. A token with both `agent` and `execute`
is neither issued nor accepted. An agent is its token: its name and its widest mode are claims. Tokens are never logged;
verified ones are cached by their digest until they expire.

A sign-in gives a browser a key besides its cookie, kept where only this origin (with its port) can read it. Browsers
send a cookie to every port of a host, also to a program that somebody else, or an agent, started there. So the cookie
alone opens nothing. The key is handed over once, in the body of the answer to a link, and never in a URL: a URL stays
in the browser's history, and any page could link to one with a key of its own. The server keeps no key, only a digest
in the cookie's signed claims.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jwt

from byleave.protocol.errors import ConfigurationError, RefusedError
from byleave.protocol.executions import NUMBER_DIGITS, PROGRAM, UNNAMED, agent_name
from byleave.protocol.generation import Generation
from byleave.protocol.states import AgentMode, Scope
from byleave.server.errors import Unauthenticated
from byleave.settings import ServerSettings

from .claims import LONGEST_USER, ClaimMap, is_user_id
from .keys import KeySource, SharedSecret, key_source
from .secret import server_secret

HEADER = "Byleave-Page-Key"
LONGEST_KEY = 200
DIGEST = re.compile(r"[0-9a-f]{64}")


def new_key() -> str:
    return secrets.token_urlsafe(32)


def key_digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def is_key(key: str, digest: str | None) -> bool:
    """True if this is the key with that digest; no key and no digest is no match."""
    if not key or len(key) > LONGEST_KEY or digest is None:
        return False
    return hmac.compare_digest(key_digest(key), digest)


__all__ = ["Principal", "TokenVerifier", "issue_session", "issue_token", "server_secret", "session_verifier"]

LEEWAY_SECONDS = 5
MOST_REMEMBERED = 10_000
LONGEST_TOKEN = 16 * 1024
TOKEN_HINT = "Make one with `byleave token --user NAME` on the server."  # noqa: S105 - a hint, not a token
PAGE_SCOPES = (Scope.CHAT, Scope.APPROVE)
SESSION_USE = "page"
DECIDES = frozenset({Scope.APPROVE})
ASKS_AND_ACTS = frozenset({Scope.AGENT, Scope.EXECUTE})
"""A token with both could report the results of its own calls."""
AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
OWN_CLAIMS = ClaimMap()


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller and its permissions."""

    user_id: str
    scopes: frozenset[Scope]
    token: str
    """Identifies the token: the SHA-256 of its signed part, since a signature may have two spellings."""
    agent_id: str
    """Id of the caller of tools: an agent's name from its `agent` claim plus part of the token's digest. All programs
    of a person share one id, whichever of the person's tokens they have."""
    mode: AgentMode = AgentMode.SANDBOX
    """The most an agent with this token may do without asking."""
    token_id: str | None = None
    expires_at: float | None = None
    """Expiry of the token, in seconds since 1970."""
    sign_ins: tuple[str, ...] = ()
    """For the page's cookie: its sign-in, then those whose links led to it. Ending one of them ends this."""
    page_key: str | None = None
    """For the page's cookie: the digest of the key without which it opens nothing."""
    client_key: str | None = None
    """For a client: the digest of the key it made at first contact."""
    client_generation: Generation | None = None
    """For a client: which start of it this is."""

    @property
    def may_approve(self) -> bool:
        return Scope.APPROVE in self.scopes and Scope.AGENT not in self.scopes

    def bounded(self, mode: AgentMode | None) -> AgentMode:
        """Limit a wanted mode to this token's; None means this token's own. A person who may answer the questions may
        also choose not to be asked."""
        if mode is None or self.may_approve or self.mode is AgentMode.FULL:
            return mode or self.mode
        return AgentMode.SANDBOX

    def require(self, any_of: frozenset[Scope]) -> None:
        """Raise RefusedError unless the token has one of these scopes."""
        if any_of == DECIDES and Scope.AGENT in self.scopes:
            raise RefusedError(
                "An agent's token can never decide an approval.",
                hint="A person decides, with a token that has the scope `approve` and not `agent`.",
            )
        if not self.scopes & any_of:
            wanted = " or ".join(f"`{scope}`" for scope in sorted(any_of))
            raise RefusedError(f"This needs a token with the scope {wanted}.", hint=TOKEN_HINT)

    def may_see(self, run_id: str | None, agent_id: str | None) -> bool:
        """True if the caller may read this call: an agent sees its own, also those of its earlier tokens."""
        if Scope.AGENT not in self.scopes:
            return True
        return run_id is None and agent_name(agent_id) == agent_name(self.agent_id)

    @property
    def actor(self) -> str:
        """The caller's name in the record."""
        return f"agent:{self.agent_id}" if Scope.AGENT in self.scopes else f"user:{self.user_id}"


class TokenVerifier:
    """Verifies tokens with the configured key, and caches verified ones."""

    def __init__(
        self,
        source: KeySource,
        *,
        audience: str | None = None,
        issuer: str | None = None,
        claim_map: ClaimMap = OWN_CLAIMS,
        session: bool = False,
    ) -> None:
        self._source = source
        self._map = claim_map
        self._audience = audience
        self._issuer = issuer
        self._session = session
        self._known: dict[bytes, tuple[Principal, float]] = {}

    @classmethod
    def of(cls, settings: ServerSettings) -> "TokenVerifier":
        source = key_source(settings)
        # What we sign ourselves has our own names.
        claim_map = OWN_CLAIMS if isinstance(source, SharedSecret) else ClaimMap.of(settings)
        return cls(source, audience=settings.token_audience, issuer=settings.token_issuer, claim_map=claim_map)

    async def verify(self, token: str) -> Principal:
        """Return the bearer of a token, or raise Unauthenticated."""
        if len(token) > LONGEST_TOKEN:
            raise Unauthenticated("The token is too long.", hint=TOKEN_HINT)
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(digest)
        if known is not None:
            if known[1] > time.time():
                return known[0]
            del self._known[digest]
        key, algorithm = await self._source.key_for(token)
        claims = self._claims(token, key, algorithm)
        principal = _principal(claims, token, self._map)
        if self._session:
            principal = replace(principal, sign_ins=_sign_ins(claims), page_key=_page_key(claims))
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[digest] = (principal, float(claims["exp"]) + LEEWAY_SECONDS)
        return principal

    def _claims(self, token: str, key: Any, algorithm: str) -> dict[str, Any]:
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "sub"], "verify_aud": self._audience is not None},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token has expired.", hint=TOKEN_HINT) from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthenticated(f"The token does not say its {error.claim!r}.", hint=TOKEN_HINT) from None
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
            raise Unauthenticated("The token is not meant for this server.", hint=TOKEN_HINT) from None
        except (jwt.PyJWTError, ValueError, TypeError):
            # PyJWT lets a few odd values through to ValueError and TypeError; none of them is a valid token.
            raise Unauthenticated("The token is not valid.", hint=TOKEN_HINT) from None
        if (claims.get("use") == SESSION_USE) is not self._session:
            raise Unauthenticated("The token is not meant for this.", hint=TOKEN_HINT)
        return claims


def session_verifier(settings: ServerSettings) -> TokenVerifier:
    """Verifier of the page's cookie, which this server signs itself whoever issues the users' tokens."""
    return TokenVerifier(SharedSecret(server_secret(settings)), session=True)


def issue_token(
    settings: ServerSettings,
    user: str,
    scopes: Iterable[Scope],
    seconds: float,
    *,
    agent: str | None = None,
    mode: AgentMode | None = None,
) -> str:
    """Sign a token with the server's secret. `agent`, `mode`: an agent's name and its widest mode."""
    scopes = list(scopes)
    if ASKS_AND_ACTS.issubset(scopes):
        raise ConfigurationError(
            "An agent's token never executes: `agent` and `execute` do not go together.",
            hint="Make one token for the agent and one for the client.",
        )
    if agent is not None and not AGENT_NAME.fullmatch(agent):
        raise ConfigurationError(
            f"{agent!r} is no name for an agent.", hint="Use letters, digits, `.`, `-` and `_`, at most 40."
        )
    if settings.jwks_url or settings.public_key:
        raise ConfigurationError(
            "This server's tokens come from your identity provider.",
            hint="Get one there, or leave BYLEAVE_JWKS_URL and BYLEAVE_PUBLIC_KEY out.",
        )
    claims = _claims_for(user, scopes, seconds)
    claims |= {name: value for name, value in (("agent", agent), ("mode", mode)) if value is not None}
    if settings.token_audience:
        claims["aud"] = settings.token_audience
    if settings.token_issuer:
        claims["iss"] = settings.token_issuer
    return jwt.encode(claims, server_secret(settings), algorithm="HS256")


def issue_session(settings: ServerSettings, user: str, seconds: float, *, key: str, led_by: Sequence[str] = ()) -> str:
    """Sign the page's cookie: it may chat and approve, nothing else, and only together with this key. `led_by`: the
    sign-ins that asked for its link."""
    claims = _claims_for(user, PAGE_SCOPES, seconds) | {"use": SESSION_USE}
    claims |= {"led_by": list(led_by), "key": key_digest(key)}
    return jwt.encode(claims, server_secret(settings), algorithm="HS256")


def _claims_for(user: str, scopes: Iterable[Scope], seconds: float) -> dict[str, Any]:
    if not is_user_id(user):
        raise ConfigurationError(
            f"{user!r} cannot be a user's name.", hint=f"Use 1 to {LONGEST_USER} printable characters."
        )
    now = int(time.time())
    # The `jti` keeps two tokens of the same second apart.
    made = {"jti": secrets.token_hex(16), "iat": now, "exp": now + max(1, int(seconds))}
    return {"sub": user, "scope": " ".join(scopes), **made}


def _sign_ins(claims: dict[str, Any]) -> tuple[str, ...]:
    """Ids of the sign-in and of those that led to it; refuse one without an id, which could not be ended."""
    ids: list[object] = [claims.get("jti"), *(claims.get("led_by") or ())]
    named = tuple(each for each in ids if isinstance(each, str) and each)
    if len(named) < len(ids):
        raise Unauthenticated("The sign-in has no name.", hint=TOKEN_HINT)
    return named


def _page_key(claims: dict[str, Any]) -> str:
    """Digest of the page's key; refuse a sign-in without one, whose cookie alone would open the page."""
    digest = claims.get("key")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise Unauthenticated("The sign-in has no key.", hint=TOKEN_HINT)
    return digest


def _principal(claims: dict[str, Any], token: str, claim_map: ClaimMap = OWN_CLAIMS) -> Principal:
    user, scopes = claim_map.user(claims), claim_map.scopes(claims)
    if scopes >= ASKS_AND_ACTS:
        raise RefusedError(
            "This token is an agent's and a client's at once, so it opens nothing.",
            hint="Use one token with `agent` for the agent and one with `execute` for the client.",
        )
    signed = hashlib.sha256(token.rpartition(".")[0].encode()).hexdigest()
    name, token_id = claims.get("agent"), claims.get("jti")
    if not isinstance(name, str) or not AGENT_NAME.fullmatch(name):
        name = UNNAMED
    return Principal(
        user,
        scopes,
        signed,
        # Never the name alone: a second token of that name is another agent, and none may be named like one of ours.
        f"{name}-{signed[:NUMBER_DIGITS]}" if Scope.AGENT in scopes else PROGRAM,
        AgentMode.FULL if claims.get("mode") == AgentMode.FULL else AgentMode.SANDBOX,
        token_id if isinstance(token_id, str) else None,
        float(claims["exp"]),
    )
