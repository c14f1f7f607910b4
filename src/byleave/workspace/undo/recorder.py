"""Keeping what was there: what a write replaces, and what a command changed, so that it can be undone.

One `UndoRecorder` serves one workspace. It knows the tree as it was last seen (`watching`); at each beginning and end
of a command it looks again, and what differs belongs to a command that ran meanwhile. So each change is in one entry,
also where calls ran at the same time, and undoing newest first leads back. A write's old content is kept in the same
moment in which it is replaced. Recording never stops a call: what could not be kept is said in the entry and in the
result. What others change while a command runs cannot be told from its own doing, and is shown before anything is
undone.

The workspace's tree as it was last seen, and what differs at the next look.

A look reads the contents of what is new and keeps them in the undo store: what a command changes next is known from
before. What does not fit is known by its stamp alone, and `why_not_kept` says so. The tree is saved when a command
begins, so that a crash forgets nothing and the next client reads no file twice. Writes nothing into the workspace.
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

from byleave.protocol.wire import now
from byleave.workspace.files.writing import Replacing
from byleave.workspace.paths import PathValidator, visible

from .entries import Entry, Index, sweep
from .snapshots import (
    Change,
    State,
    Tree,
    TreeScan,
    carried_over,
    changes_between,
    is_settled,
    look,
    merged,
    same,
    state_of,
)
from .store import NoRoom, ObjectStore, hold

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
        self._saved_as: int | None = None
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

    def save(self, index: Index) -> tuple[int, dict[str, State | None]]:
        """What the next reader needs after a crash: the number of a tree, and what differs since."""
        base, states = self._saved.states, self._tree.states
        since: dict[str, State | None] = {path: state for path, state in states.items() if base.get(path) is not state}
        since.update((path, None) for path in base if path not in states)
        number, same_view = self._saved_as, self._saved.unseen == self._tree.unseen
        # Another client's sweep takes it for an old one.
        if number is None or len(since) > _MANY or not same_view or not index.has_tree(number):
            number = index.save_tree(self._tree)
            self._saved, since = Tree(dict(states), self._tree.truncated, set(self._tree.unseen)), {}
            self._saved_as = number
        return number, since


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


MAX_FILES = 20_000
CALL_BYTES = 50 * 1024 * 1024
"""Most that is copied at one look, and so the largest file that is kept."""
_NAMED = 5
_SWEEP_SECONDS = 60.0
_INDEX_SHARE = 20
"""A list may take one part in so many of the store before it is swept."""
BUSY = "An undo is under way in this workspace; nothing was run."
INTERRUPTED = "The client stopped while this ran; what others changed until it was looked at again is among it."
INSIDE = "Byleave's own directory lies in the workspace; set BYLEAVE_HOME to one outside"


@dataclass(slots=True)
class Running(Entry):
    """A command that runs now."""

    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


@dataclass(slots=True)
class KeptWrite:
    """A write that is being recorded."""

    recorder: "UndoRecorder"
    id: str
    summary: str
    warning: str | None = None
    """Why it cannot be undone."""
    change: dict[str, Change] = field(default_factory=dict[str, Change])
    recorded: bool = False
    locked: bool = False

    def keep(self, replacing: Replacing) -> None:
        """Keep what is about to be replaced."""
        self.recorder.keep_old(self, replacing)


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
        self._running: dict[str, Running] = {}
        self._owner = f"owner-{os.getpid()}-{secrets.token_hex(8)}"
        self._ends = contextlib.ExitStack()
        self._swept = 0.0

    # The store, opened at the first use

    def _open(self) -> tuple[ObjectStore, Index]:
        """Called with the lock held. Raises OSError as the disk does, ToolFailure while an undo is under way."""
        if self._store is None:
            if self._home.is_relative_to(self._paths.root):
                raise OSError(errno.EINVAL, INSIDE)  # commands would reach what is kept, and undo would trust it
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
        """Finish what a client that was killed left open. Each first use does it; this is for those who only look."""
        with self._lock:
            self._open()

    def prepare(self) -> None:
        """Look at everything now, so that the first command need not wait for it. Raises as `begin` does."""
        with self._calling(), self._lock:
            store, _ = self._open()
            self._attribute(self._watch.look(store))

    def _recover(self, store: ObjectStore) -> None:
        """Finish what a crash left open, and take the digests of the last run."""
        self._finish(store, self.index.entries())
        for left in self.index.directory.glob("owner-*"):
            self._is_alive(left.name)  # removes it where not
        if not self._watch.looked:
            self._watch.begin_with(self.index.read_tree() or Tree(), looked=False)

    def _finish(self, store: ObjectStore, entries: list[Entry]) -> None:
        """Where several commands ran when the client died, each gets what changed until the next began."""
        last: Entry | None = None
        seen = Tree()
        for entry in entries:
            if entry.done:
                self._replay(entry, seen)
            elif entry.owner is not None and not self._is_alive(entry.owner):
                known = self.index.read_tree(entry.tree or 0, entry.since)
                if known is None:
                    self.index.remove(entry.id)  # what it changed is not known
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
        """What other calls did since is theirs, unless a write was killed before it came to it."""
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
        """While a call acts: no undo begins, and nothing is swept away."""
        with self._lock:
            store, index = self._open()
        with (
            hold(index.lock, fcntl.LOCK_SH, patient=True, busy=BUSY),
            hold(store.lock, fcntl.LOCK_SH, patient=True, busy=BUSY),
        ):
            store.refresh()  # while nobody sweeps: what is taken for kept is there
            yield

    def close(self) -> None:
        """Let go of the store."""
        with self._lock:
            if self._store is not None:
                self._ends.close()
                (self.index.directory / self._owner).unlink(missing_ok=True)
                sweep(self._store, days=self._days, max_bytes=self._max_bytes)
                self._store = None

    # A write

    @contextlib.contextmanager
    def writing(self, tool_id: str, summary: str) -> Generator[KeptWrite]:
        """Around a write. Raises only while an undo is under way; what cannot be kept is in `warning`."""
        write = KeptWrite(self, tool_id, summary)
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

    def keep_old(self, write: KeptWrite, replacing: Replacing) -> None:
        """Right before the rename. The lock stays held until the write is over: nobody looks in between."""
        if write.warning is not None or self._store is None:
            return
        self._lock.acquire()
        write.locked = True
        try:
            before = self._old_state(write, replacing)
            after = self._new_state(replacing)
            made = {path: (None, look(self._paths, path)) for path in replacing.made}
            write.change = {**made, replacing.real: (before, after)}
            self._learn(write.change)
            self._store.sync()
            entry = Entry(write.id, "write_file", write.summary, now(), write.change)
            if write.warning is not None:
                entry.notes.append(write.warning)
            self.index.put(entry)
            write.recorded = True
        except OSError as error:
            write.warning = _not_kept(error)

    def _old_state(self, write: KeptWrite, replacing: Replacing) -> State | None:
        """What is replaced now: not only what was there when the write began."""
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

    def _new_state(self, replacing: Replacing) -> State:
        return state_of(os.fstat(replacing.new_fd))._replace(digest=replacing.new_digest())

    def _learn(self, changes: dict[str, Change]) -> None:
        """Count our own write as known, and what was there before it as the doing of what runs."""
        if not self._watch.looked:
            return
        for path, (before, after) in changes.items():
            known = self._watch.get(path)
            if self._running and not same(known, before):
                self._attribute({path: (known, before)})
            self._watch.learn(path, after)

    def _void(self, write: KeptWrite) -> None:
        if not write.recorded:
            return
        self._learn({path: (after, before) for path, (before, after) in write.change.items()})
        with contextlib.suppress(OSError):
            self.index.remove(write.id)

    # A command

    def begin(self, tool_id: str, tool_name: str, summary: str) -> Running:
        """Before a command: look at everything. Raises ToolFailure while an undo is under way, OSError as the disk."""
        ends = contextlib.ExitStack()
        try:
            ends.enter_context(self._calling())
            with self._lock:
                store, index = self._open()
                self._attribute(self._watch.look(store))
                running = Running(tool_id, tool_name, summary, now(), done=False, owner=self._owner, ends=ends)
                running.tree, since = self._watch.save(index)
                running.since = list(since.items())
                index.put(running, sync=False)
                running.together.extend(self._running)
                for other in self._running.values():
                    other.together.append(tool_id)
                self._running[tool_id] = running
        except BaseException:
            ends.close()
            raise
        return running

    def glance(self, known: Tree | None = None) -> Tree:
        """What is there now, where nothing can be kept: no file is read. Raises OSError as the disk does."""
        return self._watch.glance(known or Tree())

    def end(self, running: Running) -> dict[str, Change]:
        """After a command: what it changed, written down. Raises OSError as the disk does."""
        with running.ends, self._lock:
            del self._running[running.id]
            store, _ = self._open()
            self._take_over(running, self._watch.look(store))
            self._put_ended(store, running)
        self._sweep_if_full()
        return running.changes

    def _put_ended(self, store: ObjectStore, entry: Entry) -> None:
        """Write down what a command changed; one that changed nothing is forgotten."""
        entry.notes += self._notes(store, entry.changes)
        entry.done, entry.tree, entry.since = True, None, []
        if entry.changes:
            store.sync()
            self.index.put(entry)
        else:
            self.index.remove(entry.id, sync=False)

    def _notes(self, store: ObjectStore, changes: dict[str, Change]) -> list[str]:
        """What was not seen, and what cannot be brought back."""
        notes: list[str] = []
        if self._watch.truncated:
            notes.append(
                f"There are more files here than are watched ({self._max_files}, the upper levels first): "
                "what it changed beyond them is not listed and cannot be undone."
            )
        if self._watch.closed:
            notes.append(f"What it changed in {_named(self._watch.closed)} is not known: no permission to look.")
        lost = [path for path, (before, _) in sorted(changes.items()) if why_not_kept(before, store) is not None]
        if lost:
            notes.append(
                f"{_named(lost)} cannot be brought back by undo: too large, not readable, or no room to keep it."
            )
        return notes

    def _attribute(self, changes: dict[str, Change]) -> None:
        """A change while commands run belongs to one of them; while none runs, it is somebody else's own."""
        if self._running and changes:
            self._take_over(next(iter(self._running.values())), changes)

    def _take_over(self, running: Running, changes: dict[str, Change]) -> None:
        """Count changes for one command, with what was counted for another that still runs: a path has one of them."""
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
