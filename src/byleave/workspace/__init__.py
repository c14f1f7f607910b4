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
    from .commands.executor import CommandExecutor, CommandStopped, CommandTimeout, Unfinished, unfinished
    from .files.executor import FileSystemExecutor
    from .paths import PathValidator
    from .sandbox.bubblewrap import BubblewrapSandbox
    from .sandbox.sandbox import Isolation, NoSandbox, Sandbox
    from .search.executor import SearchExecutor
    from .stopping import DriftedError
    from .undo.desk import UndoDesk, UndoRefused
    from .undo.entries import Entry
    from .undo.recorder import UndoRecorder
    from .undo.restoring import Plan, Step, UndoHistory
    from .undo.snapshots import State
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
    "CommandStopped": "commands.executor",
    "CommandTimeout": "commands.executor",
    "DriftedError": "stopping",
    "Entry": "undo.entries",
    "FileSystemExecutor": "files.executor",
    "Isolation": "sandbox.sandbox",
    "NoSandbox": "sandbox.sandbox",
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
    "Unfinished": "commands.executor",
    "WebSearcher": "web",
    "Workspace": "workspace",
    "unfinished": "commands.executor",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
