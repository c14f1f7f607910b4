"""Escape attempts: a program that `conformance` runs inside the sandbox as source text.

Each probe tries one thing and raises OSError if it was stopped; one that returns got through, and says what it got. It
imports only the standard library, because the sandbox has nothing else. A probe that is not in `HARMFUL` changes
nothing outside its own scene even if nothing stops it: it opens a file without writing. The others must never be run
outside a sandbox.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

Scene = dict[str, Any]
_libc = ctypes.CDLL(None, use_errno=True)
_ON_ARM = platform.machine() == "aarch64"
_NEW_USER = 0x10000000
_GET_NO_NEW_PRIVILEGES = 39
_FORKS = 1500


def _call(result: int) -> int:
    """Return a libc result, or raise its errno."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _syscall(number: int, *arguments: Any) -> int:
    return _call(_libc.syscall(number, *(ctypes.c_long(argument) for argument in arguments)))


def _appended(path: str) -> str:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
    return f"{path} opened for writing"


def _read(path: str) -> str:
    if os.path.isdir(path):
        return f"{path} listed, {len(os.listdir(path))} entries"
    with open(path, "rb") as file:
        file.read(1)
    return f"{path} read"


def _first_open(attempt: Callable[[str], str], paths: list[str]) -> str:
    """Return the first attempt that succeeds, or raise the last error."""
    error = OSError(errno.ENOENT, "nothing to try")
    for path in paths:
        try:
            return attempt(path)
        except OSError as caught:
            error = caught
    raise error


def _created(path: str) -> str:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
    return f"{path} opened for writing"


def _env_of(pid: object, secret: str) -> str:
    with open(f"/proc/{pid}/environ", "rb") as file:
        if secret.encode() in file.read():
            return "the secret was there"
    raise OSError(errno.ENODATA, "no secret there")


def _environment(scene: Scene) -> str:
    if scene["secret"] in "".join(os.environ.values()):
        return "the secret was there"
    raise OSError(errno.ENODATA, "no secret there")


def _tcp(scene: Scene) -> str:
    with socket.create_connection(("127.0.0.1", scene["tcp"]), 2):
        return "connected"


def _udp(scene: Scene) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", scene["udp"]))
        sender.send(b"x")
        time.sleep(0.05)
        sender.send(b"x")  # if nobody listens, the second send reports the first's error
    return "sent"


def _connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    return "connected"


def _family(number: int, kind: int) -> str:
    with socket.socket(number, kind):
        return "socket made"


def _signalled(scene: Scene) -> str:
    os.kill(scene["pid"], 0)
    return "a process outside could be signalled"


def _traced(scene: Scene) -> str:
    attach, detach = 16, 17
    _call(_libc.ptrace(attach, scene["pid"], None, None))
    os.waitpid(scene["pid"], 0x40000000)
    _libc.ptrace(detach, scene["pid"], None, None)
    return "a process outside could be traced"


def _shared_memory(scene: Scene) -> str:
    _call(_libc.shmget(scene["shm"], 0, 0))
    return "memory of another program found"


def _mounted(scene: Scene) -> str:
    _call(_libc.mount(b"none", os.fsencode(scene["root"]), b"tmpfs", 0, None))
    return "a file system mounted"


def _namespace(_: Scene) -> str:
    _call(_libc.unshare(_NEW_USER))
    return "a user namespace made"


def _namespace_by_clone3(_: Scene) -> str:
    arguments = ctypes.create_string_buffer(struct.pack("=11Q", _NEW_USER, *[0] * 3, signal.SIGCHLD, *[0] * 6))
    if _syscall(435, ctypes.addressof(arguments), 88) == 0:
        os._exit(0)
    return "a user namespace made"


def _setuid_programs(_: Scene) -> str:
    if _call(_libc.prctl(_GET_NO_NEW_PRIVILEGES, 0, 0, 0, 0)):
        raise OSError(errno.EPERM, "programs gain nothing")
    return "a set-user-id program would get its rights"


def _set_user_id(scene: Scene) -> str:
    """Try every way to set the bit: all must be closed."""
    path = os.path.join(scene["root"], "setuid")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o700)
    ways: tuple[Callable[[], object], ...] = (
        lambda: os.chmod(path, 0o4755),  # noqa: S103 - this is the probe
        lambda: os.fchmod(fd, 0o2755),
        lambda: _syscall(452, -100, ctypes.addressof(name), 0o4755, 0),
        lambda: os.open(f"{path}2", os.O_WRONLY | os.O_CREAT, 0o4755),
        lambda: os.mknod(f"{path}3", 0o104755),
    )
    name = ctypes.create_string_buffer(os.fsencode(path))
    error = OSError(errno.ENOENT, "nothing tried")
    for number, way in enumerate(ways):
        try:
            way()
        except OSError as caught:
            error = caught
        else:
            return f"a set-user-id file made, way {number + 1}"
    raise error


def _io_uring(_: Scene) -> str:
    parameters = ctypes.create_string_buffer(120)
    _syscall(425, 1, ctypes.addressof(parameters))
    return "a ring made"


def _keys(_: Scene) -> str:
    _syscall(219 if _ON_ARM else 250, 0, -3, 0)
    return "a keyring found"


def _performance(_: Scene) -> str:
    attributes = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 112, 0) + bytes(96))
    _syscall(241 if _ON_ARM else 298, ctypes.addressof(attributes), 0, -1, -1, 0)
    return "counters of the processor opened"


def _user_faults(_: Scene) -> str:
    _syscall(282 if _ON_ARM else 323, 1)
    return "userfaultfd made"


def _typed(_: Scene) -> str:
    """Type into a terminal of its own: if that works, it would work on the user's too."""
    slave = os.openpty()[1]
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    fcntl.ioctl(slave, termios.TIOCSTI, b"x")
    return "a character typed"


def _renamed(scene: Scene) -> str:
    repository = os.path.join(scene["root"], ".git")
    os.rename(repository, f"{repository}-away")
    return ".git renamed away"


def _forks(_scene: Scene) -> str:
    children: list[int] = []
    try:
        for _ in range(_FORKS):
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    except OSError as error:
        raise OSError(error.errno, f"stopped after {len(children)} processes") from error
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
    return f"{len(children)} processes started"


def _memory(_: Scene) -> str:
    size = 6 * 1024**3
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()  # never touched
    return "6 GB allocated"


def _in_workspace(name: str, attempt: Callable[[str], str] = _created) -> Callable[[Scene], str]:
    return lambda scene: attempt(os.path.join(scene["root"], name))


_SWITCHES = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/self/uid_map"]

PROBES: dict[str, Callable[[Scene], str]] = {
    "write-outside": lambda scene: _created(os.path.join(scene["outside"], "written")),
    "write-through-link": _in_workspace("link/written-through"),
    "write-home": lambda scene: _first_open(_appended, scene["rc_files"]),
    "read-secrets": lambda scene: _first_open(_read, scene["secrets"]),
    "read-through-link": _in_workspace("link/secret.txt", _read),
    "read-shadow": lambda _: _first_open(_read, ["/etc/shadow", "/etc/gshadow"]),
    "tcp": _tcp,
    "udp": _udp,
    "abstract-socket": lambda scene: _connect(f"\0{scene['abstract']}"),
    "path-socket": lambda scene: _connect(scene["socket"]),
    "vsock": lambda _: _family(40, socket.SOCK_STREAM),
    "netlink": lambda _: _family(16, socket.SOCK_RAW),
    "alg": lambda _: _family(38, socket.SOCK_SEQPACKET),
    "signal": _signalled,
    "ptrace": _traced,
    "proc-environ": lambda scene: _first_open(lambda pid: _env_of(pid, scene["secret"]), ["1", str(scene["pid"])]),
    "environment": _environment,
    "shared-memory": _shared_memory,
    "mount": _mounted,
    "user-namespace": _namespace,
    "user-namespace-clone3": _namespace_by_clone3,
    "setuid-programs": _setuid_programs,
    "setuid-file": _set_user_id,
    "io-uring": _io_uring,
    "keys": _keys,
    "perf": _performance,
    "userfaultfd": _user_faults,
    "git-hooks": _in_workspace(".git/hooks/pre-commit"),
    "git-config": _in_workspace(".git/config", _appended),
    "vscode": _in_workspace(".vscode/tasks.json"),
    "rename-git": _renamed,
    "create-envrc": _in_workspace(".envrc"),
    "create-bashrc": _in_workspace(".bashrc"),
    "terminal": _typed,
    "kernel-switches": lambda _: _first_open(_appended, _SWITCHES),
    "forks": _forks,
    "memory": _memory,
}
HARMFUL = frozenset({"mount", "forks"})
"""Probes that affect the whole machine if nothing stops them."""
_OWN_PROCESS = frozenset({"ptrace", "user-namespace", "user-namespace-clone3", "terminal", "mount", "perf"})
"""Probes that change their own process, and so run in a child."""


def tried(name: str, scene: Scene) -> dict[str, Any]:
    """Run one probe and return its result."""
    try:
        detail = PROBES[name](scene)
    except OSError as error:
        return {"name": name, "stopped": True, "detail": error.strerror or str(error)}
    return {"name": name, "stopped": False, "detail": detail}


def _tried_in_a_child(name: str, scene: Scene) -> dict[str, Any]:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, json.dumps(tried(name, scene)).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else {"name": name, "stopped": True, "detail": "the process was killed"}


def leave_daemons(marker: str, *, stay: bool) -> None:
    """Start daemons that leave the session and keep the pipes open; then stay, or exit at once."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while marker:  # `conformance` finds us by the marker on the command line
                    signal.pause()
            os._exit(0)
    print("started", flush=True)
    while stay:
        signal.pause()


def main(text: str) -> None:
    """Run the probes. `text`: JSON with the scene and the names to try, or with the daemons to leave."""
    order: dict[str, Any] = json.loads(text)
    if "daemons" in order:
        leave_daemons(order["daemons"], stay=order["stay"])
        return
    for name in order["names"]:
        found = (_tried_in_a_child if name in _OWN_PROCESS else tried)(name, order["scene"])
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
