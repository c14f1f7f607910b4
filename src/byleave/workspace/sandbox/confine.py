"""The program that holds one command by Landlock: run as text by `landlock`, with the standard library alone.

Four processes: the front, which the client waits for and may kill; the link, whose death tells of the front's; the
keeper, to whom every process of the command comes when its parent is gone; and the command, which gives up its rights
before it starts. When the command has ended, or whoever started it, the keeper kills what is left until nothing is,
daemons too. It reports as bubblewrap does: the keeper's number, then the exit code. Never imports Byleave, and never
runs anything but the command it was given.
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
if TYPE_CHECKING:  # importing typing would double the time that this takes to start
    from collections.abc import Callable
    from typing import Any, NoReturn

    Order = dict[str, Any]

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_SET_DEATH_SIGNAL, _SET_SECCOMP, _DROP_BOUNDING, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 22, 24, 36, 38
_FILTER_MODE = 2
_CAPABILITIES_3 = 0x20080522
_OF_FILES = 1 | 2 | 4 | 1 << 14 | 1 << 15
"""The rights that a rule for something that is no directory may give."""
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
    """Get this signal when the parent ends; end at once when it has."""
    _prctl(_SET_DEATH_SIGNAL, number)
    if os.getppid() != parent:
        os._exit(1)


def drop_capabilities() -> None:
    """Root without its privileges is still root, but it cannot reach past the modes of files."""
    capability = 0
    while _libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0) == 0:
        capability += 1
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITIES_3, 0))
    nothing = ctypes.create_string_buffer(24)
    _checked(_libc.capset(header, nothing))


def restrict_files(order: Order) -> None:
    """Nothing may be opened from here on but what the rules name."""
    attributes = struct.pack("=QQQ", *order["handled"])[: order["attribute_bytes"]]
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    for path, rights in order["rules"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not on this machine, or not for this user: so there is nothing to allow
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
            value += tasks_of(os.getuid())  # the kernel counts all of the user's
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(number, (value, value))


def tasks_of(uid: int) -> int:
    """How many threads this user runs now."""
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
    """Give up every right, then be the command. What goes wrong goes to `complain`."""
    try:
        os.setsid()
        limit(order)
        _prctl(_NO_NEW_PRIVILEGES, 1)
        if os.geteuid() == 0:
            drop_capabilities()
        restrict_files(order)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the command
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        argv = order["argv"]
        filter_calls(order["filter"])
        os.execve(argv[0], argv, os.environ)  # noqa: S606 - no shell is what we want
    except OSError as error:
        os.write(complain, (error.strerror or str(error)).encode("utf-8", "replace")[:500])
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process must never go on as the keeper
        os.write(complain, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:500])
    finally:
        os._exit(127)


def children() -> list[int]:
    """The processes whose parent this is."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return children_by_scan()


def children_by_scan() -> list[int]:
    """The same where the kernel does not list them."""
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
    """Kill every child, and those that thereby become children, until there is none.

    The dead are left unburied until nobody lives: they count against the limit on processes, so that a fork bomb soon
    finds no room for another, however little of the processor we get beside it.
    """
    while True:
        alive = [child for child in children() if os.waitid(os.P_PID, child, _ASK) is None]
        for child in alive:
            os.kill(child, signal.SIGKILL)  # nobody else waits for it, so the number is its own
        if not alive:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
        signal.sigtimedwait({signal.SIGCHLD}, _PAUSE)


def wait_for(main: int) -> int | None:
    """The exit code of the command, 128 + n when signal n ended it; None when it has to be ended."""
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
    """Be the keeper: start the command, wait for it, and end all it left."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_TERM})
    # Told before the session is left: until then a kill of the front's group ends this process too.
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
    """Start the next process and end as it does."""
    own = os.getpid()
    child = os.fork()
    if child == 0:
        be(order, own)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)


def link(order: Order, parent: int) -> NoReturn:
    """Stand between front and keeper: the client kills the front's own child, which must not be the keeper."""
    die_with(parent, signal.SIGKILL)
    pass_on(keep, order)


def main(fd: int) -> NoReturn:
    """`fd`: where the order is read from."""
    with os.fdopen(fd, "rb") as file:
        order: Order = marshal.load(file)  # noqa: S302 - written by the client a moment ago
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)  # noqa: FBT003 - as it is called
            except OSError:
                continue  # the listing's own
    die_with(order["parent"], signal.SIGKILL)
    pass_on(link, order)


if __name__ == "__main__":
    main(int(sys.argv[1]))
