"""Paths by syntax: the labelled corpus and spellings it does not have."""

import json
from pathlib import Path

import pytest

from byleave.gate import Gate, check_path
from byleave.protocol.verdicts import Verdict
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("G1", "S")

WORKSPACE = "/home/user/ws"
GATE = Gate()
CASES: list[JsonObject] = [
    json.loads(line) for line in Path(__file__).with_name("cases").joinpath("paths.jsonl").read_text().splitlines()
]
PINNED_AS_REFUSED = {"path-015"}
"""Names that end with dots are refused everywhere for the sake of systems that drop them."""


def judge(operation: str, path: str, workspace: str | None = WORKSPACE) -> Verdict:
    tools: dict[str, tuple[str, JsonObject]] = {
        "read": ("read_file", {"path": path}),
        "write": ("write_file", {"path": path, "content": "x"}),
        "list": ("list_directory", {"path": path}),
        "search": ("search_files", {"path": path, "pattern": "x"}),
    }
    name, params = tools[operation]
    return GATE.judge(name, params, workspace=workspace).verdict


def path_of(case: JsonObject) -> str:
    if case.get("placeholder"):
        return "a" * 251 + ".txt"
    return case["path"].replace("{WSNAME}", "ws").replace("{WS}", WORKSPACE)


def decidable(case: JsonObject) -> bool:
    return case["expect"] == "OK" or case["setup"].startswith(("files src", "Windows client"))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES if decidable(case)])
def test_labelled_path_is_judged_as_labelled(case: JsonObject) -> None:
    refused = case["expect"] == "REFUSE" or case["id"] in PINNED_AS_REFUSED
    assert judge(case["op"], path_of(case)).refused is refused, case["why"]


OUTSIDE = [
    "..",
    "../x",
    "a/../../x",
    "./../x",
    "a/./../../x",
    "/etc/passwd",
    "/",
    "//etc/passwd",
    "/home/user/ws-evil/x",
    "/home/user/ws2",
    "/home/user/ws/../x",
    "/home/user",
    "/home/user/ws/../ws/x",
    "/proc/self/environ",
    "C:\\x",
    "\\\\host\\share",
    "..\\x",
    "file:///etc/passwd",
    "．．/x",  # noqa: RUF001
    "..\xa0/x",
    "\u3000../x",
    "a/../..\u2003/x",
    "a／../../x",  # noqa: RUF001
    "a/\u2024\u2024/b",
    "\u2025/b",
    "a/\u2100/b",
    "CLOCK$",
    ".. /x",
    "a\nb",
    "a\0b",
    "a\u202eb",
    "a\ufeffb",
    "a\x9bb",
    "a\U000e0041b",
    "",
    "x" * 300,
    "é" * 128,
    "/".join(["a" * 200] * 30),
]


@pytest.mark.parametrize("operation", ["read", "write", "list", "search"])
@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: ascii(path)[:40])
def test_every_tool_refuses_the_same_spellings(operation: str, path: str) -> None:
    assert judge(operation, path).refused


@pytest.mark.parametrize("operation", ["read", "list", "search"])
@pytest.mark.parametrize(
    "path",
    [
        ".",
        "a",
        "a/b",
        "./a",
        "a/../b",
        "..a",
        "a..",
        "...",
        "a b",
        "-x",
        "~x",
        "~",
        "日本語/é.md",
        "50%.md",
        "ab:c",
        "aux.c",
        "a'b",
        "$id.tsx",
        "[id].tsx",
        "(group)/x",
        "a\xa0b",
        WORKSPACE,
        f"{WORKSPACE}/",
        f"{WORKSPACE}/a",
    ],
)
def test_ordinary_spellings_inside_are_accepted(operation: str, path: str) -> None:
    assert not judge(operation, path).refused


@pytest.mark.parametrize("path", ["/home/user/ws/a", "/etc/passwd", "/"])
def test_absolute_path_is_refused_where_the_workspace_is_not_known(path: str) -> None:
    verdict = judge("read", path, workspace=None)
    assert verdict.refused
    assert verdict.findings[0].instead == "use a path relative to the workspace"


@pytest.mark.parametrize("workspace", ["/", "", "//"])
def test_the_root_is_no_workspace(workspace: str) -> None:
    assert judge("read", "/etc/passwd", workspace=workspace).refused


def test_system_file_is_refused_also_where_the_workspace_holds_it() -> None:
    assert judge("read", "/etc/app/passwd", workspace="/etc/app").refused


def test_workspace_may_be_written_with_a_final_slash() -> None:
    assert check_path("/home/user/ws/a", workspace="/home/user/ws/") == ("a", None)
    assert check_path("/home/user/ws", workspace="/home/user/ws/") == (".", None)


@pytest.mark.parametrize(
    "path",
    [
        "NUL",
        "nul.txt",
        "a/CON/b",
        "com1",
        "LPT9.md",
        "x.txt.",
        "x.txt ",
        "a./b",
        "x:y",
        "src/ab:c",
        "com\u00b9",
        "PROGRA~1",
        "git~1/x",
        "a/",
        "a/.",
        ".",
        "a/..",
        "aux.py",
    ],
)
def test_name_that_means_something_else_elsewhere_is_not_made(path: str) -> None:
    assert judge("write", path).refused


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../*", "{a,../x}", "a\0", "a\\b", "{a}" * 9, "**/" * 9])
def test_glob_that_leads_out_or_explodes_is_refused(pattern: str) -> None:
    assert GATE.judge("list_directory", {"path": ".", "pattern": pattern}).verdict.refused
    assert GATE.judge("search_files", {"pattern": "x", "glob": pattern}).verdict.refused


@pytest.mark.parametrize("pattern", ["*", "*.py", "**/*.py", ".*", "[ab]*", "{a,b}.ts", "src/*.ts"])
def test_ordinary_glob_is_low(pattern: str) -> None:
    assert GATE.judge("list_directory", {"path": ".", "pattern": pattern}).verdict.level == "LOW"


def test_refusal_shows_hidden_characters_and_stays_short() -> None:
    assert "\\u{202e}" in judge("read", "a\u202eb").reasons[0]
    assert len(judge("read", "../" + "a" * 4000).reasons[0]) < 300
