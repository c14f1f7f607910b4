"""The workspace's tree as it was last seen, and what differs at the next look.

A look reads the contents of what is new and keeps them in the undo store: what a command changes next is known from
before. What does not fit is known by its stamp alone, and `why_not_kept` says so. The tree is saved when a command
begins, so that a crash forgets nothing and the next client reads no file twice. Writes nothing into the workspace.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterable

from byleave.workspace.paths import PathValidator

from .entries import Index, write_tree
from .snapshots import Change, State, Tree, TreeScan, carried_over, changes_between, is_settled, look, state_of
from .store import NoRoom, ObjectStore

_MANY = 300
"""So many changes are told beside the tree that was saved; with more it is saved anew."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_FULL = (errno.ENOSPC, errno.EDQUOT)


class WatchedTree:
    """What one workspace held when it was last looked at."""

    def __init__(self, paths: PathValidator, *, max_files: int, call_bytes: int) -> None:
        self._paths = paths
        self._max_files, self._call_bytes = max_files, call_bytes
        self._tree = Tree()
        self._saved = Tree()
        self._saved_as: str | None = None
        self.looked = False
        """False: what is known comes from an earlier client, and only saves reading."""

    def get(self, path: str) -> State | None:
        return self._tree.states.get(path)

    def learn(self, path: str, state: State | None) -> None:
        """Take something as seen."""
        if state is None:
            self._tree.states.pop(path, None)
        else:
            self._tree.states[path] = state

    def begin_with(self, tree: Tree, *, looked: bool) -> None:
        """Take what an earlier client saw."""
        self._tree, self.looked = tree, looked

    @property
    def truncated(self) -> bool:
        return self._tree.truncated

    @property
    def closed(self) -> list[str]:
        """Directories that could not be looked into."""
        return [] if self._tree.truncated else sorted(self._tree.unseen)

    def look(self, store: ObjectStore) -> dict[str, Change]:
        """What changed since the last look; the contents of what is new are kept. Raises OSError as the disk does."""
        known = self._tree
        tree = self.glance(known)
        fresh = [path for path, state in tree.states.items() if state.kind == "file" and not _is_kept(store, state)]
        self._capture(store, tree.states, fresh)
        changes = changes_between(known, tree.states) if self.looked else {}
        self._tree, self.looked = tree, True
        return changes

    def glance(self, known: Tree) -> Tree:
        """What is there, by stamps alone. Raises OSError when the workspace itself cannot be read."""
        tree = TreeScan(self._paths, known.states, max_files=self._max_files).run()
        for path, state in carried_over(self._paths, known.states, tree).items():
            tree.states[path] = self._as_it_is(path, state)
        return tree

    def _as_it_is(self, path: str, state: State) -> State:
        """A path that a scan passed over, looked at by itself: whoever floods a directory with names must not hide
        behind them what else was changed."""
        try:
            found = look(self._paths, path)
        except OSError:
            return state
        if found is None or (found.stamp, found.mode) == (state.stamp, state.mode):
            return state
        if state.kind == "closed" and found.kind == "directory":
            return state
        return found._replace(kind="git", target=None) if state.kind == "git" else found

    def _capture(self, store: ObjectStore, states: dict[str, State], fresh: list[str]) -> None:
        """Keep contents, small files first, as far as there is room."""
        fresh.sort(key=lambda path: states[path].stamp[0])
        room = self._call_bytes
        for path in fresh:
            size = states[path].stamp[0]
            if size > room or not store.room_for(size):
                return
            try:
                states[path] = self._read(store, path)
                room -= size
            except OSError as error:
                if error.errno in _FULL:
                    return
                # gone, not permitted, or swapped for something else

    def _read(self, store: ObjectStore, path: str) -> State:
        fd = self._paths.open_exact(path, _READ)
        try:
            began = time.time_ns()
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise NoRoom(errno.EINVAL, "it is no file")
            digest = store.put_file(fd, max_bytes=self._call_bytes, size=before.st_size)
            state = state_of(os.fstat(fd))
            steady = (before.st_size, before.st_mtime_ns, before.st_ino, before.st_ctime_ns) == state.stamp
            return state._replace(digest=digest, settled=steady and is_settled(state, began))
        finally:
            os.close(fd)

    def save(self, index: Index, in_use: Iterable[str | None]) -> tuple[str, dict[str, State | None]]:
        """What the next reader needs after a crash: the name of a tree, and what differs since."""
        base, states = self._saved.states, self._tree.states
        since: dict[str, State | None] = {path: state for path, state in states.items() if base.get(path) is not state}
        since.update((path, None) for path in base if path not in states)
        name, same_view = self._saved_as, self._saved.unseen == self._tree.unseen
        # Another client's sweep takes it for an old one.
        if name is None or len(since) > _MANY or not same_view or not (index.directory / name).exists():
            fresh = f"tree-{secrets.token_hex(8)}"
            write_tree(index.directory / fresh, self._tree)
            if name is not None and name not in in_use:
                (index.directory / name).unlink(missing_ok=True)
            self._saved, since = Tree(dict(states), self._tree.truncated, set(self._tree.unseen)), {}
            self._saved_as = name = fresh
        return name, since


def _is_kept(store: ObjectStore, state: State) -> bool:
    """Whether a file's content is kept, and an equal stamp means that it is still this one."""
    return state.settled and state.digest is not None and store.has(state.digest)


def why_not_kept(before: State | None, store: ObjectStore) -> str | None:
    """Why a path cannot be made what it was, or None."""
    if before is None or before.kind in ("directory", "link"):
        return None
    if before.kind == "git":
        return "git's own files are not kept"
    if before.kind == "closed":
        return "what lies in such a directory is not kept"
    if before.kind == "other":
        return "it is neither a file, a directory nor a link"
    if before.digest is None:
        return "its old content was not kept: too large, not readable, or no room"
    return None if store.has(before.digest) else "its old content has expired"
