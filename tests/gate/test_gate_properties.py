"""Properties of the gate: other spellings of the same thing never get a softer verdict."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assent.gate import Gate
from assent.gate.tables import CommandTable, Kind, Option, Style

pytestmark = pytest.mark.promise("G3", "S")

WORKSPACE = "/home/user/ws"
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine is slow; that says nothing about the gate."""
GATE = Gate()
TABLES = GATE.commands.tables
RANKS = {"LOW": 0, "NOT_LOW": 1, "MEDIUM": 1, "HIGH": 2, "REFUSE": 3}
READERS = ("grep", "ls", "cat", "head", "tail", "wc", "date")
CASES: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("cases").joinpath("commands.jsonl").read_text().splitlines()
]
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
