"""Connected machines, and the one a call would run on: its workspace, isolation, owner's rules and unusable tools.

The server judges with the organisation's rules and those the chosen client declared; the client judges again with
its own copy. Parsed declarations are cached until the next one. Nothing here reads a machine itself.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import structlog
from pydantic import ValidationError

from byleave.bus import Bus
from byleave.gate import Gate, Judgement, PolicyError, declared_layers, mask_text, safe_text
from byleave.protocol import overview
from byleave.protocol.generation import Generation
from byleave.protocol.states import AgentMode
from byleave.protocol.tools import TOOLS
from byleave.protocol.verdicts import Finding, VerdictLevel, verdict_of
from byleave.protocol.wire import now
from byleave.store import Store
from byleave.store.machines import policy_topic

log = structlog.stdlib.get_logger(__name__)

MOST_KEPT = 1000
RETURN_SECONDS = 3.0
"""A machine whose server stops is at another one sooner."""
LOOK_AGAIN_SECONDS = 5.0
"""A declaration is read again after so long, in case the hint of a newer one got lost."""


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
    generation: Generation | None = None
    """None for a client that does not count its starts."""
    since: str = field(default="", compare=False)
    """The time it connected, by its server's clock."""


def is_other(stream: ConnectedClient, client_id: str, generation: Generation) -> bool:
    """True if a stream is of this client, and of another generation of it."""
    return stream.client_id == client_id and stream.generation not in (None, generation)


Stream = tuple[str, int]
"""A server, and a number that it gave to a stream."""


class Presence:
    """The connected clients by project, and the choice of one for the next execution.

    A client with an id comes before an anonymous stream; among equals, the one connected longest. Those of other
    servers are put in place by `Neighbours`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, server_id: str = "") -> None:
        self._clock = clock
        self._server_id = server_id
        self._began = clock()
        self._changed_at: dict[str, float] = {}
        """Time each client connected or left; the earliest one that `on_the_move` still counts."""
        self._clients: dict[str, dict[Stream, ConnectedClient]] = {}
        self._left_at: dict[str, float] = {}
        """Time at which the last client of each project left, of those that may return."""
        self._returning: dict[str, asyncio.Event] = {}
        self._next = 0
        self.on_leave: Callable[[], None] | None = None
        """Called when streams have closed, here or elsewhere."""
        self.on_arrival: Callable[[], None] | None = None
        """Called when clients have connected to other servers."""
        self.on_change: Callable[[str, bool], None] | None = None
        """Called with a project of which people have to hear from us that its clients came (True) or left (False)."""
        self.on_news: Callable[[str], None] | None = None
        """Called with a project whose clients at other servers changed, of which those tell people."""
        self.on_stream: Callable[[int, ConnectedClient, bool], None] | None = None
        """Called with each stream of this server that opens (True) or closes (False)."""

    def connect(self, client: ConnectedClient) -> Callable[[], None]:
        """Add a client until the returned function is called. A client connected twice stays until both are gone."""
        self._next += 1
        number, project_id = self._next, client.project_id
        stream = (self._server_id, number)
        client = replace(client, since=now())
        self._clients.setdefault(project_id, {})[stream] = client
        self._returned(project_id)
        self._moved(client.client_id)
        self._notify(number, client, came=True)

        def leave() -> None:
            here = self._clients.get(project_id)
            if here is not None:
                here.pop(stream, None)
                self._moved(client.client_id)
                if not here:
                    self._emptied(project_id)
                if self.on_leave is not None:
                    self.on_leave()
                self._notify(number, client, came=False)

        return leave

    def place(self, project_id: str, elsewhere: Mapping[Stream, ConnectedClient]) -> None:
        """Put the clients that other servers have of a project in the place of those known so far."""
        before = self._clients.get(project_id, {})
        own = {stream: client for stream, client in before.items() if stream[0] == self._server_id}
        after = {**own, **elsewhere}
        # The same order at each server, so that all choose the same client.
        after = dict(sorted(after.items(), key=lambda item: (item[1].since, item[0])))
        came, left = after.keys() - before.keys(), before.keys() - after.keys()
        if not came and not left:
            return
        for client in (*(after[stream] for stream in came), *(before[stream] for stream in left)):
            self._moved(client.client_id)
        if after:
            self._clients[project_id] = after
            self._returned(project_id)
        else:
            self._emptied(project_id)
        for happened, hook in ((came, self.on_arrival), (left, self.on_leave)):
            if happened and hook is not None:
                hook()
        if self.on_news is not None:
            self.on_news(project_id)

    def _emptied(self, project_id: str) -> None:
        del self._clients[project_id]
        now = self._clock()
        self._left_at = {each: at for each, at in self._left_at.items() if at > now - RETURN_SECONDS}
        self._left_at[project_id] = now

    def _returned(self, project_id: str) -> None:
        self._left_at.pop(project_id, None)
        if (waiting := self._returning.pop(project_id, None)) is not None:
            waiting.set()

    async def until_returned(self, project_id: str) -> None:
        """Wait for a client, if the last one left just now: it goes from a server that stops to another."""
        seconds = self._left_at.get(project_id, float("-inf")) + RETURN_SECONDS - self._clock()
        if seconds > 0:
            waiting = self._returning.setdefault(project_id, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiting.wait()

    def streams(self) -> dict[str, dict[int, ConnectedClient]]:
        """All streams by server and number."""
        found: dict[str, dict[int, ConnectedClient]] = {}
        for here in self._clients.values():
            for (server_id, number), client in here.items():
                found.setdefault(server_id, {})[number] = client
        return found

    def elsewhere(self) -> set[str]:
        """Projects with clients at other servers."""
        own = self._server_id
        return {project_id for project_id, here in self._clients.items() if any(each[0] != own for each in here)}

    def _moved(self, client_id: str) -> None:
        # An earlier time stays: a client that comes and goes would else be on the move for ever.
        self._changed_at.setdefault(client_id, self._clock())

    def _notify(self, number: int, client: ConnectedClient, *, came: bool) -> None:
        if self.on_stream is not None:
            self.on_stream(number, client, came)
        if self.on_change is not None and client.declared:
            self.on_change(client.project_id, came)

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

    def has_other(self, project_id: str, client_id: str, generation: Generation) -> bool:
        """True if another generation of this client is connected."""
        return any(is_other(client, client_id, generation) for client in self.clients(project_id))

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
    read_at: float = field(default_factory=time.monotonic)


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
        if known is not None and time.monotonic() - known.read_at < LOOK_AGAIN_SECONDS:
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
