"""Agents: the programs that ask for tools.

`RunWorker` takes the chat's runs, `ChatAgent` works on one, and `ByleaveToolset` is its only way to act. The offline
model makes all of it work without a key. Only this package imports pydantic-ai, which is heavy: the names below are
imported on first use, and a worker loads it with its first run. Nothing here decides what a call may do.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .chat import ChatAgent
    from .models import offline_model, resolve_model
    from .toolset import ByleaveToolset, Calling, LocalCaller
    from .worker import RunWorker

__all__ = ["ByleaveToolset", "Calling", "ChatAgent", "LocalCaller", "RunWorker", "offline_model", "resolve_model"]

_HOMES = {
    "ByleaveToolset": "toolset",
    "Calling": "toolset",
    "ChatAgent": "chat",
    "LocalCaller": "toolset",
    "RunWorker": "worker",
    "offline_model": "models",
    "resolve_model": "models",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
