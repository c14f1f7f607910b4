"""What a verdict means, and which rule decided it: the words `byleave check` and the page's check share.

Nothing here judges, and nothing here makes text safe to show: who shows it does.
"""

from typing import NamedTuple

from byleave.protocol.policies import Layer
from byleave.protocol.verdicts import Verdict, VerdictLevel

from .policy import Policy

MEANING = {
    VerdictLevel.LOW: "runs at once",
    VerdictLevel.MEDIUM: "asks first, 5 minutes to answer",
    VerdictLevel.HIGH: "asks first, 10 minutes to answer",
    VerdictLevel.REFUSE: "never runs",
}


class Decider(NamedTuple):
    """The rule that decides about a call."""

    rule: str
    """`user.3` for the third rule of the user's layer; else the gate's own, such as `commands.find.-delete`."""
    text: str | None
    """The rule on one line, where it waives the question."""
    layer: Layer
    source: str | None
    """The file it was written in; None for the gate's own."""


def meaning(verdict: Verdict) -> str:
    """What happens to a call with this verdict, before grants and modes are looked at."""
    if verdict.waived_by is not None:
        return "runs without asking, by a rule of yours"
    return MEANING[verdict.level]


def decider(verdict: Verdict, policy: Policy) -> Decider:
    """The rule that waives the question; else the one of the strictest finding."""
    if verdict.waived_by is not None:
        name, _, text = verdict.waived_by.partition(": ")
        return _written(name, text, policy)
    kind, _, name = verdict.findings[0].rule.partition(".")
    if kind == "policy":
        return _written(name, None, policy)
    return Decider(verdict.findings[0].rule, None, Layer.BUILT_IN, None)


def _written(name: str, text: str | None, policy: Policy) -> Decider:
    layer = Layer(name.partition(".")[0])
    source = next((found.source for found in policy.layers if found.layer is layer), None)
    return Decider(name, text, layer, source)
