"""Sandbox backends of this system, strongest first, and the choice of one.

Each is probed before it is chosen: it returns a sandbox that really ran a command here, or the reason why it cannot. A
weaker one is never used silently.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from byleave.protocol.errors import ConfigurationError, ToolFailure
from byleave.settings import SandboxName

from .bubblewrap import working_sandbox
from .environment import SYSTEM_DIRECTORIES, find_program
from .sandbox import NoSandbox, Sandbox

Make = Callable[[Path, str, str], Sandbox | str]
"""Takes the workspace, the user's gitconfig, and the reasons why nothing stronger works."""


def _bubblewrap(root: Path, identity: str, _reason: str) -> Sandbox | str:
    try:
        return working_sandbox(root, identity=identity)
    except ToolFailure as error:
        return error.message


def _landlock(root: Path, identity: str, reason: str) -> Sandbox | str:
    from .landlock import working_landlock  # only where bubblewrap does not work

    return working_landlock(root, identity=identity, reason=reason)


def _seatbelt(root: Path, identity: str, _reason: str) -> Sandbox | str:
    from .seatbelt import working_seatbelt

    return working_seatbelt(root, identity=identity)


def sandboxes() -> dict[SandboxName, Make]:
    """The backends of this system, strongest first."""
    if sys.platform == "darwin":
        return {"seatbelt": _seatbelt}
    return {"bwrap": _bubblewrap, "landlock": _landlock}


def choose_sandbox(root: Path, wanted: SandboxName = "auto") -> Sandbox:
    """The strongest sandbox that works here, or the one wanted and no other."""
    identity = git_identity(root)
    reasons: list[str] = []
    for make in (make for name, make in sandboxes().items() if wanted in ("auto", name)):
        found = make(root, identity, " ".join(reasons))
        if not isinstance(found, str):
            return found
        reasons.append(found)
    if wanted not in ("auto", "none"):
        raise ConfigurationError(
            f"BYLEAVE_SANDBOX wants {wanted!r}, which does not work here: {' '.join(reasons) or 'wrong system'}",
            hint="mend that, or set BYLEAVE_SANDBOX to 'auto' to take what works",
        )
    reason = " ".join(reasons) if wanted == "auto" else "BYLEAVE_SANDBOX says that commands are not isolated."
    return NoSandbox(root, reason=reason, identity=identity)


def git_identity(root: Path) -> str:
    """A gitconfig with the user's name and email for commits, and no other setting of theirs."""
    try:
        git = find_program("git", root)
    except ToolFailure:
        return ""
    env = {"HOME": str(Path.home()), "PATH": ":".join(SYSTEM_DIRECTORIES), "GIT_CONFIG_NOSYSTEM": "1"}
    lines = ["[user]"]
    for key in ("name", "email"):
        asked = subprocess.run(
            [git, "config", "--global", "--get", f"user.{key}"],
            env=env,
            cwd=os.sep,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        value = asked.stdout.strip()
        if asked.returncode == 0 and value.isprintable() and not set(value) & set('"\\'):
            lines.append(f'\t{key} = "{value}"')
    # Background maintenance would be killed half done when the command ends, so it runs in the foreground.
    lines += ["[gc]", "\tautoDetach = false", "[maintenance]", "\tautoDetach = false"]
    return "\n".join(lines) + "\n"
