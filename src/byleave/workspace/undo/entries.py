"""The index of undo: entries about what calls changed in one workspace, in an SQLite file.

An entry is one call (or one undo) with each path it changed, before and after. A write is stored before it acts, a
command when it begins and again when it ends, an undo before its first step and again after its last. Storing an entry
again gives it a new row, so rows are in the order in which calls ended. The file also keeps the trees that commands
began with. Two clients may use one file. A damaged one is set aside and reported as OSError: no call stops for it.
`sweep` removes entries that are too old, or the oldest if there is too much (never the newest), and the contents that
no entry needs. `hold` keeps a sweep from removing contents that a call relies on, and an undo from running beside one.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import sqlite3
import time
import weakref
import zlib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from byleave.protocol.errors import ToolFailure
from byleave.protocol.wire import timestamp

from .snapshots import Change, Tree, from_json
from .store import ObjectStore

_FULL = 0.9
"""Share of the limit that a sweep leaves, so that the next call does not sweep again."""
_CHANGE_BYTES = 300
"""Approximate size of one change in the file."""
_WAIT_SECONDS = 30.0
_PAUSE = 0.02
# WAL: one sync a commit, and readers do not wait. Small pages: an entry is small, and a commit writes three of them.
# AUTOINCREMENT: a row's number is never used again.
_SCHEMA = """
PRAGMA page_size = 1024;
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE entries (row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, value TEXT NOT NULL);
CREATE TABLE trees (saved_ns INTEGER PRIMARY KEY, value BLOB NOT NULL);
PRAGMA user_version = 1;
COMMIT;
"""
_BESIDE = ("-wal", "-shm")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NONSENSE = (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError)


@contextlib.contextmanager
def hold(path: Path, kind: int, *, patient: bool, busy: str = "") -> Generator[None]:
    """Hold a lock file. Raises ToolFailure with `busy` if somebody else does; `patient` waits a while first."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + (_WAIT_SECONDS if patient else 0)
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise ToolFailure(busy or "The undo store is in use.", hint="Try again in a moment.") from error
                # Polling, on a thread of its own: a lock in another process sends no event, and a blocking flock has
                # no timeout.
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class Entry:
    """One call and what it changed."""

    id: str
    """The call's tool_id, or the id of an undo."""
    tool_name: str
    summary: str
    at: str
    changes: dict[str, Change] = field(default_factory=dict[str, Change])
    notes: list[str] = field(default_factory=list[str])
    together: list[str] = field(default_factory=list[str])
    """Other calls that ran at the same time."""
    undoes: str | None = None
    done: bool = True
    """False: it has begun, and its outcome is not known."""
    owner: str | None = None
    """The client that runs it."""
    tree: int | None = None
    since: list[Any] = field(default_factory=list[Any])
    """With `tree`, the workspace when it began: the number of a saved tree, and the differences from it."""
    undone_by: str | None = None

    @property
    def undoable(self) -> bool:
        return self.done and bool(self.changes) and self.undone_by is None


_FIELDS = [name for name in Entry.__slots__ if name != "undone_by"]


def _to_json(entry: Entry) -> str:
    return json.dumps({name: getattr(entry, name) for name in _FIELDS}, separators=(",", ":"))


def _from_json(text: bytes) -> Entry:
    value: Any = json.loads(text)
    changes: dict[str, Change] = {}
    for path, (before, after) in value["changes"].items():
        parts = path.split("/")
        if ".." in parts or "" in parts:
            raise ValueError(path)
        changes[path] = (from_json(before), from_json(after))
    return Entry(**value | {"changes": changes})


class Index:
    """The entries and trees of one workspace. Every method raises OSError as the disk does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / "index.db"
        self.lock = directory / "lock"
        """Held shared by running calls, exclusively by an undo."""
        self.recovery = directory / "recovery"
        """Held by the client that finishes entries left open by a crash."""
        self._opening = directory / "opening"
        self._database: sqlite3.Connection | None = None
        self._inode = 0
        self._syncs: bool | None = None
        self._rows: dict[int, Entry] = {}
        self._last_row = 0

    @classmethod
    def of(cls, store: ObjectStore, root: Path) -> "Index":
        """The index of one workspace."""
        return cls(_place(store, root))

    @staticmethod
    def is_kept(store: ObjectStore, root: Path) -> bool:
        """True if calls of a workspace were recorded."""
        return (_place(store, root) / "index.db").exists()

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    # Entries

    def entries(self) -> list[Entry]:
        """Return all entries in the order in which they ended; skip invalid rows."""
        if not self.path.exists():
            return []
        with self._transaction("DEFERRED") as database:
            present = {row for (row,) in database.execute("SELECT row FROM entries")}
            self._rows = {row: entry for row, entry in self._rows.items() if row in present}
            # As bytes: an undecodable character must not hide the other rows.
            new = "SELECT row, CAST(value AS BLOB) FROM entries WHERE row > ? ORDER BY row"
            for row, value in database.execute(new, (self._last_row,)):
                self._last_row = row
                with contextlib.suppress(*_NONSENSE):
                    self._rows[row] = _from_json(value)
        _mark_undone(self._rows.values())
        return list(self._rows.values())

    def put(self, entry: Entry, *, without: Iterable[str] = (), sync: bool = True) -> None:
        """Write an entry as the newest, and remove others. `sync`: it is on the disk when this returns."""
        with self._transaction("IMMEDIATE", sync=sync) as database:
            database.execute("INSERT OR REPLACE INTO entries (id, value) VALUES (?, ?)", (entry.id, _to_json(entry)))
            for one in without:
                database.execute("DELETE FROM entries WHERE id = ?", (one,))

    def remove(self, tool_id: str, *, sync: bool = True) -> None:
        with self._transaction("IMMEDIATE", sync=sync) as database:
            database.execute("DELETE FROM entries WHERE id = ?", (tool_id,))

    # Trees: the workspace when a command began, for recovery after a crash, and a cache of digests

    def save_tree(self, tree: Tree) -> int:
        """Save a tree and return its number, a time in ns. Not synced: after a power cut the files are read again."""
        value = {"truncated": tree.truncated, "unseen": sorted(tree.unseen), "states": tree.states}
        packed = zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)
        number = time.time_ns()
        with self._transaction("IMMEDIATE") as database:
            database.execute("INSERT INTO trees (saved_ns, value) VALUES (?, ?)", (number, packed))
        return number

    def has_tree(self, number: int) -> bool:
        with self._transaction("DEFERRED") as database:
            return database.execute("SELECT 1 FROM trees WHERE saved_ns = ?", (number,)).fetchone() is not None

    def read_tree(self, number: int | None = None, since: Iterable[Any] = ()) -> Tree | None:
        """Return a tree (without a number the newest) with the differences `since`; None if it cannot be read."""
        if not self.path.exists():
            return None
        with self._transaction("DEFERRED") as database:
            found = database.execute(
                "SELECT value FROM trees WHERE saved_ns = coalesce(?, (SELECT max(saved_ns) FROM trees))", (number,)
            ).fetchone()
        try:
            value: Any = json.loads(zlib.decompress(found[0]))
            read = {path: from_json(state) for path, state in (*value["states"].items(), *since)}
            states = {path: state for path, state in read.items() if state is not None}
            return Tree(states, bool(value["truncated"]), set(value["unseen"]))
        except (*_NONSENSE, zlib.error):
            return None

    def keep_only(self, entries: Iterable[Entry], oldest_ns: int) -> None:
        """Remove all other entries that were read, trees that no open entry needs, and old damaged or legacy files."""
        kept = {entry.id for entry in entries}
        trees = {entry.tree for entry in entries if not entry.done}
        if self.path.exists():
            with self._transaction("IMMEDIATE") as database:
                rows = database.execute("SELECT row FROM entries WHERE row <= ?", (self._last_row,)).fetchall()
                gone = [(row,) for (row,) in rows if row not in self._rows or self._rows[row].id not in kept]
                database.executemany("DELETE FROM entries WHERE row = ?", gone)
                unused = database.execute(
                    "SELECT saved_ns FROM trees WHERE saved_ns < max(?, (SELECT max(saved_ns) FROM trees))",
                    (oldest_ns,),
                ).fetchall()
                database.executemany(
                    "DELETE FROM trees WHERE saved_ns = ?", [one for one in unused if one[0] not in trees]
                )
                database.execute("PRAGMA incremental_vacuum").fetchall()
        for pattern in ("damaged-*", "index.jsonl", "tree-*"):
            for path in self.directory.glob(pattern):
                if path.stat().st_mtime_ns < oldest_ns:
                    path.unlink(missing_ok=True)

    # The file

    @contextlib.contextmanager
    def _transaction(
        self, kind: Literal["DEFERRED", "IMMEDIATE"], *, sync: bool = False
    ) -> Generator[sqlite3.Connection]:
        try:
            database = self._open()
            if sync is not self._syncs:
                database.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
                self._syncs = sync
            with database:
                database.execute(f"BEGIN {kind}")
                yield database
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _open(self) -> sqlite3.Connection:
        """Connect; reconnect if another client has set a damaged file aside and created a new one."""
        if self._database is not None and self._is_same_file():
            return self._database
        self.close()
        with hold(self._opening, fcntl.LOCK_EX, patient=True):
            if not self.path.exists():
                for end in _BESIDE:  # the log of another file must not be replayed into this one
                    self.path.with_name(self.path.name + end).unlink(missing_ok=True)
                # Not opened: closing it would release the locks of this process's other connections.
                os.mknod(self.path, 0o600)
            database = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
            self._inode = self.path.stat().st_ino
            try:
                if database.execute("PRAGMA user_version").fetchone() == (0,):
                    database.executescript(_SCHEMA)
            except sqlite3.Error:
                database.close()  # the disk may be full: the next call tries again
                raise
            self._database = database
            weakref.finalize(self, database.close)
        return database

    def _is_same_file(self) -> bool:
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def _failure(self, error: sqlite3.Error) -> OSError:
        """Return the error to raise; set a damaged file aside, so that the next call has a new one."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code not in _DAMAGED:
            return OSError(errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO, str(error))
        aside = f"damaged-{secrets.token_hex(8)}"
        with hold(self._opening, fcntl.LOCK_EX, patient=True):
            if self._is_same_file():
                for end in (*_BESIDE, ""):
                    with contextlib.suppress(FileNotFoundError):
                        self.path.with_name(self.path.name + end).rename(self.directory / (aside + end))
        self.close()
        return OSError(errno.EIO, f"the record of earlier calls was damaged ({error}); it was renamed to {aside!r}")

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database, self._syncs, self._rows, self._last_row = None, None, {}, 0


def _place(store: ObjectStore, root: Path) -> Path:
    return store.directory / "workspaces" / hashlib.sha256(os.fsencode(root)).hexdigest()[:24]


def _mark_undone(entries: Iterable[Entry]) -> None:
    by_id = {entry.id: entry for entry in entries}
    for entry in by_id.values():
        entry.undone_by = None
    for entry in by_id.values():
        if entry.undoes in by_id and entry.done:
            by_id[entry.undoes].undone_by = entry.id
    # An undo that was itself undone does not count.
    for entry in reversed(by_id.values()):
        if entry.undone_by is not None and by_id[entry.undone_by].undone_by is not None:
            entry.undone_by = None


# Sweeping


def digests(changes: Mapping[str, Change]) -> set[str]:
    return {state.digest for pair in changes.values() for state in pair if state is not None and state.digest}


def sweep(store: ObjectStore, *, days: float, max_bytes: int) -> bool:
    """Remove entries that are too old, or the oldest if there is too much. False: nothing could be removed now."""
    try:
        with hold(store.lock, fcntl.LOCK_EX, patient=False), contextlib.ExitStack() as ends:
            indexes = [Index(path) for path in (store.directory / "workspaces").iterdir() if path.is_dir()]
            for index in indexes:
                ends.callback(index.close)
            _sweep(store, indexes, datetime.now(UTC) - timedelta(days=days), int(max_bytes * _FULL))
    except (ToolFailure, OSError):
        return False  # in use, a full disk, or an unreadable index: nothing is removed
    return True


def _sweep(store: ObjectStore, indexes: list[Index], oldest: datetime, max_bytes: int) -> None:
    store.refresh()
    entries = [(entry, index) for index in indexes for entry in index.entries() if entry.at >= timestamp(oldest)]
    kept = _newest_that_fit(store, entries, max_bytes)
    for index in indexes:
        index.keep_only([entry for entry, where in kept if where is index], int(oldest.timestamp() * 1e9))
    needed = set[str]().union(*(digests(entry.changes) for entry, _ in kept))
    # A call that a crash left open may have changed everything.
    needed.update(*(_tree_digests(index.read_tree(entry.tree, entry.since)) for entry, index in kept if entry.tree))
    room = max_bytes - sum(store.size_of(digest) for digest in needed)
    # The next command may change any file of the last scan.
    seen = set[str]().union(*(_tree_digests(index.read_tree()) for index in indexes))
    for digest in sorted(seen - needed, key=store.size_of):
        room -= store.size_of(digest)
        if room < 0:
            break
        needed.add(digest)
    store.sweep(needed)


def _newest_that_fit(
    store: ObjectStore, entries: list[tuple[Entry, Index]], max_bytes: int
) -> list[tuple[Entry, Index]]:
    """Return as many of the newest entries as there is room for, at least one, in the order given."""
    kept: set[int] = set()
    counted: set[str] = set()
    room = max_bytes
    for entry, _ in sorted(entries, key=lambda pair: pair[0].at, reverse=True):
        new = digests(entry.changes) - counted
        room -= sum(store.size_of(digest) for digest in new) + _CHANGE_BYTES * len(entry.changes)
        if room < 0 and kept:
            break
        counted |= new
        kept.add(id(entry))
    return [pair for pair in entries if id(pair[0]) in kept]


def _tree_digests(tree: Tree | None) -> set[str]:
    return set() if tree is None else {state.digest for state in tree.states.values() if state.digest}
