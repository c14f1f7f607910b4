"""Verdicts of the gate: a level, and findings a person can read.

A verdict is the strictest of its findings, so `max` combines them; there is no other way to combine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .states import ErrorType, RiskLevel
from .wire import JsonObject, WireModel


class VerdictLevel(StrEnum):
    """LOW runs at once, MEDIUM and HIGH ask, REFUSE never runs."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    REFUSE = "REFUSE"

    rank: int
    """Strictness, from 0; a plain attribute, since every comparison asks for it."""
    risk: RiskLevel
    """Level as a risk; the record counts a refusal as HIGH."""


for _rank, _level in enumerate(VerdictLevel):
    _level.rank = _rank
    _level.risk = RiskLevel.HIGH if _level is VerdictLevel.REFUSE else RiskLevel(_level.value)


class Finding(WireModel):
    """One reason for a level, in words a person understands."""

    level: VerdictLevel
    reason: str
    """For example: `-delete` removes files."""
    rule: str
    """Name of the rule: `commands.find.-delete`, `paths.outside`, …"""
    instead: str | None = None
    """A safer alternative for the agent."""
    always_asks: bool = False
    """Asks in `full` mode too: secrets, files that run or are trusted later, catastrophic commands."""


class Verdict(WireModel):
    """The gate's answer for one call."""

    level: VerdictLevel
    findings: tuple[Finding, ...]
    """Strictest first; never empty."""
    network: bool = False
    """True if the call needs the network; an approval then grants it."""
    error_type: ErrorType | None = None
    """For REFUSE: `invalid` for a malformed call, `refused` for a well-formed one that may not run."""
    understood: JsonObject | None = None
    """Parsed arguments, for `byleave check`."""
    waived_by: str | None = None
    """Rule that waives the question of this level; never set if something else asks."""
    runs: tuple[str, ...] = ()
    """Workspace files whose content would run. An approval shows them and is bound to them."""

    @property
    def refused(self) -> bool:
        return self.level is VerdictLevel.REFUSE

    @property
    def always_asks(self) -> bool:
        return any(finding.always_asks for finding in self.findings)

    @property
    def reasons(self) -> list[str]:
        return [finding.reason for finding in self.findings]

    @property
    def message(self) -> str:
        """Reason given to a refused agent; the first finding's `instead` holds the alternative."""
        return self.findings[0].reason


@dataclass(frozen=True, slots=True)
class Validation:
    """Result of a check; false, with an error, if it failed."""

    error: str | None = None

    @property
    def valid(self) -> bool:
        return self.error is None

    def __bool__(self) -> bool:
        return self.valid


def verdict_of(
    findings: Sequence[Finding],
    *,
    network: bool = False,
    error_type: ErrorType | None = None,
    understood: JsonObject | None = None,
    runs: tuple[str, ...] = (),
) -> Verdict:
    """Combine findings; the strictest decides."""
    ordered = (
        tuple(findings) if len(findings) == 1 else tuple(sorted(findings, key=lambda finding: -finding.level.rank))
    )
    level = ordered[0].level
    if level is VerdictLevel.REFUSE and error_type is None:
        error_type = ErrorType.REFUSED
    return Verdict(
        level=level, findings=ordered, network=network, error_type=error_type, understood=understood, runs=runs
    )
