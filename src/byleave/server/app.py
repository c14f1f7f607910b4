"""create_app: the routes, the one middleware, and the parts behind them.

Without `parts` the app opens its own when it starts and closes them when it stops; with them, whoever opened them
closes them. Routes come from the lists in their modules; there is no other way in.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from byleave.protocol.errors import ByleaveError
from byleave.server.auth.isolation import UserIsolationMiddleware
from byleave.server.routes.listing import ROUTES
from byleave.settings import ServerSettings
from byleave.store import STORAGE_ERRORS

from .openapi import openapi_text
from .problems import handle
from .routing import PlainRoute, Route
from .services import Services, open_services


class GuardedApp(FastAPI):
    """FastAPI behind the guard: no request reaches the framework before the one middleware has let it in.

    A listed route is answered by the guard itself; the framework is left with what is not listed.
    """

    guard: UserIsolationMiddleware

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
        else:
            scope["app"] = self
            await self.guard(scope, receive, send)


def create_app(settings: ServerSettings, *, parts: Services | None = None) -> FastAPI:
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

    app = GuardedApp(
        title="Byleave",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    app.state.description = openapi_text
    for route in ROUTES:
        _add(app, route)
    for kind in (ByleaveError, *STORAGE_ERRORS, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, handle)
    app.guard = UserIsolationMiddleware(super(GuardedApp, app).__call__, settings=settings, routes=ROUTES)
    return app


def _add(app: FastAPI, route: Route) -> None:
    app.router.add_api_route(
        route.path,
        route.endpoint,
        methods=[route.method],
        response_model=None,
        route_class_override=PlainRoute,
        include_in_schema=False,
    )
