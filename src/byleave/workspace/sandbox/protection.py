"""Mounts of the workspace for one command: what it may change, what is read-only, what is hidden.

Other programs execute or trust the names in `PROTECTED`: editors, shells, git, other agents. Existing ones are mounted
read-only, as is the code this client runs from (`own_code`): the client imports it and is started from it again, so a
change there would escape every sandbox. Missing ones get a stand-in while the command runs (`stand_ins`). Nothing can
be mounted over a symlink, such as `.bashrc -> dotfiles/.bashrc`, so a link is compared before and after the command: a
changed one is put back, and what replaced it is kept beside it under another name. Git alone may create protected
names, since a branch may hold them (never `.byleave`, and `.git` only by `git init` and its like); new ones are
reported, and files that would give git other settings are put aside.

Commands that only read get the whole workspace read-only, and git all but the repository if its command needs no more
(`keeps_tree`). Denied paths are covered (`masking`). If nobody was asked about a command, secrets are covered too, and
the files it may not change are read-only (`Withheld`). Kernel file systems mounted inside the workspace, as in a
chroot, are covered: a /proc or /sys there shows every process, and root could change kernel settings through it. Other
mounts stay: many projects have a volume for `node_modules`.

Bubblewrap takes mount points by path, and old versions the sources too, so a running command could swap one for a link.
A protected name that could be swapped is skipped and reported; if a path must be hidden, the command is refused. A file
that is replaced loses its mount. So `WriteExclusion` lets a write to a protected name, or to the target of a protected
link, wait until no running command could write, and new commands wait for the write. Nothing here deletes a file.
"""

import asyncio
import os
import re
import secrets
import stat
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence, Set
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from byleave.gate import UnderstoodCommand
from byleave.protocol.errors import PathValidationError, ToolFailure

from .masking import NOTHING_WITHHELD, Mask, Withheld, covers, masks_for, mode_at, open_at, parents_of
from .stand_ins import STAMP_NS, StandIns, is_stand_in


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
    """Rename the file, if there is one; yields its new name."""
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
        yield aside


def _leads_elsewhere(root: str, link: Link) -> bool:
    """True if another link on the path was changed, or the missing target was created."""
    if os.path.realpath(os.path.join(root, link.name)) != link.real:
        return True
    return link.target not in (None, ".") and not link.target_exists and os.path.lexists(link.real)


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
_GIT_SETTINGS = ("config", "config.worktree", "commondir")
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


class Protection:
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
        self._stubs = StandIns()
        self._running: list[_Hold] = []
        """One for each running command that could change the workspace."""
        self._masks: list[list[Mask]] = []
        """One list for each running command."""

    def remove_left(self) -> None:
        """Remove the stand-ins of killed clients."""
        mounts = Mounts()
        try:
            self._stubs.remove_left(self._open_root(mounts), PROTECTED)
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
        missing = [name for name in PROTECTED if not _exists(root_fd, name) or is_stand_in(root_fd, name)]
        # `git init` and its like may create a repository; any other new protected name is reported.
        expected = (".git",) if command.makes_repository else ()
        wanted = tuple(name for name in (".git", ".byleave") if name not in expected) if is_git else PROTECTED
        with self._lock:
            stubs = [name for name in wanted if not self._loose(name)]
        opens_git = is_git and not works_in_another(str(self._root), command)
        mine = _Hold(root_fd, keeps_tree=opens_git and command.keeps_tree and os.path.isdir(self._root / ".git"))
        with (
            self._stubs.placed(root_fd, stubs),
            self._mounted(mounts, mine, masks, withheld, is_git=is_git, opens_git=opens_git),
            _settings_kept(root_fd, mounts.created) if opens_git and not expected else nullcontext(),
        ):
            yield
        mounts.created.extend(
            name
            for name in missing
            if name not in expected and _exists(root_fd, name) and not is_stand_in(root_fd, name)
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
            stand_ins = self._stubs.names
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
            if _exists(root_fd, ".git/HEAD"):
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


@contextmanager
def _settings_kept(root_fd: int, told: list[str]) -> Generator[None]:
    """Put aside new files in the repository that would give git other settings."""
    try:
        repository = os.open(".git", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
    except OSError:
        yield  # none, or not a directory and so read-only
        return
    try:
        missing = [name for name in _GIT_SETTINGS if _exists(repository, "HEAD") and not _exists(repository, name)]
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


def _exists(root_fd: int, name: str) -> bool:
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
