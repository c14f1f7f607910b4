"""The owner's rules: what a policy says of a call, whatever the order of its rules and layers.

Of all rules that fit, the strictest wins. A deny refuses and an ask always asks; both only add findings, so no rule can
take back what another or the gate itself found. An allow adds nothing: it is named, and the gate lets it waive the
question that a risk level alone would ask. Text becomes a policy in `policy_text`. Nothing here opens a file.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from byleave.protocol.errors import CallerError
from byleave.protocol.policies import Layer
from byleave.protocol.states import AgentMode
from byleave.protocol.verdicts import Finding, VerdictLevel

from .rules import Call, Fit, Pattern

MOST_COMPARED = 20_000
"""Patterns times names that are compared for one call."""
MAX_FINDINGS = 20
"""Reasons kept of one call; the strictest stay."""


class PolicyError(CallerError):
    """A policy that cannot be used: the message names the file, the rule and the field."""


class Action(StrEnum):
    """What a rule does."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of one layer."""

    layer: Layer
    number: int
    """Counted from 1, in its file."""
    action: Action
    pattern: Pattern
    text: str
    """The rule on one line."""
    because: str | None = None
    instead: str | None = None

    @property
    def name(self) -> str:
        return f"{self.layer.value}.{self.number}"

    @property
    def label(self) -> str:
        return f"{self.name}: {self.text}"

    def finding(self, call: Call) -> Finding | None:
        """What an ask or a deny says of a call; None when it is not about it."""
        sure = self.pattern.fit(call)
        if sure is Fit.NO:
            return None
        reason, denies = self._reason(sure), self.action is Action.DENY and sure is Fit.YES
        return Finding(
            level=VerdictLevel.REFUSE if denies else VerdictLevel.MEDIUM,
            reason=reason,
            rule=f"policy.{self.name}",
            instead=self.instead,
            always_asks=not denies,
        )

    def _reason(self, sure: Fit) -> str:
        if sure is Fit.PERHAPS:
            does = "denies" if self.action is Action.DENY else "asks about"
            why = f" {self._said(self.because)}" if self.because else ""
            if self.pattern.paths:
                return f"It could reach {_listed(self.pattern.paths)}, which rule {self.name} {does}.{why}"
            return f"It could be what rule {self.name} {does} under another name ({self.text}).{why}"
        if self.because:
            return self._said(self.because)
        does = "denies this" if self.action is Action.DENY else "wants this asked"
        return f"Rule {self.name} {does} ({self.text})."

    def _said(self, because: str) -> str:
        # The words of a repository's file must not pass for the owner's or for ours.
        return f"The project's own rule says: {because}" if self.layer is Layer.PROJECT else because


def _listed(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(f"'{path}'" for path in paths[:3]) + more


@dataclass(frozen=True)
class LayerPolicy:
    """One layer, parsed."""

    layer: Layer
    source: str
    rules: tuple[Rule, ...] = ()
    """All of them, also those held back."""
    turned_on: frozenset[str] = frozenset()
    """Commands it turns on."""
    widest_mode: AgentMode = AgentMode.FULL
    trusted: bool = True

    @property
    def in_force(self) -> tuple[Rule, ...]:
        """The rules that count: what loosens only when the layer is trusted."""
        return self.rules if self.trusted else tuple(rule for rule in self.rules if rule.action is not Action.ALLOW)

    @property
    def commands(self) -> frozenset[str]:
        return self.turned_on if self.trusted else frozenset()

    @property
    def loosening(self) -> tuple[str, ...]:
        """What it loosens, a line each."""
        turned_on = [f"turns on the command {name}" for name in sorted(self.turned_on)]
        return (*turned_on, *(f"rule {rule.number}: {rule.text}" for rule in self.rules if rule.action is Action.ALLOW))

    @property
    def held_back(self) -> tuple[str, ...]:
        """What it would loosen and does not, because nobody has trusted it."""
        return () if self.trusted else self.loosening


@dataclass(frozen=True, slots=True)
class PolicyOpinion:
    """What a policy says of one call."""

    findings: tuple[Finding, ...] = ()
    """Strictest first."""
    allow: Rule | None = None
    """A rule that allows it; it waives a question of risk and nothing else."""


_NO_OPINION = PolicyOpinion()


@dataclass(frozen=True)
class Policy:
    """All layers together."""

    layers: tuple[LayerPolicy, ...] = ()
    commands: frozenset[str] = field(init=False)
    """Commands that are turned on."""
    widest_mode: AgentMode = field(init=False)
    """The widest mode an agent may have here."""
    _by_command: dict[str, tuple[Rule, ...]] = field(init=False, repr=False, compare=False)
    _by_tool: dict[str | None, tuple[Rule, ...]] = field(init=False, repr=False, compare=False)
    _most_names: int = field(init=False, repr=False, compare=False)

    def __init__(self, layers: Iterable[LayerPolicy] = ()) -> None:
        layers = tuple(layers)
        by_command: dict[str, tuple[Rule, ...]] = {}
        by_tool: dict[str | None, tuple[Rule, ...]] = {}
        for rule in (rule for layer in layers for rule in layer.in_force):
            for name in dict.fromkeys(rule.pattern.command[0]) if rule.pattern.command else ():
                by_command[name] = (*by_command.get(name, ()), rule)
            if not rule.pattern.command:
                by_tool[rule.pattern.tool] = (*by_tool.get(rule.pattern.tool, ()), rule)
        globs = sum(len(rule.pattern.paths) for layer in layers for rule in layer.in_force)
        modes = {layer.widest_mode for layer in layers}
        values = {
            "layers": layers,
            "commands": frozenset[str]().union(*(layer.commands for layer in layers)),
            "widest_mode": AgentMode.SANDBOX if AgentMode.SANDBOX in modes else AgentMode.FULL,
            "_by_command": by_command,
            "_by_tool": by_tool,
            "_most_names": MOST_COMPARED // max(globs, 1),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def has_rules(self) -> bool:
        return bool(self._by_command or self._by_tool)

    def path_denials(self, tool: str) -> tuple[Rule, ...]:
        """Rules that keep a tool from paths whatever else the call says: denials of paths, of this tool or of all."""
        about = (rule for name in (None, tool) for rule in self._by_tool.get(name, ()))
        return tuple(
            rule for rule in about if rule.action is Action.DENY and rule.pattern.paths and not rule.pattern.options
        )

    def plus(self, *layers: LayerPolicy) -> "Policy":
        """This policy with further layers."""
        return Policy((*self.layers, *layers))

    def judge(self, call: Call) -> PolicyOpinion:
        """What the rules say of one call."""
        found: dict[tuple[VerdictLevel, str], Finding] = {}
        allow: Rule | None = None
        if call.names > self._most_names:
            call = call.cut(self._most_names)
        for rule in self._candidates(call):
            if rule.action is Action.ALLOW:
                if allow is None and rule.pattern.fits_strictly(call):
                    allow = rule
            elif (finding := rule.finding(call)) is not None:
                found.setdefault((finding.level, finding.reason), finding)
        if not found and allow is None:
            return _NO_OPINION
        strictest = sorted(found.values(), key=lambda finding: -finding.level.rank)
        return PolicyOpinion(tuple(strictest[:MAX_FINDINGS]), allow)

    def _candidates(self, call: Call) -> Iterator[Rule]:
        yield from self._by_tool.get(None, ())
        yield from self._by_tool.get(call.tool, ())
        if call.argv:
            yield from self._by_command.get(call.argv[0], ())
        if call.also is not None:
            yield from self._by_command.get(call.also.argv[0], ())


NO_POLICY = Policy()
