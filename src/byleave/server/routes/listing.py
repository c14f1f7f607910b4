"""All routes of the server, the busiest first: the router looks through them in this order."""

from byleave.server.routing import Route

from . import approvals, chat, check, feed, grants, mcp, overview, page, sign_in, tools, undo

ROUTES: tuple[Route, ...] = (
    *tools.ROUTES,
    *feed.ROUTES,
    *chat.ROUTES,
    *approvals.ROUTES,
    *grants.ROUTES,
    *mcp.ROUTES,
    *undo.ROUTES,
    *overview.ROUTES,
    *check.ROUTES,
    *page.ROUTES,
    *sign_in.ROUTES,
)
