"""The walls ripgrep searches in: bubblewrap with the searched place and nothing else of the user's machine.

The place is given by descriptor and mounted from it (`--ro-bind-fd`: bubblewrap makes sure that what it mounted is what
was opened, and closes the descriptor), at a path of a private skeleton: no name of the user's tree is resolved again,
so nothing can be swapped under it, and a link that leads out leads nowhere. The .gitignore files above the place are
copied into the skeleton. A bubblewrap without that option, or that does not work, gives no walls: then `scan` searches.
"""

import os
import re
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from byleave.protocol.errors import ToolFailure
from byleave.workspace.commands.command_user import Runner, runner_for
from byleave.workspace.commands.programs import find_program
from byleave.workspace.sandbox.sandbox import Isolation, Launch
from byleave.workspace.sandbox.seccomp import filter_fd, filter_for

_SKELETON = "/.ws"
_LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64")
_LIMITS = {"core": 0, "cpu": 120, "data": 2 * 1024**3, "fsize": 4 * 1024**2, "nofile": 1024}
"""Not nproc: ripgrep starts nothing, and from outside it would count everything the user runs."""
LITTLE_MEMORY = 256 * 1024**2
"""Enough unless a line is longer than any that is told of; a large file may be one line."""
_PROBE_SECONDS = 10
_MOUNTS = "/proc/self/mountinfo"
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Above:
    """A .gitignore above the searched place."""

    directory: str
    """Relative to the workspace; empty for the workspace itself."""
    content: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """What is searched: an open descriptor, the path it stands for, and the ignore rules from above it."""

    fd: int
    real: str
    is_file: bool
    above: tuple[Above, ...] = ()

    def path_of(self, found: str) -> str:
        """A path of the workspace from one told from the place."""
        if self.is_file:
            return self.real
        return found if self.real == "." else f"{self.real}/{found}"


class RipgrepSandbox:
    """ripgrep in bubblewrap, for one workspace. ToolFailure: one of the two is not installed."""

    def __init__(self, root: Path, *, as_owner: bool = True) -> None:
        self._ripgrep = os.path.realpath(find_program("rg", root))
        self._bwrap = find_program("bwrap", root)
        self._filter = filter_for()
        self.runner: Runner | None = runner_for(root) if as_owner else None
        self._prlimit: str | None = None
        with suppress(ToolFailure):
            self._prlimit = find_program("prlimit", root)
        self._base = [
            self._bwrap,
            *["--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL"],
            *_libraries(),
            *["--ro-bind", self._ripgrep, "/rg", "--perms", "0755", "--dir", _SKELETON],
        ]

    @property
    def is_limited(self) -> bool:
        """Whether it takes no more memory than it may."""
        return self._prlimit is not None

    def _limiting(self, memory: int | None) -> list[str]:
        if self._prlimit is None:
            return []
        limits = _LIMITS | ({} if memory is None else {"data": min(memory, _LIMITS["data"])})
        return [self._prlimit, *(f"--{name}={most}" for name, most in limits.items()), "--"]

    def probe(self, place: Place) -> str | None:
        """Start ripgrep through the full argument list; None when it worked, else why not."""
        try:
            with self.launch(place, ["--version"]) as launch:
                done = subprocess.run(
                    launch.argv,
                    env=launch.env,
                    cwd=launch.cwd,
                    pass_fds=launch.pass_fds,
                    user=launch.uid,
                    group=launch.gid,
                    extra_groups=None if launch.uid is None else [],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_PROBE_SECONDS,
                    check=False,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap did not start: {error}"
        if done.returncode == 0:
            return None
        return f"bubblewrap does not work here: {done.stderr.decode('utf-8', 'replace').strip()[:300]}"

    @contextmanager
    def launch(self, place: Place, arguments: Sequence[str], *, memory: int | None = None) -> Generator[Launch]:
        """ripgrep with `arguments`, in the place: a directory, or one that holds nothing but the file.

        `memory`: no more bytes than these, and than ever.
        """
        with ExitStack() as held:
            read_end, write_end = (_held(held, fd) for fd in os.pipe())
            filters = [] if self._filter is None else [_held(held, filter_fd(self._filter))]
            ignores = {_held(held, memory_file(above.content)): _inside(above.directory) for above in place.above}
            if place.is_file:
                here, target = _SKELETON, f"{_SKELETON}/file"
            else:
                here = target = _inside("" if place.real == "." else place.real)
            yield Launch(
                argv=[
                    *self._limiting(memory),
                    *self._base,
                    *(word for fd, path in ignores.items() for word in ("--file", str(fd), f"{path}/.gitignore")),
                    *["--ro-bind-fd", str(place.fd), target],
                    *["--remount-ro", "/", "--chdir", here],
                    *(word for fd in filters for word in ("--seccomp", str(fd))),
                    *["--json-status-fd", str(write_end), "--", "/rg", *arguments],
                ],
                env={"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"},
                cwd="/",
                isolation=self._isolation(),
                pass_fds=(place.fd, write_end, *filters, *ignores),
                status_fd=read_end,
                uid=self.runner.uid if self.runner else None,
                gid=self.runner.gid if self.runner else None,
            )

    def _isolation(self) -> Isolation:
        root = os.geteuid() == 0
        return Isolation(
            isolated=True,
            backend="bwrap",
            fs="allowlist",
            net="none",
            pidns=True,
            seccomp=self._filter is not None,
            runs_as="owner" if self.runner else "root" if root else "user",
            limits=tuple(_LIMITS),
        )


def working_ripgrep(root: Path, place: Place) -> RipgrepSandbox | None:
    """ripgrep in walls that really hold it here; None: there is none, or no walls are to be had."""
    try:
        for as_owner in (True, False):
            found = RipgrepSandbox(root, as_owner=as_owner)
            if found.probe(place) is None:
                return found
            if found.runner is None:
                return None
    except ToolFailure:
        pass  # not installed
    return None


def mounts_below(root: Path) -> list[str]:
    """Where other file systems are mounted in the workspace. They are no part of it: no tool enters them."""
    above = os.fsencode(root) + b"/"
    with open(_MOUNTS, "rb") as file:
        points = [line.split(b" ")[4] for line in file]
    named = (_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), point) for point in points)
    return [os.fsdecode(point.removeprefix(above)) for point in named if point.startswith(above)]


def memory_file(content: bytes) -> int:
    """A descriptor to read `content` from."""
    fd = os.memfd_create("byleave", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _held(held: ExitStack, fd: int) -> int:
    held.callback(os.close, fd)
    return fd


def _inside(directory: str) -> str:
    return f"{_SKELETON}/{directory}" if directory else _SKELETON


def _libraries() -> list[str]:
    """What a program needs to start, and no program."""
    arguments: list[str] = []
    for name in _LIBRARIES:
        if os.path.islink(name):
            arguments += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            arguments += ["--ro-bind", name, name]
    return arguments
