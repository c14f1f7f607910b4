"""The client on the user's machine: it connects, asks, checks again, executes and reports.

Start at `handler.py` (ToolHandler). `connect_client` builds a whole client; `ServerApi` alone is enough to talk to a
server. Nothing here imports server code, approves by itself, or runs a call twice. The names below are imported on
first use: code that only needs a token should not load a whole client.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import FeedStream, ServerApi
    from .approvals import ApprovalDesk, PastApproval
    from .connection import ClientConnection, connect_client
    from .handler import ActiveExecution, ToolHandler
    from .identity import Identity, client_directory, load_token, open_identity, save_token
    from .journal import Journal
    from .outbox import Link
    from .prompts import TerminalPrompt
    from .questions import Answer, ApprovalPrompt, Question

__all__ = [
    "ActiveExecution",
    "Answer",
    "ApprovalDesk",
    "ApprovalPrompt",
    "ClientConnection",
    "FeedStream",
    "Identity",
    "Journal",
    "Link",
    "PastApproval",
    "Question",
    "ServerApi",
    "TerminalPrompt",
    "ToolHandler",
    "client_directory",
    "connect_client",
    "load_token",
    "open_identity",
    "save_token",
]

_HOMES = {
    "ActiveExecution": "handler",
    "Answer": "questions",
    "ApprovalDesk": "approvals",
    "ApprovalPrompt": "questions",
    "ClientConnection": "connection",
    "FeedStream": "api",
    "Identity": "identity",
    "Journal": "journal",
    "Link": "outbox",
    "PastApproval": "approvals",
    "Question": "questions",
    "ServerApi": "api",
    "TerminalPrompt": "prompts",
    "ToolHandler": "handler",
    "client_directory": "identity",
    "connect_client": "connection",
    "load_token": "identity",
    "open_identity": "identity",
    "save_token": "identity",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
