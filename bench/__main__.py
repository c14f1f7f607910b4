"""`python -m bench`: a LOW read_file through all of Byleave, beside a bare MCP call, in one run.

Both sides are up for the whole run and take turns (A, B, A, B, …), so that what else the machine does hits both.
Prints a table with the ratios, then what the sandbox and the search add (`bench.hands`), what starting costs
(`bench.imports`) and how often a person would be asked (`bench.asking`); keeps every number in bench/results/local/.
"""

import argparse
import contextlib
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
from .processes import DidNotStart, cpu_seconds, python
from .sides import Task, byleave_side, mcp_side, workspace

RESULTS = Path(__file__).resolve().parent / "results" / "local"
SAMPLE_SECONDS = 300
Samples = dict[str, list[dict[str, Any]]]
Summary = dict[str, dict[str, float]]


@contextlib.contextmanager
def sides(*, only_mcp: bool) -> Generator[dict[str, Task]]:
    """Both sides up; state on the disk that holds the repository, since a temporary directory may be memory."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="state-", dir=RESULTS)))
        files = workspace(state / "workspace")
        tasks: dict[str, Task] = {}
        if not only_mcp:
            tasks["byleave"] = stack.enter_context(byleave_side(state, files))
        tasks["mcp"] = stack.enter_context(mcp_side(state, files))
        yield tasks


def sample(task: Task, plan: Plan) -> dict[str, Any]:
    """One load process, from start to end, and what the processes that answered it used meanwhile."""
    before = {part: cpu_seconds(pid) for part, pid in task["pids"].items()}
    done = subprocess.run(
        python("bench.load"),
        input=json.dumps({**task, "plan": vars(plan)}),
        capture_output=True,
        text=True,
        check=False,
        timeout=SAMPLE_SECONDS,
    )
    if done.returncode != 0:
        raise DidNotStart(f"The load on {task['target']} failed:\n{done.stderr[-2000:]}")
    taken: dict[str, Any] = json.loads(done.stdout)
    used = {part: cpu_seconds(pid) - before[part] for part, pid in task["pids"].items()}
    used["caller"] = taken.pop("cpu_seconds")
    taken["cpu_ms_per_call"] = {part: 1000 * seconds / plan.calls for part, seconds in used.items()}
    return taken


def take_turns(tasks: dict[str, Task], plan: Plan, rounds: int) -> Samples:
    samples: Samples = {name: [] for name in tasks}
    for number in range(1, rounds + 1):
        for name, task in tasks.items():
            taken = sample(task, plan)
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


COLUMNS = {
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "calls_per_second": "calls/s",
    "loaded_p99_ms": "p99 loaded",
    "server_cpu_ms": "server CPU",
    "client_cpu_ms": "client CPU",
    "caller_cpu_ms": "caller CPU",
}


def table(found: Summary, plan: Plan) -> str:
    def row(name: str, numbers: dict[str, float]) -> str:
        return f"{name:<8}" + "".join(f"{numbers[key]:>12.2f}" for key in COLUMNS)

    lines = [
        "",
        f"LOW read_file, about 1 KB, over loopback; p50 and p99 with 1 in flight, calls/s with {plan.in_flight}",
        " " * 8 + "".join(f"{title:>12}" for title in COLUMNS.values()),
        *(row(name, numbers) for name, numbers in found.items()),
    ]
    if {"byleave", "mcp"} <= found.keys():
        ratios = {key: found["byleave"][key] / found["mcp"][key] for key in COLUMNS if found["mcp"][key]}
        lines.append(
            f"{'ratio':<8}" + "".join(f"{ratios[key]:>12.2f}" if key in ratios else " " * 12 for key in COLUMNS)
        )
        lines.append("ratio = byleave / mcp; wanted: p50 at most 1.0, calls/s at least 2.0")
    if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        lines.append("The machine is busy with other things: believe the CPU columns, not the clock.")
    return "\n".join([*lines, ""])


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
    parser.add_argument("--only-mcp", action="store_true", help="measure the MCP side alone")
    options = parser.parse_args()
    plan = Plan(10, 30, 150) if options.quick else Plan()
    try:
        with sides(only_mcp=options.only_mcp) as tasks:
            samples = take_turns(tasks, plan, options.rounds)
    except (DidNotStart, RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"The measurement failed: {error}\n")
        return 1
    found = summary(samples)
    kept = keep(samples, found, plan)
    sys.stdout.write(table(found, plan))
    sys.stderr.write(f"kept in {kept.relative_to(Path.cwd()) if kept.is_relative_to(Path.cwd()) else kept}\n")
    if options.quick or options.only_mcp:
        return 0
    return max(hands.report(hands.Size()), imports.report(), asking.report())


if __name__ == "__main__":
    sys.exit(main())
