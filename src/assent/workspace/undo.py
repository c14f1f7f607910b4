"""Keeping what was there: what a write replaces, and what a command changed, so that it can be undone.

One `UndoRecorder` serves one workspace. It knows the tree as it last saw it; at each beginning and end of a command it
looks again, and what differs belongs to a command that ran meanwhile. So each change is in one entry, also where calls
ran at the same time, and undoing newest first leads back. A write's old content is kept in the same moment in which it
is replaced. Recording never stops a call: what could not be kept is said in the entry and in the result. What others
change while a command runs cannot be told from its own doing, and is shown before anything is undone.
"""

import contextlib
import fcntl
import os
import secrets
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from assent.protocol.values import now

from .paths import PathValidator
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
    to_json,
)
from .undo_entries import changes_json, read_entries, read_tree, sweep, write_tree
from .undo_store import Index, NoRoom, ObjectStore, hold
from .writing import Replacing

MAX_FILES = 20_000
CALL_BYTES = 50 * 1024 * 1024
"""Most that is copied at one look, and so the largest file that is kept."""
_FEW = 32
"""So many files are synced one by one; for more the disk is asked once."""
_MANY = 300
"""So many changes are told beside the tree that was saved; with more it is saved anew."""
_SWEEP_SECONDS = 60.0
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
BUSY = "An undo is under way in this workspace; nothing was run."
INTERRUPTED = "The client stopped while this ran; what others changed until it was looked at again is among it."
UNWATCHED = f"There are more than {MAX_FILES} files here; what lies beyond them was not watched."


@dataclass(slots=True)
class Running:
    """A command that runs now."""

    id: str
    ends: contextlib.ExitStack
    changes: dict[str, Change] = field(default_factory=dict[str, Change])
    together: set[str] = field(default_factory=set[str])
    tree: str | None = None


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
        self._without = _below(paths.root, self._home)
        self._store: ObjectStore | None = None
        self._lock = threading.Lock()
        self._states: dict[str, State] = {}
        self._looked = False
        self._tree = Tree()
        self._tree_name: str | None = None
        self._saved: dict[str, State] = {}
        self._running: dict[str, Running] = {}
        self._owner = f"owner-{os.getpid()}-{secrets.token_hex(8)}"
        self._ends = contextlib.ExitStack()
        self._swept = 0.0

    # The store, opened at the first use

    def _open(self) -> tuple[ObjectStore, Index]:
        """Called with the lock held."""
        if self._store is None:
            store = ObjectStore(self._home, max_bytes=self._max_bytes)
            self.index = Index.of(store, self._paths.root)
            self._ends.enter_context(hold(self.index.directory / self._owner, fcntl.LOCK_EX, patient=False))
            sweep(store, days=self._days, max_bytes=self._max_bytes)
            self._swept = time.monotonic()
            self._store = store
            self._recover()
        return self._store, self.index

    def recover(self) -> None:
        """Finish what a client that was killed left open. Each first use does it; this is for those who only look."""
        with self._lock:
            self._open()

    def _recover(self) -> None:
        """Take the digests of the last run, and finish what a crash left open."""
        newest = max(self.index.trees(), key=lambda path: path.stat().st_mtime_ns, default=None)
        for entry in read_entries(self.index):
            if entry.owner is None or entry.done or self._is_alive(entry.owner):
                continue
            known = read_tree(self.index.directory / (entry.tree or ""), entry.since)
            if known is None:
                self._write_end(entry.id, {}, ["What it changed is not known: the client stopped while it ran."], set())
                continue
            self._states, self._tree, self._looked = known.states, known, True
            self._write_end(entry.id, self._look(), [INTERRUPTED], set())
        for left in self.index.directory.glob("owner-*"):
            self._is_alive(left.name)  # removes it where not
        if not self._looked and newest is not None:
            self._states = (read_tree(newest) or Tree()).states

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
            notes = [write.warning] if write.warning is not None else []
            line = {"step": "write", "id": write.id, "tool_name": "write_file", "summary": write.summary, "at": now()}
            self.index.append({**line, "changes": changes_json(write.change), "notes": notes})
            write.recorded = True
        except OSError as error:
            write.warning = _not_kept(error)

    def _old_state(self, write: KeptWrite, replacing: Replacing) -> State | None:
        if replacing.old is None or replacing.old_fd is None or self._store is None:
            return None
        state = state_of(replacing.old)
        try:
            source = os.open(f"/proc/self/fd/{replacing.old_fd}", _READ | os.O_CLOEXEC)
            try:
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
        if not self._looked:
            return
        for path, (before, after) in changes.items():
            if self._running and not same(self._states.get(path), before):
                self._attribute({path: (self._states.get(path), before)})
            if after is None:
                self._states.pop(path, None)
            else:
                self._states[path] = after

    def _void(self, write: KeptWrite) -> None:
        if not write.recorded:
            return
        self._learn({path: (after, before) for path, (before, after) in write.change.items()})
        with contextlib.suppress(OSError):
            self.index.append({"step": "void", "id": write.id})

    # A command

    def begin(self, tool_id: str, tool_name: str, summary: str) -> Running:
        """Before a command: look at everything. Raises ToolFailure while an undo is under way, OSError as the disk."""
        ends = contextlib.ExitStack()
        try:
            ends.enter_context(self._calling())
            with self._lock:
                store, index = self._open()
                store.refresh()
                self._attribute(self._look())
                tree, since = self._save_tree()
                running = Running(tool_id, ends, tree=tree)
                line = {"step": "begin", "id": tool_id, "tool_name": tool_name, "summary": summary, "at": now()}
                known = [[path, to_json(state)] for path, state in since.items()]
                index.append({**line, "owner": self._owner, "tree": tree, "since": known}, sync=False)
                running.together.update(self._running)
                for other in self._running.values():
                    other.together.add(tool_id)
                self._running[tool_id] = running
        except BaseException:
            ends.close()
            raise
        return running

    def end(self, running: Running) -> dict[str, Change]:
        """After a command: what it changed, written down. Raises OSError as the disk does."""
        with running.ends, self._lock:
            del self._running[running.id]
            self._take_over(running, self._look())
            notes = [UNWATCHED] if self._tree.truncated else []
            self._write_end(running.id, running.changes, notes, running.together)
        self._sweep_if_full()
        return running.changes

    def _write_end(self, key: str, changes: dict[str, Change], notes: list[str], together: set[str]) -> None:
        line = {"step": "end", "id": key, "changes": changes_json(changes), "notes": notes}
        self.index.append({**line, "together": sorted(together)}, sync=bool(changes))

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

    # Looking

    def _look(self) -> dict[str, Change]:
        """What changed since the last look; the contents of what is new are kept."""
        known, unseen = self._states, tuple(self._tree.unseen)
        tree = TreeScan(self._paths, known, max_files=self._max_files, without=self._without).run()
        states = tree.states
        states.update(carried_over(self._paths, known, tree))
        fresh = [path for path, state in states.items() if state.kind == "file" and not self._has(state)]
        self._capture(states, fresh)
        changes = changes_between(known, states, seen_all=self._looked and not self._tree.truncated)
        if unseen:
            changes = {path: pair for path, pair in changes.items() if pair[0] or not path.startswith(unseen)}
        self._states, self._tree, self._looked = states, tree, True
        return changes

    def _has(self, state: State) -> bool:
        """Whether a file's content is kept, and an equal stamp means that it is still this one."""
        return state.settled and state.digest is not None and self._store is not None and self._store.has(state.digest)

    def _capture(self, states: dict[str, State], fresh: list[str]) -> None:
        """Keep contents, small files first, as far as there is room."""
        store = self._store
        if store is None or not fresh:
            return
        fresh.sort(key=lambda path: states[path].stamp[0])
        room = self._call_bytes
        with store.many() if len(fresh) > _FEW else contextlib.nullcontext():
            for path in fresh:
                size = states[path].stamp[0]
                if size > room or not store.room_for(size):
                    break
                with contextlib.suppress(OSError):  # gone, not permitted, or swapped for something else
                    states[path] = self._read(store, path, sync=len(fresh) <= _FEW)
                    room -= size

    def _read(self, store: ObjectStore, path: str, *, sync: bool) -> State:
        fd = self._paths.open_exact(path, _READ)
        try:
            began = time.time_ns()
            before = state_of(os.fstat(fd))
            if before.kind != "file":
                raise NoRoom(22, "it is no file")
            digest = store.put_file(fd, max_bytes=self._call_bytes, sync=sync)
            after = state_of(os.fstat(fd))
            return after._replace(digest=digest, settled=before == after and is_settled(after, began))
        finally:
            os.close(fd)

    def _save_tree(self) -> tuple[str, dict[str, State | None]]:
        """What the next reader needs after a crash, or to read no file twice: a tree, and what differs since."""
        base, states = self._saved, self._states
        since: dict[str, State | None] = {path: state for path, state in states.items() if base.get(path) is not state}
        since.update((path, None) for path in base if path not in states)
        name = self._tree_name
        if name is None or len(since) > _MANY or self._tree.truncated or self._tree.unseen:
            fresh = f"tree-{secrets.token_hex(8)}"
            write_tree(self.index.directory / fresh, states, self._tree)
            if name is not None and all(running.tree != name for running in self._running.values()):
                (self.index.directory / name).unlink(missing_ok=True)
            name, self._saved, since = fresh, dict(states), {}
            self._tree_name = name
        return name, since

    def _sweep_if_full(self) -> None:
        store = self._store
        if store is None or store.room_for(self._max_bytes // 10):
            return
        with self._lock:
            if time.monotonic() - self._swept > _SWEEP_SECONDS:
                self._swept = time.monotonic()
                with contextlib.suppress(OSError):
                    sweep(store, days=self._days, max_bytes=self._max_bytes)


def _not_kept(error: OSError) -> str:
    return f"This cannot be undone: what was there before could not be kept ({error.strerror})."


def _below(root: Path, path: Path) -> str | None:
    """`path` as seen from the workspace, when it lies in it."""
    try:
        return str(path.relative_to(root))
    except ValueError:
        return None
