"""Connected machines, and the one a call would run on: its workspace, isolation, owner's rules and unusable tools.

The server judges with the organisation's rules and those the chosen client declared; the client judges again with
its own copy. Parsed declarations are cached until the next one. Nothing here reads a machine itself.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from pydantic import ValidationError

from byleave.bus import Bus
from byleave.gate import Gate, Judgement, PolicyError, declared_layers, mask_text, safe_text
from byleave.protocol import overview
from byleave.protocol.states import AgentMode
from byleave.protocol.tools import TOOLS
from byleave.protocol.verdicts import Finding, VerdictLevel, verdict_of
from byleave.store import Store
from byleave.store.machines import policy_topic

log = structlog.stdlib.get_logger(__name__)

MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A stream that executes."""

    client_id: str
    project_id: str
    declared: bool
    """False for a stream that may execute but gave no client id."""
    workspace: str | None = None
    isolation: str | None = None
    looks: bool = False
    """True if it answers inspection requests."""
    editor: Literal["vscode"] | None = None


class Presence:
    """The connected clients by project, and the choice of one for the next execution.

    A client with an id comes before an anonymous stream; among equals, the one connected longest. Only clients of this
    process are known here.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._changed_at: dict[str, float] = {}
        """Time each client last connected or left."""
        self._clients: dict[str, dict[int, ConnectedClient]] = {}
        self._next = 0
        self.on_leave: Callable[[ConnectedClient], None] | None = None
        """Called for each stream that has closed."""
        self.on_change: Callable[[ConnectedClient, bool], None] | None = None
        """Called for each client with an id when one of its streams connects (True) or leaves (False)."""

    def connect(self, client: ConnectedClient) -> Callable[[], None]:
        """Add a client until the returned function is called. A client connected twice stays until both are gone."""
        self._next += 1
        key = self._next
        self._clients.setdefault(client.project_id, {})[key] = client
        self._changed_at[client.client_id] = self._clock()
        self._notify(client, came=True)

        def leave() -> None:
            here = self._clients.get(client.project_id)
            if here is not None:
                here.pop(key, None)
                self._changed_at[client.client_id] = self._clock()
                if not here:
                    del self._clients[client.project_id]
                if self.on_leave is not None:
                    self.on_leave(client)
                self._notify(client, came=False)

        return leave

    def _notify(self, client: ConnectedClient, *, came: bool) -> None:
        if self.on_change is not None and client.declared:
            self.on_change(client, came)

    def choose(self, project_id: str) -> ConnectedClient | None:
        """Return the client that should execute, or None if there is none."""
        here = self._clients.get(project_id)
        if not here:
            return None
        for client in here.values():
            if client.declared:
                return client
        return next(iter(here.values()))

    def connected(self) -> frozenset[str]:
        """Return the ids of all connected clients."""
        return frozenset(client.client_id for here in self._clients.values() for client in here.values())

    def resumed(self) -> None:
        """Count as just started: we were paused, and heard of nobody meanwhile."""
        self._began = self._clock()

    def on_the_move(self, seconds: float) -> frozenset[str] | None:
        """Return the ids that connected or left in the last `seconds`; None for all, if we started since."""
        since = self._clock() - seconds
        self._changed_at = {client_id: at for client_id, at in self._changed_at.items() if at > since}
        return None if self._began > since else frozenset(self._changed_at)

    def declared(self, project_id: str) -> frozenset[str]:
        """Return the ids of a project's identified clients: they can be asked for more than executions."""
        return frozenset(client.client_id for client in self.clients(project_id) if client.declared)

    def looking(self, project_id: str) -> frozenset[str]:
        """Return the ids of a project's clients that answer inspection requests."""
        return frozenset(client.client_id for client in self.clients(project_id) if client.looks)

    def clients(self, project_id: str) -> list[ConnectedClient]:
        return list(self._clients.get(project_id, {}).values())

    def machines(self, project_id: str) -> list[overview.Machine]:
        """Return a project's clients for people: each once, without anonymous streams."""
        chosen = self.choose(project_id)
        here: dict[str, ConnectedClient] = {}
        for client in self.clients(project_id):
            if client.declared:
                here.setdefault(client.client_id, client)
        return [
            overview.Machine(
                client_id=client.client_id,
                workspace=client.workspace,
                isolation=client.isolation,
                next=chosen is not None and client.client_id == chosen.client_id,
                editor=client.editor,
            )
            for client in here.values()
        ]


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

    async def declared(self, project_id: str) -> overview.PolicyDeclaration | None:
        """The owner's rules by which calls are judged."""
        client = self._presence.choose(project_id)
        client_id = client.client_id if client is not None and client.declared else None
        text = await self._store.machines.policy(project_id, client_id)
        if text is None:
            return None
        try:
            declaration = overview.PolicyDeclaration.model_validate_json(text)
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
            declaration = overview.PolicyDeclaration.model_validate_json(text)
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
