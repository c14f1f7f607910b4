"""create_app: FastAPI with the routers, the one middleware, and the services behind them.

Without `parts` the app opens its own services when it starts and closes them when it stops; given `parts`, it leaves
closing them to the caller.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cached_property
from importlib.metadata import version
from threading import Lock
from typing import Any, cast

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp

from byleave.protocol import engine
from byleave.protocol.schema import wire_schema, wire_words
from byleave.protocol.states import Scope
from byleave.protocol.wire import JsonObject
from byleave.server.routes.page import PageFiles
from byleave.settings import ServerSettings

from .dependencies import StrictRoute
from .isolation import UserIsolationMiddleware
from .problems import problems
from .routes import ROUTERS
from .services import Services, open_services

FASTAPI_ERRORS = ("HTTPValidationError", "ValidationError")
SCHEMAS = "#/components/schemas/"
SCOPES = {
    Scope.CHAT: "post messages, read the conversation",
    Scope.APPROVE: "decide approvals; never together with `agent`",
    Scope.EXECUTE: "execute tools and report their results",
    Scope.AGENT: "call tools from elsewhere; never approves",
}
TAGS = {
    "projects": "Your projects.",
    "chat": "Messages, sessions and runs.",
    "feed": "What happens, as it happens.",
    "tools": "Tool calls and their results.",
    "approvals": "What waits for a person.",
    "grants": "What was allowed beyond one call.",
    "policy": "The rules calls are judged by, and what they would say of one.",
    "audit": "The chain of everything that happened.",
    "notices": "Notifications of what waits.",
    "mcp": "The tools for hosts that speak MCP.",
    "page": "The chat page, and signing in to it.",
    "health": "For whoever watches the server.",
}


class ByleaveApi(FastAPI):
    """FastAPI with an OpenAPI description that uses the protocol's own schema and names every error."""

    settings: ServerSettings
    _making = Lock()

    def build_middleware_stack(self) -> ASGIApp:
        """Put our one middleware around the router; it handles every error, so FastAPI's are left out."""
        return UserIsolationMiddleware(AsyncExitStackMiddleware(self.router), settings=self.settings)

    @cached_property
    def openapi_text(self) -> bytes:
        """The description as sent."""
        return json.dumps(self.openapi()).encode()

    def openapi(self) -> JsonObject:
        """Make the description once, on first use: it takes longer than the rest of the startup."""
        with self._making:
            if self.openapi_schema is None:
                self.openapi_schema = self._describe()
            return self.openapi_schema

    def _describe(self) -> JsonObject:
        for route in self.routes:
            cast(StrictRoute, route).build()
        document = get_openapi(
            title=self.title,
            version=version("byleave"),
            summary="Lets AI agents act on a user's own machine, asking first.",
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
            tags=[{"name": name, "description": text} for name, text in TAGS.items()],
            routes=self.routes,
            separate_input_output_schemas=False,
        )
        for path, operations in document["paths"].items():
            for operation in operations.values():
                _add_errors(path, operation)
        # The longest wait is a setting of this server.
        wait = next(
            one for one in document["paths"]["/my/tools/{tool_id}"]["get"]["parameters"] if one["in"] == "query"
        )
        wait["schema"]["maximum"] = self.settings.max_wait_seconds
        components = document["components"]
        words = {**components["schemas"], **_words()}
        components["schemas"] = {name: words[name] for name in sorted(words) if name not in FASTAPI_ERRORS}
        scopes = "; ".join(f"`{scope}`: {text}" for scope, text in SCOPES.items())
        components["securitySchemes"] = {
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "JWT",
                "description": f"Scopes, in the claim `scope`: {scopes}.",
            }
        }
        return document


def create_app(settings: ServerSettings, *, parts: Services | None = None) -> ByleaveApi:
    """The application, ready for any ASGI server."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        if parts is not None:
            yield
            return
        app.state.parts = opened = await open_services(settings)
        try:
            yield
        finally:
            await opened.close()

    app = ByleaveApi(
        title="Byleave",
        lifespan=lifespan,
        # Served by `routes.about`, from a thread and without files from elsewhere.
        openapi_url=None,
        redirect_slashes=False,
        # Byleave has its own, which masks secrets; FastAPI's would quote invalid requests.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.settings = settings
    app.state.parts, app.state.page = parts, PageFiles()
    for router in ROUTERS:
        # include_router would match every request twice; there is no prefix to add.
        app.router.routes.extend(router.routes)
    return app


def openapi_document(settings: ServerSettings | None = None) -> JsonObject:
    """The description of a server with these settings."""
    return create_app(settings or ServerSettings()).openapi()


def _add_errors(path: str, operation: JsonObject) -> None:
    """Add the errors that follow from an operation's parameters; it names the others itself."""
    found: set[int] = {421, 500}
    if operation["security"]:
        found |= {401, 403, 429}
    if "{project_id}" in path:
        found.add(404)
    if any(one["in"] != "path" for one in operation.setdefault("parameters", [])):
        found.add(400)
    if "requestBody" in operation:
        found |= {400, 408, 413, 415, 429}
    named: JsonObject = operation["responses"]
    named.pop("422", None)  # FastAPI's own
    named |= {str(status): problem for status, problem in problems(*found).items()}
    operation["responses"] = dict(sorted(named.items()))


def _words() -> JsonObject:
    """The protocol's schema, with the descriptions of its fields."""
    words: JsonObject = wire_schema()["$defs"]
    # An editor's engine speaks to its editor, not to the server.
    local = {name for name, word in wire_words().items() if word.__module__ == engine.__name__}
    return _moved({name: word for name, word in words.items() if name not in local})


def _moved(value: Any) -> Any:
    """Point the references of a schema to OpenAPI's components."""
    if isinstance(value, dict):
        return {key: _moved(item) for key, item in cast(JsonObject, value).items()}
    if isinstance(value, list):
        return [_moved(item) for item in cast(list[Any], value)]
    return value.replace("#/$defs/", SCHEMAS) if isinstance(value, str) else value
