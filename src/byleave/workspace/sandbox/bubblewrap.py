"""The sandbox on Linux: bubblewrap with its own namespaces, and only what a command needs mounted.

Files: an allow-list (system read-only, private HOME and /tmp, the workspace as `mounts` makes it visible). No network
unless granted, then the host's. A filter on system calls (`seccomp`). Every process of a command dies with it. The
probe runs /bin/true through the full argument list: an installed bwrap proves nothing. Parts that do not work here are
left out one by one (`working_sandbox`), and `Isolation` says so.

A sandbox dies with its client, once it has asked the kernel for that. If the client is killed in the few milliseconds
before, it leaves an orphan that waits forever. An orphan is a bubblewrap of this workspace whose client is gone: nobody
reads its status pipe, or its outer process is gone. Other sandboxes are never touched.
"""

import grp
import os
import pwd
import re
import select
import signal
import stat
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from byleave.gate import UNKNOWN_COMMAND, UnderstoodCommand

from .environment import (
    CommandUser,
    beside_programs,
    clean_environment,
    command_user,
    find_program,
    lacks_descriptors,
    limited_group,
    optional_packages,
    pids_group,
    usable_toolchains,
)
from .mounts import Mounts, WorkspaceMounts
from .sandbox import (
    ETC_DIRECTORIES,
    ETC_FILES,
    ETC_FOR_NETWORK,
    LIMITS,
    NO_FILES,
    NOTHING_WITHHELD,
    BoundFile,
    HeldBack,
    Isolation,
    Launch,
    Withheld,
    limit_argv,
    limit_program,
    limits_of,
    may_limit,
    memory_files,
    tried_out,
)
from .seccomp import filter_for

_HOME = "/.home"
_SYSTEM_PROGRAMS = ("/usr/bin", "/bin")
_MOST_OPERANDS = 32
"""Checking more operands would take longer than the mounts."""
_SHARED_BYTES = 256 * 1024**2
_COVER_BYTES = 16 * 1024**2
# The sandbox's own processes, which count in the group too.
_OWN_PROCESSES = 4
_NO_OTHER_HOSTS = {"hosts": b"127.0.0.1 localhost\n::1 localhost\n"}

# All in the sandbox's root, which is read-only.
_LITTLE = (
    *["--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"],
    *["--dir", "/tmp", "--dir", _HOME],  # noqa: S108 - the sandbox's own
)

Part = Literal["owner", "userns", "seccomp"]
"""Parts that may be left out: the change of user, the ban on user namespaces, the seccomp filter."""
_WORDS: dict[Part, str] = {
    "owner": "Commands could not be run as the owner of the workspace.",
    "userns": "This bubblewrap cannot forbid further user namespaces.",
    "seccomp": "System calls are not filtered: io_uring, kernel keys and unusual sockets can be used.",
}
_WEAKER: tuple[frozenset[Part], ...] = (
    frozenset(),
    frozenset({"owner"}),
    frozenset({"userns"}),
    frozenset({"owner", "userns"}),
    frozenset({"seccomp"}),
    frozenset({"owner", "userns", "seccomp"}),
)


class BubblewrapSandbox:
    """Commands of one workspace in bubblewrap."""

    def __init__(
        self, root: Path, *, files: Mapping[str, str] = NO_FILES, without: frozenset[Part] = frozenset()
    ) -> None:
        self._root = root
        self._files = {name: content.encode("utf-8") for name, content in files.items()}
        self._bwrap = find_program("bwrap", root)
        self._runner = None if "owner" in without else command_user(root)
        self._is_root = os.geteuid() == 0 and self._runner is None
        self._pids_group = pids_group() if self._is_root else None
        self._accounts = _account_files(root, self._runner)
        self._environment = clean_environment(root, _HOME)
        packages, chains = optional_packages(), usable_toolchains(root)
        self._holds_back = may_limit(self._runner.uid if self._runner else None)
        self._prlimit = None if self._holds_back else limit_program(root)
        self._filters = {network: filter_for(network=network) for network in (False, True)}
        if "seccomp" in without:
            self._filters = {False: None, True: None}
        self._without = without
        apart = [*_namespaces(userns="userns" in without), *_programs()]
        self._system = [*apart, *_system_arguments(root, packages)]
        self._toolchains = [chain for chain in chains if not chain.prefix.is_relative_to("/usr")]
        self._little = [*apart, *_LITTLE]
        self._proc = ["--proc", "/proc", *(_cover_proc() if self._is_root else []), "--remount-ro", "/proc"]
        self._workspace_mounts = WorkspaceMounts(root, by_descriptor=_takes_descriptors(self._bwrap))
        self.remove_left = self._workspace_mounts.remove_left
        self._lock = threading.Lock()
        self._writing = 0
        """Number of running commands that could change the workspace."""

    def isolation(self, *, network: bool = False) -> Isolation:
        return Isolation(
            isolated=True,
            backend="bwrap",
            fs="allowlist",
            net="host" if network else "none",
            pidns=True,
            seccomp=self._filters[network] is not None,
            runs_as="root" if self._is_root else "owner" if self._runner else "user",
            limits=self._limited(),
            degraded=tuple(self._degraded()),
        )

    def _limited(self) -> tuple[str, ...]:
        # The kernel never counts root's processes.
        limited = self._holds_back or self._prlimit
        return (
            *(name for name in LIMITS if limited and not (self._is_root and name == "nproc")),
            *(["pids"] if self._pids_group else []),
        )

    def _degraded(self) -> Generator[str]:
        if self._is_root:
            yield (
                "The client runs as root, and so do commands: a fault in the kernel's isolation would reach the whole "
                "machine. Run the client as an ordinary user, or give the workspace to one."
            )
            if self._pids_group is None:
                yield "The number of processes is not limited, because commands run as root."
        if not (self._holds_back or self._prlimit):
            yield "prlimit is not installed: memory, processes and CPU time are not limited."
        for part in sorted(self._without):
            if part != "owner" or self._is_root:
                yield _WORDS[part]
        if "seccomp" not in self._without and self._filters[False] is None:
            yield _WORDS["seccomp"]

    def probe(self) -> str | None:
        """Run /bin/true through the full argument list; None if it worked, else the reason."""
        launching = self.launch(["/bin/true"], withheld=Withheld(only_reads=True), whole=True)
        return tried_out(launching, "bubblewrap")

    @contextmanager
    def launch(
        self,
        argv: list[str],
        *,
        understood: UnderstoodCommand = UNKNOWN_COMMAND,
        network: bool = False,
        bound_files: Sequence[BoundFile] = (),
        masked: Sequence[str] = (),
        withheld: Withheld = NOTHING_WITHHELD,
        whole: bool = False,
    ) -> Generator[Launch]:
        """Prepare one command. `whole`: with every mount, also those it does not need."""
        with (
            ExitStack() as held,
            self._workspace_mounts.hold(understood, masked, withheld) as mounts,
            self._counted(writes=not understood.only_reads) as alone,
        ):
            if bound_files and not alone:
                names = ", ".join(file.path for file in bound_files)
                mounts.degraded.append(f"Another command still runs, so {names} was checked and watched, not covered.")
            little = not whole and not network and self._needs_little(understood)
            limits, covers = limits_of(withheld), bound_files if alone else ()
            yield self._prepare(argv, mounts, network, held, covers, limits, little=little)

    @contextmanager
    def _counted(self, *, writes: bool) -> Generator[bool]:
        """Yields True if no other running command could swap a file for a link, which a mount would follow."""
        with self._lock:
            alone = self._writing == 0
            self._writing += writes
        try:
            yield alone
        finally:
            with self._lock:
                self._writing -= writes

    def _needs_little(self, command: UnderstoodCommand) -> bool:
        """True if a command needs only the system's programs and the workspace. Fewer mounts make it start faster.

        With too few, an existing file would seem missing, so a command that is not plain gets them all.
        """
        operands = command.plain_operands
        if operands is None or len(operands) > _MOST_OPERANDS:
            return False
        program = find_program(command.command, self._root)
        # A link may lead to a directory that only the full mounts include.
        is_systems = os.path.dirname(program) in _SYSTEM_PROGRAMS and not os.path.islink(program)
        return is_systems and all(_stays_inside(operand, str(self._root)) for operand in operands)

    def _prepare(
        self,
        argv: list[str],
        mounts: Mounts,
        network: bool,
        held: ExitStack,
        bound_files: Sequence[BoundFile],
        limits: Mapping[str, int],
        *,
        little: bool,
    ) -> Launch:
        read_end, write_end = (_held(held, fd) for fd in os.pipe())
        files = {} if little else self._files
        program = self._filters[network]
        base, members = self.isolation(network=network), None
        if self._pids_group is not None and not little:
            members, _ = held.enter_context(limited_group(self._pids_group, LIMITS["nproc"] + _OWN_PROCESSES))
        elif self._pids_group is not None:
            base = base.model_copy(update={"limits": tuple(name for name in base.limits if name != "pids")})
        # Other users of this machine, and without the network other hosts, are nothing a program needs to know.
        made = self._accounts if network else {**self._accounts, **_NO_OTHER_HOSTS}
        written = memory_files(held, (*files.values(), *made.values(), *(() if program is None else (program,))))
        settings = {fd: f"{_HOME}/{name}" for fd, name in zip(written, files, strict=False)}
        copied = dict(zip(written[len(files) :], made, strict=False))
        filters = written[len(files) + len(made) :]
        held_back = HeldBack(limits, held, members) if self._holds_back else None
        waits = [] if held_back is None else [held_back.fd]
        # Copied into the sandbox: a mount for each costs more.
        others = (path for path in ETC_FILES if path not in made)
        copied |= {_held(held, fd): path for path in others if (fd := _opened(f"/etc/{path}")) is not None}
        return Launch(
            argv=[
                self._bwrap,
                # A mount costs more the more there are already, so /proc with its covers comes first. A command that
                # only works on the files it is given needs few mounts, and no /proc.
                *(self._little if little else [*self._proc, *self._system, *self._toolchain_mounts()]),
                *(_read_only("/etc", ETC_FOR_NETWORK) if network else ["--unshare-net"]),
                *(argument for fd, path in settings.items() for argument in ("--file", str(fd), path)),
                *(
                    argument
                    for fd, name in copied.items()
                    for argument in ("--perms", "0444", "--file", str(fd), f"/etc/{name}")
                ),
                *mounts.arguments,
                *self._cover(bound_files),
                *mounts.covers,
                *["--remount-ro", "/"],
                *(argument for fd in filters for argument in ("--seccomp", str(fd))),
                *["--json-status-fd", str(write_end)],
                *(argument for fd in waits for argument in ("--block-fd", str(fd))),
                *["--chdir", str(self._root), "--"],
                *limit_argv(self._prlimit, limits),
                *argv,
            ],
            env=dict(self._environment),
            cwd=str(self._root),
            isolation=base.model_copy(
                update={
                    "protected": tuple(mounts.protected),
                    "masked": tuple(mounts.masked),
                    "left_out": tuple(mounts.left_out),
                    "degraded": (*base.degraded, *mounts.degraded),
                }
            ),
            pass_fds=(write_end, *settings, *waits, *filters, *copied, *mounts.fds, *(file.fd for file in bound_files)),
            uid=self._runner.uid if self._runner else None,
            gid=self._runner.gid if self._runner else None,
            status_fd=read_end,
            created=mounts.created,
            covered=bool(bound_files),
            held_back=held_back,
        )

    def _toolchain_mounts(self) -> list[str]:
        # Looked up for each command: the user may have put settings beside the programs since.
        paths = (path for chain in self._toolchains for path in chain.parts)
        return [argument for path in paths for argument in ("--ro-bind-try", path, path)]

    def _cover(self, bound_files: Sequence[BoundFile]) -> list[str]:
        """Mount the bound files over the originals."""
        return [
            argument
            for file in bound_files
            for argument in (
                *("--perms", f"{file.mode:04o}"),
                *("--ro-bind-data", str(file.fd), str(self._root / file.path)),
            )
        ]


def _stays_inside(operand: str, root: str) -> bool:
    """True if an operand, read as a path, stays in the workspace and passes no link."""
    relative = operand.removeprefix(f"{root}/")
    if relative == root:
        return True
    parts = relative.split("/")
    if parts[0] == "" or ".." in parts:
        return relative == ""
    way = root
    for part in parts:
        way = f"{way}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(way).st_mode):
                return False
        except FileNotFoundError:
            return True
        except (OSError, ValueError):
            return False
    return True


def _held(held: ExitStack, fd: int) -> int:
    held.callback(os.close, fd)
    return fd


def _account_files(workspace: Path, runner: CommandUser | None) -> dict[str, bytes]:
    """`passwd` and `group` for commands: the users that one meets there, and no other of this machine."""
    uids, gids = {0, 65534, os.geteuid()}, {0, 65534, os.getegid()}
    with suppress(FileNotFoundError):  # nothing can run there
        owner = workspace.stat()
        uids.add(owner.st_uid)
        gids.add(owner.st_gid)
    if runner is not None:
        uids.add(runner.uid)
        gids.add(runner.gid)
    users, groups = list[str](), list[str]()
    for uid in sorted(uids):
        with suppress(KeyError):
            user = pwd.getpwuid(uid)
            gids.add(user.pw_gid)
            users.append(f"{user.pw_name}:x:{uid}:{user.pw_gid}:{user.pw_gecos}:{user.pw_dir}:{user.pw_shell}\n")
    for gid in sorted(gids):
        with suppress(KeyError):
            groups.append(f"{grp.getgrgid(gid).gr_name}:x:{gid}:\n")
    return {"passwd": "".join(users).encode(), "group": "".join(groups).encode()}


def _opened(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def working_sandbox(root: Path, *, files: Mapping[str, str] = NO_FILES) -> BubblewrapSandbox | str:
    """The strongest bubblewrap that works here, or the reason why none does."""
    reason = ""
    for without in _WEAKER:
        sandbox = BubblewrapSandbox(root, files=files, without=without)
        failed = sandbox.probe()
        if failed is None:
            sandbox.remove_left()
            return sandbox
        reason = reason or failed
    return reason


@lru_cache(maxsize=4)
def _takes_descriptors(bwrap: str) -> bool:
    """True if it takes mount sources as descriptors: since version 0.9.1, and patched older ones."""
    fd = os.open("/usr", os.O_PATH | os.O_CLOEXEC)
    try:
        argv = [bwrap, "--unshare-user", *_programs(), "--ro-bind-fd", str(fd), "/usr", "--", "/bin/true"]
        nothing = subprocess.DEVNULL
        tried = subprocess.run(
            argv, stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=[fd], env={}, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if lacks_descriptors(error):
            raise
        return False
    finally:
        os.close(fd)
    return tried.returncode == 0


def _namespaces(*, userns: bool) -> list[str]:
    return [
        *["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"],
        *([] if userns else ["--disable-userns"]),
        *["--new-session", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox"],
    ]


def _programs() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr", *_hidden("/usr/")]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            arguments += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            arguments += ["--ro-bind", name, name]
    return [*arguments, *_zone()]


def _system_arguments(root: Path, packages: Sequence[str]) -> list[str]:
    arguments = _read_only("/etc", ETC_DIRECTORIES)
    # The /dev/shm of --dev may use half the memory.
    arguments += ["--dev", "/dev", "--size", str(_SHARED_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108
    arguments += ["--remount-ro", "/dev"]
    arguments += ["--size", str(512 * 1024**2), "--perms", "1777", "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own
    arguments += ["--dir", "/run", "--dir", "/var"]
    kept = "/var/tmp"  # noqa: S108 - the sandbox's own
    # A workspace in /var/tmp cannot be mounted behind a link.
    if root.is_relative_to(kept):
        arguments += ["--size", str(_COVER_BYTES), "--perms", "1777", "--tmpfs", kept]
    else:
        arguments += ["--symlink", "/tmp", kept]  # noqa: S108 - the sandbox's own
    for package in packages:
        if not package.startswith("/usr/"):
            arguments += ["--ro-bind-try", package, package, *_hidden(f"{package}/")]
    return [*arguments, "--size", str(512 * 1024**2), "--perms", "0700", "--tmpfs", _HOME]


def _hidden(top: str) -> Generator[str]:
    """Cover the owner's files beside programs. A link needs no cover: its target is covered or not mounted."""
    for path in beside_programs():
        if not path.startswith(top) or os.path.islink(path) or not os.access(path, os.R_OK):
            continue
        if os.path.isfile(path):
            yield from ("--ro-bind", "/dev/null", path)
        elif os.path.isdir(path) and os.listdir(path):
            yield from ("--size", "4096", "--perms", "0555", "--tmpfs", path)


def _read_only(directory: str, names: tuple[str, ...]) -> list[str]:
    paths = [f"{directory}/{name}" for name in names]
    return [argument for path in paths for argument in ("--ro-bind-try", path, path)]


def _zone() -> list[str]:
    """The time zone: a link if it is one here, since a mount costs more."""
    if os.path.islink("/etc/localtime") and os.path.realpath("/etc/localtime").startswith("/usr/"):
        return ["--symlink", os.path.realpath("/etc/localtime"), "/etc/localtime"]
    return _read_only("/etc", ("localtime",))


def _cover_proc() -> list[str]:
    """Cover the files in /proc that only root may read: here the command is root. All of /proc is read-only anyway."""
    arguments: list[str] = []
    for name in sorted(os.listdir("/proc")):
        path = f"/proc/{name}"
        if not name.isdigit() and not os.path.islink(path):
            mode = os.stat(path).st_mode
            if stat.S_ISREG(mode) and not mode & 0o004:
                arguments += ["--ro-bind", "/dev/null", path]
    return arguments


_DEATH_MILLISECONDS = 2000
_NAMESPACES = re.compile(r"^NSpid:\s+([\d\t ]+)$", re.MULTILINE)
_PARENT = re.compile(r"^PPid:\s+(\d+)$", re.MULTILINE)


def end_orphans(root: Path) -> int:
    """Kill the orphaned sandboxes of this workspace; return the number of processes."""
    if not os.path.isdir("/proc/self"):
        return 0  # no bubblewrap here either
    return sum(_end_if_stray(int(name), root) for name in os.listdir("/proc") if name.isdigit())


def _end_if_stray(pid: int, root: Path) -> bool:
    # The cheap check first: nearly every process is something else.
    if not _is_sandbox(pid):
        return False
    # ValueError: another program of that name, with options that we never give.
    with suppress(OSError, ValueError), _held_process(pid) as pidfd:
        # Again, now that the pid cannot be reused.
        if _is_sandbox(pid) and _is_ours(pid, root) and _is_left(pid):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            _wait(pidfd)
            return True
    return False


@contextmanager
def _held_process(pid: int) -> Generator[int]:
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def _wait(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(_DEATH_MILLISECONDS)


def _is_sandbox(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).removesuffix(" (deleted)") == "bwrap"
    except OSError:
        return False


def _is_ours(pid: int, root: Path) -> bool:
    """True if its options name this workspace as ours do, and it runs as us or as the workspace's owner."""
    options = _options_of(pid)
    names_us = any(pair == (b"--chdir", os.fsencode(root)) for pair in pairwise(options))
    users = {os.geteuid()} | ({root.stat().st_uid} if os.geteuid() == 0 else set[int]())
    return names_us and os.stat(f"/proc/{pid}").st_uid in users


def _options_of(pid: int) -> list[bytes]:
    """Bubblewrap's own arguments; those of the command after `--` must not count."""
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return arguments[: arguments.index(b"--")] if b"--" in arguments else []


def _is_left(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    namespaces, parent = _NAMESPACES.search(status), _PARENT.search(status)
    if namespaces is None or parent is None:
        return False
    is_inner = len(namespaces[1].split()) > _depth() and namespaces[1].split()[-1] == "1"
    return (is_inner and not _is_sandbox(int(parent[1]))) or _nobody_listens(pid)


def _depth() -> int:
    """The depth of our own pid namespace."""
    found = _NAMESPACES.search(Path("/proc/self/status").read_text("utf-8", "replace"))
    return 1 if found is None else len(found[1].split())


def _nobody_listens(pid: int) -> bool:
    """True if its status pipe has no reader any more; a client keeps its end open while it lives."""
    options = _options_of(pid)
    if b"--json-status-fd" not in options[:-1]:
        return False
    number = int(options[options.index(b"--json-status-fd") + 1])
    link = f"/proc/{pid}/fd/{number}"
    if not os.readlink(link).startswith("pipe:"):
        return False
    # Polling another writing end of the same pipe reports an error if nobody reads.
    end = os.open(link, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        poll = select.poll()
        poll.register(end, 0)
        return any(events & select.POLLERR for _, events in poll.poll(0))
    finally:
        os.close(end)
