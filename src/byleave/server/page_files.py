"""The files of the chat page, held in memory by their names: no path of a request ever reaches the file system.

They are what `make ui` builds, flat. A file with a hash in its name never changes, so a browser may keep it for good;
everything else is asked for again each time and answered with 304 while it is the same. A page that is built anew is
noticed when the index is asked for. Nothing that is served here depends on who asks.
"""

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PAGE = Path(__file__).parent / "page"
INDEX = "index.html"
SMALLEST_COMPRESSED = 256
"""Below this compression gains nothing."""

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".map": "application/json",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".wav": "audio/wav",
}
UNKNOWN = "application/octet-stream"
PACKED = frozenset({".png", ".ico", ".webp", ".woff2", ".mp3", ".ogg"})
"""Compressed as they are."""
HASHED = re.compile(r"[-.](?=[a-z_-]*[A-Z0-9])[A-Za-z0-9_-]{8}\.[a-z0-9]+")
"""How the end of a name looks that Vite gave a hash to: a plain word of eight letters is none."""


@dataclass(frozen=True)
class PageFile:
    """One file, ready to be sent."""

    name: str
    content: bytes

    @property
    def ending(self) -> str:
        return Path(self.name).suffix.lower()

    @property
    def media_type(self) -> str:
        return TYPES.get(self.ending, UNKNOWN)

    @property
    def never_changes(self) -> bool:
        """Whether another content would have another name."""
        return any(found.end() == len(self.name) for found in HASHED.finditer(self.name))

    @cached_property
    def tag(self) -> str:
        """Its ETag; weak, since packed and unpacked have the same."""
        return f'W/"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    @cached_property
    def packed(self) -> bytes | None:
        """Compressed, once; None where that gains nothing."""
        if self.ending in PACKED or len(self.content) < SMALLEST_COMPRESSED:
            return None
        return gzip.compress(self.content, 9, mtime=0)


class PageFiles:
    """The page as it was built last."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = PAGE if directory is None else directory
        self._files: dict[str, PageFile] = {}
        self._before: dict[str, PageFile] = {}
        """What a page that is open in a browser since the last build may still ask for."""
        self._stamp: tuple[int, ...] | None = None

    def index(self) -> PageFile | None:
        """The page itself; None when it was never built."""
        self._look()
        return self._files.get(INDEX)

    def file(self, name: str) -> PageFile | None:
        """One of the files it refers to; None when there is none of this name."""
        if name == INDEX:
            return None
        if name not in self._files:
            self._look()
        return self._files.get(name) or self._before.get(name)

    def _look(self) -> None:
        """Read the files again if they are others. While they are being built the last ones stay."""
        try:
            stamp = self._now()
            if stamp == self._stamp:
                return
            paths = [path for path in sorted(self._directory.iterdir()) if path.is_file() and not path.is_symlink()]
            files = {path.name: PageFile(path.name, path.read_bytes()) for path in paths}
        except OSError:  # not built, or just being built
            return
        if INDEX in files:
            self._before = {name: file for name, file in self._files.items() if file.never_changes}
            self._files, self._stamp = files, stamp

    def _now(self) -> tuple[int, ...]:
        index, directory = (self._directory / INDEX).stat(), self._directory.stat()
        return index.st_mtime_ns, index.st_size, index.st_ino, directory.st_mtime_ns
