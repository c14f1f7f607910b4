"""Starts and ends the processes of a measurement. Every wait has an end; what a process said is kept for the error.

Only processes started here are ended here.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 30.0
ANSWER_SECONDS = 300.0
STOP_SECONDS = 10.0


class DidNotStart(Exception):
    """A process ended, or did not answer in time."""


@dataclass(frozen=True)
class Process:
    """A process that is told lines on stdin and says JSON lines on stdout."""

    name: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, value: Any) -> None:
        self.tell_line(json.dumps(value))

    def tell_line(self, line: str) -> None:
        if self.process.stdin is not None:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def hear(self, wanted: str | None = None) -> Any:
        """The next thing it says, which must be `wanted` if that is given."""
        output = self.process.stdout
        if output is None:
            raise TypeError(f"{self.name} does not talk with us")
        ready, _, _ = select.select([output], [], [], ANSWER_SECONDS)
        line = output.readline() if ready else ""
        if not line:
            raise DidNotStart(f"{self.name} said nothing ({self.process.poll()}):\n{self.tail()}")
        said = json.loads(line)
        if wanted is not None and said != wanted:
            raise DidNotStart(f"{self.name} said {said!r} instead of {wanted!r}")
        return said

    def tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]


@contextlib.contextmanager
def running(
    name: str, command: list[str], state: Path, environment: dict[str, str] | None = None, *, talks: bool = True
) -> Generator[Process]:
    """A process for as long as the block runs. Of one that does not talk with us, stdout is kept with its log."""
    log = state / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if talks else output,
            stderr=output,
            text=True,
            env={**_plain_environment(), **(environment or {})},
        )
        started = Process(name, process, log)
        try:
            yield started
            if process.poll() is not None:
                raise DidNotStart(f"{name} ended on its way with {process.returncode}:\n{started.tail()}")
        finally:
            process.terminate()
            try:
                process.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _plain_environment() -> dict[str, str]:
    """The developer's own settings must not decide a measurement."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BYLEAVE_")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_http(url: str, server: Process) -> None:
    """Until something answers, whatever the status."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise DidNotStart(f"{server.name} ended with {server.process.returncode}:\n{server.tail()}")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise DidNotStart(f"Nothing answered at {url} for {START_SECONDS:.0f} s:\n{server.tail()}")


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def byleave(*arguments: str) -> list[str]:
    """The `byleave` of the same environment."""
    return [str(Path(sys.executable).parent / "byleave"), *arguments]


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, all threads, user and system; 0 where /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
