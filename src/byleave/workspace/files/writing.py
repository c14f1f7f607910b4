"""Atomic writes for write_file, inside the workspace, that keep the old file's permissions.

The target's directory is held by a descriptor. The new content goes to an unnamed file in it, is synced, and takes the
target's name in one step. So a reader sees the old file or the new one, a write never goes through a link to elsewhere,
and a failure (no space, cancelled, killed) leaves no trace, not even the directories it made. Writers of one file, in
this process or another, take a lock on it: no append is lost. `.git` and `.byleave` are never written, however they
are spelled or reached: a second check behind the gate's. A bound write replaces only the file that was shown, compared
by descriptor as the last step before the rename. Between those two system calls another program could still write into
the old file.
"""

import errno
import fcntl
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from byleave.protocol.errors import ByleaveError, DriftedError, ExecutionCancelled, PathValidationError, ToolFailure
from byleave.protocol.tools import WriteFileResult
from byleave.workspace.paths import PathValidator, names_directory, path_error, visible
from byleave.workspace.stopping import drifted

from .contents import is_wide
from .drafts import create_draft, discard, put_in_place, put_new, reopen, sync_directory, take_attributes
from .inspection import NOT_AS_SHOWN, NOTHING, Written, check_bound, refuse_irreplaceable
from .links import refuse_hidden_target, refuse_protected, refuse_protected_directory

_CHUNK = 1 << 20
_PATIENCE_SECONDS = 10.0
_LOCK_SECONDS = 5.0
_PAUSE_SECONDS = 0.002
_MAX_NEW_DIRECTORIES = 64
_DIRECTORY = os.O_PATH | os.O_DIRECTORY
_LOCKABLE = os.O_RDONLY | os.O_DIRECTORY
_READ = os.O_RDONLY | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class _Target:
    """Target of a write: an open directory, a name in it, and the file there now."""

    dir_fd: int
    name: str
    real: str
    old_fd: int | None
    old: os.stat_result | None


@dataclass(frozen=True, slots=True)
class Replacing:
    """A write right before its rename: the old file and the new one."""

    real: str
    old_fd: int | None
    old: os.stat_result | None
    new_fd: int
    made: list[str]
    """Directories created for it."""

    def new_digest(self) -> str:
        """SHA-256 of the new content."""
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
    bound: Mapping[str, str] | None = None,
) -> WriteFileResult:
    """Replace or extend the file at `path`. `keep` is called once, right before the old file is replaced.

    `bound`: the file that was shown (its real path) and its SHA-256, or `missing`; DriftedError if another is there.
    """
    relative = paths.relative(path)
    if names_directory(path) or relative == ".":
        raise ToolFailure(f"{path!r} names a directory, not a file.")
    refuse_protected(relative, path)
    if len(data) > max_bytes:
        raise ToolFailure(f"The content for {path!r} is larger than {max_bytes} bytes.")
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        with _Writer(paths, relative, path, keep, bound or {}) as writer:
            try:
                target = writer.find() if not bound else writer.find_bound()
                size = writer.replace(target, data, append=append, max_bytes=max_bytes, stop=stop) if target else None
            except OSError as error:
                raise path_error(path, error) from error
            if target is not None and size is not None:
                warnings = [] if writer.synced else [_NOT_SYNCED]
                return WriteFileResult(path=visible(target.real), size=size, warnings=warnings)
    raise ToolFailure(f"{path!r} kept changing while it was written.", hint="Try again.")


_NOT_SYNCED = "The disk did not confirm that the new content will outlast a crash of the machine."


class _Writer:
    """One attempt. Closes its descriptors; if it wrote nothing, also removes the directories it made."""

    def __init__(
        self,
        paths: PathValidator,
        relative: str,
        path: str,
        keep: Callable[[Replacing], None] | None,
        bound: Mapping[str, str],
    ) -> None:
        self._paths = paths
        self._keep = keep
        self._bound = bound
        self._relative = relative
        self._path = path
        self._fds: list[int] = []
        self._made: list[tuple[int, str]] = []
        self._written = False
        self.synced = True
        """True if the disk confirmed the new name."""

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not self._written:
            for parent, name in reversed(self._made):
                with suppress(OSError):  # somebody else put a file in it: it stays
                    os.rmdir(name, dir_fd=parent)
        for fd in self._fds:
            os.close(fd)

    def _open(self, relative: str, flags: int) -> int:
        fd = self._paths.open_raw(relative, flags)
        self._fds.append(fd)
        return fd

    def find_bound(self) -> _Target | None:
        """`find` for a file that inspection showed as replaceable: any error now comes from a change since."""
        try:
            return self.find()
        except OSError as error:
            raise DriftedError(f"{path_error(self._path, error).message} {NOT_AS_SHOWN}") from error
        except PathValidationError as error:
            raise DriftedError(f"{error.message} {NOT_AS_SHOWN}") from error

    def find(self) -> _Target | None:
        """Open the real directory of the target. None: the file was replaced meanwhile; try again."""
        try:
            old_fd = self._open(self._relative, os.O_PATH)
        except FileNotFoundError:
            return self._find_new()
        old = os.fstat(old_fd)
        real = self._paths.real_path(old_fd)
        parent, _, name = real.rpartition("/")
        try:
            target = _Target(self._open(parent or ".", _DIRECTORY), name, real, old_fd, old)
        except FileNotFoundError:
            return None
        # First: a replaced file is not checked; the next attempt finds its successor.
        if not _same_file(target, old):
            return None
        self._paths.refuse_out_of_reach(old_fd)
        refuse_irreplaceable(old_fd, old, self._path)
        self._may_be_real(real)
        return target

    def _may_be_real(self, real: str) -> None:
        refuse_protected(real, self._path)
        refuse_hidden_target(self._relative, real)

    def _find_new(self) -> _Target | None:
        parent, _, name = self._relative.rpartition("/")
        if name == "..":
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        dir_fd = self._make_directories(parent)
        self._paths.refuse_out_of_reach(dir_fd)
        real_parent = self._paths.real_path(dir_fd)
        real = name if real_parent == "." else f"{real_parent}/{name}"
        self._may_be_real(real)
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            # Either a dangling link, or a file that somebody created meanwhile.
            if not stat.S_ISLNK(found.st_mode):
                return None
            raise PathValidationError(f"{self._path!r} is a link to something that is not there.")
        return _Target(dir_fd, name, real, None, None)

    def _make_directories(self, parent: str, new: int = 0) -> int:
        """Open the parent; create missing directories. Each is resolved from the workspace down, so none leaves it."""
        try:
            return self._open(parent or ".", _DIRECTORY)
        except FileNotFoundError:
            above, _, name = parent.rpartition("/")
            if name == "..":
                raise
            if new == _MAX_NEW_DIRECTORIES:
                raise ToolFailure(
                    f"{self._path[:60]!r}… would need more than {_MAX_NEW_DIRECTORIES} new directories, "
                    "each in the other; nothing was written."
                ) from None
            above_fd = self._make_directories(above, new + 1)
            refuse_protected_directory(f"{self._paths.real_path(above_fd)}/{name}", self._path)
            with suppress(FileExistsError):  # created meanwhile, or a link: opening it decides
                os.mkdir(name, 0o777, dir_fd=above_fd)
                self._made.append((above_fd, name))
                if os.geteuid() == 0:  # as in _give_to_owner_of
                    self._fds.append(made := self._paths.open_child(above_fd, name, _DIRECTORY))
                    owner = os.fstat(above_fd)
                    os.chown(f"/proc/self/fd/{made}", owner.st_uid, owner.st_gid)
            return self._open(parent, _DIRECTORY)

    def replace(
        self, target: _Target, data: bytes, *, append: bool, max_bytes: int, stop: threading.Event
    ) -> int | None:
        """Write a draft and give it the target's name. None: the old file was replaced meanwhile; nothing was done."""
        mode = os.fstat(target.dir_fd).st_mode
        if not (mode & 0o222 and mode & 0o111):  # root could write it anyway, against its owner's will
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        if not self._lock(target, stop):
            return None
        try:
            fd, draft = create_draft(target.dir_fd, 0o666 if target.old is None else 0o600)
        except FileNotFoundError:
            return None  # the directory was removed; the next attempt creates it again
        self._fds.append(fd)
        try:
            size = self._copy_old(target, fd, max_bytes, stop) if append else 0
            if size + len(data) > max_bytes:
                raise ToolFailure(f"{self._path!r} would become larger than {max_bytes} bytes.")
            _write_all(fd, data, stop)
            if target.old is not None:
                _take_over(fd, target)
            else:
                _give_to_owner_of(target.dir_fd, fd)
            os.fsync(fd)
            if not (_unchanged(target) if append else _same_file(target, target.old)):
                return None
            _check(stop)
            self._keep_old(target, fd, append=append)
            if self._bound:
                write = Written(self._path, target.real, target.old_fd, fd, data, size if append else None)
                self._check_bound(target, write, max_bytes)
            put = put_new if target.old is None else put_in_place
            _check(stop)  # again: keeping and comparing take time
            put(fd, draft, target.dir_fd, target.name)
            self._written = True
        except FileExistsError:
            raise self._disturbed("appeared while it was written") from None
        finally:
            if not self._written:
                discard(draft, target.dir_fd)
        changed = [target.dir_fd, *(parent for parent, _ in self._made)]
        self.synced = False not in [sync_directory(fd) for fd in changed]
        return size + len(data)

    def _keep_old(self, target: _Target, fd: int, *, append: bool) -> None:
        if self._keep is None:
            return
        made = [self._real_name(parent, name) for parent, name in self._made]
        before = _stamp(target.old if append else _stat(target))
        self._keep(Replacing(target.real, target.old_fd, target.old, fd, made))
        # Keeping takes time. A write meanwhile would be lost: it is neither in the copy kept nor in the draft.
        if target.old is not None and _stamp(_stat(target)) != before:
            raise self._disturbed("changed while it was written; nothing was")

    def _check_bound(self, target: _Target, write: Written, max_bytes: int) -> None:
        check_bound(self._bound, write, max_bytes=max_bytes)
        if not _same_file(target, target.old):
            raise drifted(self._path, NOTHING)

    def _disturbed(self, what: str) -> ByleaveError:
        if self._bound:
            return drifted(self._path, NOTHING)
        return ToolFailure(f"{self._path!r} {what}.", hint="Try again.")

    def _lock(self, target: _Target, stop: threading.Event) -> bool:
        """Wait until no other writer holds the lock. False: the file was replaced meanwhile."""
        # A new file is locked through its directory, so that two writers do not both create it.
        try:
            fd = reopen(target.dir_fd, _LOCKABLE) if target.old_fd is None else _reopen_any(target.old_fd)
        except PermissionError:
            return True  # a directory that cannot be read cannot be locked
        self._fds.append(fd)
        if not _locked(fd, stop) and target.old is not None:
            raise ToolFailure(
                f"Another program has locked {self._path!r}; nothing was written.", hint="Try again when it has ended."
            )
        return _same_file(target, target.old)

    def _real_name(self, parent: int, name: str) -> str:
        above = self._paths.real_path(parent)
        return name if above == "." else f"{above}/{name}"

    def _copy_old(self, target: _Target, fd: int, max_bytes: int, stop: threading.Event) -> int:
        if target.old_fd is None:
            return 0
        # Through the descriptor: it is the very file whose permissions were checked.
        source = reopen(target.old_fd, _READ)
        self._fds.append(source)
        if is_wide(os.pread(source, 4, 0)):
            raise ToolFailure(
                f"{self._path!r} is in UTF-16 or UTF-32, and what is appended would be in UTF-8; nothing was written.",
                hint="Write the whole file.",
            )
        size = 0
        while sent := os.sendfile(fd, source, size, _CHUNK):
            size += sent
            _check(stop)
            if size > max_bytes:
                raise ToolFailure(f"{self._path!r} would become larger than {max_bytes} bytes.")
        os.lseek(fd, size, os.SEEK_SET)
        return size


def _reopen_any(fd: int) -> int:
    """Reopen a file for locking, even one that we may only write."""
    try:
        return reopen(fd, _READ)
    except PermissionError:
        return reopen(fd, os.O_WRONLY | os.O_NONBLOCK)


def _locked(fd: int, stop: threading.Event) -> bool:
    """Take the lock on a file; False if time runs out."""
    until = time.monotonic() + _LOCK_SECONDS
    while time.monotonic() < until:
        _check(stop)
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_PAUSE_SECONDS)
    return False


def _check(stop: threading.Event) -> None:
    if stop.is_set():
        raise ExecutionCancelled("The write was stopped; nothing was changed.")


def _write_all(fd: int, data: bytes, stop: threading.Event) -> None:
    rest = memoryview(data)
    while rest:
        _check(stop)
        rest = rest[os.write(fd, rest[:_CHUNK]) :]


def _give_to_owner_of(dir_fd: int, fd: int) -> None:
    """As root, give a new file to the directory's owner: commands run as the owner and must be able to change it."""
    if os.geteuid() == 0:
        owner = os.fstat(dir_fd)
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _take_over(fd: int, target: _Target) -> None:
    """Give the new file the old one's owner and permissions (never set-uid)."""
    if target.old is None or target.old_fd is None:
        return
    with suppress(PermissionError):  # only root may give files away
        os.fchown(fd, target.old.st_uid, target.old.st_gid)
    os.fchmod(fd, stat.S_IMODE(target.old.st_mode) & 0o777)
    take_attributes(target.old_fd, fd)


def _stat(target: _Target) -> os.stat_result | None:
    """Stat of the file that has the name now; None if there is none."""
    try:
        return os.stat(target.name, dir_fd=target.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _same_file(target: _Target, old: os.stat_result | None) -> bool:
    """True if the name still belongs to that file, or still to none."""
    now = _stat(target)
    if now is None or old is None:
        return now is old
    return (now.st_dev, now.st_ino) == (old.st_dev, old.st_ino)


def _unchanged(target: _Target) -> bool:
    """True if the file is still as it was copied."""
    return _stamp(_stat(target)) == _stamp(target.old)


def _stamp(info: os.stat_result | None) -> tuple[int, int, int] | None:
    """Changes with every write."""
    return None if info is None else (info.st_ino, info.st_size, info.st_mtime_ns)
