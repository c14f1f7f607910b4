"""The owner's rules: how a file is read, and what its rules do to a verdict."""

import time
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from byleave.gate import NO_POLICY, Gate, GateRules, LayerPolicy, Policy, PolicyError, declared_layers, parse_policy
from byleave.gate.policy.policy import MAX_FINDINGS
from byleave.protocol.overview import Layer, PolicyText
from byleave.protocol.states import AgentMode, ErrorType
from byleave.protocol.verdicts import Verdict, VerdictLevel
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("G3", "S")

WORKSPACE = "/home/user/ws"
CALM = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
GATE = Gate()
LOW, MEDIUM, HIGH, REFUSE = VerdictLevel.LOW, VerdictLevel.MEDIUM, VerdictLevel.HIGH, VerdictLevel.REFUSE


def policy(text: str, layer: Layer = Layer.USER, *, trusted: bool = True) -> LayerPolicy:
    return parse_policy(text, layer, source="policy.toml", trusted=trusted)


def gate(*texts: str | LayerPolicy) -> Gate:
    return GATE.with_policy(Policy(text if isinstance(text, LayerPolicy) else policy(text) for text in texts))


def run(judge: Gate, *argv: str, isolated: bool = True) -> Verdict:
    call = {"command": argv[0], "args": list(argv[1:])}
    return judge.judge("execute_command", call, workspace=WORKSPACE, isolated=isolated).verdict


def use(judge: Gate, tool: str, **params: object) -> Verdict:
    return judge.judge(tool, params, workspace=WORKSPACE).verdict


EXAMPLE = """
commands = ["sort", "make"]
mode = "sandbox"

[[rule]]
action = "ask"
command = ["git", ["push", "pull"]]
options = ["--force", "-f"]
because = "Pushing is for people."
match = ["git push -f origin main", "git -C sub push --force", "git push -uf"]
not_match = ["git status", "git push"]

[[rule]]
action = "deny"
tool = "write_file"
paths = ["migrations/**"]
because = "Migrations are generated."
instead = "run `make migrations`"
match = ["write_file migrations/1.py"]
not_match = ["write_file src/migrations.py", "read_file migrations/1.py"]

[[rule]]
action = "allow"
command = ["npm", "test"]
match = ["npm test -- --watch=false"]
not_match = ["npm --silent test", "npm install"]
"""


def test_example_of_the_documentation_is_read() -> None:
    layer = policy(EXAMPLE)
    assert [rule.label for rule in layer.rules] == [
        "user.1: ask git push|pull with --force or -f",
        "user.2: deny write_file in migrations/**",
        "user.3: allow npm test",
    ]
    whole = Policy([layer])
    assert whole.commands == {"sort", "make"}
    assert whole.widest_mode is AgentMode.SANDBOX
    assert NO_POLICY.widest_mode is AgentMode.FULL
    assert not NO_POLICY.has_rules


def test_ask_raises_and_asks_in_every_mode() -> None:
    judge = gate('[[rule]]\naction = "ask"\ncommand = ["ls"]\nbecause = "Our names are secret."')
    verdict = run(judge, "ls")
    assert (verdict.level, verdict.always_asks, verdict.waived_by) == (MEDIUM, True, None)
    assert (verdict.findings[0].rule, verdict.findings[0].reason) == ("policy.user.1", "Our names are secret.")
    assert run(judge, "pwd").level is LOW


def test_ask_keeps_a_higher_level() -> None:
    judge = gate('[[rule]]\naction = "ask"\ncommand = ["gcc"]')
    verdict = run(judge, "gcc", "a.c")
    assert verdict.level is HIGH
    assert verdict.always_asks
    assert "Rule user.1 wants this asked (ask gcc)." in verdict.reasons


def test_deny_refuses_with_its_reason_and_what_to_do_instead() -> None:
    verdict = use(gate(EXAMPLE), "write_file", path="migrations/7.py", content="x")
    assert (verdict.level, verdict.error_type) == (REFUSE, ErrorType.REFUSED)
    assert verdict.message == "Migrations are generated."
    assert verdict.findings[0].instead == "run `make migrations`"
    assert verdict.findings[0].rule == "policy.user.2"


def test_refused_call_runs_nothing_that_could_be_bound() -> None:
    assert run(GATE, "python", "x.py").runs == ("x.py",)
    assert run(gate('[[rule]]\naction = "deny"\ncommand = ["python"]'), "python", "x.py").runs == ()
    assert run(gate('[[rule]]\naction = "ask"\ncommand = ["python"]'), "python", "x.py").runs == ("x.py",)


def test_allow_waives_the_question_of_risk() -> None:
    verdict = run(gate(EXAMPLE), "npm", "test")
    assert (verdict.level, verdict.waived_by) == (MEDIUM, "user.3: allow npm test")
    high = run(gate('[[rule]]\naction = "allow"\ncommand = ["gcc"]'), "gcc", "a.c")
    assert (high.level, high.waived_by) == (HIGH, "user.1: allow gcc")
    write = use(
        gate('[[rule]]\naction = "allow"\ntool = "write_file"\npaths = ["src/**"]'),
        "write_file",
        path="src/a.py",
        content="x",
    )
    assert write.waived_by is not None


@pytest.mark.parametrize(
    ("tool", "params"),
    [
        ("write_file", {"path": "src/../a.py", "content": "x"}),  # not plainly inside
        ("write_file", {"path": "SRC/a.py", "content": "x"}),
        ("write_file", {"path": "src/package.json", "content": "{}"}),  # asked about by the gate itself
        ("write_file", {"path": "src/.git/config", "content": "x"}),  # refused
        ("write_file", {"path": "src/.byleave/policy.toml", "content": "x"}),
        ("write_file", {"path": "lib/a.py", "content": "x"}),
        ("read_file", {"path": "src/a.py"}),  # LOW: nothing to waive
        ("read_file", {"path": "src/.env"}),
        ("write_file", {"path": "src/a.py"}),  # malformed
    ],
)
def test_allow_waives_nothing_else(tool: str, params: JsonObject) -> None:
    text = "".join(
        f'[[rule]]\naction = "allow"\ntool = "{name}"\npaths = ["src/**"]\n' for name in ("read_file", "write_file")
    )
    verdict = use(gate(text), tool, **params)
    assert verdict.waived_by is None
    assert verdict == use(GATE, tool, **params)


@pytest.mark.parametrize("stricter", ["ask", "deny"])
@pytest.mark.parametrize("layers", [(Layer.USER, Layer.DEVICE), (Layer.DEVICE, Layer.USER)])
def test_allow_never_beats_an_ask_or_a_deny(stricter: str, layers: tuple[Layer, Layer]) -> None:
    allow = policy('[[rule]]\naction = "allow"\ncommand = ["git", "fetch"]', layers[0])
    tight = policy(f'[[rule]]\naction = "{stricter}"\ncommand = ["git"]', layers[1])
    for order in ((allow, tight), (tight, allow)):
        verdict = run(gate(*order), "git", "fetch")
        assert verdict.waived_by is None
        assert verdict.level is (REFUSE if stricter == "deny" else MEDIUM)
        assert verdict.refused or verdict.always_asks


def test_allow_waives_nothing_without_a_sandbox() -> None:
    judge = gate(EXAMPLE)
    assert run(judge, "npm", "test").waived_by is not None
    verdict = run(judge, "npm", "test", isolated=False)
    assert verdict.waived_by is None
    assert verdict.always_asks


def test_command_that_may_reach_what_is_denied_asks() -> None:
    judge = gate('[[rule]]\naction = "deny"\npaths = ["secret/**"]\nbecause = "It is secret."')
    assert run(judge, "cat", "secret/key").level is REFUSE
    assert use(judge, "read_file", path="secret/key").level is REFUSE
    verdict = run(judge, "grep", "-r", "x", ".")
    assert (verdict.level, verdict.always_asks) == (MEDIUM, True)
    assert verdict.findings[0].reason == ("It could reach 'secret/**', which rule user.1 denies. It is secret.")
    assert use(judge, "search_files", pattern="x").level is MEDIUM
    assert use(judge, "search_files", pattern="x", path="src").level is LOW
    assert run(judge, "grep", "-rn", "TODO", "src").level is LOW


@pytest.mark.parametrize(
    "argv",
    [
        ("grep", "-r", "x", "src/.."),
        ("grep", "-r", "x", WORKSPACE),
        ("find", f"{WORKSPACE}/", "-name", "x"),
        ("ls", "-R", "src/../."),
        ("cat", "src/link/../secret/key"),
    ],
)
def test_no_spelling_of_a_directory_above_slips_past_a_deny(argv: tuple[str, ...]) -> None:
    assert run(GATE, *argv).level is LOW
    verdict = run(gate('[[rule]]\naction = "deny"\npaths = ["secret/**"]'), *argv)
    assert (verdict.level, verdict.always_asks) == (MEDIUM, True)


def test_search_behind_a_parent_may_reach_what_is_denied() -> None:
    judge = gate('[[rule]]\naction = "deny"\npaths = ["secret/**"]')
    assert use(judge, "search_files", pattern="x", path="src/link/..").always_asks
    assert use(judge, "read_file", path="src/link/../secret/key").always_asks


def test_module_is_the_file_and_the_command_it_stands_for() -> None:
    deny = '[[rule]]\naction = "deny"\n'
    assert run(gate(f'{deny}paths = ["secret/**"]'), "python", "-m", "secret.x").level is REFUSE
    assert run(gate(f'{deny}paths = ["tools/x.py"]'), "python", "-um", "tools.x").level is REFUSE
    assert run(gate(f'{deny}command = ["python", "-m", "pip"]'), "python", "-m", "pip.__main__", "list").level is REFUSE
    judge = gate(f'{deny}command = ["pip", "install"]\nmatch = ["python -m pip install x"]')
    assert run(judge, "python3", "-Impip", "-q", "install", "x").level is REFUSE
    assert run(judge, "python", "-m", "pip", "list").level is MEDIUM
    assert run(judge, "python", "x.py", "-m", "pip", "install").level is MEDIUM
    allow = gate('[[rule]]\naction = "allow"\ncommand = ["pip"]')
    assert run(allow, "python", "-m", "pip", "list").waived_by is None


def test_absolute_path_of_a_script_is_the_script() -> None:
    judge = gate('[[rule]]\naction = "deny"\ncommand = ["python", "scripts/deploy.py"]')
    assert run(judge, "python", "-u", f"{WORKSPACE}/scripts/deploy.py").level is REFUSE


@pytest.mark.parametrize(
    "line",
    [
        "git show HEAD:.env",
        "git diff .env",
        "git grep KEY -- .env",
        "git blame .env",
        "git add .env",
        "tar cf a .env",
        "zip a.zip .env",
        "git cat-file -p :config/.env",
        "git log -p -- .env",
        "git hash-object -w .env",
    ],
)
def test_allow_waives_no_question_about_a_secret_that_is_packed_or_shown(line: str) -> None:
    text = "".join(f'[[rule]]\naction = "allow"\ncommand = ["{name}"]\n' for name in ("git", "tar", "zip"))
    verdict = run(gate(text), *line.split())
    assert verdict.always_asks
    assert verdict.waived_by is None


def test_hostile_rules_and_a_hostile_line_are_judged_soon() -> None:
    patterns = ", ".join(f'"**/{"*a" * 60}{number}"' for number in range(300))
    judge = gate(f'[[rule]]\naction = "deny"\npaths = [{patterns}]')
    for arguments in (
        ["a/" * 200 + str(n) for n in range(256)],
        [f"{n}=" + "=a" * 250 for n in range(256)],
        [f"-{'a' * 500}{n}" for n in range(256)],
    ):
        began = time.process_time()
        verdict = run(judge, "echo", *arguments)
        assert time.process_time() - began < 1
        assert verdict.always_asks, "what is too much to look at may be anything"


def test_unknown_subcommand_may_be_what_is_denied() -> None:
    verdict = run(gate('[[rule]]\naction = "deny"\ncommand = ["git", "push"]'), "git", "pp")
    assert verdict.always_asks
    assert "It could be what rule user.1 denies under another name (deny git push)." in verdict.reasons


def test_other_name_of_a_subcommand_is_denied_too() -> None:
    judge = gate('[[rule]]\naction = "deny"\ncommand = ["npm", "install"]\nmatch = ["npm i x", "npm it", "npm add x"]')
    assert run(judge, "npm", "i", "left-pad").level is REFUSE
    assert run(gate('[[rule]]\naction = "deny"\ncommand = ["npm", "i"]'), "npm", "install").level is REFUSE
    assert run(gate('[[rule]]\naction = "allow"\ncommand = ["npm", "install"]'), "npm", "i").waived_by is None


def test_option_alone_is_about_every_command() -> None:
    judge = gate('[[rule]]\naction = "deny"\noptions = ["--force"]')
    assert run(judge, "git", "push", "--force").level is REFUSE
    assert run(judge, "npm", "install", "--force").level is REFUSE
    assert use(judge, "read_file", path="--force").level is LOW


def test_whole_tool_can_be_denied() -> None:
    judge = gate('[[rule]]\naction = "deny"\ntool = "searchWeb"')
    assert use(judge, "search_web", query="x").level is REFUSE
    assert use(judge, "read_file", path="x").level is LOW


def test_turned_on_command_runs_by_its_table_or_as_high() -> None:
    assert run(GATE, "sort", "a.txt").level is REFUSE
    judge = gate('commands = ["sort", "frobnicate"]')
    assert run(judge, "sort", "a.txt").level is LOW
    assert run(judge, "frobnicate").level is HIGH
    assert run(judge, "ls").level is LOW
    narrow = Gate(GateRules(frozenset({"ls"}), Policy([policy('commands = ["sort"]')])))
    assert run(narrow, "sort", "a.txt").level is LOW
    assert run(narrow, "cat", "a.txt").level is REFUSE


def test_untrusted_project_tightens_and_does_not_loosen() -> None:
    text = EXAMPLE + '\n[[rule]]\naction = "deny"\ncommand = ["gcc"]'
    layer = policy(text, Layer.PROJECT, trusted=False)
    assert layer.held_back == ("turns on the command make", "turns on the command sort", "rule 3: allow npm test")
    judge = gate(layer)
    assert run(judge, "sort", "a.txt").level is REFUSE
    assert run(judge, "npm", "test").waived_by is None
    assert run(judge, "gcc", "a.c").level is REFUSE
    assert Policy([layer]).widest_mode is AgentMode.SANDBOX
    trusted = policy(text, Layer.PROJECT)
    assert trusted.held_back == ()
    assert trusted.loosening == layer.loosening
    assert run(gate(trusted), "npm", "test").waived_by == "project.3: allow npm test"


def test_words_of_a_project_do_not_pass_for_the_owners() -> None:
    text = '[[rule]]\naction = "ask"\ncommand = ["git"]\nbecause = "This is safe, allow it."'
    assert run(gate(policy(text, Layer.PROJECT)), "git", "fetch").reasons[0] == (
        "The project's own rule says: This is safe, allow it."
    )


def test_only_a_project_can_be_untrusted() -> None:
    assert policy(EXAMPLE, Layer.USER, trusted=False).held_back == ()


def test_fault_in_the_rules_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Policy, call: object) -> None:
        raise ZeroDivisionError

    judge = gate(EXAMPLE)
    monkeypatch.setattr(Policy, "judge", broken)
    verdict = use(judge, "read_file", path="a.txt")
    assert (verdict.level, verdict.findings[0].rule) == (REFUSE, "gate.fault")


def test_no_rule_changes_what_nobody_wrote_one_for() -> None:
    judge = gate(EXAMPLE)
    for argv in (("ls",), ("git", "status"), ("rm", "-rf", "/"), ("python", "x.py")):
        assert run(judge, *argv).level is run(GATE, *argv).level
        assert run(judge, *argv).waived_by is None


def test_many_rules_give_few_reasons() -> None:
    rules = "".join(f'[[rule]]\naction = "ask"\ncommand = ["ls"]\nbecause = "Reason {n}."\n' for n in range(60))
    verdict = run(gate(rules, '[[rule]]\naction = "deny"\ncommand = ["ls"]'), "ls")
    assert verdict.level is REFUSE
    assert len(verdict.findings) <= MAX_FINDINGS + 2


def test_no_policy_writes_where_policies_are() -> None:
    """A rule can allow writing; not its own file."""
    judge = gate('[[rule]]\naction = "allow"\ntool = "write_file"')
    for path in (".byleave/policy.toml", ".BYLEAVE/policy.toml", "sub/.byleave/x", f"{WORKSPACE}/.byleave/policy.toml"):
        assert use(judge, "write_file", path=path, content="x").level is REFUSE
    on = gate('commands = ["cp", "mv", "touch", "mkdir", "rm"]')
    for argv in (("cp", "a", ".byleave/policy.toml"), ("mv", "a", ".byleave/x"), ("touch", ".byleave/policy.toml")):
        assert run(on, *argv).level is REFUSE


def rule(text: str) -> str:
    return f"[[rule]]\n{text}"


WRONG: list[tuple[str, str]] = [
    ("a = ", "It is not TOML"),
    ("x = 1", "'x' is not a key."),
    ("rule = 1", "`rule` is not a list of tables"),
    ("rule = [1]", "`rule` is not a list of tables"),
    ('mode = "free"', "`mode` is neither"),
    ("mode = []", "`mode` is neither"),
    ("mode = 2026-01-01", "`mode` is neither"),
    ("[rule]\naction = 'ask'", "`rule` is not a list of tables"),
    ("a = 1\na = 2", "It is not TOML"),
    ('commands = "make"', "`commands` is not a list of texts"),
    ("commands = [1]", "`commands` holds something that is not a text"),
    ('commands = ["/bin/make"]', "is not the plain name of a command"),
    ('commands = ["sudo"]', "'sudo' is never allowed"),
    ('commands = ["mkfs.ext4"]', "'mkfs.ext4' is never allowed"),
    (rule('tool = "read_file"'), "rule 1: `action` is not allow, ask or deny"),
    (rule("action = []"), "`action` is not"),
    (rule('action = "ask"'), "It is about every call"),
    (rule('action = "allow"'), "It is about every call"),
    (rule('action = "ask"\ntool = "read"'), "`tool` is not the name of a tool"),
    (rule('action = "ask"\ntool = 7'), "`tool` is not the name of a tool"),
    (rule('action = "ask"\nverb = "x"'), "'verb' is not a key of a rule"),
    (rule('action = "ask"\ntool = "read_file"\ncommands = ["make"]'), "'commands' is not a key of a rule"),
    (rule('action = "ask"\ncommand = "git push"'), "`command` is not a list of words"),
    (rule('action = "ask"\ncommand = []'), "`command` is not a list of words"),
    (rule('action = "ask"\ncommand = [[]]'), "A word of `command`"),
    (rule('action = "ask"\ncommand = ["git", 1]'), "A word of `command`"),
    (rule('action = "ask"\ncommand = ["/usr/bin/git"]'), "is not the plain name of a command"),
    (rule('action = "ask"\ntool = "read_file"\ncommand = ["git"]'), "read_file takes no command"),
    (rule('action = "ask"\ntool = "search_web"\npaths = ["x"]'), "search_web has no path"),
    (rule('action = "ask"\noptions = ["force"]'), "is not an option"),
    (rule('action = "ask"\noptions = ["--x=1"]'), "is not an option"),
    (rule('action = "ask"\noptions = ["-"]'), "is not an option"),
    (rule('action = "ask"\noptions = "-f"'), "`options` is not a list of texts"),
    (rule('action = "ask"\npaths = ["../x"]'), "is not a pattern of the workspace"),
    (rule('action = "ask"\npaths = ["~/x"]'), "is not a pattern of the workspace"),
    (rule('action = "ask"\npaths = ["!x"]'), "is not a pattern of the workspace"),
    (rule('action = "ask"\npaths = ["//x"]'), "is not a pattern of the workspace"),
    (rule("action = 'ask'\npaths = ['a\\b']"), "is not a pattern of the workspace"),
    (rule('action = "ask"\npaths = ["a**b"]'), "does not stand between slashes"),
    (rule('action = "ask"\npaths = ["/"]'), "names nothing"),
    (rule('action = "ask"\npaths = []'), "`paths` is not a list of texts"),
    (rule('action = "ask"\ncommand = ["ls"]\nbecause = ""'), "`because` is not a text"),
    (rule('action = "ask"\ncommand = ["ls"]\ninstead = 1'), "`instead` is not a text"),
    (rule('action = "ask"\ncommand = ["ls"]\nbecause = "a\\u202eb"'), "`because` holds an invisible character"),
    (rule('action = "ask"\ncommand = ["ls"]\nbecause = "a\u202eb"'), "It holds an invisible character"),
    (rule('action = "allow"\ncommand = ["git"]\noptions = ["-f"]'), "An allow cannot be about options"),
    (rule('action = "allow"\npaths = ["src/**"]'), "An allow with paths needs the tool"),
    (rule('action = "allow"\ncommand = ["cat"]\npaths = ["src/**"]'), "An allow with paths needs the tool"),
    (rule('action = "allow"\ntool = "execute_command"'), "It would allow every command"),
    (rule('action = "ask"\ncommand = ["git", "push"]\nmatch = ["git status"]'), "'git status' of `match` does not fit"),
    (rule('action = "ask"\ncommand = ["git"]\nnot_match = ["git status"]'), "of `not_match` fits the rule"),
    (rule('action = "allow"\ncommand = ["git", "push"]\nmatch = ["git -C a push"]'), "of `match` does not fit"),
    (rule('action = "ask"\ncommand = ["git"]\nmatch = ["git \'"]'), "cannot be read"),
    (rule('action = "ask"\ncommand = ["git"]\nmatch = ["  "]'), "cannot be read"),
    (rule('action = "ask"\ncommand = ["git"]\nmatch = ["read_file"]'), "is not a call"),
    (rule('action = "ask"\ncommand = ["git"]\nmatch = ["execute_command git"]'), "is not a call"),
    ("rule = [" + "{action='ask', tool='read_file'}," * 501 + "]", "at most 500"),
    (rule(f'action = "ask"\npaths = {["x"] * 501}'.replace("'", '"')), "more than 500 paths"),
    ("#" * 70_000, "longer than 64 kB"),
    ("a = " + "[" * 20_000, "nested too deeply"),
]


KEY = ".".join(["a"] * 30_000)


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_file_that_is_not_understood_is_refused_whole(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy(text)
    assert said in caught.value.message
    assert caught.value.message.startswith("policy.toml")
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        f"{KEY}=1",
        f"[{KEY}]",
        f"[[{KEY}]]",
        f"a={{{KEY}=1}}",
        ".".join(["'a'"] * 15_000) + "=1",
        r'"\"" . ' * 8_000 + "a=1",
        f'a=\'\'\'"\'\'\'\'\'\nb="""\\""""""#\n{KEY}=1',
    ],
    ids=["key", "table", "tables", "inline", "quoted", "escaped", "behind texts"],
)
def test_key_of_very_many_parts_is_refused_before_it_is_parsed(text: str) -> None:
    began = time.process_time()
    with pytest.raises(PolicyError, match="a key of more than 50 parts"):
        policy(text)
    assert time.process_time() - began < 1


def test_dots_in_texts_and_comments_are_no_parts_of_a_key() -> None:
    dots, paths = "a." * 60, ", ".join(f"'{number}.*'" for number in range(60))
    text = f'action = "ask"\npaths = [{paths}] # {dots}\nbecause = """\n{dots}\\""" {dots}"""'
    assert len(policy(rule(text)).rules) == 1


def test_misplaced_line_is_explained() -> None:
    with pytest.raises(PolicyError) as caught:
        policy(rule('action = "ask"\ntool = "read_file"\nmode = "sandbox"'))
    assert caught.value.hint == "write `mode` above the first [[rule]]"


@pytest.mark.parametrize("text", ['commands = ["make"]', rule('action = "allow"\ncommand = ["git"]')])
def test_organisation_never_loosens(text: str) -> None:
    with pytest.raises(PolicyError, match="only tighten"):
        policy(text, Layer.ORGANISATION)


def test_examples_of_every_kind_are_read() -> None:
    text = 'action = "deny"\ntool = "search_web"\nmatch = ["search_web anything at all"]\nnot_match = ["read_file a"]'
    assert len(policy(rule(text)).rules) == 1
    windows = rule('action = "ask"\r\ncommand = ["ls"]\r\n')
    assert len(policy(windows).rules) == 1


def test_long_rule_is_shortened_for_people() -> None:
    text = policy(rule(f'action = "ask"\npaths = ["{"a" * 150}", "{"b" * 150}"]')).rules[0].text
    assert len(text) == 160
    many = policy(rule('action = "deny"\npaths = ["a/b", "c/d", "e/f", "g/h"]'))
    assert "'a/b', 'c/d', 'e/f' and 1 more" in run(gate(many), "find").reasons[0]


def test_machine_declares_only_its_own_layers() -> None:
    user, project = (
        PolicyText(layer=layer, source="x", text=EXAMPLE, trusted=False) for layer in (Layer.USER, Layer.PROJECT)
    )
    layers = declared_layers([user, project])
    assert [(layer.layer, layer.trusted) for layer in layers] == [(Layer.USER, True), (Layer.PROJECT, False)]
    for wrong in ([user, user], [PolicyText(layer=Layer.ORGANISATION, source="x", text="")]):
        with pytest.raises(PolicyError, match="cannot declare"):
            declared_layers(wrong)


def test_layers_are_added() -> None:
    whole = Policy([policy('commands = ["sort"]')]).plus(policy('commands = ["make"]', Layer.DEVICE))
    assert whole.commands == {"sort", "make"}
    assert [layer.layer for layer in whole.layers] == [Layer.USER, Layer.DEVICE]


# Properties

ASKS = [
    'command = ["git"]',
    'command = ["git", ["push", "fetch"]]',
    'command = ["git", "push"]\noptions = ["--force", "-f"]',
    'command = ["python"]',
    'tool = "write_file"\npaths = ["src/**"]',
    'paths = ["secret/**"]',
    'paths = ["*.pem"]',
    'tool = "search_web"',
    'options = ["-r"]',
    'command = ["grep"]',
]
ALLOWS = [
    'command = ["git"]',
    'command = ["git", ["push", "fetch"]]',
    'command = ["python"]',
    'command = ["gcc"]',
    'command = ["grep"]',
    'tool = "write_file"\npaths = ["src/**"]',
    'tool = "search_web"',
    'tool = "read_file"',
]
tight = st.tuples(st.sampled_from(["ask", "deny"]), st.sampled_from(ASKS))
loose = st.tuples(st.just("allow"), st.sampled_from(ALLOWS))
any_rules = st.lists(st.one_of(tight, loose), max_size=6)
argv = st.tuples(
    st.sampled_from(["git", "grep", "cat", "python", "gcc", "npm", "rm"]),
    st.lists(
        st.sampled_from(["push", "fetch", "-f", "--forc", "-r", "-C", "src", ".", "secret/a", "x.pem", "a.c", "--"]),
        max_size=4,
    ),
).map(lambda pair: ("execute_command", {"command": pair[0], "args": pair[1]}))
files = st.tuples(
    st.sampled_from(["read_file", "write_file", "search_files", "list_directory"]),
    st.sampled_from(["src/a.py", "secret/a", "SRC/b.sh", ".", "src/../x.pem", "../x", ".byleave/policy.toml"]),
).map(
    lambda pair: (
        pair[0],
        {"path": pair[1]}
        | ({"content": "x"} if pair[0] == "write_file" else {"pattern": "x"} if pair[0] == "search_files" else {}),
    )
)
calls = st.one_of(argv, files, st.just(("search_web", {"query": "x"})), st.just(("no_such", {})))


def written(rules: list[tuple[str, str]]) -> str:
    return "\n".join(f'[[rule]]\naction = "{action}"\n{about}' for action, about in rules)


def verdict(rules: list[tuple[str, str]], call: tuple[str, JsonObject], *, isolated: bool = True) -> Verdict:
    judged = gate(written(rules)).judge(call[0], call[1], workspace=WORKSPACE, isolated=isolated)
    return judged.verdict


def weight(found: Verdict) -> tuple[int, bool, bool]:
    """How strict a verdict is: its level, whether it always asks, whether it asks at all."""
    return found.level.rank, found.always_asks or found.refused, found.waived_by is None


def stands(found: Verdict) -> tuple[object, ...]:
    said = {(one.level, one.reason.replace("user.", "")) for one in found.findings if "policy." not in one.rule}
    return found.level, found.always_asks, found.waived_by is None, said, len(found.findings)


@CALM
@given(any_rules, calls, st.randoms(), st.booleans())
def test_order_of_rules_means_nothing(
    rules: list[tuple[str, str]], call: tuple[str, JsonObject], shuffle: Random, isolated: bool
) -> None:
    before = verdict(rules, call, isolated=isolated)
    mixed = rules[:]
    shuffle.shuffle(mixed)
    after = verdict(mixed, call, isolated=isolated)
    assert stands(before) == stands(after)
    split = Policy([policy(written(mixed[::2])), policy(written(mixed[1::2]), Layer.DEVICE)])
    layered = GATE.with_policy(split).judge(call[0], call[1], workspace=WORKSPACE, isolated=isolated).verdict
    assert weight(layered) == weight(before)


@CALM
@given(any_rules, tight, calls, st.booleans())
def test_adding_an_ask_or_a_deny_never_loosens(
    rules: list[tuple[str, str]], added: tuple[str, str], call: tuple[str, JsonObject], isolated: bool
) -> None:
    before, after = verdict(rules, call, isolated=isolated), verdict([*rules, added], call, isolated=isolated)
    assert all(new >= old for new, old in zip(weight(after), weight(before), strict=True))
    # A refusal need not say besides that there is no sandbox.
    kept = {finding.reason for finding in before.findings if not (after.refused and finding.rule == "gate.isolation")}
    assert kept <= {finding.reason for finding in after.findings}


@CALM
@given(any_rules, loose, calls, st.booleans())
def test_adding_an_allow_waives_and_does_nothing_else(
    rules: list[tuple[str, str]], added: tuple[str, str], call: tuple[str, JsonObject], isolated: bool
) -> None:
    before, after = verdict(rules, call, isolated=isolated), verdict([*rules, added], call, isolated=isolated)
    assert after.model_copy(update={"waived_by": None}) == before.model_copy(update={"waived_by": None})
    if after.waived_by is not None:
        assert after.level in (MEDIUM, HIGH)
        assert not after.always_asks
        assert not after.refused
        assert isolated


@CALM
@given(any_rules, calls)
def test_no_rule_takes_back_what_the_gate_found(rules: list[tuple[str, str]], call: tuple[str, JsonObject]) -> None:
    own = GATE.judge(call[0], call[1], workspace=WORKSPACE).verdict
    found = verdict(rules, call)
    assert found.level.rank >= own.level.rank
    assert set(own.findings) <= set(found.findings)
    assert (found.network, found.understood) == (own.network, own.understood)
