"""All routes of the server, the busiest first: the router looks through them in this order."""

from . import approvals, chat, checking, entering, grants, mcp, overview, pages, stream, tools, undoing
from .routing import Route

ROUTES: tuple[Route, ...] = (
    *tools.ROUTES,
    *stream.ROUTES,
    *chat.ROUTES,
    *approvals.ROUTES,
    *grants.ROUTES,
    *mcp.ROUTES,
    *undoing.ROUTES,
    *overview.ROUTES,
    *checking.ROUTES,
    *pages.ROUTES,
    *entering.ROUTES,
)
