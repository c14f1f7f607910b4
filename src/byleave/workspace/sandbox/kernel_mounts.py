"""File systems of the kernel itself that are mounted inside the workspace, as in a tree that somebody enters by chroot.

A workspace is mounted for a command with all that is mounted in it, and such a /proc or /sys is the machine's own: it
tells of every process, and root can switch the kernel by it. So they are covered. Other file systems are left: a volume
for `node_modules` is part of many projects.
"""

import os
import re
from pathlib import Path

_MOUNTS = "/proc/self/mountinfo"
_KERNELS = frozenset(
    {
        *(b"proc", b"sysfs", b"cgroup", b"cgroup2", b"debugfs", b"tracefs", b"securityfs", b"configfs", b"efivarfs"),
        *(
            b"bpf",
            b"binfmt_misc",
            b"fusectl",
            b"pstore",
            b"selinuxfs",
            b"mqueue",
            b"devtmpfs",
            b"devpts",
            b"rpc_pipefs",
        ),
    }
)
_ODD = re.compile(rb"[ \t\n\\]")
_OCTAL = re.compile(rb"\\([0-7]{3})")


class KernelMounts:
    """Those in one workspace."""

    def __init__(self, root: Path) -> None:
        self._above = _ODD.sub(lambda found: b"\\%03o" % found[0][0], os.fsencode(root)) + b"/"

    def covers(self) -> list[str]:
        """The arguments of bubblewrap that hide what is mounted now."""
        with open(_MOUNTS, "rb") as file:
            told = file.read()
        if b" " + self._above not in told:
            return []
        arguments: list[str] = []
        for line in told.splitlines():
            words = line.split(b" ")
            if words[4].startswith(self._above) and words[words.index(b"-") + 1] in _KERNELS:
                point = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), words[4])
                if os.path.isdir(point):
                    arguments += ["--size", "4096", "--perms", "0000", "--tmpfs", os.fsdecode(point)]
                else:
                    arguments += ["--ro-bind", os.devnull, os.fsdecode(point)]
        return arguments
