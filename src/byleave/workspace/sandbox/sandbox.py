"""Isolation of commands: what a sandbox is, what was really applied, and what remains without one.

A `Sandbox` turns an argv into a `Launch`: the argv to start, its environment, and what to clean up afterwards. It says
truthfully what it applied (`Isolation`), and that goes out with every result. `NoSandbox` isolates nothing: it gives a
clean environment, limits and a private HOME, and says `none`. Nothing here starts the command or decides about it.

Limits are set from outside: a program that sets them and then becomes the command costs a start of its own. Bubblewrap
waits, all set up, for a word on a pipe; the client sets the limits on it, and lets it go. A command whose limits could
not be set is never let go, nor is one whose client has died.
"""

import errno
import os
import re
import resource
import select
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from byleave.gate import UNKNOWN_COMMAND, UnderstoodCommand
from byleave.protocol.errors import ToolFailure
from byleave.protocol.wire import JsonObject, WireModel

from .bound_files import BoundFile
from .environment import clean_environment, find_program, own_home
from .masking import NOTHING_WITHHELD, Withheld

# Not all of /etc: a command that runs as root could read /etc/shadow and keys.
ETC_FILES = ("group", "hosts", "ld.so.cache", "mime.types", "nsswitch.conf", "passwd")
ETC_DIRECTORIES = ("alternatives",)
ETC_FOR_NETWORK = (
    "ca-certificates",
    "gai.conf",
    "host.conf",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
)
_PROBE_SECONDS = 10
_TOLD = 10
"""How many paths are named in a sentence."""


LIMITS = {
    "nproc": 256,
    "nofile": 1024,
    "core": 0,
    "fsize": 2 * 1024**3,
    "cpu": 300,
    "data": 4 * 1024**3,
}
_WORD = b"go"
"""Bubblewrap reads a byte twice."""
_INNER = re.compile(r'"child-pid":\s*(\d+)')
_CAPABILITIES = re.compile(r"^CapEff:\s+([0-9a-f]+)$", re.MULTILINE)
_SET_LIMITS_OF_OTHERS = 1 << 24


class HeldBack:
    """A command that waits for its limits."""

    def __init__(self, limits: Mapping[str, int], held: ExitStack, members: Path | None = None) -> None:
        """`members`: the file of a process group's members, which it must join as well."""
        self._limits = limits
        self._members = members
        read_end, self._write_end = os.pipe()
        held.callback(os.close, self._write_end)
        try:
            # Both ends in one: when the client dies, the pipe does not end, and so neither does the waiting.
            self.fd = os.open(f"/proc/self/fd/{read_end}", os.O_RDWR | os.O_CLOEXEC)
        finally:
            os.close(read_end)
        held.callback(os.close, self.fd)

    def let_go(self, pid: int, parent: int) -> None:
        """Limit the sandbox's first process, which waits, and with it the command. OSError: it still waits."""
        if parent_of(pid) != parent:  # told in another namespace's numbers: nobody else's limits are touched
            raise OSError(errno.ESRCH, "the sandbox's process is not known here")
        for name, value in self._limits.items():
            number = getattr(resource, f"RLIMIT_{name.upper()}")
            hard = resource.prlimit(pid, number)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, number, (most, most))
        if self._members is not None:
            self._members.write_text(str(pid), "ascii")
        os.write(self._write_end, _WORD)


def inner_process(told: str) -> int | None:
    """The number of the sandbox's first process, from what the sandbox reports."""
    found = _INNER.search(told)
    return int(found[1]) if found else None


def may_limit(uid: int | None) -> bool:
    """True if we may set the limits of a process of this user; None: of our own."""
    if uid is None or uid == os.geteuid():
        return True
    found = _CAPABILITIES.search(Path("/proc/self/status").read_text("utf-8", "replace"))
    return found is not None and bool(int(found[1], 16) & _SET_LIMITS_OF_OTHERS)


def parent_of(pid: int) -> int | None:
    """Whose child a process is; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


class Isolation(WireModel):
    """What really stands between a command and the rest of this machine."""

    isolated: bool
    backend: Literal["bwrap", "landlock", "seatbelt", "none"]
    fs: Literal["allowlist", "none"]
    net: Literal["none", "host"]
    pidns: bool
    seccomp: bool = False
    """True if a filter stands between the command and the kernel's calls."""
    runs_as: Literal["user", "owner", "root"] = "user"
    """The client's own user; the owner of the workspace, where the client is root; or root."""
    protected: tuple[str, ...] = ()
    """Names of the workspace that the command could not change."""
    masked: tuple[str, ...] = ()
    """What the owner's rules forbid and the command could not see into."""
    left_out: tuple[str, ...] = ()
    """Files with secrets that it could not read, because nobody was asked about it."""
    created: tuple[str, ...] = ()
    """Names something else may execute or trust, which were not there before the command and are now."""
    limits: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    """What is weaker than it should be, in words."""

    def to_json(self) -> JsonObject:
        return self.model_dump(mode="json")


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one command."""

    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    isolation: Isolation
    pass_fds: tuple[int, ...] = ()
    status_fd: int | None = None
    """Where the sandbox reports, to be read by us: its inner process, then the exit code."""
    mark: str | None = None
    """A word in the environment by which stray children are found, where there is no namespace to end."""
    created: list[str] = field(default_factory=list[str])
    """Filled when the launch ends."""
    covered: bool = False
    """True if the pins lie over their files."""
    uid: int | None = None
    """Whom to start it as; None: as ourselves."""
    gid: int | None = None
    held_back: HeldBack | None = None
    """Present: the command waits for its limits, and has to be let go."""


class Sandbox(Protocol):
    """Something that can hold a command."""

    def isolation(self, *, network: bool = False) -> Isolation:
        """What a command would get."""
        ...

    def launch(
        self,
        argv: list[str],
        *,
        understood: UnderstoodCommand = UNKNOWN_COMMAND,
        network: bool = False,
        pins: Sequence[BoundFile] = (),
        masked: Sequence[str] = (),
        withheld: Withheld = NOTHING_WITHHELD,
    ) -> AbstractContextManager[Launch]:
        """Prepare one command; leaving the context cleans up, so the command must have ended by then.

        `understood` says what the command may need and change; one of which nothing is known may write.
        `pins` are laid over their files where that can be done; `Launch.covered` says whether it was. `masked` are
        paths from the workspace, files or directories, that it must not see into; `Isolation.masked` says which of
        them are hidden. A sandbox that can hide nothing says so in `Isolation.degraded`. Of `withheld`,
        `Isolation.left_out` and `Isolation.protected` say what could be held.
        """
        ...


def limit_argv(workspace: Path, names: tuple[str, ...]) -> list[str]:
    """The prefix that sets limits from inside; empty where prlimit is missing."""
    try:
        prlimit = find_program("prlimit", workspace)
    except ToolFailure:
        return []
    return [prlimit, *(f"--{name}={LIMITS[name]}" for name in names), "--"]


def dying_argv(workspace: Path) -> list[str]:
    """The prefix by which a command ends with whoever started it, also one that is killed; empty where that cannot be
    done. What the command itself starts is not reached."""
    try:
        prefix = [find_program("setpriv", workspace), "--pdeathsig", "KILL", "--"]
        tried = [*prefix, prefix[0], "--version"]
        subprocess.run(tried, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_PROBE_SECONDS)
    except (ToolFailure, OSError, subprocess.SubprocessError):
        return []
    return prefix


def report_unmasked(isolation: Isolation, masked: Sequence[str]) -> Isolation:
    """Say that what should be hidden is not."""
    if not masked:
        return isolation
    words = f"What the rules forbid could not be hidden from the command: {', '.join(masked[:_TOLD])}"
    words += f" and {len(masked) - _TOLD} more." if len(masked) > _TOLD else "."
    return isolation.model_copy(update={"degraded": (*isolation.degraded, words)})


def tried_out(launching: AbstractContextManager[Launch], name: str) -> str | None:
    """Run what was prepared as a command would be run; None when it worked, else why not."""
    try:
        with (
            launching as launch,
            subprocess.Popen(
                launch.argv,
                env=launch.env,
                cwd=launch.cwd,
                pass_fds=launch.pass_fds,
                user=launch.uid,
                group=launch.gid,
                extra_groups=None if launch.uid is None else [],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            ) as process,
        ):
            try:
                _let_go(launch, process)
                said = process.communicate(timeout=_PROBE_SECONDS)[1]
            finally:
                process.kill()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name} did not start: {error}"
    if process.returncode == 0:
        return None
    return f"{name} does not work here: {said.decode('utf-8', 'replace').strip()[:300]}"


def _let_go(launch: Launch, process: subprocess.Popen[bytes]) -> None:
    """Set the limits as soon as the sandbox tells of itself, unless it ends before."""
    if launch.held_back is None or launch.status_fd is None:
        return
    ended = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(launch.status_fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(_PROBE_SECONDS * 1000)]
        if launch.status_fd in ready:
            pid = inner_process(os.read(launch.status_fd, 4096).decode("ascii", "replace"))
            if pid is not None:
                launch.held_back.let_go(pid, process.pid)
    finally:
        os.close(ended)


class NoSandbox:
    """No isolation, said plainly: the command runs as the user, with a clean environment and limits."""

    # Not nproc: outside a user namespace it counts everything the user runs.
    _LIMITS = ("nofile", "core", "fsize", "cpu", "data")

    def __init__(self, root: Path, *, reason: str, identity: str = "") -> None:
        self._root = root
        self._reason = reason
        self._identity = identity
        self._limits = limit_argv(root, self._LIMITS)
        self._dying = dying_argv(root)

    def isolation(self, *, network: bool = False) -> Isolation:
        # Granted or not, the network stays the host's.
        return Isolation(
            isolated=False,
            backend="none",
            fs="none",
            net="host",
            pidns=False,
            runs_as="root" if os.geteuid() == 0 else "user",
            limits=self._LIMITS if self._limits else (),
            degraded=(self._reason,),
        )

    @contextmanager
    def launch(
        self,
        argv: list[str],
        *,
        understood: UnderstoodCommand = UNKNOWN_COMMAND,
        network: bool = False,
        pins: Sequence[BoundFile] = (),
        masked: Sequence[str] = (),
        withheld: Withheld = NOTHING_WITHHELD,
    ) -> Generator[Launch]:
        with own_home() as home:
            (home / ".gitconfig").write_text(self._identity, encoding="utf-8")
            env = clean_environment(self._root, str(home)) | {"TMPDIR": str(home), "BYLEAVE_RUN": home.name}
            yield Launch(
                argv=[*self._limits, *self._dying, *argv],
                env=env,
                cwd=str(self._root),
                isolation=report_unmasked(self.isolation(network=network), masked),
                mark=f"BYLEAVE_RUN={home.name}",
            )
