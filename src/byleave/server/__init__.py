"""The server: HTTP in front of the executor, the approvals and the feed.

Read `app` first, then `isolation` (what every request passes before a route sees it) and `streams` (the feed). Routes
are plain functions of a request, listed once with who may call them; nothing here judges a call, writes SQL or
executes a tool. The names below are brought in when they are asked for: who wants a token need not load a server.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import create_app
    from .auth.links import SignIn
    from .auth.tokens import Principal, issue_token, server_secret
    from .feed import StreamManager
    from .openapi import openapi_document
    from .services import Services, open_services
    from .serving import Listening, run_server, serve

__all__ = [
    "Listening",
    "Principal",
    "Services",
    "SignIn",
    "StreamManager",
    "create_app",
    "issue_token",
    "open_services",
    "openapi_document",
    "run_server",
    "serve",
    "server_secret",
]

_HOMES = {
    "Listening": "serving",
    "Services": "services",
    "Principal": "auth.tokens",
    "SignIn": "auth.links",
    "StreamManager": "feed",
    "create_app": "app",
    "issue_token": "auth.tokens",
    "open_services": "services",
    "openapi_document": "openapi",
    "run_server": "serving",
    "serve": "serving",
    "server_secret": "auth.tokens",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
