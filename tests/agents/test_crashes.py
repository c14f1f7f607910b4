"""A server that dies at any step of a run: the next one finishes it, and nothing ran twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.json_values import JsonObject


def crashes(tmp_path: Path, offset: int, every: int, park_seconds: float) -> list[JsonObject]:
    """A server dies at every so manieth step of a run, one life each; what the world looked like after the next."""
    program = Path(__file__).with_name("crashes.py")
    ended = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(offset), str(every), str(park_seconds)],
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    died = [line for line in lines if line["first"] == 17]
    assert len(died) > 20 // every
    assert lines[-1]["first"] == 0
    for line in lines:
        assert line["second"] == 0, (line, ended.stderr)
        assert line["done"], line
        assert line["log"] == "one\ntwo\nthree\n", line
        assert line["acted"] == 5, line
        assert len(line["answers"]) == 1, line
        assert line["answers"][0].endswith("Appended to `log.txt` (14 bytes now)."), line
    return lines


@pytest.mark.parametrize("offset", [1, 2])
@pytest.mark.promise("W3", "W12")
def test_run_is_finished_after_a_crash_at_every_step_and_nothing_runs_twice(tmp_path: Path, offset: int) -> None:
    lines = crashes(tmp_path, offset, 2, 60)
    assert max(line["claims"] for line in lines) == 2


@pytest.mark.promise("W3", "W12")
def test_run_that_parks_at_every_call_is_finished_after_a_crash_too(tmp_path: Path) -> None:
    lines = crashes(tmp_path, 1, 3, 0)
    assert min(line["claims"] for line in lines) > 3
