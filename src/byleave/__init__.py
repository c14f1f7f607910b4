"""Byleave lets AI agents act on a user's own machine, with the user's byleave."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sdk import Agent, Client

__all__ = ["Agent", "Client"]


def __getattr__(name: str) -> Any:
    """The SDK's names, imported when they are used: most of the package needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import sdk

    return getattr(sdk, name)
