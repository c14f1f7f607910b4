"""Agents: what asks for tools.

`RunWorker` takes the chat's runs, `ChatAgent` works on one, `AssentToolset` is its only way to act, and the offline
model lets all of it work without a key. This is the only package that imports pydantic-ai; it is heavy, so import it
where it is needed. Nothing here decides what a call may do.
"""

from .chat import ChatAgent
from .local import LocalCaller
from .models import resolve_model
from .offline import offline_model
from .toolset import AssentToolset, Calling
from .worker import RunWorker

__all__ = ["AssentToolset", "Calling", "ChatAgent", "LocalCaller", "RunWorker", "offline_model", "resolve_model"]
