"""Cache of recent `read_file` results, valid while the file is provably unchanged.

A result is reused only while the file's device, inode, size, ctime and mtime are the same as before and after the
cached read. Files changed in the last seconds are not cached: file system clocks are coarse, and a second change could
go unseen. Listings are never cached: a directory does not change when a file in it grows. Files that usually hold
secrets are never cached, nor is a path with `..`: only the file system knows what it means. The gate has judged the
call before the cache is used.
"""

import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from byleave.gate import secret_name
from byleave.protocol.tools import ReadFileResult, ToolResult
from byleave.protocol.wire import JsonObject

MAX_CACHE_BYTES = 32 * 1024 * 1024
MAX_ENTRY_BYTES = 1024 * 1024
SETTLED_SECONDS = 2.0

StatIdentity = tuple[int, int, int, int, int]
Key = tuple[str, object, object]


@dataclass(frozen=True)
class _Entry:
    result: ReadFileResult
    identity: StatIdentity
    until: float
    size: int


@dataclass(frozen=True)
class Reading:
    """State before a read that must still hold after it for the result to be cached."""

    key: Key
    identity: StatIdentity
    generation: int


class ReadCache:
    """Answers repeated reads from memory."""

    def __init__(self, root: Path, seconds: float, *, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._root = str(root)
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._bytes = 0
        self._generation = 0

    def get(self, params: JsonObject) -> ReadFileResult | None:
        """Return the cached result if the file is unchanged."""
        key = self._key(params)
        entry = None if key is None else self._entries.get(key)
        if key is None or entry is None:
            return None
        if entry.until < time.monotonic() or entry.identity != _identity(key[0]):
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.result

    def before(self, params: JsonObject) -> Reading | None:
        """Return the state before a read; None if its result may not be cached."""
        key = self._key(params)
        identity = None if key is None else _identity(key[0])
        return None if key is None or identity is None else Reading(key, identity, self._generation)

    def put(self, reading: Reading | None, result: ToolResult) -> None:
        """Cache a result, unless the file changed during the read or just before."""
        if reading is None or reading.generation != self._generation or not isinstance(result, ReadFileResult):
            return
        size = 4 * len(result.content)
        changed = max(reading.identity[3], reading.identity[4]) / 1e9
        settled = time.time() - changed - SETTLED_SECONDS >= 0
        if size > MAX_ENTRY_BYTES or not settled or _identity(reading.key[0]) != reading.identity:
            return
        self._drop(reading.key)
        self._entries[reading.key] = _Entry(result, reading.identity, time.monotonic() + self._seconds, size)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def forget(self, path: object = None) -> None:
        """Drop a path and everything below it; without a path, drop everything."""
        self._generation += 1
        if not isinstance(path, str) or _climbs(path):
            self._entries.clear()
            self._bytes = 0
            return
        target = self._absolute(path)
        for key in [key for key in self._entries if key[0] == target or key[0].startswith(target + os.sep)]:
            self._drop(key)

    def _key(self, params: JsonObject) -> Key | None:
        """Return the cache key of a read; None if it may not be cached."""
        path = params.get("path")
        if not isinstance(path, str) or _climbs(path):
            return None
        absolute = self._absolute(path)
        if secret_name(os.path.relpath(absolute, self._root)):
            return None
        return absolute, params.get("start_line"), params.get("end_line")

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._root, path))

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


def _climbs(path: str) -> bool:
    """Return True if the path holds a `..`, which behind a link does not mean what it spells."""
    return ".." in path.split("/")


def _identity(path: str) -> StatIdentity | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
