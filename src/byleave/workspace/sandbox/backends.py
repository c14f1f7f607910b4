"""Sandbox backends of this system, strongest first, and the choice of one.

Each is probed before it is chosen: it returns a sandbox that really ran a command here, or the reason why it cannot. A
weaker one is never used silently.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from byleave.protocol.errors import ConfigurationError, ToolFailure
from byleave.settings import SandboxName

from .bubblewrap import working_sandbox
from .environment import SYSTEM_DIRECTORIES, find_program
from .sandbox import NoSandbox, Sandbox

MAX_IGNORED = 256 * 1024
_TAKEN = r"^(user\.(name|email)|core\.(autocrlf|eol|excludesfile)|filter\.lfs\.clean)$"
Files = Mapping[str, str]
Make = Callable[[Path, Files, str], Sandbox | str]
"""Takes the workspace, the files of a command's home, and the reasons why nothing stronger works."""


def _bubblewrap(root: Path, files: Files, _reason: str) -> Sandbox | str:
    try:
        return working_sandbox(root, files=files)
    except ToolFailure as error:
        return error.message


def _landlock(root: Path, files: Files, reason: str) -> Sandbox | str:
    from .landlock import working_landlock  # only where bubblewrap does not work

    return working_landlock(root, files=files, reason=reason)


def _seatbelt(root: Path, files: Files, _reason: str) -> Sandbox | str:
    from .seatbelt import working_seatbelt

    return working_seatbelt(root, files=files)


def sandboxes() -> dict[SandboxName, Make]:
    """The backends of this system, strongest first."""
    if sys.platform == "darwin":
        return {"seatbelt": _seatbelt}
    return {"bwrap": _bubblewrap, "landlock": _landlock}


def choose_sandbox(root: Path, wanted: SandboxName = "auto") -> Sandbox:
    """The strongest sandbox that works here, or the one wanted and no other."""
    files = git_files(root)
    reasons: list[str] = []
    for make in (make for name, make in sandboxes().items() if wanted in ("auto", name)):
        found = make(root, files, " ".join(reasons))
        if not isinstance(found, str):
            return found
        reasons.append(found)
    if wanted not in ("auto", "none"):
        raise ConfigurationError(
            f"BYLEAVE_SANDBOX wants {wanted!r}, which does not work here: {' '.join(reasons) or 'wrong system'}",
            hint="mend that, or set BYLEAVE_SANDBOX to 'auto' to take what works",
        )
    reason = " ".join(reasons) if wanted == "auto" else "BYLEAVE_SANDBOX says that commands are not isolated."
    return NoSandbox(root, reason=reason, files=files)


def git_files(root: Path) -> dict[str, str]:
    """Files of git for a command's home: the user's name, email, line endings and ignored files, and nothing else."""
    try:
        git = find_program("git", root)
    except ToolFailure:
        return {}
    env = {"HOME": str(Path.home()), "PATH": ":".join(SYSTEM_DIRECTORIES), "GIT_CONFIG_NOSYSTEM": "1"}

    said = subprocess.run(
        [git, "config", "--global", "-z", "--get-regexp", _TAKEN],
        env=env,
        cwd=os.sep,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    settings = (entry.partition("\n") for entry in said.stdout.split("\0"))
    plain = {name: value for name, _, value in settings if value.isprintable() and not set(value) & set('"\\')}
    lines: list[str] = []
    for section, keys in (("user", ("name", "email")), ("core", ("autocrlf", "eol"))):
        lines.append(f"[{section}]")
        lines += [f'\t{key} = "{value}"' for key in keys if (value := plain.get(f"{section}.{key}"))]
    lines.append("\texcludesFile = ~/.gitignore")
    if "filter.lfs.clean" in plain:
        # Else git would commit large files themselves. What is checked out stays a pointer: nothing is downloaded.
        lines += ['[filter "lfs"]', "\tclean = git-lfs clean -- %f", "\tsmudge = git-lfs smudge --skip -- %f"]
        lines.append("\trequired = true")
    # Background maintenance would be killed half done when the command ends, so it runs in the foreground.
    lines += ["[gc]", "\tautoDetach = false", "[maintenance]", "\tautoDetach = false"]
    # Files that were put aside are nothing to commit.
    ignored = _ignored(plain.get("core.excludesfile", "")) + "\n*.replaced-" + "[0-9a-f]" * 8 + "\n"
    return {".gitconfig": "\n".join(lines) + "\n", ".gitignore": ignored, ".stash-ignore": f"{ignored}/.byleave\n"}


def _ignored(excludes: str) -> str:
    """The patterns of files that the user's git ignores everywhere: an agent must not commit what they never see."""
    directory = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    try:
        with open(
            os.path.expanduser(excludes) or f"{directory}/git/ignore", encoding="utf-8", errors="replace"
        ) as file:
            return file.read(MAX_IGNORED)
    except OSError:
        return ""
