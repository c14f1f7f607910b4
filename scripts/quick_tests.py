"""Print the tests for `make quick`: those that import what changed since main, else the quickest folders.

A test belongs to a changed module when it imports it by name. What drives browsers, kills servers or floods a disk is
left to `make test`.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALWAYS = ["tests/test_shape.py", "tests/test_names.py", "tests/protocol"]
QUICKEST = ["tests/gate/commands", "tests/gate/policy", "tests/store", "tests/sdk"]
SLOW = ("tests/ui/", "tests/vscode/", "tests/faults/", "tests/e2e/", "tests/bench/", "tests/docs/")
MOST = 12
"""More files than this take longer than a minute; then the quickest folders run instead."""


def changed() -> list[str]:
    """Files that differ from main, committed or not, and new ones."""
    base = _git("merge-base", "HEAD", "main")[:1] or ["HEAD"]
    return [*_git("diff", "--name-only", base[0]), *_git("ls-files", "--others", "--exclude-standard")]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def tests_for(paths: list[str]) -> list[str]:
    """Test files that changed, and those that import a changed module."""
    modules = [
        path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in paths
        if path.startswith("src/byleave/") and path.endswith(".py")
    ]
    found = {path for path in paths if re.search(r"(^|/)test_\w+\.py$", path) and (ROOT / path).exists()}
    for module in modules:
        package, _, name = module.rpartition(".")
        pattern = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{name}\b")
        for test in (ROOT / "tests").rglob("test_*.py"):
            if pattern.search(test.read_text(encoding="utf-8")):
                found.add(str(test.relative_to(ROOT)))
    return sorted(path for path in found if not path.startswith(SLOW))


if __name__ == "__main__":
    found = tests_for(changed())
    sys.stdout.write(" ".join([*ALWAYS, *(found if 0 < len(found) <= MOST else QUICKEST)]) + "\n")
