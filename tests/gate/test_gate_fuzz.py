"""What the gate calls LOW is run, in bubblewrap under strace, and must do no more than read its workspace.

A bounded run of `harness.fuzz`, always with the same seed, and with the seed of FUZZ_SEED when that is set. The harness
itself is tested first: it has to catch what is wrong, and only that.
"""

import os
from dataclasses import dataclass, field

import pytest

from byleave.gate.gate import Judgement
from byleave.protocol.verdicts import Finding, VerdictLevel, verdict_of
from harness.fuzz import campaign, every_line, full_gate, low_tables
from harness.playground import playground
from harness.tracing import Line, trace_lines, why_not

pytestmark = [
    pytest.mark.promise("G2", "G3", "G13", "S"),
    pytest.mark.skipif(why_not() is not None, reason=f"NOTHING WAS FUZZED: {why_not()}. `make setup` installs it."),
]

SECONDS = 12.0
SEEDS = [1, *([int(os.environ["FUZZ_SEED"])] if "FUZZ_SEED" in os.environ else [])]

HARMFUL: dict[Line, str] = {
    ("find", ".", "-fprint", "wrote"): "for writing",
    ("uniq", "a.txt", "wrote"): "for writing",
    ("find", "a.txt", "-exec", "id", ";"): "second process",
    ("ls", "outdir"): "lies outside",
    ("ls", "/etc"): "lies outside",
    ("cat", "out.txt"): "lies outside",
    ("cat", "missing", "../outside/nothing"): "lies outside",
    ("stat", "/etc/hostname"): "lies outside",
    ("cat", "environ"): "lies outside",
    ("date", "-f", "dates"): "lies outside",
    ("cat", ".env"): "holds secrets",
    ("date", "-s", "yesterday"): "clock_settime",
    ("find", "empty", "-delete"): "unlinkat",
    ("bash", "-c", ": </dev/udp/127.0.0.1/9"): "socket",
}
HARMLESS: list[Line] = [
    ("ls", "-la", "--color=always"),
    ("find", ".", "-ls"),
    ("grep", "-n", "TODO", "a.txt", "src/a.py", "ünï.txt", "two words"),
    ("whoami",),
    ("date", "-d", "yesterday", "+%F"),
    ("sort", "-R", "big.txt"),
    ("cat", "--", "-delete", "in.txt", "a\nb"),
    ("head", "-5q", "a.txt"),
    ("sed", "-n", "1,3p", "a.txt"),
    ("find", ".", "-fstype", "ext4", "-user", "nobody"),
]


@dataclass(frozen=True)
class CarelessGate:
    """Calls everything LOW."""

    asked: list[object] = field(default_factory=list[object])

    def judge(self, tool_name: str, tool_params: dict[str, object], *, workspace: str | None = None) -> Judgement:
        self.asked.append(tool_params)
        finding = Finding(level=VerdictLevel.LOW, reason="It will be fine.", rule="gate.careless")
        return Judgement(tool_name, tool_params, verdict_of([finding]))


def test_harness_catches_what_is_wrong_and_only_that() -> None:
    with playground() as place:
        misdeeds, ran = trace_lines(place, [*HARMLESS, *HARMFUL])
    assert ran == len(HARMLESS) + len(HARMFUL)
    for line, expected in HARMFUL.items():
        assert any(expected in misdeed.did for misdeed in misdeeds if misdeed.line == line), line
    assert [str(misdeed) for misdeed in misdeeds if misdeed.line in HARMLESS] == []


def test_harness_catches_a_line_that_changes_the_workspace_behind_its_back() -> None:
    with playground() as place:
        (place.root / "a.txt").write_text("changed\n")
        misdeeds, _ = trace_lines(place, [("pwd",)])
    assert ["changed" in misdeed.did and "a.txt" in misdeed.did for misdeed in misdeeds] == [True]


def test_harness_catches_a_line_that_never_ends() -> None:
    with playground() as place:
        misdeeds, _ = trace_lines(place, [("cat", "pipe")], patience=0.5)
    assert any("did not end" in misdeed.did for misdeed in misdeeds)


def test_gate_that_lets_find_write_a_file_is_caught() -> None:
    gate = CarelessGate()
    done = campaign(gate, iter([("find", ".", "-fprint", "wrote")]), seconds=60)
    assert len(gate.asked) == done.low == done.ran == 1
    assert any("wrote for writing" in misdeed.did for misdeed in done.misdeeds)


def test_every_low_command_of_this_machine_is_among_the_lines() -> None:
    lines = every_line(1)
    seen = {next(lines)[0] for _ in range(4000)}
    assert seen >= set(low_tables())
    assert len(low_tables()) > 10


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_the_gate_calls_low_writes_starts_connects_or_leaves(seed: int) -> None:
    done = campaign(full_gate(), every_line(seed), seconds=SECONDS)
    assert done.ran > 50, done.summary()
    assert [str(misdeed) for misdeed in done.misdeeds] == [], done.summary()
