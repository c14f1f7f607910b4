"""`python -m bench`: a LOW read_file through all of Byleave, beside a bare MCP call, in one run.

Both sides are up for the whole run and take turns (A, B, A, B, …), so that what else the machine does hits both.
Prints a table with the ratios, then what the sandbox and the search add (`bench.hands`), what starting costs
(`bench.imports`) and how often a person would be asked (`bench.asking`); keeps every number in bench/results/local/.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import asking, hands, imports
from .measure import Plan, percentile
from .processes import DidNotStart
from .sides import SIDES, Side, workspace

RESULTS = Path(__file__).resolve().parent / "results" / "local"
BASELINE = Path(__file__).resolve().parent / "baseline.json"
BAND = 1.35
"""CPU per call, divided by that of the MCP SDK in the same run, may grow by this much before `--check` fails."""
Samples = dict[str, list[dict[str, Any]]]
Summary = dict[str, dict[str, float]]


@contextlib.contextmanager
def sides_up(names: list[str]) -> Generator[dict[str, Side]]:
    """These sides, up; state on the disk that holds the repository, since a temporary directory may be memory."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="state-", dir=RESULTS)))
        workspace(state / "workspace")
        yield {name: stack.enter_context(SIDES[name](state)) for name in names}


def installed() -> list[str]:
    """All sides whose packages are there."""
    if importlib.util.find_spec("fastmcp") is not None:
        return list(SIDES)
    sys.stderr.write("FastMCP is left out: `make bench` installs it, `python -m bench` does not.\n")
    return [name for name in SIDES if name != "fastmcp"]


def take_turns(sides: dict[str, Side], plan: Plan, rounds: int) -> Samples:
    samples: Samples = {name: [] for name in sides}
    for number in range(1, rounds + 1):
        for name, side in sides.items():
            taken = side.sample(plan)
            samples[name].append(taken)
            middle = percentile(taken["latencies_ms"], 50)
            sys.stderr.write(
                f"round {number} {name:<7} p50 {middle:7.2f} ms  {taken['calls_per_second']:7.0f} calls/s\n"
            )
    return samples


def summary(samples: Samples) -> Summary:
    """The median round of each number, so that one disturbed round does not decide."""
    found: Summary = {}
    for name, rounds in samples.items():
        found[name] = {
            "p50_ms": statistics.median(percentile(taken["latencies_ms"], 50) for taken in rounds),
            "p99_ms": statistics.median(percentile(taken["latencies_ms"], 99) for taken in rounds),
            "calls_per_second": statistics.median(taken["calls_per_second"] for taken in rounds),
            "loaded_p99_ms": statistics.median(percentile(taken["loaded_latencies_ms"], 99) for taken in rounds),
            **{f"{part}_cpu_ms": _cpu(rounds, part) for part in ("server", "client", "caller")},
        }
    return found


def _cpu(rounds: list[dict[str, Any]], part: str) -> float:
    """What a part used for a call; 0 when this side has no such part."""
    return statistics.median(taken["cpu_ms_per_call"].get(part, 0.0) for taken in rounds)


OTHERS = {
    "4 KB, 256 in flight": Plan(20, 20, 2000, 256),
    "100 KB": Plan(10, 50, 300, size=100 * 1024),
    "1 MB, 8 in flight": Plan(5, 20, 60, 8, size=1024 * 1024),
    "approved write, decision to result": Plan(10, 50, 200, write=True),
}
COMPARED = ("floor", "mcp", "inside")


def other_rows(sides: dict[str, Side]) -> str:
    """Other sizes, more in flight, and an approved write, one sample each."""
    lines = [
        "",
        f"{'p50 ms one at a time; calls/s together':<40}" + "".join(f"{TITLES[name]:>27}" for name in COMPARED),
    ]
    for title, plan in OTHERS.items():
        cells: list[str] = []
        for name in COMPARED:
            if plan.write and name != "inside":
                cells.append("-")
                continue
            taken = sides[name].sample(plan)
            cells.append(f"{percentile(taken['latencies_ms'], 50):.2f}; {taken['calls_per_second']:,.0f}")
        lines.append(f"{title:<40}" + "".join(f"{cell:>27}" for cell in cells))
    first = sides["inside"].first_call_ms
    return "\n".join([*lines, f"first call after the client's start: {first:.0f} ms; wanted: at most 150", ""])


COLUMNS = {
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "calls_per_second": "calls/s",
    "loaded_p99_ms": "p99 loaded",
    "server_cpu_ms": "server CPU",
    "client_cpu_ms": "client CPU",
    "caller_cpu_ms": "caller CPU",
}
TITLES = {
    "floor": "floor of the transport",
    "mcp": "MCP SDK",
    "fastmcp": "FastMCP",
    "inside": "Byleave, agent in server",
    "outside": "Byleave, agent elsewhere",
}


def table(found: Summary, plan: Plan) -> str:
    lines = [
        "",
        f"LOW read_file of 4 KB over loopback; p50 and p99 with 1 in flight, the rest with {plan.in_flight}; CPU in ms",
        " " * 26 + "".join(f"{title:>12}" for title in COLUMNS.values()),
    ]
    for name, numbers in found.items():
        cells = "".join(f"{numbers[key]:>12.2f}" if numbers[key] else f"{'-':>12}" for key in COLUMNS)
        lines.append(f"{TITLES[name]:<26}{cells}")
    if {"floor", "mcp", "inside"} <= found.keys():
        ours, mcp, floor = found["inside"], found["mcp"], found["floor"]
        lines += [
            "",
            "Byleave, agent in server, beside the others:",
            f"  p50 of MCP's      {ours['p50_ms'] / mcp['p50_ms']:6.2f}   wanted: at most 0.6",
            f"  calls/s of MCP's  {ours['calls_per_second'] / mcp['calls_per_second']:6.2f}   wanted: at least 4",
            f"  calls/s of floor's{ours['calls_per_second'] / floor['calls_per_second']:6.2f}   wanted: at least 0.45",
            f"  server CPU        {ours['server_cpu_ms']:6.2f}   wanted: at most 0.5 ms",
            f"  client CPU        {ours['client_cpu_ms']:6.2f}   wanted: at most 0.3 ms",
        ]
    if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        lines.append("The machine is busy with other things: believe the CPU columns, not the clock.")
    return "\n".join([*lines, ""])


def relative_cpu(found: Summary) -> dict[str, float]:
    """CPU per call of our parts, in units of what the MCP SDK's server and caller used in the same run."""
    unit = found["mcp"]["server_cpu_ms"] + found["mcp"]["caller_cpu_ms"]
    parts = (("inside", "server"), ("inside", "client"), ("outside", "server"))
    return {f"{name}_{part}": round(found[name][f"{part}_cpu_ms"] / unit, 3) for name, part in parts if name in found}


def check(found: Summary) -> int:
    """1 if a part uses clearly more CPU than the committed baseline says."""
    worse = 0
    for name, before in json.loads(BASELINE.read_text("utf-8")).items():
        now = relative_cpu(found)[name]
        fits = now <= before * BAND
        worse |= not fits
        sys.stdout.write(f"{name:<16}{before:>8.3f} → {now:.3f}{'' if fits else '   GREW'}\n")
    return worse


def keep(samples: Samples, found: Summary, plan: Plan) -> Path:
    """Everything that was measured, with the machine it was measured on."""
    moment = datetime.now(UTC)
    path = RESULTS / f"{moment:%Y%m%dT%H%M%SZ}.json"
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    document = {
        "at": moment.isoformat(),
        "machine": machine,
        "plan": vars(plan),
        "summary": found,
        "samples": samples,
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, 21), metavar="1..20")
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls: whether it works, not how fast")
    parser.add_argument("--only", action="append", choices=SIDES, help="measure this side (may be repeated)")
    parser.add_argument("--in-flight", type=int, default=32, choices=range(1, 1025), metavar="1..1024")
    parser.add_argument("--check", action="store_true", help="compare CPU per call with the committed baseline")
    parser.add_argument("--baseline", action="store_true", help="write the baseline anew")
    options = parser.parse_args()
    plan = Plan(10, 30, 200, options.in_flight) if options.quick else Plan(in_flight=options.in_flight)
    try:
        with sides_up(options.only or installed()) as sides:
            samples = take_turns(sides, plan, options.rounds)
            others = other_rows(sides) if not options.quick and sides.keys() >= set(COMPARED) else ""
    except (DidNotStart, RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"The measurement failed: {error}\n")
        return 1
    found = summary(samples)
    kept = keep(samples, found, plan)
    sys.stdout.write(table(found, plan) + others)
    sys.stderr.write(f"kept in {kept.relative_to(Path.cwd()) if kept.is_relative_to(Path.cwd()) else kept}\n")
    if options.baseline:
        BASELINE.write_text(json.dumps(relative_cpu(found), indent=2) + "\n", encoding="utf-8")
    if options.check:
        return check(found)
    if options.quick or options.only:
        return 0
    return max(hands.report(hands.Size()), imports.report(), asking.report())


if __name__ == "__main__":
    sys.exit(main())
