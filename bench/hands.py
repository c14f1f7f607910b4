"""`python -m bench.hands`: what the sandbox adds to a start, and search_files to plain ripgrep, in one run.

The ways of doing one thing take turns (A, B, C, B, C, A, …), so that what else the machine does hits all of them. Every
way is the real one: the sandbox that the client would choose here, its runner, its tools. An answer that is not the
expected one ends the measurement. Prints a table of medians and ratios; keeps every number in bench/results/local/.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

from byleave.gate import understand
from byleave.protocol.errors import ByleaveError
from byleave.protocol.tools import ExecuteCommandResult, SearchFilesResult
from byleave.settings import ClientSettings
from byleave.workspace.sandbox.processes import OutputKeeper, run_process
from byleave.workspace.sandbox.sandbox import Launch
from byleave.workspace.workspace import Workspace

RESULTS = Path(__file__).resolve().parent / "results" / "local"
SYSTEM_PATH = "/usr/bin:/bin"
ENVIRONMENT = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
KEPT_BYTES = 1 << 20
START_WANTED = 9.0
SEARCH_WANTED = 1.3
NEEDLES = {"few": 5, "many": 900, "no": 0}
"""How often each needle is planted; below the 1000 at which search_files stops."""
COPIED = (".py", ".pyi", ".md", ".txt", ".json", ".rst", ".toml", ".js")
LARGEST = 200_000

Run = Callable[[], Awaitable[int]]


class WrongAnswer(Exception):
    """A way did something else than it was measured for."""


@dataclass(frozen=True)
class Way:
    """One way of doing a thing: what to call it, and how often the time of the first way it may take."""

    name: str
    run: Run
    wanted: float | None = None


@dataclass
class Contest:
    """One thing, the ways of doing it, and what each took. The first way is what the others are held against."""

    title: str
    expected: int
    ways: list[Way]
    rounds: int
    wall_ms: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    async def hold(self) -> None:
        for way in self.ways:
            await self._once(way, keep=False)
        for number in range(self.rounds):
            first = number % len(self.ways)
            for way in [*self.ways[first:], *self.ways[:first]]:
                # The kernel takes a sandbox down after its end: the next way must not pay for that.
                await self._once(self.ways[0], keep=False)
                await self._once(way, keep=True)

    async def _once(self, way: Way, *, keep: bool) -> None:
        began = time.perf_counter()
        answer = await way.run()
        took = time.perf_counter() - began
        if answer != self.expected:
            raise WrongAnswer(f"{self.title}, {way.name}: {answer} in place of {self.expected}.")
        if keep:
            self.wall_ms.setdefault(way.name, []).append(1000 * took)

    def rows(self) -> list[dict[str, Any]]:
        """The median and the best of each way: the median is what counts, the best is what neighbours blur least."""
        first = self.wall_ms[self.ways[0].name]
        found: list[dict[str, Any]] = []
        for way in self.ways:
            taken = self.wall_ms[way.name]
            middle, best = statistics.median(taken), min(taken)
            ratios = {"ratio": middle / statistics.median(first), "best_ratio": best / min(first)}
            found.append({"way": way.name, "ms": middle, "best_ms": best, **ratios, "wanted": way.wanted})
        return found


# Starting a command


def plain(argv: list[str], root: Path) -> Run:
    """As any program would start it, with its output taken."""

    async def run() -> int:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=ENVIRONMENT,
            cwd=root,
            start_new_session=True,
            check=False,
        )
        return done.returncode

    return run


def through_runner(argv: list[str], workspace: Workspace) -> Run:
    """As the client runs it, without the sandbox."""
    bare = workspace.isolation.model_copy(update={"isolated": False, "backend": "none"})
    launch = Launch(argv=argv, env=ENVIRONMENT, cwd=str(workspace.root), isolation=bare)

    async def run() -> int:
        return _exit_code((await run_process(launch, OutputKeeper(KEPT_BYTES), seconds=30)).exit_code)

    return run


def sandboxed(argv: list[str], workspace: Workspace) -> Run:
    """As the client runs it."""
    line = understand(os.path.basename(argv[0]), argv[1:])

    async def run() -> int:
        with workspace.sandbox.launch(argv, understood=line) as launch:
            return _exit_code((await run_process(launch, OutputKeeper(KEPT_BYTES), seconds=30)).exit_code)

    return run


def start_contests(workspace: Workspace, rounds: int) -> list[Contest]:
    """A command that only reads, one that writes, and one that starts another and so gets every mount."""
    backend = workspace.isolation.backend
    commands = {
        "start of true (reads)": [_program("true")],
        "start of touch (writes)": [_program("touch"), "touched"],
        "start of env true (starts another)": [_program("env"), "true"],
    }
    return [
        Contest(
            title,
            0,
            [
                Way("plain subprocess", plain(argv, workspace.root)),
                Way("our runner, no sandbox", through_runner(argv, workspace)),
                Way(f"sandbox ({backend})", sandboxed(argv, workspace), START_WANTED),
            ],
            rounds,
        )
        for title, argv in commands.items()
    ]


def call_contest(workspace: Workspace, files: int, rounds: int) -> Contest:
    """All of execute_command beside the command alone: as a LOW call runs, and with the record of what it changed."""

    def tool(*, recorded: bool) -> Run:
        async def run() -> int:
            name = f"bench_{time.monotonic_ns()}" if recorded else None
            made = await workspace.run("execute_command", {"command": "ls"}, record_as=name)
            if not isinstance(made, ExecuteCommandResult):
                raise WrongAnswer("execute_command gave no result of a command.")
            return _exit_code(made.exit_code)

        return run

    ways = [
        Way("plain subprocess", plain([_program("ls")], workspace.root)),
        Way("execute_command", tool(recorded=False)),
        Way("execute_command, can be undone", tool(recorded=True)),
    ]
    return Contest(f"ls with all of the tool, {files} files around", 0, ways, rounds)


def _exit_code(code: int | None) -> int:
    return -1 if code is None else code


def _program(name: str) -> str:
    found = shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed here.")
    return found


# Searching a big tree


def needle(kind: str) -> str:
    return f"needle_{kind}_of_the_bench"


def plant_tree(root: Path, files: int) -> int:
    """At least so many files of real text, copied from the installed packages, with the needles in some of them."""
    source = Path(sysconfig.get_paths()["purelib"])
    texts = sorted(
        path
        for path in source.rglob("*")
        if path.suffix in COPIED and path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST
    )
    planted: list[Path] = []
    for number in range(1, 1 + -(-files // max(1, len(texts)))):
        for path in texts[: files - len(planted)]:
            copy = root / f"copy{number}" / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            planted.append(copy)
    # Where both would look: not hidden, and text beyond doubt.
    plain_text = [path for path in planted if path.suffix == ".py" and "/." not in str(path.relative_to(root.parent))]
    for kind, times in NEEDLES.items():
        holders = cycle(plain_text[:: max(1, len(plain_text) // max(1, min(times, 300)))])
        for copy, number in zip(holders, range(times), strict=False):
            with copy.open("a", encoding="utf-8") as out:
                out.write(f"\n# line {number} with {needle(kind)}\n")
    return len(planted)


def search_contests(workspace: Workspace, rounds: int) -> list[Contest]:
    """search_files beside plain ripgrep, for text and for an expression; both say how many lines fit."""
    rg = _program("rg")

    def alone(pattern: str, *options: str) -> Run:
        argv = [rg, "--no-config", "--line-number", *options, "-e", pattern, "./"]

        async def run() -> int:
            done = subprocess.run(argv, capture_output=True, env=ENVIRONMENT, cwd=workspace.root, check=False)
            return done.stdout.count(b"\n")

        return run

    def tool(pattern: str, *, regex: bool) -> Run:
        async def run() -> int:
            found = await workspace.run("search_files", {"pattern": pattern, "regex": regex})
            if not isinstance(found, SearchFilesResult):
                raise WrongAnswer("search_files gave no result of a search.")
            return found.total_count

        return run

    contests: list[Contest] = []
    for kind, times in NEEDLES.items():
        ways = [
            Way("plain rg", alone(needle(kind), "--fixed-strings")),
            Way("search_files", tool(needle(kind), regex=False), SEARCH_WANTED),
        ]
        contests.append(Contest(f"search, text, {kind} matches ({times})", times, ways, rounds))
    expression = r"needle_m[a-z]+_of_\w+"
    ways = [Way("plain rg", alone(expression)), Way("search_files", tool(expression, regex=True), SEARCH_WANTED)]
    contests.append(Contest(f"search, expression, many matches ({NEEDLES['many']})", NEEDLES["many"], ways, rounds))
    return contests


# All of it


@dataclass(frozen=True)
class Size:
    """How much is measured; small numbers show that it works, not how fast."""

    start_rounds: int = 150
    search_rounds: int = 15
    files: int = 36_000


QUICK = Size(start_rounds=3, search_rounds=2, files=400)


async def measure(size: Size) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="byleave-hands-") as directory:
        place = Path(directory)
        settings = ClientSettings(home=place / "home")
        for name in ("small", "big"):
            (place / name).mkdir()
        _say("copying a big tree …")
        files = plant_tree(place / "big", size.files)
        small, big = Workspace(place / "small", settings), Workspace(place / "big", settings)
        try:
            contests = [
                *start_contests(small, size.start_rounds),
                call_contest(small, 1, size.start_rounds // 3),
                call_contest(big, files, size.search_rounds),
            ]
            if shutil.which("rg", path=SYSTEM_PATH):
                contests += search_contests(big, size.search_rounds)
            else:
                _say("ripgrep is not installed, so the search is left out.")
            for contest in contests:
                _say(f"{contest.title}, {contest.rounds} rounds …")
                await contest.hold()
            return {
                "at": datetime.now(UTC).isoformat(),
                "machine": {
                    "python": platform.python_version(),
                    "system": platform.platform(),
                    "cores": os.cpu_count(),
                    "load": os.getloadavg()[0],
                },
                "isolation": small.isolation.to_json(),
                "files": files,
                "contests": [
                    {
                        "title": contest.title,
                        "rounds": contest.rounds,
                        "rows": contest.rows(),
                        "wall_ms": contest.wall_ms,
                    }
                    for contest in contests
                ],
            }
        finally:
            await small.close()
            await big.close()


def table(found: dict[str, Any]) -> str:
    isolation = found["isolation"]
    lines = [
        "",
        f"sandbox {isolation['backend']}, commands run as {isolation['runs_as']}; {found['files']} files searched",
        f"{'':<34}{'median ms':>11}{'best ms':>10}{'ratio':>8}{'of best':>9}  wanted",
    ]
    for contest in found["contests"]:
        lines.append(f"{contest['title']}, {contest['rounds']} rounds")
        for row in contest["rows"]:
            wanted = row["wanted"]
            told = "" if wanted is None else f"{wanted:g}: {'met' if row['ratio'] <= wanted else 'NOT met'}"
            numbers = f"{row['ms']:>11.2f}{row['best_ms']:>10.2f}{row['ratio']:>8.2f}{row['best_ratio']:>9.2f}"
            lines.append(f"  {row['way']:<32}{numbers}  {told}".rstrip())
    lines.append("ratio = the median against that of the first line; of best = the same with the best of all rounds")
    if found["machine"]["load"] > (os.cpu_count() or 1):
        lines.append("The machine is busy with other things: measure again when it is quiet.")
    return "\n".join([*lines, ""])


def report(size: Size, *, as_json: bool = False) -> int:
    """Measure, print, keep."""
    try:
        found = asyncio.run(measure(size))
    except (WrongAnswer, ByleaveError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"The measurement failed: {error}\n")
        return 1
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    RESULTS.mkdir(parents=True, exist_ok=True)
    kept = RESULTS / f"hands-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    kept.write_text(json.dumps(found), encoding="utf-8")
    sys.stdout.write(table(found))
    _say(f"kept in {kept.relative_to(Path.cwd()) if kept.is_relative_to(Path.cwd()) else kept}")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hands", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rounds and files: whether it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print every number and keep none")
    options = parser.parse_args()
    return report(QUICK if options.quick else Size(), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
