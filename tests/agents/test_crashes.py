"""A server that dies at any step of a run: the next one finishes it, and nothing ran twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIVES = 2
"""The points are shared out over so many tests."""


@pytest.mark.parametrize("offset", range(1, LIVES + 1))
@pytest.mark.promise("W3", "W12")
def test_run_is_finished_after_a_crash_at_every_step_and_nothing_runs_twice(tmp_path: Path, offset: int) -> None:
    program = Path(__file__).with_name("crashes.py")
    ended = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(offset), str(LIVES)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    died = [line for line in lines if line["first"] == 17]
    assert len(died) > 20 // LIVES
    assert lines[-1]["first"] == 0
    for line in lines:
        assert line["second"] == 0, (line, ended.stderr)
        assert line["done"], line
        assert line["log"] == "one\ntwo\nthree\n", line
        assert line["acted"] == 5, line
        assert len(line["answers"]) == 1, line
        assert line["answers"][0].endswith("Appended to `log.txt` (14 bytes now)."), line
    assert max(line["claims"] for line in lines) == 2
