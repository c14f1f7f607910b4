"""What the gate says of a call: a level, and findings a person can read.

A verdict is the strictest of its findings, so combining is `max`; there is no other way to combine.
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
    """How strict it is, from 0; a plain attribute, since every comparison asks for it."""


for _rank, _level in enumerate(VerdictLevel):
    _level.rank = _rank


class Finding(WireModel):
    """One reason for a level, in words a person understands."""

    level: VerdictLevel
    reason: str
    """For example: `-delete` removes files."""
    rule: str
    """Which rule found it: `commands.find.-delete`, `paths.outside`, …"""
    instead: str | None = None
    """What an agent could do instead."""
    always_asks: bool = False
    """Asked about in `full` mode too: secrets, what would run or be trusted later, the catastrophic."""


class Verdict(WireModel):
    """The gate's answer for one call."""

    level: VerdictLevel
    findings: tuple[Finding, ...]
    """Strictest first; never empty."""
    network: bool = False
    """Whether what would run needs the network; an approval then grants it."""
    error_type: ErrorType | None = None
    """With REFUSE: `invalid` for a malformed call, `refused` for a well-formed one that may not run."""
    understood: JsonObject | None = None
    """How the arguments were read, for `byleave check`."""
    waived_by: str | None = None
    """The rule that waives the question this level alone would ask; never set where something else asks."""
    runs: tuple[str, ...] = ()
    """Files of the workspace whose content would run: an approval shows them and is bound to them."""

    @property
    def refused(self) -> bool:
        return self.level is VerdictLevel.REFUSE

    @property
    def risk_level(self) -> RiskLevel:
        """The level as a risk; a refusal counts as HIGH in the record."""
        return RiskLevel.HIGH if self.refused else RiskLevel(self.level.value)

    @property
    def always_asks(self) -> bool:
        return any(finding.always_asks for finding in self.findings)

    @property
    def reasons(self) -> list[str]:
        return [finding.reason for finding in self.findings]

    @property
    def message(self) -> str:
        """What a refused agent is told; what it could do instead is the first finding's `instead`."""
        return self.findings[0].reason


@dataclass(frozen=True, slots=True)
class Validation:
    """Whether something is valid, and if not why; true when it is."""

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
    """Combine findings: the strictest decides."""
    ordered = tuple(findings) if len(findings) == 1 else tuple(sorted(findings, key=_strictest_first))
    level = ordered[0].level
    if level is VerdictLevel.REFUSE and error_type is None:
        error_type = ErrorType.REFUSED
    return Verdict(
        level=level, findings=ordered, network=network, error_type=error_type, understood=understood, runs=runs
    )


def _strictest_first(finding: Finding) -> int:
    return -finding.level.rank
