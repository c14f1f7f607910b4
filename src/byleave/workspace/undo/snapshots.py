"""Snapshots of the workspace's tree: each path's kind, mode and stamp, found without following a link.

`TreeScan` walks by directory descriptors and reads no contents. Of `.git` only the files that decide which programs git
runs are scanned; directories that tools can fill again (`node_modules`) are not entered. "Not seen" never counts as
"missing": directories that could not be read are listed. Nothing here writes anything.
"""

import contextlib
import os
import stat
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

from byleave.workspace.files.drafts import PASSING
from byleave.workspace.paths import PathValidator
from byleave.workspace.sandbox.protected_names import PROTECTED, STAMP_NS

Kind = Literal["file", "link", "directory", "closed", "git", "other"]
"""`closed`: a directory that is not entered. `git`: a file of a repository that decides what git runs."""
_KINDS = frozenset(get_args(Kind))

MAX_DEPTH = 64
MAX_NAMES = 10_000
"""Most entries recorded of one directory."""
MAX_HOOKS = 100
CLOSED = frozenset(
    {
        ".git",
        ".byleave",
        "node_modules",
        ".venv",
        "venv",
        "__pycache__",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".gradle",
    }
)
"""Directories that are not entered. Files that git ignores are scanned: a lost `.env` is in no repository."""
_ALWAYS_OURS = frozenset({".git", ".byleave"})  # made and removed by the sandbox around commands
_GIT_RUNS = frozenset({"config", "config.worktree"})
_HOOKS = frozenset(
    {
        *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "post-commit"),
        *("prepare-commit-msg", "commit-msg", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive"),
        *("update", "proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout"),
        *("pre-auto-gc", "post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change"),
        *("p4-changelist", "p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit"),
    }
)


_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK


class State(NamedTuple):
    """The state of one path."""

    kind: Kind
    mode: int
    owner: tuple[int, int]
    stamp: tuple[int, int, int, int]
    """Size, time of change (ns), inode, time of the inode's change (ns)."""
    digest: str | None = None
    """SHA-256 of a file's content; None if it was not kept."""
    target: str | None = None
    """Target of a link."""
    settled: bool = False
    """True if an equal stamp proves an equal content."""


Change = tuple[State | None, State | None]
"""Before and after; None if the path does not exist."""


def same(one: State | None, other: State | None) -> bool:
    """True if two states look the same to a user."""
    if one is None or other is None:
        return one is other
    if one.kind != other.kind:
        return False
    match one.kind:
        case "closed":
            return True
        case "link":
            return one.target == other.target
        case "directory":
            return one.mode == other.mode
        case "file" | "git" | "other":
            if one.digest is not None and other.digest is not None:
                return one.digest == other.digest and one.mode == other.mode
            return one.stamp == other.stamp and one.mode == other.mode


def state_of(info: os.stat_result, *, target: str | None = None) -> State:
    """Convert a stat result; it has no digest of the content."""
    kind: Kind
    if stat.S_ISREG(info.st_mode):
        kind = "file"
    elif stat.S_ISDIR(info.st_mode):
        kind = "directory"
    else:
        kind = "link" if target is not None else "other"
    stamp = (info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns)
    return State(kind, stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid), stamp, None, target)


def from_json(value: Any) -> State | None:
    """Read a state from JSON. Raises ValueError or TypeError if it is invalid."""
    if value is None:
        return None
    kind, mode, owner, stamp, digest, target, settled = value
    if kind not in _KINDS:
        raise ValueError(kind)
    return State(kind, int(mode), (owner[0], owner[1]), tuple(stamp), digest, target, bool(settled))


@dataclass(slots=True)
class Tree:
    """The result of a scan."""

    states: dict[str, State] = field(default_factory=dict[str, State])
    truncated: bool = False
    """True if there was more than one scan covers."""
    unseen: set[str] = field(default_factory=set[str])
    """Directories that were not read completely, or not at all; "" is the workspace itself."""


class TreeScan:
    """One scan of the workspace, upper levels first: if there is too much, the deepest are left out."""

    def __init__(self, paths: PathValidator, known: Mapping[str, State], *, max_files: int) -> None:
        self._paths = paths
        self._known = known
        """The last scan: a path with an equal stamp is copied from it, with its digest."""
        self._max_files = max_files
        self._tree = Tree()

    def run(self) -> Tree:
        """Scan the workspace. Raises OSError if its own directory cannot be read."""
        tree = self._tree
        waiting = deque([("", 0)])
        while waiting:
            directory, depth = waiting.popleft()
            if len(tree.states) >= self._max_files or depth > MAX_DEPTH:
                tree.truncated = True
                tree.unseen.add(directory)
                continue
            try:
                fd = self._paths.open_exact(directory or ".", _READ_DIRECTORY)
            except OSError as error:
                if not directory:
                    raise
                if isinstance(error, FileNotFoundError) and self._was_stand_in(directory):
                    del tree.states[directory]  # a stand-in that the sandbox removed meanwhile
                else:
                    tree.unseen.add(directory)  # gone, no permission, another mount, or swapped for a link
                continue
            seen = len(tree.states)
            try:
                inside = self._read(fd, directory)
            finally:
                os.close(fd)
            if directory in PROTECTED and len(tree.states) == seen:
                del tree.states[directory]  # empty: the sandbox's stand-in
            waiting.extend((path, depth + 1) for path in inside)
        return tree

    def _was_stand_in(self, directory: str) -> bool:
        """True if a missing directory was a stand-in of the sandbox; a known one may be away for a moment."""
        return directory in PROTECTED and (
            directory not in self._known or self._tree.states[directory].stamp[1] == STAMP_NS
        )

    def _read(self, fd: int, directory: str) -> list[str]:
        """Record the entries of a directory; return the subdirectories."""
        prefix = f"{directory}/" if directory else ""
        directories: list[str] = []
        room = min(MAX_NAMES, self._max_files - len(self._tree.states))
        with os.scandir(fd) as entries:
            found = list(islice(entries, 4 * MAX_NAMES))
        if len(found) > room:
            found.sort(key=_entry_name)  # two scans should see the same part
            self._tree.truncated = True
            self._tree.unseen.add(directory)
        for entry in found[:room]:
            name = entry.name
            path = prefix + name
            if name.startswith(".") and self._is_ours(name, path):
                continue
            with contextlib.suppress(OSError):  # removed meanwhile
                state = self._state(fd, entry, path)
                self._tree.states[path] = state
                if state.kind == "directory":
                    directories.append(path)
                elif state.kind == "closed" and name == ".git":
                    self._read_git(path)
        return directories

    def _is_ours(self, name: str, path: str) -> bool:
        """True if a name belongs to git or to the client, not to the workspace's content."""
        if path == ".git":
            self._read_git(path)
        return path in _ALWAYS_OURS or PASSING.fullmatch(name) is not None

    def _read_git(self, path: str) -> None:
        """Record the files that decide what git runs, never their content."""
        for name in _GIT_RUNS:  # by name: any number of other files cannot hide them
            with contextlib.suppress(OSError):
                self._take_git(path, name)
        with contextlib.suppress(OSError):
            fd = self._paths.open_exact(f"{path}/hooks", _READ_DIRECTORY)
            try:
                with os.scandir(fd) as entries:
                    hooks = (entry.name for entry in entries if not entry.name.endswith(".sample"))
                    found = set(islice(hooks, MAX_HOOKS))
                # If there are more, the hooks that git runs are recorded in any case.
                for name in found | _HOOKS if len(found) == MAX_HOOKS else found:
                    self._take_git(f"{path}/hooks", name)
            finally:
                os.close(fd)

    def _take_git(self, directory: str, name: str) -> None:
        state = look(self._paths, f"{directory}/{name}")
        if state is not None:
            self._tree.states[f"{directory}/{name}"] = state._replace(kind="git", target=None)

    def _state(self, fd: int, entry: os.DirEntry[str], path: str) -> State:
        info = entry.stat(follow_symlinks=False)
        old = self._known.get(path)
        if (
            old is not None
            and old.stamp == (info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns)
            and old.mode == info.st_mode & 0o7777
            and (old.kind != "directory" or stat.S_ISDIR(info.st_mode))
        ):
            return old
        state = state_of(info, target=_link_text(fd, entry.name, info))
        if state.kind == "directory" and entry.name.casefold() in CLOSED:
            return state._replace(kind="closed")
        return state


def _entry_name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _link_text(dir_fd: int, name: str, info: os.stat_result) -> str | None:
    return os.readlink(name, dir_fd=dir_fd) if stat.S_ISLNK(info.st_mode) else None


def look(paths: PathValidator, path: str) -> State | None:
    """Return the state of one path without its content; None if missing. Raises OSError if that is unknown."""
    parent, _, name = path.rpartition("/")
    try:
        dir_fd = paths.open_exact(parent or ".", os.O_PATH | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        return state_of(info, target=_link_text(dir_fd, name, info))
    except FileNotFoundError:
        return None
    finally:
        os.close(dir_fd)


def _is_told(path: str, states: Mapping[str, State], unseen: set[str]) -> bool:
    """True if a path that is not in `states` is known to be missing, not just unseen."""
    while True:
        path = path.rpartition("/")[0]
        if path in unseen:
            return False
        if not path or path in states:
            return True


def carried_over(paths: PathValidator, before: Mapping[str, State], tree: Tree) -> dict[str, State]:
    """Return known paths that a scan did not see and that may still be there."""
    kept: dict[str, State] = {}
    if not tree.unseen:
        return kept
    for path, state in before.items():
        if path not in tree.states and not _is_told(path, tree.states, tree.unseen):
            try:
                gone = look(paths, path) is None
            except OSError:
                gone = False
            if not gone:
                kept[path] = state
    return kept


def changes_between(before: Tree, after: Mapping[str, State]) -> dict[str, Change]:
    """Return the differences. In directories that the first scan could not read, nothing counts as new."""
    changes: dict[str, Change] = {}
    for path, old in before.states.items():
        new = after.get(path)
        if new is not old and not same(old, new):
            changes[path] = (old, new)
    for path, new in after.items():
        if path not in before.states and _is_told(path, before.states, before.unseen):
            changes[path] = (None, new)
    return changes


def merged(earlier: dict[str, Change], later: Mapping[str, Change]) -> dict[str, Change]:
    """Add later changes to earlier ones; drop paths that are back in their first state."""
    for path, (old, new) in later.items():
        first = earlier[path][0] if path in earlier else old
        if same(first, new):
            earlier.pop(path, None)
        else:
            earlier[path] = (first, new)
    return earlier
