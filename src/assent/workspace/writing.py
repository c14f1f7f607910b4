"""write_file's way to the disk: all of it or nothing, inside the workspace, with the old permissions.

The target's directory is pinned by descriptor; the new content goes to a temporary file in it, is synced, and takes the
target's name in one rename. So a reader sees the old file or the new one, a hard link or link to elsewhere is replaced
rather than written through, and a failure (no space, cancelled) leaves no trace, not even the directories it made.
`.git` and `.assent` are never written, however they are spelled or reached: the second wall behind the gate's.
"""

import errno
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from assent.protocol.errors import ExecutionCancelled, PathValidationError, ToolFailure
from assent.protocol.tools import WriteFileResult

from .disguises import refuse_hidden_target
from .paths import PathValidator, path_error, visible

_CHUNK = 1 << 20
_TRIES = 20
_PROTECTED = frozenset({".git", ".assent", "git~1", "assent~1"})
_FORBIDDEN_ENDINGS = (".exe", ".bin", ".so", ".dll", ".dylib", ".sys")
_DIRECTORY = os.O_PATH | os.O_DIRECTORY


def refuse_protected(real: str, path: str) -> None:
    """Refuse a real path (links resolved) that runs through `.git` or `.assent`, or ends like a program."""
    for part in real.split("/"):
        # Other file systems drop trailing dots and spaces and do not tell upper from lower case.
        if part.casefold().rstrip(". ") in _PROTECTED:
            raise PathValidationError(f"{path!r} lies in {part!r}, which is never written.")
    if real.casefold().rstrip(". ").endswith(_FORBIDDEN_ENDINGS):
        raise PathValidationError(f"{path!r} would be a program or library; such files are never written.")


@dataclass(frozen=True, slots=True)
class _Target:
    """Where to write: a pinned directory, a name in it, and what is there now."""

    dir_fd: int
    name: str
    real: str
    old_fd: int | None
    old: os.stat_result | None


@dataclass(frozen=True, slots=True)
class Replacing:
    """A write right before its rename: what is there, and what takes its place."""

    real: str
    old_fd: int | None
    old: os.stat_result | None
    new_fd: int
    made: list[str]
    """Directories that were made for it."""

    def new_digest(self) -> str:
        """SHA-256 of what takes its place."""
        digest, at = hashlib.sha256(), 0
        while piece := os.pread(self.new_fd, _CHUNK, at):
            digest.update(piece)
            at += len(piece)
        return digest.hexdigest()


def write_beneath(
    paths: PathValidator,
    path: str,
    data: bytes,
    *,
    append: bool,
    max_bytes: int,
    stop: threading.Event,
    keep: Callable[[Replacing], None] | None = None,
) -> WriteFileResult:
    """Replace or extend the file at `path`. `keep` is called once, right before the old file is replaced."""
    relative = paths.relative(path)
    if path.endswith("/") or relative == ".":
        raise ToolFailure(f"{path!r} names a directory, not a file.")
    refuse_protected(relative, path)
    if len(data) > max_bytes:
        raise ToolFailure(f"The content for {path!r} is larger than {max_bytes} bytes.")
    for _ in range(_TRIES):
        with _Writer(paths, relative, path, keep) as writer:
            try:
                target = writer.find()
                size = writer.replace(target, data, append=append, max_bytes=max_bytes, stop=stop) if target else None
            except OSError as error:
                raise path_error(path, error) from error
            if target is not None and size is not None:
                return WriteFileResult(path=visible(target.real), size=size)
    raise ToolFailure(f"{path!r} kept changing while it was written.", hint="Try again.")


class _Writer:
    """One try. Closes what it opened; on an error it also removes the directories it made."""

    def __init__(
        self, paths: PathValidator, relative: str, path: str, keep: Callable[[Replacing], None] | None
    ) -> None:
        self._paths = paths
        self._keep = keep
        self._relative = relative
        self._path = path
        self._fds: list[int] = []
        self._made: list[tuple[int, str]] = []

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            for parent, name in reversed(self._made):
                with suppress(OSError):  # somebody else put something in it: then it stays
                    os.rmdir(name, dir_fd=parent)
        for fd in self._fds:
            os.close(fd)

    def _open(self, relative: str, flags: int) -> int:
        fd = self._paths.open_raw(relative, flags)
        self._fds.append(fd)
        return fd

    def find(self) -> _Target | None:
        """Pin the directory of the file `path` really leads to. None: it was replaced while we looked."""
        try:
            old_fd = self._open(self._relative, os.O_PATH)
        except FileNotFoundError:
            return self._find_new()
        old = os.fstat(old_fd)
        self._may_replace(old_fd, old)
        real = self._paths.real_path(old_fd)
        self._may_be_real(real)
        parent, _, name = real.rpartition("/")
        target = _Target(self._open(parent or ".", _DIRECTORY), name, real, old_fd, old)
        return target if _same_file(target, old) else None

    def _may_be_real(self, real: str) -> None:
        refuse_protected(real, self._path)
        refuse_hidden_target(self._relative, real)

    def _may_replace(self, fd: int, info: os.stat_result) -> None:
        if stat.S_ISDIR(info.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
        # Renaming over a file asks nothing of the file itself, so its own permissions are asked here. Root may
        # write anything; the owner's bit says whether this file is meant to change.
        if not info.st_mode & stat.S_IWUSR or not os.access(f"/proc/self/fd/{fd}", os.W_OK, effective_ids=True):
            raise ToolFailure(f"No permission to write {self._path!r}: the file is read-only.")

    def _find_new(self) -> _Target:
        parent, _, name = self._relative.rpartition("/")
        if name == "..":
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        dir_fd = self._make_directories(parent)
        real_parent = self._paths.real_path(dir_fd)
        real = name if real_parent == "." else f"{real_parent}/{name}"
        self._may_be_real(real)
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            raise PathValidationError(f"{self._path!r} is a link to something that is not there.")
        return _Target(dir_fd, name, real, None, None)

    def _make_directories(self, parent: str) -> int:
        """Open the parent, making what is missing. Each step is resolved from the workspace down, so none leaves it."""
        try:
            return self._open(parent or ".", _DIRECTORY)
        except FileNotFoundError:
            above, _, name = parent.rpartition("/")
            if name == "..":
                raise
            above_fd = self._make_directories(above)
            refuse_protected(f"{self._paths.real_path(above_fd)}/{name}", self._path)
            with suppress(FileExistsError):  # somebody was faster, or it is a link: opening it tells
                os.mkdir(name, 0o777, dir_fd=above_fd)
                self._made.append((above_fd, name))
                if os.geteuid() == 0:  # theirs, as below
                    owner = os.fstat(above_fd)
                    os.chown(name, owner.st_uid, owner.st_gid, dir_fd=above_fd, follow_symlinks=False)
            return self._open(parent, _DIRECTORY)

    def replace(
        self, target: _Target, data: bytes, *, append: bool, max_bytes: int, stop: threading.Event
    ) -> int | None:
        """Write beside the target and rename. None: the file changed while it was copied, nothing was done."""
        temporary = f".assent-{secrets.token_hex(8)}.tmp"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o666 if target.old is None else 0o600, dir_fd=target.dir_fd)
        self._fds.append(fd)
        try:
            size = self._copy_old(target, fd, max_bytes, stop) if append else 0
            if size + len(data) > max_bytes:
                raise ToolFailure(f"{self._path!r} would become larger than {max_bytes} bytes.")
            _write_all(fd, data, stop)
            if target.old is not None:
                _take_over(fd, target.old)
            else:
                _give_to_owner_of(target.dir_fd, fd)
            os.fsync(fd)
            if append and not _unchanged(target):
                os.unlink(temporary, dir_fd=target.dir_fd)
                return None
            _check(stop)
            if self._keep is not None:
                made = [self._real_name(parent, name) for parent, name in self._made]
                self._keep(Replacing(target.real, target.old_fd, target.old, fd, made))
            os.rename(temporary, target.name, src_dir_fd=target.dir_fd, dst_dir_fd=target.dir_fd)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=target.dir_fd)
            raise
        _sync_directory(target.dir_fd)
        return size + len(data)

    def _real_name(self, parent: int, name: str) -> str:
        above = self._paths.real_path(parent)
        return name if above == "." else f"{above}/{name}"

    def _copy_old(self, target: _Target, fd: int, max_bytes: int, stop: threading.Event) -> int:
        if target.old_fd is None:
            return 0
        # Through the descriptor: it is the very file whose permissions were asked.
        source = os.open(f"/proc/self/fd/{target.old_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._fds.append(source)
        size = 0
        while sent := os.sendfile(fd, source, size, _CHUNK):
            size += sent
            _check(stop)
            if size > max_bytes:
                raise ToolFailure(f"{self._path!r} would become larger than {max_bytes} bytes.")
        os.lseek(fd, size, os.SEEK_SET)
        return size


def _check(stop: threading.Event) -> None:
    if stop.is_set():
        raise ExecutionCancelled("The write was called off; nothing was changed.")


def _write_all(fd: int, data: bytes, stop: threading.Event) -> None:
    rest = memoryview(data)
    while rest:
        _check(stop)
        rest = rest[os.write(fd, rest[:_CHUNK]) :]


def _give_to_owner_of(dir_fd: int, fd: int) -> None:
    """What root makes in somebody's workspace is theirs: their commands run as them, and must be able to change it."""
    if os.geteuid() == 0:
        owner = os.fstat(dir_fd)
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _take_over(fd: int, old: os.stat_result) -> None:
    """Give the new file the old one's owner and permissions (never set-uid)."""
    with suppress(PermissionError):  # only root may give files away
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)


def _same_file(target: _Target, old: os.stat_result) -> bool:
    try:
        now = os.stat(target.name, dir_fd=target.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (old.st_dev, old.st_ino)


def _unchanged(target: _Target) -> bool:
    """Whether what was copied is still all there is under that name."""
    try:
        now = os.stat(target.name, dir_fd=target.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return target.old is None
    old = target.old
    return old is not None and (now.st_ino, now.st_size, now.st_mtime_ns) == (old.st_ino, old.st_size, old.st_mtime_ns)


def _sync_directory(dir_fd: int) -> None:
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
