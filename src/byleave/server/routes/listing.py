"""All routes of the server, the busiest first: the router looks through them in this order."""

from byleave.server.routing import Route

from . import approvals, chat, grants, mcp, overview, tools
from . import check as checking
from . import feed as stream
from . import page as pages
from . import sign_in as entering
from . import undo as undoing

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
