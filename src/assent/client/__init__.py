"""The client on the user's machine: it connects, asks, checks again, executes and reports.

Start at `handler.py` (ToolHandler). `connect_client` puts a whole client together; `ServerApi` alone is enough to
talk to a server. Nothing here imports server code, approves by itself, or runs a call twice.
"""

from .api import ServerApi
from .approvals import ApprovalDesk, PastApproval
from .connection import ClientConnection, connect_client
from .feed import FeedStream
from .handler import ActiveExecution, ToolHandler
from .identity import Identity, load_token, open_identity, save_token
from .journal import Journal
from .outbox import Link
from .prompts import Answer, ApprovalPrompt, Question, TerminalPrompt

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
    "connect_client",
    "load_token",
    "open_identity",
    "save_token",
]
