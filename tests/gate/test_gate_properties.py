"""Properties of the gate: other spellings of the same thing never get a softer verdict.

Held for every line there is: the labelled cases, the further lines, the tables' own examples; and for lines made from
the tables, which libc's own getopt_long reads a second time.
"""

import itertools
import json
import os
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from byleave.gate import Gate, GateRules
from byleave.gate.commands.tables import CommandTable, Kind, Option, Style
from harness.argv import Line, lines
from harness.json_values import JsonObject
from harness.respelling import variants, with_dashes
from harness.second_opinion import objection, readable

pytestmark = pytest.mark.promise("G3", "G3-depth", "S")

WORKSPACE = "/home/user/ws"
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine is slow; that says nothing about the gate."""
GATE = Gate()
TABLES = GATE.commands.tables
OPEN_GATE = Gate(GateRules(allowed_commands=frozenset(TABLES)))
"""Allows every command that it has a table for."""
RANKS = {"LOW": 0, "NOT_LOW": 1, "MEDIUM": 1, "HIGH": 2, "REFUSE": 3}
READERS = ("grep", "ls", "cat", "head", "tail", "wc", "date")
FOLDER = Path(__file__).with_name("cases")
CASES: list[JsonObject] = [json.loads(line) for line in FOLDER.joinpath("commands.jsonl").read_text().splitlines()]
FLOORS = [
    ([arg.replace("{WS}", WORKSPACE) for arg in case["argv"]], RANKS[case.get("floor", case["expect"])])
    for case in CASES
    if case["id"] not in {"grep-020", "read-048", "read-060"}
]
VALUES = {
    Kind.TEXT: ["x", "a/b"],
    Kind.GLOB: ["*.py", "*.pem"],
    Kind.NUMBER: ["5", "x/y"],
    Kind.WORD: ["never", "../x"],
    Kind.PATH_READ: ["a.txt", "/etc/passwd", "../x", ".env"],
    Kind.PATH_NAME: ["a.txt", "/etc/passwd"],
    Kind.FILE_LIST: ["list", "/etc/passwd"],
    Kind.DATE: ["yesterday"],
}


def rank(command: str, *args: str) -> int:
    call = {"command": command, "args": list(args)}
    return RANKS[GATE.judge("execute_command", call, workspace=WORKSPACE).verdict.level.value]


def short_flags(table: CommandTable) -> list[str]:
    return [n for n, o in table.options.items() if len(n) == 2 and o.kind is None and not n[1].isdigit()]


def with_values(table: CommandTable, *, long: bool) -> list[Option]:
    return [
        option
        for name, option in table.options.items()
        if option.kind in VALUES and not option.glued_only and (name.startswith("--") if long else len(name) == 2)
    ]


readers = st.sampled_from(READERS)


@CALM
@given(command=readers, data=st.data())
def test_clustered_and_separate_flags_mean_the_same(command: str, data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.sampled_from(short_flags(TABLES[command]) or ["-u"]), min_size=1, max_size=5))
    cluster = "-" + "".join(flag[1] for flag in flags)
    assert rank(command, cluster) == rank(command, *flags)


@CALM
@given(command=readers, data=st.data())
def test_glued_and_separate_values_mean_the_same(command: str, data: st.DataObject) -> None:
    table = TABLES[command]
    options = with_values(table, long=False)
    if not options:
        return
    option = data.draw(st.sampled_from(options))
    assert option.kind is not None
    value = data.draw(st.sampled_from(VALUES[option.kind]))
    flags = data.draw(st.lists(st.sampled_from(short_flags(table) or ["-u"]), max_size=3))
    cluster = "-" + "".join(flag[1] for flag in flags) + option.name[1]
    separate = rank(command, *flags, option.name, value)
    assert rank(command, cluster, value) == separate
    assert rank(command, cluster + value) == separate


@CALM
@given(command=readers, data=st.data())
def test_long_values_mean_the_same_with_and_without_an_equals_sign(command: str, data: st.DataObject) -> None:
    options = with_values(TABLES[command], long=True)
    if not options:
        return
    option = data.draw(st.sampled_from(options))
    assert option.kind is not None
    value = data.draw(st.sampled_from(VALUES[option.kind]))
    assert rank(command, f"{option.name}={value}") == rank(command, option.name, value)


@settings(CALM, max_examples=200)
@given(command=st.sampled_from([name for name, table in TABLES.items() if table.long_names]), data=st.data())
def test_abbreviation_is_never_low_and_never_softer_than_the_full_name(command: str, data: st.DataObject) -> None:
    table = TABLES[command]
    if table.style in (Style.ECHO, Style.FIND) or command not in GATE.rules.allowed_commands:
        return
    name = data.draw(st.sampled_from(table.long_names))
    cut = data.draw(st.integers(min_value=3, max_value=len(name)))
    short = name[:cut]
    if short in table.options or table.options[name].stops:
        return
    option = table.options[name]
    value = data.draw(st.sampled_from(VALUES.get(option.kind, ["x"]))) if option.kind else None
    suffix = f"={value}" if value is not None else ""
    assert rank(command, short + suffix) >= max(1, rank(command, name + suffix))


@CALM
@given(
    command=st.sampled_from([*READERS, "find", "pwd", "whoami", "git", "npm", "tar", "gcc", "node", "python"]),
    data=st.data(),
)
def test_unknown_option_is_never_low(command: str, data: st.DataObject) -> None:
    word = data.draw(st.from_regex(r"[a-z]{3,12}", fullmatch=True))
    option = data.draw(st.sampled_from([f"--zz{word}", f"-%{word}", f"--zz{word}=x"]))
    position = data.draw(st.booleans())
    assert rank(command, *([option, "a"] if position else ["a", option])) >= 1


@pytest.mark.parametrize("command", ["grep", "ls", "cat", "head", "tail", "wc", "find", "python", "node", "zip"])
@settings(CALM, max_examples=30)
@given(
    outside=st.sampled_from(["/etc/passwd", "../x", "a/../../x", "/", "//x", "~/x", "/home/user/ws2/x"]), data=st.data()
)
def test_operand_outside_is_refused_wherever_it_stands(command: str, outside: str, data: st.DataObject) -> None:
    before = data.draw(st.lists(st.sampled_from(["a", "b.py", "src/x"]), min_size=1, max_size=3))
    after = data.draw(st.lists(st.sampled_from(["a", "b.py"]), max_size=2))
    ends = data.draw(st.sampled_from([[], ["--"]]))
    assert rank(command, *before, *ends, outside, *after) == 3


@pytest.mark.parametrize(
    ("argv", "floor"), FLOORS, ids=[" ".join(argv)[:60].encode("unicode_escape").decode() for argv, _ in FLOORS]
)
def test_further_arguments_never_soften_a_verdict(argv: list[str], floor: int) -> None:
    command, *args = argv
    assert rank(command, *args, "extra") >= floor
    assert rank(command, *args, "--") >= floor
    assert rank(command, *args, *args) >= floor
    if args and not args[-1].startswith("-") and command not in ("find", "echo", "git"):
        assert rank(command, *args[:-1], "--", args[-1]) >= floor


TOKENS = st.sampled_from(
    [
        *sorted({name for table in TABLES.values() for name in table.options}),
        "--",
        "-",
        "",
        "a",
        "../x",
        "/etc",
        ";",
        "+",
        "(",
    ]
) | st.text(max_size=6)


@settings(CALM, max_examples=200)
@given(command=st.sampled_from(sorted(GATE.rules.allowed_commands)), args=st.lists(TOKENS, max_size=6))
def test_any_arguments_get_a_verdict_that_is_not_a_fault(command: str, args: list[str]) -> None:
    verdict = GATE.judge("execute_command", {"command": command, "args": args}).verdict
    assert verdict.findings[0].rule != "gate.fault"
    if "../x" in args and command not in ("echo", "grep", "git", "npm", "locate", "python", "node", "find"):
        assert verdict.level != "LOW"


def judged(gate: Gate, line: Line) -> int:
    call = {"command": line[0], "args": list(line[1:])}
    return RANKS[gate.judge("execute_command", call, workspace=WORKSPACE).verdict.level.value]


def examples_of(table: CommandTable) -> Iterator[tuple[Line, int]]:
    for level, some in table.match.items():
        yield from ((tuple(shlex.split(line)), RANKS[level]) for line in some)
    for sub in table.subs.values():
        yield from examples_of(sub)


def floored_lines() -> Iterator[tuple[Gate, Line, int]]:
    """Every line we know, with the level that it may not fall below and the gate that says so."""
    yield from ((GATE, tuple(argv), floor) for argv, floor in FLOORS if argv)
    for name, some in tomllib.loads(FOLDER.joinpath("lines.toml").read_text()).items():
        yield from ((GATE, tuple(shlex.split(line)), RANKS[name.upper()]) for line in some)
    for table in TABLES.values():
        yield from ((OPEN_GATE, line, floor) for line, floor in examples_of(table))


def table_of(command: str) -> CommandTable | None:
    return TABLES.get("python" if command == "python3" else command)


def known_lines() -> Iterator[tuple[Gate, CommandTable, Line, int]]:
    """Those of a command with a table that can be read at all: one word more may make a half line whole."""
    for gate, line, floor in floored_lines():
        table = table_of(line[0])
        call = {"command": line[0], "args": list(line[1:])}
        found = gate.judge("execute_command", call, workspace=WORKSPACE).verdict.findings
        if table is not None and not any(finding.rule.endswith((".syntax", ".operands")) for finding in found):
            yield gate, table, line, floor


def disagreement(table: CommandTable, args: Line) -> str | None:
    """What libc finds in a line that the gate called LOW."""
    return objection(table, args, WORKSPACE) if readable(table, args) else None


def test_another_spelling_of_any_known_line_never_falls_below_its_floor() -> None:
    softer: list[str] = []
    for gate, table, line, floor in known_lines():
        for what, args in variants(table, line[1:], seed=1):
            got = judged(gate, (line[0], *args))
            least = max(floor, 1) if what == "abbreviated" else floor
            if got < least or (got == 0 and disagreement(table, args)):
                softer.append(f"{shlex.join(line)} {what}: {shlex.join(args)}")
    assert softer == []


def test_dashes_anywhere_in_any_known_line_never_hide_what_it_does() -> None:
    """Behind `--` an option is a name, and may well be harmless; then libc has to agree."""
    softer: list[str] = []
    for gate, table, line, floor in known_lines():
        for means_the_same, args in with_dashes(table, line[1:]):
            got = judged(gate, (line[0], *args))
            follows = table.plus_follows and line[1].startswith("+")  # old tail only reads `+1f` as its first word
            if (means_the_same and not follows and got < floor) or (got == 0 and disagreement(table, args)):
                softer.append(f"{shlex.join(line)}: {shlex.join(args)}")
    assert softer == []


@pytest.mark.parametrize("seed", [1, 2])
def test_what_the_gate_calls_low_is_harmless_as_libc_reads_it(seed: int) -> None:
    tables = {name: table for name, table in TABLES.items() if table.level == "LOW"}
    known = [line for _, line, _ in floored_lines()]
    low = 0
    for raw in itertools.islice(lines(tables, known, seed), 5000):
        line = tuple(word.replace("{WS}", WORKSPACE).replace("{OUT}", "/home/user/outside") for word in raw)
        table = tables[line[0]]
        if judged(OPEN_GATE, line) == 0:
            low += 1
            assert disagreement(table, line[1:]) is None, line
    assert low > 1000


def risky_letters(table: CommandTable, words: Line) -> Iterator[tuple[Line, str, Line]]:
    """(command and subcommand, a letter that is not harmless, its value) of a table and those under it."""
    if table.style in (Style.GNU, Style.TAR):
        for name, option in table.options.items():
            if len(name) == 2 and option.level != "LOW" and not option.stops:
                takes = option.kind is not None and not option.glued_only
                yield words, name[1], ("./x",) if takes else ()
    for name, sub in table.subs.items():
        yield from risky_letters(sub, (*words, name))


def test_unknown_option_hides_nothing_behind_it() -> None:
    """The tables do not have every option there is: behind a letter that they lack, the others of its cluster still
    count, and `--` may be the value of an option that they lack."""
    softer: list[str] = []
    for name, table in TABLES.items():
        for words, letter, value in risky_letters(table, (name,)):
            known = judged(OPEN_GATE, (*words, f"-{letter}", *value, "a"))
            for hidden in ((f"-%{letter}",), (f"-%%{letter}",), ("--zz", "--", f"-{letter}")):
                if judged(OPEN_GATE, (*words, *hidden, *value, "a")) < known:
                    softer.append(shlex.join((*words, *hidden, *value)))
    assert softer == []


def lacking_lines() -> Iterator[Line]:
    """An option that needs a value, as the last word; a flag that is given one."""
    for name, table in TABLES.items():
        if table.style is not Style.GNU or table.level == "REFUSE":
            continue
        for spelled, option in table.options.items():
            if option.kind is not None and not option.glued_only:
                yield (name, spelled)
            elif option.kind is None and spelled.startswith("--"):
                yield (name, f"{spelled}=x")


def test_line_that_the_command_itself_could_not_read_is_refused() -> None:
    unreadable = list(lacking_lines())
    assert len(unreadable) > 500
    assert [line for line in unreadable if judged(OPEN_GATE, line) != 3] == []


def test_verdict_depends_on_the_call_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = [line for _, line, _ in floored_lines()]
    calls = [{"command": line[0], "args": list(line[1:])} for line in known]
    before = [OPEN_GATE.judge("execute_command", call, workspace=WORKSPACE) for call in calls]
    (tmp_path / "-delete").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "PATH", "TZ", "GREP_OPTIONS", "POSIXLY_CORRECT", "LC_ALL"):
        monkeypatch.setenv(name, os.sep)
    again = Gate(GateRules(allowed_commands=frozenset(TABLES)))
    after = [again.judge("execute_command", call, workspace=WORKSPACE) for call in reversed(calls)]
    assert before == after[::-1]
    assert calls == [{"command": line[0], "args": list(line[1:])} for line in known]
