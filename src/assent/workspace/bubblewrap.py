"""The sandbox on Linux: bubblewrap with its own namespaces and only what a command needs mounted.

Files: an allow-list (system read-only, private HOME and /tmp, the workspace as `protection` says). No network unless
granted, then the host's. Every process of a command dies with it. The probe runs /bin/true through the full argument
list: an installed bwrap proves nothing. A seccomp filter is not applied yet, and `Isolation` says so.
"""

import os
import stat
import subprocess
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .pins import Pin
from .programs import clean_environment, find_program, toolchains
from .protection import Mounts, Protection, only_reads
from .sandbox import LIMITS, Isolation, Launch, limit_argv

# Not all of /etc: as root the command would own, and so could read, /etc/shadow and keys.
_ETC = ("alternatives", "group", "hosts", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf", "passwd")
_ETC_FOR_NETWORK = (
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
_HOME = "/.home"
_PROBE_SECONDS = 10


class BubblewrapSandbox:
    """Commands of one workspace in bubblewrap."""

    def __init__(self, root: Path, *, identity: str = "") -> None:
        self._root = root
        self._identity = identity.encode("utf-8")
        self._bwrap = find_program("bwrap", root)
        self._limits = limit_argv(root, tuple(LIMITS))
        self._system = _system_arguments(root)
        self._protection = Protection(root)
        self._lock = threading.Lock()
        self._writing = 0
        """Commands that run now and could change the workspace."""

    def isolation(self, *, network: bool = False) -> Isolation:
        degraded: list[str] = []
        if os.geteuid() == 0:
            degraded.append(
                "The client runs as root: the process limit does not count, and a fault in the kernel's isolation "
                "would reach the whole machine. Run the client as an ordinary user."
            )
        if not self._limits:
            degraded.append("prlimit is not installed: memory, processes and CPU time are not limited.")
        return Isolation(
            isolated=True,
            backend="bwrap",
            fs="allowlist",
            net="host" if network else "none",
            pidns=True,
            limits=tuple(LIMITS) if self._limits else (),
            degraded=tuple(degraded),
        )

    def probe(self) -> str | None:
        """Run /bin/true through the full argument list; None when it worked, else why not."""
        try:
            with self.launch(["/bin/true"]) as launch:
                done = subprocess.run(
                    launch.argv,
                    env=launch.env,
                    cwd=launch.cwd,
                    pass_fds=launch.pass_fds,
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
    def launch(self, argv: list[str], *, network: bool = False, pins: Sequence[Pin] = ()) -> Generator[Launch]:
        with ExitStack() as held, self._protection.hold(argv) as mounts, self._counted(argv) as alone:
            if pins and not alone:
                names = ", ".join(pin.path for pin in pins)
                mounts.degraded.append(f"Another command still runs, so {names} was checked and watched, not covered.")
            yield self._prepare(argv, mounts, network, held, pins if alone else ())

    @contextmanager
    def _counted(self, argv: list[str]) -> Generator[bool]:
        """Whether no other command runs that could swap a file for a link, which a mount would follow."""
        writes = not only_reads(argv)
        with self._lock:
            alone = self._writing == 0
            self._writing += writes
        try:
            yield alone
        finally:
            with self._lock:
                self._writing -= writes

    def _prepare(
        self, argv: list[str], mounts: Mounts, network: bool, held: ExitStack, pins: Sequence[Pin] = ()
    ) -> Launch:
        read_end, write_end = (_held(held, fd) for fd in os.pipe())
        identity = _held(held, os.memfd_create("gitconfig", os.MFD_CLOEXEC))
        os.write(identity, self._identity)
        os.lseek(identity, 0, os.SEEK_SET)
        base = self.isolation(network=network)
        return Launch(
            argv=[
                self._bwrap,
                *self._system,
                *(_read_only("/etc", _ETC_FOR_NETWORK) if network else ["--unshare-net"]),
                *["--file", str(identity), f"{_HOME}/.gitconfig"],
                *mounts.arguments,
                *self._cover(pins),
                *["--remount-ro", "/"],
                *["--json-status-fd", str(write_end)],
                *["--chdir", str(self._root), "--"],
                *self._limits,
                *argv,
            ],
            env=clean_environment(self._root, _HOME),
            cwd=str(self._root),
            isolation=base.model_copy(
                update={"protected": tuple(mounts.protected), "degraded": (*base.degraded, *mounts.degraded)}
            ),
            pass_fds=(write_end, identity, *(pin.fd for pin in pins)),
            status_fd=read_end,
            created=mounts.created,
            covered=bool(pins),
        )

    def _cover(self, pins: Sequence[Pin]) -> list[str]:
        """Lay the pins over their files, and hide compiled code beside them, which Python would take instead."""
        compiled = {self._root / pin.path.rpartition("/")[0] / "__pycache__" for pin in pins}
        hidden = [path for path in sorted(compiled) if path.is_dir() and not path.is_symlink()]
        return [
            *(argument for path in hidden for argument in ("--tmpfs", str(path))),
            *(
                argument
                for pin in pins
                for argument in (
                    "--perms",
                    f"{pin.mode:04o}",
                    "--ro-bind-data",
                    str(pin.fd),
                    str(self._root / pin.path),
                )
            ),
        ]


def _held(held: ExitStack, fd: int) -> int:
    held.callback(os.close, fd)
    return fd


def _system_arguments(root: Path) -> list[str]:
    arguments = [
        *["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"],
        *["--disable-userns", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox"],
        *["--ro-bind", "/usr", "/usr"],
    ]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            arguments += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            arguments += ["--ro-bind", name, name]
    arguments += [*_read_only("/etc", _ETC), "--ro-bind-try", "/opt", "/opt"]
    arguments += ["--proc", "/proc", *_cover_proc(), "--remount-ro", "/proc", "--dev", "/dev"]
    arguments += ["--size", str(512 * 1024**2), "--perms", "1777", "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own
    arguments += ["--size", str(64 * 1024**2), "--tmpfs", "/run", "--size", str(64 * 1024**2), "--tmpfs", "/var"]
    arguments += ["--perms", "1777", "--dir", "/var/tmp"]  # noqa: S108
    arguments += ["--size", str(512 * 1024**2), "--perms", "0700", "--tmpfs", _HOME]
    for chain in toolchains():
        if not chain.prefix.is_relative_to("/usr") and not chain.prefix.is_relative_to(root):
            arguments += ["--ro-bind-try", str(chain.prefix), str(chain.prefix)]
    return arguments


def _read_only(directory: str, names: tuple[str, ...]) -> list[str]:
    paths = [f"{directory}/{name}" for name in names]
    return [argument for path in paths for argument in ("--ro-bind-try", path, path)]


def _cover_proc() -> list[str]:
    """As root, the command owns what the kernel tells only its owner: cover that. All of /proc is read-only anyway."""
    if os.geteuid() != 0:
        return []
    arguments: list[str] = []
    for name in sorted(os.listdir("/proc")):
        path = f"/proc/{name}"
        if not name.isdigit() and not os.path.islink(path):
            mode = os.stat(path).st_mode
            if stat.S_ISREG(mode) and not mode & 0o004:
                arguments += ["--ro-bind", "/dev/null", path]
    return arguments
