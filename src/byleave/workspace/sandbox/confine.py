"""The program that confines one command with Landlock. `landlock` runs its source text; standard library only.

Four processes: the front, which the client waits for and may kill; the link, whose death reports the front's; the
keeper, a subreaper that inherits every orphaned process of the command; and the command, which gives up its rights
before it starts. When the command or its starter has ended, the keeper kills all that is left, daemons too. It reports
like bubblewrap: the keeper's pid, then the exit code. It never imports Byleave, and never runs anything but the given
command.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import signal
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would double the start time
    from collections.abc import Callable
    from typing import Any, NoReturn

    Order = dict[str, Any]

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_SET_DEATH_SIGNAL, _SET_SECCOMP, _DROP_BOUNDING, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 22, 24, 36, 38
_FILTER_MODE = 2
_CAPABILITIES_3 = 0x20080522
_OF_FILES = 1 | 2 | 4 | 1 << 14 | 1 << 15
"""The rights that a rule for a non-directory may grant."""
_TERM = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_PAUSE = 0.002
_ASK = os.WEXITED | os.WNOHANG | os.WNOWAIT
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _prctl(option: int, value: object, more: object = 0) -> None:
    _checked(_libc.prctl(option, value, more, 0, 0))


def die_with(parent: int, number: int) -> None:
    """Ask for this signal when the parent ends; exit now if it already has."""
    _prctl(_SET_DEATH_SIGNAL, number)
    if os.getppid() != parent:
        os._exit(1)


def drop_capabilities() -> None:
    """Drop all capabilities: root without them cannot bypass the modes of files."""
    capability = 0
    while _libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0) == 0:
        capability += 1
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITIES_3, 0))
    nothing = ctypes.create_string_buffer(24)
    _checked(_libc.capset(header, nothing))


def restrict_files(order: Order) -> None:
    """Restrict this process to the paths in the rules, from now on."""
    attributes = struct.pack("=QQQ", *order["handled"])[: order["attribute_bytes"]]
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    for path, rights in order["rules"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # missing, or not for this user: nothing to allow
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights & order["handled"][0], fd)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
        os.close(fd)
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def filter_calls(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    told = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _prctl(_SET_SECCOMP, _FILTER_MODE, told)


def limit(order: Order) -> None:
    for name, value in order["limits"].items():
        number = getattr(resource, f"RLIMIT_{name.upper()}")
        if name == "nproc":
            value += tasks_of(os.getuid())  # the kernel counts all tasks of the user
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(number, (value, value))


def tasks_of(uid: int) -> int:
    """The number of threads this user runs now."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/status", "rb") as file:
                fields = dict(line.split(b":", 1) for line in file if line.startswith((b"Uid:", b"Threads:")))
        except OSError:
            continue  # it has ended
        if int(fields[b"Uid"].split()[0]) == uid:
            count += int(fields[b"Threads"])
    return count


def become_command(order: Order, complain: int) -> NoReturn:
    """Give up all rights, then execute the command. Errors are written to `complain`."""
    try:
        os.setsid()
        limit(order)
        _prctl(_NO_NEW_PRIVILEGES, 1)
        if os.geteuid() == 0:
            drop_capabilities()
        restrict_files(order)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and the command would inherit that
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        argv = order["argv"]
        filter_calls(order["filter"])
        os.execve(argv[0], argv, os.environ)  # noqa: S606 - without a shell, on purpose
    except OSError as error:
        os.write(complain, (error.strerror or str(error)).encode("utf-8", "replace")[:500])
    except BaseException as error:  # noqa: BLE001 - this process must never go on as the keeper
        os.write(complain, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:500])
    finally:
        os._exit(127)


def children() -> list[int]:
    """The pids of this process's children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return children_by_scan()


def children_by_scan() -> list[int]:
    """`children` for a kernel that does not list them."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                    found.append(int(name))
        except OSError:
            continue
    return found


def end_all() -> None:
    """Kill every child, and the orphans that thereby become children, until none is left.

    The dead are not reaped until nobody lives: zombies count against the process limit, so a fork bomb soon cannot
    fork any more, however little CPU time we get.
    """
    while True:
        alive = [child for child in children() if os.waitid(os.P_PID, child, _ASK) is None]
        for child in alive:
            os.kill(child, signal.SIGKILL)  # only we reap it, so the pid is not reused
        if not alive:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
        signal.sigtimedwait({signal.SIGCHLD}, _PAUSE)


def wait_for(main: int) -> int | None:
    """Return the command's exit code, 128 + n if signal n ended it; None if it has to be killed."""
    while True:
        if signal.sigwait({signal.SIGCHLD, *_TERM}) in _TERM:
            return None
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if child == 0:
                break
            if child == main:
                code = os.waitstatus_to_exitcode(status)
                return 128 - code if code < 0 else code


def keep(order: Order, parent: int) -> NoReturn:
    """Be the keeper: start the command, wait for it, and kill all it left."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_TERM})
    # Reported before setsid: until then, killing the front's group ends this process too.
    os.write(order["status"], b'{"child-pid": %d}\n' % os.getpid())
    os.setsid()
    die_with(parent, signal.SIGTERM)
    _prctl(_SUBREAPER, 1)
    hear, complain = os.pipe()
    main = os.fork()
    if main == 0:
        become_command(order, complain)
    os.close(complain)
    code = wait_for(main)
    end_all()
    if code is None:
        os._exit(1)
    complaint = os.read(hear, 500)
    if complaint:
        os.write(2, complaint)
        os._exit(1)
    os.write(order["status"], b'{"exit-code": %d}\n' % code)
    os._exit(code)


def pass_on(be: Callable[[Order, int], NoReturn], order: Order) -> NoReturn:
    """Fork the next process and exit with its code."""
    own = os.getpid()
    child = os.fork()
    if child == 0:
        be(order, own)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)


def link(order: Order, parent: int) -> NoReturn:
    """Be the link between front and keeper: the client kills the front's own child, which must not be the keeper."""
    die_with(parent, signal.SIGKILL)
    pass_on(keep, order)


def main(fd: int) -> NoReturn:
    """Be the front. `fd`: where the order is read from."""
    with os.fdopen(fd, "rb") as file:
        order: Order = marshal.load(file)  # noqa: S302 - written by the client a moment ago
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)  # noqa: FBT003 - positional only
            except OSError:
                continue  # the listing's own descriptor
    die_with(order["parent"], signal.SIGKILL)
    pass_on(link, order)


if __name__ == "__main__":
    main(int(sys.argv[1]))
