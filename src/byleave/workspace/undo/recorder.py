"""The undo recorder: keeps files that a write replaces or a command changes, so that they can be restored.

One `UndoRecorder` serves one workspace. It scans the tree when a command begins and when one ends; differences belong
to a command that ran meanwhile. So each change is in one entry, even if calls ran at the same time, and undoing newest
first restores everything. `WatchedTree` remembers the last scan and reads a file only if its stamp is new. A write's
old content is kept at the moment it is replaced. The tree is saved when a command begins, so that a crash forgets
nothing. Recording never stops a call: the entry and the result say what could not be kept. Changes by others while a
command runs count as the command's, and are shown before an undo.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from byleave.protocol.wire import now
from byleave.workspace.paths import PathValidator, visible

from .snapshots import Change, State, Tree, TreeScan, carried_over, changes_between, look, merged, same, state_of
from .store import Entry, Index, NoRoom, ObjectStore, hold, sweep, why_not_kept

if TYPE_CHECKING:
    from byleave.workspace.files.writing import Replacing

MAX_FILES = 20_000
CALL_BYTES = 50 * 1024 * 1024
"""Most bytes copied in one scan, and so the largest file that is kept."""
BUSY = "An undo is under way in this workspace; nothing was run."
INTERRUPTED = "The client stopped while this ran; what others changed until it was looked at again is among it."
INSIDE = "Byleave's own directory lies in the workspace; set BYLEAVE_HOME to one outside"
_NAMED = 5
_SWEEP_SECONDS = 60.0
_INDEX_SHARE = 20
"""The index may take 1/20 of the store's limit before a sweep."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_MANY = 300
"""Up to this many differences are stored beside a saved tree; with more, the tree is saved again."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# The kernel's clock for files ticks more coarsely than ours: a file read this soon after its last change may be
# changed once more without a new stamp.
_TICK_NS = 20_000_000


@dataclass(slots=True)
class Running(Entry):
    """A command that runs now."""

    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


@dataclass(slots=True)
class KeptWrite:
    """A write that is being recorded."""

    recorder: "UndoRecorder"
    entry: Entry
    warning: str | None = None
    """The reason why it cannot be undone."""
    recorded: bool = False
    locked: bool = False

    def keep(self, replacing: "Replacing") -> None:
        """Keep the file that is about to be replaced."""
        self.recorder.keep_old(self, replacing)


class WatchedTree:
    """A workspace's tree at the last scan; contents of new files go to the store."""

    def __init__(self, paths: PathValidator, *, max_files: int, call_bytes: int) -> None:
        self._paths = paths
        self._max_files, self._call_bytes = max_files, call_bytes
        self.tree = Tree()
        self._saved = Tree()
        self.looked = False
        """False: the tree comes from an earlier client, and only serves as a cache of digests."""

    def learn(self, path: str, state: State | None) -> None:
        """Count a state as seen."""
        if state is None:
            self.tree.states.pop(path, None)
        else:
            self.tree.states[path] = state

    def begin_with(self, tree: Tree, *, looked: bool) -> None:
        """Start from the tree of an earlier client."""
        self.tree, self.looked = tree, looked

    def look(self, store: ObjectStore) -> dict[str, Change]:
        """Scan, keep new contents, and return the changes since the last scan. Raises OSError as the disk does."""
        known = self.tree
        tree = self.glance(known)
        fresh = [path for path, state in tree.states.items() if state.kind == "file" and not store.keeps(state)]
        self._capture(store, tree.states, fresh)
        changes = changes_between(known, tree.states) if self.looked else {}
        self.tree, self.looked = tree, True
        return changes

    def glance(self, known: Tree) -> Tree:
        """Scan by stamps alone. Raises OSError if the workspace itself cannot be read."""
        tree = TreeScan(self._paths, known.states, max_files=self._max_files).run()
        for path, state in carried_over(self._paths, known.states, tree).items():
            tree.states[path] = self._current(path, state)
        return tree

    def _current(self, path: str, state: State) -> State:
        """Update one known path that a scan did not reach: a flood of names must not hide other changes."""
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
        """Keep contents, small files first, while there is room."""
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
                if error.errno in _DISK_FULL:
                    return
                # otherwise gone, not permitted, or swapped for something else

    def _read(self, store: ObjectStore, path: str) -> State:
        fd = self._paths.open_exact(path, _READ)
        try:
            began = time.time_ns()
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise NoRoom(errno.EINVAL, "it is no file")
            digest = store.put_file(fd, max_bytes=self._call_bytes, size=before.st_size)
            state = state_of(os.fstat(fd))
            steady = state_of(before).stamp == state.stamp
            # Settled: it cannot have changed since without a new stamp.
            settled = steady and max(state.stamp[1], state.stamp[3]) + _TICK_NS < began
            return state._replace(digest=digest, settled=settled)
        finally:
            os.close(fd)

    def since_saved(self) -> dict[str, State | None] | None:
        """Return the differences from the tree saved last; None if it should be saved again."""
        base, states = self._saved.states, self.tree.states
        since: dict[str, State | None] = {path: state for path, state in states.items() if base.get(path) is not state}
        since.update((path, None) for path in base if path not in states)
        return None if len(since) > _MANY or self._saved.unseen != self.tree.unseen else since

    def mark_saved(self) -> None:
        self._saved = Tree(dict(self.tree.states), self.tree.truncated, set(self.tree.unseen))


class UndoRecorder:
    """Records what calls change in one workspace."""

    def __init__(
        self,
        paths: PathValidator,
        home: Path,
        *,
        days: float = 7,
        max_bytes: int = 1024**3,
        max_files: int = MAX_FILES,
        call_bytes: int = CALL_BYTES,
    ) -> None:
        self._paths = paths
        self._days, self._max_bytes = days, max_bytes
        self._max_files, self._call_bytes = max_files, call_bytes
        self._home = Path(os.path.realpath(home))
        self._store: ObjectStore | None = None
        self._lock = threading.Lock()
        self._watch = WatchedTree(paths, max_files=max_files, call_bytes=call_bytes)
        self._saved_tree: int | None = None
        self._running: dict[str, Running] = {}
        self._owner = f"owner-{os.getpid()}-{secrets.token_hex(8)}"
        self._ends = contextlib.ExitStack()
        self._swept = 0.0

    # The store, opened at the first use

    def _open(self) -> tuple[ObjectStore, Index]:
        """Open the store; the caller holds the lock. Raises OSError as the disk does, ToolFailure during an undo."""
        if self._store is None:
            if self._home.is_relative_to(self._paths.root):
                raise OSError(errno.EINVAL, INSIDE)  # commands could change the store that undo trusts
            store = ObjectStore(self._home, max_bytes=self._max_bytes)
            self.index = Index.of(store, self._paths.root)
            with contextlib.ExitStack() as ends:
                ends.callback(store.close)
                ends.callback(self.index.close)
                ends.enter_context(hold(self.index.directory / self._owner, fcntl.LOCK_EX, patient=False))
                with (
                    hold(self.index.lock, fcntl.LOCK_SH, patient=True, busy=BUSY),
                    hold(store.lock, fcntl.LOCK_SH, patient=True, busy=BUSY),
                    hold(self.index.recovery, fcntl.LOCK_EX, patient=True, busy=BUSY),
                ):
                    store.refresh()
                    self._recover(store)
                sweep(store, days=self._days, max_bytes=self._max_bytes)
                self._ends = ends.pop_all()
            self._swept = time.monotonic()
            self._store = store
        return self._store, self.index

    def recover(self) -> None:
        """Finish entries that a killed client left open. The first use does it anyway; this is for readers."""
        with self._lock:
            self._open()

    def prepare(self) -> None:
        """Scan now, so that the first command does not wait for it. Raises as `begin` does."""
        with self._calling(), self._lock:
            store, _ = self._open()
            self._attribute(self._watch.look(store))

    def _recover(self, store: ObjectStore) -> None:
        """Finish entries that a crash left open, and reuse the digests of the last client."""
        self._finish(store, self.index.entries())
        for left in self.index.directory.glob("owner-*"):
            self._is_alive(left.name)  # removes the file if not
        if not self._watch.looked:
            self._watch.begin_with(self.index.read_tree() or Tree(), looked=False)

    def _finish(self, store: ObjectStore, entries: list[Entry]) -> None:
        """End the commands of dead clients: each gets the changes until the next one began."""
        last: Entry | None = None
        seen = Tree()
        for entry in entries:
            if entry.done:
                self._replay(entry, seen)
            elif entry.owner is not None and not self._is_alive(entry.owner):
                known = self.index.read_tree(entry.tree or 0, entry.since)
                if known is None:
                    self.index.remove(entry.id)  # its changes are unknown
                    continue
                if last is not None:
                    last.changes, last.notes = changes_between(seen, known.states), [INTERRUPTED]
                    self._put_ended(store, last)
                last, seen = entry, known
        if last is not None:
            self._watch.begin_with(seen, looked=True)
            last.changes, last.notes = self._watch.look(store), [INTERRUPTED]
            self._put_ended(store, last)

    def _replay(self, entry: Entry, seen: Tree) -> None:
        """Apply another call's changes to `seen`, unless a write was killed before its rename."""
        for path, (before, after) in entry.changes.items():
            if entry.tool_name == "write_file":
                with contextlib.suppress(OSError):
                    found = look(self._paths, path)
                    if (found and found.stamp[2]) == (before and before.stamp[2]):
                        continue
            if after is None:
                seen.states.pop(path, None)
            else:
                seen.states[path] = after

    def _is_alive(self, owner: str) -> bool:
        path = self.index.directory / Path(owner).name
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        path.unlink(missing_ok=True)
        return False

    @contextlib.contextmanager
    def _calling(self) -> Generator[None]:
        """Keep undos and sweeps out while a call acts."""
        with self._lock:
            store, index = self._open()
        with (
            hold(index.lock, fcntl.LOCK_SH, patient=True, busy=BUSY),
            hold(store.lock, fcntl.LOCK_SH, patient=True, busy=BUSY),
        ):
            store.refresh()  # while nobody sweeps, so that contents known as kept exist
            yield

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            if self._store is not None:
                self._ends.close()
                (self.index.directory / self._owner).unlink(missing_ok=True)
                sweep(self._store, days=self._days, max_bytes=self._max_bytes)
                self._store = None

    # A write

    @contextlib.contextmanager
    def writing(self, tool_id: str, summary: str) -> Generator[KeptWrite]:
        """Record a write. Raises only during an undo; `warning` says why it cannot be undone."""
        write = KeptWrite(self, Entry(tool_id, "write_file", summary, now()))
        with contextlib.ExitStack() as ends:
            try:
                ends.enter_context(self._calling())
            except OSError as error:
                write.warning = _not_kept(error)
            try:
                yield write
            except BaseException:
                self._void(write)
                raise
            finally:
                if write.locked:
                    self._lock.release()
        self._sweep_if_full()

    def keep_old(self, write: KeptWrite, replacing: "Replacing") -> None:
        """Keep the old file right before the rename; the lock stays held until the write is over."""
        if write.warning is not None or self._store is None:
            return
        self._lock.acquire()
        write.locked = True
        try:
            before = self._old_state(write, replacing)
            after = state_of(os.fstat(replacing.new_fd))._replace(digest=replacing.new_digest())
            made = {path: (None, look(self._paths, path)) for path in replacing.made}
            write.entry.changes = {**made, replacing.real: (before, after)}
            if write.warning is not None:
                write.entry.notes.append(write.warning)
            self._learn(write.entry.changes)
            self._store.sync()
            self.index.put(write.entry)
            write.recorded = True
        except OSError as error:
            write.warning = _not_kept(error)

    def _old_state(self, write: KeptWrite, replacing: "Replacing") -> State | None:
        """Keep the file that is replaced now, not the one there when the write began; return its state."""
        state = look(self._paths, replacing.real)
        if state is None or self._store is None:
            return None
        try:
            source = self._paths.open_exact(replacing.real, _READ)
            try:
                state = state_of(os.fstat(source))
                return state._replace(digest=self._store.put_file(source, max_bytes=self._call_bytes))
            finally:
                os.close(source)
        except OSError as error:
            write.warning = _not_kept(error)
            return state

    def _learn(self, changes: dict[str, Change]) -> None:
        """Count our own write as seen; attribute an unseen state before it to a running command."""
        if not self._watch.looked:
            return
        for path, (before, after) in changes.items():
            known = self._watch.tree.states.get(path)
            if self._running and not same(known, before):
                self._attribute({path: (known, before)})
            self._watch.learn(path, after)

    def _void(self, write: KeptWrite) -> None:
        if not write.recorded:
            return
        self._learn({path: (after, before) for path, (before, after) in write.entry.changes.items()})
        with contextlib.suppress(OSError):
            self.index.remove(write.entry.id)

    # A command

    def begin(self, tool_id: str, tool_name: str, summary: str) -> Running:
        """Scan before a command. Raises ToolFailure during an undo, OSError as the disk does."""
        ends = contextlib.ExitStack()
        try:
            ends.enter_context(self._calling())
            with self._lock:
                store, index = self._open()
                self._attribute(self._watch.look(store))
                running = Running(tool_id, tool_name, summary, now(), done=False, owner=self._owner, ends=ends)
                running.tree, running.since = self._save_tree(index)
                index.put(running, sync=False)
                running.together.extend(self._running)
                for other in self._running.values():
                    other.together.append(tool_id)
                self._running[tool_id] = running
        except BaseException:
            ends.close()
            raise
        return running

    def _save_tree(self, index: Index) -> tuple[int, list[tuple[str, State | None]]]:
        """Save what recovery needs: a tree, or the differences from the one saved last."""
        number, since = self._saved_tree, self._watch.since_saved()
        if number is None or since is None or not index.has_tree(number):  # another client's sweep may have removed it
            number, since = index.save_tree(self._watch.tree), {}
            self._watch.mark_saved()
            self._saved_tree = number
        return number, list(since.items())

    def glance(self, known: Tree | None = None) -> Tree:
        """Scan without keeping or reading a file. Raises OSError as the disk does."""
        return self._watch.glance(known or Tree())

    def end(self, running: Running) -> dict[str, Change]:
        """Record and return a command's changes. Raises OSError as the disk does."""
        with running.ends, self._lock:
            del self._running[running.id]
            store, _ = self._open()
            self._take_over(running, self._watch.look(store))
            self._put_ended(store, running)
        self._sweep_if_full()
        return running.changes

    def _put_ended(self, store: ObjectStore, entry: Entry) -> None:
        """Write an ended command to the index; remove one that changed nothing."""
        entry.notes += self._notes(store, entry.changes)
        entry.done, entry.tree, entry.since = True, None, []
        if entry.changes:
            store.sync()
            self.index.put(entry)
        else:
            self.index.remove(entry.id, sync=False)

    def _notes(self, store: ObjectStore, changes: dict[str, Change]) -> list[str]:
        """Return notes about changes that were not seen or cannot be restored."""
        notes: list[str] = []
        tree = self._watch.tree
        if tree.truncated:
            notes.append(
                f"There are more files here than are watched ({self._max_files}, the upper levels first): "
                "what it changed beyond them is not listed and cannot be undone."
            )
        elif tree.unseen:
            notes.append(f"What it changed in {_named(sorted(tree.unseen))} is not known: no permission to look.")
        lost = [path for path, (before, _) in sorted(changes.items()) if why_not_kept(before, store) is not None]
        if lost:
            notes.append(
                f"{_named(lost)} cannot be brought back by undo: too large, not readable, or no room to keep it."
            )
        return notes

    def _attribute(self, changes: dict[str, Change]) -> None:
        """Attribute changes to the oldest running command; if none runs, they are somebody else's."""
        if self._running and changes:
            self._take_over(next(iter(self._running.values())), changes)

    def _take_over(self, running: Running, changes: dict[str, Change]) -> None:
        """Attribute changes to one command, and take these paths from others: each path belongs to one command."""
        for other in self._running.values():
            for path in changes.keys() & other.changes.keys() if other is not running else ():
                running.changes[path] = other.changes.pop(path)
        merged(running.changes, changes)

    def _sweep_if_full(self) -> None:
        store = self._store
        if store is None or (
            store.room_for(self._max_bytes // 10) and self.index.size <= self._max_bytes // _INDEX_SHARE
        ):
            return
        with self._lock:
            if time.monotonic() - self._swept > _SWEEP_SECONDS and sweep(
                store, days=self._days, max_bytes=self._max_bytes
            ):
                self._swept = time.monotonic()


def _not_kept(error: OSError) -> str:
    return f"This cannot be undone: what was there before could not be kept ({error.strerror})."


def _named(paths: list[str]) -> str:
    listed = ", ".join(repr(visible(path)) for path in paths[:_NAMED])
    return f"{listed} and {len(paths) - _NAMED} more" if len(paths) > _NAMED else listed
