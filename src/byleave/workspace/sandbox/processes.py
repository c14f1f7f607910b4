"""Starts one process, reads its output, and ends everything it started.

Whatever happens (time is up, the task is cancelled), no process of the command is left when `run_process` returns. With
a pid namespace, its first process is killed and waited for; without one, the process group is, and then every process
that carries the launch's mark. A pidfd reports the end of the process, not its pipes: a child that keeps them open
delays nothing.

Output is decoded as it arrives and passed on while the command runs. Memory is constant whatever a command prints: each
stream keeps its beginning and its end, and counts what it drops. The limit is on the text returned (UTF-8, undecodable
bytes replaced), both streams together. The text passed on is limited too.
"""

import asyncio
import codecs
import errno
import fcntl
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import IO, Literal

from byleave.protocol.errors import ToolFailure
from byleave.workspace.stopping import refuse_late

from .sandbox import Launch, inner_process, parent_of

StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, str], None]

_MARKER_BYTES = 64


class KeptStream:
    """The beginning and the end of one stream, at most `limit` bytes of each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Take some bytes; return the text they complete."""
        text = self._decoder.decode(data, final)
        if text:
            self._keep(text.encode("utf-8"))
        return text

    def _keep(self, data: bytes) -> None:
        self.total += len(data)
        room = self._limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # One buffer, cut when it is twice as long as needed: many small pieces would take more memory.
        if len(self._tail) > 2 * self._limit:
            del self._tail[: -self._limit]

    def text(self, budget: int) -> str:
        """The kept text in at most `budget` bytes, with a note on how much is missing in the middle."""
        tail = bytes(self._tail)
        if self.total <= budget and self.total == len(self._head) + len(tail):
            return (bytes(self._head) + tail).decode("utf-8")
        half = max(budget - _MARKER_BYTES, 0) // 2
        whole_end = tail if len(tail) >= half else bytes(self._head) + tail
        # A cut may split a character; "ignore" drops the broken part.
        first = bytes(self._head[:half]).decode("utf-8", "ignore")
        last = whole_end[len(whole_end) - half :].decode("utf-8", "ignore")
        left_out = self.total - len(first.encode("utf-8")) - len(last.encode("utf-8"))
        return f"{first}\n[... {left_out} bytes left out ...]\n{last}"


@dataclass(frozen=True, slots=True)
class Captured:
    stdout: str
    stderr: str
    truncated: bool


class OutputKeeper:
    """Both streams of one command under one limit."""

    gathers = False
    """True if output may wait some milliseconds for more."""

    def __init__(self, limit: int, on_output: OnOutput | None = None) -> None:
        self._limit = limit
        self._on_output = on_output
        self._passed_on = 0
        self._streams: dict[StreamName, KeptStream] = {"stdout": KeptStream(limit), "stderr": KeptStream(limit)}

    def feed(self, stream: StreamName, data: bytes, *, final: bool = False) -> None:
        text = self._streams[stream].feed(data, final=final)
        if not text or self._on_output is None or self._passed_on > self._limit:
            return
        self._passed_on += len(text)
        if self._passed_on > self._limit:
            text = "[... more output follows; the result will hold its end ...]\n"
        self._on_output(stream, text)

    def captured(self) -> Captured:
        """The kept output; a short stream stays whole while a long one is cut."""
        out, err = self._streams["stdout"], self._streams["stderr"]
        truncated = out.total + err.total > self._limit
        small = self._limit // 2
        if out.total <= err.total:
            out_budget = min(out.total, small) if truncated else out.total
            err_budget = self._limit - out_budget
        else:
            err_budget = min(err.total, small) if truncated else err.total
            out_budget = self._limit - err_budget
        return Captured(out.text(out_budget), err.text(err_budget), truncated)


_CHUNK = 32768  # fits one OutputChunk, even with a partial character carried over
_GATHERED = 1 << 20
_GATHERING_SECONDS = 0.015
_DRAIN_SECONDS = 2.0
_DEATH_SECONDS = 10.0
_SWEEPS = 20


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process. `exit_code` is 128 + n if signal n ended it, None if we did."""

    exit_code: int | None
    timed_out: bool
    idle: bool = False
    """Ended because it printed nothing for too long."""
    stopped: bool = False
    """Ended because the call was cancelled."""


async def run_process(
    launch: Launch,
    keeper: OutputKeeper,
    *,
    seconds: float,
    idle_seconds: float | None = None,
    until: float | None = None,
) -> Ended:
    """Run to the end, until time is up, until it printed nothing for too long, or until cancelled.

    `until`: it is not started after this time (on the clock `steady`).
    """
    refuse_late(until)
    process = _start(launch)
    tree = _Tree(process, launch)
    quiet = _Quiet(idle_seconds)
    drains = [_Drain(pipe, name, keeper, quiet) for pipe, name in _pipes(process)]
    timed_out = False
    try:
        try:
            async with asyncio.timeout(seconds), quiet.watched():
                await tree.exited.wait()
        except TimeoutError:
            timed_out = True
    finally:
        # Also after a normal end: background processes end with the command.
        await _finish(tree, drains)
    if timed_out:
        return Ended(None, timed_out, idle=quiet.over)
    if not tree.started:
        said = keeper.captured().stderr.strip()[:300]
        raise ToolFailure(f"The sandbox could not start the command: {tree.refused or said or 'it gave no reason'}.")
    code = process.returncode
    return Ended(128 - code if code < 0 else code, timed_out=False)


def _start(launch: Launch) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            launch.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=launch.env,
            cwd=launch.cwd,
            pass_fds=launch.pass_fds,
            user=launch.uid,
            group=launch.gid,
            extra_groups=None if launch.uid is None else [],
            start_new_session=True,
        )
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise ToolFailure("The arguments are too long for this machine.") from error
        raise ToolFailure(f"The command could not be started: {error.strerror}.") from error


def _pipes(process: subprocess.Popen[bytes]) -> tuple[tuple[IO[bytes], StreamName], tuple[IO[bytes], StreamName]]:
    assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - both were asked for
    return (process.stdout, "stdout"), (process.stderr, "stderr")


class _Quiet:
    """Timer for how long a command has printed nothing."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timer: asyncio.Timeout | None = None

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Raise TimeoutError in the block if it has been quiet for too long."""
        async with asyncio.timeout(self._seconds) as self._timer:
            yield

    @property
    def over(self) -> bool:
        return self._timer is not None and self._timer.expired()

    def broken(self) -> None:
        """Restart the timer: the command printed something."""
        if self._seconds is not None and self._timer is not None and not self._timer.expired():
            self._timer.reschedule(asyncio.get_running_loop().time() + self._seconds)


class _Drain:
    """Reads one pipe as data arrives, so that the command never waits for us.

    If the keeper gathers, small amounts collect in the pipe: waking up for each line of a search costs more than
    reading it, and takes CPU time from the program that writes.
    """

    def __init__(self, pipe: IO[bytes], name: StreamName, keeper: OutputKeeper, quiet: _Quiet) -> None:
        self._pipe = pipe
        self._name: StreamName = name
        self._keeper = keeper
        self._quiet = quiet
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._hurries = not keeper.gathers
        self.ended = asyncio.Event()
        os.set_blocking(pipe.fileno(), False)
        if keeper.gathers:
            with suppress(OSError):  # then the command waits for us more often
                fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _GATHERED)
        self._loop.add_reader(pipe.fileno(), self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        self._quiet.broken()
        if not self._hurries and len(data) < _CHUNK:
            self._loop.remove_reader(self._pipe.fileno())
            self._pause = self._loop.call_later(_GATHERING_SECONDS, self._go_on)
        self._keeper.feed(self._name, data)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._pipe.fileno(), self._read)

    def hurry(self) -> None:
        """Read the rest at once: the command has ended."""
        self._hurries = True
        if self._pause is not None:
            self._pause.cancel()
            self._go_on()

    def close(self) -> None:
        if not self.ended.is_set():
            if self._pause is not None:
                self._pause.cancel()
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
            self.ended.set()
            self._keeper.feed(self._name, b"", final=True)


async def _finish(tree: "_Tree", drains: list[_Drain]) -> None:
    """End the tree and collect the output, even if cancelled. Raises CancelledError unless it had already ended."""
    had_ended = tree.exited.is_set()
    work = asyncio.ensure_future(_end(tree, drains))
    cancelled = False
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled = True
    work.result()
    if cancelled and not had_ended:
        raise asyncio.CancelledError


async def _end(tree: "_Tree", drains: list[_Drain]) -> None:
    try:
        await tree.end()
        for drain in drains:
            drain.hurry()
        # Every process that held a pipe is dead, so both end at once; the timeout is a safeguard.
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                for drain in drains:
                    await drain.ended.wait()
    finally:
        for drain in drains:
            drain.close()


class _Tree:
    """All processes of one command."""

    def __init__(self, process: subprocess.Popen[bytes], launch: Launch) -> None:
        self._process = process
        self._launch = launch
        self._told = ""
        self._inner: int | None = None
        self._may_kill_inner = False
        self.refused = ""
        """The reason why the command was not released."""
        self.exited = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        _first_to_go(process.pid)
        # Only we wait for this child, so its pid is not reused before we do.
        self._main = os.pidfd_open(process.pid)
        self._loop.add_reader(self._main, self._has_exited)
        if launch.status_fd is not None:
            os.set_blocking(launch.status_fd, False)
            self._loop.add_reader(launch.status_fd, self._listen)

    @property
    def started(self) -> bool:
        """True if the sandbox started the command and reported its exit code."""
        return self._launch.status_fd is None or '"exit-code"' in self._told

    def _has_exited(self) -> None:
        self._loop.remove_reader(self._main)
        self.exited.set()

    def _listen(self) -> None:
        """Read the sandbox's report. Its first process gets a pidfd at once, before it can be gone."""
        if self._launch.status_fd is None:
            return
        with suppress(BlockingIOError):
            self._told += os.read(self._launch.status_fd, _CHUNK).decode("ascii", "replace")
        if self._inner is not None:
            return
        pid = inner_process(self._told)
        if pid is not None:
            with suppress(ProcessLookupError):
                self._inner = os.pidfd_open(pid)
                # Once its parent is gone, the pid alone no longer proves whose process it is.
                self._may_kill_inner = parent_of(pid) == self._process.pid
                if self._may_kill_inner:
                    _first_to_go(pid)
                self._begin(pid)

    def _begin(self, pid: int) -> None:
        """Release a command that waits for its limits, or end it if they cannot be set."""
        if self._launch.held_back is not None:
            try:
                self._launch.held_back.let_go(pid, self._process.pid)
            except OSError as error:
                self.refused = f"its limits could not be set ({error.strerror})"
                self._process.kill()

    async def end(self) -> None:
        """Kill the remaining processes and wait until they are gone."""
        try:
            self._listen()
            with suppress(ProcessLookupError, PermissionError):
                # The leader has its own session, so its pid is the group's.
                os.killpg(self._process.pid, signal.SIGKILL)
            await self.exited.wait()
            self._process.wait()
            self._listen()
            if self._inner is not None:
                await _until_dead(self._inner, kill=self._may_kill_inner)
            if self._launch.mark is not None:
                await _sweep(self._launch.mark)
        finally:
            self._loop.remove_reader(self._main)
            os.close(self._main)
            if self._launch.status_fd is not None:
                self._loop.remove_reader(self._launch.status_fd)
            if self._inner is not None:
                os.close(self._inner)


def _first_to_go(pid: int) -> None:
    """Let the OOM killer choose the command, not the user's programs: its memory may not be charged to it."""
    with suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


async def _until_dead(pidfd: int, *, kill: bool) -> None:
    """Kill the namespace's first process and wait until it, and so the whole namespace, is gone."""
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


async def _sweep(mark: str) -> None:
    """Kill every process that carries the mark, and those started meanwhile."""
    for _ in range(_SWEEPS):
        strays = _marked(mark.encode())
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not strays:
            return
        await asyncio.sleep(0.01)


def _marked(mark: bytes) -> list[int]:
    """Processes whose environment carries the mark (zombies have none)."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(int(name))
    return found
