"""Execution on the user's machine: runs calls that the gate has passed, inside one directory, in a sandbox.

Start at `workspace.py`. The kernel opens files beneath the workspace (`paths`, `files`); paths that the rules deny
stay out of every tool's reach (`denied_paths`). Searches are bounded (`search`), commands run in a sandbox
(`commands`, `sandbox`), web searches go to the one configured provider (`web`). Files that a command would run are
inspected before a person is asked (`files.inspection`) and held while it starts (`commands.bound_files`). Changes are
kept and can be undone (`undo`). Nothing here decides about risk or approval. The names below are imported on first
use: the undo history needs no sandbox.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .commands.executor import CommandExecutor
    from .files.executor import FileSystemExecutor
    from .paths import PathValidator
    from .sandbox.backends import NoSandbox
    from .sandbox.bubblewrap import BubblewrapSandbox
    from .sandbox.sandbox import Isolation, Sandbox
    from .search.executor import SearchExecutor
    from .stopping import CommandStopped, CommandTimeout, DriftedError, Unfinished, unfinished
    from .undo.desk import UndoDesk, UndoRefused
    from .undo.recorder import UndoRecorder
    from .undo.restoring import Plan, Step, UndoHistory
    from .undo.snapshots import State
    from .undo.store import Entry
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
    "BubblewrapSandbox": "sandbox.bubblewrap",
    "CommandExecutor": "commands.executor",
    "CommandStopped": "stopping",
    "CommandTimeout": "stopping",
    "DriftedError": "stopping",
    "Entry": "undo.store",
    "FileSystemExecutor": "files.executor",
    "Isolation": "sandbox.sandbox",
    "NoSandbox": "sandbox.backends",
    "PathValidator": "paths",
    "Plan": "undo.restoring",
    "Sandbox": "sandbox.sandbox",
    "SearchExecutor": "search.executor",
    "SearchProvider": "web",
    "State": "undo.snapshots",
    "Step": "undo.restoring",
    "UndoDesk": "undo.desk",
    "UndoHistory": "undo.restoring",
    "UndoRecorder": "undo.recorder",
    "UndoRefused": "undo.desk",
    "Unfinished": "stopping",
    "WebSearcher": "web",
    "Workspace": "workspace",
    "unfinished": "stopping",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
