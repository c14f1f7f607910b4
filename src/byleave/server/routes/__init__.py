"""The routes, one module for each resource; the busiest come first, since the router tries them in this order."""

from . import about, approvals, audit, chat, feed, grants, mcp, notices, page, policy, projects, sign_in, tools, undo

_MODULES = (tools, feed, chat, approvals, grants, mcp, undo, projects, audit, policy, notices, page, sign_in, about)
ROUTERS = (tools.hot, *(module.router for module in _MODULES))
