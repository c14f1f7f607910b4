"""The sandbox on Linux: bubblewrap with its own namespaces and only what a command needs mounted.

Files: an allow-list (system read-only, the workspace writable unless the command only reads, private HOME and /tmp);
what others would execute or trust in the workspace (`PROTECTED`) is read-only. No network unless granted, then the
host's. Every process of a command dies with it. The probe runs /bin/true through the full argument list: an installed
bwrap proves nothing. A seccomp filter is not applied yet, and `Isolation` says so.
"""

import os
import stat
import subprocess
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from assent.protocol.errors import PathValidationError, ToolFailure

from .programs import clean_environment, find_program, toolchains
from .sandbox import LIMITS, Isolation, Launch, limit_argv

# Something else on this machine executes or trusts these.
PROTECTED = (
    ".git",
    ".assent",
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
_GIT_PROTECTED = ("hooks", "config", "config.worktree", "modules", "info", "worktrees")
# Made for the time of the command when missing, so that it cannot make them: a repository or rules of its own.
_STUBS = (".git", ".assent")

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
# Commands that have no business writing get a workspace they cannot write.
_READERS = frozenset({"ls", "cat", "head", "tail", "wc", "grep", "echo", "date", "pwd", "whoami", "locate"})
_FIND_WRITES = ("-delete", "-fprint", "-fls", "-exec", "-ok")
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
        self._stubs = _Stubs(root)

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
    def launch(self, argv: list[str], *, network: bool = False) -> Generator[Launch]:
        is_git = os.path.basename(argv[0]) == "git"
        with ExitStack() as held:
            root_fd = _held(held, os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            if only_reads(argv):
                yield self._prepare(
                    argv, _Mounts((".",), ["--ro-bind", str(self._root), str(self._root)]), network, held
                )
                return
            missing = [name for name in PROTECTED if not _exists(root_fd, name)]
            held.enter_context(self._stubs.hold(root_fd, [name for name in _STUBS if not (is_git and name == ".git")]))
            loose = held.enter_context(self._loose.hold(root_fd))
            launch = self._prepare(argv, _protect(self._root, root_fd, loose, is_git=is_git), network, held)
            try:
                yield launch
            finally:
                held.pop_all
            # `git init` is the one way to a repository; anything else that appeared is told.
            expected = (".git",) if is_git else ()
            launch.created.extend(name for name in missing if _exists(root_fd, name) and name not in expected)

    def _prepare(self, argv: list[str], mounts: "_Mounts", network: bool, held: ExitStack) -> Launch:
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
                *["--remount-ro", "/"],
                *["--json-status-fd", str(write_end)],
                *["--chdir", str(self._root), "--"],
                *self._limits,
                *argv,
            ],
            env=clean_environment(self._root, _HOME),
            cwd=str(self._root),
            isolation=base.model_copy(
                update={"protected": mounts.protected, "degraded": (*base.degraded, *mounts.degraded)}
            ),
            pass_fds=(write_end, identity),
            status_fd=read_end,
        )


@dataclass(frozen=True, slots=True)
class _Mounts:
    """How the workspace is mounted: what is read-only in it, the arguments, and what could not be protected."""

    protected: tuple[str, ...]
    arguments: list[str]
    degraded: tuple[str, ...] = ()


def _held(held: ExitStack, fd: int) -> int:
    held.callback(os.close, fd)
    return fd


def only_reads(argv: list[str]) -> bool:
    """Whether a command can do its work without writing to the workspace."""
    name = os.path.basename(argv[0])
    if name == "find":
        return not any(argument.startswith(_FIND_WRITES) for argument in argv[1:])
    return name in _READERS


def _exists(root_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


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


def _protect(root: Path, root_fd: int, *, is_git: bool) -> _Mounts:
    """The workspace writable, its protected names not."""
    protected: list[str] = []
    arguments = ["--bind", str(root), str(root)]
    degraded: list[str] = []
    for name in PROTECTED:
        try:
            kind = os.stat(name, dir_fd=root_fd, follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue
        path = str(root / name)
        if stat.S_ISLNK(kind):
            if name in _STUBS:
                raise PathValidationError(
                    f"{name!r} is a link, so it cannot be protected from the command.",
                    hint="Replace it by what it leads to.",
                )
            degraded.append(f"{name} is a link and was not protected.")
        elif is_git and name == ".git" and stat.S_ISDIR(kind):
            inner = _protected_in_git(root_fd)
            arguments += ["--bind", path, path]  # a mount point: it cannot be renamed away
            for part in inner:
                arguments += ["--ro-bind", str(root / part), str(root / part)]
            protected += inner
        else:
            arguments += ["--ro-bind", path, path]
            protected.append(name)
    return _Mounts(tuple(protected), arguments, tuple(degraded))


def _protected_in_git(root_fd: int) -> list[str]:
    if _exists(root_fd, ".git/HEAD"):
        with suppress(FileExistsError):  # a repository without hooks must not get any
            os.mkdir(".git/hooks", dir_fd=root_fd)
    return [f".git/{part}" for part in _GIT_PROTECTED if _exists(root_fd, f".git/{part}")]


class _Stubs:
    """Empty directories that stand for missing protected names while commands run; the last to leave removes them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._holders: dict[str, int] = {}

    @contextmanager
    def hold(self, root_fd: int, names: list[str]) -> Generator[None]:
        held: list[str] = []
        with self._lock:
            for name in names:
                if name in self._holders:
                    self._holders[name] += 1
                    held.append(name)
                    continue
                try:
                    os.mkdir(name, 0o755, dir_fd=root_fd)
                except FileExistsError:
                    continue
                except OSError as error:
                    raise ToolFailure(f"{name!r} could not be protected from the command: {error.strerror}.") from error
                self._holders[name] = 1
                held.append(name)
        try:
            yield
        finally:
            with self._lock:
                for name in held:
                    self._holders[name] -= 1
                    if self._holders[name] == 0:
                        del self._holders[name]
                        with suppress(OSError):  # no longer empty: somebody outside took it into use
                            os.rmdir(name, dir_fd=root_fd)
