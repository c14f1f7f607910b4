"""Starts `byleave` at almost no cost: one process has loaded everything, and each start is a fork of it.

As a program it reads what to start from a socket (arguments, environment, directory; stdin, stdout and stderr come
along), answers with the process id, and says on a pipe how the process ended. As a module it is that program's owner,
and gives what was started the face of a `subprocess.Popen`. What a test says of loading, of the very first lines of a
program or of variables that libraries read when they are loaded needs a real start, and must not be started here.
"""

import asyncio
import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NoReturn, TextIO, TypedDict, cast

from byleave.cli.main import run as run_byleave
from byleave.gate import Gate

PACKAGES = ("byleave.cli", "byleave.client", "byleave.server", "byleave.agents", "byleave.store", "byleave.workspace")
LIBRARIES = ("aiohttp.web", "alembic.command", "rich.prompt", "rich.syntax", "uvicorn.protocols.http.httptools_impl")
TRACING = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
"""What has coverage trace a process, kept from before the first test: one that is not traced is without it."""
_MOST_BYTES = 1 << 20
_NUMBER = struct.Struct("i")


class Wanted(TypedDict):
    """A start as it is asked for over the socket."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    terminal: bool


class Forked:
    """A process that was started by forking. Its streams are pipes where none were given."""

    def __init__(self, pid: int, status: int, stdout: IO[str] | None = None, stderr: IO[str] | None = None) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self.stderr = stderr
        self._status = status
        self._telling = threading.Lock()
        self._waiting = 0
        """Threads that look at the pipe; the last closes it: a closed number may be another's by the next look."""

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("byleave", timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both streams to their ends, and wait."""
        said = ["", ""]

        def read(place: int, stream: IO[str]) -> None:
            with stream:
                said[place] = stream.read()

        readers = [
            threading.Thread(target=read, args=(place, stream), daemon=True)
            for place, stream in enumerate((self.stdout, self.stderr))
            if stream is not None and not stream.closed
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired("byleave", timeout or 0)
        self.wait(timeout)
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close what is still open of its streams."""
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()

    async def ended(self) -> int:
        """Its exit code, for who must not block."""
        if self.poll() is None:
            loop = asyncio.get_running_loop()
            told = asyncio.Event()
            with self._telling:
                self._waiting += 1  # who polls meanwhile must not close the pipe: a closed one tells nothing
            loop.add_reader(self._status, told.set)
            try:
                if self.returncode is None:
                    await told.wait()
            finally:
                loop.remove_reader(self._status)
                with self._telling:
                    self._waiting -= 1
                    if self.returncode is not None and not self._waiting:
                        os.close(self._status)
        return self.wait()

    def _ended(self, seconds: float | None) -> int | None:
        with self._telling:
            if self.returncode is not None:
                return self.returncode
            self._waiting += 1
        # poll, as select knows no number above 1023.
        told = select.poll()
        told.register(self._status, select.POLLIN)
        ready = told.poll(None if seconds is None else seconds * 1000)
        with self._telling:
            self._waiting -= 1
            if ready and self.returncode is None:
                data = os.read(self._status, _NUMBER.size)
                self.returncode = _NUMBER.unpack(data)[0] if data else -signal.SIGKILL
            if self.returncode is not None and not self._waiting:
                os.close(self._status)
            return self.returncode


class Forks:
    """The process that everything is forked from, started with the first start."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._started: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        # Tests start several from threads: two first starts must not make two parents, nor swap each other's answers.
        self._one_at_a_time = threading.Lock()

    def start(
        self,
        arguments: tuple[str, ...],
        env: Mapping[str, str],
        cwd: Path | str | None = None,
        *,
        stdin: int | None = None,
        output: int | None = None,
        terminal: int | None = None,
    ) -> Forked:
        """Start `byleave`. A terminal is the process's own, and all three streams, except for a given output."""
        if terminal is not None:
            streams = (terminal, terminal if output is None else output, terminal)
            pid, status = self._fork(arguments, env, cwd, streams, own_terminal=True)
            return Forked(pid, status)
        with contextlib.ExitStack() as theirs:
            stdin = stdin if stdin is not None else _opened(theirs, os.open(os.devnull, os.O_RDONLY))
            if output is not None:
                return Forked(*self._fork(arguments, env, cwd, (stdin, output, output), own_terminal=False))
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            for end in (out_end, err_end):
                _opened(theirs, end)
            pid, status = self._fork(arguments, env, cwd, (stdin, out_end, err_end), own_terminal=False)
        return Forked(pid, status, open(out, encoding="utf-8"), open(err, encoding="utf-8"))

    def run(self, arguments: tuple[str, ...], env: Mapping[str, str], cwd: Path | str | None, stdin: bytes) -> Forked:
        """Start `byleave` with this as its input."""
        with contextlib.ExitStack() as ends:
            ours = os.memfd_create("stdin")
            _opened(ends, ours)
            os.write(ours, stdin)
            os.lseek(ours, 0, os.SEEK_SET)
            return self.start(arguments, env, cwd, stdin=ours)

    def close(self) -> None:
        if self._started is not None:
            process, control = self._started
            control.close()
            process.wait()

    def _fork(
        self,
        arguments: tuple[str, ...],
        env: Mapping[str, str],
        cwd: Path | str | None,
        streams: tuple[int, int, int],
        *,
        own_terminal: bool,
    ) -> tuple[int, int]:
        wanted: Wanted = {
            "argv": list(arguments),
            "env": dict(env),
            "cwd": str(cwd or Path.cwd()),
            "terminal": own_terminal,
        }
        status, status_end = os.pipe()
        with self._one_at_a_time:
            control = self._control()
            socket.send_fds(control, [json.dumps(wanted).encode()], [*streams, status_end])
            os.close(status_end)
            return _NUMBER.unpack(control.recv(_NUMBER.size))[0], status

    def _control(self) -> socket.socket:
        if self._started is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
                # -P: modules beside this file would hide libraries of the same name, such as nats.
                command = [sys.executable, "-P", __file__, str(theirs.fileno())]
                process = subprocess.Popen(command, env=self._env, pass_fds=[theirs.fileno()])
            self._started = process, ours
        return self._started[1]


@functools.cache
def shared_forks() -> Forks:
    """One for all tests of this process that want nothing particular of it; it ends with its owner."""
    return _kept(Forks({**os.environ, **TRACING}))


@functools.cache
def untraced_forks() -> Forks:
    """The same for tests whose processes coverage leaves alone."""
    return _kept(Forks({name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}))


def _kept(forks: Forks) -> Forks:
    atexit.register(forks.close)
    return forks


def _opened(stack: contextlib.ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


# The program


def _load() -> None:
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    for name in LIBRARIES:
        importlib.import_module(name)
    Gate().commands.check()  # which every server that is opened does, once in a process
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not copy what was loaded


def _serve(control: socket.socket) -> Wanted | None:
    """Fork for each request: its words in the fork, None in here when the owner is gone."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _tell_ends(running)
            continue
        data, received, _, _ = socket.recv_fds(control, _MOST_BYTES, 4)
        if not data:
            return None
        *streams, status = received
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (ended, wake, status, *running.values()):
                os.close(descriptor)
            control.close()
            return _become(json.loads(data), streams)
        for descriptor in streams:
            os.close(descriptor)
        running[pid] = status
        control.send(_NUMBER.pack(pid))


def _tell_ends(running: dict[int, int]) -> None:
    for pid in list(running):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            pipe = running.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
            os.close(pipe)


def _become(wanted: Wanted, streams: list[int]) -> Wanted:
    os.setsid()
    if wanted["terminal"]:
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(wanted["env"])
    os.chdir(wanted["cwd"])
    # Opened anew, so that each knows whether it is a terminal.
    sys.stdin, sys.stdout, sys.stderr = _stream(0, sys.stdin), _stream(1, sys.stdout), _stream(2, sys.stderr)
    return wanted


def _stream(number: int, like: TextIO) -> TextIO:
    lines = number == 2 or os.isatty(number)
    mode = "w" if number else "r"
    opened = open(number, mode, 1 if lines else -1, like.encoding, like.errors, closefd=False)  # noqa: SIM115 - kept
    return cast(TextIO, opened)


def _leave(code: int) -> NoReturn:
    """End as a program does, but for taking apart all that was loaded, which takes longer than all else."""
    getattr(threading, "_shutdown")()  # noqa: B009 - a thread that never ends keeps us, as it keeps every program
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        wanted = _serve(control)
    if wanted is not None:
        _leave(run_byleave(wanted["argv"]))


if __name__ == "__main__":
    main()
