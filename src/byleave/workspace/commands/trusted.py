"""Protect files that something executes or trusts from a command that nobody was asked about.

A grant, the mode `full` and a rule let a command run unseen, and what it leaves in `package.json`, a Makefile or
`.github/workflows` would run later with other rights. Existing ones are read-only for it (`sealed`). Git may change
them, since a checkout that fails half-way leaves a mess; its changes are put back afterwards, and so are changes to
files that could not be sealed. New ones are renamed. Installed code may be changed by the programs that install it, but
is read-only for git. Nested repositories are git's alone: for other commands they are read-only, and new ones are
renamed. Git may create them, but in existing ones the files that decide what git runs stay as they are. A new directory
that git would take for a repository without `.git` loses its `HEAD`. A new link is renamed if its name counts, or if it
leads into `.git` or `.byleave`, where commands choose names; its target never. Files below a directory that an
existing trusted link leads to (`.vscode -> tools/editor`) count like files below the link, under their real paths. What
our own tools write meanwhile (`own_write`) is what stays. Nothing is deleted, and every change is reported.

A file that is put back is not what git left: until a person was asked about a git command that names it, or somebody
touched the file, no unasked git command may record it (`still_put_back`). Replacing a file takes its seal in other
sandboxes away, so a command that may do that does not run beside one that relies on seals.
"""

import errno
import os
import stat
import threading
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from byleave.gate import trusted_name
from byleave.protocol.errors import RefusedError
from byleave.workspace.files.drafts import new_name
from byleave.workspace.paths import PathValidator, parents_of, visible
from byleave.workspace.sandbox.protected_names import put_aside

from .named_files import find, installed, outermost, repositories, trusted, trusted_or_head

if TYPE_CHECKING:
    from byleave.workspace.files.writing import Replacing

MAX_SEALED = 200
"""Each costs the start of a command about a millisecond; files beyond this are put back instead."""
MAX_BYTES = 64 * 1024**2
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_TOLD = 10
_MOST_NAMES = 100
"""Of one file; links may lead in circles."""
_DECIDES = ("config", "config.worktree", "commondir", "hooks", "info")
"""Names in a repository that decide what git runs there."""


@dataclass(frozen=True, slots=True)
class _File:
    """A trusted file before the command."""

    info: os.stat_result
    parent: tuple[int, int]
    """Device and inode of its directory."""
    content: bytes | None = None
    """None if it is sealed, or a link."""
    target: str | None = None
    """Target of a link."""

    @property
    def sealed(self) -> bool:
        return self.content is None and self.target is None


_LOCK = threading.Lock()
_TURN = threading.Lock()
"""Held while changes are taken back, or a trusted file is written by our own tools."""
_RUNNING: dict[str, list["TrustedFiles"]] = {}
"""Running commands of each workspace, oldest first."""
_ALL: weakref.WeakSet["TrustedFiles"] = weakref.WeakSet()
"""Those of commands that are about to run, too."""


@contextmanager
def own_write(root: str, keep: "Callable[[Replacing], None] | None") -> "Generator[Callable[[Replacing], None]]":
    """Enter around a write of our own, and report it right before its rename: if it succeeds, it stays. Blocking."""
    written: dict[str, _File] = {}
    with ExitStack() as held:

        def see(replacing: "Replacing") -> None:
            if keep is not None:
                keep(replacing)
            path = replacing.real
            with _LOCK:
                is_kept = any(kept.keeps(root, path) for kept in _ALL)
                runs = any(kept.keeps(root) for kept in _ALL)
            is_kept = is_kept or (trusted().holds(path) and not installed().directories.forbid(path))
            if is_kept or (runs and trusted_link_to(root, path) is not None):
                held.enter_context(_TURN)
                info = os.fstat(replacing.new_fd)
                written[path] = _File(info, (0, 0), os.pread(replacing.new_fd, info.st_size, 0))

        yield see
        with _LOCK:
            for kept in _ALL:
                kept.learn(root, written)


def trusted_link_to(root: str, real: str) -> str | None:
    """A trusted name that leads to a file through a link, if its own name is not trusted. Blocking."""
    if trusted_name(real) is not None:
        return None
    links: dict[str, str] = {}
    found = find(root, ["."], trusted(), passing=installed(), links=links)
    return _name_through(_targets(root, found, links), real)


def _targets(root: str, found: Iterable[str], links: Collection[str]) -> dict[str, str]:
    """The real path, from the workspace, that each of the links among the trusted names leads to."""
    return {link: os.path.relpath(os.path.realpath(f"{root}/{link}"), root) for link in found if link in links}


def _name_through(targets: Mapping[str, str], real: str) -> str | None:
    names = [real]
    for name in names:  # a link may lead to a directory that holds another
        for link, target in targets.items():
            if target == "." or f"{name}/".startswith(f"{target}/"):
                other = f"{link}/{os.path.relpath(name, target)}".removesuffix("/.")
                if trusted_name(other) is not None:
                    return other
                if other not in names and len(names) < _MOST_NAMES:
                    names.append(other)
    return None


_KEPT: dict[str, dict[str, tuple[int, int] | None]] = {}
"""By workspace: files that are not what git left in the repository, and their state since (`_state`)."""


def still_put_back(root: str) -> list[str]:
    """Files that are not what git left in the repository, untouched since: git would record or publish its own."""
    with _LOCK:
        kept = _KEPT.get(root, {})
        if not _RUNNING.get(root):  # else it may be a command that touched them, and what it did is taken back
            for path in [path for path, state in kept.items() if _state(f"{root}/{path}") != state]:
                del kept[path]
        return sorted(kept)


def forget_put_back(root: str, names: Iterable[str]) -> None:
    """Forget these: a person was asked about a git command that names them."""
    with _LOCK:
        for name in names:
            _KEPT.get(root, {}).pop(name, None)


def _state(path: str) -> tuple[int, int] | None:
    """Inode and time of the last change; None if nothing is there."""
    with suppress(OSError):
        info = os.lstat(path)
        return info.st_ino, info.st_mtime_ns
    return None


class TrustedFiles:
    """The trusted files of one workspace around one command. Blocking."""

    def __init__(self, paths: PathValidator, *, is_git: bool) -> None:
        self._paths = paths
        self._root = str(paths.root)
        self._mode = stat.S_IMODE(os.stat(self._root).st_mode)
        self._before: dict[str, _File] = {}
        self._moved: set[str] = set()
        """New names of what was put aside."""
        self._is_git = is_git
        self._sort = replace(trusted_or_head(), holds=self._holds)
        self._repositories = self._further_down() if is_git else ()
        self._links: dict[str, str] = {}
        """Every link and its target, as it is written."""
        self._found = self._look(self._links)
        self._whole = self._directories()
        """Directories sealed as a whole, with device and inode."""
        if not is_git:
            plain = [path for path in self._found if not os.path.islink(f"{self._root}/{path}")]
            plain = outermost(plain, trusted(), self._led_to())
        else:
            deciding = (f"{repository}/{name}" for repository in self._repositories for name in _DECIDES)
            plain = [path for path in deciding if _is_plain(f"{self._root}/{path}")]
        self.sealed = (*self._whole, *plain)[:MAX_SEALED]
        self._replaces = is_git or len(self._whole) + len(plain) > MAX_SEALED
        """True if its command may replace trusted files. What is sealed for another command is then no longer."""
        with _LOCK:
            _ALL.add(self)

    def keeps(self, root: str, path: str | None = None) -> bool:
        """True if it keeps this file, or any of this workspace, as it is."""
        return root == self._root and (path is None or path in self._found or path in self._before)

    def trusts(self, path: str) -> bool:
        """True if something executes or trusts a file of this absolute path, there or not, by its name or a link's."""
        if not path.startswith(f"{self._root}/"):
            return True  # it cannot be told
        real = path[len(self._root) + 1 :]
        if trusted_name(real) is not None or real in self._found:
            return True
        return _name_through(self._led, real) is not None

    @cached_property
    def _led(self) -> dict[str, str]:
        return _targets(self._root, self._found, self._links)

    def learn(self, root: str, written: dict[str, _File]) -> None:
        """Take files that our own tools wrote for the ones to keep."""
        if root == self._root:
            self._before |= written

    def _look(self, links: dict[str, str], *, after: bool = False) -> list[str]:
        """Find the trusted files. `after` the command thoroughly: it may have made very many, or very deep ones."""
        found = find(self._root, ["."], self._sort, passing=installed(), thorough=after, links=links)
        found = [path for path in found if not _is_ours(path)]
        if not after:
            heads = (path.rpartition("/") for path in found if trusted_name(path) is None)
            self._repositories += tuple(above for above, _, name in heads if above and name == "HEAD")
        return [*found, *self._deciding()]

    def _holds(self, path: str) -> bool:
        """True for a trusted name, and for the file that makes its directory a repository without `.git`."""
        if trusted_name(path) is not None:
            return True
        above, _, name = f"{self._root}/{path}".rpartition("/")
        has = {one for one in ("objects", "refs", "commondir") if os.path.lexists(f"{above}/{one}")}
        return name.lower() == "head" and ("commondir" in has or len(has) > 1)

    def _led_to(self) -> set[str]:
        """Real directories that count as a whole, because a link with a trusted directory's name leads there."""
        links = (path for path in self._found if path in self._links and trusted().directories.forbid(path))
        real = {os.path.realpath(f"{self._root}/{link}") for link in links}
        return {path[len(self._root) + 1 :] for path in real if path.startswith(f"{self._root}/")}

    def _further_down(self) -> tuple[str, ...]:
        """Nested repositories, or the files that point to them."""
        found = find(self._root, ["."], repositories(), passing=installed())
        return tuple(path for path in found if not _is_ours(path.partition("/")[0]))

    def _deciding(self) -> list[str]:
        """Files that decide what git runs in the repositories that were there before the command."""
        found: list[str] = []
        for repository in self._repositories:
            if not os.path.isdir(f"{self._root}/{repository}"):
                found.append(repository)
            for name in _DECIDES:
                path = f"{self._root}/{repository}/{name}"
                if os.path.isdir(path) and not os.path.islink(path):
                    found += [
                        f"{above}/{file}"[len(self._root) + 1 :] for above, _, files in os.walk(path) for file in files
                    ]
                elif os.path.lexists(path):
                    found.append(f"{repository}/{name}")
        return found

    def _directories(self, *, after: bool = False) -> dict[str, tuple[int, int]]:
        """Directories to seal: for git installed code, for other commands repositories."""
        sort, passing = (installed(), None) if self._is_git else (repositories(), installed())
        found: dict[str, tuple[int, int]] = {}
        for path in find(self._root, ["."], sort, passing=passing, thorough=after):
            with suppress(OSError):
                info = os.lstat(f"{self._root}/{path}")
                if not _is_ours(path.partition("/")[0]):  # those are protected elsewhere
                    found[path] = info.st_dev, info.st_ino
        return found

    def keep(self, held: Iterable[str]) -> None:
        """Before the command: read the files that are not at or below `held`, which it cannot change."""
        sealed, room = set(held), MAX_BYTES
        before: dict[str, _File] = {}
        for path in self._found:
            names = path.split("/")
            is_sealed = any("/".join(names[:depth]) in sealed for depth in range(1, len(names) + 1))
            with suppress(FileNotFoundError, NotADirectoryError):
                file = self._read(path, content=not is_sealed)
                room -= len(file.content or b"")
                before[path] = file
            if room < 0:
                raise RefusedError(
                    "There is too much here that something runs or trusts to keep it from a command that nobody was "
                    "asked about; nothing was run.",
                    hint="revoke the grant or leave the mode `full`, so that a person is asked about it",
                )
        with _LOCK:
            running = _RUNNING.setdefault(self._root, [])
            if any(self._breaks(other) or other._breaks(self) for other in running):
                raise RefusedError(
                    "Another command that nobody was asked about still runs, and together they could change what "
                    "something executes or trusts; nothing was run.",
                    hint="wait until it has ended, or cancel it",
                )
            if running:  # another such command may have changed them: use its record
                self._links = running[0]._links
                earlier = running[0]._before
                before = {path: before.get(path, file) if file.sealed else file for path, file in earlier.items()}
            self._before = before | self._before
            running.append(self)

    def _breaks(self, other: "TrustedFiles") -> bool:
        """True if it may replace a file that is sealed for the other's command."""
        return self._replaces and not other._is_git

    def put_back(self) -> list[str]:
        """After the command: take its changes back. Return a sentence for each."""
        with _LOCK:
            if self not in _RUNNING.get(self._root, ()):
                return []  # it never began
        try:
            with suppress(OSError):
                if stat.S_IMODE(os.stat(self._root).st_mode) != self._mode:
                    os.chmod(self._root, self._mode)  # else nothing could be found or moved
            with _TURN:
                return self._told()
        finally:
            with _LOCK:
                _RUNNING[self._root].remove(self)

    def _told(self) -> list[str]:
        # First: a changed link, or one in a directory's place, gives trusted names to files that were there before.
        told = [sentence for path in sorted(self._before) for sentence in self._compare(path, self._before[path])]
        same = set(self._whole.values())  # a moved one could not be changed
        now = self._directories(after=True).items()
        # Installed code that is new at its old place was installed again by its owner.
        new = [path for path, which in now if which not in same and not (self._is_git and path in self._whole)]
        new = [path for path in new if not self._is_sealed(path)]
        links: dict[str, str] = {}
        found = self._look(links, after=True)
        new_links = [path for path, target in links.items() if self._links.get(path) != target]
        trusted_now = {*found}
        aside = [path for path in new_links if path not in self._before and self._matters(path, trusted_now)]
        for path in aside:
            told += self._put_aside(path)
        # The target of a new link is found through it, but was there before; so was what git cannot install.
        made = self._look({}, after=True) if aside else found
        if self._is_git:
            made = [path for path in made if not installed().directories.forbid(path)]
        for path in sorted({*made, *new} - {*self._before} - self._moved):
            told += self._put_aside(path)
            self.remember(path)
        if not told:
            return []
        because = (
            "Files that something executes or trusts were kept as they were, because nobody was asked about them: "
            "name such a file in a call of its own."
        )
        more = [f"And {len(told) - _TOLD} more."] if len(told) > _TOLD else []
        return [because, *told[:_TOLD], *more]

    def _compare(self, path: str, file: _File) -> list[str]:
        """Put a file back if it is not the same."""
        try:
            if self._is_same(path, file):
                return []
            told = self._restore(path, file)
            self.remember(path)
            return told
        except OSError as error:
            return [f"It changed {visible(path)!r}, which could not be put back: {error.strerror}."]

    def remember(self, path: str) -> None:
        """Note that the repository has other content than this file, which git would record or publish."""
        if self._is_git:
            with _LOCK:
                _KEPT.setdefault(self._root, {})[path] = _state(f"{self._root}/{path}")

    def _matters(self, link: str, found: set[str]) -> bool:
        """True for a new link with a trusted name, or one that gives trusted names to what commands may write."""
        if _is_ours(link):
            return False
        real = os.path.relpath(os.path.realpath(f"{self._root}/{link}"), self._root)
        if link in found or _is_ours(real.lower()):
            return True
        behind = not self._is_git and installed().directories.forbid(real)
        return behind and any(path == real or path.startswith(f"{real}/") for path in found)

    def _read(self, path: str, *, content: bool) -> _File:
        parent, name = self._parent(path)
        try:
            info, above = os.stat(name, dir_fd=parent, follow_symlinks=False), os.fstat(parent)
            place = above.st_dev, above.st_ino
            if stat.S_ISLNK(info.st_mode):
                return _File(info, place, target=os.readlink(name, dir_fd=parent))
            if not content or not stat.S_ISREG(info.st_mode):
                return _File(info, place)
            with open(os.open(name, _READ | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent), "rb") as file:
                return _File(info, place, file.read(MAX_BYTES + 1))
        finally:
            os.close(parent)

    def _is_same(self, path: str, known: _File) -> bool:
        try:
            found = self._read(path, content=known.content is not None)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            return known.sealed  # moved with its directory, or somebody else removed it
        if known.sealed:
            # In its own directory the command could not replace it: somebody else did.
            same_file = (found.info.st_dev, found.info.st_ino) == (known.info.st_dev, known.info.st_ino)
            return same_file or found.parent == known.parent
        same = (found.content, found.target) == (known.content, known.target)
        return same and found.info.st_mode == known.info.st_mode

    def _restore(self, path: str, known: _File) -> list[str]:
        aside = [] if known.sealed else self._make_parents(path, known)
        aside += self._aside(path)
        beside = f" What it made of it is {visible(aside[0])!r} now." if aside else ""
        if known.sealed:
            return [f"Something else was at {visible(path)!r}.{beside}"]
        parent, name = self._parent(path)
        try:
            draft = new_name()
            if known.target is not None:
                os.symlink(known.target, draft, dir_fd=parent)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with open(os.open(draft, flags, 0o600, dir_fd=parent), "wb") as file:
                    file.write(known.content or b"")
                    os.fchmod(file.fileno(), stat.S_IMODE(known.info.st_mode))
            if os.geteuid() == 0:
                os.chown(draft, known.info.st_uid, known.info.st_gid, dir_fd=parent, follow_symlinks=False)
            os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            os.close(parent)
        return [f"It changed {visible(path)!r}, which was put back.{beside}"]

    def _make_parents(self, path: str, known: _File) -> list[str]:
        """Make the directories above a file again, and put aside what is in their place."""
        aside: list[str] = []
        for place in parents_of(path):
            above, name = self._parent(place)
            try:
                with suppress(FileNotFoundError):
                    if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                        continue
                    aside += self._aside(place)
                os.mkdir(name, 0o755, dir_fd=above)
                if os.geteuid() == 0:
                    os.chown(name, known.info.st_uid, known.info.st_gid, dir_fd=above, follow_symlinks=False)
            finally:
                os.close(above)
        return aside

    def _is_sealed(self, path: str) -> bool:
        """True below a directory that the command could not change; a new link may lead there."""
        names = path.split("/")
        return any("/".join(names[:depth]) in self._whole for depth in range(1, len(names)))

    def _put_aside(self, path: str) -> list[str]:
        try:
            return [f"It made {visible(path)!r}, which is {visible(to)!r} now." for to in self._aside(path)]
        except OSError as error:
            return [f"It changed {visible(path)!r}, which could not be put back: {error.strerror}."]

    def _aside(self, path: str) -> list[str]:
        parent, name = self._parent(path)
        try:
            moved = [path.removesuffix(name) + aside for aside in put_aside(parent, name)]
            self._moved.update(moved)
            return moved
        finally:
            os.close(parent)

    def _parent(self, path: str) -> tuple[int, str]:
        above, _, name = path.rpartition("/")
        return self._paths.open_exact(above or ".", os.O_PATH | os.O_DIRECTORY), name


def _is_plain(path: str) -> bool:
    """True if something other than a link is there."""
    return os.path.lexists(path) and not os.path.islink(path)


def _is_ours(path: str) -> bool:
    """True for the directories of git and Byleave, which are protected elsewhere."""
    return not {".git", ".byleave"}.isdisjoint(path.split("/"))
