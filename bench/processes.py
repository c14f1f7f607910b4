"""Starts and ends the processes of a measurement. Every wait has an end; what a process said is kept for the error.

Only processes started here are ended here.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path

START_SECONDS = 30.0
STOP_SECONDS = 10.0


class DidNotStart(Exception):
    """A process ended, or did not answer in time."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(
    name: str, command: list[str], *, log: Path, environment: dict[str, str] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """A process for as long as the block runs."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**_plain_environment(), **(environment or {})},
        )
        try:
            yield process
            if process.poll() is not None:
                raise DidNotStart(f"{name} ended on its way with {process.returncode}:\n{tail(log)}")
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _plain_environment() -> dict[str, str]:
    """The developer's own settings must not decide a measurement."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BYLEAVE_")}


def tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]


def wait_for_http(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until something answers, whatever the status."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise DidNotStart(f"{process.args!r} ended with {process.returncode}:\n{tail(log)}")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise DidNotStart(f"Nothing answered at {url} for {START_SECONDS:.0f} s:\n{tail(log)}")


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
