"""MCP over streamable HTTP: the tools for hosts that run elsewhere, under `/mcp/{project_id}`.

Every request passes the same guard as all others: a bearer token of ours, the user's own project, our host names. Only
a bearer token opens it, never the page's cookie, and a page of another origin never. What speaks the protocol is in
`mcp_sessions`, loaded with the first request: without the `mcp` extra there is nothing to load.
"""

import asyncio
import importlib
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from byleave.protocol.errors import RefusedError
from byleave.protocol.states import Scope
from byleave.server.auth.isolation import IDENTIFIER, no_project
from byleave.server.auth.tokens import TOKEN_HINT
from byleave.server.problems import Unauthenticated, Unavailable, WrongForm
from byleave.server.routing import Route, parts_of, principal_of
from byleave.server.services import Services

if TYPE_CHECKING:
    from byleave.server.mcp_sessions import McpSessions

PART = "mcp"
PROJECT_HEADER = "byleave-project"


async def post_mcp(request: Request) -> Response:
    return await _answer(request)


async def listen_mcp(request: Request) -> Response:
    return await _answer(request)


async def end_mcp(request: Request) -> Response:
    return await _answer(request)


async def _answer(request: Request) -> Response:
    if "authorization" not in request.headers:
        raise Unauthenticated("MCP needs a bearer token.", hint=f"Send `Authorization: Bearer …`. {TOKEN_HINT}")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers["host"].lower():
        raise RefusedError("Another page made this request.", hint="Use an MCP host, not a page.")
    project_id = await _project(request)
    sessions = await _sessions(parts_of(request))
    return await sessions.answer(principal_of(request).user_id, project_id)


async def _project(request: Request) -> str:
    """The project in the path, which the guard has checked; else the one in the header, else the only one."""
    in_path: str | None = request.path_params.get("project_id")
    if in_path is not None:
        return in_path
    chat, user_id = parts_of(request).store.chat, principal_of(request).user_id
    named = request.headers.get(PROJECT_HEADER)
    if named is not None:
        if not IDENTIFIER.fullmatch(named) or not await chat.owns(user_id, named):
            raise no_project(named)
        return named
    projects = await chat.projects(user_id)
    if len(projects) != 1:
        raise WrongForm(
            f"You have {len(projects)} projects, so say which one.",
            hint="Use /mcp/PROJECT_ID, or send the header Byleave-Project. See `GET /my/projects` for yours.",
        )
    return projects[0].id


async def _sessions(parts: Services) -> "McpSessions":
    if PART not in parts.on_demand:
        try:
            # Seconds of imports on a small machine: everybody else goes on meanwhile.
            module = await asyncio.to_thread(importlib.import_module, "byleave.server.mcp_sessions")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
                raise
            raise Unavailable(
                "This server does not speak MCP.", hint="In a checkout: `pip install '.[mcp]'`."
            ) from None
        parts.on_demand.setdefault(PART, module.McpSessions(parts))
    return cast("McpSessions", parts.on_demand[PART])


_SCOPES = frozenset({Scope.AGENT, Scope.CHAT})
_WHICH = (
    "`/mcp` takes the project from the header Byleave-Project, or your only one. "
    "Protocol versions 2025-03-26 and later."
)

ROUTES = tuple(
    Route(
        method,
        path,
        endpoint,
        summary,
        f"{description} {_WHICH}",
        "mcp",
        _SCOPES,
        carries_file=method == "POST",
        headers=headers,
        answer_type=kind,
        errors=(400, 404, 413, 415, 503) if method == "POST" else (400, 404, 503),
        quiet=True,
    )
    for path, headers in (
        ("/mcp/{project_id}", ()),
        ("/mcp", (("Byleave-Project", "Which of your projects."),)),
    )
    for method, endpoint, summary, description, kind in (
        ("POST", post_mcp, "Speak MCP", "One JSON-RPC message; the answer comes as JSON or as a stream.", "*/*"),
        ("GET", listen_mcp, "Listen to an MCP session", "Messages of the server's own.", "text/event-stream"),
        ("DELETE", end_mcp, "End an MCP session", "Calls off what it has open.", "*/*"),
    )
)
