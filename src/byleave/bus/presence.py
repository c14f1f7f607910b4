"""Connected clients by project, and the choice of one for the next execution.

A client with an id comes before an anonymous stream; among equals, the one connected longest. Only clients of this
process are known here.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from byleave.protocol.overview import Machine


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
    """The connected clients."""

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

    def machines(self, project_id: str) -> list[Machine]:
        """Return a project's clients for people: each once, without anonymous streams."""
        chosen = self.choose(project_id)
        here: dict[str, ConnectedClient] = {}
        for client in self.clients(project_id):
            if client.declared:
                here.setdefault(client.client_id, client)
        return [
            Machine(
                client_id=client.client_id,
                workspace=client.workspace,
                isolation=client.isolation,
                next=chosen is not None and client.client_id == chosen.client_id,
                editor=client.editor,
            )
            for client in here.values()
        ]
