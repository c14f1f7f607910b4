"""`python -m bench.gate`: how many verdicts the gate gives in a second on one core.

Judges every case of tests/gate/cases/commands.jsonl again and again for a few seconds. Counts the time the process had
the core, so that neighbours on the machine do not count. Classifies only; runs nothing.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from byleave.gate import Gate

CASES = Path(__file__).resolve().parent.parent / "tests" / "gate" / "cases" / "commands.jsonl"
SECONDS = 3.0
MAX_PASSES = 100_000


def calls() -> list[dict[str, Any]]:
    """The parameters of each case's command; a case without a command cannot be asked for."""
    cases = (json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines() if line.strip())
    return [{"command": case["argv"][0], "args": case["argv"][1:]} for case in cases if case["argv"]]


def main() -> int:
    if not CASES.exists():
        sys.stderr.write(f"No cases at {CASES}.\n")
        return 1
    cases = calls()
    gate = Gate()
    judged = 0
    started = time.process_time()
    for _ in range(MAX_PASSES):
        for params in cases:
            gate.judge("execute_command", params)
        judged += len(cases)
        if time.process_time() - started > SECONDS:
            break
    elapsed = time.process_time() - started
    sys.stdout.write(f"gate: {judged / elapsed:,.0f} verdicts/s ({len(cases)} cases, {elapsed:.1f} s of one core)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
