"""Covering what the owner's rules forbid, so that a command cannot read it whatever its arguments say.

A directory gets an empty one over it that nobody may enter, a file an empty one that nobody may read; a program that
looks at them is refused rather than told that they are gone. Mounts are named by path: the way to each is walked
without following a link, and a path that leads through links is covered where it really lies. What lies outside the
workspace needs no cover, since nothing of it is mounted. Never covers less than it was asked to: it refuses.
Secrets are covered in the same way for a command that nobody was asked about (`Withheld`): to one that is known only to
read they are empty, so that it says nothing of them; to any other they cannot be read.
"""

import errno
import os
import stat
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from byleave.protocol.errors import PathValidationError, ToolFailure

MAX_MASKED = 400
"""Each costs the start of a command about half a millisecond."""
_WALK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Withheld:
    """What is kept from a command that nobody was asked about: paths from the workspace, each at its real place."""

    secrets: tuple[str, ...] = ()
    """Cannot be read."""
    emptied: bool = False
    """Whether they look empty instead."""
    sealed: tuple[str, ...] = ()
    """Cannot be changed."""


NOTHING_WITHHELD = Withheld()


@dataclass(frozen=True, slots=True)
class Mask:
    """One path that is covered: where it really lies, from the workspace."""

    path: str
    is_directory: bool
    empty: bool = False
    """Whether it may be read, and is empty then."""


def parents_of(path: str) -> list[str]:
    """The directories on the way to a path, from the workspace down: `a`, `a/b` for `a/b/c`."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def masks_for(root: str, root_fd: int, paths: Collection[str]) -> tuple[list[Mask], set[str]]:
    """What to cover for `paths`, outermost only, and which of them are hidden then; what is not there is left out.

    Raises where it cannot be told.
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
    """Where a path of the workspace really lies, from the workspace; None when that is outside."""
    if not path or "\x00" in path or path.startswith("/") or ".." in path.split("/"):
        raise PathValidationError(f"{path!r} is no path inside the workspace, so it cannot be hidden.")
    real = os.path.realpath(os.path.join(root, path))
    if real == root or root.startswith(f"{real}/"):
        raise PathValidationError(
            f"{path!r} leads to the workspace itself, so it cannot be hidden.", hint="Name what lies in it."
        )
    return real.removeprefix(f"{root}/") if real.startswith(f"{root}/") else None


def mode_at(root_fd: int, path: str) -> int | None:
    """What is at a path, without following any link; None when nothing is. A link on the way is an error."""
    fd = open_at(root_fd, path)
    if fd is None:
        return None
    try:
        return os.fstat(fd).st_mode
    finally:
        os.close(fd)


def open_at(root_fd: int, path: str) -> int | None:
    """A descriptor of what is at a path, not to be read from; None when nothing is. A link on the way is an error."""
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
    """The arguments of bubblewrap that lay the covers, and the descriptors they need."""
    arguments: list[str] = []
    fds: list[int] = []
    try:
        for mask in masks:
            # Mode 0: to git and its like, what is covered cannot be read; it has not been deleted.
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
