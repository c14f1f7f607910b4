"""`python -m harness.fuzz --minutes 3 --seed 1`: makes command lines, asks the gate, and runs what it calls LOW.

What the gate calls LOW is checked against the disk as the client does, then run in bubblewrap under strace. A line that
opens a file for writing, starts a second program, opens a socket, leaves the workspace, reads a secret or does not end
is a misdeed, and the gate is wrong. So is a line that it cannot judge. Needs Linux, bubblewrap and strace.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from byleave.gate import Gate, GateRules, understand
from byleave.gate.commands.tables import CommandTable
from byleave.gate.gate import Judgement
from byleave.protocol.errors import ByleaveError
from byleave.protocol.verdicts import VerdictLevel
from byleave.workspace.commands.operands import check_operands
from byleave.workspace.paths import PathValidator

from .argv import Line, every_option, examples, lines
from .playground import Playground, playground
from .tracing import Misdeed, program, trace_lines, why_not

CASES = Path(__file__).resolve().parent.parent / "gate" / "cases" / "commands.jsonl"
BATCH = 100
LEAST_SECONDS = 5.0
"""For the last batch, so that it runs something."""


class Judge(Protocol):
    """A gate, or what a test puts in its place."""

    def judge(self, tool_name: str, tool_params: dict[str, object], *, workspace: str | None = None) -> Judgement: ...


@dataclass
class Campaign:
    """What one run has done so far."""

    judged: int = 0
    low: int = 0
    held_back: int = 0
    """LOW by its spelling, and refused by the client when it looked at the disk."""
    ran: int = 0
    seconds: float = 0.0
    by_command: dict[str, int] = field(default_factory=dict[str, int])
    misdeeds: list[Misdeed] = field(default_factory=list[Misdeed])

    def summary(self) -> str:
        rate = self.ran / self.seconds if self.seconds else 0.0
        told = " ".join(f"{name}:{count}" for name, count in sorted(self.by_command.items()))
        return (
            f"{self.judged:,} lines judged, {self.low:,} LOW, {self.held_back:,} of them held back by the disk, "
            f"{self.ran:,} run ({rate:.0f}/s of running), {len(self.misdeeds)} misdeeds\n  run: {told}"
        )


def full_gate() -> Gate:
    """A gate that allows every command it has a table for."""
    return Gate(GateRules(allowed_commands=frozenset(Gate().commands.tables)))


def known_lines() -> list[Line]:
    """The labelled cases."""
    cases = (json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines())
    return [tuple(case["argv"]) for case in cases if case["argv"]]


def low_tables() -> dict[str, CommandTable]:
    """The tables of commands that may be LOW, as far as they are installed."""
    return {
        name: table
        for name, table in Gate().commands.tables.items()
        if table.level is VerdictLevel.LOW and program(name) is not None
    }


def every_line(seed: int, *, thorough: bool = False, only: Sequence[str] = ()) -> Iterator[Line]:
    """Lines without end, of all commands or some; a thorough run begins with every option of every table.

    Every second line is of a command that may be LOW, the others are of any: none may be too much for the gate.
    """
    tables, everything = (
        {name: table for name, table in some.items() if not only or name in only}
        for some in (low_tables(), Gate().commands.tables)
    )
    if thorough:  # mixed, so that a run that is stopped early has seen something of every table
        all_options = [line for table in tables.values() for line in (*examples(table), *every_option(table))]
        random.Random(seed).shuffle(all_options)
        yield from all_options
    for pair in zip(lines(tables, known_lines(), seed), lines(everything, known_lines(), seed), strict=True):
        yield from pair


def low_lines(gate: Judge, place: Playground, source: Iterator[Line], done: Campaign) -> Iterator[Line]:
    """Of the lines those that the gate calls LOW and the client would start, as it would start them; each once."""
    paths = PathValidator(place.root)
    seen: set[Line] = set()
    try:
        for raw in source:
            line = tuple(word.replace("{WS}", str(place.root)).replace("{OUT}", str(place.outside)) for word in raw)
            if line in seen:
                continue
            seen.add(line)
            command, *args = line
            call: dict[str, object] = {"command": command, "args": args}
            verdict = gate.judge("execute_command", call, workspace=str(place.root)).verdict
            done.judged += 1
            if any(finding.rule == "gate.fault" for finding in verdict.findings):
                done.misdeeds.append(Misdeed(line, verdict.findings[0].reason))
            if verdict.level is not VerdictLevel.LOW or program(command) is None:
                continue
            done.low += 1
            understood = understand(command, args)
            try:
                check_operands(paths, understood)
            except ByleaveError:
                done.held_back += 1
                continue
            done.by_command[command] = done.by_command.get(command, 0) + 1
            yield (command, *understood.safe_args)
    finally:
        paths.close()


def campaign(gate: Judge, source: Iterator[Line], *, seconds: float, most: int | None = None) -> Campaign:
    """Judge and run the lines of `source` for so long, or until `most` of them were run."""
    done = Campaign()
    until = time.monotonic() + seconds
    with playground() as place:
        found = low_lines(gate, place, _until(source, until), done)
        while time.monotonic() < until and (most is None or done.ran < most):
            batch = list(itertools.islice(found, BATCH))
            if not batch:
                break
            began = time.monotonic()
            misdeeds, ran = trace_lines(place, batch, seconds=max(until - began, LEAST_SECONDS))
            done.seconds += time.monotonic() - began
            done.misdeeds += misdeeds
            done.ran += ran
            if place.changes():
                break  # what follows would be judged by a workspace that is not what it was
    return done


def _until(source: Iterator[Line], until: float) -> Iterator[Line]:
    for line in source:
        if time.monotonic() > until:
            return
        yield line


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--thorough", action="store_true", help="begin with every option of every table")
    parser.add_argument("--only", nargs="*", default=(), metavar="COMMAND", help="fuzz these commands alone")
    given = parser.parse_args(arguments)
    missing = why_not()
    if missing is not None:
        sys.stderr.write(f"Nothing can be run: {missing}.\nhint: sudo apt-get install bubblewrap strace\n")
        return 2
    source = every_line(given.seed, thorough=given.thorough, only=given.only)
    sys.stdout.write(f"seed {given.seed}, {given.minutes:g} minutes\n")
    sys.stdout.flush()
    done = campaign(full_gate(), source, seconds=given.minutes * 60)
    sys.stdout.write(done.summary() + "\n")
    for misdeed in done.misdeeds:
        sys.stdout.write(f"  {misdeed}\n")
    return 1 if done.misdeeds else 0


if __name__ == "__main__":
    sys.exit(main())
