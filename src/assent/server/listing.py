"""All routes of the server, the busiest first: the router looks through them in this order."""

from . import approvals, chat, grants, mcp, pages, stream, tools
from .routing import Route

ROUTES: tuple[Route, ...] = (
    *tools.ROUTES,
    *stream.ROUTES,
    *chat.ROUTES,
    *approvals.ROUTES,
    *grants.ROUTES,
    *mcp.ROUTES,
    *pages.ROUTES,
)
