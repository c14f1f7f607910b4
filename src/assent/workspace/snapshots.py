"""What the workspace's tree is at one moment: each path's kind, mode and content, found without following a link.

A `TreeScan` walks by directory descriptors and looks at names only; contents are read by whoever keeps them (`undo`),
and only where a file's stamp is not the one it had when it was last read. `.git` and `.assent` are not looked into,
nor are directories that tools fill and can fill again (`node_modules`); that such a directory is there is seen.
What could not be seen is said: nothing here takes "not seen" for "not there". It writes nothing.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

from .paths import PathValidator
from .protection import PROTECTED

Kind = Literal["file", "link", "directory", "closed", "other"]

MAX_DEPTH = 64
CLOSED = frozenset(
    {
        ".git",
        ".assent",
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
"""Directories that are not looked into. What git ignores is looked into: a lost `.env` is in no repository."""
_ALWAYS_OURS = frozenset({".git", ".assent"})  # made and removed by the sandbox around commands
_DRAFT = re.compile(r"\.assent-[0-9a-f]{16}\.tmp")
_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
# The kernel's clock for files ticks more coarsely than ours: a file read this soon after its last change may be
# changed once more without a new stamp.
_TICK_NS = 20_000_000


class State(NamedTuple):
    """What one path is."""

    kind: Kind
    mode: int
    owner: tuple[int, int]
    stamp: tuple[int, int, int, int]
    """Size, time of change (ns), inode, time of the inode's change (ns)."""
    digest: str | None = None
    """SHA-256 of a file's content; None where it was not kept."""
    target: str | None = None
    """What a link says."""
    settled: bool = False
    """Whether an equal stamp proves an equal content."""


Change = tuple[State | None, State | None]
"""Before and after; None where there is nothing."""


def same(one: State | None, other: State | None) -> bool:
    """Whether two states are the same to whoever looks at the path."""
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
        case _:
            if one.digest is not None and other.digest is not None:
                return one.digest == other.digest and one.mode == other.mode
            return one.stamp[:3] == other.stamp[:3] and one.mode == other.mode


def state_of(info: os.stat_result, *, target: str | None = None) -> State:
    """What a stat says of a path; a file's content is not known from it."""
    kind: Kind
    if stat.S_ISREG(info.st_mode):
        kind = "file"
    elif stat.S_ISDIR(info.st_mode):
        kind = "directory"
    else:
        kind = "link" if target is not None else "other"
    stamp = (info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns)
    return State(kind, stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid), stamp, None, target)


def is_settled(state: State, read_at_ns: int) -> bool:
    """Whether a file that was read at this time cannot have changed since without another stamp."""
    return max(state.stamp[1], state.stamp[3]) + _TICK_NS < read_at_ns


def to_json(state: State | None) -> list[Any] | None:
    return None if state is None else [state[0], state[1], [*state[2]], [*state[3]], *state[4:]]


def from_json(value: Any) -> State | None:
    """A state as it was written; raises ValueError or TypeError where it is none."""
    if value is None:
        return None
    kind, mode, owner, stamp, digest, target, settled = value
    return State(kind, int(mode), (owner[0], owner[1]), tuple(stamp), digest, target, bool(settled))


@dataclass(slots=True)
class Tree:
    """What a scan saw."""

    states: dict[str, State] = field(default_factory=dict[str, State])
    truncated: bool = False
    """Whether there was more than a scan looks at."""
    unseen: list[str] = field(default_factory=list[str])
    """Directories that could not be entered, each with a '/' at its end."""


class TreeScan:
    """One walk through the workspace."""

    def __init__(
        self, paths: PathValidator, known: Mapping[str, State], *, max_files: int, without: str | None = None
    ) -> None:
        self._paths = paths
        self._known = known
        """What was seen before: a path with an equal stamp is taken from there, with what is known of its content."""
        self._max_files = max_files
        self._without = without
        """A path that is none of the workspace's business: where the client keeps its own files."""
        self._tree = Tree()

    def run(self) -> Tree:
        fd = self._paths.open_exact(".", _READ_DIRECTORY)
        try:
            self._read(fd, "", 0)
        finally:
            os.close(fd)
        return self._tree

    def _read(self, fd: int, prefix: str, depth: int) -> None:
        states = self._tree.states
        directories: list[str] = []
        with os.scandir(fd) as entries:
            # Sorted: where there is too much to see, two scans should see the same part.
            found = sorted(islice(entries, 2 * self._max_files), key=_entry_name)
        for entry in found:
            name = entry.name
            path = prefix + name
            if name.startswith(".") and self._is_ours(name, path):
                continue
            if len(states) >= self._max_files:
                self._tree.truncated = True
                return
            try:
                state = self._state(fd, entry, path)
            except OSError:
                continue  # gone since it was named
            states[path] = state
            if state.kind == "directory":
                directories.append(name)
        for name in directories:
            seen = len(states)
            self._descend(fd, name, f"{prefix}{name}/", depth + 1)
            if not prefix and name in PROTECTED and len(states) == seen:
                del states[name]  # empty: put there by the sandbox for the time of a command

    def _is_ours(self, name: str, path: str) -> bool:
        """Whether a name is the client's own: it is none of the workspace's content."""
        return (path == name and name in _ALWAYS_OURS) or bool(_DRAFT.fullmatch(name))

    def _state(self, fd: int, entry: os.DirEntry[str], path: str) -> State:
        info = entry.stat(follow_symlinks=False)
        old = self._known.get(path)
        if (
            old is not None
            and old.stamp == (info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns)
            and old.mode == stat.S_IMODE(info.st_mode)
            and (old.kind != "directory" or stat.S_ISDIR(info.st_mode))
        ):
            return old
        state = state_of(info, target=_link_text(fd, entry.name, info))
        if state.kind == "directory" and (entry.name.casefold() in CLOSED or path == self._without):
            return state._replace(kind="closed")
        return state

    def _descend(self, fd: int, name: str, prefix: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._tree.truncated = True
            return
        try:
            child = self._paths.open_child(fd, name, _READ_DIRECTORY)
        except OSError:
            self._tree.unseen.append(prefix)  # no permission, another mount, or swapped for a link
            return
        try:
            self._read(child, prefix, depth)
        finally:
            os.close(child)


def _entry_name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _link_text(dir_fd: int, name: str, info: os.stat_result) -> str | None:
    return os.readlink(name, dir_fd=dir_fd) if stat.S_ISLNK(info.st_mode) else None


def look(paths: PathValidator, path: str) -> State | None:
    """What one path is now, without its content; None where there is nothing. Raises OSError where it cannot tell."""
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


def carried_over(paths: PathValidator, before: Mapping[str, State], tree: Tree) -> dict[str, State]:
    """Paths that a scan did not see and that may be there all the same: they stay as they were known."""
    if not tree.truncated and not tree.unseen:
        return {}
    unseen = tuple(tree.unseen)
    kept: dict[str, State] = {}
    for path, state in before.items():
        if path in tree.states:
            continue
        if unseen and path.startswith(unseen):
            kept[path] = state
        elif tree.truncated:
            try:
                gone = look(paths, path) is None
            except OSError:
                gone = False
            if not gone:
                kept[path] = state
    return kept


def changes_between(before: Mapping[str, State], after: Mapping[str, State], *, seen_all: bool) -> dict[str, Change]:
    """What differs. `seen_all`: whether a path that was not known before is known not to have been there."""
    changes: dict[str, Change] = {}
    for path, old in before.items():
        new = after.get(path)
        if new is not old and not same(old, new):
            changes[path] = (old, new)
    if seen_all:
        for path, new in after.items():
            if path not in before:
                changes[path] = (None, new)
    return changes


def merged(earlier: dict[str, Change], later: Mapping[str, Change]) -> dict[str, Change]:
    """Two steps as one."""
    for path, (old, new) in later.items():
        first = earlier[path][0] if path in earlier else old
        if same(first, new):
            earlier.pop(path, None)
        else:
            earlier[path] = (first, new)
    return earlier
