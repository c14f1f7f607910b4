"""How often a person is asked, over a few of the traces: the benchmark itself must not lie."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.json_values import JsonObject

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.promise("G8")


@pytest.fixture(scope="module")
def found() -> JsonObject:
    line = [sys.executable, "-m", "bench.asking", "--json", "--source", "SWE-bench/SWE-smith"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def _asked(found: JsonObject, way: str) -> float:
    return found["ways"][way]["all"]["asked"]


def test_grants_from_the_suggestions_spare_most_questions(found: JsonObject) -> None:
    every, free = _asked(found, "every call"), _asked(found, "reads free, no grants")
    granted, strict = _asked(found, "grants: and first directory"), _asked(found, "grants: first dir, unseen shown")
    assert granted < 0.6 * free < 0.6 * every
    assert granted <= strict <= free


def test_no_way_asks_less_often_than_there_are_programs_to_be_seen(found: JsonObject) -> None:
    for way, groups in found["ways"].items():
        if way.startswith(("grants", "tables on: grants")):
            assert groups["all"]["asked_per_task"] >= groups["all"]["programs_per_task"], way


def test_every_call_ends_in_one_of_the_counts(found: JsonObject) -> None:
    totals = {
        sum(groups["all"][name] for name in ("ran", "asked", "refused", "unmappable"))
        for way, groups in found["ways"].items()
        if not way.startswith("tables on")
    }
    assert len(totals) == 1
