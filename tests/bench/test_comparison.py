"""The comparison and the growth, in small: every side answers with the file, and a part that grew is told."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CHECK = "import json, sys; from bench.__main__ import check; sys.exit(check(json.load(sys.stdin)))"

pytestmark = pytest.mark.promise("M")


def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, *arguments]
    return subprocess.run(line, cwd=ROOT, input=given, capture_output=True, text=True, check=False, timeout=120)


def test_all_sides_are_measured_in_one_run() -> None:
    sides = ("floor", "mcp", "inside", "outside")
    chosen = [part for side in sides for part in ("--only", side)]
    done = run("-m", "bench", "--quick", "--rounds", "1", *chosen)
    assert done.returncode == 0, done.stderr
    for title in ("floor of the transport", "MCP SDK", "agent in server", "agent elsewhere", "calls/s of MCP's"):
        assert title in done.stdout


def test_a_longer_record_is_measured_beside_a_shorter_one() -> None:
    done = run("-m", "bench.growth", "400", "1200")
    assert "ask about a write" in done.stdout, done.stderr
    assert "1,200" in done.stdout


def test_clients_readers_and_questions_are_weighed() -> None:
    done = run("-m", "bench.scale", "--clients", "60", "--readers", "3", "--questions", "100")
    titles = ("each of 60 connected clients", "3 readers that never read", "100 open questions", "a client leaves")
    for title in titles:
        assert title in done.stdout, done.stderr


def test_a_part_that_takes_clearly_more_cpu_than_the_baseline_fails_the_check() -> None:
    baseline = json.loads((ROOT / "bench" / "baseline.json").read_text("utf-8"))
    assert set(baseline) == {"inside_server", "inside_client", "outside_server"}

    def found(factor: float, machine: float = 1.0) -> str:
        sides = {name: {"server_cpu_ms": 0.0, "client_cpu_ms": 0.0} for name in ("inside", "outside")}
        for name, relative in baseline.items():
            side, _, part = name.partition("_")
            sides[side][f"{part}_cpu_ms"] = relative * machine * factor
        return json.dumps({**sides, "mcp": {"server_cpu_ms": machine / 2, "caller_cpu_ms": machine / 2}})

    assert run("-c", CHECK, given=found(1.0)).returncode == 0
    assert run("-c", CHECK, given=found(1.0, machine=3.0)).returncode == 0, "a slow machine is slow for all"
    grown = run("-c", CHECK, given=found(1.5))
    assert (grown.returncode, "GREW" in grown.stdout) == (1, True)
