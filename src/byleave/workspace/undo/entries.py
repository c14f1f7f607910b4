"""What calls changed, read back: the entries of one workspace's list, which of them are undone, and which have gone.

An entry is one call (or one undo) with each path it changed, before and after. What is written about a call comes in
lines: a write says before it acts what it will leave, a command says that it begins and later what it changed, and an
undo counts once it is done. The list grows line by line, and a line that a crash tore is passed over. `sweep` forgets
entries that are too old or too large, never the newest, and the contents nobody needs then.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from byleave.protocol.errors import ToolFailure
from byleave.protocol.wire import timestamp

from .snapshots import Change, Tree, from_json, to_json
from .store import ObjectStore, hold, write_whole

_FULL = 0.9
"""A sweep leaves some room, so that the next call does not sweep again."""
_LIST = "index.jsonl"
_FIRST_LINE = 200
_CHANGE_BYTES = 300
"""About what one change takes in the list."""


class Index:
    """What calls changed in one workspace, line by line, oldest first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / _LIST
        self.lock = directory / "lock"
        """Shared by calls that run, held alone by an undo."""
        self.recovery = directory / "recovery"
        """Held by the one who finishes what a crash left open."""
        self._seen: tuple[int, bytes] | None = None
        self._read = 0
        self.entries: dict[str, Entry] = {}
        """What was read of it so far, by `read_entries`."""

    @classmethod
    def of(cls, store: ObjectStore, root: Path) -> "Index":
        """The list of one workspace."""
        return cls(_place(store, root))

    @staticmethod
    def is_kept(store: ObjectStore, root: Path) -> bool:
        """Whether calls of a workspace are listed."""
        return (_place(store, root) / _LIST).exists()

    def trees(self) -> list[Path]:
        """What the workspace was when commands began."""
        return list(self.directory.glob("tree-*"))

    def append(self, *lines: dict[str, Any], sync: bool = True) -> None:
        """Write lines, all on the disk when this returns."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            rest = memoryview((b"\n" if torn else b"") + b"".join(_line(line) for line in lines))
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sync:
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def new_lines(self) -> tuple[list[dict[str, Any]], bool]:
        """The lines that were added since the last time, and whether these are all: the list was written anew."""
        try:
            with self.path.open("rb") as file:
                # An inode's number is soon another's: a list that was written anew is told by its first line too.
                seen = (os.fstat(file.fileno()).st_ino, file.readline(_FIRST_LINE))
                again = seen != self._seen
                if again:
                    self._seen, self._read = seen, 0
                file.seek(self._read)
                # A line without an end is being written, or was torn: the next one begins after it.
                whole = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            self._seen, self._read = None, 0
            return [], True
        self._read += len(whole) + 1 if whole else 0
        return _lines(whole), again

    def rewrite(self, lines: Iterable[dict[str, Any]]) -> None:
        """Write the list anew, whole or not at all. The caller holds the store alone."""
        first = {"step": "list", "id": secrets.token_hex(8)}
        write_whole(self.path, b"".join(_line(line) for line in (first, *lines)))


def _place(store: ObjectStore, root: Path) -> Path:
    return store.directory / "workspaces" / hashlib.sha256(os.fsencode(root)).hexdigest()[:24]


def _lines(content: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in content.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            value: Any = json.loads(line)
            if isinstance(value, dict):
                found.append(cast("dict[str, Any]", value))
    return found


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


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
    """False: it has begun, and nothing more is known."""
    undone_by: str | None = None
    owner: str | None = None
    tree: str | None = None
    since: list[Any] = field(default_factory=list[Any])
    """What was known of the workspace when it began: a saved tree, and what differed since."""

    @property
    def undoable(self) -> bool:
        return self.done and bool(self.changes) and self.undone_by is None


def changes_json(changes: Mapping[str, Change]) -> list[Any]:
    return [[path, to_json(before), to_json(after)] for path, (before, after) in changes.items()]


def _changes(value: Any) -> dict[str, Change]:
    found: dict[str, Change] = {}
    for path, before, after in value:
        parts = path.split("/")
        if ".." in parts or "" in parts:
            raise ValueError(path)
        found[path] = (from_json(before), from_json(after))
    return found


def read_entries(index: Index) -> list[Entry]:
    """All entries in the order in which they ended; lines that make no sense are passed over."""
    lines, again = index.new_lines()
    entries = index.entries = {} if again else index.entries
    for line in lines:
        with contextlib.suppress(KeyError, ValueError, TypeError, AttributeError, IndexError):
            _take(entries, line)
    for entry in entries.values():
        entry.undone_by = None
    for entry in entries.values():
        if entry.undoes in entries and entry.done:
            entries[entry.undoes].undone_by = entry.id
    # An undo that was itself undone does not count.
    for entry in reversed(entries.values()):
        if entry.undone_by is not None and entries[entry.undone_by].undone_by is not None:
            entry.undone_by = None
    return list(entries.values())


def _take(entries: dict[str, Entry], line: dict[str, Any]) -> None:
    key: str = line["id"]
    match line["step"]:
        case "write":
            entries[key] = Entry(key, line["tool_name"], line["summary"], line["at"], _changes(line["changes"]))
            entries[key].notes = list(line["notes"])
        case "void":
            entries.pop(key, None)
        case "begin":
            entries[key] = Entry(key, line["tool_name"], line["summary"], line["at"], done=False)
            entries[key].owner, entries[key].tree, entries[key].since = line["owner"], line["tree"], line["since"]
        case "end":
            # Told in the order in which calls ended: that way back is free of conflicts.
            entry = entries[key] = entries.pop(key)
            entry.changes, entry.notes = _changes(line["changes"]), list(line["notes"])
            entry.together, entry.done, entry.since = list(line["together"]), True, []
        case "undo":
            entries[key] = Entry(key, "undo", line["summary"], line["at"], _changes(line["changes"]))
            entries[key].undoes, entries[key].done = line["undoes"], False
        case "undone":
            entries[key].done = True
        case _:
            pass


def entry_lines(entry: Entry) -> list[dict[str, Any]]:
    """An entry as lines, for a list that is written anew."""
    known = {"id": entry.id, "tool_name": entry.tool_name, "summary": entry.summary, "at": entry.at}
    changes = changes_json(entry.changes)
    if entry.undoes is not None:
        line = {"step": "undo", **known, "undoes": entry.undoes, "changes": changes}
        return [line, {"step": "undone", "id": entry.id}] if entry.done else [line]
    if entry.owner is None:
        return [{"step": "write", **known, "changes": changes, "notes": entry.notes}]
    line = {"step": "begin", **known, "owner": entry.owner, "tree": entry.tree, "since": entry.since}
    end = {
        "step": "end",
        "id": entry.id,
        "changes": changes,
        "notes": entry.notes,
        "together": entry.together,
    }
    return [{**line, "since": []}, end] if entry.done else [line]


# What a tree was when a command began: the memory that a crash leaves, and a cache of digests


def write_tree(path: Path, tree: Tree) -> None:
    value = {
        "truncated": tree.truncated,
        "unseen": sorted(tree.unseen),
        "states": [[name, to_json(state)] for name, state in tree.states.items()],
    }
    # Not synced: after a power cut it may be missing, and then the files are read again.
    write_whole(path, zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1), sync=False)


def read_tree(path: Path, since: Iterable[Any] = ()) -> Tree | None:
    """The tree with what differed `since`, or None when it cannot be read."""
    try:
        value: Any = json.loads(zlib.decompress(path.read_bytes()))
        read = {name: from_json(state) for name, state in (*value["states"], *since)}
        states = {name: state for name, state in read.items() if state is not None}
        return Tree(states, bool(value["truncated"]), set(value["unseen"]))
    except (OSError, ValueError, TypeError, KeyError, IndexError, RecursionError, zlib.error):
        return None


# Forgetting


def digests(changes: Mapping[str, Change]) -> set[str]:
    return {state.digest for pair in changes.values() for state in pair if state is not None and state.digest}


def sweep(store: ObjectStore, *, days: float, max_bytes: int) -> bool:
    """Forget what is too old, or the oldest where there is too much. False: nothing could be forgotten now."""
    try:
        with hold(store.lock, fcntl.LOCK_EX, patient=False):
            _sweep(store, timestamp(datetime.now(UTC) - timedelta(days=days)), int(max_bytes * _FULL))
    except (ToolFailure, OSError):
        return False  # in use, a full disk, or a list that cannot be read: what is there stays
    return True


def _sweep(store: ObjectStore, oldest: str, max_bytes: int) -> None:
    store.refresh()
    indexes = [Index(path) for path in (store.directory / "workspaces").iterdir() if path.is_dir()]
    entries = [(entry, index) for index in indexes for entry in read_entries(index)]
    kept = _newest_that_fit(store, [pair for pair in entries if _matters(pair[0], oldest)], max_bytes)
    for index in indexes:
        mine = [entry for entry, where in kept if where is index]
        if mine or index.entries:
            index.rewrite(line for entry in mine for line in entry_lines(entry))
        _sweep_trees(index, mine, oldest)
    needed = set[str]().union(*(digests(entry.changes) for entry, _ in kept))
    needed.update(*(_open_needs(index, entry) for entry, index in kept if not entry.done))
    room = max_bytes - sum(store.size_of(digest) for digest in needed)
    for digest in sorted(_seen(indexes) - needed, key=store.size_of):
        room -= store.size_of(digest)
        if room < 0:
            break
        needed.add(digest)
    store.sweep(needed)


def _open_needs(index: Index, entry: Entry) -> set[str]:
    """What a call that a crash left open may have changed: everything."""
    tree = read_tree(index.directory / entry.tree, entry.since) if entry.tree else None
    return _tree_digests(tree)


def _matters(entry: Entry, oldest: str) -> bool:
    return entry.at >= oldest and (bool(entry.changes) or not entry.done or entry.undoes is not None)


def _newest_that_fit(
    store: ObjectStore, entries: list[tuple[Entry, Index]], max_bytes: int
) -> list[tuple[Entry, Index]]:
    """As many of the newest as there is room for, and always the newest, in the order in which they were given."""
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


def _sweep_trees(index: Index, entries: Iterable[Entry], oldest: str) -> None:
    needed = {entry.tree for entry in entries if not entry.done}
    trees = sorted(index.trees(), key=lambda path: path.stat().st_mtime_ns)
    for path in trees:
        written = timestamp(datetime.fromtimestamp(path.stat().st_mtime, UTC))
        if path.name not in needed and (path is not trees[-1] or written < oldest):
            path.unlink(missing_ok=True)


def _seen(indexes: Iterable[Index]) -> set[str]:
    """Contents of the files as they were last seen: the next command may change any of them."""
    return set[str]().union(*(_tree_digests(read_tree(path)) for index in indexes for path in index.trees()))


def _tree_digests(tree: Tree | None) -> set[str]:
    return set() if tree is None else {state.digest for state in tree.states.values() if state.digest}
