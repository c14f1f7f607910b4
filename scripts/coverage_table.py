"""Print coverage for each part of Byleave, lines and branches together, and fail when one is not above the floor.

Reads the `.coverage.*` files of the test workers and of what they started. A part that nothing ran counts as 0.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from coverage import Coverage

ROOT = Path(__file__).resolve().parent.parent
FLOOR = 90.0
PARTS: dict[str, tuple[str, ...]] = {
    "protocol": (
        "protocol/",
        "settings.py",
        "policy_files.py",
        "descriptors.py",
        "addresses.py",
        "resolver.py",
        "installation.py",
    ),
    "gate": ("gate/",),
    "store": ("store/",),
    "bus": ("bus/",),
    "telemetry": ("telemetry/",),
    "calls": ("calls/",),
    "agents": ("agents/",),
    "adapters": ("adapters/",),
    "sdk": ("sdk/", "__init__.py", "errors.py"),
    "server": ("server/",),
    "workspace": ("workspace/",),
    "client": ("client/",),
    "cli": ("cli/",),
}
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def measured() -> dict[str, dict[str, Any]]:
    """Coverage's own summary of each file, by its path below src/byleave."""
    coverage = Coverage()
    coverage.load()
    files = [str(path) for path in ROOT.glob(".coverage.*") if path.stat().st_size]
    if files:
        coverage.combine(files)
        coverage.save()
    with tempfile.TemporaryDirectory() as directory:
        report = os.path.join(directory, "coverage.json")
        # Of the tree alone: copies that tests install and remove are measured too, and have no source any more.
        coverage.json_report(outfile=report, include=[f"{ROOT}/src/byleave/*"])
        summaries = json.loads(Path(report).read_text(encoding="utf-8"))["files"]
    return {path.split("src/byleave/", 1)[1]: file for path, file in summaries.items() if "src/byleave/" in path}


def table(files: dict[str, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The lines to print, and the names of the parts that are not above the floor."""
    lines = [f"{'part':<12}{'lines':>8}{'branches':>10}{'covered':>10}"]
    below: list[str] = []
    for part, prefixes in PARTS.items():
        total = dict.fromkeys(COUNTS, 0)
        for path, file in files.items():
            if path.startswith(prefixes):
                for count in COUNTS:
                    total[count] += file["summary"][count]
        possible = total["num_statements"] + total["num_branches"]
        covered = total["covered_lines"] + total["covered_branches"]
        percent = 100 * covered / possible if possible else 0.0
        mark = "" if percent > FLOOR else f"  not above {FLOOR:.0f} %"
        lines.append(f"{part:<12}{total['num_statements']:>8}{total['num_branches']:>10}{percent:>9.1f}%{mark}")
        if mark:
            below.append(part)
            lines += _worst(files, prefixes)
    return lines, below


def _worst(files: dict[str, dict[str, Any]], prefixes: tuple[str, ...]) -> list[str]:
    """Where to look first: the files of a part that miss most."""
    missing = [(len(file["missing_lines"]), path, file) for path, file in files.items() if path.startswith(prefixes)]
    worst = sorted(missing, key=lambda item: (-item[0], item[1]))[:3]
    return [
        f"    {path}: {count} lines missed, first {', '.join(map(str, file['missing_lines'][:8]))}"
        for count, path, file in worst
        if count
    ]


def main() -> int:
    lines, below = table(measured())
    sys.stdout.write("\n".join(lines) + "\n")
    if below:
        sys.stderr.write(f"Not above {FLOOR:.0f} % covered: {', '.join(below)}.\nhint: test what is missed there\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
