"""The filter on system calls: what it answers, by a small interpreter of its instructions, and what works under it."""

import errno
import struct

import pytest

from byleave.protocol.tools import ExecuteCommandResult
from byleave.workspace.sandbox import bubblewrap
from byleave.workspace.sandbox.bubblewrap import BubblewrapSandbox
from byleave.workspace.sandbox.seccomp import ARCHITECTURES, filter_for
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject
from harness.place import Place

pytestmark = pytest.mark.promise("T3", "S")
ALLOW, KILL = 0x7FFF0000, 0x80000000
NEW_USER, TIOCSTI = 0x10000000, 0x5412
# name: (x86_64, aarch64), from the kernel's own tables
CALLS = {
    "read": (0, 63),
    "execve": (59, 221),
    "openat": (257, 56),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "clone3": (435, 435),
    "openat2": (437, 437),
    "unshare": (272, 97),
    "ioctl": (16, 29),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "mknodat": (259, 33),
    "ptrace": (101, 117),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "mount": (165, 40),
    "setns": (308, 268),
}


def answer(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel would return for this call."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x06:
            return value
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
            continue
        tests = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
        at += if_true if tests[operation] else if_false


def _refused(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read", (0, 0, 10), ALLOW),
        ("execve", (), ALLOW),
        ("openat", (0, 0, 0, 0o6755), ALLOW),  # creates nothing, so the mode is not read
        ("openat", (0, 0, 0x41, 0o755), ALLOW),
        ("openat", (0, 0, 0x41, 0o4755), _refused(errno.EPERM)),
        ("openat", (0, 0, 0x410001, 0o2755), _refused(errno.EPERM)),
        ("socket", (1, 1), ALLOW),
        ("socket", (2, 1), ALLOW),
        ("socket", (10, 2), ALLOW),
        ("socket", (16, 3), _refused(errno.EAFNOSUPPORT)),
        ("socket", (40, 1), _refused(errno.EAFNOSUPPORT)),
        ("socket", (38, 5), _refused(errno.EAFNOSUPPORT)),
        ("socketpair", (1, 1), ALLOW),
        ("socketpair", (40, 1), _refused(errno.EAFNOSUPPORT)),
        ("clone", (0x3D0F00,), ALLOW),
        ("clone", (NEW_USER | 17,), _refused(errno.EPERM)),
        ("clone3", (), _refused(errno.ENOSYS)),
        ("openat2", (), _refused(errno.ENOSYS)),
        ("unshare", (0x400,), ALLOW),
        ("unshare", (0x40000000,), _refused(errno.EPERM)),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, TIOCSTI), _refused(errno.EPERM)),
        ("ioctl", (0, TIOCSTI | 1 << 32), _refused(errno.EPERM)),  # the kernel reads the lower half alone
        ("ioctl", (0, 0x541C), _refused(errno.EPERM)),
        ("fchmod", (3, 0o755), ALLOW),
        ("fchmod", (3, 0o4755), _refused(errno.EPERM)),
        ("fchmodat", (3, 0, 0o2755), _refused(errno.EPERM)),
        ("mknodat", (3, 0, 0o104755), _refused(errno.EPERM)),
        *(
            (name, (), _refused(errno.EPERM))
            for name in ("ptrace", "bpf", "keyctl", "io_uring_setup", "mount", "setns")
        ),
    ],
)
def test_filter_answers(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    program = filter_for(machine)
    assert program is not None
    number = CALLS[name][machine == "aarch64"]
    assert answer(program, ARCHITECTURES[machine].audit, number, *arguments) == expected


def test_calls_in_another_numbering_do_not_pass() -> None:
    program = filter_for("x86_64")
    assert program is not None
    assert answer(program, 0x40000003, 11) == KILL  # 32 bit
    assert answer(program, 0xC000003E, 0x40000000 | 41, 40) == _refused(errno.ENOSYS)  # x32


def test_network_brings_the_one_netlink_that_lists_addresses() -> None:
    program = filter_for("x86_64", network=True)
    assert program is not None
    assert answer(program, 0xC000003E, 41, 16, 3, 0) == ALLOW
    assert answer(program, 0xC000003E, 41, 16, 3, 9) == _refused(errno.EAFNOSUPPORT)
    assert answer(program, 0xC000003E, 41, 2, 1, 6) == ALLOW
    assert answer(program, 0xC000003E, 41, 40, 1, 0) == _refused(errno.EAFNOSUPPORT)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filter_without_namespaces_closes_what_they_would(machine: str) -> None:
    numbers = {"shmget": (29, 194), "mq_open": (240, 180), "prlimit64": (302, 261), "truncate": (76, 45), **CALLS}

    def asked(name: str, *arguments: int, network: bool = False) -> int:
        program = filter_for(machine, network=network, namespaces=False)
        assert program is not None
        return answer(program, ARCHITECTURES[machine].audit, numbers[name][machine == "aarch64"], *arguments)

    no_family = _refused(errno.EAFNOSUPPORT)
    assert {asked("socket", family, 1) for family in (1, 2, 10, 16, 40)} == {no_family}
    assert [asked("socket", family, 1, network=True) for family in (1, 2, 10, 16, 40)] == [
        *(no_family, ALLOW, ALLOW, ALLOW, no_family),
    ]
    assert asked("socket", 16, 3, 9, network=True) == no_family
    assert [asked("socketpair", 1, kind) for kind in (1, 5, 0x80801)] == [ALLOW] * 3
    assert [asked("socketpair", 1, kind) for kind in (2, 3, 0x80802)] == [_refused(errno.EPERM)] * 3
    assert asked("socketpair", 2, 1) == no_family
    assert {asked(name) for name in ("shmget", "mq_open", "truncate", "mount")} == {_refused(errno.EPERM)}
    assert (asked("prlimit64", 0), asked("prlimit64", 17)) == (ALLOW, _refused(errno.EPERM))
    assert (asked("read"), asked("fchmod", 3, 0o755)) == (ALLOW, ALLOW)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filter_for_a_reader_forbids_to_change_modes_and_times(machine: str) -> None:
    program = filter_for(machine, namespaces=False, writes=False)
    assert program is not None
    numbers = {"fchown": (93, 55), "utimensat": (280, 88), "fsetxattr": (190, 7), "fchmodat2": (452, 452), **CALLS}
    for name in ("fchmod", "fchmodat", "fchmodat2", "fchown", "utimensat", "fsetxattr"):
        number = numbers[name][machine == "aarch64"]
        assert answer(program, ARCHITECTURES[machine].audit, number, 3, 0, 0o644) == _refused(errno.EPERM)
    assert answer(program, ARCHITECTURES[machine].audit, CALLS["openat"][machine == "aarch64"], 0, 0, 0) == ALLOW


def test_unknown_machine_has_no_filter_and_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert filter_for("riscv64") is None
    monkeypatch.setattr(bubblewrap, "filter_for", lambda **_: None)
    sandbox = BubblewrapSandbox(place.root)
    assert sandbox.probe() is None
    assert sandbox.isolation().seccomp is False
    assert any("not filtered" in words for words in sandbox.isolation().degraded)


SCRIPTS: dict[str, tuple[str, str]] = {
    "multiprocessing": (
        "python",
        "import multiprocessing as m\n"
        "if __name__ == '__main__':\n"
        "    with m.Pool(2) as p: print(sum(p.map(abs, [-1, -2])))",
    ),
    "threads": (
        "python",
        "from concurrent.futures import ThreadPoolExecutor as T\nwith T(8) as t: print(sum(t.map(abs, [-1, -2])))",
    ),
    "subprocess": (
        "python",
        "import subprocess as s; print(s.run(['echo', '3'], capture_output=True).stdout.decode())",
    ),
    "asyncio": ("python", "import asyncio\nasync def f(): return 3\nprint(asyncio.run(f()))"),
    "loopback": (
        "python",
        "import socket as s\nl = s.create_server(('127.0.0.1', 0)); c = s.create_connection(l.getsockname()); print(3)",
    ),
    "names": ("python", "import socket; socket.getaddrinfo('localhost', 80); print(3)"),
    "worker_threads": (
        "node",
        "const {Worker} = require('worker_threads');"
        "new Worker('require(\"worker_threads\").parentPort.postMessage(3)', {eval: true}).on('message', console.log)",
    ),
    "tar": ("python", "import tarfile, io; t = tarfile.open('x.tar', 'w'); t.add('.'); t.close(); print(3)"),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_ordinary_programs_work_under_the_filter(workspace: Workspace, place: Place, name: str) -> None:
    command, script = SCRIPTS[name]
    place.file("x", script)
    params: JsonObject = {"command": command, "args": ["x"]}
    result = await workspace.run("execute_command", params)
    assert isinstance(result, ExecuteCommandResult)
    assert (result.stdout.strip(), result.exit_code) == ("3", 0), result.stderr
