"""What a command may change in the workspace, and what it may not: the workspace's own mounts.

Something else on this machine executes or trusts the names in `PROTECTED`: an editor, a shell, git, another agent.
Those that exist are mounted read-only, as is the code this client runs from (`own_code`); those that are missing have a
stand-in for the time of the command (`stubs`), those that are links are held by `links`. Git alone may make them, since
a branch may hold them; what it made is told, and what would lead git to other settings is put aside.
Commands that only read get all of it read-only. What the owner's rules forbid is covered (`masking`). Where nobody was
asked about a command, secrets are covered too, and what it may not change is read-only (`Withheld`). Where it is
mounted is named by path, and with an old bubblewrap also what is, so nothing is mounted that a command which still runs
import stat
could swap for a link at that very moment: a protected name is then left alone and told of, and where something must be
hidden the command is refused.

Protected names that are links, such as `.vscode -> ../shared/.vscode` or `.bashrc -> dotfiles/.bashrc`.

Nothing can be mounted over a link, so a command can replace it. It is looked at before the command and after it has
ended: a link that is no longer what it was is made again, and what took its place is kept under another name beside it.
Never follows a link, and never deletes anything.

The code that runs this client, as far as it lies in the workspace: a virtual environment of the project, a checkout.

Whoever changes it is no longer held by any sandbox: the client imports from it, and is started from it again. So
commands get it read-only, like the names that other programs trust. Here it is only found; `protection` mounts it.

File systems of the kernel itself that are mounted inside the workspace, as in a tree that somebody enters by chroot.

A workspace is mounted for a command with all that is mounted in it, and such a /proc or /sys is the machine's own: it
tells of every process, and root can switch the kernel by it. So they are covered. Other file systems are left: a volume
for `node_modules` is part of many projects.

Whose turn it is: commands that are held off protected names, or a write that replaces one of them.

The sandbox keeps those names read-only by a mount on each of them. A file that is replaced loses its mount, and a
command that still runs could then write what editors and shells trust. So a write to such a name, or to what it leads
to where it is a link, waits for the commands that run and could write, and such that come wait for the write. It knows
nothing of what they do, and opens nothing.
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
from .stand_ins import StandIns, is_stand_in


@dataclass(frozen=True, slots=True)
class Link:
    """A link in the workspace's own directory, as it was before the command."""

    name: str
    text: str
    owner: int
    group: int
    real: str
    """Where it led."""
    target: str | None
    """The same from the workspace; None when it lies outside."""
    target_exists: bool


def link_at(root: str, root_fd: int, name: str) -> Link:
    """The link of this name as it is now."""
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
    """What those of these names lead to that are links, from the workspace, as far as it lies there."""
    links = (path for name in names if os.path.islink(path := f"{root}/{name}"))
    return frozenset(
        real.removeprefix(f"{root}/") for link in links if (real := os.path.realpath(link)).startswith(f"{root}/")
    )


def put_back(root: str, root_fd: int, link: Link) -> Generator[str]:
    """Make the link again where it is not what it was. Gives the names that are new, or lead to something new."""
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
        yield link.name  # it could not be put back, so what is there now is told


def put_aside(directory: int, name: str) -> Generator[str]:
    """Give what is there, if anything is, another name; gives that name."""
    aside = f"{name}.replaced-{secrets.token_hex(4)}"
    with suppress(FileNotFoundError):
        try:
            os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
        except PermissionError:
            # Its owner may have closed the directory behind it, and may open it again.
            mode, place = stat.S_IMODE(os.fstat(directory).st_mode), f"/proc/self/fd/{directory}"
            os.chmod(place, mode | stat.S_IRWXU)
            try:
                os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
            finally:
                os.chmod(place, mode)
        yield aside


def _leads_elsewhere(root: str, link: Link) -> bool:
    """True if another link on the way was changed, or what it leads to was made."""
    if os.path.realpath(os.path.join(root, link.name)) != link.real:
        return True
    return link.target not in (None, ".") and not link.target_exists and os.path.lexists(link.real)


_PACKAGE = Path(__file__).parents[2]
# Where the workspace itself is the environment.
_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")


def own_code(root: Path) -> tuple[str, ...]:
    """Paths from the workspace of what this client runs from; none leads through a link."""
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
    """Those in one workspace."""

    def __init__(self, root: Path) -> None:
        self._above = _ODD.sub(lambda found: b"\\%03o" % found[0][0], os.fsencode(root)) + b"/"

    def covers(self) -> list[str]:
        """The arguments of bubblewrap that hide what is mounted now."""
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
# An approved git command changes the repository, but not what runs in it.
GIT_PROTECTED = tuple(
    f".git/{name}" for name in ("hooks", "config", "config.worktree", "commondir", "modules", "info", "worktrees")
)
# Git itself never makes these in a repository that is there. Git would take its settings from them, in the user's hands
# too; and programs that a repository inside the workspace names run with git's rights.
_GIT_SETTINGS = ("config", "config.worktree", "commondir")
# Nothing is let near these through a link, not even git.
_NEVER_LINKS = (".git", ".byleave")


@dataclass(slots=True)
class Mounts:
    """How the workspace is mounted for one command."""

    arguments: list[str] = field(default_factory=list[str])
    protected: list[str] = field(default_factory=list[str])
    """Names it cannot change."""
    degraded: list[str] = field(default_factory=list[str])
    """What could not be protected, in words."""
    created: list[str] = field(default_factory=list[str])
    """Protected names that were not there before; filled when the command has ended."""
    covers: list[str] = field(default_factory=list[str])
    """The arguments that hide what is forbidden: the last of all mounts."""
    fds: list[int] = field(default_factory=list[int])
    """What mounts and covers need."""
    masked: list[str] = field(default_factory=list[str])
    """What is hidden, as it was asked for and by its real path."""
    left_out: list[str] = field(default_factory=list[str])
    """Secrets that are hidden because nobody was asked about the command."""
    opened: list[int] = field(default_factory=list[int])
    """What is to be closed when the command has ended."""

    def close(self) -> None:
        for fd in self.opened:
            os.close(fd)


@dataclass(eq=False, slots=True)
class _Hold:
    """What one running command cannot rename or replace, because it is a mount of its own there."""

    root_fd: int
    fixed: set[str] = field(default_factory=set[str])
    sealed: set[str] = field(default_factory=set[str])
    """Those of them in which it can change nothing either."""
    links: dict[str, Link] = field(default_factory=dict[str, Link])
    """Protected names that are links, as they were before it."""
    targets: set[str] = field(default_factory=set[str])
    """What they lead to."""
    there: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Device and inode of what is a mount: protected names, and what they lead to."""

    def replaced(self) -> Generator[str]:
        """Names that are something else now: whoever replaced them took the mount away, and the command may have
        changed what is there."""
        for name, identity in self.there.items():
            with suppress(OSError):
                if _identity(os.stat(name, dir_fd=self.root_fd, follow_symlinks=False)) != identity:
                    yield name

    def holds(self, path: str) -> bool:
        """True if nothing on the way to `path` can be swapped by this command."""
        for way in (*parents_of(path), path):
            if way in self.sealed:
                return True
            if way not in self.fixed:
                return False
        return True


class Protection:
    """Keeps track of the commands of one workspace."""

    def __init__(self, root: Path, *, by_descriptor: bool = False) -> None:
        """`by_descriptor`: whether bubblewrap can be given what it mounts open, and so mounts nothing else."""
        self._root = root
        self._by_descriptor = by_descriptor
        # Held open, because on some file systems a directory that nobody uses is another one the next time.
        self._here = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._here)
        self._own_code, self._kernel_mounts = own_code(root), KernelMounts(root)
        self._lock = threading.Lock()
        self._stubs = StandIns()
        self._running: list[_Hold] = []
        """One for each command that runs now and could change the workspace."""
        self._masks: list[list[Mask]] = []
        """One for each command that runs now."""

    def remove_left(self) -> None:
        """Take away the stand-ins of clients that were killed."""
        mounts = Mounts()
        try:
            self._stubs.remove_left(self._open_root(mounts), PROTECTED)
        finally:
            mounts.close()

    @contextmanager
    def hold(
        self, command: UnderstoodCommand, masked: Sequence[str] = (), withheld: Withheld = NOTHING_WITHHELD
    ) -> Generator[Mounts]:
        """Protect the workspace for the time of one command, and hide what lies at `masked` from it."""
        mounts = Mounts()
        try:
            root_fd = self._open_root(mounts)
            with ExitStack() as held:
                masks, hidden = held.enter_context(self._hidden(root_fd, masked))
                secrets, left_out = masks_for(str(self._root), root_fd, withheld.secrets)
                # Not held against others: one that could move a secret while this starts could as well have copied it.
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
                    held.enter_context(self._writing(mounts, root_fd, command, masks, withheld.sealed))
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
        """Mount a path of the workspace as it is now, or nothing: a link in its place is never followed."""
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
        """What to hide: what was asked for, and what is being hidden from others, who rely on nobody moving it."""
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
        self, mounts: Mounts, root_fd: int, command: UnderstoodCommand, masks: list[Mask], sealed: Sequence[str]
    ) -> Generator[None]:
        is_git = command.is_git
        missing = [name for name in PROTECTED if not _exists(root_fd, name) or is_stand_in(root_fd, name)]
        # `git init` and its like are the one way to a repository; anything else that appeared is told.
        expected = (".git",) if command.makes_repository else ()
        wanted = tuple(name for name in (".git", ".byleave") if name not in expected) if is_git else PROTECTED
        with self._lock:
            stubs = [name for name in wanted if not self._loose(name)]
        opens_git = is_git and not works_in_another(str(self._root), command)
        with (
            self._stubs.placed(root_fd, stubs),
            self._mounted(mounts, root_fd, masks, sealed, is_git=is_git, opens_git=opens_git),
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
        root_fd: int,
        masks: list[Mask],
        sealed: Sequence[str],
        *,
        is_git: bool,
        opens_git: bool,
    ) -> Generator[None]:
        mine = _Hold(root_fd)
        self._bind(mounts, root_fd, ".", "--bind")
        with self._lock:
            # Before the names: a mount on the way to one would hide what is mounted there already.
            for mask in masks:
                self._fix(mounts, mine, parents_of(mask.path))
            mine.fixed.update(mask.path for mask in masks)
            for name in (*PROTECTED, *(GIT_PROTECTED if opens_git else ())):
                link = next((hold.links[name] for hold in self._running if name in hold.links), None)
                if link is not None and not is_git:
                    # As it was before the first of the commands that run: another may have replaced it by now.
                    self._hold_link(mounts, mine, link)
                elif self._loose(name):
                    mounts.degraded.append(f"{name} could be made by another command that still runs; not protected.")
                else:
                    self._mount(mounts, mine, name, is_git=is_git, opens_git=opens_git)
            for target in sorted({*self._own_code, *(target for hold in self._running for target in hold.targets)}):
                self._seal_target(mounts, mine, target)
            for path in sealed:
                # For this command alone, so it holds nothing for others; a mount moves along with what it covers.
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
        """True if a command that runs now could swap what lies at `path`, or a directory on the way there."""
        return not all(hold.holds(path) for hold in self._running)

    def _refuse_loose(self, masks: list[Mask]) -> None:
        loose = next((mask.path for mask in masks if self._loose(mask.path)), None)
        if loose is not None:
            raise ToolFailure(
                f"{loose!r} is forbidden and cannot be hidden now, because a command still runs that could move it.",
                hint="Try again when that command has ended.",
            )

    def _fix(self, mounts: Mounts, mine: _Hold, parents: list[str]) -> None:
        """Make mounts of directories, so that they cannot be renamed: what lies in them keeps its name."""
        for parent in parents:
            if parent not in mine.fixed:
                self._bind(mounts, mine.root_fd, parent, "--bind")
                mine.fixed.add(parent)

    def _mount(self, mounts: Mounts, mine: _Hold, name: str, *, is_git: bool, opens_git: bool) -> None:
        root_fd = mine.root_fd
        try:
            found = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        kind, is_ours = found.st_mode, self._stubs.hold(name, found)
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
            # A private one over it, since that costs a tenth of a bind: what is put into it never reaches the disk.
            mounts.arguments.extend(["--size", "4096", "--perms", "0555", "--tmpfs", str(self._root / name)])
        else:
            self._bind(mounts, root_fd, name, "--ro-bind")

    def _hold_link(self, mounts: Mounts, mine: _Hold, link: Link) -> None:
        """A link cannot be a mount. What it leads to can; the link itself is put back when the command has ended."""
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
            return  # it lies in what is read-only anyway
        self._fix(mounts, mine, parents_of(target))
        self._bind(mounts, mine.root_fd, target, "--ro-bind")
        mounts.protected.append(target)
        for known in (mine.fixed, mine.sealed, mine.targets):
            known.add(target)
        with suppress(OSError):
            mine.there[target] = _identity(os.stat(target, dir_fd=mine.root_fd, follow_symlinks=False))


def works_in_another(root: str, git: UnderstoodCommand) -> bool:
    """True if git works in another repository than the workspace's own, by -C or --git-dir."""
    place = os.path.join(root, *git.git_directories)
    if git.git_dir is not None:
        return os.path.realpath(os.path.join(place, git.git_dir)) != os.path.join(root, ".git")
    real = Path(os.path.realpath(place))
    ways = (real, *real.parents)
    return Path(root) in ways and any(os.path.lexists(way / ".git") for way in ways[: ways.index(Path(root))])


@contextmanager
def _settings_kept(root_fd: int, told: list[str]) -> Generator[None]:
    """Put aside what appears in the repository and would lead git to other settings than it has now."""
    try:
        repository = os.open(".git", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
    except OSError:
        yield  # there is none, or it is no directory and so read-only
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
    """Where names cannot be protected: tell at least which of them a command made."""
    before = {name for name in PROTECTED if os.path.lexists(root / name)}
    yield
    created.extend(name for name in PROTECTED if name not in before and os.path.lexists(root / name))


def _within(path: str, masks: Sequence[Mask]) -> bool:
    return not {mask.path for mask in masks}.isdisjoint((*parents_of(path), path))


def _make_hooks(root_fd: int, repository: os.stat_result) -> None:
    """A repository without hooks must not get any; where we are root, the directory is its owner's all the same."""
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
"""Less than a write has, by what it may take itself: else nobody is told what it waited for."""
_NOTHING: frozenset[str] = frozenset()


class WriteExclusion:
    """The turns of one workspace, in one event loop."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._commands: list[Set[str]] = []
        self._writes = 0
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def command(self, link_targets: Set[str] = _NOTHING) -> AsyncGenerator[None]:
        """While a command runs. `link_targets`: what the protected names that are links lead to."""
        await self._until(lambda: not self._writes)
        self._commands.append(link_targets)
        try:
            yield
        finally:
            self._commands.remove(link_targets)
            self._ended.set()

    @asynccontextmanager
    async def write(self, real: str, link_targets: Set[str] = _NOTHING) -> AsyncGenerator[None]:
        """While the file at a real path (from the workspace, links resolved) is written."""
        # As it is now, and as it was when the commands began: one of them may have replaced the link.
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
