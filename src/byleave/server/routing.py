"""What a route is: where, who may call it, what goes in and what comes out.

The routes are listed once, in the modules beside this one; from that list the app is built, `isolation` takes who may
pass, and `openapi` makes the description. A path below `/my` or `/mcp`
that is not in the list does not exist.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from byleave.protocol.states import Scope
from byleave.server.auth.tokens import Principal

from .services import Services

Endpoint = Callable[[Request], Awaitable[Response]]

ANY_SCOPE = frozenset(Scope)
CHAT = frozenset({Scope.CHAT})
APPROVE = frozenset({Scope.APPROVE})
EXECUTE = frozenset({Scope.EXECUTE})
PEOPLE = frozenset({Scope.CHAT, Scope.APPROVE})


@dataclass(frozen=True)
class Route:
    """One route. `body` is the name of the word it takes, as `schema/` calls it."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    description: str
    tag: str
    scopes: frozenset[Scope] | None = None
    """Any of these opens it; None for what needs no token."""
    needs_all: bool = False
    """Whether it takes all of those scopes."""
    people_only: bool = False
    """Never open to a token that carries `agent`, whatever else it carries."""
    body: str | None = None
    carries_file: bool = False
    """Whether a body may be as large as a file."""
    plain_form: bool = False
    """Whether a button on one of our own pages may post it, without a body; else a post from a page is JSON."""
    programs_only: bool = False
    """Never open to a page, our own included: what a browser posts says so."""
    query: type[BaseModel] | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Request headers it reads, with what they mean."""
    answer: str | None = None
    """The word it answers with; None for what is not JSON."""
    answer_type: str = "application/json"
    status: int = 200
    errors: tuple[int, ...] = ()
    quiet: bool = False
    """Called for every tool call: the record tells of those, the log only when one goes wrong."""

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.split("/"))


class PlainRoute(APIRoute):
    """Calls the endpoint with the request and nothing between: bodies and queries are read by `bodies`."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        return cast(Callable[[Request], Any], self.endpoint)


class JsonAnswer(Response):
    """A word of the protocol as the body."""

    media_type = "application/json"

    def __init__(self, word: BaseModel, status_code: int = 200) -> None:
        super().__init__(word.model_dump_json().encode(), status_code)


def parts_of(request: Request) -> Services:
    """The server this request came to."""
    return request.app.state.parts


def principal_of(request: Request) -> Principal:
    """Who is asking; `isolation` has put it there."""
    return request.scope["byleave.principal"]


class RouteTable:
    """Finds the routes of a path: at once where it has no parameters, else by what stands at each place."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._plain: dict[str, dict[str, Route]] = {}
        self._shaped: dict[int, list[_Shape]] = {}
        for route in routes:
            if "{" not in route.path:
                self._plain.setdefault(route.path, {})[route.method] = route
                continue
            alike = self._shaped.setdefault(len(route.segments), [])
            shape = next((shape for shape in alike if shape.path == route.path), None)
            if shape is None:
                shape = _Shape(route)
                alike.append(shape)
            shape.methods[route.method] = route

    def find(self, path: str) -> tuple[dict[str, Route], dict[str, str]] | None:
        """The routes of a path by method, and the values of its parameters."""
        plain = self._plain.get(path)
        if plain is not None:
            return plain, {}
        segments = path.split("/")
        for shape in self._shaped.get(len(segments), ()):
            for place, word in shape.words:
                if segments[place] != word:
                    break
            else:
                parameters = {name: segments[place] for place, name in shape.parameters}
                if all(parameters.values()):
                    return shape.methods, parameters
        return None


class _Shape:
    """A path with parameters, taken apart once."""

    def __init__(self, route: Route) -> None:
        self.path = route.path
        self.methods: dict[str, Route] = {}
        parts = list(enumerate(route.segments))
        # Compared from the end: that is where paths of one length differ.
        self.words = [(place, part) for place, part in reversed(parts) if not part.startswith("{")]
        self.parameters = [(place, part[1:-1]) for place, part in parts if part.startswith("{")]
