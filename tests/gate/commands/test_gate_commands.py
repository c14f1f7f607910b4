"""Command lines: the labelled corpus, the tables' own examples, and shapes the corpus does not have."""

import json
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from byleave.gate import DEFAULT_COMMANDS, CommandValidator, Gate, GateRules, understand
from byleave.protocol.tools import MAX_ARGUMENT_BYTES, MAX_ARGUMENTS
from byleave.protocol.verdicts import Verdict
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("G2", "G3", "G5")

WORKSPACE = "/home/user/ws"
GATE = Gate()
RANKS = {"LOW": 0, "NOT_LOW": 1, "MEDIUM": 1, "HIGH": 2, "REFUSE": 3}
FOLDER = Path(__file__).parents[1] / "cases"
CASES: list[JsonObject] = [json.loads(line) for line in (FOLDER / "commands.jsonl").read_text().splitlines()]
NEEDS_A_DISK = {"grep-020", "read-048", "read-060"}
"""Links and pipes: no spelling tells them; the workspace refuses them when it resolves the operand."""


def judge(argv: list[str], **options: bool) -> Verdict:
    call = {"command": argv[0], "args": argv[1:]}
    return GATE.judge("execute_command", call, workspace=WORKSPACE, **options).verdict


def level(line: str) -> str:
    return judge(shlex.split(line)).level.value


def argv_of(case: JsonObject) -> list[str]:
    return [arg.replace("{WS}", WORKSPACE) for arg in case["argv"]]


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in CASES if case["id"] not in NEEDS_A_DISK]
)
def test_labelled_line_is_never_below_its_floor(case: JsonObject) -> None:
    floor = case.get("floor", case["expect"])
    assert RANKS[judge(argv_of(case)).level.value] >= RANKS[floor], case["why"]


def test_everyday_lines_are_not_rated_above_what_they_deserve() -> None:
    everyday = [case for case in CASES if case["id"].startswith("ok-")]
    above = [c["id"] for c in everyday if RANKS[judge(argv_of(c)).level.value] > RANKS[c["expect"]]]
    assert len(above) <= 0.03 * len(everyday), above


def lines_of(name: str) -> dict[str, list[str]]:
    return tomllib.loads((FOLDER / name).read_text("utf-8"))


LINES = lines_of("lines.toml")
TWINS = lines_of("twins.toml")
"""Other spellings of the ideas in the labelled corpus."""


@pytest.mark.parametrize("line", [*LINES["refuse"], *TWINS["refuse"]])
def test_attack_is_refused(line: str) -> None:
    assert level(line) == "REFUSE"


@pytest.mark.parametrize("line", [*LINES["not_low"], *TWINS["not_low"]])
def test_doubtful_line_asks(line: str) -> None:
    assert level(line) != "LOW"


@pytest.mark.parametrize("line", TWINS["high"])
def test_line_that_changes_what_others_see_or_run_is_at_least_high(line: str) -> None:
    assert level(line) in ("HIGH", "REFUSE")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        *((line, name.upper()) for name in ("low", "medium", "high") for line in LINES[name]),
        *((line, "LOW") for line in TWINS["low"]),
    ],
)
def test_everyday_line_has_its_level(line: str, expected: str) -> None:
    assert level(line) == expected, judge(shlex.split(line)).reasons


def test_every_example_in_the_tables_comes_out_as_written() -> None:
    assert GATE.self_check() == []


def test_every_default_command_has_a_table_with_examples() -> None:
    tables = CommandValidator().tables
    for name in DEFAULT_COMMANDS - {"python3"}:
        assert tables[name].match, name


def test_a_wrong_example_is_reported() -> None:
    validator = CommandValidator()
    table = replace(validator.tables["ls"], match={"REFUSE": ("ls",)}, not_match={"LOW": ("ls -l",)})
    validator.tables = {"ls": table}
    assert validator.self_check() == ["ls: LOW, not REFUSE", "ls -l: LOW"]


@pytest.mark.parametrize(
    "line",
    [
        "grep -c x a.py",
        "grep -rnw --include=*.ts foo src lib",
        "grep -E -o [0-9]+ a.txt",
        "grep -A 3 -B2 x a.txt",
        "grep -C5 x a.txt",
        "grep --context=3 x a.txt",
        "grep -lr x .",
        "grep -rL x src --exclude-dir .git --exclude=*.min.js",
        "grep -P (?<=x)y a.txt",
        "grep -e a -e b src/a.py",
        "grep --max-count=1 x a",
        "grep -- -x a.txt",
        "grep -iHn --color=always x a",
        "grep -rn x",
        "grep -hs x a b",
        "grep --binary-files=without-match -r x .",
        "find . -maxdepth 2 -type d",
        "find src tests -iname *test* -not -path */node_modules/*",
        "find . -mtime +7 -size +100k -ls",
        "find . -type f -empty",
        "find . -regex .*/x.py -regextype posix-extended",
        "find . -perm -u+x -type f",
        "find . -newermt 2024-01-01",
        "find -name x",
        "find . -type f -printf '%s %p\\n'",
        "find . -mmin -60 -print",
        "find . -name *.py -o -name *.pyi -prune -false",
        "ls -lah --sort=size src",
        "ls -ltr",
        "ls -R .",
        "ls --group-directories-first -1 src tests",
        "ls -d src",
        "ls -laF --full-time",
        "cat -A a.txt",
        "cat README.md",
        "cat -- -n",
        "cat ./$id.tsx",
        "head a.txt",
        "head -n -5 a.txt",
        "head -qn 3 a b",
        "head --bytes=10 a",
        "tail -n 20 a.log",
        "tail -20 a.log",
        "tail --lines=+5 a.log",
        "wc -l a b c",
        "wc --chars a",
        "echo hello world",
        "echo -e a\\nb",
        "echo $(id) `id` ; id",
        "date",
        "date -u +%s",
        "date -d '2 days ago' +%F",
        "date --date=@0 --iso-8601=seconds",
        "date -R",
        "pwd",
        "pwd -L",
        "whoami",
        "ls /home/user/ws",
        "cat /home/user/ws/src/a.py",
    ],
)
def test_harmless_line_is_low(line: str) -> None:
    assert level(line) == "LOW", judge(shlex.split(line)).reasons


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # links, devices and pipes
        ("grep -rR x .", "LOW"),
        ("grep -nR x .", "LOW"),
        ("grep --devices=read x a", "MEDIUM"),
        ("ls -lL", "MEDIUM"),
        ("ls --dereference", "MEDIUM"),
        ("find -L . -name x", "HIGH"),
        ("find . -type f -follow", "HIGH"),
        # secrets by name
        ("cat config/.env.production", "MEDIUM"),
        ("head -5 server.pem", "MEDIUM"),
        ("grep -i x .aws/credentials", "MEDIUM"),
        ("tail -3 id_ed25519", "MEDIUM"),
        ("grep -f .env a.txt", "MEDIUM"),
        ("cat .env.example", "LOW"),
        ("cat id_rsa.pub", "LOW"),
        ("cat src/secrets.py", "LOW"),
        ("ls .env", "LOW"),
        # unknown, abbreviated, odd
        ("ls -j", "MEDIUM"),
        ("grep -rnQ x .", "MEDIUM"),
        ("cat --number-non a", "MEDIUM"),
        ("wc -z a", "MEDIUM"),
        ("echo a\x1b[2Jb", "MEDIUM"),
        ("find . -nam x", "MEDIUM"),
        ("head -n ten a", "MEDIUM"),
        ("ls --color=a/b", "MEDIUM"),
        # refused values
        ("grep --exclude-fr=/etc/passwd x .", "REFUSE"),
        ("grep --exclude-from ../x y .", "REFUSE"),
        ("grep x a -f /etc/shadow", "REFUSE"),
        ("grep -rnf ../x .", "REFUSE"),
        ("grep --unheard x /etc/passwd", "REFUSE"),
        ("grep --unheard /etc/passwd", "REFUSE"),
        ("ls --unheard=/etc", "REFUSE"),
        ("cat a.py\n/etc/passwd", "REFUSE"),
        ("cat C:\\x", "REFUSE"),
        ("cat ${HOME}/x", "REFUSE"),
        ("cat a --", "LOW"),
        ("wc -l -- /etc/passwd", "REFUSE"),
        ("date -r /etc/passwd", "REFUSE"),
        ("date --set=x", "REFUSE"),
        ("date -d x -s y", "REFUSE"),
        ("tail -F a", "REFUSE"),
        ("tail -n5f a", "LOW"),
        ("tail -vf a", "REFUSE"),
        ("tail --follow=name a", "REFUSE"),
        ("tail --retry a", "REFUSE"),
        ("find . -okdir id ;", "REFUSE"),
        ("find . -exec", "REFUSE"),
        ("find . -fprintf x", "HIGH"),
        ("find . -fprintf .byleave/x y", "REFUSE"),
        ("find . -files0-from -", "REFUSE"),
        ("find /home/user/ws-evil", "REFUSE"),
        ("find . -newerXZ /etc/passwd", "REFUSE"),
        ("find . -O3 -name x", "LOW"),
        ("find . -samefile ../x", "REFUSE"),
        ("find ( -name x ) /etc", "REFUSE"),
        # git
        ("git", "MEDIUM"),
        ("git status -sb", "MEDIUM"),
        ("git log -n 5 --author=x --format=%H", "MEDIUM"),
        ("git show HEAD:src/a.py", "MEDIUM"),
        ("git diff HEAD..main -- src", "MEDIUM"),
        ("git commit -qm 'x' -m '/etc'", "MEDIUM"),
        ("git checkout -- src/a.py", "MEDIUM"),
        ("git stash pop", "MEDIUM"),
        ("git remote get-url origin", "MEDIUM"),
        ("git config --list", "MEDIUM"),
        ("git config get user.name", "MEDIUM"),
        ("git config set alias.x y", "HIGH"),
        ("git config --unset user.name", "HIGH"),
        ("git config --edit", "REFUSE"),
        ("git frobnicate /etc/x", "REFUSE"),
        ("git -c user.name=x commit -m y", "MEDIUM"),
        ("git -c core.sshCommand=x fetch", "REFUSE"),
        ("git -calias.x=!id x", "REFUSE"),
        ("git checkout --force main", "HIGH"),
        ("git push --delete origin x", "HIGH"),
        ("git push --force-with-lease", "HIGH"),
        ("git fetch origin main", "MEDIUM"),
        ("git fetch origin pull/12/head:pr-12", "MEDIUM"),
        ("git fetch origin +refs/heads/*:refs/remotes/origin/*", "MEDIUM"),
        ("git fetch origin +main:feat", "HIGH"),
        ("git fetch -u origin main:main", "HIGH"),
        ("git fetch . refs/heads/x:refs/replace/abc", "HIGH"),
        ("git symbolic-ref HEAD", "MEDIUM"),
        ("git symbolic-ref refs/replace/abc refs/heads/x", "HIGH"),
        ("git fetch --prune . refs/heads/zzz*:refs/heads/*", "HIGH"),
        ("git fetch --refmap=+refs/heads/*:refs/heads/* origin", "HIGH"),
        ("git pull --prune origin +refs/heads/*:refs/heads/*", "HIGH"),
        ("git reflog expire --all", "HIGH"),
        ("git difftool", "REFUSE"),
        ("git clone git@example.org:a/b.git", "MEDIUM"),
        ("git clone https://example.org/a.git ../b", "REFUSE"),
        ("git clone -u ./x https://example.org/a.git", "REFUSE"),
        ("git archive --remote=ext::id HEAD", "REFUSE"),
        ("git archive --exec=./x --remote=r HEAD", "REFUSE"),
        ("git bundle create ../x HEAD", "REFUSE"),
        ("git apply --unsafe-paths x.patch", "REFUSE"),
        ("git apply --directory=../x x.patch", "REFUSE"),
        ("git diff --no-index a ../b", "REFUSE"),
        ("git format-patch -o ../x HEAD~1", "REFUSE"),
        ("git log --outp=../x", "REFUSE"),
        ("git grep --open-files", "REFUSE"),
        ("git -C sub status", "MEDIUM"),
        ("git --git-dir=/x status", "REFUSE"),
        ("git submodule status", "MEDIUM"),
        ("git commit -F.git/x", "MEDIUM"),
        # npm
        ("npm", "MEDIUM"),
        ("npm --unheard test exec id", "REFUSE"),
        ("npm --json ls", "MEDIUM"),
        ("npm i -D a b", "MEDIUM"),
        ("npm run build --workspace=../x", "REFUSE"),
        ("npm pack --pack-destination=../x", "REFUSE"),
        ("npm install ./local.tgz", "HIGH"),
        ("npm init vite", "HIGH"),
        ("npm config set x y", "HIGH"),
        ("npm install --registry https://example.org a", "HIGH"),
        ("npm test --node-opt=x", "REFUSE"),
        ("npm -c id x", "REFUSE"),
        ("npm audit", "MEDIUM"),
        ("npm --NODE_OPTIONS=x test", "REFUSE"),
        ("npm --no-global ls", "HIGH"),
        ("npm i -f", "HIGH"),
        ("grep --regex x a", "MEDIUM"),
        ("grep --fil /etc/passwd", "REFUSE"),
        ("grep --file", "REFUSE"),
        ("ls --block-size=K", "LOW"),
        # python and node
        ("python -B -m unittest discover -s tests", "MEDIUM"),
        ("python -m pytest tests/test_a.py::test_b -k 'a and b'", "MEDIUM"),
        ("python -OO -c x", "HIGH"),
        ("python -uc x", "HIGH"),
        ("python -- a.py", "MEDIUM"),
        ("python -- /tmp/a.py", "REFUSE"),
        ("python -Q a.py", "MEDIUM"),
        ("python3 -c x", "HIGH"),
        ("python -m webbrowser x", "HIGH"),
        ("python a.py ../x", "REFUSE"),
        ("node --experimental_loader=./x a.js", "HIGH"),
        ("node --unheard a.js", "MEDIUM"),
        ("node -r ./x a.js", "HIGH"),
        ("node --env-file=.env a.js", "MEDIUM"),
        ("node --env-file=/etc/x a.js", "REFUSE"),
        ("node -", "HIGH"),
        ("node --watch a.js", "HIGH"),
        # archives and the compiler
        ("tar -cf a.tar -C .. x", "REFUSE"),
        ("tar --use-comp=id -xf a.tar", "REFUSE"),
        ("tar cf a.tar --checkpoint-action=dot src", "HIGH"),
        ("tar cf a.tar --checkpoint-action=exec=id src", "REFUSE"),
        ("tar xvfz a.tgz", "HIGH"),
        ("tar xq", "HIGH"),
        ("tar --absolute-names -xf a.tar", "REFUSE"),
        ("zip -r9 a.zip .", "HIGH"),
        ("zip -qTTid a.zip b", "REFUSE"),
        ("unzip -p a.zip x", "HIGH"),
        ("gcc -fplugin-arg-x-y=z m.c", "REFUSE"),
        ("gcc -Wl,-plugin,x m.c", "REFUSE"),
        ("gcc -Xlinker -plugin m.c", "REFUSE"),
        ("gcc --sysroot=/x m.c", "REFUSE"),
        ("gcc -l:../x m.c", "REFUSE"),
        ("gcc -qunheard=../x m.c", "REFUSE"),
        ("gcc -### m.c", "HIGH"),
        ("gcc -MMD -MF deps.d -c m.c", "HIGH"),
        ("gcc -o .git/hooks/pre-commit m.c", "REFUSE"),
        ("locate x", "HIGH"),
        # addresses, letters and dashes where few expect them
        ("git clone https::x", "REFUSE"),
        ("git fetch ext::sh", "REFUSE"),
        ("git remote add x ssh::y", "REFUSE"),
        ("git push git+ssh://-x/y", "REFUSE"),
        ("git push -- -x:y", "REFUSE"),
        ("git clone -- -u:x", "REFUSE"),
        ("git clone git@h:x/.byleave.git", "REFUSE"),
        ("find -- . -exec id", "REFUSE"),
        ("npm exe x", "REFUSE"),
        ("python ''", "REFUSE"),
        ("git --unheard -- push --force", "HIGH"),
        ("git log --unheard -- --output=x", "HIGH"),
        ("npm --@scope:registry=https://x ls", "HIGH"),
        ("gcc -unheard=../x a.c", "HIGH"),
        ("tar -xzf a.tgz -- -x", "HIGH"),
        ("tar xQzf a.tgz", "HIGH"),
        ("zip -x=a -r o.zip .", "HIGH"),
        ("zip -qrt1 a.zip b", "HIGH"),
        ("wc --files0-from=a", "HIGH"),
        ("find . ( -name x ) y", "MEDIUM"),
        ("grep -Qe/etc/passwd a", "MEDIUM"),
        ("head -5x a", "MEDIUM"),
        ("ls -éx", "MEDIUM"),
        ("python -m a..b", "MEDIUM"),
        ("python -m a/b", "MEDIUM"),
        ("git -- status", "MEDIUM"),
        ("git clone h:-x", "MEDIUM"),
        ("git clone HTTPS://e.org/x", "MEDIUM"),
        ("git clone https://e.org/.git", "MEDIUM"),
        ("npm --unheard ls run x", "MEDIUM"),
        ("npm --flag=false test", "MEDIUM"),
        ("find . -newerXt x", "LOW"),
        ("find . -newerab x -O3", "LOW"),
        ("echo -n -e x -n", "LOW"),
    ],
)
def test_line_has_its_level(line: str, expected: str) -> None:
    try:
        argv = shlex.split(line)
    except ValueError:
        argv = line.split(" ")
    if "\n" in line or "\\x" in line:
        argv = line.split(" ")
    verdict = judge(argv)
    assert verdict.level.value == expected, verdict.reasons


@pytest.mark.parametrize("name", ["rm", "sudo", "curl", "bash", "env", "LS", "ls ", " ls", "./ls", "/bin/ls", "l\ts"])
def test_command_outside_the_list_is_refused_by_name(name: str) -> None:
    verdict = judge([name])
    assert verdict.refused
    assert verdict.findings[0].reason.startswith("Command not allowed: ")


def test_refusal_names_the_command_exactly() -> None:
    assert judge(["rm", "-rf", "/"]).findings[0].reason == "Command not allowed: rm"


def test_hidden_character_in_a_command_name_is_shown() -> None:
    assert judge(["l\u200bs"]).findings[0].reason == "Command not allowed: 'l\\u{200b}s'"


def test_command_allowed_by_configuration_is_high_and_bounded() -> None:
    gate = Gate(GateRules(allowed_commands=frozenset({"cmake"})))
    assert gate.judge("execute_command", {"command": "cmake", "args": ["--build"]}).verdict.level == "HIGH"
    assert gate.judge("execute_command", {"command": "cmake", "args": ["-P", "/etc/x"]}).verdict.refused
    assert gate.judge("execute_command", {"command": "ls"}).verdict.refused


@pytest.mark.parametrize(
    "argv",
    [
        ["dd", "x"],
        ["mkfs", "x"],
        ["mkfs.ext4", "x"],
        ["sudo", "ls"],
        ["sudo.x", "ls"],
        ["bash", "-c", "x"],
        ["env", "ls"],
        ["apt", "x"],
        ["rm", "-rf", "a"],
        ["rm", "-r", "a"],
        ["curl", "-o", "x", "https://example.org"],
        ["wget", "-O", "x", "u"],
    ],
    ids=" ".join,
)
def test_what_is_never_allowed_stays_refused_whatever_the_configuration_says(argv: list[str]) -> None:
    gate = Gate(GateRules(allowed_commands=frozenset({argv[0]})))
    assert gate.judge("execute_command", {"command": argv[0], "args": argv[1:]}).verdict.refused


def test_python3_is_allowed_with_python_and_keeps_its_name() -> None:
    gate = Gate(GateRules(allowed_commands=frozenset({"python"})))
    judgement = gate.judge("execute_command", {"command": "python3", "args": ["a.py"]})
    assert judgement.verdict.level == "MEDIUM"
    assert judgement.params is not None
    assert judgement.params["command"] == "python3"


@pytest.mark.promise("G4")
def test_unknown_subcommands_are_asked_about_in_every_mode() -> None:
    for line in (["git", "frobnicate"], ["npm", "frobnicate"]):
        verdict = judge(line)
        assert (verdict.level, verdict.always_asks) == ("HIGH", True)


def test_too_many_or_too_long_arguments_are_refused() -> None:
    assert judge(["echo", *["a"] * MAX_ARGUMENTS]).level == "LOW"
    assert judge(["echo", *["a"] * (MAX_ARGUMENTS + 1)]).refused
    assert judge(["echo", "a" * MAX_ARGUMENT_BYTES]).refused
    too_long = Gate().judge("execute_command", {"command": "echo", "args": ["a" * MAX_ARGUMENT_BYTES]})
    assert (too_long.params, too_long.verdict.error_type) == (None, "invalid"), "the record does not keep it"
    assert judge(["echo", "a" * 9000]).level == "MEDIUM"
    assert judge(["echo", "é" * 5000]).level == "MEDIUM"
    assert judge(["echo", "a" * 8000]).level == "LOW"


@pytest.mark.parametrize(
    ("line", "network"),
    [
        ("npm install", True),
        ("npm ci", True),
        ("npm view react", True),
        ("npm test", False),
        ("npm ls", False),
        ("git clone https://example.org/r.git", True),
        ("git clone ./a b", False),
        ("git fetch", True),
        ("git pull --rebase", True),
        ("git push origin main", True),
        ("git ls-remote origin", True),
        ("git remote update", True),
        ("git submodule update", True),
        ("git archive --remote=https://example.org/r.git HEAD", True),
        ("git status", False),
        ("git remote -v", False),
        ("python -m pip install x", True),
        ("python -m pip list", False),
        ("python -m pip", False),
        ("python -m ensurepip", True),
        ("python a.py", False),
        ("ls", False),
    ],
)
def test_network_need_is_known(line: str, network: bool) -> None:
    verdict = judge(shlex.split(line))
    assert verdict.network is network
    assert any("network" in reason for reason in verdict.reasons) is network


@pytest.mark.promise("G7")
@pytest.mark.parametrize(
    ("line", "always"),
    [
        ("git reset --hard", True),
        ("git push -f origin main", True),
        ("git push origin +main", True),
        ("git config alias.x y", True),
        ("git remote add a https://example.org/x.git", True),
        ("git credential fill", True),
        ("git init --separate-git-dir=x", True),
        ("git -C .husky diff --output=pre-commit", True),
        ("npm publish", True),
        ("npm config list", True),
        ("find . -delete", True),
        ("cat .env", True),
        ("find . -fprint package.json", True),
        ("git commit -m x", False),
        ("npm test", False),
        ("python a.py", False),
        ("gcc a.c", False),
        ("python -c x", False),
    ],
)
def test_what_cannot_be_taken_back_is_asked_in_full_mode_too(line: str, always: bool) -> None:
    assert judge(shlex.split(line)).always_asks is always


def test_arguments_are_explained_as_they_were_read() -> None:
    understood = judge(shlex.split("grep -nA3 TODO src")).understood
    assert understood == {
        "command": "grep",
        "options": [["-n", None], ["-A", "3"]],
        "operands": ["TODO", "src"],
    }


def test_without_a_sandbox_nothing_is_low() -> None:
    verdict = judge(["ls"], isolated=False)
    assert verdict.level == "MEDIUM"
    assert "no sandbox" in verdict.findings[0].reason
    assert judge(["gcc", "a.c"], isolated=False).level == "HIGH"
    assert judge(["rm"], isolated=False).refused


def test_directory_where_a_command_is_anyway_makes_no_other_call() -> None:
    plain, there, sub = (understand("git", [*begin, "push"], "/ws").essence for begin in ([], ["-C", "."], ["-C", "a"]))
    assert plain == there != sub


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    "line",
    [
        "gcc -E -P -x c .env",
        "gcc -E -P -include .env m.c",
        "gcc -E -P -imacros credentials m.c",
        "gcc -Wp,-include,keys/server.pem m.c",
        "gcc -T .env m.c",
        "python -m json.tool credentials.json",
        "python -m tokenize .env",
        "python -m base64 id_rsa",
        "python x.py --settings=conf/secrets.yaml",
        "python .env",
        "node --check .env",
        "node x.js file:.env",
        "pytest credentials.json",
        "make -f .env",
    ],
)
def test_line_that_names_a_secret_file_asks_whatever_program_reads_it(line: str) -> None:
    command, *args = shlex.split(line)
    assert any(finding.always_asks for finding in understand(command, args).findings)


@pytest.mark.parametrize(
    "line",
    [
        "python manage.py login --type password",
        "python x.py --api-key abc --token=abc",
        "python -m password",
        "node x.js src/tokens/a.ts",
        "npm ls secret",
        "npm run token",
        "gcc -Isecrets.d -DTOKEN=x m.c -o token",
        "make TOKEN=abc credentials",
        "git checkout auth-token",
    ],
)
def test_word_that_names_no_file_to_read_is_no_secret(line: str) -> None:
    command, *args = shlex.split(line)
    assert not any(finding.always_asks for finding in understand(command, args).findings)
