"""Clients connected to each project, and the one that gets the next execution.

A client that says who it is comes before an anonymous stream; among equals, the one that has been here longest.
Only what is connected to this process is known here.
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
    """False for a stream that may execute but did not say which client it is."""
    workspace: str | None = None
    isolation: str | None = None
    looks: bool = False
    """It answers when asked what a call would run or replace."""
    editor: Literal["vscode"] | None = None


class Presence:
    """The connected clients."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._moved: dict[str, float] = {}
        """Times at which each client last came or went."""
        self._clients: dict[str, dict[int, ConnectedClient]] = {}
        self._next = 0
        self.on_leave: Callable[[ConnectedClient], None] | None = None
        """Told of each stream that has gone."""
        self.on_change: Callable[[ConnectedClient, bool], None] | None = None
        """Told of each client that says who it is, when a stream of it came (True) or went (False)."""

    def connect(self, client: ConnectedClient) -> Callable[[], None]:
        """Here until the returned function is called. The same client twice counts until both are gone."""
        self._next += 1
        key = self._next
        self._clients.setdefault(client.project_id, {})[key] = client
        self._moved[client.client_id] = self._clock()
        self._tell(client, came=True)

        def leave() -> None:
            here = self._clients.get(client.project_id)
            if here is not None:
                here.pop(key, None)
                self._moved[client.client_id] = self._clock()
                if not here:
                    del self._clients[client.project_id]
                if self.on_leave is not None:
                    self.on_leave(client)
                self._tell(client, came=False)

        return leave

    def _tell(self, client: ConnectedClient, *, came: bool) -> None:
        if self.on_change is not None and client.declared:
            self.on_change(client, came)

    def choose(self, project_id: str) -> ConnectedClient | None:
        """The client that should execute, or None while nobody is there."""
        here = self._clients.get(project_id)
        if not here:
            return None
        for client in here.values():
            if client.declared:
                return client
        return next(iter(here.values()))

    def connected(self) -> frozenset[str]:
        """Ids of everybody who is here."""
        return frozenset(client.client_id for here in self._clients.values() for client in here.values())

    def on_the_move(self, seconds: float) -> frozenset[str] | None:
        """Ids of those who came or went within these seconds; None: everybody, since we began only then."""
        since = self._clock() - seconds
        self._moved = {client_id: at for client_id, at in self._moved.items() if at > since}
        return None if self._began > since else frozenset(self._moved)

    def declared(self, project_id: str) -> frozenset[str]:
        """Ids of a project's clients that say who they are: those can be asked more than to execute."""
        return frozenset(client.client_id for client in self.clients(project_id) if client.declared)

    def looking(self, project_id: str) -> frozenset[str]:
        """Ids of a project's clients that say what a call would run or replace."""
        return frozenset(client.client_id for client in self.clients(project_id) if client.looks)

    def clients(self, project_id: str) -> list[ConnectedClient]:
        return list(self._clients.get(project_id, {}).values())

    def machines(self, project_id: str) -> list[Machine]:
        """A project's clients as people see them: each once, without streams that did not say who they are."""
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
