"""All routes of the server, the busiest first: the router looks through them in this order."""

from . import approvals, chat, pages, stream, tools
from .routing import Route

ROUTES: tuple[Route, ...] = (*tools.ROUTES, *stream.ROUTES, *chat.ROUTES, *approvals.ROUTES, *pages.ROUTES)
