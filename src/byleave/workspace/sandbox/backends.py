"""The kinds of sandbox there are on this system, strongest first, each tried before it is taken.

Each gives a sandbox that really ran something here, or says in a sentence why it cannot. Which of them is used is
decided by `choose_sandbox`; none here ever stands in for another.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from byleave.protocol.errors import ToolFailure
from byleave.settings import SandboxName

from .bubblewrap import working_sandbox
from .landlock import working_landlock
from .sandbox import Sandbox
from .seatbelt import working_seatbelt

Make = Callable[[Path, str, str], Sandbox | str]
"""From the workspace, the user's gitconfig, and why nothing stronger works."""


def _bubblewrap(root: Path, identity: str, _reason: str) -> Sandbox | str:
    try:
        return working_sandbox(root, identity=identity)
    except ToolFailure as error:
        return error.message


def _landlock(root: Path, identity: str, reason: str) -> Sandbox | str:
    return working_landlock(root, identity=identity, reason=reason)


def _seatbelt(root: Path, identity: str, _reason: str) -> Sandbox | str:
    return working_seatbelt(root, identity=identity)


def sandboxes() -> dict[SandboxName, Make]:
    """Those for this system."""
    if sys.platform == "darwin":
        return {"seatbelt": _seatbelt}
    return {"bwrap": _bubblewrap, "landlock": _landlock}
