"""`python -m bench.imports`: what starting costs, in seconds of CPU.

A process is started for each line, in turns, and the least of its rounds counts: a busy machine can only make it worse.
`import aiohttp` is what no client can do without; look at the ratios to it, since a loaded machine doubles everything.
`the whole client` is what a connected client has loaded: every public name of `byleave.client` but the terminal's,
which comes with the first person; the collector goes at the pace that `byleave` sets when it starts. `byleave serve` is
measured until it says that it is ready, in an empty home.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from .processes import cpu_seconds

RESULTS = Path(__file__).resolve().parent / "results" / "local"
WANTED_SECONDS = 0.3
YARDSTICK = "import aiohttp"
PLAIN = "import byleave.client"
CLIENT = "the whole client"
SECONDS = 60

WHOLE_CLIENT = """
import gc
gc.set_threshold(20_000, 20, 20)
import byleave.client.connection
"""
BYLEAVE = "from byleave.cli.main import main; main()"


def run(*arguments: str) -> float:
    """CPU of a Python process from its start to its end."""
    with subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{arguments} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def serve() -> float:
    """CPU of `byleave serve` until it is ready."""
    with tempfile.TemporaryDirectory() as home:
        child = subprocess.Popen(
            [sys.executable, "-c", BYLEAVE, "serve", "--port", "0", "--json"],
            env={**os.environ, "BYLEAVE_HOME": home},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with child:
            try:
                said = child.stdout.readline() if child.stdout is not None else b""
                if b'"ready"' not in said:
                    raise RuntimeError("byleave serve did not become ready")
                return cpu_seconds(child.pid)
            finally:
                child.terminate()
                child.wait(SECONDS)


LINES: dict[str, Callable[[], float]] = {
    "python": lambda: run("pass"),
    YARDSTICK: lambda: run("import aiohttp"),
    PLAIN: lambda: run("import byleave.client"),
    CLIENT: lambda: run(WHOLE_CLIENT),
    "byleave version": lambda: run(BYLEAVE, "version"),
    "byleave check": lambda: run(BYLEAVE, "check", "read_file", '{"path": "a.txt"}'),
    "byleave serve, ready": serve,
}


def measured(rounds: int) -> dict[str, float]:
    """The least of each line, in turns."""
    least: dict[str, float] = {}
    for _ in range(rounds):
        for name, take in LINES.items():
            taken = take()
            least[name] = min(least.get(name, taken), taken)
    return least


def table(found: dict[str, float]) -> str:
    lines = [f"{'':<24}{'CPU s':>8}{'ratio':>8}"]
    lines += [f"{name:<24}{seconds:>8.3f}{seconds / found[YARDSTICK]:>8.2f}" for name, seconds in found.items()]
    wanted = {PLAIN: found[PLAIN], f"{CLIENT} beyond {YARDSTICK!r}": found[CLIENT] - found[YARDSTICK]}
    lines.append(f"ratio = to {YARDSTICK!r}; wanted within {WANTED_SECONDS} s:")
    lines += [f"  {name}: {seconds:.3f} s, {_verdict(seconds)} here" for name, seconds in wanted.items()]
    return "\n".join([*lines, ""])


def _verdict(seconds: float) -> str:
    return "met" if seconds <= WANTED_SECONDS else "not met"


def keep(found: dict[str, float], rounds: int) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    moment = datetime.now(UTC)
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    document = {"at": moment.isoformat(), "machine": machine, "load": os.getloadavg(), "rounds": rounds, "cpu": found}
    (RESULTS / f"imports-{moment:%Y%m%dT%H%M%SZ}.json").write_text(json.dumps(document), encoding="utf-8")


def report(rounds: int = 7) -> int:
    """Measure, print, keep."""
    try:
        found = measured(rounds)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"The measurement failed: {error}\n")
        return 1
    keep(found, rounds)
    sys.stdout.write(table(found))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.imports", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7, choices=range(1, 101), metavar="1..100")
    return report(parser.parse_args().rounds)


if __name__ == "__main__":
    sys.exit(main())
