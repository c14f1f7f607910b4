"""What `make bench-parked` measures is real: every run parks, goes on, and executes its tool once."""

from pathlib import Path

import pytest

from bench.parked import measure


@pytest.mark.promise("W12")
async def test_runs_that_wait_are_parked_and_all_go_on(tmp_path: Path) -> None:
    found = await measure(30, tmp_path, warm_up=2)
    assert (found["executed"], found["executed_twice"]) == (30, 0)
