"""The gate under the names people look for: they say what the gate says, and no more."""

import pytest

import byleave
from byleave.gate import CommandValidator, RiskAssessor, ToolValidator
from byleave.protocol.states import RiskLevel


@pytest.mark.promise("G1")
@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "/work-evil/a", "", "a\0b"])
def test_a_path_that_leads_out_is_not_valid_and_the_error_says_why(path: str) -> None:
    validator = ToolValidator("/work")
    for found in (
        validator.validate_file_path(path),
        validator.validate_read_params({"path": path}),
        validator.validate_write_params({"path": path, "content": "x"}),
    ):
        assert not found
        assert (found.valid, bool(found.error)) == (False, True)


def test_a_path_of_the_workspace_is_valid() -> None:
    validator = ToolValidator("/work")
    assert validator.validate_file_path("/work/src/a.py")
    assert validator.validate_read_params({"path": "src/a.py"}).error is None
    assert validator.validate_write_params({"path": "src/a.py", "content": "x"}).valid
    assert not validator.validate_write_params({"path": "a.exe", "content": "x"})
    assert not validator.validate_write_params({"path": "a.py"})
    assert not validator.validate_read_params({"path": "a.py", "mode": "r"})


@pytest.mark.promise("G2", "G3")
def test_commands_are_allowed_by_name_and_safe_by_their_arguments() -> None:
    commands = CommandValidator()
    assert commands.is_command_allowed("git")
    assert commands.is_command_allowed("python3")
    assert not any(commands.is_command_allowed(name) for name in ("rm", "sudo", "/bin/ls", "LS", ""))
    assert commands.validate_command_safety("ls", ["-l"])
    assert commands.validate_command_safety("rm", ["-rf", "/"]).error == "Command not allowed: rm"
    assert not commands.validate_command_safety("find", [".", "-exec", "rm", "{}", ";"])
    for no_list in ("-delete", ". -delete", None, [5]):
        assert not commands.validate_command_safety("find", no_list)  # type: ignore[arg-type]


@pytest.mark.promise("G5", "G6")
def test_risk_levels_and_their_times_are_the_gates() -> None:
    assessor = RiskAssessor()
    found = [
        assessor.get_risk_level("read_file", {"path": "a.txt"}),
        assessor.get_risk_level("write_file", {"path": "a.txt", "content": "x"}),
        assessor.get_risk_level("execute_command", {"command": "rm", "args": ["-rf", "/"]}),
    ]
    assert found == [RiskLevel.LOW, RiskLevel.MEDIUM, RiskLevel.HIGH]
    assert [byleave.get_timeout_for_risk_level(level) for level in found] == [None, 300, 600]


def test_the_public_names_are_those_of_the_package() -> None:
    assert (byleave.ToolValidator, byleave.CommandValidator, byleave.RiskAssessor) == (
        ToolValidator,
        CommandValidator,
        RiskAssessor,
    )
    for name in byleave.__all__:
        assert getattr(byleave, name).__name__.removeprefix("byleave.") == name
    with pytest.raises(AttributeError):
        byleave.Nothing  # type: ignore[attr-defined]  # noqa: B018
