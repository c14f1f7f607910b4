"""The undo store: contents by their SHA-256, and for each workspace an index of what calls changed.

It lies in the client's home, outside the workspace, readable by its owner alone. Contents are many to a file: a file
for each would cost a thousand times as much, and SQLite three times. Each process appends to a bundle of its own, which
is never rewritten in place: a sweep copies the needed contents into a new one. Records torn by a crash are skipped.
After a reboot every record is compared with its digest once, and every content is when it is read.

An entry of the index is one call (or one undo) with each path it changed, before and after. A write is stored before it
acts, a command when it begins and again when it ends, an undo before its first step and again after its last. Storing
an entry again gives it a new row, so rows are in the order in which calls ended. The index is an SQLite file and also
keeps the trees that commands began with. Two clients may use one file. A damaged one is set aside and reported as
OSError: no call stops for it.

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
import struct
import time
import weakref
import zlib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

from byleave.protocol.errors import ToolFailure
from byleave.protocol.wire import timestamp

from .snapshots import Change, State, Tree, from_json

_CHUNK = 1 << 20
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_HEAD = struct.Struct("<32sQ")
"""Before each content: its digest and its size."""
_NONE, _VOID = bytes(32), b"\xff" * 32
_BUNDLE_BYTES = 64 * 1024 * 1024
_SMALL_BUNDLE = 1024 * 1024
_MANY_BUNDLES = 8


class NoRoom(OSError):
    """The store is full, or a file is too large to be kept."""


class _Place(NamedTuple):
    bundle: str
    offset: int
    size: int


class _Bundle:
    """The file this process appends to."""

    def __init__(self, directory: Path, boot: str) -> None:
        self.name = f"{boot}-{secrets.token_hex(8)}"
        self.fd = os.open(directory / self.name, _CREATE, 0o600)
        self.end = 0
        self.synced = 0

    def append(self, digest: bytes, data: bytes) -> _Place:
        place = _Place(self.name, self.end + _HEAD.size, len(data))
        try:
            _write_all(self.fd, _HEAD.pack(digest, len(data)) + data, self.end)
        except OSError:
            self.take_back()
            raise
        self.end = place.offset + place.size
        return place

    def take_back(self) -> None:
        """Cut off an unfinished record."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, self.end)

    def sync(self) -> None:
        if self.synced < self.end:
            os.fsync(self.fd)
            self.synced = self.end

    def close(self) -> None:
        os.close(self.fd)


class ObjectStore:
    """Contents by digest, up to a number of bytes."""

    def __init__(self, home: Path, *, max_bytes: int) -> None:
        self.directory = home / "undo"
        self._bundles = self.directory / "bundles"
        self._max_bytes = max_bytes
        for path in (home, self.directory, self._bundles, self.directory / "workspaces"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.directory, 0o700)
        self.lock = self.directory / "lock"
        self._boot = _boot()
        self._known: dict[str, _Place] = {}
        self._ends: dict[str, int] = {}
        """The offset up to which each bundle has been read."""
        self._own: _Bundle | None = None
        self.refresh()

    @property
    def size(self) -> int:
        """Bytes kept, as far as this process knows."""
        return sum(self._ends.values())

    def refresh(self) -> None:
        """Read the bundles again: all of them after a sweep, else only what others added."""
        sizes: dict[str, int] = {}
        for entry in os.scandir(self._bundles):
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False):
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        if not self._ends.keys() <= sizes.keys():
            self._known, self._ends = {}, {}
            self.close()  # our own bundle may have been swept away
        for name, size in sizes.items():
            if self._own is None or name != self._own.name:
                # Gone meanwhile, or another user's (a client that ran as root): its contents count as not kept.
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    self._learn(name, size)

    def _learn(self, name: str, size: int) -> None:
        at = self._ends.get(name, 0)
        if size <= at:
            return
        # From another boot: a power cut may have damaged records that were not synced.
        doubtful = not name.startswith(f"{self._boot}-")
        fd = os.open(self._bundles / name, _READ | os.O_RDWR if doubtful else _READ)
        try:
            found, at = _records(fd, at, size, check=doubtful)
            if doubtful:
                name, old = f"{self._boot}-{secrets.token_hex(8)}", name
                os.rename(self._bundles / old, self._bundles / name)
        finally:
            os.close(fd)
        self._ends[name] = at
        for digest, offset, length in found:
            self._known.setdefault(digest, _Place(name, offset, length))

    def has(self, digest: str) -> bool:
        return digest in self._known

    def keeps(self, state: State) -> bool:
        """True if a file's content is kept, and its equal stamp proves that it is unchanged."""
        return state.settled and state.digest is not None and state.digest in self._known

    def put(self, data: bytes) -> str:
        """Keep bytes; they are on the disk after `sync`. Raises NoRoom, or OSError as the disk does."""
        digest = hashlib.sha256(data)
        name = digest.hexdigest()
        if name not in self._known:
            bundle = self._bundle(len(data))
            self._known[name] = bundle.append(digest.digest(), data)
            self._ends[bundle.name] = bundle.end
        return name

    def put_file(self, source: int, *, max_bytes: int, size: int | None = None) -> str:
        """Keep the content of an open file. Raises NoRoom if it is larger than `max_bytes`."""
        if size is None:
            size = os.fstat(source).st_size
        if size <= _CHUNK:
            data = os.pread(source, size + 1, 0)
            if len(data) == size <= max_bytes:
                return self.put(data)
        if size > max_bytes:
            raise NoRoom(27, "the file is too large")
        bundle = self._bundle(size)
        try:
            digest, copied = self._copy(bundle, source, max_bytes)
            name = digest.hex()
            if name not in self._known:
                # The head comes last: a record without one is not read.
                _write_all(bundle.fd, _HEAD.pack(digest, copied), bundle.end)
                self._known[name] = _Place(bundle.name, bundle.end + _HEAD.size, copied)
                bundle.end += _HEAD.size + copied
                self._ends[bundle.name] = bundle.end
            return name
        finally:
            bundle.take_back()

    def _copy(self, bundle: _Bundle, source: int, max_bytes: int) -> tuple[bytes, int]:
        digest, copied, start = hashlib.sha256(), 0, bundle.end + _HEAD.size
        while piece := os.pread(source, _CHUNK, copied):
            if copied + len(piece) > max_bytes:
                raise NoRoom(27, "the file is too large")
            digest.update(piece)
            _write_all(bundle.fd, piece, start + copied)
            copied += len(piece)
        return digest.digest(), copied

    def _bundle(self, size: int) -> _Bundle:
        if not self.room_for(size):
            raise NoRoom(28, "the undo store is full")
        if self._own is not None and self._own.end > _BUNDLE_BYTES:
            self.sync()
            self.close()
        if self._own is None:
            self._own = _Bundle(self._bundles, self._boot)
        return self._own

    def sync(self) -> None:
        """Return when all that was put is on the disk."""
        if self._own is not None:
            self._own.sync()

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None

    def read(self, digest: str) -> bytes | None:
        """Return the bytes; None if they are missing or damaged."""
        place = self._known.get(digest)
        if place is None:
            return None
        try:
            fd = os.open(self._bundles / place.bundle, _READ)
        except OSError:
            return None
        try:
            data = _pread(fd, place.size, place.offset)
        finally:
            os.close(fd)
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def sweep(self, wanted: set[str]) -> None:
        """Remove all other contents. The caller holds `lock` alone."""
        self.close()
        live: dict[str, list[str]] = {}
        for digest, place in self._known.items():
            if digest in wanted:
                live.setdefault(place.bundle, []).append(digest)
        sizes = {name: sum(self.size_of(digest) for digest in found) for name, found in live.items()}
        small = [name for name, size in self._ends.items() if size < _SMALL_BUNDLE]
        # Rewriting a bundle costs time, keeping it costs space: be strict only if space is short.
        share = 0.8 if self.size < self._max_bytes / 2 else 0.98
        again = {name for name, size in self._ends.items() if sizes.get(name, 0) < size * share}
        again.update(small if len(small) > _MANY_BUNDLES else ())
        if again:
            self._write_anew([digest for name in again for digest in live.get(name, ())])
            for name in again:
                (self._bundles / name).unlink(missing_ok=True)
        self.refresh()

    def _write_anew(self, digests: list[str]) -> None:
        bundle: _Bundle | None = None
        try:
            for digest in digests:
                data = self.read(digest)
                if data is not None:
                    bundle = bundle or _Bundle(self._bundles, self._boot)
                    bundle.append(bytes.fromhex(digest), data)
            if bundle is not None:
                bundle.sync()
        except OSError:
            # The old bundles still hold these contents.
            if bundle is not None:
                (self._bundles / bundle.name).unlink(missing_ok=True)
            raise
        finally:
            if bundle is not None:
                bundle.close()

    def room_for(self, size: int) -> bool:
        """True if `size` more bytes may be kept."""
        return self.size + size <= self._max_bytes

    def size_of(self, digest: str) -> int:
        place = self._known.get(digest)
        return 0 if place is None else place.size + _HEAD.size


def _records(fd: int, at: int, size: int, *, check: bool) -> tuple[list[tuple[str, int, int]], int]:
    """Read the records from `at` on; return them and their end. `check`: mark damaged ones."""
    found: list[tuple[str, int, int]] = []
    while at + _HEAD.size <= size:
        head = os.pread(fd, _HEAD.size, at)
        if len(head) < _HEAD.size:
            break
        digest, length = _HEAD.unpack(head)
        offset = at + _HEAD.size
        if digest == _NONE or offset + length > size:
            break
        at = offset + length
        if check and digest != _VOID and hashlib.sha256(_pread(fd, length, offset)).digest() != digest:
            digest = _VOID
            os.pwrite(fd, digest, offset - _HEAD.size)
        if digest != _VOID:
            found.append((digest.hex(), offset, length))
    return found, at


def _boot() -> str:
    """Identify this boot: unsynced data of another one may be lost."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", "")[:12]
    except OSError:
        return "unknown"


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written


def _pread(source: int, size: int, at: int) -> bytes:
    """Read `size` bytes, or up to the end of the file, in as many reads as it takes."""
    first = os.pread(source, size, at)
    if len(first) == size or not first:
        return first
    pieces, got = [first], len(first)
    while got < size and (piece := os.pread(source, size - got, at + got)):
        pieces.append(piece)
        got += len(piece)
    return b"".join(pieces)


def why_not_kept(before: State | None, store: ObjectStore) -> str | None:
    """Return the reason why a path cannot be restored, or None."""
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


# The index

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
