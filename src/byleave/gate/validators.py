"""The gate under the names people look for first: ToolValidator, RiskAssessor. See docs/names.md.

Thin: each asks the one gate and says less than `Gate.judge`, which is what Byleave itself uses.
"""

from collections.abc import Mapping
from typing import Any

from byleave.protocol.states import RiskLevel
from byleave.protocol.verdicts import Validation

from . import risk
from .gate import Gate
from .paths import check_path


class ToolValidator:
    """True if paths and parameters of file tools are ones the gate lets through, perhaps after a question."""

    def __init__(self, workspace: str | None = None, gate: Gate | None = None) -> None:
        self._workspace = workspace
        self._gate = gate or Gate()

    def validate_file_path(self, path: str, *, writes: bool = False) -> Validation:
        """By its syntax: the machine asks its file system again."""
        refusal = check_path(path, workspace=self._workspace, writes=writes).refusal
        return Validation(None if refusal is None else refusal.reason)

    def validate_read_params(self, params: Mapping[str, Any]) -> Validation:
        return self._validate("read_file", params)

    def validate_write_params(self, params: Mapping[str, Any]) -> Validation:
        return self._validate("write_file", params)

    def _validate(self, tool_name: str, params: Mapping[str, Any]) -> Validation:
        verdict = self._gate.judge(tool_name, params, workspace=self._workspace).verdict
        return Validation(verdict.message if verdict.refused else None)


class RiskAssessor(risk.RiskAssessor):
    """How much a call could harm."""

    def __init__(self, gate: Gate | None = None) -> None:
        self._gate = gate

    def get_risk_level(self, tool_name: str, params: Mapping[str, Any], workspace: str | None = None) -> RiskLevel:
        """The level of a call; one that is refused counts as HIGH, as in the record."""
        return (self._gate or Gate()).judge(tool_name, params, workspace=workspace).verdict.risk_level
