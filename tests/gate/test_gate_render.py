"""What people are shown: nothing hidden, nothing cut off out of sight, nothing secret."""

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assent.gate import MASK_PREFIX, Gate, describe, mask_text, mask_value, safe_text, shown_params
from assent.gate.characters import hidden_in

pytestmark = pytest.mark.promise("A", "S")

GATE = Gate()


def described(tool: str, params: dict[str, Any]) -> str:
    judgement = GATE.judge(tool, params)
    return describe(judgement.tool_name, judgement.params, judgement.verdict)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("é 日本 ñ", "é 日本 ñ"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\x1b]52;c;x\x07", "a\\x1b]52;c;x\\x07"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("a\x9bb", "a\\x9bb"),
        ("a\u202eb", "a\\u{202e}b"),
        ("a\u2066b\u2069", "a\\u{2066}b\\u{2069}"),
        ("a\u200bb\ufeff", "a\\u{200b}b\\u{feff}"),
        ("a\U000e0041", "a\\u{e0041}"),
        ("a\ufe0f\U000e0100", "a\\u{fe0f}\\u{e0100}"),
        ("a\u00ad\u180e\u115f\u3164", "a\\xad\\u{180e}\\u{115f}\\u{3164}"),
        ("a\U0001d173\U0001bca0", "a\\u{1d173}\\u{1bca0}"),
        ("a\u2028b", "a\\u{2028}b"),
        ("a\ud800", "a\\u{d800}"),
        ("a\x00\x7f", "a\\x00\\x7f"),
    ],
)
def test_hidden_characters_become_visible(text: str, shown: str) -> None:
    assert safe_text(text) == shown


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", "\u3000", "\u2003"], ids=ascii)
def test_padding_is_collapsed_and_said(blank: str) -> None:
    shown = safe_text(f"ls{blank * 5000}rm")
    assert shown == "ls [5000 blanks] rm"


@pytest.mark.parametrize("character", ["\n", "\u200b", "\x08"], ids=ascii)
def test_repeated_hidden_characters_are_counted(character: str) -> None:
    assert "[5000 times]" in safe_text(f"ls{character * 5000}rm")


def test_lines_may_be_kept_for_output() -> None:
    assert safe_text("a\n\tb\x1b[0m", lines=True) == "a\n\tb\\x1b[0m"
    assert safe_text("a" + "\n" * 500 + "b", lines=True) == "a\n[500 line ends]\nb"


@settings(deadline=None)
@given(st.text())
def test_nothing_hidden_survives(text: str) -> None:
    assert hidden_in(safe_text(text)) is None
    assert hidden_in(safe_text(text, lines=True).replace("\n", "").replace("\t", "")) is None


def test_ends_of_arguments_are_visible() -> None:
    one = described("execute_command", {"command": "git", "args": ["commit -m x"]})
    four = described("execute_command", {"command": "git", "args": ["commit", "-m", "x"]})
    assert one.startswith("Run 'git' 'commit -m x' for at most 30 seconds")
    assert four.startswith("Run 'git' 'commit' '-m' 'x' for")
    assert "'it\\'s'" in described("execute_command", {"command": "echo", "args": ["it's"]})


def test_long_argument_is_shown_whole() -> None:
    text = "x" * 3000 + "END"
    assert text in described("execute_command", {"command": "echo", "args": [text]})


@pytest.mark.parametrize(
    ("tool", "params", "start"),
    [
        ("read_file", {"path": "a.py"}, "Read 'a.py'"),
        ("read_file", {"path": "a.py", "start_line": 3}, "Read lines 3 to the last of 'a.py'"),
        ("read_file", {"path": "a.py", "start_line": 3, "end_line": 5}, "Read lines 3 to 5 of 'a.py'"),
        ("read_file", {"path": "a.py", "end_line": 5}, "Read lines 1 to 5 of 'a.py'"),
        (
            "write_file",
            {"path": "a.py", "content": "é\nb"},
            "Write 'a.py', replacing the file if there is one: 4 bytes, 2 lines",
        ),
        ("write_file", {"path": "a.py", "content": "", "mode": "append"}, "Append to 'a.py': 0 bytes, 0 lines"),
        ("list_directory", {"path": "src", "recursive": True}, "List 'src' and all below it, names like '*'"),
        ("search_files", {"pattern": "x"}, "Search '.' for the text 'x'"),
        (
            "search_files",
            {"pattern": "x+", "regex": True, "glob": "*.py"},
            "Search '.' for the regular expression 'x+', only files like '*.py'",
        ),
        ("search_web", {"query": "x"}, "Search the web for 'x'"),
    ],
)
def test_call_is_described_from_its_parameters(tool: str, params: dict[str, Any], start: str) -> None:
    assert described(tool, params).split("\n")[0] == start


def test_reasons_follow_the_description_and_low_ones_do_not() -> None:
    assert "-delete: removes what it finds." in described("execute_command", {"command": "find", "args": ["-delete"]})
    assert described("read_file", {"path": "a"}) == "Read 'a'"


def test_many_reasons_are_counted() -> None:
    args = [f"--unheard-{n}" for n in range(9)]
    assert described("execute_command", {"command": "gcc", "args": args}).endswith("and 5 further reasons")


def test_call_that_cannot_be_read_is_described_safely() -> None:
    assert described("x\x1b", {}).startswith("A call of 'x\\x1b' that cannot be read.")
    assert described("read_file", {}).startswith("A call of 'read_file' that cannot be read.")


def test_mixed_alphabets_are_noted() -> None:
    assert "mixes alphabets" in described("write_file", {"path": "p\u0430ypal.py", "content": ""})
    assert "mixes alphabets" not in described("write_file", {"path": "\u0434\u043e\u043a.py", "content": ""})
    assert "mixes alphabets" not in described("write_file", {"path": "r\u00e9sum\u00e9.md", "content": ""})


def test_secrets_are_masked_in_what_is_shown() -> None:
    params = {"command": "git", "args": ["clone", "https://bob:hunter2@example.org/r.git"], "timeout": 30}
    assert "hunter2" not in described("execute_command", params)
    assert "hunter2" not in str(shown_params("execute_command", params))


def test_small_parameters_are_shown_as_they_are() -> None:
    params = {"path": "a.py", "content": "x = 1\n", "mode": "write"}
    assert shown_params("write_file", params) == params


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_long_content_is_shortened_and_says_so(size: int) -> None:
    content = "start " + "é" * size + " end"
    shown = shown_params("write_file", {"path": "a.txt", "content": content, "mode": "write"})
    raw = content.encode()
    assert shown["content_size"] == len(raw)
    assert shown["content_sha256"] == hashlib.sha256(raw).hexdigest()
    assert shown["content"].startswith("start ")
    assert shown["content"].endswith(" end")
    assert "characters left out" in shown["content"]
    assert len(shown["content"]) < 17_000
    assert shown["path"] == "a.txt"


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_secrets_in_long_content_are_masked(size: int) -> None:
    content = "DB_PASSWORD=hunter2xyz\n" + "x\n" * size + "API_TOKEN=abc123def456\n"
    shown = shown_params("write_file", {"path": "a.txt", "content": content})
    assert "hunter2" not in shown["content"]
    assert "abc123" not in shown["content"]


def test_content_that_gets_short_by_masking_is_shown_whole() -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + ("A" * 64 + "\n") * 300 + "-----END PRIVATE KEY-----\n"
    shown = shown_params("write_file", {"path": "a.txt", "content": key})
    assert shown["content"].startswith(f"-----BEGIN PRIVATE KEY-----{MASK_PREFIX}")
    assert "left out" not in shown["content"]


def test_parameters_that_cannot_be_masked_are_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assent.gate.render.mask_value", lambda _: "[masked:withheld]")
    assert shown_params("read_file", {"path": "a"}) == {"withheld": "[masked:withheld]"}


@pytest.mark.parametrize("size", [1, 20_000, 300_000])
def test_half_a_character_is_replaced_in_all_that_is_shown(size: int) -> None:
    half = "\ud800" * size + "\udfff"
    whole = "\ufffd" * (size + 1)
    assert mask_text(half) == whole
    assert mask_value({half: [half, {"password": 1, "a": (half,)}]}) == {whole: [whole, {"password": 1, "a": [whole]}]}
    key = next(iter(mask_value({f"password{half}": "hunter2hunter2"}).values()))
    key.encode()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": half, "content": half, "mode": "write"}),
        ("read_file", {"path": half}),
        ("execute_command", {"command": half, "args": [half]}),
        ("list_directory", {"path": half, "pattern": half}),
        ("search_files", {"path": half, "pattern": half, "glob": half}),
        ("search_web", {"query": half}),
        (half, {}),
    ]
    verdict = GATE.judge("read_file", {"path": half}).verdict
    for tool, params in calls:
        assert "\ufffd" in describe(tool, params, verdict)
        describe(tool, params, verdict).encode()
        describe(tool, None, verdict).encode()
        str(shown_params(tool, params)).encode()
        for text in shown_params(tool, params).values():
            str(text).encode()


@pytest.mark.promise("S")
def test_a_secret_beside_half_a_character_is_masked() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    assert secret not in mask_text(f"\ud800 {secret}")
