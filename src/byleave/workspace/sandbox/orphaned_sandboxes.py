"""Sandboxes that a killed client left behind, found when the next one starts.

A sandbox dies with its client, once it has come so far as to ask the kernel for that. A client that is killed in the
few milliseconds before leaves one that waits for ever for its other half. Such a stray is a bubblewrap of this
workspace to which no client listens: nobody reads what it reports, or its outer half is gone. What belongs to a living
client, to another workspace or to another user is never touched.
"""

import os
import re
import select
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

_DEATH_MILLISECONDS = 2000
_NAMESPACES = re.compile(r"^NSpid:\s+([\d\t ]+)$", re.MULTILINE)
_PARENT = re.compile(r"^PPid:\s+(\d+)$", re.MULTILINE)


def end_orphans(root: Path) -> int:
    """Kill the sandboxes that killed clients of this workspace left; gives how many processes that were."""
    if not os.path.isdir("/proc/self"):
        return 0  # no bubblewrap either
    return sum(_end_if_stray(int(name), root) for name in os.listdir("/proc") if name.isdigit())


def _end_if_stray(pid: int, root: Path) -> bool:
    # Cheap first: nearly every process is something else.
    if not _is_sandbox(pid):
        return False
    # ValueError: something else that calls itself so, with options that we never give.
    with suppress(OSError, ValueError), _held(pid) as pidfd:
        # Again, now that the number cannot become another's.
        if _is_sandbox(pid) and _is_ours(pid, root) and _is_left(pid):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            _wait(pidfd)
            return True
    return False


@contextmanager
def _held(pid: int) -> Generator[int]:
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
    """Whether its options, as we give them, name this workspace, and it runs as us or as the workspace's owner."""
    options = _options(pid)
    names_us = any(pair == (b"--chdir", os.fsencode(root)) for pair in pairwise(options))
    users = {os.geteuid()} | ({root.stat().st_uid} if os.geteuid() == 0 else set[int]())
    return names_us and os.stat(f"/proc/{pid}").st_uid in users


def _options(pid: int) -> list[bytes]:
    """The arguments before the command's own: what the command is given decides nothing."""
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
    """How many namespaces of processes we are in ourselves."""
    found = _NAMESPACES.search(Path("/proc/self/status").read_text("utf-8", "replace"))
    return 1 if found is None else len(found[1].split())


def _nobody_listens(pid: int) -> bool:
    """Whether the pipe it reports on has no reader any more; a client keeps its end as long as it lives."""
    options = _options(pid)
    if b"--json-status-fd" not in options[:-1]:
        return False
    number = int(options[options.index(b"--json-status-fd") + 1])
    link = f"/proc/{pid}/fd/{number}"
    if not os.readlink(link).startswith("pipe:"):
        return False
    # A second writing end of the same pipe: the kernel says of it whether somebody still reads.
    end = os.open(link, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        poll = select.poll()
        poll.register(end, 0)
        return any(events & select.POLLERR for _, events in poll.poll(0))
    finally:
        os.close(end)
