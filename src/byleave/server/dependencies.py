"""Dependencies of the routes: the services, the caller with the scopes a route needs, the project, strict bodies.

`UserIsolationMiddleware` has verified the token before anything here runs. A route says with `Allow` which scopes open
it; `StrictRoute` raises for a private path without one. Bodies are bounded and parsed as strict JSON
before FastAPI validates them with the protocol's models.
"""

import hashlib
import re
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BeforeValidator
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from byleave.protocol.errors import NotFound, RefusedError
from byleave.protocol.generation import GENERATION, GENERATION_FORM, Generation
from byleave.protocol.states import Scope
from byleave.server.auth.tokens import TOKEN_HINT, Principal

from .bodies import RequestBody, Takes
from .errors import Unauthenticated, WrongForm
from .isolation import SAFE_METHODS, Headers, check_no_page, check_same_origin, is_private
from .services import Services

IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
IDENTIFIER_SCHEMA: dict[str, Any] = {"pattern": f"^{IDENTIFIER.pattern}$"}
"""For the OpenAPI document: the routes check it themselves, in words."""
TAKES = "byleave_takes"
NOTHING = Takes()
CLIENT_KEY = "Byleave-Client-Key"
CLIENT_KEY_HEADER = {
    "name": CLIENT_KEY,
    "in": "header",
    "required": False,
    "description": "What a client made at random at first contact: whoever does not send it is another from then on.",
    "schema": {"type": "string"},
}
GENERATION_HEADER = {
    "name": GENERATION,
    "in": "header",
    "required": False,
    "description": "The number of the client's start, and a random name of it: `7-` and 32 hexadecimal digits.",
    "schema": {"type": "string", "pattern": f"^{GENERATION_FORM}$"},
}

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def principal_of(request: Request) -> Principal:
    """The caller, already verified by the middleware."""
    principal = request.scope.get("byleave.principal")
    if principal is None:  # the router takes the path for private, the middleware does not
        raise Unauthenticated("This needs a token.", hint=TOKEN_HINT)
    return principal


class Allow:
    """Dependency on the caller, who must have one of these scopes, or `every` one of them.

    `people_only`: never a token that carries `agent`, whatever else it carries.
    """

    def __init__(self, *scopes: Scope, every: bool = False, people_only: bool = False) -> None:
        self.scopes = frozenset(scopes)
        self.people_only = people_only
        self.choices = [frozenset({scope}) for scope in sorted(scopes)] if every else [self.scopes]
        """One scope of each is needed."""

    async def __call__(self, request: Request) -> Principal:
        principal = principal_of(request)
        if self.people_only and Scope.AGENT in principal.scopes:
            raise RefusedError("An agent's token can never do this.", hint="Use a person's token, without `agent`.")
        for choice in self.choices:
            principal.require(choice)
        if Scope.EXECUTE in self.scopes and (key := request.headers.get(CLIENT_KEY)):
            principal = replace(principal, client_key=hashlib.sha256(key.encode()).hexdigest())
        if Scope.EXECUTE in self.scopes and (text := request.headers.get(GENERATION)):
            generation = Generation.parse(text)
            if generation is None:
                raise WrongForm(f"The header {GENERATION} has another form.", hint="Send it as `7-` and 32 hex digits.")
            principal = replace(principal, client_generation=generation)
        return principal

    @property
    def security(self) -> list[dict[str, list[str]]]:
        """The required scopes, for the OpenAPI document."""
        if len(self.choices) > 1:
            return [{"bearer": sorted(self.scopes)}]
        return [{"bearer": [scope.value]} for scope in sorted(self.scopes)]

    @property
    def lets_clients_in(self) -> bool:
        """True if clients call this route as themselves, for the OpenAPI document."""
        return Scope.EXECUTE in self.scopes and self.scopes < frozenset(Scope)


Anyone = Annotated[Principal, Depends(Allow(*Scope))]
Chatter = Annotated[Principal, Depends(Allow(Scope.CHAT, people_only=True))]
Approver = Annotated[Principal, Depends(Allow(Scope.APPROVE))]
Executor = Annotated[Principal, Depends(Allow(Scope.EXECUTE))]
ChatOrApprove = Annotated[Principal, Depends(Allow(Scope.CHAT, Scope.APPROVE))]
Person = Annotated[Principal, Depends(Allow(Scope.CHAT, Scope.APPROVE, people_only=True))]


async def services_of(request: Request) -> Services:
    """Services of the server that received this request."""
    return request.app.state.parts


async def own_project(project_id: str, request: Request) -> str:
    """The project in the path, which must be the caller's."""
    await check_project(request.app.state.parts, principal_of(request), project_id)
    return project_id


Parts = Annotated[Services, Depends(services_of)]
Project = Annotated[str, Depends(own_project)]


async def check_project(parts: Services, principal: Principal, project_id: str | None) -> None:
    """Refuse another user's project in the same words as one that does not exist."""
    if project_id is None:
        return
    if not IDENTIFIER.fullmatch(project_id) or not await parts.store.chat.owns(principal.user_id, project_id):
        raise NotFound(f"No project {project_id[:100]!r}.", hint="See `GET /my/projects` for yours.")


async def check_client(parts: Services, principal: Principal, project_id: str, client_id: str, *, joins: bool) -> None:
    """Refuse a client whose key or token is not the one it is known by since first contact, or that is a copy.

    `joins`: it opens a stream. A token is then added to those of a client without a key, and a later start of it
    takes the place of the one before.
    """
    key, generation = principal.client_key, principal.client_generation
    known = await parts.store.machines.connected(
        project_id,
        client_id,
        token=principal.token,
        key=key,
        joins=joins,
        generation=generation,
        displaces=generation is not None and parts.presence.has_other(project_id, client_id, generation),
    )
    if not known:
        raise RefusedError(
            f"The client {client_id!r} is another: this is not the key or token it is known by.",
            hint=f"Send its key in the header {CLIENT_KEY}, with a token it has used; or come with a new client id.",
        )


async def from_a_program(request: Request) -> None:
    """Refuse requests from any page, our own included: a browser marks them."""
    check_no_page(request.scope["byleave.headers"])


async def from_our_page(request: Request) -> None:
    """Refuse requests from other pages: they would set or clear our page's cookie."""
    headers: Headers = request.scope["byleave.headers"]
    check_same_origin(headers, request.method, headers.get(b"host", ""), request.url.scheme)


async def from_our_form(request: Request) -> None:
    """As `from_our_page`, for a button on one of our pages, which posts a form."""
    headers: Headers = request.scope["byleave.headers"]
    check_same_origin(headers, request.method, headers.get(b"host", ""), request.url.scheme, needs_json=False)


def _flag(value: object) -> object:
    if value not in ("true", "false"):
        raise ValueError("Input should be true or false")
    return value == "true"


Flag = Annotated[bool, BeforeValidator(_flag)]
"""A boolean in a query: `true` or `false`, as its schema says, and not `0`, `on` or `yes`."""


def takes(*, file: bool = False, mended: bool = False, printable: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Declare the body of an endpoint, see `Takes`."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, TAKES, Takes(file, mended, printable))
        return endpoint

    return mark


class StrictRequest(Request):
    """A request whose JSON is strict."""

    async def read(self) -> None:
        self._body, self._json = await self.scope["byleave.body"].parse()


class StrictRoute(APIRoute):
    """A route that checks the form of a request before FastAPI reads it."""

    _built = False

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        options["operation_id"] = options.get("operation_id") or endpoint.__name__
        super().__init__(path, endpoint, **options)
        allow = next((one.call for one in self.dependant.dependencies if isinstance(one.call, Allow)), None)
        if is_private(path) is (allow is None):
            raise TypeError(f"{path} must say who may call it, if and only if it is private.")
        self.allow = allow
        described: dict[str, Any] = {"security": [] if allow is None else allow.security}
        if allow is not None and allow.lets_clients_in and "{project_id}" in path:
            described["parameters"] = [CLIENT_KEY_HEADER, GENERATION_HEADER]
        self.openapi_extra = {**described, **(self.openapi_extra or {})}

    def build(self) -> None:
        """Build the models that validate requests, once: they are deferred, since a process uses few of them."""
        if self._built:
            return
        self._built = True
        with warnings.catch_warnings():
            # FastAPI sets an alias; for models that are not deferred it silences this itself.
            warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
            for field in (self.body_field, *self.dependant.query_params):
                if field is not None:
                    field.validate(None, {}, loc=())

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        has_query, has_body = bool(self.dependant.query_params), self.body_field is not None

        async def strict(request: Request) -> Response:
            self.build()
            if has_query:
                _refuse_doubles(request)
            if request.method in SAFE_METHODS:
                return await handle(request)
            await self.admit(request)
            if not has_body:
                return await handle(request)
            read = StrictRequest(_as_json(request.scope), request.receive)
            await read.read()
            return await handle(read)

        return strict

    async def admit(self, request: Request) -> None:
        """Check the body's size and type, and take room for it; the middleware gives it back."""
        body: RequestBody = request.scope["byleave.body"]
        await body.admit(getattr(self.endpoint, TAKES, NOTHING), needs_json=self.body_field is not None)


class HotRoute(StrictRoute):
    """A route of every tool call. It fills in the endpoint's parameters itself: FastAPI takes 100 µs for that, a tenth
    of the server's time for a call (`bench`).

    It supports only what these endpoints declare: dependencies on the request and the project, text in the path and
    in headers, a body, and a model or a response."""

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["method"] not in self.methods:
            await super().handle(scope, receive, send)
            return
        self.build()
        request = Request(scope, receive)
        await self.admit(request)
        response = await self.endpoint(**await self._values(request))
        if not isinstance(response, Response):
            response = Response(response.model_dump_json(), media_type="application/json")
        await response(scope, receive, send)

    async def _values(self, request: Request) -> dict[str, Any]:
        dependant, path = self.dependant, request.path_params
        values: dict[str, Any] = {field.name: path[field.name] for field in dependant.path_params}
        if dependant.request_param_name is not None:
            values[dependant.request_param_name] = request
        for needed in dependant.dependencies:
            of_path = {field.name: path[field.name] for field in needed.path_params}
            values[needed.name or ""] = await cast(Any, needed.call)(request=request, **of_path)
        for field in dependant.header_params:
            values[field.name] = request.headers.get(field.alias)
            if values[field.name] is None and field.field_info.is_required():
                raise RequestValidationError([{"loc": ("header", field.alias), "msg": "Field required"}])
        if self.body_field is not None:
            body: RequestBody = request.scope["byleave.body"]
            _, value = await body.parse()
            values[self.body_field.name], errors = self.body_field.validate(value, {}, loc=("body",))
            if errors:
                raise RequestValidationError(errors)
        return values


async def strict_body(request: Request) -> tuple[bytes, Any]:
    """The bytes of a body that a library parses, once they have passed our own checks, and their value."""
    body: RequestBody = _as_json(request.scope)["byleave.body"]
    return await body.parse()


def _as_json(scope: Any) -> Any:
    """Mark the body as JSON, whatever its header says: FastAPI and other libraries check the header again."""
    headers = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
    scope["headers"] = [*headers, (b"content-type", b"application/json")]
    return scope


def _refuse_doubles(request: Request) -> None:
    pairs = request.query_params.multi_items()
    if len(dict(pairs)) != len(pairs):
        raise WrongForm("A query parameter is given twice.", hint="Give each parameter once.")
