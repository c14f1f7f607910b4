"""The measurement of the hands, in small: it must measure the real sandbox and the same search on both sides."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from byleave.workspace.sandbox.backends import choose_sandbox
from harness.json_values import JsonObject

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.promise("M")


def test_every_way_gives_the_expected_answer_in_the_sandbox_of_this_machine(tmp_path: Path) -> None:
    """A way that did something else would end the measurement; so would a search that finds other lines than rg."""
    line = [sys.executable, "-m", "bench.hands", "--quick", "--json"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found: JsonObject = json.loads(done.stdout)
    assert found["isolation"]["backend"] == choose_sandbox(tmp_path).isolation().backend
    wanted = {row["wanted"] for contest in found["contests"] for row in contest["rows"]}
    assert wanted == {None, 9.0} | ({1.3} if shutil.which("rg", path="/usr/bin:/bin") else set())
    for contest in found["contests"]:
        assert all(len(taken) == contest["rounds"] for taken in contest["wall_ms"].values())
