"""Calls as a whole: unknown tools, wrong parameters, names, defaults, and the promise never to raise."""

import ast
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import byleave.gate
from byleave.gate import Gate
from byleave.protocol.states import ErrorType
from byleave.protocol.tools import SCRIPT_NAMES, TOOLS
from harness.json_values import Json, JsonObject

GATE = Gate()


@pytest.mark.promise("W4")
@pytest.mark.parametrize("name", ["x", "", "READ_FILE", "read_file ", "approve_tool", "readfile"])
def test_unknown_tool_is_refused_and_told_the_six(name: str) -> None:
    judgement = GATE.judge(name, {})
    assert judgement.verdict.refused
    assert judgement.verdict.error_type is ErrorType.INVALID
    assert judgement.verdict.findings[0].reason == f"Unknown tool: '{name}'"
    assert all(tool in (judgement.verdict.findings[0].instead or "") for tool in TOOLS)
    assert judgement.params is None


@pytest.mark.promise("T1")
def test_script_names_are_the_same_tools() -> None:
    calls: dict[str, JsonObject] = {
        "readFile": {"path": "a"},
        "writeFile": {"path": "a.py", "content": ""},
        "runCommand": {"command": "ls"},
        "listDir": {},
        "searchFiles": {"pattern": "x"},
        "searchWeb": {"query": "x"},
    }
    for script_name, params in calls.items():
        judgement = GATE.judge(script_name, params)
        assert judgement.tool_name == SCRIPT_NAMES[script_name]
        assert not judgement.verdict.refused


@pytest.mark.promise("W4")
def test_defaults_are_filled_in() -> None:
    assert GATE.judge("execute_command", {"command": "ls"}).params == {"command": "ls", "args": [], "timeout": 30}
    assert GATE.judge("list_directory", {}).params == {"path": ".", "recursive": False, "pattern": "*"}


@pytest.mark.promise("W4", "S")
@pytest.mark.parametrize(
    ("tool", "params", "field"),
    [
        ("read_file", {}, "path"),
        ("read_file", {"path": 3}, "path"),
        ("read_file", {"path": "a", "approved": True}, "approved"),
        ("read_file", {"path": "a", "start_line": 0}, "start_line"),
        ("read_file", {"path": "a", "start_line": True}, "start_line"),
        ("read_file", {"path": "a", "start_line": 5, "end_line": 2}, "end_line"),
        ("read_file", {"path": "\ud800"}, "path"),
        ("read_file", {"path": "a" * 5000}, "path"),
        ("execute_command", {"command": "ls", "cwd": "/"}, "cwd"),
        ("execute_command", {"command": "ls", "env": {}}, "env"),
        ("execute_command", {"command": "ls", "risk_level": "LOW"}, "risk_level"),
        ("execute_command", {"command": "ls", "args": "-la"}, "args"),
        ("execute_command", {"command": "ls", "args": [1]}, "args.0"),
        ("execute_command", {"command": "ls", "args": ["\udc80"]}, "args"),
        ("execute_command", {"command": "ls", "args": ["a\0"]}, "args"),
        ("execute_command", {"command": "l\0s"}, "command"),
        ("read_file", {"path": "a\0b"}, "path"),
        ("write_file", {"path": "a.py", "content": "\ud800"}, "content"),
        ("execute_command", {"command": ["ls"]}, "command"),
        ("execute_command", {"command": "ls", "timeout": 301}, "timeout"),
        ("execute_command", {"command": "ls", "timeout": -1}, "timeout"),
        ("execute_command", {"command": "ls", "timeout": "30"}, "timeout"),
        ("execute_command", {"command": "ls", "timeout": float("nan")}, "timeout"),
        ("write_file", {"path": "a.py"}, "content"),
        ("write_file", {"path": "a.py", "content": b"x"}, "content"),
        ("write_file", {"path": "a.py", "content": "", "mode": "delete"}, "mode"),
        ("list_directory", {"recursive": "yes"}, "recursive"),
        ("search_files", {"pattern": ""}, "pattern"),
        ("search_files", {"pattern": "a\0b"}, "pattern"),
        ("search_files", {"pattern": "x", "max_results": 1001}, "max_results"),
        ("search_web", {"query": "x" * 401}, "query"),
        ("search_web", {"query": "x\x1b"}, "query"),
    ],
)
def test_wrong_parameters_are_refused_with_the_field_named(tool: str, params: JsonObject, field: str) -> None:
    verdict = GATE.judge(tool, params).verdict
    assert verdict.refused
    assert verdict.error_type is ErrorType.INVALID
    assert field in verdict.findings[0].reason


_CYCLE: list[object] = ["a"]
_CYCLE.append(_CYCLE)


@pytest.mark.promise("W4", "S")
@pytest.mark.parametrize(
    "half",
    ["\ud800", "a\udc80b", "é\ud83d\ude00", "x" * 100_000 + "\ud800"],
    ids=["alone", "between", "apart", "long"],
)
@pytest.mark.parametrize(
    ("tool", "field"),
    [(tool, field) for tool, spec in TOOLS.items() for field in (*spec.params.model_fields, "unknown")],
)
def test_half_a_character_anywhere_is_refused_and_its_field_named(tool: str, field: str, half: str) -> None:
    for value in (half, [half], ["a", [half]], {"deep": [half]}, {half: 1}, (half,)):
        verdict = GATE.judge(tool, {field: value}).verdict
        assert (verdict.level.value, verdict.error_type) == ("REFUSE", ErrorType.INVALID)
        assert verdict.message == f"`{field}` holds half a character (a lone surrogate)."


@pytest.mark.promise("W4", "S")
@pytest.mark.parametrize("name", ["\ud800", "read_file\udfff", "x" * 500 + "\ud800"], ids=["alone", "behind", "long"])
def test_half_a_character_in_a_name_is_refused(name: str) -> None:
    for judgement, told in (
        (GATE.judge(name, {"path": "a"}), "`tool_name` holds half a character (a lone surrogate)."),
        (GATE.judge("read_file", {name: "a"}), "The name of a parameter holds half a character (a lone surrogate)."),
    ):
        assert judgement.verdict.error_type is ErrorType.INVALID
        assert judgement.verdict.message == told
        judgement.tool_name.encode()


def test_a_value_that_holds_itself_is_refused() -> None:
    assert GATE.judge("execute_command", {"command": "ls", "args": _CYCLE}).verdict.error_type is ErrorType.INVALID


def test_a_whole_character_outside_the_basic_plane_is_fine() -> None:
    assert not GATE.judge("write_file", {"path": "a.md", "content": "\U0001f600"}).verdict.refused


@pytest.mark.promise("W4")
@pytest.mark.parametrize("params", [None, 3, "x", [], [["path", "a"]], True])
def test_parameters_that_are_no_object_are_refused(params: Json) -> None:
    verdict = GATE.judge("read_file", params).verdict
    assert verdict.refused
    assert verdict.error_type is ErrorType.INVALID


@pytest.mark.promise("W4")
@pytest.mark.parametrize("name", [None, 3, ["read_file"], {}])
def test_name_that_is_no_text_is_refused(name: Json) -> None:
    assert GATE.judge(name, {}).verdict.refused


@pytest.mark.promise("G5")
def test_ordinary_uses_have_the_level_of_the_catalogue() -> None:
    assert GATE.judge("read_file", {"path": "a.py"}).verdict.level == "LOW"
    assert GATE.judge("list_directory", {"recursive": True}).verdict.level == "LOW"
    assert GATE.judge("search_files", {"pattern": "(a+)+$", "regex": True}).verdict.level == "LOW"
    web = GATE.judge("search_web", {"query": "python"}).verdict
    assert web.level == "MEDIUM"
    assert web.network


@pytest.mark.promise("G5")
def test_search_by_a_glob_for_secrets_is_medium() -> None:
    assert GATE.judge("search_files", {"pattern": "x", "glob": "*.pem"}).verdict.level == "MEDIUM"
    assert GATE.judge("search_files", {"pattern": "x", "glob": ".env*"}).verdict.level == "MEDIUM"
    assert GATE.judge("search_files", {"pattern": "x", "glob": "*.py"}).verdict.level == "LOW"
    assert GATE.judge("search_files", {"pattern": "x", "glob": "!*.pem"}).verdict.level == "LOW", "it leaves them out"


@pytest.mark.promise("G5")
def test_without_a_sandbox_reads_ask_too() -> None:
    verdict = GATE.judge("read_file", {"path": "a.py"}, isolated=False).verdict
    assert verdict.level == "MEDIUM"
    assert len(verdict.findings) == 2


@pytest.mark.promise("S")
def test_a_fault_inside_the_gate_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()

    def fail(*_: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr("byleave.gate.gate.assess_write", fail)
    verdict = gate.judge("write_file", {"path": "a.py", "content": ""}).verdict
    assert verdict.refused
    assert "RuntimeError" in verdict.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(sorted({field for spec in TOOLS.values() for field in spec.params.model_fields} | {"cwd"}))


@pytest.mark.promise("W4", "S")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(TOOLS)) | JSON, params=JSON | st.dictionaries(FIELDS, JSON, max_size=4))
def test_judge_never_raises_on_any_json(name: Json, params: Json) -> None:
    verdict = GATE.judge(name, params, workspace="/home/user/ws").verdict
    assert verdict.findings
    assert verdict.refused == (verdict.error_type is not None)


@pytest.mark.promise("S")
def test_the_gate_imports_nothing_that_can_act() -> None:
    forbidden = {"os", "socket", "subprocess", "asyncio", "threading", "shutil", "tempfile", "pathlib", "io", "time"}
    for module in Path(byleave.gate.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names.append(node.module)
            assert not forbidden & {name.partition(".")[0] for name in names}, module.name
