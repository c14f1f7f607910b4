"""Mounts of the workspace for one command: what it may change, what is read-only, what is hidden.

Existing protected names are mounted read-only (`protected_names` does what mounts cannot), as is the code this client
runs from (`own_code`): the client imports it and is started from it again, so a change there would escape every
sandbox. Git alone may create protected names, since a branch may hold them (never `.byleave`, and `.git` only by `git
init` and its like); new ones are reported. Commands that only read get the whole workspace read-only, and git all but
the repository if its command needs no more (`keeps_tree`). Kernel file systems mounted inside the workspace, as in a
chroot, are covered: a /proc or /sys there shows every process, and root could change kernel settings through it. Other
mounts stay: many projects have a volume for `node_modules`.

Denied paths are covered, and secrets too if nobody was asked about the command (`Withheld`): a directory by an empty
one that nobody may enter, a file by an empty one that nobody may read, so a program is refused rather than told that
they are gone. To a command that is known only to read, secrets look empty, so that it says nothing of them. A path that
leads through links is covered at its real place; one outside the workspace needs no cover, since it is not mounted. It
never covers less than it was asked to: it refuses.

Bubblewrap takes mount points by path, and old versions the sources too, so a running command could swap one for a link.
A protected name that could be swapped is skipped and reported; if a path must be hidden, the command is refused.
"""

import errno
import os
import re
import stat
import sys
import threading
import weakref
from collections.abc import Collection, Generator, Iterable, Sequence, Set
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from byleave.gate import UnderstoodCommand
from byleave.protocol.errors import PathValidationError, ToolFailure
from byleave.workspace.paths import parents_of

from .protected_names import (
    GIT_PROTECTED,
    PROTECTED,
    STAMP_NS,
    Link,
    StandIns,
    exists_at,
    git_settings_kept,
    is_stand_in,
    link_at,
    put_back,
)
from .sandbox import NOTHING_WITHHELD, Withheld

MAX_MASKED = 400
"""Each costs the start of a command about half a millisecond."""
_WALK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Mask:
    """A covered path, workspace-relative and real."""

    path: str
    is_directory: bool
    empty: bool = False
    """True if it may be read, and looks empty."""


def masks_for(root: str, root_fd: int, paths: Collection[str]) -> tuple[list[Mask], set[str]]:
    """The masks for `paths`, outermost only, and the paths that they hide; missing ones are left out.

    Raises if they cannot be determined.
    """
    if len(paths) > MAX_MASKED:
        raise ToolFailure(
            f"The rules forbid {len(paths)} paths of this workspace; at most {MAX_MASKED} can be hidden.",
            hint="Forbid the directories that hold them.",
        )
    found: dict[str, Mask] = {}
    hidden: set[str] = set()
    for path in paths:
        real = real_path(root, path)
        mode = None if real is None else mode_at(root_fd, real)
        if real is None:
            hidden.add(path)  # a link out of the workspace: it leads nowhere in the sandbox
        elif mode is not None:
            found[real] = Mask(real, stat.S_ISDIR(mode))
            hidden.update((path, real))
    directories = {path for path, mask in found.items() if mask.is_directory}
    return [mask for path, mask in sorted(found.items()) if directories.isdisjoint(parents_of(path))], hidden


def real_path(root: str, path: str) -> str | None:
    """The workspace-relative real path of a path; None if it is outside."""
    if not path or "\x00" in path or path.startswith("/") or ".." in path.split("/"):
        raise PathValidationError(f"{path!r} is no path inside the workspace, so it cannot be hidden.")
    real = os.path.realpath(os.path.join(root, path))
    if real == root or root.startswith(f"{real}/"):
        raise PathValidationError(
            f"{path!r} leads to the workspace itself, so it cannot be hidden.", hint="Name what lies in it."
        )
    return real.removeprefix(f"{root}/") if real.startswith(f"{root}/") else None


def mode_at(root_fd: int, path: str) -> int | None:
    """The mode of what is at a path, following no link; None if nothing is. A link on the way is an error."""
    fd = open_at(root_fd, path)
    if fd is None:
        return None
    try:
        return os.fstat(fd).st_mode
    finally:
        os.close(fd)


def open_at(root_fd: int, path: str) -> int | None:
    """Open a path with O_PATH, following no link; None if nothing is there. A link on the way is an error."""
    fd = os.dup(root_fd)
    try:
        for part in path.split("/"):
            below = os.open(part, _WALK, dir_fd=fd)
            os.close(fd)
            fd = below
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise ToolFailure(f"{path!r} became a link just now; nothing was run.", hint="Try again.")
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise ToolFailure(f"{path!r} cannot be kept from the command: {error.strerror}.") from error
    except ToolFailure:
        os.close(fd)
        raise
    return fd


@contextmanager
def covers(root: str, masks: Iterable[Mask]) -> Generator[tuple[list[str], list[int]]]:
    """Yield the bubblewrap arguments that mount the covers, and the descriptors they need."""
    arguments: list[str] = []
    fds: list[int] = []
    try:
        for mask in masks:
            # Mode 0: git and the like see an unreadable file, not a deleted one.
            perms = "0000" if not mask.empty else "0555" if mask.is_directory else "0444"
            if mask.is_directory:
                arguments += ["--size", "4096", "--perms", perms, "--tmpfs", f"{root}/{mask.path}"]
            else:
                fds.append(_nothing())
                arguments += ["--perms", perms, "--ro-bind-data", str(fds[-1]), f"{root}/{mask.path}"]
        yield arguments, fds
    finally:
        for fd in fds:
            os.close(fd)


def _nothing() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ToolFailure(f"What the rules forbid cannot be hidden from the command: {error.strerror}.") from error


_PACKAGE = Path(__file__).parents[2]
# The parts of a virtual environment, for a workspace that is one itself.
_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")


def own_code(root: Path) -> tuple[str, ...]:
    """Workspace-relative paths of the code this client runs from, with links resolved."""
    found: set[str] = set()
    for place in (sys.prefix, sys.base_prefix, _PACKAGE):
        real = Path(os.path.realpath(place))
        if real == root:
            found.update(name for name in _PARTS if (root / name).exists() and not (root / name).is_symlink())
        elif real.is_relative_to(root):
            found.add(str(real.relative_to(root)))
    return tuple(sorted(found))


_MOUNTS = "/proc/self/mountinfo"
_KERNELS = frozenset(
    {
        *(b"proc", b"sysfs", b"cgroup", b"cgroup2", b"debugfs", b"tracefs", b"securityfs", b"configfs", b"efivarfs"),
        *(
            b"bpf",
            b"binfmt_misc",
            b"fusectl",
            b"pstore",
            b"selinuxfs",
            b"mqueue",
            b"devtmpfs",
            b"devpts",
            b"rpc_pipefs",
        ),
    }
)
_ODD = re.compile(rb"[ \t\n\\]")
_OCTAL = re.compile(rb"\\([0-7]{3})")


class KernelMounts:
    """Kernel file systems mounted in one workspace."""

    def __init__(self, root: Path) -> None:
        self._above = _ODD.sub(lambda found: b"\\%03o" % found[0][0], os.fsencode(root)) + b"/"

    def covers(self) -> list[str]:
        """The arguments of bubblewrap that hide those mounted now."""
        with open(_MOUNTS, "rb") as file:
            told = file.read()
        if b" " + self._above not in told:
            return []
        arguments: list[str] = []
        for line in told.splitlines():
            words = line.split(b" ")
            if words[4].startswith(self._above) and words[words.index(b"-") + 1] in _KERNELS:
                point = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), words[4])
                if os.path.isdir(point):
                    arguments += ["--size", "4096", "--perms", "0000", "--tmpfs", os.fsdecode(point)]
                else:
                    arguments += ["--ro-bind", os.devnull, os.fsdecode(point)]
        return arguments


# If one of these is a link, no command that could write runs, not even git.
_NEVER_LINKS = (".git", ".byleave")


@dataclass(slots=True)
class Mounts:
    """The mounts of the workspace for one command."""

    arguments: list[str] = field(default_factory=list[str])
    protected: list[str] = field(default_factory=list[str])
    """Names it cannot change."""
    degraded: list[str] = field(default_factory=list[str])
    """Sentences about names that could not be protected."""
    created: list[str] = field(default_factory=list[str])
    """Protected names that are new; filled when the command has ended."""
    covers: list[str] = field(default_factory=list[str])
    """The arguments that hide denied paths; they come after all other mounts."""
    fds: list[int] = field(default_factory=list[int])
    """Descriptors that the arguments refer to."""
    masked: list[str] = field(default_factory=list[str])
    """Hidden paths, both as requested and with links resolved."""
    left_out: list[str] = field(default_factory=list[str])
    """Secrets that are hidden because nobody was asked about the command."""
    opened: list[int] = field(default_factory=list[int])
    """Descriptors to close when the command has ended."""

    def close(self) -> None:
        for fd in self.opened:
            os.close(fd)


@dataclass(eq=False, slots=True)
class _Hold:
    """Paths that one running command cannot rename or replace, because they are mount points in its sandbox."""

    root_fd: int
    fixed: set[str] = field(default_factory=set[str])
    sealed: set[str] = field(default_factory=set[str])
    """Those of them that are read-only as well."""
    links: dict[str, Link] = field(default_factory=dict[str, Link])
    """Protected names that are links, as they were before the command."""
    targets: set[str] = field(default_factory=set[str])
    """Read-only targets: of protected links, and this client's own code."""
    there: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Device and inode of the mounted names and targets."""
    keeps_tree: bool = False
    """True if all but the repository is read-only."""

    def replaced(self) -> Generator[str]:
        """Yield names that were replaced. That removed the mount, so the command may have changed the new file."""
        for name, identity in self.there.items():
            with suppress(OSError):
                if _identity(os.stat(name, dir_fd=self.root_fd, follow_symlinks=False)) != identity:
                    yield name

    def holds(self, path: str) -> bool:
        """True if this command can swap neither `path` nor a directory above it."""
        if self.keeps_tree and not path.startswith(".git/"):
            return True
        for way in (*parents_of(path), path):
            if way in self.sealed:
                return True
            if way not in self.fixed:
                return False
        return True


class WorkspaceMounts:
    """Mounts for the commands of one workspace, and a record of those that run."""

    def __init__(self, root: Path, *, by_descriptor: bool = False) -> None:
        """`by_descriptor`: bubblewrap takes mount sources as descriptors, so that they cannot be swapped."""
        self._root = root
        self._by_descriptor = by_descriptor
        # Held open: on some file systems an unused directory has another inode the next time.
        self._here = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._here)
        self._own_code, self._kernel_mounts = own_code(root), KernelMounts(root)
        self._lock = threading.Lock()
        self._stand_ins = StandIns()
        self._running: list[_Hold] = []
        """One for each running command that could change the workspace."""
        self._masks: list[list[Mask]] = []
        """One list for each running command."""

    def remove_left(self) -> None:
        """Remove the stand-ins of killed clients."""
        mounts = Mounts()
        try:
            self._stand_ins.remove_left(self._open_root(mounts), PROTECTED)
        finally:
            mounts.close()

    @contextmanager
    def hold(
        self, command: UnderstoodCommand, masked: Sequence[str] = (), withheld: Withheld = NOTHING_WITHHELD
    ) -> Generator[Mounts]:
        """Protect the workspace while one command runs, and hide `masked` from it."""
        mounts = Mounts()
        try:
            root_fd = self._open_root(mounts)
            with ExitStack() as held:
                masks, hidden = held.enter_context(self._hidden(root_fd, masked))
                secrets, left_out = masks_for(str(self._root), root_fd, withheld.secrets)
                # Other commands may move a secret while this one starts: they could as well have copied it.
                bare = (mask for mask in secrets if not _within(mask.path, masks))
                secrets = [replace(mask, empty=withheld.only_reads) for mask in bare]
                covered = [*masks, *secrets]
                arguments, fds = held.enter_context(covers(str(self._root), covered))
                mounts.covers, mounts.masked = [*self._kernel_mounts.covers(), *arguments], sorted(hidden)
                mounts.left_out = sorted(left_out)
                mounts.fds.extend(fds)
                if withheld.only_reads or command.only_reads:
                    self._bind(mounts, root_fd, ".", "--ro-bind")
                    mounts.protected.append(".")
                else:
                    held.enter_context(self._writing(mounts, root_fd, command, masks, withheld))
                yield mounts
        finally:
            mounts.close()

    def _open_root(self, mounts: Mounts) -> int:
        root_fd = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        mounts.opened.append(root_fd)
        if _identity(os.fstat(root_fd)) != _identity(os.fstat(self._here)):
            raise ToolFailure(
                f"Another directory has taken the place of {str(self._root)!r}; nothing was run.",
                hint="Put it back, or start the client again.",
            )
        return root_fd

    def _bind(self, mounts: Mounts, root_fd: int, path: str, option: str) -> None:
        """Mount a path of the workspace. By descriptor, a link in its place is never followed."""
        where = str(self._root / path)
        if not self._by_descriptor:
            mounts.arguments.extend([option, where, where])
            return
        fd = root_fd if path == "." else open_at(root_fd, path)
        if fd is None:
            raise ToolFailure(f"{path!r} is gone just now; nothing was run.", hint="Try again.")
        if fd != root_fd:
            mounts.opened.append(fd)
        mounts.fds.append(fd)
        mounts.arguments.extend([f"{option}-fd", str(fd), where])

    @contextmanager
    def _hidden(self, root_fd: int, masked: Sequence[str]) -> Generator[tuple[list[Mask], set[str]]]:
        """Hide `masked` and the paths hidden from running commands, which rely on nobody moving them."""
        with self._lock:
            others = (mask.path for masks in self._masks for mask in masks)
            masks, hidden = masks_for(str(self._root), root_fd, {*masked, *others})
            self._refuse_loose(masks)
            self._masks.append(masks)
        try:
            yield masks, hidden
        finally:
            with self._lock:
                self._masks.remove(masks)

    @contextmanager
    def _writing(
        self, mounts: Mounts, root_fd: int, command: UnderstoodCommand, masks: list[Mask], withheld: Withheld
    ) -> Generator[None]:
        is_git = command.is_git
        missing = [name for name in PROTECTED if not exists_at(root_fd, name) or is_stand_in(root_fd, name)]
        # `git init` and its like may create a repository; any other new protected name is reported.
        expected = (".git",) if command.makes_repository else ()
        wanted = tuple(name for name in (".git", ".byleave") if name not in expected) if is_git else PROTECTED
        with self._lock:
            free = [name for name in wanted if not self._loose(name)]
        opens_git = is_git and not works_in_another(str(self._root), command)
        mine = _Hold(root_fd, keeps_tree=opens_git and command.keeps_tree and os.path.isdir(self._root / ".git"))
        with (
            self._stand_ins.placed(root_fd, free),
            self._mounted(mounts, mine, masks, withheld, is_git=is_git, opens_git=opens_git),
            git_settings_kept(root_fd, mounts.created) if opens_git and not expected else nullcontext(),
        ):
            yield
        mounts.created.extend(
            name
            for name in missing
            if name not in expected and exists_at(root_fd, name) and not is_stand_in(root_fd, name)
        )

    @contextmanager
    def _mounted(
        self,
        mounts: Mounts,
        mine: _Hold,
        masks: list[Mask],
        withheld: Withheld,
        *,
        is_git: bool,
        opens_git: bool,
    ) -> Generator[None]:
        root_fd = mine.root_fd
        self._bind(mounts, root_fd, ".", "--ro-bind" if mine.keeps_tree else "--bind")
        if mine.keeps_tree:
            mounts.protected.append(".")
        with self._lock:
            # Before the protected names: a later mount on a directory would hide the mounts in it.
            for mask in masks:
                self._fix(mounts, mine, parents_of(mask.path))
            mine.fixed.update(mask.path for mask in masks)
            stand_ins = self._stand_ins.names
            in_git = GIT_PROTECTED if withheld.git_settings else GIT_PROTECTED[1:]
            for name in (*PROTECTED, *(in_git if opens_git else ())):
                link = next((hold.links[name] for hold in self._running if name in hold.links), None)
                if link is not None and not is_git:
                    # As it was before the first running command: one of them may have replaced it by now.
                    self._hold_link(mounts, mine, link)
                elif self._loose(name):
                    mounts.degraded.append(f"{name} could be made by another command that still runs; not protected.")
                else:
                    self._mount(mounts, mine, name, stand_ins, is_git=is_git, opens_git=opens_git)
            for target in sorted({*self._own_code, *(target for hold in self._running for target in hold.targets)}):
                self._seal_target(mounts, mine, target)
            for path in () if mine.keeps_tree else withheld.sealed:
                # For this command alone. Others cannot rely on it: the mount moves along with a renamed directory.
                within = not mine.sealed.isdisjoint((*parents_of(path), path))
                if within or mode_at(root_fd, path) is None:
                    continue
                if self._loose(path):
                    mounts.degraded.append(f"{path} could be moved by another command that still runs; not protected.")
                    continue
                self._bind(mounts, root_fd, path, "--ro-bind")
                mounts.protected.append(path)
            self._running.append(mine)
        try:
            yield
        finally:
            with self._lock:
                mounts.created.extend(mine.replaced())
                for link in mine.links.values():
                    mounts.created.extend(put_back(str(self._root), root_fd, link))
                self._running.remove(mine)

    def _loose(self, path: str) -> bool:
        """True if a running command could swap `path` or a directory above it."""
        return not all(hold.holds(path) for hold in self._running)

    def _refuse_loose(self, masks: list[Mask]) -> None:
        loose = next((mask.path for mask in masks if self._loose(mask.path)), None)
        if loose is not None:
            raise ToolFailure(
                f"{loose!r} is forbidden and cannot be hidden now, because a command still runs that could move it.",
                hint="Try again when that command has ended.",
            )

    def _fix(self, mounts: Mounts, mine: _Hold, parents: list[str]) -> None:
        """Make directories mount points, so that they cannot be renamed."""
        for parent in parents:
            if parent not in mine.fixed and (not mine.keeps_tree or parent.startswith(".git/")):
                self._bind(mounts, mine.root_fd, parent, "--bind")
                mine.fixed.add(parent)

    def _mount(
        self, mounts: Mounts, mine: _Hold, name: str, stand_ins: Set[str], *, is_git: bool, opens_git: bool
    ) -> None:
        root_fd = mine.root_fd
        try:
            found = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        kind = found.st_mode
        is_ours = name in stand_ins and stat.S_ISDIR(kind) and found.st_mtime_ns == STAMP_NS
        if stat.S_ISLNK(kind):
            if name in _NEVER_LINKS:
                raise PathValidationError(
                    f"{name!r} is a link, so it cannot be protected from the command.",
                    hint="Replace it by what it leads to.",
                )
            if is_git:
                mounts.degraded.append(f"{name} is a link and was not protected.")
            else:
                self._hold_link(mounts, mine, link_at(str(self._root), root_fd, name))
            return
        mine.fixed.add(name)
        if not is_ours:
            mine.there[name] = _identity(found)
        if opens_git and name == ".git" and stat.S_ISDIR(kind) and not is_ours:
            if exists_at(root_fd, ".git/HEAD"):
                _make_hooks(root_fd, found)
            self._bind(mounts, root_fd, name, "--bind")  # a mount point: it cannot be renamed away
            return
        mine.sealed.add(name)
        mounts.protected.append(name)
        if is_ours:
            # A private tmpfs costs a tenth of a bind mount; files put into it never reach the disk.
            mounts.arguments.extend(["--size", "4096", "--perms", "0555", "--tmpfs", str(self._root / name)])
        else:
            self._bind(mounts, root_fd, name, "--ro-bind")

    def _hold_link(self, mounts: Mounts, mine: _Hold, link: Link) -> None:
        """Mount a link's target read-only; a link cannot be a mount point. It is put back after the command."""
        mine.links[link.name] = link
        if link.target is None:
            told = "out of the workspace: if the command replaces it, it is put back."
        elif not link.target_exists or self._loose(link.target):
            told = f"to {link.target}, which was not protected."
        else:
            told = f"to {link.target}: if the command replaces it, it is put back."
            self._seal_target(mounts, mine, link.target)
        mounts.degraded.append(f"{link.name} is a link {told}")

    def _seal_target(self, mounts: Mounts, mine: _Hold, target: str) -> None:
        if not mine.sealed.isdisjoint((*parents_of(target), target)):
            return  # already read-only
        self._fix(mounts, mine, parents_of(target))
        self._bind(mounts, mine.root_fd, target, "--ro-bind")
        mounts.protected.append(target)
        for known in (mine.fixed, mine.sealed, mine.targets):
            known.add(target)
        with suppress(OSError):
            mine.there[target] = _identity(os.stat(target, dir_fd=mine.root_fd, follow_symlinks=False))


def works_in_another(root: str, git: UnderstoodCommand) -> bool:
    """True if -C or --git-dir makes git work in another repository than the workspace's own."""
    place = os.path.join(root, *git.git_directories)
    if git.git_dir is not None:
        return os.path.realpath(os.path.join(place, git.git_dir)) != os.path.join(root, ".git")
    real = Path(os.path.realpath(place))
    ways = (real, *real.parents)
    return Path(root) in ways and any(os.path.lexists(way / ".git") for way in ways[: ways.index(Path(root))])


def _within(path: str, masks: Sequence[Mask]) -> bool:
    return not {mask.path for mask in masks}.isdisjoint((*parents_of(path), path))


def _make_hooks(root_fd: int, repository: os.stat_result) -> None:
    """Create a missing hooks directory, so that it can be mounted read-only. As root, give it to the owner."""
    with suppress(FileExistsError):
        os.mkdir(".git/hooks", dir_fd=root_fd)
        if os.geteuid() == 0:
            os.chown(".git/hooks", repository.st_uid, repository.st_gid, dir_fd=root_fd, follow_symlinks=False)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
