"""Starting one process, draining its output, and ending everything it started.

A `Launch` goes in; output comes out through a keeper; the exit code is None when we ended it. Whatever happens (time
is up, the task is cancelled) no process of the command is left when `run_process` returns: with a namespace its first
process is killed and waited for, without one the process group is, and then all that carry the launch's mark.
"""

import asyncio
import errno
import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass

from assent.protocol.errors import ToolFailure

from .output import OutputKeeper, StreamName
from .sandbox import Launch

_CHUNK = 65536
_DRAIN_SECONDS = 2.0
_DEATH_SECONDS = 10.0
_SWEEPS = 20


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. `exit_code` is 128 + n when signal n ended it, None when we did."""

    exit_code: int | None
    timed_out: bool


async def run_process(launch: Launch, keeper: OutputKeeper, *, timeout: float) -> Ended:  # noqa: ASYNC109 - ends a tree, not a task
    """Run to the end, to the timeout, or to cancellation."""
    process = await _start(launch)
    drains = [
        asyncio.ensure_future(_drain(process.stdout, "stdout", keeper)),
        asyncio.ensure_future(_drain(process.stderr, "stderr", keeper)),
    ]
    tree = _Tree(process, launch)
    timed_out = False
    try:
        try:
            async with asyncio.timeout(timeout):
                await process.wait()
        except TimeoutError:
            timed_out = True
    finally:
        # Also after a normal end: what the command left running in the background ends with it.
        await _finish(tree, drains)
    code = process.returncode
    if timed_out or code is None:
        return Ended(None, timed_out)
    if not tree.started:
        said = keeper.captured().stderr.strip()[:300]
        raise ToolFailure(f"The sandbox could not start the command: {said or 'it gave no reason'}.")
    return Ended(128 - code if code < 0 else code, timed_out=False)


async def _start(launch: Launch) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=launch.env,
            cwd=launch.cwd,
            pass_fds=launch.pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise ToolFailure("The arguments are too long for this machine.") from error
        raise ToolFailure(f"The command could not be started: {error.strerror}.") from error


async def _drain(stream: asyncio.StreamReader | None, name: StreamName, keeper: OutputKeeper) -> None:
    assert stream is not None  # noqa: S101 - both are pipes
    while data := await stream.read(_CHUNK):
        keeper.feed(name, data)
    keeper.feed(name, b"", final=True)


async def _finish(tree: "_Tree", drains: list[asyncio.Task[None]]) -> None:
    """End the tree and collect the output, even when cancelled again meanwhile."""
    work = asyncio.ensure_future(_end(tree, drains))
    cancelled = False
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled = True
    work.result()
    if cancelled:
        raise asyncio.CancelledError


async def _end(tree: "_Tree", drains: list[asyncio.Task[None]]) -> None:
    await tree.end()
    # Everyone who held a pipe is dead, so both ends come at once; the bound is for what we do not foresee.
    _, late = await asyncio.wait(drains, timeout=_DRAIN_SECONDS)
    for drain in late:
        drain.cancel()
    await asyncio.gather(*drains, return_exceptions=True)


class _Tree:
    """All processes of one command."""

    def __init__(self, process: asyncio.subprocess.Process, launch: Launch) -> None:
        self._process = process
        self._launch = launch
        self._pid = process.pid
        self._told = ""
        self._inner: int | None = None
        self._may_kill_inner = False
        if launch.status_fd is not None:
            os.set_blocking(launch.status_fd, False)
            asyncio.get_running_loop().add_reader(launch.status_fd, self._listen)

    @property
    def started(self) -> bool:
        """Whether the sandbox came as far as the command, and told how it ended."""
        return self._launch.status_fd is None or '"exit-code"' in self._told

    def _listen(self) -> None:
        """Read what the sandbox reports. Its first process is held by descriptor at once, before it can be gone."""
        if self._launch.status_fd is None:
            return
        with suppress(BlockingIOError):
            self._told += os.read(self._launch.status_fd, _CHUNK).decode("ascii", "replace")
        found = re.search(r'"child-pid":\s*(\d+)', self._told)
        if found and self._inner is None:
            pid = int(found[1])
            with suppress(ProcessLookupError):
                self._inner = os.pidfd_open(pid)
                # Once its parent is gone the number alone no longer proves whose process it is.
                self._may_kill_inner = _parent_of(pid) == self._pid

    async def end(self) -> None:
        self._listen()
        try:
            self._kill_group()
            await self._process.wait()
            self._listen()
            if self._inner is not None:
                await _until_dead(self._inner, kill=self._may_kill_inner)
        finally:
            if self._launch.status_fd is not None:
                asyncio.get_running_loop().remove_reader(self._launch.status_fd)
            if self._inner is not None:
                os.close(self._inner)
                self._inner = None
        if self._launch.mark is not None:
            await self._sweep(self._launch.mark)

    def _kill_group(self) -> None:
        """The process group: its leader has a session of its own, so its number is the group's."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)

    async def _sweep(self, mark: str) -> None:
        for _ in range(_SWEEPS):
            strays = _marked(mark.encode())
            for pid in strays:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not strays:
                return
            await asyncio.sleep(0.01)


def _parent_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


async def _until_dead(pidfd: int, *, kill: bool) -> None:
    """Kill the namespace's first process and wait until it, and so everything in it, is gone."""
    if kill:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    loop = asyncio.get_running_loop()
    dead = asyncio.Event()
    loop.add_reader(pidfd, dead.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_DEATH_SECONDS):
                await dead.wait()
    finally:
        loop.remove_reader(pidfd)


def _marked(mark: bytes) -> list[int]:
    """Processes whose environment carries the mark (zombies have none)."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(int(name))
    return found
