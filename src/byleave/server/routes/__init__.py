"""The routes, one module for each resource; the busiest come first, since the router tries them in this order."""

from . import about, approvals, audit, chat, feed, grants, mcp, page, policy, projects, provider, sign_in, tools, undo

ROUTERS = (
    tools.hot,
    *(
        module.router
        for module in (
            *(tools, feed, chat, approvals, grants, mcp, undo),
            *(projects, audit, policy, page, sign_in, provider, about),
        )
    ),
    mcp.about,
)
