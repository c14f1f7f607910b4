"""Whom a command runs as, when the client itself runs as root.

Root is more than any command needs. Where the workspace belongs to somebody else, commands run as that user: they can
do there what its owner could, and nothing that only root can. Where it belongs to root they have to stay root, inside
the sandbox; then the kernel's limit on processes does not count, and a control group stands in for it where there is
one, which is tried before it is relied on.
"""

import itertools
import os
import pwd
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from byleave.protocol.errors import ToolFailure

_CGROUPS = Path("/sys/fs/cgroup")
_COUNT = itertools.count(1)
_OURS = "byleave-"
# The shell joins the group before anything else of the command exists.
_JOIN = 'echo $$ > "$0" && exec "$@"'


@dataclass(frozen=True, slots=True)
class Runner:
    """A user that is not root."""

    uid: int
    gid: int

    def reaches(self, path: Path) -> bool:
        """Whether this user could open what lies at `path`, as far as modes say."""
        try:
            return all(self._enters(parent) for parent in (path, *path.parents))
        except OSError:
            return False

    def _enters(self, directory: Path) -> bool:
        found = directory.stat()
        if found.st_uid == self.uid:
            return bool(found.st_mode & 0o100)
        return bool(found.st_mode & (0o010 if found.st_gid == self.gid else 0o001))


def runner_for(workspace: Path) -> Runner | None:
    """Who owns the workspace, when we are root and they are not; else None: commands run as we do.

    ToolFailure where the owner may not enter it: a command can bring that about, and must not become root by it.
    """
    if os.geteuid() != 0:
        return None
    try:
        found = workspace.stat()
    except OSError:
        return None
    if found.st_uid == 0:
        return None
    if not found.st_mode & 0o100:
        raise ToolFailure(
            f"The owner of {str(workspace)!r} may not enter it, so commands cannot be run there.",
            hint="Give the right back: chmod u+rwx",
        )
    try:
        gid = pwd.getpwuid(found.st_uid).pw_gid
    except KeyError:
        gid = found.st_gid
    runner = Runner(found.st_uid, gid if gid != 0 else 65534)
    return runner if runner.reaches(workspace) else None


def pids_group() -> Path | None:
    """The control group under which root may make others that limit processes; None where there is none."""
    if os.geteuid() != 0:
        return None
    with suppress(OSError):
        if (_CGROUPS / "pids").is_dir():
            base = _CGROUPS / "pids"
        elif "pids" in (_CGROUPS / "cgroup.subtree_control").read_text("ascii").split():
            base = _CGROUPS
        else:
            return None
        _sweep(base)
        with limited_group(base, 16) as (procs, argv):
            return base if procs.exists() and _joins(argv) else None
    return None


@contextmanager
def limited_group(base: Path, processes: int) -> Generator[tuple[Path, list[str]]]:
    """A group for one command: where its members are written, and the argv that joins it and goes on."""
    group = base / f"{_OURS}{os.getpid()}-{next(_COUNT)}"
    group.mkdir()
    try:
        (group / "pids.max").write_text(str(processes), "ascii")
        procs = group / "cgroup.procs"
        yield procs, ["/bin/sh", "-c", _JOIN, str(procs)]
    finally:
        with suppress(OSError):  # someone in it is still dying; the next client sweeps it
            group.rmdir()


def _joins(argv: list[str]) -> bool:
    done = subprocess.run([*argv, "/bin/true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


def _sweep(base: Path) -> None:
    """Remove groups that a killed client left. Its number is in the name: one that lives may just be about to join."""
    for group in base.glob(f"{_OURS}*"):
        if not Path("/proc", group.name.removeprefix(_OURS).partition("-")[0]).exists():
            with suppress(OSError):
                group.rmdir()
