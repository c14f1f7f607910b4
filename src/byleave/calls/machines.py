"""The machine a call would run on: its declared workspace, isolation, owner's rules and unusable tools.

The server judges with the organisation's rules and those the chosen client declared; the client judges again with
its own copy. Parsed declarations are cached until the next one. Nothing here reads a machine itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError

from byleave.bus import Bus, Presence
from byleave.gate import Gate, Judgement, PolicyError, declared_layers, mask_text, safe_text
from byleave.protocol.overview import PolicyDeclaration
from byleave.protocol.states import AgentMode
from byleave.protocol.tools import TOOLS
from byleave.protocol.verdicts import Finding, VerdictLevel, verdict_of
from byleave.store import Store
from byleave.store.machines import policy_topic

log = structlog.stdlib.get_logger(__name__)

MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine a call would run on."""

    gate: Gate
    workspace: str | None
    isolated: bool
    unable: Mapping[str, str]
    """Tools that cannot work here, with the reason."""

    def judge(self, tool_name: str, tool_params: Mapping[str, Any]) -> Judgement:
        """Judge a call by the rules of this machine and the server."""
        judgement = self.gate.judge(tool_name, tool_params, workspace=self.workspace, isolated=self.isolated)
        because = self.unable.get(judgement.tool_name)
        if because is None or judgement.verdict.refused:
            return judgement
        return _refused(judgement, safe_text(mask_text(because)), "machine.tools", "say so, or do without it")

    @property
    def widest_mode(self) -> AgentMode:
        return self.gate.rules.policy.widest_mode


def withheld(judgement: Judgement, tools: frozenset[str] | None, agent_id: str | None) -> Judgement:
    """Refuse an agent's call of a tool that it does not have; `tools` is None for all."""
    if tools is None or judgement.tool_name in tools or judgement.tool_name not in TOOLS:
        return judgement
    reason = f"The agent {agent_id!r} does not have the tool {judgement.tool_name}."
    return _refused(judgement, reason, "agents.tools", "use the tools you have, or say what you would need")


def _refused(judgement: Judgement, reason: str, rule: str, instead: str) -> Judgement:
    finding = Finding(level=VerdictLevel.REFUSE, reason=reason, rule=rule, instead=instead)
    return Judgement(judgement.tool_name, judgement.params, verdict_of([finding]))


@dataclass(frozen=True, slots=True)
class _Declared:
    """A machine's declaration, parsed."""

    gate: Gate
    unable: Mapping[str, str]


class Machines:
    """Finds the machine of a project."""

    def __init__(self, store: Store, bus: Bus, presence: Presence, gate: Gate) -> None:
        self._store = store
        self._bus = bus
        self._presence = presence
        self._gate = gate
        self._kept: dict[tuple[str, str | None], _Declared] = {}
        self._heard: dict[str, int] = {}
        """Number of declarations heard of, by project we listen to."""

    async def of(self, project_id: str) -> Machine:
        """The machine of the client that would execute now; if none is connected, the last one."""
        client = self._presence.choose(project_id)
        if client is not None and client.declared:
            said = await self._declared_by(project_id, client.client_id)
            return Machine(said.gate, client.workspace, client.isolation != "none", said.unable)
        project = await self._store.chat.project(project_id)
        said = await self._declared_by(project_id, None)
        if project is None:
            return Machine(said.gate, None, isolated=True, unable=said.unable)
        return Machine(said.gate, project.workspace, project.isolation != "none", said.unable)

    def keep_off(self, *tools: str) -> dict[str, list[str]]:
        """Paths that the server's own rules deny to each of these tools, on any machine."""
        policy = self._gate.rules.policy
        denied = {tool: [glob for rule in policy.path_denials(tool) for glob in rule.pattern.paths] for tool in tools}
        return {tool: list(dict.fromkeys(globs)) for tool, globs in denied.items() if globs}

    async def declared(self, project_id: str) -> PolicyDeclaration | None:
        """The owner's rules by which calls are judged."""
        client = self._presence.choose(project_id)
        client_id = client.client_id if client is not None and client.declared else None
        text = await self._store.machines.policy(project_id, client_id)
        if text is None:
            return None
        try:
            declaration = PolicyDeclaration.model_validate_json(text)
            declared_layers(declaration.layers)
        except (PolicyError, ValidationError):  # as in `_read`: unreadable rules do not apply
            return None
        return declaration

    async def _declared_by(self, project_id: str, client_id: str | None) -> _Declared:
        key = (project_id, client_id)
        known = self._kept.get(key)
        if known is not None:
            return known
        if project_id not in self._heard:
            self._heard[project_id] = 0
            self._bus.listen(policy_topic(project_id), lambda fact: self._forget(project_id))
        heard = self._heard[project_id]
        text = await self._store.machines.policy(project_id, client_id)
        declared = _Declared(self._gate, {}) if text is None else self._read(text)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        if heard == self._heard[project_id]:  # else a newer declaration may have come meanwhile
            self._kept[key] = declared
        return declared

    def _read(self, text: str) -> _Declared:
        try:
            declaration = PolicyDeclaration.model_validate_json(text)
            layers = declared_layers(declaration.layers)
        except (PolicyError, ValidationError):
            # It was valid when declared, but a newer Byleave may be stricter. The client still has its own copy.
            log.exception("declared rules can no longer be read")
            return _Declared(self._gate, {})
        return _Declared(self._gate.with_policy(self._gate.rules.policy.plus(*layers)), declaration.unable)

    def _forget(self, project_id: str) -> None:
        self._heard[project_id] += 1
        for key in [key for key in self._kept if key[0] == project_id]:
            del self._kept[key]
