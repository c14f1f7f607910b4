"""The object store of undo: contents by their SHA-256, many to a file.

It lies in the client's home, outside the workspace, readable by its owner alone. Each process appends to a bundle of
its own: a file for each content would cost a thousand times as much, and SQLite three times. A bundle is never
rewritten in place: a sweep copies the needed contents into a new one. Records torn by a crash are skipped. After a
reboot every record is compared with its digest once, and every content is when it is read. This module knows no
workspace's files and restores nothing.
"""

import contextlib
import hashlib
import os
import secrets
import struct
from pathlib import Path
from typing import NamedTuple

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
