"""The server: HTTP in front of the executor, the approvals and the feed.

Read `app` first, then `isolation` (the middleware every request passes), `dependencies` (what routes ask for), and
`feed`. Nothing here judges a call, writes SQL or executes a tool. The names below are imported on first use, so that
making a token does not load a server.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import create_app, openapi_document
    from .auth.sign_ins import SignIn
    from .auth.tokens import Principal, issue_token, server_secret
    from .feed import StreamManager
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
    "SignIn": "auth.sign_ins",
    "StreamManager": "feed",
    "create_app": "app",
    "issue_token": "auth.tokens",
    "open_services": "services",
    "openapi_document": "app",
    "run_server": "serving",
    "serve": "serving",
    "server_secret": "auth.tokens",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
