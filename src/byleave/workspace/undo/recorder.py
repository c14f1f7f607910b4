"""Keeping what was there: what a write replaces, and what a command changed, so that it can be undone.

One `UndoRecorder` serves one workspace. It knows the tree as it was last seen (`watching`); at each beginning and end
of a command it looks again, and what differs belongs to a command that ran meanwhile. So each change is in one entry,
also where calls ran at the same time, and undoing newest first leads back. A write's old content is kept in the same
moment in which it is replaced. Recording never stops a call: what could not be kept is said in the entry and in the
result. What others change while a command runs cannot be told from its own doing, and is shown before anything is
undone.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from byleave.protocol.wire import now
from byleave.workspace.files.writing import Replacing
from byleave.workspace.paths import PathValidator, visible

from .entries import Entry, Index, changes_json, read_entries, read_tree, sweep
from .snapshots import Change, State, Tree, changes_between, look, merged, same, state_of, to_json
from .store import ObjectStore, hold
from .watching import WatchedTree, why_not_kept

MAX_FILES = 20_000
CALL_BYTES = 50 * 1024 * 1024
"""Most that is copied at one look, and so the largest file that is kept."""
_NAMED = 5
_SWEEP_SECONDS = 60.0
_INDEX_SHARE = 20
"""A list may take one part in so many of the store before it is swept."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
BUSY = "An undo is under way in this workspace; nothing was run."
INTERRUPTED = "The client stopped while this ran; what others changed until it was looked at again is among it."
UNKNOWN = "What it changed is not known: the client stopped while it ran."
INSIDE = "Byleave's own directory lies in the workspace; set BYLEAVE_HOME to one outside"


@dataclass(slots=True)
class Running:
    """A command that runs now."""

    id: str
    ends: contextlib.ExitStack
    changes: dict[str, Change] = field(default_factory=dict[str, Change])
    together: set[str] = field(default_factory=set[str])
    tree: str | None = None
    notes: list[str] = field(default_factory=list[str])
    """What a person should know of it: what was not watched, what cannot be brought back."""


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
        newest = max(self.index.trees(), key=lambda path: path.stat().st_mtime_ns, default=None)
        self._finish(store, read_entries(self.index))
        for left in self.index.directory.glob("owner-*"):
            self._is_alive(left.name)  # removes it where not
        if not self._watch.looked and newest is not None:
            self._watch.begin_with(read_tree(newest) or Tree(), looked=False)

    def _finish(self, store: ObjectStore, entries: list[Entry]) -> None:
        """Where several commands ran when the client died, each gets what changed until the next began."""
        last: Entry | None = None
        seen = Tree()
        for entry in entries:
            if entry.done:
                self._replay(entry, seen)
            elif entry.owner is not None and not self._is_alive(entry.owner):
                known = read_tree(self.index.directory / (entry.tree or ""), entry.since)
                if known is None:
                    self._write_end(store, Running(entry.id, self._ends, notes=[UNKNOWN]))
                    continue
                if last is not None:
                    changes = changes_between(seen, known.states)
                    self._write_end(store, Running(last.id, self._ends, changes, notes=[INTERRUPTED]))
                last, seen = entry, known
        if last is not None:
            self._watch.begin_with(seen, looked=True)
            self._write_end(store, Running(last.id, self._ends, self._watch.look(store), notes=[INTERRUPTED]))

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
            notes = [write.warning] if write.warning is not None else []
            line = {"step": "write", "id": write.id, "tool_name": "write_file", "summary": write.summary, "at": now()}
            self.index.append({**line, "changes": changes_json(write.change), "notes": notes})
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
            self.index.append({"step": "void", "id": write.id})

    # A command

    def begin(self, tool_id: str, tool_name: str, summary: str) -> Running:
        """Before a command: look at everything. Raises ToolFailure while an undo is under way, OSError as the disk."""
        ends = contextlib.ExitStack()
        try:
            ends.enter_context(self._calling())
            with self._lock:
                store, index = self._open()
                self._attribute(self._watch.look(store))
                tree, since = self._watch.save(index, [running.tree for running in self._running.values()])
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

    def glance(self, known: Tree | None = None) -> Tree:
        """What is there now, where nothing can be kept: no file is read. Raises OSError as the disk does."""
        return self._watch.glance(known or Tree())

    def end(self, running: Running) -> dict[str, Change]:
        """After a command: what it changed, written down. Raises OSError as the disk does."""
        with running.ends, self._lock:
            del self._running[running.id]
            store, _ = self._open()
            self._take_over(running, self._watch.look(store))
            self._write_end(store, running)
        self._sweep_if_full()
        return running.changes

    def _write_end(self, store: ObjectStore, running: Running) -> None:
        running.notes += self._notes(store, running.changes)
        line = {"step": "end", "id": running.id, "changes": changes_json(running.changes), "notes": running.notes}
        if running.changes:
            store.sync()
        self.index.append({**line, "together": sorted(running.together)}, sync=bool(running.changes))

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
        if store is None or (store.room_for(self._max_bytes // 10) and not self._is_long(self.index)):
            return
        with self._lock:
            if time.monotonic() - self._swept > _SWEEP_SECONDS and sweep(
                store, days=self._days, max_bytes=self._max_bytes
            ):
                self._swept = time.monotonic()

    def _is_long(self, index: Index) -> bool:
        try:
            return index.path.stat().st_size > self._max_bytes // _INDEX_SHARE
        except OSError:
            return False


def _not_kept(error: OSError) -> str:
    return f"This cannot be undone: what was there before could not be kept ({error.strerror})."


def _named(paths: list[str]) -> str:
    listed = ", ".join(repr(visible(path)) for path in paths[:_NAMED])
    return f"{listed} and {len(paths) - _NAMED} more" if len(paths) > _NAMED else listed
