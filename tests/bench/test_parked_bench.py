"""What `make bench-parked` measures is real: every run parks, goes on, and executes its tool once."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.promise("W12")
def test_runs_that_wait_are_parked_and_all_go_on() -> None:
    line = [sys.executable, "-m", "bench.parked", "30", "--warm-up", "2"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "30 executed, 0 twice" in done.stdout
