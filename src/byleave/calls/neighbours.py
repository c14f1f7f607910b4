"""The clients connected to the other servers of a record, and ours for them to know.

Each server writes its streams down, and puts those of the others in place in `Presence`: an agent's call reaches a
client wherever its stream is. News of a project is a hint; counts are compared every few seconds, in case one got
lost. When a server's lease has run out, the first to see it removes its streams. Does nothing for a server that has
the record for itself. Never chooses a client.
"""

import asyncio
import contextlib
import time
from collections.abc import Collection
from typing import Literal, cast

import structlog

from byleave.bus import Bus
from byleave.protocol.generation import Generation
from byleave.store import STORAGE_ERRORS, Store
from byleave.store.servers import CONNECTIONS_TOPIC, Connection, Count, Server

from .machines import ConnectedClient, Presence, Stream, is_other

log = structlog.stdlib.get_logger(__name__)

LOOK_SECONDS = 2.5
MOST_NEWS = 100
"""Projects that wait to be read."""
GONE_SECONDS = 20.0
"""Time to wait until another generation's streams have ended; that of a server that died is found closed by then."""
ASK_SECONDS = 0.05
AWAY_SECONDS = 10.0
"""A server that has not looked for so long was away itself, as the database may have been: it buries nobody yet."""


class Neighbours:
    """Keeps `Presence` true across servers."""

    def __init__(self, store: Store, bus: Bus, presence: Presence) -> None:
        self._servers = store.servers
        self._own_id = store.servers.own_id
        self._bus = bus
        self._presence = presence
        self._came: dict[int, Connection] = {}
        self._left: dict[int, str] = {}
        self._recorded: set[int] = set()
        """Numbers of our streams that are written down."""
        self._is_doubtful = False
        """True if what is written down of us may be wrong."""
        self._announced: list[asyncio.Future[None]] = []
        self._news: set[str] = set()
        """Projects whose streams at other servers changed."""
        self._wake = asyncio.Event()
        self._looked_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Learn who is connected, and keep learning."""
        if self._own_id is None:
            return
        self._presence.on_stream = self._moved
        self._stop_listening = self._bus.listen(CONNECTIONS_TOPIC, self._hear)
        await self._look()
        self._task = asyncio.create_task(self._run(), name="byleave-neighbours")

    async def stop(self) -> None:
        """Write down that our streams have closed."""
        if self._task is None:
            return
        self._stop_listening()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        with contextlib.suppress(*STORAGE_ERRORS):  # they go with this server's lease
            await self._write()

    async def announce(self) -> None:
        """Wait until the streams that opened so far are written down: other servers can find them then."""
        if self._task is not None and self._came:
            announced = asyncio.get_running_loop().create_future()
            self._announced.append(announced)
            self._wake.set()
            await announced

    async def wait_alone(self, client: ConnectedClient) -> None:
        """Wait until no stream of another generation of this client is open, at any server; raise TimeoutError."""
        async with asyncio.timeout(GONE_SECONDS):
            while True:
                if not await self._has_other(client):
                    return
                # Other servers' streams end in the record, and news of that may get lost.
                await asyncio.sleep(ASK_SECONDS)

    async def _has_other(self, client: ConnectedClient) -> bool:
        """Ask our own streams, and the record for those of others: what we know of them may be late."""
        project_id, generation = client.project_id, client.generation
        if generation is None:
            return False
        streams = [stream for stream in self._own().values() if stream.project_id == project_id]
        if self._own_id is not None:
            streams += _clients(await self._servers.connections(project_id=project_id)).values()
        return any(is_other(stream, client.client_id, generation) for stream in streams)

    def _moved(self, number: int, client: ConnectedClient, came: bool) -> None:
        if came:
            self._came[number] = self._row(number, client)
        elif self._came.pop(number, None) is None:
            self._left[number] = client.project_id
        self._wake.set()

    def _own(self) -> dict[int, ConnectedClient]:
        return self._presence.streams().get(self._own_id or "", {})

    def _row(self, number: int, client: ConnectedClient) -> Connection:
        return Connection(
            server_id=self._own_id or "",
            number=number,
            project_id=client.project_id,
            client_id=client.client_id,
            declared=client.declared,
            workspace=client.workspace,
            isolation=client.isolation,
            looks=client.looks,
            editor=client.editor,
            generation=None if client.generation is None else str(client.generation),
            since=client.since,
        )

    def _hear(self, fact: object | None) -> None:
        # Very many at once are seen at the next look, too, by the counts.
        if isinstance(fact, str) and len(self._news) < MOST_NEWS:
            self._news.add(fact)
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._write()
                while self._news:
                    await self._read(self._news.pop())
                    await self._write()
                if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                    await self._look()
            except STORAGE_ERRORS as error:
                log.warning("clients of other servers are not known", error=str(error))
                # Whatever happened meanwhile, nobody told us.
                self._presence.resumed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    async def _write(self) -> None:
        """Write down the streams that opened and closed."""
        if self._is_doubtful:  # then all there are
            self._came = {number: self._row(number, client) for number, client in self._own().items()}
            self._left, self._recorded = {}, set()
        came, self._came = self._came, {}
        left, self._left = self._left, {}
        announced, self._announced = self._announced, []
        anew, self._is_doubtful = self._is_doubtful, True
        try:
            if came or left or anew:
                await self._servers.move(came.values(), list(left.items()), anew=anew)
            self._recorded = (self._recorded | came.keys()) - left.keys()
            self._is_doubtful = False
        except STORAGE_ERRORS as error:
            for waiter in announced:
                if not waiter.done():
                    waiter.set_exception(error)
            raise
        finally:
            for waiter in announced:
                if not waiter.done():
                    waiter.set_result(None)

    async def _read(self, project_id: str) -> None:
        """Put a project's streams at other servers in place."""
        self._presence.place(project_id, _clients(await self._servers.connections(project_id)))

    async def _look(self) -> None:
        """Compare counts with the record, and remove what servers left behind that died."""
        servers = await self._servers.look()
        was_here = time.monotonic() - self._looked_at < AWAY_SECONDS
        self._looked_at = time.monotonic()
        known = {server_id: _count(streams) for server_id, streams in self._presence.streams().items()}
        known.pop(self._own_id or "", None)
        others = [server for server in servers if server.id != self._own_id]
        for server in others:
            if server.lapsed and was_here:
                await self._bury(server)
        if known != {server.id: server.held for server in others if server.held != Count()}:
            await self._read_all()
        own = next((server.held for server in servers if server.id == self._own_id), Count())
        if own != _count(self._recorded):
            log.warning("other servers took this one for dead")
            self._is_doubtful = True
            self._wake.set()

    async def _bury(self, server: Server) -> None:
        for project_id in await self._servers.bury(server.id):
            log.warning("a server died; its clients may connect to another", project=project_id)
            await self._read(project_id)
            if self._presence.on_change is not None:
                self._presence.on_change(project_id, False)  # noqa: FBT003 - they left

    async def _read_all(self) -> None:
        """Put all streams of other servers in place, at a start or after news got lost."""
        found: dict[str, list[Connection]] = {project_id: [] for project_id in self._presence.elsewhere()}
        for connection in await self._servers.connections():
            found.setdefault(connection.project_id, []).append(connection)
        for project_id, connections in found.items():
            self._presence.place(project_id, _clients(connections))


def _count(numbers: Collection[int]) -> Count:
    return Count(len(numbers), max(numbers, default=0))


def _clients(connections: list[Connection]) -> dict[Stream, ConnectedClient]:
    return {
        (each.server_id, each.number): ConnectedClient(
            client_id=each.client_id,
            project_id=each.project_id,
            declared=bool(each.declared),
            workspace=each.workspace,
            isolation=each.isolation,
            looks=bool(each.looks),
            editor=cast('Literal["vscode"] | None', each.editor),
            generation=Generation.parse(each.generation or ""),
            since=each.since,
        )
        for each in connections
    }
