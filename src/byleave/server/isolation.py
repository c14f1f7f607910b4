"""UserIsolationMiddleware: every request passes it before a route sees it.

It looks through trusted proxies (`proxies`), checks the host, verifies the token or the cookie, holds the sender to
their rate, counts every byte of a body, adds the headers of every response, logs the request, and turns every error
into a problem. Plain ASGI, so that it costs next to nothing. It trusts nothing in a request but a verified token.
Routes check scopes and projects (`dependencies`).

Pages of other origins may use this server with a bearer token, if the operator listed their origin. Origins are
compared whole and exactly, as browsers write them; `null`, other ports, other schemes and look-alike names do not
match. Credentials are never allowed: the cookie is for our own page. A page that is not listed learns nothing, not even
that there is a list.
"""

import re
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, TypeVar
from urllib.parse import urlsplit

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from byleave.protocol.errors import RefusedError
from byleave.protocol.states import Scope as ScopeName
from byleave.server.auth.sign_ins import LINK_HINT, cookies_in
from byleave.server.auth.tokens import HEADER, TOKEN_HINT, Principal
from byleave.settings import ServerSettings

from .bodies import JSON_HINT, BodyLimits, Headers, RequestBody, media_type
from .errors import Misdirected, NoToken, Unauthenticated, WrongForm, WrongMediaType
from .problems import problem_response
from .proxies import FORWARDED, TrustedProxies
from .request_rates import RequestRates
from .services import Services

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

API = "/my/"
FILES = "/page/"
PREFLIGHT = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "Authorization, Content-Type, Last-Event-ID, traceparent",
    "access-control-max-age": "600",
    "vary": "Origin",
}
READABLE = b"Date, Retry-After"
STREAM = b"text/event-stream"


class Origins:
    """The origins the operator listed."""

    def __init__(self, listed: Iterable[str]) -> None:
        self._listed = frozenset(listed)

    def allowing(self, path: str, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Headers that let a page of another origin read this response."""
        if not self._listed or not path.startswith((API, FILES)):
            return []
        # Also for unlisted origins: no cache may serve one origin's response to another.
        found = [(b"vary", b"Origin")]
        public = path.startswith(FILES)
        if public:
            # The files are the same for everybody; a plain <link> or <script> does not even send its origin.
            found.append((b"cross-origin-resource-policy", b"cross-origin"))
        origin = headers.get(b"origin", "")
        if origin in self._listed and (public or _has_bearer(headers)):
            found += [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", READABLE),
            ]
        return found

    def is_preflight(self, path: str, headers: Headers) -> bool:
        """True if this is the preflight request of a listed page."""
        return (
            path.startswith((API, FILES))
            and bool(headers.get(b"access-control-request-method", ""))
            and headers.get(b"origin", "") in self._listed
        )

    def preflight(self, origin: str) -> Response:
        """The response to a preflight, the same for every path: it does not tell which paths exist."""
        return Response(status_code=204, headers={"access-control-allow-origin": origin, **PREFLIGHT})


def is_of(origin: str, host: str, scheme: str) -> bool:
    """True if a page of this origin was served by this host. What came by http may have been https in front of a proxy
    that is not listed; what came by https never was http."""
    try:
        page = urlsplit(origin)
    except ValueError:  # an unbalanced bracket
        return False
    return page.netloc.lower() == host.lower() and scheme in ("http", page.scheme)


def _has_bearer(headers: Headers) -> bool:
    return headers.get(b"authorization", "").lower().startswith("bearer ")


log = structlog.stdlib.get_logger(__name__)

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "manifest-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
BARE_POLICY = "default-src 'none'; frame-ancestors 'none'"
HOST = re.compile(r"(?:\[([^][]*)\]|([^][:]*))(?::[0-9]{0,5})?")
"""A name or a bracketed address, and a port: anything more could disguise one host as another."""
PAGE_HINT = "Use the page this server serves, or a bearer token."
PAGE_KEY = HEADER.lower().encode()
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PRIVATE = ("/my", "/mcp")
PRIVATE_BELOW = ("/my/", "/mcp/")
"""Paths that always need a token, whether they exist or not."""

_EVERYWHERE = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_PRIVATE = [*_EVERYWHERE, (b"cache-control", b"no-store"), (b"content-security-policy", BARE_POLICY.encode())]
_PUBLIC = [*_EVERYWHERE, (b"cache-control", b"no-cache"), (b"content-security-policy", PAGE_POLICY.encode())]


ALONE = frozenset(
    {b"host", b"authorization", b"content-type", b"content-length", b"origin", b"last-event-id", PAGE_KEY}
)
"""Headers that are refused if given twice."""


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """A request's headers by name, in lower case; those given twice are joined."""
    found: dict[bytes, str] = {}
    for name, value in raw:
        text = value.decode("latin-1")
        if name in found:
            if name in ALONE:
                raise WrongForm(f"The header {name.decode('latin-1')!r} is given twice.", hint="Send it once.")
            text = f"{found[name]}; {text}"
        found[name] = text
    return found


class UserIsolationMiddleware:
    """See the module."""

    def __init__(self, app: ASGIApp, *, settings: ServerSettings) -> None:
        self._app = app
        self._hosts = settings.hosts
        self._public_url = settings.public_url
        self._bodies = BodyLimits(settings)
        self._rates = RequestRates(settings.user_requests_per_second, settings.user_request_burst)
        self._origins = Origins(settings.page_origins)
        self._proxies = TrustedProxies(settings.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        began = time.perf_counter()
        private = is_private(scope["path"])
        guarded = _Guarded(send, _PRIVATE if private else _PUBLIC)
        try:
            headers = self._read_headers(scope)
            host = self._check_host(headers)
            if self._public_url == f"https://{host.lower()}":
                # A tunnel or a proxy that is not believed ends https for us; nobody reaches this name without.
                scope["scheme"] = "https"
            if scope["method"] == "OPTIONS" and self._origins.is_preflight(scope["path"], headers):
                await self._origins.preflight(headers.get(b"origin", ""))(scope, receive, guarded)
                return
            guarded.more = self._origins.allowing(scope["path"], headers)
            sender: tuple[str, bool] | None = None
            if private:
                principal = await self._authenticate(scope, headers, host)
                scope["byleave.principal"] = principal
                # A user's agents share their limits: they must not delay the machine's results.
                sender = principal.user_id, ScopeName.AGENT in principal.scopes
            scope["byleave.headers"] = headers
            await self._serve(scope, receive, guarded, sender)
        except ClientDisconnect:
            log.info("request broken off by its sender", method=scope["method"], path=scope["path"])
            return
        except Exception as error:  # the boundary: after any error the user gets a problem, not a closed connection
            if guarded.status:
                raise
            await problem_response(error, scope)(scope, receive, guarded)
        if scope["method"] not in SAFE_METHODS:
            _log_request(scope, guarded.status, began)

    async def _serve(
        self, scope: Scope, receive: Receive, guarded: "_Guarded", sender: tuple[str, bool] | None
    ) -> None:
        """Pass a checked request on, within its sender's limits."""
        body: RequestBody | None = None
        if scope["method"] not in SAFE_METHODS:
            body = RequestBody(self._bodies, receive, scope["byleave.headers"], sender)
            scope["byleave.body"] = receive = body
        with nullcontext() if sender is None else self._rates.admit(sender):
            try:
                await self._app(scope, receive, guarded)
            finally:
                if body is not None:
                    await body.free()
                if sender is not None:
                    self._rates.charge(sender, guarded.size)

    def _read_headers(self, scope: Scope) -> Headers:
        headers = read_headers(scope["headers"])
        return headers if FORWARDED.isdisjoint(headers) else self._proxies.see_through(scope, headers)

    def _check_host(self, headers: Headers) -> str:
        host = headers.get(b"host", "")
        parts = HOST.fullmatch(host.lower())
        name = None if parts is None else parts[1] or parts[2]
        if name is None or (name not in self._hosts and "*" not in self._hosts):
            raise Misdirected(
                f"This server does not answer to the host {host[:100]!r}.",
                hint="Use its own address, or add the name to BYLEAVE_ALLOWED_HOSTS.",
            )
        return host

    async def _authenticate(self, scope: Scope, headers: Headers, host: str) -> Principal:
        parts: Services = scope["app"].state.parts
        authorization = headers.get(b"authorization", "")
        if authorization:
            kind, _, token = authorization.partition(" ")
            if kind.lower() != "bearer" or not token.strip():
                raise Unauthenticated("The Authorization header is not a bearer token.", hint=TOKEN_HINT)
            return await parts.verifier.verify(token.strip())
        cookies = cookies_in(headers.get(b"cookie", ""))
        if not cookies:
            raise NoToken(
                "This needs a token.", hint=f"Send `Authorization: Bearer …`. {TOKEN_HINT} In a browser: {LINK_HINT}"
            )
        check_same_origin(headers, scope["method"], host, scope["scheme"])
        return await parts.sessions.verify(cookies, headers.get(PAGE_KEY, ""))


class _Guarded:
    """Adds the headers every response carries, unless it has its own, and remembers status and size."""

    __slots__ = ("_headers", "_is_stream", "_send", "more", "size", "status")

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self.more: list[tuple[bytes, bytes]] = []
        """Headers that depend on the request."""
        self.status = 0
        self.size = 0
        """Bytes of the answer so far; of a stream, which brings what others did, they do not count."""
        self._is_stream = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not self._is_stream:
            self.size += len(message.get("body", b""))
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = list(message.get("headers", ()))
            self._is_stream = any(name == b"content-type" and value.startswith(STREAM) for name, value in own)
            said = {name for name, _ in own}
            said |= {name for name, _ in self.more if name != b"vary"}
            message["headers"] = [*own, *self.more, *(pair for pair in self._headers if pair[0] not in said)]
        await self._send(message)


def is_private(path: str) -> bool:
    """True if a path needs a token, whether it exists or not."""
    return path in PRIVATE or path.startswith(PRIVATE_BELOW)


def check_same_origin(headers: Headers, method: str, host: str, scheme: str, *, needs_json: bool = True) -> None:
    """Refuse requests of other pages: a browser adds our cookie to them, but they are not the user's."""
    site = headers.get(b"sec-fetch-site", "")
    if site and site not in (("same-origin", "none") if method in SAFE_METHODS else ("same-origin",)):
        raise RefusedError("Another page made this request.", hint=PAGE_HINT)
    if method in SAFE_METHODS:
        return
    origin = headers.get(b"origin", "")
    if origin and not is_of(origin, host, scheme):
        raise RefusedError("Another page made this request.", hint=PAGE_HINT)
    if not origin and not site:
        raise RefusedError("This request does not say which page made it.", hint=PAGE_HINT)
    if needs_json and media_type(headers) != "application/json":
        raise WrongMediaType("A request with the page's cookie must be JSON.", hint=JSON_HINT)


def check_no_page(headers: Headers) -> None:
    """Refuse requests of pages: a browser sends the page's origin or a cookie, a program sends neither."""
    if (
        headers.get(b"origin", "")
        or headers.get(b"cookie", "")
        or headers.get(b"sec-fetch-site", "") not in ("", "none")
    ):
        raise RefusedError("A page made this request; only programs may.", hint="Open the link in a browser instead.")


def unlogged(endpoint: Endpoint) -> Endpoint:
    """Log only the failed requests of an endpoint; the record has the tool calls."""
    setattr(endpoint, UNLOGGED, True)
    return endpoint


UNLOGGED = "byleave_unlogged"


def _log_request(scope: Scope, status: int, began: float) -> None:
    principal: Principal | None = scope.get("byleave.principal")
    if status < 400 and getattr(scope.get("endpoint"), UNLOGGED, False):
        return
    log.info(
        "request",
        method=scope["method"],
        route=getattr(scope.get("route"), "path", None),
        user=principal.user_id if principal else None,
        address=scope["client"][0] if scope["client"] else None,
        status=status,
        ms=round((time.perf_counter() - began) * 1000, 1),
    )
