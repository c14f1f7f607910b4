"""Where what was there before is kept: contents under their SHA-256, and for each workspace a list of what changed.

Everything lies in the client's home, outside the workspace, for its owner's eyes alone. Contents are written beside
and renamed, so an object is whole or missing; lists grow line by line, and a line that was torn by a crash is passed
over. Objects are read back against their digest. Locks: `Hold` keeps a sweep from removing what a call relies on, and
an undo from meeting a call that runs. This module knows no workspace's files and restores nothing.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from assent.protocol.errors import ToolFailure

_CHUNK = 1 << 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_WAIT_SECONDS = 30.0
_PAUSE = 0.02
_libc = ctypes.CDLL(None, use_errno=True)


class NoRoom(OSError):
    """The store is as large as it may be."""


@contextlib.contextmanager
def hold(path: Path, kind: int, *, patient: bool, busy: str = "") -> Generator[None]:
    """Hold a lock file. Raises ToolFailure saying `busy` when somebody else does, at once or after some patience."""
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
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)


class ObjectStore:
    """Contents by digest, up to a number of bytes."""

    def __init__(self, home: Path, *, max_bytes: int) -> None:
        self.directory = home / "undo"
        self._objects = self.directory / "objects"
        self._max_bytes = max_bytes
        for path in (home, self.directory, self._objects, self.directory / "workspaces"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.directory, 0o700)
        self.lock = self.directory / "lock"
        self._unsynced = self.directory / "unsynced"
        self._generation = self.directory / "generation"
        self._known: dict[str, int] = {}
        self._made: set[str] = set()
        self._size = 0
        self._seen_generation: bytes | None = None
        self.refresh()

    @property
    def size(self) -> int:
        """Bytes kept, as far as this process knows."""
        return self._size

    def refresh(self) -> None:
        """Learn what is there; again only after somebody swept."""
        try:
            generation = self._generation.read_bytes()
        except FileNotFoundError:
            generation = b""
        if generation == self._seen_generation:
            return
        self._seen_generation = generation
        doubtful = self._unsynced.exists()
        self._known, self._size = {}, 0
        for path in self._paths():
            if doubtful and not self._is_whole(path):
                path.unlink(missing_ok=True)
                continue
            size = path.stat().st_size
            self._known[_digest_of(path)] = size
            self._size += size
        self._unsynced.unlink(missing_ok=True)

    def has(self, digest: str) -> bool:
        return digest in self._known

    def put(self, data: bytes, *, sync: bool = True) -> str:
        """Keep some bytes. Raises NoRoom, or OSError as the disk does."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._known:
            with self._draft(len(data)) as (descriptor, draft):
                _write_all(descriptor, data)
                self._take(descriptor, draft, digest, len(data), sync=sync)
        return digest

    def put_file(self, source: int, *, max_bytes: int, sync: bool = True) -> str:
        """Keep what an open file holds. Raises NoRoom when it is larger than `max_bytes`."""
        size = os.fstat(source).st_size
        if size <= _CHUNK:
            data = _read_up_to(source, _CHUNK + 1)
            if len(data) <= min(_CHUNK, max_bytes):
                return self.put(data, sync=sync)
        digest, copied = hashlib.sha256(), 0
        with self._draft(size) as (descriptor, draft):
            while piece := os.pread(source, _CHUNK, copied):
                copied += len(piece)
                if copied > max_bytes:
                    raise NoRoom(27, "the file is too large")
                digest.update(piece)
                _write_all(descriptor, piece)
            name = digest.hexdigest()
            if name not in self._known:
                self._take(descriptor, draft, name, copied, sync=sync)
            return name

    @contextlib.contextmanager
    def many(self) -> Generator[None]:
        """Around puts that are not synced one by one: the disk is asked once, at the end."""
        descriptor = os.open(self._unsynced, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fsync(descriptor)
            yield
            # Until this is done a power cut may leave empty objects; the mark makes the next reader look at each.
            if _libc.syncfs(descriptor) == 0:
                self._unsynced.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def read(self, digest: str) -> bytes | None:
        """The bytes, when they are there and still what they were."""
        try:
            data = self._path(digest).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def sweep(self, wanted: set[str]) -> None:
        """Remove all but these. The caller holds the store alone."""
        for path in self._paths():
            if _digest_of(path) not in wanted:
                path.unlink(missing_ok=True)
        for draft in self.directory.glob("draft-*"):
            draft.unlink(missing_ok=True)
        write_whole(self._generation, secrets.token_bytes(16), sync=False)
        self.refresh()

    def room_for(self, size: int) -> bool:
        """Whether so many bytes more may be kept."""
        return self._size + size <= self._max_bytes

    def size_of(self, digest: str) -> int:
        return self._known.get(digest, 0)

    @contextlib.contextmanager
    def _draft(self, size: int) -> Generator[tuple[int, str]]:
        if not self.room_for(size):
            raise NoRoom(28, "the undo store is full")
        draft = f"{self.directory}/draft-{secrets.token_hex(8)}"
        descriptor = os.open(draft, _CREATE, 0o600)
        try:
            yield descriptor, draft
        finally:
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):  # it was taken
                os.unlink(draft)

    def _take(self, descriptor: int, draft: str, digest: str, size: int, *, sync: bool) -> None:
        if sync:
            os.fsync(descriptor)
        if digest[:2] not in self._made:
            self._path(digest).parent.mkdir(mode=0o700, exist_ok=True)
            self._made.add(digest[:2])
        os.rename(draft, f"{self._objects}/{digest[:2]}/{digest[2:]}")
        self._known[digest] = size
        self._size += size

    def _path(self, digest: str) -> Path:
        return self._objects / digest[:2] / digest[2:]

    def _paths(self) -> Iterator[Path]:
        for directory in os.scandir(self._objects):
            if directory.is_dir(follow_symlinks=False):
                for entry in os.scandir(directory.path):
                    yield Path(entry.path)

    def _is_whole(self, path: Path) -> bool:
        return self.read(_digest_of(path)) is not None


class Index:
    """What calls changed in one workspace, line by line, oldest first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / "index.jsonl"
        self.lock = directory / "lock"
        """Shared by calls that run, held alone by an undo."""

    @classmethod
    def of(cls, store: ObjectStore, root: Path) -> "Index":
        """The list of one workspace."""
        key = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
        return cls(store.directory / "workspaces" / key)

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
            _write_all(descriptor, (b"\n" if torn else b"") + b"".join(_line(line) for line in lines))
            if sync:
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def lines(self) -> list[dict[str, Any]]:
        """All lines that can be read."""
        return _lines(self.path)

    def rewrite(self, lines: Iterable[dict[str, Any]]) -> None:
        """Write the list anew, whole or not at all. The caller holds the store alone."""
        write_whole(self.path, b"".join(_line(line) for line in lines))


def write_whole(path: Path, content: bytes, *, sync: bool = True) -> None:
    """A private file, whole or not at all."""
    draft = path.with_name(f"draft-{secrets.token_hex(8)}")
    descriptor = os.open(draft, _CREATE, 0o600)
    try:
        _write_all(descriptor, content)
        if sync:
            os.fsync(descriptor)
        os.rename(draft, path)
    finally:
        os.close(descriptor)
        draft.unlink(missing_ok=True)


def _lines(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                value: Any = json.loads(line)
                if isinstance(value, dict):
                    found.append(cast("dict[str, Any]", value))
    return found


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _digest_of(path: Path) -> str:
    return path.parent.name + path.name


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read_up_to(source: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while at < limit and (piece := os.pread(source, limit - at, at)):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)
