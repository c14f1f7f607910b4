"""How much a command may use, and how that is set from outside while the sandbox holds the command back.

A program that sets limits and then becomes the command costs a start of its own. Bubblewrap waits instead, all set up,
for a word on a pipe; the client learns its number meanwhile, sets the limits on it, and lets it go. A command whose
limits could not be set is never let go, nor is one whose client has died. Where the client may not set the limits of
another user's process, `prlimit` does it inside.
"""

import errno
import os
import re
import resource
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

LIMITS = {
    "nproc": 256,
    "nofile": 1024,
    "core": 0,
    "fsize": 2 * 1024**3,
    "cpu": 300,
    "data": 4 * 1024**3,
}
_WORD = b"go"
"""Bubblewrap reads a byte twice."""
_INNER = re.compile(r'"child-pid":\s*(\d+)')
_CAPABILITIES = re.compile(r"^CapEff:\s+([0-9a-f]+)$", re.MULTILINE)
_SET_LIMITS_OF_OTHERS = 1 << 24


class HeldBack:
    """A command that waits for its limits."""

    def __init__(self, limits: Mapping[str, int], held: ExitStack, members: Path | None = None) -> None:
        """`members`: the file of a process group's members, which it must join as well."""
        self._limits = limits
        self._members = members
        read_end, self._write_end = os.pipe()
        held.callback(os.close, self._write_end)
        try:
            # Both ends in one: when the client dies, the pipe does not end, and so neither does the waiting.
            self.fd = os.open(f"/proc/self/fd/{read_end}", os.O_RDWR | os.O_CLOEXEC)
        finally:
            os.close(read_end)
        held.callback(os.close, self.fd)

    def let_go(self, pid: int, parent: int) -> None:
        """Limit the sandbox's first process, which waits, and with it the command. OSError: it still waits."""
        if parent_of(pid) != parent:  # told in another namespace's numbers: nobody else's limits are touched
            raise OSError(errno.ESRCH, "the sandbox's process is not known here")
        for name, value in self._limits.items():
            number = getattr(resource, f"RLIMIT_{name.upper()}")
            hard = resource.prlimit(pid, number)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, number, (most, most))
        if self._members is not None:
            self._members.write_text(str(pid), "ascii")
        os.write(self._write_end, _WORD)


def inner_process(told: str) -> int | None:
    """The number of the sandbox's first process, from what the sandbox reports."""
    found = _INNER.search(told)
    return int(found[1]) if found else None


def may_limit(uid: int | None) -> bool:
    """Whether we may set the limits of a process of this user; None: of our own."""
    if uid is None or uid == os.geteuid():
        return True
    found = _CAPABILITIES.search(Path("/proc/self/status").read_text("utf-8", "replace"))
    return found is not None and bool(int(found[1], 16) & _SET_LIMITS_OF_OTHERS)


def parent_of(pid: int) -> int | None:
    """Whose child a process is; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None
