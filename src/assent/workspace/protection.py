"""What a command may change in the workspace, and what it may not: the workspace's own mounts.

Something else on this machine executes or trusts the names in `PROTECTED`: an editor, a shell, git, another agent.
Those that exist are mounted read-only, those that are missing have a stand-in for the time of the command (`stubs`).
Git alone may make them, since a branch may hold them; what it made is told. What is mounted is named by path, so a name
that a running command could have made (and could swap for a link at that very moment) is left alone and told of.
Commands that only read get all of it read-only.
"""

import os
import stat
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from assent.protocol.errors import PathValidationError

from .stubs import Stubs, is_stub

PROTECTED = (
    ".git",
    ".assent",
    ".vscode",
    ".idea",
    ".envrc",
    ".bashrc",
    ".profile",
    ".zshrc",
    ".gitmodules",
    ".mcp.json",
    ".claude",
    ".cursor",
    ".husky",
    ".devcontainer",
)
# An approved git command changes the repository, but not what runs in it.
_GIT_PROTECTED = tuple(
    f".git/{name}" for name in ("hooks", "config", "config.worktree", "modules", "info", "worktrees")
)
# Not even git is let near these through a link.
_NEVER_LINKS = (".git", ".assent")
_READERS = frozenset({"ls", "cat", "head", "tail", "wc", "grep", "echo", "date", "pwd", "whoami", "locate", "true"})
_FIND_WRITES = ("-delete", "-fprint", "-fls", "-exec", "-ok")


def only_reads(argv: list[str]) -> bool:
    """Whether a command can do its work without writing to the workspace."""
    name = os.path.basename(argv[0])
    if name == "find":
        return not any(argument.startswith(_FIND_WRITES) for argument in argv[1:])
    return name in _READERS


@dataclass(frozen=True, slots=True)
class Mounts:
    """How the workspace is mounted for one command."""

    arguments: list[str]
    protected: list[str] = field(default_factory=list[str])
    """Names it cannot change."""
    degraded: list[str] = field(default_factory=list[str])
    """What could not be protected, in words."""
    created: list[str] = field(default_factory=list[str])
    """Protected names that were not there before; filled when the command has ended."""


class Protection:
    """Keeps track of the commands of one workspace."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._stubs = Stubs()
        self._loose: Counter[str] = Counter()
        """Names that some running command could make or replace."""

    @contextmanager
    def hold(self, argv: list[str]) -> Generator[Mounts]:
        """Protect the workspace for the time of one command."""
        root = str(self._root)
        if only_reads(argv):
            yield Mounts(["--ro-bind", root, root], protected=["."])
            return
        is_git = os.path.basename(argv[0]) == "git"
        root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            missing = [name for name in PROTECTED if not _exists(root_fd, name) or is_stub(root_fd, name)]
            stubs = (".assent",) if is_git else PROTECTED
            with self._lock:
                stubs = [name for name in stubs if not self._loose[name]]
            with self._stubs.placed(root_fd, stubs), self._mounted(root_fd, is_git=is_git) as mounts:
                yield mounts
            # `git init` is the one way to a repository; anything else that appeared is told.
            expected = (".git",) if is_git else ()
            mounts.created.extend(
                name
                for name in missing
                if name not in expected and _exists(root_fd, name) and not is_stub(root_fd, name)
            )
        finally:
            os.close(root_fd)

    @contextmanager
    def _mounted(self, root_fd: int, *, is_git: bool) -> Generator[Mounts]:
        if is_git and _exists(root_fd, ".git/HEAD"):
            with suppress(FileExistsError):  # a repository without hooks must not get any
                os.mkdir(".git/hooks", dir_fd=root_fd)
        mounts = Mounts(["--bind", str(self._root), str(self._root)])
        names = [*PROTECTED, *(_GIT_PROTECTED if is_git else ())]
        with self._lock:
            loose = {name for name in names if self._loose[name]}
            mine = [name for name in names if name in loose or not _exists(root_fd, name)]
            self._loose.update(mine)
        try:
            for name in names:
                if name in loose:
                    mounts.degraded.append(f"{name} could be made by another command that still runs; not protected.")
                else:
                    self._mount(mounts, root_fd, name, is_git=is_git)
            yield mounts
        finally:
            with self._lock:
                self._loose.subtract(mine)

    def _mount(self, mounts: Mounts, root_fd: int, name: str, *, is_git: bool) -> None:
        try:
            kind = os.stat(name, dir_fd=root_fd, follow_symlinks=False).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISLNK(kind):
            if not is_git or name in _NEVER_LINKS:
                raise PathValidationError(
                    f"{name!r} is a link, so it cannot be protected from the command.",
                    hint="Replace it by what it leads to.",
                )
            mounts.degraded.append(f"{name} is a link and was not protected.")
            return
        path = str(self._root / name)
        if is_git and name == ".git" and stat.S_ISDIR(kind):
            mounts.arguments.extend(["--bind", path, path])  # a mount point: it cannot be renamed away
        elif is_stub(root_fd, name):
            # A private one over it, since that costs a tenth of a bind: what is put into it never reaches the disk.
            mounts.arguments.extend(["--size", "4096", "--perms", "0555", "--tmpfs", path])
            mounts.protected.append(name)
        else:
            mounts.arguments.extend(["--ro-bind", path, path])
            mounts.protected.append(name)


def _exists(root_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
