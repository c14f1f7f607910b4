"""A grant in words: its rule on one line, its limits, and who let a call go."""

import pytest

from byleave.client.approvals import approved_by_text, span_words, uses_words
from byleave.client.terminal.rules import read_rule, read_span, read_uses, rule_line
from byleave.protocol.errors import CallerError
from byleave.protocol.grants import GrantRule

pytestmark = pytest.mark.promise("G8")


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (GrantRule(tool="execute_command", command=("git", "commit")), "git commit ..."),
        (GrantRule(tool="execute_command", command=("npm", "test"), exact=True), "npm test"),
        (GrantRule(tool="execute_command", command=("git", "log", "a b", "it's"), exact=True), None),
        (GrantRule(tool="execute_command", command=("python", "x.py"), files={"x.py": "a" * 64}), "python x.py ..."),
        (GrantRule(tool="write_file", paths=("src/**", "docs/*.md")), "src/** docs/*.md"),
        (GrantRule(tool="write_file", paths=("a b/**",)), "'a b/**'"),
    ],
)
def test_a_rule_on_one_line_reads_back_as_itself(rule: GrantRule, line: str | None) -> None:
    written = rule_line(rule)
    assert written is not None
    assert line in (None, written)
    assert read_rule(written, rule) == rule


def test_a_rule_without_words_has_nothing_to_edit() -> None:
    assert rule_line(GrantRule(tool="search_web")) is None


def test_a_changed_line_keeps_what_the_rule_is_bound_to() -> None:
    rule = GrantRule(tool="execute_command", command=("python", "x.py"), exact=True, files={"x.py": "a" * 64})
    changed = read_rule("python x.py --fast …", rule)
    assert (changed.command, changed.exact, changed.files) == (("python", "x.py", "--fast"), False, rule.files)


@pytest.mark.parametrize("line", ["", "  ", "'open", "a\x1b[2Jb", "a\u200bb", "x" * 401, " ".join(["y"] * 65)])
def test_a_line_that_cannot_be_read_is_an_error(line: str) -> None:
    with pytest.raises(CallerError):
        read_rule(line, GrantRule(tool="execute_command", command=("git",)))


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("2h", 7200), ("45", 2700), (" 90 s ", 90), ("24H", 86400), ("5min", 300)]
)
def test_a_time_is_read(text: str, seconds: int) -> None:
    assert read_span(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "25h", "-1h", "1w", "an hour", "1.5h", "٣h", "99999999"])
def test_what_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(CallerError):
        read_span(text)


@pytest.mark.parametrize("text", ["0", "", "-1", "10001", "1e3", "٣", "9" * 30])
def test_what_is_no_number_of_uses_is_an_error(text: str) -> None:
    with pytest.raises(CallerError):
        read_uses(text)


def test_limits_in_words() -> None:
    assert read_uses(" 10000 ") == 10_000
    assert [uses_words(number) for number in (None, 1, 5)] == ["any number of times", "once", "at most 5 times"]
    assert [span_words(seconds) for seconds in (0, 1, 59, 60, 119, 120, 3600, 5400, 7200, 28800)] == [
        "0 seconds",
        "1 second",
        "59 seconds",
        "1 minute",
        "119 seconds",
        "2 minutes",
        "1 hour",
        "90 minutes",
        "2 hours",
        "8 hours",
    ]


@pytest.mark.parametrize(
    ("actor", "words"),
    [
        (None, None),
        ("", None),
        ("person:alice", "approved by you"),
        ("person:bob", "approved by bob"),
        ("grant:grant_1", "by a grant (Write below 'src')"),
        ("grant:grant_2", "by grant grant_2"),
        ("rule:user.2: our own tests", "by rule user.2: our own tests"),
        ("mode:full", "by mode full, not asked"),
        ("risk:LOW", "not asked: low risk"),
        ("you", "by you"),
        ("person:eve\x1b[2J", "approved by eve\\x1b[2J"),
    ],
)
def test_who_let_a_call_go_in_plain_words(actor: str | None, words: str | None) -> None:
    assert approved_by_text(actor, user_id="alice", grants={"grant_1": "Write below 'src'."}) == words
