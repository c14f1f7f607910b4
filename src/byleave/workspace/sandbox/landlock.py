"""The sandbox on Linux if bubblewrap does not work: Landlock, and a filter on system calls.

Landlock restricts the command's files to an allow-list, and newer versions more than files; the filter forbids every
unix socket, and without the network all others too. `confine` is the program that gives up the rights and afterwards
ends all that the command left. Landlock grants rights to whole directories and cannot exclude anything in them: the
names in `PROTECTED` are not protected, nothing in the workspace can be hidden, no file covered. `Isolation` says so.
"""

import ctypes
import marshal
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from byleave.gate import UNKNOWN_COMMAND, UnderstoodCommand, understand
from byleave.protocol.errors import ToolFailure

from . import confine
from .environment import (
    beside_programs,
    clean_environment,
    command_user,
    find_program,
    limited_group,
    optional_packages,
    own_home,
    pids_group,
    usable_toolchains,
)
from .protected_names import watched_names
from .sandbox import (
    ETC_DIRECTORIES,
    ETC_FILES,
    ETC_FOR_NETWORK,
    LIMITS,
    NO_FILES,
    NOTHING_WITHHELD,
    BoundFile,
    Isolation,
    Launch,
    Withheld,
    limits_of,
    memory_files,
    report_unmasked,
    tried_out,
)
from .seccomp import filter_for

_CREATE_RULESET, _VERSION = 444, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE = 1 << 4 | 1 << 5
_MAKE = 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12  # directories, files, sockets, pipes, links
_MAKE_DEVICES = 1 << 6 | 1 << 11
_REFER, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
_LOOK = _READ_FILE | _READ_DIRECTORY
_USE = _LOOK | _EXECUTE
_CHANGE = _USE | _WRITE_FILE | _REMOVE | _MAKE | _REFER | _TRUNCATE
# The rights that each Landlock version added; _ATTRIBUTE_BYTES: the size of its attributes.
_SINCE = {1: _CHANGE & ~(_REFER | _TRUNCATE) | _MAKE_DEVICES, 2: _REFER, 3: _TRUNCATE, 5: _DEVICE_CONTROL}
_TCP, _TCP_SINCE = 0b11, 4
_SCOPES, _SCOPES_SINCE = 0b11, 6
_ATTRIBUTE_BYTES = {1: 8, 4: 16, 6: 24}

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
# In bubblewrap other files do not exist; here they exist and are unreadable, which stops some programs.
_ENVIRONMENT = {"npm_config_globalconfig": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
_LOOKED_AT = (
    "/etc/ssl/openssl.cnf",
    *("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/etc/localtime", "/sys/devices/system/cpu"),
    *(f"/proc/{name}" for name in ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version")),
    *(f"/proc/sys/{name}" for name in ("kernel/osrelease", "kernel/ostype", "vm/overcommit_memory")),
)
# The sandbox's own processes, which count in the group too.
_OWN_PROCESSES = 4
_PROGRAM = Path(confine.__file__).read_bytes()

UNPROTECTED = (
    "Landlock cannot make parts of the workspace read-only: a command that writes can change .git, .vscode and other "
    "names that programs trust. Those it makes are told."
)
_METADATA = (
    "A command that writes can change the mode and the times of the user's files outside the workspace (chmod), though "
    "neither read them nor change what they hold."
)
_SIGNALS = "This kernel's Landlock (before Linux 6.12) lets commands signal other programs of the same user."
_ROOT = (
    "The client runs as root, and so do commands: they own the system's files and can change their modes. Run the "
    "client as an ordinary user, or give the workspace to one."
)
_UNLIMITED = "The number of processes is not limited, because commands run as root."


def landlock_version() -> int:
    """The kernel's Landlock version; 0 if it has none or it is disabled."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


class LandlockSandbox:
    """Commands of one workspace under Landlock. `reason`: why not bubblewrap. Raises ToolFailure if it cannot work."""

    def __init__(
        self, root: Path, *, files: Mapping[str, str] = NO_FILES, reason: str = "", version: int | None = None
    ) -> None:
        self._reason = reason
        self._version = landlock_version() if version is None else min(version, landlock_version())
        if self._version < 1:
            raise ToolFailure(
                "This kernel has no Landlock.",
                hint="Linux 5.13 has it; `lsm=` of the boot parameters may leave it out.",
            )
        self._root = root
        self._files = files
        self._runner = command_user(root)
        self._is_root = os.geteuid() == 0 and self._runner is None
        self._pids_group = pids_group() if self._is_root else None
        self._python = find_program("python", root)
        filters = {
            (network, writes): filter_for(network=network, namespaces=False, writes=writes)
            for network in (False, True)
            for writes in (False, True)
        }
        self._filters = {key: program for key, program in filters.items() if program is not None}
        if not self._filters:
            # Landlock alone leaves sockets and shared memory open.
            raise ToolFailure("System calls cannot be filtered on this kind of machine, so Landlock is not enough.")

    def isolation(self, *, network: bool = False) -> Isolation:
        return Isolation(
            isolated=True,
            backend="landlock",
            fs="allowlist",
            net="host" if network else "none",
            pidns=False,
            seccomp=True,
            runs_as="root" if self._is_root else "owner" if self._runner else "user",
            limits=(*self._limits(NOTHING_WITHHELD), *(["pids"] if self._pids_group else [])),
            degraded=tuple(self._degraded()),
        )

    def _limits(self, withheld: Withheld) -> dict[str, int]:
        # The kernel never counts root's processes.
        return {name: value for name, value in limits_of(withheld).items() if not (self._is_root and name == "nproc")}

    def _degraded(self) -> Generator[str]:
        if self._reason:
            yield self._reason
        yield UNPROTECTED
        yield _METADATA
        if self._version < _SCOPES_SINCE:
            yield _SIGNALS
        if self._is_root:
            yield _ROOT
            if self._pids_group is None:
                yield _UNLIMITED

    def probe(self) -> str | None:
        """Run /bin/true as a command would be run; None if it worked, else the reason."""
        return tried_out(self.launch(["/bin/true"], understood=understand("true", ())), "Landlock")

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
    ) -> Generator[Launch]:
        reads = understood.only_reads
        isolation = report_unmasked(self.isolation(network=network), masked)
        if bound_files:
            names = ", ".join(file.path for file in bound_files)
            words = f"Landlock cannot cover files: {names} was checked and watched only."
            isolation = isolation.model_copy(update={"degraded": (*isolation.degraded, words)})
        if reads:
            isolation = isolation.model_copy(update={"protected": (".",)})
        created: list[str] = []
        with ExitStack() as held:
            held.enter_context(watched_names(self._root, created))
            home = self._home(held)
            joins: list[str] = []
            if self._pids_group is not None:
                _, joins = held.enter_context(limited_group(self._pids_group, LIMITS["nproc"] + _OWN_PROCESSES))
            read_end, write_end = os.pipe()
            held.callback(os.close, read_end)
            held.callback(os.close, write_end)
            order = self._order(argv, home, network=network, reads=reads)
            order |= {"status": write_end, "limits": self._limits(withheld)}
            program, orders = memory_files(held, (_PROGRAM, marshal.dumps(order)))
            yield Launch(
                argv=[*joins, self._python, "-I", "-S", f"/proc/self/fd/{program}", str(orders)],
                env=clean_environment(self._root, str(home / "home")) | {"TMPDIR": str(home / "tmp")} | _ENVIRONMENT,
                cwd=str(self._root),
                isolation=isolation,
                pass_fds=(write_end, program, orders),
                uid=self._runner.uid if self._runner else None,
                gid=self._runner.gid if self._runner else None,
                status_fd=read_end,
                created=created,
            )

    def _home(self, held: ExitStack) -> Path:
        """A private directory for one command, removed afterwards: its HOME and its temporary files."""
        base = held.enter_context(own_home())
        for path in (base / "home", base / "tmp"):
            path.mkdir(mode=0o700)
        files = [base / "home" / name for name in self._files]
        for path in files:
            path.write_text(self._files[path.name], encoding="utf-8")
        if self._runner is not None:
            # Inner paths first: the owner of a directory could swap a file in it before that is given away too.
            for path in (*files, base / "home", base / "tmp", base):
                os.chown(path, self._runner.uid, self._runner.gid)
        return base

    def _order(self, argv: list[str], home: Path, *, network: bool, reads: bool) -> dict[str, object]:
        """The order for `confine`. If the network is granted, Landlock does not handle TCP."""
        handled = sum(rights for version, rights in _SINCE.items() if version <= self._version)
        tcp = _TCP if self._version >= _TCP_SINCE and not network else 0
        scopes = _SCOPES if self._version >= _SCOPES_SINCE else 0
        return {
            "parent": os.getpid(),
            "argv": argv,
            "handled": (handled, tcp, scopes),
            "attribute_bytes": max(size for version, size in _ATTRIBUTE_BYTES.items() if version <= self._version),
            "rules": [
                *self._system_rules(network=network),
                (str(self._root), _LOOK if reads else _CHANGE),
                (str(home), _CHANGE),
            ],
            "filter": self._filters[network, not reads],
        }

    def _system_rules(self, *, network: bool) -> Generator[tuple[str, int]]:
        toolchains = (path for chain in usable_toolchains(self._root) for path in chain.parts)
        for path in (*_SYSTEM, *optional_packages()):
            yield from _without(path, beside_programs())
        for path in toolchains:
            yield path, _USE
        for name in (*ETC_DIRECTORIES, *ETC_FILES, *(ETC_FOR_NETWORK if network else ())):
            yield f"/etc/{name}", _LOOK
        for path in _LOOKED_AT:
            yield path, _LOOK
        yield "/dev/null", _READ_FILE | _WRITE_FILE | _TRUNCATE


def _without(path: str, hidden: tuple[str, ...]) -> Generator[tuple[str, int]]:
    """Rules for a directory without some paths in it; of a directory that holds such a path all names can be listed."""
    if path in hidden:
        return
    if not any(each.startswith(f"{path}/") for each in hidden):
        yield path, _USE
        return
    yield path, _READ_DIRECTORY
    for name in os.listdir(path) if os.access(path, os.R_OK) else ():
        if not os.path.islink(f"{path}/{name}"):  # the rule of its target counts
            yield from _without(f"{path}/{name}", hidden)


def working_landlock(root: Path, *, files: Mapping[str, str] = NO_FILES, reason: str = "") -> LandlockSandbox | str:
    """A Landlock sandbox that works here, or the reason why none does."""
    try:
        sandbox = LandlockSandbox(root, files=files, reason=reason)
    except ToolFailure as error:
        return error.message
    return sandbox.probe() or sandbox
