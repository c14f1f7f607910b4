"""The server: HTTP in front of the executor, the approvals and the feed.

Read `app` first, then `isolation` (what every request passes before a route sees it) and `streams` (the feed). Routes
are plain functions of a request, listed once with who may call them; nothing here judges a call, writes SQL or
executes a tool.
"""

from .app import create_app
from .auth import Principal, issue_token, server_secret
from .openapi import openapi_document
from .parts import Parts, open_parts
from .serving import Listening, run_server, serve
from .signin import SignIn
from .streams import StreamManager

__all__ = [
    "Listening",
    "Parts",
    "Principal",
    "SignIn",
    "StreamManager",
    "create_app",
    "issue_token",
    "open_parts",
    "openapi_document",
    "run_server",
    "serve",
    "server_secret",
]
