"""The user's machine: executes a call that the gate has passed, inside one directory, in a sandbox.

Start at `workspace.py`. Files are opened beneath the workspace by the kernel (`paths`, `files`, `writing`, `listing`),
searches are bounded (`search`), commands run in bubblewrap (`commands`, `sandbox`, `bubblewrap`, `processes`), web
searches go to the one configured provider (`web`). What calls change is kept (`undo`, `effects`, `snapshots`) and can
be brought back (`restoring`). What a command would run is looked at (`inspection`) and held while
it starts (`pins`). Nothing here decides about risk or approval. The names below are brought in when they are asked for:
who looks at what can be undone needs no sandbox.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bubblewrap import BubblewrapSandbox
    from .commands import CommandExecutor, CommandStopped, CommandTimeout, Unfinished, unfinished
    from .drift import DriftedError
    from .files import FileSystemExecutor
    from .paths import PathValidator
    from .restoring import UndoHistory
    from .sandbox import Isolation, NoSandbox, Sandbox
    from .search import SearchExecutor
    from .snapshots import State
    from .undo import UndoRecorder
    from .undo_entries import Entry
    from .undo_plans import UndoDesk, UndoRefused
    from .undo_steps import Plan, Step
    from .web import SearchProvider, WebSearcher
    from .workspace import Workspace

__all__ = [
    "BubblewrapSandbox",
    "CommandExecutor",
    "CommandStopped",
    "CommandTimeout",
    "DriftedError",
    "Entry",
    "FileSystemExecutor",
    "Isolation",
    "NoSandbox",
    "PathValidator",
    "Plan",
    "Sandbox",
    "SearchExecutor",
    "SearchProvider",
    "State",
    "Step",
    "UndoDesk",
    "UndoHistory",
    "UndoRecorder",
    "UndoRefused",
    "Unfinished",
    "WebSearcher",
    "Workspace",
    "unfinished",
]

_HOMES = {
    "BubblewrapSandbox": "bubblewrap",
    "CommandExecutor": "commands",
    "CommandStopped": "commands",
    "CommandTimeout": "commands",
    "DriftedError": "drift",
    "Entry": "undo_entries",
    "FileSystemExecutor": "files",
    "Isolation": "sandbox",
    "NoSandbox": "sandbox",
    "PathValidator": "paths",
    "Plan": "undo_steps",
    "Sandbox": "sandbox",
    "SearchExecutor": "search",
    "SearchProvider": "web",
    "State": "snapshots",
    "Step": "undo_steps",
    "UndoDesk": "undo_plans",
    "UndoHistory": "restoring",
    "UndoRecorder": "undo",
    "UndoRefused": "undo_plans",
    "Unfinished": "commands",
    "WebSearcher": "web",
    "Workspace": "workspace",
    "unfinished": "commands",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
