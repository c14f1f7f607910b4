"""MCP over streamable HTTP: the tools for hosts that run elsewhere, under `/mcp/{project_id}`.

Every request passes the same checks as all others: a bearer token of ours, the user's own project, our host names. It
needs a bearer token, never the page's cookie, and no page of another origin may use it. The protocol itself is in
`mcp_requests`, loaded with the first request and only if the `mcp` extra is installed.
"""

import asyncio
import importlib
from types import ModuleType
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from starlette.requests import Request
from starlette.responses import Response

from byleave.installation import missing_extra
from byleave.protocol.errors import NotFound, RefusedError
from byleave.protocol.states import Scope
from byleave.protocol.wire import WireModel
from byleave.server.auth.tokens import TOKEN_HINT, Principal
from byleave.server.dependencies import Allow, Parts, Project, StrictRoute, check_project, strict_body, takes
from byleave.server.errors import NoToken, Unavailable, WrongForm
from byleave.server.isolation import is_of, unlogged
from byleave.server.problems import RESOURCE_METADATA, is_mcp, issuer_of, origin_of, problems
from byleave.server.services import Services


async def by_bearer(request: Request) -> None:
    """Refuse the page's cookie, and pages of other origins."""
    if "authorization" not in request.headers:
        raise NoToken("MCP needs a bearer token.", hint=f"Send `Authorization: Bearer …`. {TOKEN_HINT}")
    origin = request.headers.get("origin")
    if origin is not None and not is_of(origin, request.headers["host"], request.url.scheme):
        raise RefusedError("Another page made this request.", hint="Use an MCP host, not a page.")


router = APIRouter(route_class=StrictRoute, tags=["mcp"], dependencies=[Depends(by_bearer)])
about = APIRouter(route_class=StrictRoute, tags=["mcp"])
"""Needs no token: it tells where to get one."""

OfAgent = Annotated[Principal, Depends(Allow(Scope.AGENT, Scope.CHAT))]
WHICH = (
    "`/mcp` takes the project from the header Byleave-Project, or your only one. "
    "Protocol versions 2025-03-26 and later."
)


async def answer_mcp(parts: Parts, principal: OfAgent, project: Project, request: Request) -> Response:
    """Answer an MCP request about the project in the path."""
    return await _answer(parts, principal, project, request)


async def answer_mcp_by_header(
    parts: Parts,
    principal: OfAgent,
    request: Request,
    named: Annotated[str | None, Header(alias="Byleave-Project", description="Which of your projects.")] = None,
) -> Response:
    """Answer an MCP request about the project in the header, else about the only one."""
    return await _answer(parts, principal, await _project(parts, principal, named), request)


async def _answer(parts: Services, principal: Principal, project: str, request: Request) -> Response:
    requests = await _requests()
    # The library parses on the event loop, any number of values, and takes the last of two equal keys.
    body, message = await strict_body(request) if request.method == "POST" else (b"", None)
    return await requests.answer_request(parts, principal, project, request, body, message)


class ResourceMetadata(WireModel):
    """Who gives the tokens that a resource takes (RFC 9728)."""

    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


@about.get(
    f"{RESOURCE_METADATA}/{{path:path}}",
    summary="Who gives tokens for MCP",
    operation_id="mcp_resource_metadata",
    responses=problems(404),
)
async def resource_metadata(parts: Parts, request: Request, path: str) -> ResourceMetadata:
    """For hosts that sign in by themselves: the identity provider whose tokens this server takes."""
    issuer = issuer_of(parts.settings)
    if not is_mcp(f"/{path}") or issuer is None:
        raise NotFound("No identity provider gives tokens for this.", hint=TOKEN_HINT)
    return ResourceMetadata(
        resource=f"{origin_of(request.scope)}/{path}",
        authorization_servers=[issuer],
        scopes_supported=[f"{parts.settings.token_scope_prefix}{Scope.AGENT}"],
        bearer_methods_supported=["header"],
        resource_name="Byleave",
    )


for endpoint in (answer_mcp, answer_mcp_by_header):
    unlogged(takes(file=True)(endpoint))

for path, endpoint, again in (("/mcp/{project_id}", answer_mcp, ""), ("/mcp", answer_mcp_by_header, "_again")):
    for method, name, summary, description, kind, errors in (
        (
            "POST",
            "post_mcp",
            "Speak MCP",
            "One JSON-RPC message; the answer comes as JSON or as a stream.",
            "*/*",
            (400, 404, 408, 413, 415, 429, 503),
        ),
        (
            "GET",
            "listen_mcp",
            "Resume the stream of an MCP call",
            "After a broken connection, with the header Last-Event-ID. The server has no messages of its own.",
            "text/event-stream",
            (400, 404, 405, 503),
        ),
        ("DELETE", "end_mcp", "End an MCP session", "Cancels its open calls.", "*/*", (400, 404, 503)),
    ):
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            operation_id=name + again,
            summary=summary,
            description=f"{description} {WHICH}",
            response_class=Response,
            responses={
                200: {"content": {kind: {"schema": {}}}},
                "default": {"description": "MCP's own answer: 202 to a notification, an error in JSON-RPC."},
                **problems(*errors),
            },
        )


async def _project(parts: Services, principal: Principal, named: str | None) -> str:
    """The project in the header, else the only one."""
    if named is not None:
        await check_project(parts, principal, named)
        return named
    projects = await parts.store.chat.projects(principal.user_id)
    if len(projects) != 1:
        raise WrongForm(
            f"You have {len(projects)} projects, so say which one.",
            hint="Use /mcp/PROJECT_ID, or send the header Byleave-Project. See `GET /my/projects` for yours.",
        )
    return projects[0].id


async def _requests() -> ModuleType:
    try:
        # The imports take seconds on a small machine: in a thread they hold up nobody else.
        return await asyncio.to_thread(importlib.import_module, "byleave.server.routes.mcp_requests")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise Unavailable("This server does not speak MCP.", hint=missing_extra("mcp")) from None
