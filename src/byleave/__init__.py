"""Byleave lets AI agents act on a user's own machine, with the user's approval."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors
    from .calls.approvals import ApprovalManager
    from .calls.executor import ToolExecutor
    from .gate import CommandValidator, RiskAssessor, ToolValidator
    from .protocol.states import get_timeout_for_risk_level
    from .sdk import Client, Machine, SyncMachine

__all__ = [
    "ApprovalManager",
    "Client",
    "CommandValidator",
    "Machine",
    "RiskAssessor",
    "SyncMachine",
    "ToolExecutor",
    "ToolValidator",
    "errors",
    "get_timeout_for_risk_level",
]

_HOMES = {
    "ApprovalManager": "calls.approvals",
    "Client": "sdk",
    "CommandValidator": "gate",
    "Machine": "sdk",
    "RiskAssessor": "gate",
    "SyncMachine": "sdk",
    "ToolExecutor": "calls.executor",
    "ToolValidator": "gate",
    "get_timeout_for_risk_level": "protocol.states",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: most of the package needs none of them."""
    if name == "errors":
        return import_module(f"{__name__}.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
