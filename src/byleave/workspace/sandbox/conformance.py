"""Conformance test of the sandbox: tries every known escape from inside, and checks from outside as well.

`run_conformance` sets up a scene in a temporary directory (a workspace, secrets beside it, listeners, a process to
attack), runs `probe` in the given sandbox exactly as a command would run, and checks the outcome. `byleave doctor` runs
it on the user's own kernel; the tests run it too. Without isolation, only probes that are harmless then are run; the
rest is reported as untried. It never changes a file of the user.
"""

import asyncio
import ctypes
import json
import os
import secrets
import socket
import stat
import subprocess
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from byleave.protocol.errors import ByleaveError

from . import probe
from .environment import CommandUser, command_user, find_program
from .processes import OutputKeeper, run_process
from .sandbox import Sandbox

_PROGRAM = Path(probe.__file__).read_text("utf-8")
_SECRET_VARIABLE = "CONFORMANCE_SECRET"  # noqa: S105 - a name
_SECONDS = 60
_TIMEOUT = 1.0
_SOON = 10.0
_IPC_CREATE, _IPC_REMOVE = 0o1000, 0

_MOUNTS = "the sandbox's mounts let this through; report it with the output of `byleave doctor --json`"
_NAMESPACES = "the kernel or bubblewrap does not isolate this; update both, or run the client in a virtual machine"
_FILTER = "install bubblewrap 0.5 or newer on a kernel with seccomp (CONFIG_SECCOMP_FILTER)"
_PROTECTED = "a protected name could be changed; report it with the output of `byleave doctor --json`"
_LIMITS = "install prlimit (package util-linux), and run the client as an ordinary user"
_TREE = "processes outlive their command; run the client where bubblewrap works"

ROWS: dict[str, tuple[str, str]] = {
    "write-outside": ("write outside the workspace", _MOUNTS),
    "write-through-link": ("write through a link out of the workspace", _MOUNTS),
    "write-home": ("write ~/.bashrc", _MOUNTS),
    "read-secrets": ("read ~/.ssh and ~/.aws", _MOUNTS),
    "read-through-link": ("read through a link out of the workspace", _MOUNTS),
    "read-shadow": ("read /etc/shadow", _MOUNTS),
    "tcp": ("connect to a TCP port of this machine", _NAMESPACES),
    "udp": ("send UDP to this machine", _NAMESPACES),
    "abstract-socket": ("connect to an abstract unix socket", _NAMESPACES),
    "path-socket": ("connect to a unix socket outside", _MOUNTS),
    "vsock": ("make an AF_VSOCK socket", _FILTER),
    "netlink": ("make an AF_NETLINK socket", _FILTER),
    "alg": ("make an AF_ALG socket", _FILTER),
    "signal": ("signal a process outside", _NAMESPACES),
    "ptrace": ("trace a process outside", _NAMESPACES),
    "proc-environ": ("read another process's environment", _NAMESPACES),
    "environment": ("find a secret in its own environment", _NAMESPACES),
    "shared-memory": ("reach System V shared memory", _NAMESPACES),
    "mount": ("mount a file system", _FILTER),
    "user-namespace": ("make a user namespace", _FILTER),
    "user-namespace-clone3": ("make a user namespace by clone3", _FILTER),
    "setuid-programs": ("gain rights from a set-user-id program", _MOUNTS),
    "setuid-file": ("leave a set-user-id file in the workspace", _FILTER),
    "io-uring": ("use io_uring", _FILTER),
    "keys": ("use the kernel's keyrings", _FILTER),
    "perf": ("use performance counters", _FILTER),
    "userfaultfd": ("use userfaultfd", _FILTER),
    "git-hooks": ("write .git/hooks", _PROTECTED),
    "git-config": ("write .git/config", _PROTECTED),
    "vscode": ("write .vscode", _PROTECTED),
    "rename-git": ("rename .git away", _PROTECTED),
    "create-envrc": ("create .envrc", _PROTECTED),
    "create-bashrc": ("create .bashrc", _PROTECTED),
    "terminal": ("type into a terminal (TIOCSTI)", _FILTER),
    "kernel-switches": ("open kernel switches under /proc for writing", _MOUNTS),
    "forks": ("start 1,500 processes", _LIMITS),
    "memory": ("allocate 6 GB", _LIMITS),
    "daemons": ("leave daemons behind after a timeout", _TREE),
    "pipe": ("hold up the result by a child that keeps the pipe", _TREE),
}

_WHOLE = "Landlock gives rights to whole directories and cannot take a name in the workspace out of them"
KNOWN_GAPS: dict[str, dict[str, str]] = {
    "landlock": dict.fromkeys(
        ("git-hooks", "git-config", "vscode", "rename-git", "create-envrc", "create-bashrc"), _WHOLE
    ),
}
"""Probes that a backend cannot stop, and why. It must stop all others."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of one escape attempt. `stopped`: None if not tried. `hint`: what to do if it was not stopped."""

    name: str
    title: str
    stopped: bool | None
    detail: str
    hint: str | None = None


async def run_conformance(make: Callable[[Path], Sandbox], base: Path) -> list[Probe]:
    """Run every probe. `make` creates the sandbox for a workspace; `base` is an empty directory for the scene."""
    with ExitStack() as held:
        scene = _Scene(base, held)
        sandbox = make(scene.root)
        harmless = not sandbox.isolation().isolated
        names = [name for name in probe.PROBES if not (harmless and name in probe.HARMFUL)]
        try:
            found = await _inside(sandbox, scene, names)
        except ByleaveError as error:
            return [_row(name, f"The probe could not be run: {error.message}", stopped=None) for name in ROWS]
        rows = {row.name: row for row in (scene.judged(row) for row in found)}
        for row in (await _daemons(sandbox, scene), await _pipe(sandbox, scene)):
            rows[row.name] = row
        untried = "not tried: without a sandbox it would not be harmless"
        return [
            rows.get(name) or _row(name, untried if name in probe.HARMFUL else "the probe gave no answer", stopped=None)
            for name in ROWS
        ]


def _row(name: str, detail: str, *, stopped: bool | None) -> Probe:
    title, hint = ROWS[name]
    return Probe(name, title, stopped, detail, None if stopped else hint)


class _Scene:
    """The targets of the probes: files, listeners, a process. Created here, gone afterwards."""

    def __init__(self, base: Path, held: ExitStack) -> None:
        self.root, self.outside = base / "workspace", base / "outside"
        self.secret = secrets.token_hex(16)
        self._files()
        self._tcp = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._udp = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", 0))
        self._abstract = held.enter_context(_listening(f"\0{self.secret}"))
        self._path = held.enter_context(_listening(str(self.outside / "socket")))
        for listener in (self._tcp, self._udp, self._abstract, self._path):
            listener.settimeout(0)
        held.enter_context(_in_environment(_SECRET_VARIABLE, self.secret))
        self._give_to_owner(command_user(base))
        runner = command_user(self.root)
        victim = held.enter_context(_victim(runner))
        self.told: dict[str, Any] = {
            "root": str(self.root),
            "outside": str(self.outside),
            "secret": self.secret,
            "rc_files": [str(self.outside / ".bashrc"), str(Path.home() / ".bashrc")],
            "secrets": [str(path / name) for path in (self.outside, Path.home()) for name in (".ssh", ".aws")],
            "tcp": self._tcp.getsockname()[1],
            "udp": self._udp.getsockname()[1],
            "abstract": self.secret,
            "socket": str(self.outside / "socket"),
            "pid": victim.pid,
            "shm": held.enter_context(_shared_memory()),
        }

    def _files(self) -> None:
        for path in (self.root / ".git/hooks", self.root / ".vscode", self.outside / ".ssh", self.outside / ".aws"):
            path.mkdir(parents=True)
        for path in (self.root / ".git/config", self.root / ".git/HEAD", self.outside / ".bashrc"):
            path.write_text("", "ascii")
        for path in (self.outside / "secret.txt", self.outside / ".ssh/id", self.outside / ".aws/credentials"):
            path.write_text("secret", "ascii")
        (self.root / "link").symlink_to(self.outside)

    def _give_to_owner(self, owner: CommandUser | None) -> None:
        """Give everything in the base to its owner, if that is not root: as on the owner's machine."""
        if owner is not None:
            for directory, names, files in os.walk(self.root.parent):
                for name in (".", *names, *files):
                    os.chown(os.path.join(directory, name), owner.uid, owner.gid, follow_symlinks=False)

    def judged(self, row: Probe) -> Probe:
        """Return the row, or a failed one if the outside shows that the probe got through."""
        seen = self._seen(row.name)
        return _row(row.name, f"{row.detail}; but outside: {seen}", stopped=False) if row.stopped and seen else row

    @property
    def renamed(self) -> bool:
        return (self.root / ".git-away").exists()

    def _seen(self, name: str) -> str | None:
        listeners = {"tcp": self._tcp, "abstract-socket": self._abstract, "path-socket": self._path}
        if name in listeners:
            return "a connection" if _accepted(listeners[name]) else None
        if name == "udp":
            with suppress(BlockingIOError):
                self._udp.recv(16)
                return "a datagram"
        made = {
            "write-outside": self.outside / "written",
            "write-through-link": self.outside / "written-through",
            "git-hooks": (self.root / ".git-away" if self.renamed else self.root / ".git") / "hooks/pre-commit",
            "vscode": self.root / ".vscode/tasks.json",
            "rename-git": self.root / ".git-away",
            "create-envrc": self.root / ".envrc",
            "create-bashrc": self.root / ".bashrc",
        }
        if name in made:
            return f"{made[name].name} is there" if os.path.lexists(made[name]) else None
        if name == "setuid-file" and any(_has_set_id(path) for path in self.root.glob("setuid*")):
            return "a set-user-id file is there"
        return None


async def _inside(sandbox: Sandbox, scene: _Scene, names: list[str]) -> list[Probe]:
    """Run the probes in one command; if one ends it, run the rest in another."""
    found: list[Probe] = []
    left = list(names)
    while left:
        order = {"scene": scene.told, "names": left}
        said = await _run(sandbox, scene, order, _SECONDS)
        told = [cast("dict[str, Any]", json.loads(line)) for line in said.splitlines() if line.startswith("{")]
        found += [_row(row["name"], str(row["detail"]), stopped=bool(row["stopped"])) for row in told]
        done = {row.name for row in found}
        remaining = [name for name in names if name not in done]
        if len(remaining) == len(left):
            # The first one ended the program. Its result is unknown; the others still have to run.
            found.append(_row(remaining[0], "the probe ended without an answer", stopped=None))
            remaining = remaining[1:]
        left = remaining
    return found


async def _run(sandbox: Sandbox, scene: _Scene, order: dict[str, Any], seconds: float) -> str:
    argv = [find_program("python", scene.root), "-I", "-S", "-c", _PROGRAM, json.dumps(order)]
    keeper = OutputKeeper(256 * 1024)
    with sandbox.launch(argv) as launch:
        await run_process(launch, keeper, seconds=seconds)
    return keeper.captured().stdout


async def _daemons(sandbox: Sandbox, scene: _Scene) -> Probe:
    said = await _run(sandbox, scene, {"daemons": scene.secret, "stay": True}, _TIMEOUT)
    return _left("daemons", scene, said)


async def _pipe(sandbox: Sandbox, scene: _Scene) -> Probe:
    loop = asyncio.get_running_loop()
    began = loop.time()
    said = await _run(sandbox, scene, {"daemons": scene.secret, "stay": False}, _SECONDS)
    took = loop.time() - began
    row = _left("pipe", scene, said)
    return row if took < _SOON else replace(row, stopped=False, detail=f"the result took {took:.0f} s")


def _left(name: str, scene: _Scene, said: str) -> Probe:
    if "started" not in said:
        return _row(name, "the processes did not start", stopped=None)
    left = len(_carrying(scene.secret))
    return _row(name, f"{left} processes left", stopped=left == 0)


def _carrying(marker: str) -> list[int]:
    """Pids of processes with this marker on their command line."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if marker.encode() in file.read():
                found.append(int(name))
    return found


@contextmanager
def _listening(address: str) -> Generator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        if not address.startswith("\0"):
            os.chmod(address, 0o777)  # noqa: S103 - only the sandbox's mounts may stop the probe
        listener.listen()
        yield listener


def _accepted(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@contextmanager
def _in_environment(name: str, value: str) -> Generator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@contextmanager
def _victim(runner: CommandUser | None) -> Generator[subprocess.Popen[bytes]]:
    """A process to attack, run as the probes' own user, so that only isolation protects it."""
    with subprocess.Popen(
        ["/bin/sleep", "600"],
        stdin=subprocess.DEVNULL,
        user=runner.uid if runner else None,
        group=runner.gid if runner else None,
        extra_groups=[] if runner else None,
    ) as victim:
        try:
            yield victim
        finally:
            victim.kill()


@contextmanager
def _shared_memory() -> Generator[int]:
    """The key of a System V shared memory segment that everybody may use."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = secrets.randbelow(2**30) + 1
    segment = int(libc.shmget(key, 4096, _IPC_CREATE | 0o666))
    try:
        yield key
    finally:
        libc.shmctl(segment, _IPC_REMOVE, None)


def _has_set_id(path: Path) -> bool:
    with suppress(OSError):
        return bool(path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID))
    return False
