"""The routes, one module for each resource; the busiest come first, since the router tries them in this order."""

from . import (
    about,
    approvals,
    audit,
    chat,
    feed,
    grants,
    mcp,
    notices,
    page,
    policy,
    projects,
    provider,
    sign_in,
    tools,
    undo,
)

_FIRST = (tools, feed, chat, approvals, grants, mcp, undo)
_THEN = (projects, audit, policy, notices, page, sign_in, provider, about)
ROUTERS = (tools.hot, *(module.router for module in (*_FIRST, *_THEN)), mcp.about)
