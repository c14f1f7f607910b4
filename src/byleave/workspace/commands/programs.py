"""Where programs come from: fixed directories, never the workspace, never the inherited PATH.

A command's name is looked up in directories that belong to root, and in the toolchains that belong to the user of this
machine (the Python that runs Byleave, the newest Node of nvm). The environment a command gets is written here from
nothing; no variable of the client reaches it, so neither do its secrets.
"""

import os
import re
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from byleave.protocol.errors import CommandNotAllowed, ToolFailure

from .command_user import runner_for

SYSTEM_DIRECTORIES = ("/usr/local/bin", "/usr/bin", "/bin")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z")
# What stands behind a name when the name itself is not installed.
_SPELLINGS = {"python": ("python", "python3"), "python3": ("python", "python3")}
_PACKAGES = {"locate": "plocate", "python": "python3", "node": "nodejs", "rg": "ripgrep"}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A directory with programs outside the system's own: `prefix` is made readable, `programs` is searched."""

    prefix: Path
    programs: Path


@lru_cache(maxsize=1)
def toolchains() -> tuple[Toolchain, ...]:
    """Toolchains of this machine that its user, and nobody else, could have changed."""
    prefixes = [Path(sys.base_prefix).resolve()]
    nodes = Path.home() / ".nvm" / "versions" / "node"
    with suppress(OSError):  # there are none, or HOME is somebody else's
        prefixes.extend(sorted(nodes.iterdir(), key=_version)[-1:])
    found = [Toolchain(prefix, prefix / "bin") for prefix in prefixes if _is_ours(prefix / "bin") and _is_bare(prefix)]
    return tuple(chain for chain in found if str(chain.programs) not in SYSTEM_DIRECTORIES)


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.name))


def _is_ours(directory: Path) -> bool:
    """Owned by root or by us, and writable by no one else."""
    try:
        info = directory.stat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid in (0, os.geteuid()) and not info.st_mode & 0o022


def _is_bare(prefix: Path) -> bool:
    """Whether it can be shown whole: a Python installed into HOME, or ~/.local, has the user's own files beside it."""
    home = Path.home().resolve()
    return not home.is_relative_to(prefix) and prefix != home / ".local"


@lru_cache(maxsize=1)
def optional_packages() -> tuple[str, ...]:
    """Directories below /opt that programs of the system lead into; nothing else there is a command's to read."""
    links = (entry.path for place in SYSTEM_DIRECTORIES for entry in _entries(place) if entry.is_symlink())
    targets = (os.path.realpath(link).split("/") for link in links)
    return tuple(sorted({"/".join(parts[:3]) for parts in targets if parts[1] == "opt" and len(parts) > 3}))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def usable_toolchains(workspace: Path) -> tuple[Toolchain, ...]:
    """Those outside the workspace that the user its commands run as can reach."""
    runner = runner_for(workspace)
    outside = (chain for chain in toolchains() if not chain.prefix.is_relative_to(workspace))
    return tuple(chain for chain in outside if runner is None or runner.reaches(chain.programs))


def search_path(workspace: Path) -> tuple[str, ...]:
    """The PATH of a command: toolchains, then the system's directories."""
    return (*(str(chain.programs) for chain in usable_toolchains(workspace)), *SYSTEM_DIRECTORIES)


def find_program(name: str, workspace: Path) -> str:
    """The absolute path of the program `name`, or an error that says it is not installed."""
    if not _NAME.match(name):
        raise CommandNotAllowed(f"Command not allowed: {name!r} is not a plain name.")
    for spelling in _SPELLINGS.get(name, (name,)):
        for directory in search_path(workspace):
            candidate = os.path.join(directory, spelling)
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return candidate
    raise ToolFailure(
        f"{name} is not installed on this machine.", hint=f"Install the package {_PACKAGES.get(name, name)!r}."
    )


def clean_environment(workspace: Path, home: str) -> dict[str, str]:
    """Everything a command's environment holds. Git and npm are told to ask nothing and to read no other settings."""
    return {
        "PATH": ":".join(search_path(workspace)),
        "HOME": home,
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own; NoSandbox puts its private directory here
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": f"{home}/.gitconfig",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CEILING_DIRECTORIES": str(workspace.parent),
        "NO_UPDATE_NOTIFIER": "1",
        "npm_config_update_notifier": "false",
        "npm_config_fund": "false",
        "npm_config_audit": "false",
    }
