"""Paths that the owner's rules deny, kept out of every tool's reach.

The gate judges the words of a call. `DeniedPaths` keeps the same denials true afterwards: listings and searches leave
denied paths out, a file tool closes a file whose real path is denied, and `masked` lists the paths that the sandbox
must cover so that no command can open them. Only rules that deny nothing but paths count (no command, no options); one
that names a tool binds that tool. Patterns mean the same as in the gate. If the workspace is too large to search,
nothing runs. Nothing here adds to the rules or follows a link out of the workspace.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from byleave.gate import Policy, Rule
from byleave.gate.paths import DEEP
from byleave.protocol.errors import PathValidationError, RefusedError
from byleave.protocol.tools import TOOLS, ListDirectoryParams, ListDirectoryResult, WriteFileParams, WriteFileResult
from byleave.workspace.files.executor import AroundWrite, FileSystemExecutor, Listing
from byleave.workspace.files.writing import Replacing

from .paths import PathValidator, visible
from .rulings import Denials, Live, Spot

COMMANDS = "execute_command"
MAX_ENTRIES = 200_000
MAX_SECONDS = 3.0
MAX_DEPTH = 128
_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK


class DeniedPaths:
    """The paths that a policy denies to each tool, however a call spells them."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._patterns = {tool: found for tool in TOOLS if policy.has_rules and (found := _denials(policy, tool))}
        self.guards = {tool: patterns.forbid for tool, patterns in self._patterns.items()}
        """A check like `forbids` for each tool that has denied paths."""

    def forbids(self, relative: str, tool: str) -> bool:
        """True if a workspace-relative path, or a directory above it, is denied to a tool."""
        return tool in self.guards and self.guards[tool](relative)

    def refuse(self, relative: str, tool: str) -> None:
        """Raise for a denied path, with the rule's reason."""
        if self.forbids(relative, tool):
            rule = self._rule(relative, tool)
            because = f" {rule.because}" if rule.because else ""
            raise PathValidationError(
                f"{visible(relative)!r} is denied by rule {rule.name}.{because}", hint=rule.instead
            )

    def masked(
        self, paths: PathValidator, *, max_entries: int = MAX_ENTRIES, seconds: float = MAX_SECONDS
    ) -> list[str]:
        """Existing paths denied to commands, relative to the workspace. A directory stands for everything in it."""
        patterns = self._patterns.get(COMMANDS)
        if patterns is None:
            return []
        if patterns.top.forbidden:
            rule = self._rule(".", COMMANDS)
            raise RefusedError(
                f"Rule {rule.name} ({rule.text}) denies the whole workspace, so no command can run in it.",
                hint="deny the directories it is about",
            )
        try:
            return _Walk(paths, patterns, max_entries, seconds).run()
        except _TooMuch as error:
            raise self._too_much(error.live, patterns) from None

    def _rule(self, relative: str, tool: str) -> Rule:
        rules = self._policy.path_denials(tool)
        return next((rule for rule in rules if Denials(rule.pattern.paths).forbid(relative)), rules[0])

    def _too_much(self, live: Live, patterns: Denials) -> RefusedError:
        deep = [number for number, at in live if patterns.parts[number][at] == DEEP]
        wide = patterns.globs[min(deep or [number for number, _ in live])]
        rule = next(rule for rule in self._policy.path_denials(COMMANDS) if wide in rule.pattern.paths)
        narrower = f"config/{wide.removeprefix('**/').lstrip('/')}"
        return RefusedError(
            f"Rule {rule.name} denies {wide!r}, and there is too much here to look through for it before a command; "
            "nothing was run.",
            hint=f"write it narrower, such as {narrower!r}, or deny one directory: 'secrets/**'",
        )


def _denials(policy: Policy, tool: str) -> Denials | None:
    globs = [glob for rule in policy.path_denials(tool) for glob in rule.pattern.paths]
    return Denials(globs) if globs else None


class _TooMuch(Exception):
    """The walk met its limit of entries, depth or time."""

    def __init__(self, live: Live) -> None:
        self.live = live


class _Walk:
    """One search of the workspace for denied paths."""

    def __init__(self, paths: PathValidator, patterns: Denials, max_entries: int, seconds: float) -> None:
        self._paths = paths
        self._patterns = patterns
        self._left = max_entries
        self._deadline = time.monotonic() + seconds
        self._found: set[str] = set()
        self._behind_links: set[tuple[str, Live]] = set()

    def run(self) -> list[str]:
        top = self._patterns.top
        self._enter(self._paths.open_exact(".", _READ_DIRECTORY), "", top, 0)
        kept: list[str] = []
        for path in sorted(self._found, key=lambda path: path.split("/")):
            if not kept or not path.startswith(f"{kept[-1]}/"):
                kept.append(path)
        return kept

    def _enter(self, fd: int, prefix: str, here: Spot, depth: int) -> None:
        inside: list[tuple[str, Spot]] = []
        try:
            if depth > MAX_DEPTH or time.monotonic() > self._deadline:
                raise _TooMuch(here.live)
            with os.scandir(fd) as entries:
                for entry in entries:
                    self._count(here)
                    there = here.below(entry.name)
                    if there.free and not there.forbidden:
                        continue
                    if entry.is_symlink():
                        self._follow(prefix + entry.name, there, depth)
                    elif there.forbidden:
                        self._found.add(prefix + entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        inside.append((entry.name, there))
            for name, there in inside:
                self._descend(fd, name, prefix, there, depth)
        finally:
            os.close(fd)

    def _count(self, here: Spot) -> None:
        self._left -= 1
        if self._left < 0 or (self._left % 1024 == 0 and time.monotonic() > self._deadline):
            raise _TooMuch(here.live)

    def _descend(self, fd: int, name: str, prefix: str, there: Spot, depth: int) -> None:
        try:
            child = self._paths.open_child(fd, name, _READ_DIRECTORY)
        except FileNotFoundError:
            return
        except OSError:
            # Not readable, or another mount: it cannot be searched, so all of it is covered.
            self._found.add(prefix + name)
            return
        self._enter(child, f"{prefix}{name}/", there, depth + 1)

    def _follow(self, relative: str, there: Spot, depth: int) -> None:
        """Cover a link's target. A target outside the workspace does not exist in the sandbox."""
        root = str(self._paths.root)
        # Absolute links too: the file tools do not follow them, but programs do.
        behind = os.path.realpath(f"{root}/{relative}")
        if not f"{behind}/".startswith(f"{root}/"):
            return
        real = os.path.relpath(behind, root)
        try:
            is_directory = stat.S_ISDIR(os.lstat(behind).st_mode)
        except OSError:
            return  # nothing is there
        if there.forbidden:
            if real == ".":
                raise RefusedError(
                    f"{visible(relative)!r} is denied and links to the whole workspace, so no command can run in it.",
                    hint="remove the link",
                )
            self._found.add(real)
        elif is_directory and (real, there.live) not in self._behind_links:
            self._behind_links.add((real, there.live))
            try:
                child = self._paths.open_exact(real, _READ_DIRECTORY)
            except OSError:
                self._found.add(real)
                return
            self._enter(child, "" if real == "." else f"{real}/", there, depth + 1)


class GuardedPaths(PathValidator):
    """A PathValidator that refuses forbidden real paths, checked on the open descriptor."""

    def __init__(self, base: PathValidator, forbidden: Callable[[str], bool]) -> None:
        self.__dict__.update(base.__dict__)
        self._root_fd = os.dup(base._root_fd)
        self.forbidden = forbidden

    def open_raw(self, relative: str, flags: int, mode: int = 0) -> int:
        return self._allowed(super().open_raw(relative, flags, mode))

    def open_cached(self, relative: str, flags: int) -> int | None:
        fd = super().open_cached(relative, flags)
        try:
            return None if fd is None else self._allowed(fd)
        except OSError:
            return None  # `open_raw` raises the error

    def open_child(self, dir_fd: int, name: str, flags: int) -> int:
        return self._allowed(super().open_child(dir_fd, name, flags))

    def open_exact(self, relative: str, flags: int) -> int:
        return self._allowed(super().open_exact(relative, flags))

    def _allowed(self, fd: int) -> int:
        try:
            allowed = not self.forbidden(self.real_path(fd))
        except OSError:
            os.close(fd)
            raise
        if not allowed:
            os.close(fd)
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return fd


class GuardedFiles(FileSystemExecutor):
    """One file tool kept off denied paths. A new file has no descriptor yet: its path is checked before its rename."""

    def __init__(self, paths: GuardedPaths, *, max_file_bytes: int, around_write: AroundWrite | None = None) -> None:
        super().__init__(paths, max_file_bytes=max_file_bytes, around_write=around_write)
        self._forbidden = paths.forbidden

    async def list_directory(self, params: ListDirectoryParams) -> ListDirectoryResult:
        return await self._in_thread(lambda stop: Listing(self._paths, params, stop, forbidden=self._forbidden).run())

    def write_now(
        self,
        params: WriteFileParams,
        stop: threading.Event | None = None,
        keep: Callable[[Replacing], None] | None = None,
        bound: Mapping[str, str] | None = None,
    ) -> WriteFileResult:
        def checked(replacing: Replacing) -> None:
            if self._forbidden(replacing.real):
                raise PathValidationError(f"{params.path!r} leads to {visible(replacing.real)!r}, which is denied.")
            if keep is not None:
                keep(replacing)

        return super().write_now(params, stop, checked, bound)


def make_own(root: Path, directories: Sequence[Path]) -> None:
    """Create Byleave's own directories that lie in the workspace: a missing one cannot be covered."""
    for path in (Path(spell(directory)) for directory in directories for spell in (os.path.abspath, os.path.realpath)):
        if path != root and path.is_relative_to(root):
            with suppress(PermissionError):  # then a command cannot create it either
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
