"""The command tables: checked when they load, and what they say of commands that a configuration turns on."""

import os
import shlex
import subprocess
import sys

import pytest

from byleave.gate import DEFAULT_COMMANDS, CommandValidator, Gate, GateRules
from byleave.gate.commands import validator as commands_module
from byleave.gate.commands.arguments import read_script
from byleave.gate.commands.tables import TableError, Tables, load_tables, read_tables
from byleave.protocol.verdicts import Verdict

pytestmark = pytest.mark.promise("G2", "G3")

WORKSPACE = "/home/user/ws"
READING = frozenset(("sed", "sort", "diff", "cut", "uniq", "tr", "stat", "file", "tree", "du"))
CHANGING = frozenset(("mkdir", "touch", "cp", "mv", "rm"))
BUILDING = frozenset(("pytest", "make", "cargo", "go", "pip"))
NETWORK = frozenset(("curl", "wget"))
TURNED_ON = READING | CHANGING | BUILDING | NETWORK
GATE = Gate(GateRules(allowed_commands=DEFAULT_COMMANDS | TURNED_ON))


def judge(line: str) -> Verdict:
    command, *args = shlex.split(line)
    return GATE.judge("execute_command", {"command": command, "args": args}, workspace=WORKSPACE).verdict


def table_of(body: str) -> str:
    return f'[x]\ndoes = "does something"\nlevel = "LOW"\n{body}'


# Turning on


def test_commands_teams_turn_on_first_are_off_until_named() -> None:
    gate = Gate()
    assert TURNED_ON.isdisjoint(DEFAULT_COMMANDS)
    for name in TURNED_ON:
        verdict = gate.judge("execute_command", {"command": name, "args": ["a"]}).verdict
        assert verdict.findings[0].reason == f"Command not allowed: {name}"


def test_each_of_them_has_a_table_with_examples_of_its_own() -> None:
    tables = load_tables()
    for name in TURNED_ON:
        assert tables[name].match, name
        assert sum(map(len, tables[name].match.values())) >= 6, name


@pytest.mark.parametrize("name", sorted(TURNED_ON - READING))
def test_command_that_does_more_than_read_is_never_low(name: str) -> None:
    assert load_tables()[name].level != "LOW"
    assert judge(f"{name} a.py b.py").level != "LOW"
    assert judge(f"{name} --version").level != "LOW"


@pytest.mark.parametrize("name", sorted(NETWORK))
def test_fetching_is_high_and_says_that_it_needs_the_network(name: str) -> None:
    verdict = judge(f"{name} https://example.org/a")
    assert verdict.level == "HIGH"
    assert verdict.network


def test_command_without_a_table_stays_high_whatever_its_arguments() -> None:
    gate = Gate(GateRules(allowed_commands=frozenset({"terraform"})))
    assert gate.judge("execute_command", {"command": "terraform", "args": ["plan"]}).verdict.level == "HIGH"
    assert gate.judge("execute_command", {"command": "terraform", "args": ["-chdir=/etc"]}).verdict.refused


# Everyday lines of the commands that were turned on


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sed -n '114,140p' django/views/static.py", "LOW"),
        ("sed -n 2067,2120p /home/user/ws/query.py", "LOW"),
        ("sed -n '/^class /,/^def /p' a.py", "LOW"),
        ("sed -i 's/a/b/' a.py", "HIGH"),
        ("sed -i 's/a/b/' package.json", "HIGH"),
        ("sort -u words.txt", "LOW"),
        ("diff -u a.py.backup a.py", "LOW"),
        ("cut -c1-400 log.txt", "LOW"),
        ("uniq -c names.txt", "LOW"),
        ("tr -d ' '", "LOW"),
        ("stat -c %s a.py", "LOW"),
        ("file bin/x", "LOW"),
        ("tree -L 2 -I node_modules", "LOW"),
        ("du -sh .", "LOW"),
        ("mkdir -p src/project", "MEDIUM"),
        ("touch src/__init__.py", "MEDIUM"),
        ("cp a.py b.py", "MEDIUM"),
        ("cp a.py a.py.backup", "HIGH"),
        ("mv main-new.ts main.ts", "MEDIUM"),
        ("mv changelog.ts config.ts utils/", "MEDIUM"),
        ("rm reproduce.py", "HIGH"),
        ("rm -f test_default.sqlite3 other.sqlite3", "HIGH"),
        ("rm -rf build", "REFUSE"),
        ("pip install -e .[dev]", "MEDIUM"),
        ("pip install pytz -q", "MEDIUM"),
        ("pytest tests/test_a.py -x -q", "MEDIUM"),
        ("go build ./...", "MEDIUM"),
        ("go test ./pkg/cmd/", "MEDIUM"),
        ("go build -o specstory .", "HIGH"),
        ("cargo test --all-features", "MEDIUM"),
        ("make", "HIGH"),
        ("make -n build", "HIGH"),
        ("curl -s -o /dev/null -w '%{http_code}' https://example.org/api", "HIGH"),
        ("rm /home/user/ws", "REFUSE"),
        ("rm /home/user/ws/", "REFUSE"),
        ("mv /home/user/ws x", "REFUSE"),
        ("cp /home/user/ws/a.py /home/user/ws/b.py", "MEDIUM"),
        ("cp a.py", "MEDIUM"),
        ("cp", "HIGH"),
        ("mv -t utils", "HIGH"),
        ("cp .env notes.txt", "MEDIUM"),
        ("mv .env notes.txt", "HIGH"),
        ("mv -% a.py b.py", "MEDIUM"),
        ("cp -%t .git/hooks a.py b.py", "REFUSE"),
        ("make CC=gcc", "HIGH"),
        ("pip install 'x @ ../y'", "REFUSE"),
        ("sort --zz -- -o", "MEDIUM"),
        ("sort --zz -- -o out", "HIGH"),
        ("touch -d 'TZ=\"/etc/passwd\" now' a.py", "REFUSE"),
        ("sed -e p a --zz -- -n", "MEDIUM"),
        ("cut -d : -f 1 a --zz -- -f", "MEDIUM"),
    ],
)
def test_line_of_a_turned_on_command_has_its_level(line: str, expected: str) -> None:
    verdict = judge(line)
    assert verdict.level.value == expected, verdict.reasons


@pytest.mark.promise("G7")
@pytest.mark.parametrize(
    "line",
    [
        "rm a.py",
        "mv .env a.txt",
        "cp .env a.txt",
        "cp x.json .vscode/settings.json",
        "cp x/package.json .",
        "touch conftest.py",
        "curl -d a=b https://example.org",
        "curl -k https://example.org",
        "wget https://example.org/x",
        "pip install git+https://example.org/x",
        "pip install --index-url https://example.org x",
        "cargo publish",
        "go install example.org/x@latest",
        "pytest --basetemp=out",
    ],
)
def test_what_a_turned_on_command_cannot_take_back_is_asked_in_full_mode_too(line: str) -> None:
    assert judge(line).always_asks


@pytest.mark.parametrize(
    ("line", "network"),
    [
        ("pip install x", True),
        ("pip list", False),
        ("python -m pip index versions x", True),
        ("python -m pip freeze", False),
        ("cargo add serde", True),
        ("cargo test", False),
        ("go mod tidy", True),
        ("go test ./...", False),
        ("git push https://example.org/r.git main", True),
    ],
)
def test_network_need_of_a_turned_on_command_is_known(line: str, network: bool) -> None:
    assert judge(line).network is network


def test_python_reads_the_arguments_of_pip_and_pytest_by_their_own_tables() -> None:
    assert judge("python -m pip install --index-url https://example.org x").level == "HIGH"
    assert judge("python -m pip install x").level == "MEDIUM"
    assert judge("python -m pytest -p no:cacheprovider").level == "MEDIUM"
    assert judge("python -m pytest -p evil").level == "HIGH"
    assert judge("python -m pytest -k").refused


# sed


@pytest.mark.parametrize(
    "script",
    [
        "1,20p",
        "10,40p;40q",
        "$p",
        "$!d",
        "/a/,/b/p",
        "/a/I,+3p",
        r"\,a,p",
        "0~4p",
        "s/a/b/",
        "s/a/b/gI2p",
        "s|/x|/y|g",
        r"s/\//x/",
        "s/[^]x]/y/",
        "s/[[:space:]]$//",
        "y/abc/xyz/",
        r"y/a\/b/c\d/",
        r"s/[a\]]/x/",
        "/[^]x]/d",
        "/x/{s/a/b/;p}",
        "p # shown",
        "",
        "q5",
        "l 80",
        "1!G;h;$!d",
    ],
)
def test_plain_sed_script_is_understood(script: str) -> None:
    found = read_script(script)
    assert found.readable
    assert found.certain
    assert not found.runs


@pytest.mark.parametrize(
    "script", ["e", "e id", "1e id", "/x/e id", "s/a/b/e", "s/a/b/ge", "p;e id", "{p;e id\n}", "1,5!e"]
)
def test_sed_script_that_runs_a_program_is_seen(script: str) -> None:
    assert read_script(script).runs


@pytest.mark.parametrize(
    "script",
    [
        "s/[/]/x/",
        "s/[^/]/x/w wrote",
        "s/[]/]/x/",
        "s/[^]/]/x/",
        "/[/]/d",
        "s/[[.a.]/x/",
        "s/[[:/:]]/x/",
        "s/a/b",
        "s/a",
        "s",
        "k",
        "s/a\nb/c/",
        "s/a/b\nc/",
        "sxaxbx",
        "s/a/b/z",
        "1,",
        "p p",
        "/a",
        "y/a",
        "y/a/",
        "a\\text",
        "a\\\ntext",
        "s/[[:x/b/c/",
        "s/\\\n/x/",
        "1",
    ],
)
def test_sed_script_that_cannot_be_read_for_sure_is_not_called_harmless(script: str) -> None:
    assert not read_script(script).readable


@pytest.mark.parametrize("script", ["i hello", ":a;N;ba", "F", "v", "bx;p", "w /dev/stdout", "r a", "s/a/b/w x"])
def test_sed_script_that_does_more_than_show_lines_is_doubtful(script: str) -> None:
    found = read_script(script)
    assert not found.certain


def test_files_named_in_a_sed_script_are_found() -> None:
    assert read_script("s/a/b/w out.txt").writes == ["out.txt"]
    assert read_script("/x/w a;b\nR c").writes == ["a;b"]
    assert read_script("/x/w a;b\nR c").reads == ["c"]
    assert read_script("W ../x").writes == ["../x"]


# Loading


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('optoins = "-a"', "'optoins' is not a word of the tables"),
        ('[x.takes]\nnumbr = "-a"', "'numbr' is not a valid Kind"),
        ('[[x.risky]]\noptions = "-a"\nlevl = "HIGH"', "'levl' is not a word of the tables"),
        ('[[x.risky]]\nlevel = "HIGH"', "'options' is missing"),
        ('[[x.risky]]\noptions = "-a"\nlevel = "HIHG"', "'HIHG' is not a valid VerdictLevel"),
        ('flags = "-a"\n[x.takes]\ntext = "-a"', "-a stands there twice"),
        ('flags = "a"', "'a' is not an option"),
        ('operands = ["file*"]', "'file' is not a valid Kind"),
        ('style = "gnuu"', "'gnuu' is not a valid Style"),
        ('[x.match]\nLOWW = ["x"]', "'LOWW' is not a valid VerdictLevel"),
        ('uses = ["y"]', "'y' is missing"),
        ('never = "("', "missing )"),
        ('[x.subs.y]\nflagz = "-a"', "'flagz' is not a word of the tables"),
        ("flags = ", "Invalid value"),
    ],
)
def test_table_with_a_slip_of_the_pen_is_an_error_that_names_file_and_command(body: str, said: str) -> None:
    with pytest.raises(TableError) as error:
        read_tables(table_of(body), "mine.toml")
    assert str(error.value).startswith("mine.toml: ")
    assert said in str(error.value)


def test_two_tables_for_one_command_are_an_error() -> None:
    with pytest.raises(TableError, match=r"b\.toml: \[x\] has a table in a\.toml already"):
        Tables({"a.toml": table_of(""), "b.toml": table_of("")})


def test_file_is_read_when_its_first_command_is_asked_for() -> None:
    tables = Tables({"a.toml": table_of(""), "b.toml": "[y]\nflagz = 1"})
    assert tables["x"].level == "LOW"
    assert list(tables) == ["x", "y"]
    assert len(tables) == 2
    assert "y" in tables
    with pytest.raises(TableError, match=r"b\.toml: \[y\]"):
        tables["y"]
    assert tables.get("z") is None


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ('[x.match]\nREFUSE = ["x a"]', r"mine\.toml: \[x\]: x a: LOW, not REFUSE"),
        ('[x.not_match]\nLOW = ["x a"]', r"mine\.toml: \[x\]: x a: LOW"),
        ('[x.match]\nLOW = ["y a"]', r"mine\.toml: \[x\]: y a: an example of y, not LOW"),
    ],
)
def test_wrong_example_stops_the_server(example: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables({"mine.toml": table_of(f'operands = ["text*"]\n{example}')})
    monkeypatch.setattr(commands_module, "load_tables", lambda: tables)
    validator = CommandValidator(frozenset({"x"}))
    with pytest.raises(TableError, match=said):
        validator.check()


def test_right_examples_let_a_new_command_be_turned_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables({"mine.toml": table_of('operands = ["path-read*"]\nflags = "-a"\n[x.match]\nLOW = ["x -a b"]')})
    monkeypatch.setattr(commands_module, "load_tables", lambda: tables)
    validator = CommandValidator(frozenset({"x"}))
    validator.check()
    assert validator.judge("x", ["-a", "b"]).findings[0].level == "LOW"
    assert any(finding.level == "REFUSE" for finding in validator.judge("x", ["/etc/passwd"]).findings)


def test_every_packaged_table_comes_out_as_its_examples_say() -> None:
    assert GATE.self_check() == []


def test_only_the_files_that_are_needed_are_read() -> None:
    code = (
        "from byleave.gate import Gate; Gate().judge('execute_command', {'command': 'git', 'args': ['status']})\n"
        "from byleave.gate.commands.tables import load_tables\n"
        "print(*sorted(load_tables()._read))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    read = set(run.stdout.split())
    assert "git" in read
    assert "curl" not in read
    assert "cargo" not in read
