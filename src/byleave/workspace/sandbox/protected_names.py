"""Protected names of the workspace, kept from commands where a mount alone cannot do it.

Other programs execute or trust the names in `PROTECTED`: editors, shells, git, other agents. `mounts` makes those that
exist read-only for a command; this module does the rest.

A missing name gets a stand-in while commands run: an empty directory, removed when the last command that needs it has
ended, by rmdir alone: files that somebody put into it stay. It is a directory even if the name belongs to a file,
because git does not see an empty directory. Each holder locks it, so that a second client on the same workspace does
not remove it, and stamps it, so that one left by a killed client is recognised and removed. Before the stamp, its mode
identifies it.

Nothing can be mounted over a symlink, such as `.bashrc -> dotfiles/.bashrc`, so a link is compared before and after the
command: a changed one is put back, and what replaced it is kept beside it under another name. New files that would give
git other settings are put aside in the same way.

A file that is replaced loses its mount. So `WriteExclusion` lets a write to a protected name, or to the target of a
protected link, wait until no running command could write, and new commands wait for the write. Nothing here deletes a
file.
"""

import asyncio
import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence, Set
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from byleave.protocol.errors import ToolFailure

PROTECTED = (
    ".git",
    ".byleave",
    ".vscode",
    ".idea",
    ".envrc",
    ".bashrc",
    ".profile",
    ".zshrc",
    ".gitmodules",
    ".mcp.json",
    ".claude",
    ".cursor",
    ".husky",
    ".devcontainer",
)
# An approved git command may change the repository, but not the code that runs in it. Its settings can name programs:
# they change only if a person was asked about just that.
GIT_CONFIG = ".git/config"
GIT_PROTECTED = (
    GIT_CONFIG,
    *(f".git/{name}" for name in ("hooks", "config.worktree", "commondir", "modules", "info", "worktrees")),
)
# Git never creates these in an existing repository. It would read its settings from them, also when the user runs it,
# and a program that a nested repository's settings name runs with git's rights.
_GIT_SETTINGS = ("config", "config.worktree", "commondir", "remotes", "branches")


_STAMP = 1_000_000_007
"""Its modification time in seconds. It is set once; creating a file in it changes it."""
STAMP_NS = _STAMP * 10**9
_MODE = 0o755 | stat.S_ISVTX
"""With the sticky bit, which no other directory of these names has."""
_TRIES = 20
_PAUSE_SECONDS = 0.001


@dataclass(slots=True)
class _Held:
    fd: int
    users: int = 1


class StandIns:
    """The stand-ins of one workspace, shared by the commands of this client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    @contextmanager
    def placed(self, root_fd: int, names: Sequence[str]) -> Generator[None]:
        """Keep a stand-in at each of `names` that is free, for the time of the block."""
        mine: list[str] = []
        try:
            with self._lock:
                for name in names:
                    if self._take(root_fd, name):
                        mine.append(name)
            yield
        finally:
            with self._lock:
                freed = [fd for name in mine if (fd := self._release(root_fd, name)) is not None]
            for fd in freed:
                os.close(fd)

    @property
    def names(self) -> frozenset[str]:
        """Names that have a stand-in of this client; if its stamp (`STAMP_NS`) is gone, somebody uses it."""
        with self._lock:
            return frozenset(self._held)

    def _take(self, root_fd: int, name: str) -> bool:
        held = self._held.get(name)
        if held is not None and _is_at(root_fd, name, held.fd):
            held.users += 1
            return True
        fd = self._placed(root_fd, name)
        if fd is None:
            return False
        if held is not None:  # somebody outside removed it while a command still runs
            os.close(held.fd)
            held.fd = fd
            held.users += 1
        else:
            self._held[name] = _Held(fd)
        return True

    def _placed(self, root_fd: int, name: str) -> int | None:
        """Create a stand-in or take over an existing one; None if something else is there or it cannot be created."""
        for _ in range(_TRIES):
            made = _made(root_fd, name)
            if made is None:
                return None
            try:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
            except FileNotFoundError:
                continue  # another client removed it just now
            except OSError:
                return None  # not a directory, so not a stand-in
            taken = None
            try:
                taken = _taken(root_fd, name, fd, made=made)
            finally:
                if not taken:
                    os.close(fd)
            if taken is not None:
                return fd if taken else None
        raise ToolFailure(f"{name!r} could not be protected from the command: it comes and goes, or is held.")

    def remove_left(self, root_fd: int, names: Sequence[str]) -> None:
        """Remove the stand-ins of killed clients. Call it before the first command."""
        for name in names:
            try:
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
            except OSError:
                continue
            if _is_ours(os.fstat(fd)):
                _remove(root_fd, name, fd)
            os.close(fd)

    def _release(self, root_fd: int, name: str) -> int | None:
        """Remove the stand-in if this was its last user; return the descriptor to close then."""
        held = self._held[name]
        held.users -= 1
        if held.users:
            return None
        del self._held[name]
        _remove(root_fd, name, held.fd)
        return held.fd


def _remove(root_fd: int, name: str, fd: int) -> None:
    try:
        # Only the last client on this workspace may remove it: rmdir would end the others' mounts too.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(root_fd, name, fd):
            os.rmdir(name, dir_fd=root_fd)
    except OSError:
        pass  # another client holds it, or somebody outside put a file into it


def _taken(root_fd: int, name: str, fd: int, *, made: bool) -> bool | None:
    """Lock and stamp the opened directory, whoever made it. False: no stand-in. None: it is being removed; retry."""
    # One made just now is not checked: not every file system keeps modes and owners.
    ours = made or _is_ours(os.fstat(fd))
    try:
        # Lock only stand-ins, and never wait: a command can lock any file it can open, and keep the lock.
        if ours:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        # Another client is removing it, which takes less than this pause. Nothing else is waited for.
        time.sleep(_PAUSE_SECONDS)
        return None
    if not _is_at(root_fd, name, fd):
        return None
    if not ours or os.listdir(fd):
        return False
    if not _stamped(os.fstat(fd)):
        os.utime(fd, (_STAMP, _STAMP))
    return True


def is_stand_in(root_fd: int, name: str) -> bool:
    """True if the name is a stand-in: stamped and empty."""
    try:
        if not _stamped(os.stat(name, dir_fd=root_fd, follow_symlinks=False)):
            return False
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
    except OSError:
        return False
    try:
        return not os.listdir(fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def _stamped(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_mtime_ns == STAMP_NS


def _is_ours(found: os.stat_result) -> bool:
    """True if it was made as a stand-in: by its stamp, or by its mode, which it has from the start."""
    made = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and found.st_uid == os.geteuid()
    return bool(made) or _stamped(found)


def _made(root_fd: int, name: str) -> bool | None:
    """True: created. False: something is there. None: it cannot be created, not even by the command."""
    try:
        os.mkdir(name, _MODE, dir_fd=root_fd)
    except FileExistsError:
        return False
    except OSError as error:
        # The directory's owner could restore its own write permission.
        if error.errno == errno.EROFS or (error.errno == errno.EACCES and os.fstat(root_fd).st_uid != os.geteuid()):
            return None
        if error.errno == errno.EACCES:
            raise ToolFailure(
                f"{name!r} could not be protected from the command, because nothing can be made in the workspace.",
                hint="Give the workspace's directory back its right to write: chmod u+wx",
            ) from error
        raise ToolFailure(f"{name!r} could not be protected from the command: {error.strerror}.") from error
    return True


def _is_at(root_fd: int, name: str, fd: int) -> bool:
    try:
        found = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return False
    own = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


@dataclass(frozen=True, slots=True)
class Link:
    """A protected name that is a symlink, as it was before the command."""

    name: str
    text: str
    owner: int
    group: int
    real: str
    """Its resolved target."""
    target: str | None
    """The target relative to the workspace; None if it lies outside."""
    target_exists: bool


def link_at(root: str, root_fd: int, name: str) -> Link:
    """Read the link of this name as it is now."""
    found = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    real = os.path.realpath(os.path.join(root, name))
    is_inside = real.startswith(f"{root}/")
    return Link(
        name=name,
        text=os.readlink(name, dir_fd=root_fd),
        owner=found.st_uid,
        group=found.st_gid,
        real=real,
        target=real.removeprefix(f"{root}/") if is_inside else "." if real == root else None,
        target_exists=is_inside and os.path.lexists(real),
    )


def link_targets(root: str, names: Iterable[str]) -> frozenset[str]:
    """Workspace-relative targets of the names that are symlinks."""
    links = (path for name in names if os.path.islink(path := f"{root}/{name}"))
    return frozenset(
        real.removeprefix(f"{root}/") for link in links if (real := os.path.realpath(link)).startswith(f"{root}/")
    )


def put_back(root: str, root_fd: int, link: Link) -> Generator[str]:
    """Restore a changed link. Yields the names that are new, or lead to a new target."""
    with suppress(OSError):
        if os.readlink(link.name, dir_fd=root_fd) == link.text:
            if _leads_elsewhere(root, link):
                yield link.name
            return
    try:
        yield from put_aside(root_fd, link.name)
        os.symlink(link.text, link.name, dir_fd=root_fd)
        if os.geteuid() == 0:
            os.chown(link.name, link.owner, link.group, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        yield link.name  # it could not be put back, so report what is there now


def put_aside(directory: int, name: str) -> Generator[str]:
    """Rename the file, if there is one, and make it not executable; yields its new name."""
    aside = f"{name}.replaced-{secrets.token_hex(4)}"
    with suppress(FileNotFoundError):
        try:
            os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
        except PermissionError:
            # The command may have made the directory unwritable; as its owner we can undo that for a moment.
            mode, place = stat.S_IMODE(os.fstat(directory).st_mode), f"/proc/self/fd/{directory}"
            os.chmod(place, mode | stat.S_IRWXU)
            try:
                os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
            finally:
                os.chmod(place, mode)
        with suppress(OSError):  # on a disk that keeps no modes
            _make_unexecutable(directory, aside)
        yield aside


def _make_unexecutable(directory: int, name: str) -> None:
    """Remove the execute bits of a regular file: some programs run every executable in a directory."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) & ~0o111)
    finally:
        os.close(fd)


def _leads_elsewhere(root: str, link: Link) -> bool:
    """True if another link on the path was changed, or the missing target was created."""
    if os.path.realpath(os.path.join(root, link.name)) != link.real:
        return True
    return link.target not in (None, ".") and not link.target_exists and os.path.lexists(link.real)


@contextmanager
def git_settings_kept(root_fd: int, told: list[str]) -> Generator[None]:
    """Put aside new files in the repository that would give git other settings."""
    try:
        repository = os.open(".git", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
    except OSError:
        yield  # none, or not a directory and so read-only
        return
    try:
        missing = [name for name in _GIT_SETTINGS if exists_at(repository, "HEAD") and not exists_at(repository, name)]
        try:
            yield
        finally:
            for name in missing:
                try:
                    told.extend(f".git/{aside}" for aside in put_aside(repository, name))
                except OSError:
                    told.append(f".git/{name}")
    finally:
        os.close(repository)


@contextmanager
def watched_names(root: Path, created: list[str]) -> Generator[None]:
    """Report the protected names that a command created, for a sandbox that cannot protect them."""
    before = {name for name in PROTECTED if os.path.lexists(root / name)}
    yield
    created.extend(name for name in PROTECTED if name not in before and os.path.lexists(root / name))


def exists_at(root_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


SECONDS = 40.0
"""A write's time limit less what it needs itself, so that it can still report what it waited for."""
_NOTHING: frozenset[str] = frozenset()


class WriteExclusion:
    """Keeps writes to protected names and running commands apart, for one workspace in one event loop."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._commands: list[Set[str]] = []
        self._writes = 0
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def command(self, link_targets: Set[str] = _NOTHING) -> AsyncGenerator[None]:
        """Enter while a command runs. `link_targets`: the targets of protected names that are links."""
        await self._until(lambda: not self._writes)
        self._commands.append(link_targets)
        try:
            yield
        finally:
            self._commands.remove(link_targets)
            self._ended.set()

    @asynccontextmanager
    async def write(self, real: str, link_targets: Set[str] = _NOTHING) -> AsyncGenerator[None]:
        """Enter while a file is written. `real`: its path from the workspace, links resolved."""
        # The targets now, and those when the commands began: one of them may have replaced the link.
        is_led_to = any(real in paths for paths in (link_targets, *self._commands))
        if real.partition("/")[0] not in PROTECTED and not is_led_to:
            yield
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._until(lambda: not self._commands)
        except TimeoutError:
            raise ToolFailure(
                f"{real!r} was not written: commands are still running, and while it is replaced they could change it.",
                hint="Wait until they have ended, or cancel them.",
            ) from None
        self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1
            self._ended.set()

    async def _until(self, free: Callable[[], bool]) -> None:
        while not free():
            self._ended.clear()
            await self._ended.wait()
