"""`python -m bench.gate`: how many verdicts the gate gives in a second on one core.

Judges every case of tests/gate/cases/commands.jsonl again and again for a few seconds. Classifies only; runs nothing.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from assent.gate import Gate

CASES = Path(__file__).resolve().parent.parent / "tests" / "gate" / "cases" / "commands.jsonl"
SECONDS = 3.0
MAX_PASSES = 100_000


def calls() -> list[tuple[str, dict[str, Any]]]:
    """The cases as calls; both a full call and a bare command are understood."""
    found: list[tuple[str, dict[str, Any]]] = []
    for line in CASES.read_text(encoding="utf-8").splitlines():
        if line.strip():
            case = json.loads(line)
            params = case.get("tool_params") or {"command": case["command"], "args": case.get("args", [])}
            found.append((case.get("tool_name", "execute_command"), params))
    return found


def main() -> int:
    if not CASES.exists():
        sys.stderr.write(f"No cases at {CASES}.\n")
        return 1
    cases = calls()
    gate = Gate()
    judged = 0
    started = time.perf_counter()
    for _ in range(MAX_PASSES):
        for tool_name, params in cases:
            gate.judge(tool_name, params)
        judged += len(cases)
        if time.perf_counter() - started > SECONDS:
            break
    elapsed = time.perf_counter() - started
    sys.stdout.write(f"gate: {judged / elapsed:,.0f} verdicts/s ({len(cases)} cases, {elapsed:.1f} s, one core)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
