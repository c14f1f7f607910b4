"""UserIsolationMiddleware: the one place every request passes before a route sees it.

In order: is the host ours, who is asking, is the route there and open to them, is the project theirs, is the body JSON
and small enough (counted while it is read). Another user's project and one that does not exist are the same 404. Plain
ASGI, so that it costs next to nothing and sees every byte. It never trusts anything in a request but a verified token.
Which other pages may read answers is in `origins`; the cookie opens nothing to any of them.

Which pages of other origins may use this server: those the operator listed, with a bearer token and nothing else.

Without the setting there are none. The list is compared whole and exactly, as browsers write an origin; `null`, other
ports, other schemes and names that merely look alike are others. Credentials are never allowed: the cookie is for our
own page. A page that is not listed learns nothing, not even that there is a list.
"""

import re
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from urllib.parse import urlsplit

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from byleave.protocol.errors import NotFound, RefusedError
from byleave.protocol.states import Scope as ScopeName
from byleave.server.bodies import SMALL_BYTES, BodyRoom
from byleave.server.problems import (
    MethodNotAllowed,
    Misdirected,
    TooLarge,
    Unauthenticated,
    WrongForm,
    WrongMediaType,
    problem_response,
)
from byleave.server.routing import Route, RouteTable
from byleave.server.services import Services
from byleave.settings import ServerSettings

from .links import LINK_HINT, cookies_in
from .tokens import HEADER, TOKEN_HINT, Principal

HeaderOf = Callable[[bytes], str]

API = "/my/"
FILES = "/page/"
PREFLIGHT = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "Authorization, Content-Type, Last-Event-ID",
    "access-control-max-age": "600",
    "vary": "Origin",
}
READABLE = b"Date, Retry-After"


class Origins:
    """The origins that were listed."""

    def __init__(self, listed: Iterable[str]) -> None:
        self._listed = frozenset(listed)

    def allowing(self, path: str, header: HeaderOf) -> list[tuple[bytes, bytes]]:
        """The headers by which a browser lets a page of another origin read this answer."""
        if not self._listed or not path.startswith((API, FILES)):
            return []
        # Also for those who are not listed: no cache may hand the answer for one to another.
        found = [(b"vary", b"Origin")]
        public = path.startswith(FILES)
        if public:
            # The files are the same for everybody; a plain <link> or <script> does not even say where it is.
            found.append((b"cross-origin-resource-policy", b"cross-origin"))
        origin = header(b"origin")
        if origin in self._listed and (public or _has_bearer(header)):
            found += [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", READABLE),
            ]
        return found

    def is_preflight(self, path: str, header: HeaderOf) -> bool:
        """Whether a browser asks on behalf of a listed page what it may send."""
        return (
            path.startswith((API, FILES))
            and bool(header(b"access-control-request-method"))
            and header(b"origin") in self._listed
        )

    def preflight(self, origin: str) -> Response:
        """The answer to that, the same for every path: it tells nothing of what is there."""
        return Response(status_code=204, headers={"access-control-allow-origin": origin, **PREFLIGHT})


def is_of(origin: str, host: str) -> bool:
    """Whether an origin is that of a page this host served."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # a bracket without its other
        return False


def _has_bearer(header: HeaderOf) -> bool:
    return header(b"authorization").lower().startswith("bearer ")


log = structlog.stdlib.get_logger(__name__)

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
BARE_POLICY = "default-src 'none'; frame-ancestors 'none'"
HOST = re.compile(r"(?:\[([^][]*)\]|([^][:]*))(?::[0-9]{0,5})?")
"""A name or a bracketed address, and a port: what else could follow is how one host is dressed up as another."""
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
JSON_HINT = "Send Content-Type: application/json."
UNSAID = ("", "text/plain;charset=utf-8")
"""Content types of a request that names none: the second is what `fetch` puts there by itself."""
PAGE_HINT = "Use the page this server serves, or a bearer token."
PAGE_KEY = HEADER.lower().encode()
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PRIVATE = ("/my", "/mcp")
PRIVATE_BELOW = ("/my/", "/mcp/")
"""What needs a token, whoever asks and whether it is there or not."""

_EVERYWHERE = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_PRIVATE = [*_EVERYWHERE, (b"cache-control", b"no-store"), (b"content-security-policy", BARE_POLICY.encode())]
_PUBLIC = [*_EVERYWHERE, (b"cache-control", b"no-cache"), (b"content-security-policy", PAGE_POLICY.encode())]


class Headers:
    """A request's headers, as far as they decide anything. Those that must be alone are refused when given twice."""

    __slots__ = ("_found",)

    ALONE = frozenset(
        {b"host", b"authorization", b"content-type", b"content-length", b"origin", b"last-event-id", PAGE_KEY}
    )

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        found: dict[bytes, bytes] = {}
        for name, value in raw:
            if name in found:
                if name in self.ALONE:
                    raise WrongForm(f"The header {name.decode('latin-1')!r} is given twice.", hint="Send it once.")
                value = found[name] + b"; " + value
            found[name] = value
        self._found = found

    def get(self, name: bytes) -> str:
        return self._found.get(name, b"").decode("latin-1")


class UserIsolationMiddleware:
    """See the module."""

    def __init__(self, app: ASGIApp, *, settings: ServerSettings, routes: Iterable[Route]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in settings.allowed_hosts)
        self._ordinary_bytes = settings.max_body_bytes
        self._file_bytes = settings.max_payload_bytes
        self._room = BodyRoom(settings.max_payload_bytes)
        self._routes = RouteTable(routes)
        self._origins = Origins(settings.page_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing here speaks WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        began = time.perf_counter()
        guarded = _Guarded(send, _PRIVATE if _is_private(scope["path"]) else _PUBLIC)
        try:
            headers = Headers(scope["headers"])
            host = self._check_host(headers)
            if scope["method"] == "OPTIONS" and self._origins.is_preflight(scope["path"], headers.get):
                await self._origins.preflight(headers.get(b"origin"))(scope, receive, guarded)
                return
            guarded.more = self._origins.allowing(scope["path"], headers.get)
            receive = await self._admit(scope, receive, headers, host)
            route: Route | None = scope["byleave.route"]
            if route is None:
                await self._app(scope, receive, guarded)
            else:  # found and checked already: what the framework would do between is find it once more
                async with self._room_for(scope, headers, route):
                    response = await route.endpoint(Request(scope, receive))
                await response(scope, receive, guarded)
        except ClientDisconnect:
            log.info("request broken off by its sender", method=scope["method"], path=scope["path"])
            return
        except Exception as error:  # the boundary: whatever went wrong, the user gets a problem and not a closed line
            if guarded.status:
                raise
            await problem_response(error)(scope, receive, guarded)
        if scope["method"] not in SAFE_METHODS:
            _log_request(scope, guarded.status, began)

    async def _admit(self, scope: Scope, receive: Receive, headers: Headers, host: str) -> Receive:
        path: str = scope["path"]
        private = _is_private(path)
        principal: Principal | None = None
        if private:
            parts: Services = scope["app"].state.parts
            principal = await self._authenticate(parts, headers, scope["method"], host)
            scope["byleave.principal"] = principal
        route, scope["path_params"] = self._find(scope["method"], path, private=private)
        scope["byleave.route"] = route
        if private and principal is not None and route is not None:
            _check_scopes(principal, route)
            await _check_project(scope["app"].state.parts, principal, scope["path_params"].get("project_id"))
        if scope["method"] in SAFE_METHODS:
            return receive
        if route is not None and route.programs_only:
            _check_no_page(headers)
        elif not private and route is not None:
            # What a page posts without a token sets or clears its cookie: only our own pages may have that done.
            _check_same_origin(headers, scope["method"], host, needs_json=not route.plain_form)
        limit = self._limit(route, private=private)
        _check_body(headers, limit, needs_json=route is not None and route.body is not None, private=private)
        return _limited(receive, limit)

    def _limit(self, route: Route | None, *, private: bool) -> int:
        """The largest body a route takes."""
        if not private:
            return min(SMALL_BYTES, self._ordinary_bytes)
        return self._file_bytes if route is not None and route.carries_file else self._ordinary_bytes

    def _room_for(self, scope: Scope, headers: Headers, route: Route) -> AbstractAsyncContextManager[None]:
        if scope["method"] in SAFE_METHODS or not _is_private(scope["path"]):
            return nullcontext()
        length = headers.get(b"content-length")
        if not length and not headers.get(b"transfer-encoding"):
            return nullcontext()
        size = int(length) if length.isdigit() else self._limit(route, private=True)
        return nullcontext() if size <= SMALL_BYTES else self._room.take(_whose_room(scope["byleave.principal"]), size)

    def _check_host(self, headers: Headers) -> str:
        host = headers.get(b"host")
        parts = HOST.fullmatch(host.lower())
        name = None if parts is None else parts[1] or parts[2]
        if name is None or (name not in self._hosts and "*" not in self._hosts):
            raise Misdirected(
                f"This server does not answer to the host {host[:100]!r}.",
                hint="Use its own address, or add the name to BYLEAVE_ALLOWED_HOSTS.",
            )
        return host

    async def _authenticate(self, parts: Services, headers: Headers, method: str, host: str) -> Principal:
        authorization = headers.get(b"authorization")
        if authorization:
            kind, _, token = authorization.partition(" ")
            if kind.lower() != "bearer" or not token.strip():
                raise Unauthenticated("The Authorization header is not a bearer token.", hint=TOKEN_HINT)
            return await parts.verifier.verify(token.strip())
        cookies = cookies_in(headers.get(b"cookie"))
        if not cookies:
            raise Unauthenticated(
                "This needs a token.", hint=f"Send `Authorization: Bearer …`. {TOKEN_HINT} In a browser: {LINK_HINT}"
            )
        _check_same_origin(headers, method, host)
        return await parts.sessions.verify(cookies, headers.get(PAGE_KEY))

    def _find(self, method: str, path: str, *, private: bool) -> tuple[Route | None, dict[str, str]]:
        """The route of a path. Behind the token there is nothing but what is listed; elsewhere the router decides."""
        found = self._routes.find(path)
        if found is None:
            if private:
                raise NotFound("There is nothing here.", hint="See /openapi.json for what there is.")
            return None, {}
        methods, parameters = found
        route = methods.get(method)
        if route is None:
            raise MethodNotAllowed(method[:20], sorted(methods))
        return route, parameters


class _Guarded:
    """Adds the headers every answer carries, and remembers the status. What an answer says of itself comes first."""

    __slots__ = ("_headers", "_send", "more", "status")

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self.more: list[tuple[bytes, bytes]] = []
        """Those that depend on the request."""
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = list(message.get("headers", ()))
            said = {name for name, _ in own}
            said |= {name for name, _ in self.more if name != b"vary"}
            message["headers"] = [*own, *self.more, *(pair for pair in self._headers if pair[0] not in said)]
        await self._send(message)


def _is_private(path: str) -> bool:
    return path in PRIVATE or path.startswith(PRIVATE_BELOW)


def _check_scopes(principal: Principal, route: Route) -> None:
    if route.people_only and ScopeName.AGENT in principal.scopes:
        raise RefusedError("An agent's token can never do this.", hint="Use a person's token, without `agent`.")
    wanted = route.scopes or frozenset()
    for scopes in (frozenset({scope}) for scope in sorted(wanted)) if route.needs_all else (wanted,):
        principal.require(scopes)


def _whose_room(principal: Principal) -> tuple[str, bool]:
    """A user's agents share one of their own: what they leave unfinished must not hold up the machine's results."""
    return principal.user_id, ScopeName.AGENT in principal.scopes


def _check_same_origin(headers: Headers, method: str, host: str, *, needs_json: bool = True) -> None:
    """A browser sends the cookie along with requests other pages make; those are not the user's."""
    site = headers.get(b"sec-fetch-site")
    if site and site not in (("same-origin", "none") if method in SAFE_METHODS else ("same-origin",)):
        raise RefusedError("Another page made this request.", hint=PAGE_HINT)
    if method in SAFE_METHODS:
        return
    origin = headers.get(b"origin")
    if origin and not is_of(origin, host):
        raise RefusedError("Another page made this request.", hint=PAGE_HINT)
    if not origin and not site:
        raise RefusedError("This request does not say which page made it.", hint=PAGE_HINT)
    if needs_json and _media_type(headers) != "application/json":
        raise WrongMediaType("A request with the page's cookie must be JSON.", hint=JSON_HINT)


def _check_no_page(headers: Headers) -> None:
    """A browser says which page posts, and brings the cookie; a program does neither."""
    if headers.get(b"origin") or headers.get(b"cookie") or headers.get(b"sec-fetch-site") not in ("", "none"):
        raise RefusedError("A page made this request; only programs may.", hint="Open the link in a browser instead.")


async def _check_project(parts: Services, principal: Principal, project_id: str | None) -> None:
    if project_id is None:
        return
    if not IDENTIFIER.fullmatch(project_id) or not await parts.store.chat.owns(principal.user_id, project_id):
        raise no_project(project_id)


def no_project(project_id: str) -> NotFound:
    """The same words for a project that is not there and for one that is somebody else's."""
    return NotFound(f"No project {project_id[:100]!r}.", hint="See `GET /my/projects` for yours.")


def _media_type(headers: Headers) -> str:
    return headers.get(b"content-type").partition(";")[0].strip().lower()


def _check_body(headers: Headers, limit: int, *, needs_json: bool, private: bool) -> None:
    length = headers.get(b"content-length")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    empty = length in ("", "0") and not headers.get(b"transfer-encoding")
    if _media_type(headers) == "application/json" or not (needs_json or not empty):
        return
    # Only a program sends a token, so it need not say what every body is; a page's forms never carry one.
    unsaid = headers.get(b"content-type").replace(" ", "").lower() in UNSAID
    if empty or not (unsaid and private and headers.get(b"authorization")):
        raise WrongMediaType("The body must be JSON.", hint=JSON_HINT)


def _limited(receive: Receive, limit: int) -> Receive:
    left = limit

    async def counted() -> Message:
        nonlocal left
        message = await receive()
        if message["type"] == "http.request":
            left -= len(message.get("body", b""))
            if left < 0:
                raise _too_large(limit)
        return message

    return counted


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is larger than {limit} bytes.", hint="Send less, or in several requests.")


def _log_request(scope: Scope, status: int, began: float) -> None:
    route: Route | None = scope.get("byleave.route")
    principal: Principal | None = scope.get("byleave.principal")
    if route is not None and route.quiet and status < 400:
        return
    log.info(
        "request",
        method=scope["method"],
        route=route.path if route else None,
        user=principal.user_id if principal else None,
        status=status,
        ms=round((time.perf_counter() - began) * 1000, 1),
    )
