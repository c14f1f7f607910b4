"""The client on the user's machine: it connects, asks, checks again, executes and reports.

Start at `handler.py` (ToolHandler). `connect_client` in `connection.py` builds a whole client; `ServerApi` alone is
enough to talk to a server. Nothing here imports server code, approves by itself, or runs a call twice.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .handler import ToolHandler

__all__ = ["ToolHandler"]


def __getattr__(name: str) -> Any:
    """Import ToolHandler on first use: code that only needs a token should not load a whole client."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .handler import ToolHandler

    return ToolHandler
