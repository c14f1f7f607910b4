"""What calls changed, read back: the entries of one workspace's list, which of them are undone, and which have gone.

An entry is one call (or one undo) with each path it changed, before and after. What is written about a call comes in
lines: a write says before it acts what it will leave, a command says that it begins and later what it changed, and an
undo counts once it is done. `sweep` forgets entries that are too old or too large, and the contents nobody needs then.
"""

import contextlib
import fcntl
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assent.protocol.errors import ToolFailure
from assent.protocol.values import timestamp

from .snapshots import Change, State, Tree, from_json, to_json
from .undo_store import Index, ObjectStore, hold, write_whole

_FULL = 0.9
"""A sweep leaves some room, so that the next call does not sweep again."""


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
    entries: dict[str, Entry] = {}
    for line in index.lines():
        with contextlib.suppress(KeyError, ValueError, TypeError, AttributeError, IndexError):
            _take(entries, line)
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
            entry.together, entry.done = list(line["together"]), True
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


def write_tree(path: Path, states: Mapping[str, State], tree: Tree) -> None:
    value = {
        "truncated": tree.truncated,
        "unseen": tree.unseen,
        "states": [[name, to_json(state)] for name, state in states.items()],
    }
    # Not synced: after a power cut it may be missing, and then the files are read again.
    write_whole(path, zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1), sync=False)


def read_tree(path: Path, since: Iterable[Any] = ()) -> Tree | None:
    """The tree with what differed `since`, or None when it cannot be read."""
    try:
        value: Any = json.loads(zlib.decompress(path.read_bytes()))
        read = {name: from_json(state) for name, state in (*value["states"], *since)}
        states = {name: state for name, state in read.items() if state is not None}
        return Tree(states, bool(value["truncated"]), list(value["unseen"]))
    except (OSError, ValueError, TypeError, KeyError, IndexError, zlib.error):
        return None


# Forgetting


def digests(changes: Mapping[str, Change]) -> set[str]:
    return {state.digest for pair in changes.values() for state in pair if state is not None and state.digest}


def sweep(store: ObjectStore, *, days: float, max_bytes: int) -> bool:
    """Forget what is too old, or the oldest where there is too much. False: something is in use, nothing was done."""
    try:
        with hold(store.lock, fcntl.LOCK_EX, patient=False):
            _sweep(store, timestamp(datetime.now(UTC) - timedelta(days=days)), int(max_bytes * _FULL))
    except ToolFailure:
        return False
    return True


def _sweep(store: ObjectStore, oldest: str, max_bytes: int) -> None:
    store.refresh()
    indexes = [Index(path) for path in (store.directory / "workspaces").iterdir() if path.is_dir()]
    entries = [(entry, index) for index in indexes for entry in read_entries(index)]
    kept = [pair for pair in entries if _matters(pair[0], oldest)]
    wanted = _newest_that_fit(store, sorted((entry for entry, _ in kept), key=lambda entry: entry.at), max_bytes)
    for index in indexes:
        mine = [entry for entry, where in kept if where is index and entry.id in wanted]
        index.rewrite(line for entry in mine for line in entry_lines(entry))
        _sweep_trees(index, mine, oldest)
    needed = set[str]().union(*(digests(entry.changes) for entry, _ in kept if entry.id in wanted))
    room = max_bytes - sum(store.size_of(digest) for digest in needed)
    for digest in sorted(_seen(indexes) - needed, key=store.size_of):
        room -= store.size_of(digest)
        if room < 0:
            break
        needed.add(digest)
    store.sweep(needed)


def _matters(entry: Entry, oldest: str) -> bool:
    return entry.at >= oldest and (bool(entry.changes) or not entry.done or entry.undoes is not None)


def _newest_that_fit(store: ObjectStore, entries: list[Entry], max_bytes: int) -> set[str]:
    wanted: set[str] = set()
    counted: set[str] = set()
    room = max_bytes
    for entry in reversed(entries):
        new = digests(entry.changes) - counted
        room -= sum(store.size_of(digest) for digest in new)
        if room < 0:
            break
        counted |= new
        wanted.add(entry.id)
    return wanted


def _sweep_trees(index: Index, entries: Iterable[Entry], oldest: str) -> None:
    needed = {entry.tree for entry in entries if not entry.done}
    trees = sorted(index.trees(), key=lambda path: path.stat().st_mtime_ns)
    for path in trees:
        written = timestamp(datetime.fromtimestamp(path.stat().st_mtime, UTC))
        if path.name not in needed and (path is not trees[-1] or written < oldest):
            path.unlink(missing_ok=True)


def _seen(indexes: Iterable[Index]) -> set[str]:
    """Contents of the files as they were last seen: the next command may change any of them."""
    trees = [read_tree(path) for index in indexes for path in index.trees()]
    return {state.digest for tree in trees if tree is not None for state in tree.states.values() if state.digest}
