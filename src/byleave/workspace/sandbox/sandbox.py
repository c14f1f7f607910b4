"""The sandbox interface: `Sandbox`, the `Launch` it prepares, and the `Isolation` it reports.

A `Sandbox` turns an argv into a `Launch`: the argv to start, its environment, and the cleanup afterwards. It reports
truthfully what it applied (`Isolation`), and every result includes that. Nothing here decides about a command.

Limits are set from outside: a program that sets them and then executes the command would cost a start of its own.
Bubblewrap waits, fully set up, for a word on a pipe; the client sets its limits and releases it (`HeldBack`). A command
whose limits could not be set is never released, nor is one whose client has died.
"""

import errno
import os
import re
import resource
import select
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

from byleave.gate import UNKNOWN_COMMAND, UnderstoodCommand
from byleave.protocol.errors import ToolFailure
from byleave.protocol.wire import JsonObject, WireModel

from .environment import find_program, lacks_descriptors

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
PROBE_SECONDS = 10
_TOLD = 10
"""Most paths named in a sentence."""


LIMITS = {
    "nproc": 256,
    "nofile": 1024,
    "core": 0,
    "fsize": 2 * 1024**3,
    "cpu": 300,
    "data": 4 * 1024**3,
}
_UNASKED_DATA = 512 * 1024**2
"""Enough for a `diff` of two similar files of 100 MB; a pattern could take any amount."""
NO_FILES: Mapping[str, str] = MappingProxyType({})
_WORD = b"go"
"""Two bytes, because bubblewrap reads one twice."""
_INNER = re.compile(r'"child-pid":\s*(\d+)')
_CAPABILITIES = re.compile(r"^CapEff:\s+([0-9a-f]+)$", re.MULTILINE)
_SET_LIMITS_OF_OTHERS = 1 << 24


class HeldBack:
    """A command that waits in its sandbox for its limits."""

    def __init__(self, limits: Mapping[str, int], held: ExitStack, members: Path | None = None) -> None:
        """`members`: the members file of a control group, which it must join as well."""
        self._limits = limits
        self._members = members
        read_end, self._write_end = os.pipe()
        held.callback(os.close, self._write_end)
        try:
            # Read and write in one: if the client dies, the pipe has no end of file, so the command waits on.
            self.fd = os.open(f"/proc/self/fd/{read_end}", os.O_RDWR | os.O_CLOEXEC)
        finally:
            os.close(read_end)
        held.callback(os.close, self.fd)

    def let_go(self, pid: int, parent: int) -> None:
        """Limit the sandbox's waiting first process, and so the command, and release it. OSError: it still waits."""
        if parent_of(pid) != parent:  # a pid of another namespace: never limit somebody else's process
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
    """The pid of the sandbox's first process, from the sandbox's report."""
    found = _INNER.search(told)
    return int(found[1]) if found else None


def may_limit(uid: int | None) -> bool:
    """True if we may set the limits of this user's processes. None: our own user."""
    if uid is None or uid == os.geteuid():
        return True
    found = _CAPABILITIES.search(Path("/proc/self/status").read_text("utf-8", "replace"))
    return found is not None and bool(int(found[1], 16) & _SET_LIMITS_OF_OTHERS)


def parent_of(pid: int) -> int | None:
    """The pid of a process's parent; None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class BoundFile:
    """The approved bytes of one file, to be mounted over it."""

    path: str
    """The file's real path, relative to the workspace."""
    fd: int
    mode: int


@dataclass(frozen=True, slots=True)
class Withheld:
    """Workspace-relative real paths that are kept from a command nobody was asked about."""

    secrets: tuple[str, ...] = ()
    """Cannot be read."""
    only_reads: bool = False
    """True if the command is known only to read: secrets look empty to it, and it can change nothing at all."""
    sealed: tuple[str, ...] = ()
    """Cannot be changed."""
    git_settings: bool = True
    """True if it cannot change the repository's settings; False if a person was asked about just that."""


NOTHING_WITHHELD = Withheld()


def limits_of(withheld: Withheld) -> dict[str, int]:
    """The limits of a command: it gets less memory if it only reads, because nobody was asked about it."""
    return LIMITS | ({"data": _UNASKED_DATA} if withheld.only_reads else {})


class Isolation(WireModel):
    """The isolation that was really applied to a command."""

    isolated: bool
    backend: Literal["bwrap", "landlock", "seatbelt", "none"]
    fs: Literal["allowlist", "none"]
    net: Literal["none", "host"]
    pidns: bool
    seccomp: bool = False
    """True if the command's system calls are filtered."""
    runs_as: Literal["user", "owner", "root"] = "user"
    """The client's own user; the workspace's owner, if the client is root; or root."""
    protected: tuple[str, ...] = ()
    """Paths in the workspace that the command could not change."""
    masked: tuple[str, ...] = ()
    """Denied paths that were hidden from the command."""
    left_out: tuple[str, ...] = ()
    """Files with secrets that were hidden from the command, because nobody was asked about it."""
    created: tuple[str, ...] = ()
    """Protected names that are new since the command."""
    limits: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    """Sentences about what is weaker than it should be."""

    def to_json(self) -> JsonObject:
        return self.model_dump(mode="json")


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything needed to start one command."""

    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    isolation: Isolation
    pass_fds: tuple[int, ...] = ()
    status_fd: int | None = None
    """We read the sandbox's report from it: its inner process, then the exit code."""
    mark: str | None = None
    """A variable in the environment that identifies the command's processes, if there is no pid namespace to end."""
    created: list[str] = field(default_factory=list[str])
    """New protected names; filled when the launch ends."""
    covered: bool = False
    """True if the bound files are mounted over the originals."""
    uid: int | None = None
    """The user to start it as; None: our own."""
    gid: int | None = None
    held_back: HeldBack | None = None
    """If set, the command waits for its limits and must be released."""


class Sandbox(Protocol):
    """A backend that isolates commands."""

    def isolation(self, *, network: bool = False) -> Isolation:
        """The isolation that a command would get."""
        ...

    def launch(
        self,
        argv: list[str],
        *,
        understood: UnderstoodCommand = UNKNOWN_COMMAND,
        network: bool = False,
        bound_files: Sequence[BoundFile] = (),
        masked: Sequence[str] = (),
        withheld: Withheld = NOTHING_WITHHELD,
    ) -> AbstractContextManager[Launch]:
        """Prepare one command; leaving the context cleans up, so the command must have ended by then.

        `understood` says what the command may need and change; an unknown command may write. `bound_files` are mounted
        over the originals if possible; `Launch.covered` tells. `masked` are workspace-relative files or directories to
        hide; `Isolation.masked` lists those that are hidden. A sandbox that can hide nothing says so in
        `Isolation.degraded`. `Isolation.left_out` and `Isolation.protected` list what was applied of `withheld`.
        """
        ...


def limit_program(workspace: Path) -> str | None:
    """The program that sets limits from inside; None if it is missing."""
    with suppress(ToolFailure):
        return find_program("prlimit", workspace)
    return None


def limit_argv(program: str | None, limits: Mapping[str, int]) -> list[str]:
    """The argv prefix that sets limits from inside; empty without the program."""
    return [] if program is None else [program, *(f"--{name}={value}" for name, value in limits.items()), "--"]


def memory_files(held: ExitStack, contents: Iterable[bytes]) -> list[int]:
    """Descriptors to read these contents from, closed when `held` ends."""
    fds: list[int] = []
    for content in contents:
        fds.append(os.memfd_create("byleave", os.MFD_CLOEXEC))
        held.callback(os.close, fds[-1])
        os.write(fds[-1], content)
        os.lseek(fds[-1], 0, os.SEEK_SET)
    return fds


def report_unmasked(isolation: Isolation, masked: Sequence[str]) -> Isolation:
    """Add a sentence about denied paths that could not be hidden."""
    if not masked:
        return isolation
    words = f"What the rules forbid could not be hidden from the command: {', '.join(masked[:_TOLD])}"
    words += f" and {len(masked) - _TOLD} more." if len(masked) > _TOLD else "."
    return isolation.model_copy(update={"degraded": (*isolation.degraded, words)})


def tried_out(launching: AbstractContextManager[Launch], name: str) -> str | None:
    """Run a prepared launch as a command would be run; None if it worked, else the reason."""
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
                said = process.communicate(timeout=PROBE_SECONDS)[1]
            finally:
                process.kill()
    except (OSError, subprocess.TimeoutExpired) as error:
        if lacks_descriptors(error):
            raise
        return f"{name} did not start: {error}"
    if process.returncode == 0:
        return None
    return f"{name} does not work here: {said.decode('utf-8', 'replace').strip()[:300]}"


def _let_go(launch: Launch, process: subprocess.Popen[bytes]) -> None:
    """Set the limits as soon as the sandbox reports its process, unless it ends before."""
    if launch.held_back is None or launch.status_fd is None:
        return
    ended = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(launch.status_fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(PROBE_SECONDS * 1000)]
        if launch.status_fd in ready:
            pid = inner_process(os.read(launch.status_fd, 4096).decode("ascii", "replace"))
            if pid is not None:
                launch.held_back.let_go(pid, process.pid)
    finally:
        os.close(ended)
