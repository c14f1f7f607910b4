"""The routes, one module for each resource; the busiest come first, since the router tries them in this order."""

from . import (
    about,
    approvals,
    audit,
    chat,
    conversation_undo,
    conversations,
    feed,
    files,
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

MODULES = (
    tools,
    feed,
    chat,
    approvals,
    grants,
    mcp,
    undo,
    conversations,
    conversation_undo,
    files,
    projects,
    audit,
    policy,
    notices,
    page,
    sign_in,
    provider,
    about,
)
ROUTERS = (tools.hot, *(module.router for module in MODULES), mcp.about)
