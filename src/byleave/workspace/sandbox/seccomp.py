"""The seccomp filter on a command's system calls, as BPF bytes for the kernel.

It closes what mounts and namespaces leave open: exotic sockets, io_uring, kernel keys, tracing, new namespaces, typing
into the terminal, set-user-id files left in the workspace. Everything else is allowed: compilers, git, node and Python
run unchanged. A filter cannot read arguments in memory, so `clone3` and `openat2` fail with ENOSYS and libraries fall
back to the older calls. An unknown architecture gets no filter.
"""

import errno
import platform
import re
import struct
from dataclasses import dataclass

# One instruction: code, jump if true, jump if false, value.
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD, _RETURN = 0x20, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x15, 0x35, 0x45
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_SET_ID = 0o6000
_CREATES = 0x40 | 0x400000  # O_CREAT and O_TMPFILE's own bit: only with these is the mode used
_NAMESPACES = 0x7E020000
_NEW_TIME = 0x80
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_DATAGRAMS = 0b010  # a bit of SOCK_DGRAM and SOCK_RAW, but not of the stream types
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

# name x86_64/aarch64. The second column was never tried on a real machine.
# Useless to a command, or useful only to break out. They fail with EPERM.
_DENIED = """
    acct 163/89, add_key 248/217, bpf 321/280, chroot 161/51, clock_settime 227/112, delete_module 176/106,
    fanotify_init 300/262, finit_module 313/273, fsconfig 431/431, fsmount 432/432, fsopen 430/430, fspick 433/433,
    init_module 175/105, io_uring_enter 426/426, io_uring_register 427/427, io_uring_setup 425/425, ioperm 173/-,
    iopl 172/-, kcmp 312/272, kexec_file_load 320/294, kexec_load 246/104, keyctl 250/219, lookup_dcookie 212/18,
    lsm_set_self_attr 460/460, migrate_pages 256/238, modify_ldt 154/-, mount 165/40, mount_setattr 442/442,
    move_mount 429/429, move_pages 279/239, open_by_handle_at 304/265, open_tree 428/428, open_tree_attr 467/467,
    perf_event_open 298/241, pidfd_getfd 438/438, pivot_root 155/41, process_vm_readv 310/270,
    process_vm_writev 311/271, ptrace 101/117, quotactl 179/60, quotactl_fd 443/443, reboot 169/142,
    request_key 249/218, setdomainname 171/162, sethostname 170/161, setns 308/268, settimeofday 164/170,
    swapoff 168/225, swapon 167/224, syslog 103/116, umount2 166/39, userfaultfd 323/282, vhangup 153/58
"""
# An IPC namespace would isolate these; without one, memory and queues of other programs could be reached.
_SHARED = """
    mq_open 240/180, mq_unlink 241/181, msgctl 71/187, msgget 68/186, msgrcv 70/188, msgsnd 69/189, semctl 66/191,
    semget 64/190, semop 65/193, semtimedop 220/192, shmat 30/196, shmctl 31/195, shmget 29/194, truncate 76/45
"""
# Landlock does not check changes of mode, owner or time; a command that only reads does not need them.
_METADATA = """
    chmod 90/-, chown 92/-, fchmod 91/52, fchmodat 268/53, fchmodat2 452/452, fchown 93/55, fchownat 260/54,
    file_setattr 469/469, fremovexattr 199/16, fsetxattr 190/7, futimesat 261/-, lchown 94/-, lremovexattr 198/15,
    lsetxattr 189/6, removexattr 197/14, removexattrat 466/466, setxattr 188/5, setxattrat 463/463, utime 132/-,
    utimensat 280/88, utimes 235/-
"""
# Libraries fall back when these do not exist.
_MISSING = "clone3 435/435, openat2 437/437"
# Allowed or denied by an argument.
_LOOKED_INTO = """
    chmod 90/-, clone 56/220, creat 85/-, fchmod 91/52, fchmodat 268/53, fchmodat2 452/452, ioctl 16/29, mknod 133/-,
    mknodat 259/33, open 2/-, openat 257/56, socket 41/198, socketpair 53/199, unshare 272/97
"""
_LOOKED_INTO_WITHOUT_NAMESPACES = "prlimit64 302/261"


def _numbers(text: str, column: int) -> dict[str, int]:
    found = re.findall(r"(\w+) ([0-9-]+)/([0-9-]+)", text)
    return {row[0]: int(row[column]) for row in found if row[column] != "-"}


@dataclass(frozen=True, slots=True)
class Architecture:
    """System call numbers of one architecture."""

    audit: int
    column: int
    has_x32: bool = False


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, 1, has_x32=True),
    "aarch64": Architecture(0xC00000B7, 2),
}


def filter_for(
    machine: str | None = None, *, network: bool = False, namespaces: bool = True, writes: bool = True
) -> bytes | None:
    """The filter for an architecture; None if its call numbers are unknown.

    Without `namespaces` it also closes what they would: unix sockets, all sockets unless there is the network, and
    shared memory. Without `writes`, for a command that only reads, modes, owners and times cannot be changed.
    """
    architecture = ARCHITECTURES.get(machine or platform.machine())
    if architecture is None:
        return None
    denied = _DENIED + ("" if namespaces else _SHARED) + ("" if writes else _METADATA)
    return _assemble(architecture, denied, _looked_into(network=network, namespaces=namespaces))


def _assemble(architecture: Architecture, denied: str, blocks: dict[str, list[bytes]]) -> bytes:
    program = [
        _load(_ARCHITECTURE),
        _jump(_IF_EQUAL, architecture.audit, 1, 0),
        _answer(_KILL),  # calls numbered for another architecture would pass unchecked
        _load(_NUMBER),
    ]
    if architecture.has_x32:
        program += [_jump(_IF_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS)]
    for text, number in ((denied, errno.EPERM), (_MISSING, errno.ENOSYS)):
        for call in _numbers(text, architecture.column).values():
            program += [_jump(_IF_EQUAL, call, 0, 1), _refuse(number)]
    for name, call in _numbers(_LOOKED_INTO + _LOOKED_INTO_WITHOUT_NAMESPACES, architecture.column).items():
        if name in blocks:
            program += [_jump(_IF_EQUAL, call, 0, len(blocks[name])), *blocks[name]]
    program.append(_answer(_ALLOW))
    return b"".join(program)


def _looked_into(*, network: bool, namespaces: bool) -> dict[str, list[bytes]]:
    """The checks on arguments, by call. Each block returns on every path."""
    found = {
        "socket": _families(network=network),
        "socketpair": _pair_of_streams() if network else _only(0, (_AF_UNIX,), errno.EAFNOSUPPORT),
        "ioctl": _never(1, (_TIOCSTI, _TIOCLINUX)),
        "clone": _without_bits(0, _NAMESPACES),
        "unshare": _without_bits(0, _NAMESPACES | _NEW_TIME),
        "chmod": _without_bits(1, _SET_ID),
        "fchmod": _without_bits(1, _SET_ID),
        "fchmodat": _without_bits(2, _SET_ID),
        "fchmodat2": _without_bits(2, _SET_ID),
        "creat": _without_bits(1, _SET_ID),
        "mknod": _without_bits(1, _SET_ID),
        "mknodat": _without_bits(2, _SET_ID),
        "open": _creating_without_bits(1, 2),
        "openat": _creating_without_bits(2, 3),
    }
    if not namespaces:
        found["socket"] = _outside_families(network=network)
        found["socketpair"] = _pair_of_streams()
        found["prlimit64"] = _only(0, (0,), errno.EPERM)  # only its own limits, not those of the user's other programs
    return found


def _load(offset: int) -> bytes:
    return _INSTRUCTION.pack(_LOAD, 0, 0, offset)


def _argument(index: int) -> bytes:
    """Load the lower half of an argument; the kernel reads no more of the arguments checked here."""
    return _load(_ARGUMENTS + 8 * index)


def _jump(test: int, value: int, if_true: int, if_false: int) -> bytes:
    return _INSTRUCTION.pack(test, if_true, if_false, value)


def _answer(value: int) -> bytes:
    return _INSTRUCTION.pack(_RETURN, 0, 0, value)


def _refuse(number: int) -> bytes:
    return _answer(_ERRNO | number)


def _without_bits(index: int, bits: int) -> list[bytes]:
    return [_argument(index), _jump(_IF_ANY_BIT, bits, 0, 1), _refuse(errno.EPERM), _answer(_ALLOW)]


def _creating_without_bits(flags: int, mode: int) -> list[bytes]:
    body = _without_bits(mode, _SET_ID)
    return [_argument(flags), _jump(_IF_ANY_BIT, _CREATES, 0, len(body) - 1), *body]


def _only(index: int, values: tuple[int, ...], number: int) -> list[bytes]:
    tests = [_jump(_IF_EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)]
    return [_argument(index), *tests, _refuse(number), _answer(_ALLOW)]


def _never(index: int, values: tuple[int, ...]) -> list[bytes]:
    tests = [_jump(_IF_EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)]
    return [_argument(index), *tests, _answer(_ALLOW), _refuse(errno.EPERM)]


def _families(*, network: bool) -> list[bytes]:
    """Unix and internet sockets; with the network, those of `_outside_families`.

    The host's network namespace includes its abstract unix sockets (X11, D-Bus); typing there would be an escape.
    """
    return _outside_families(network=True) if network else _only(0, (_AF_UNIX, _AF_INET, _AF_INET6), errno.EAFNOSUPPORT)


def _outside_families(*, network: bool) -> list[bytes]:
    """No unix sockets, since the host's are in reach; none at all without the network. Netlink only for routes."""
    if not network:
        return [_refuse(errno.EAFNOSUPPORT)]
    routes = _only(2, (0,), errno.EAFNOSUPPORT)
    plain = _only(0, (_AF_INET, _AF_INET6), errno.EAFNOSUPPORT)
    return [_argument(0), _jump(_IF_EQUAL, _AF_NETLINK, 0, len(routes)), *routes, *plain]


def _pair_of_streams() -> list[bytes]:
    """Only pairs of stream sockets: a datagram socket of a pair could be connected to any address."""
    kind = _without_bits(1, _DATAGRAMS)
    return [_argument(0), _jump(_IF_EQUAL, _AF_UNIX, 1, 0), _refuse(errno.EAFNOSUPPORT), *kind]
