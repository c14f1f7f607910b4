"""The feed on the wire: StreamManager, the stream of each reader, and news of machines that come and go.

A stream replays from its reader's position and continues live, without gaps or repeats: hints bring events early, the
store is the truth. A slow reader costs a bounded buffer; beyond it the stream drops the buffer and reads the store
again at the reader's pace. It never sends events for another client, and none after the token or cookie that opened
it has ended. A client's stream ends when a later generation of it connects, whose own opens only then.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import time as wall_clock
from typing import cast

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from byleave.bus import Bus
from byleave.calls.executor import ToolExecutor
from byleave.calls.machines import ConnectedClient, Presence
from byleave.calls.neighbours import Neighbours
from byleave.protocol.events import FeedGap
from byleave.protocol.overview import Machine
from byleave.protocol.wire import now
from byleave.settings import ServerSettings
from byleave.store import STORAGE_ERRORS, Store, StoredEvent
from byleave.store.ledger import feed_topic

from .errors import TooMany, Unavailable

log = structlog.stdlib.get_logger(__name__)

STREAMS_PER_USER = 32
BUFFER_EVENTS = 256
BUFFER_CHARACTERS = 256 * 1024
PAGE_EVENTS = 100
LOOK_AGAIN_SECONDS = 5.0
"""Interval at which an idle stream reads the store, in case a hint got lost."""
FIRST_BYTES = b"retry: 1000\n\n"
BEAT = b": beat\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]
PAUSE_SECONDS = 1.0
"""Least time between reports of connected machines to one project."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a stream."""

    user_id: str
    project_id: str
    client: ConnectedClient | None
    """None if it only watches."""
    last_event_id: int | None
    wanted: "Callable[[StoredEvent], bool] | None" = None
    """Selects the events for this reader; None for all it may see."""
    told: "Callable[[StoredEvent], StoredEvent] | None" = None
    """Reduces an event to what this reader may see; None for the whole event."""


class FeedStream:
    """One reader's stream of a feed."""

    def __init__(
        self,
        store: Store,
        project_id: str,
        client: ConnectedClient | None,
        heartbeat: float,
        wanted: Callable[[StoredEvent], bool] | None = None,
        told: Callable[[StoredEvent], StoredEvent] | None = None,
    ) -> None:
        self._store = store
        self._told = told
        self._client = client
        self._wanted = wanted
        self.of_a_call = wanted is not None
        self._project_id = project_id
        self._client_id = client.client_id if client is not None else None
        self._heartbeat = heartbeat
        self._sent = 0
        """Everything up to this number has been sent."""
        self._tail = 0
        """Everything up to this number has been sent or is in the buffer."""
        self._buffer: list[StoredEvent] = []
        self._characters = 0
        self._behind = True
        """True if the store may have more than the buffer."""
        self._news = False
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False
        self.sign_ins: tuple[str, ...] = ()
        """Sign-ins of the page's cookie it is read with."""
        self.good_until = math.inf
        """End of the token or cookie it is read with, in seconds since 1970."""
        self.on_close: list[Callable[[], None]] = []

    def start_at(self, seq: int) -> None:
        """Skip everything up to this number: the reader has seen it."""
        self._sent = self._tail = seq

    def hear(self, fact: object | None) -> None:
        """Take a hint: the events of one commit, or None to read the store."""
        if isinstance(fact, tuple) and not self._behind:
            self._take(cast(tuple[StoredEvent, ...], fact))
        else:
            # A read under way may return less than this hint tells of: the store is read once more.
            self._behind = self._news = True
        self._wake()

    def close(self) -> None:
        """End the stream and unregister its reader everywhere. May be called twice."""
        self.closed = True
        while self.on_close:
            self.on_close.pop()()
        self._wake()

    async def next(self) -> bytes:
        """Return the next bytes: all events that are ready, or a heartbeat; empty if the stream has ended."""
        loop = asyncio.get_running_loop()
        beat_at = loop.time() + self._heartbeat
        while not self.closed:
            # By the wall clock, each time: a timer stands still while the machine sleeps.
            good_for = self.good_until - wall_clock()
            if good_for <= 0:
                log.info("a stream ended with what it was opened with", project=self._project_id)
                self.close()
                break
            if self._buffer:
                return self._drain()
            if self._behind:
                try:
                    found = await self._read_store()
                except STORAGE_ERRORS as error:
                    # Its reader comes back, and goes on behind what it has.
                    log.warning("a stream ended without the record", project=self._project_id, error=str(error))
                    self.close()
                    break
                if found:
                    return self._framed(found)
                continue
            left = beat_at - loop.time()
            if left <= 0:
                return BEAT
            await self._nap(min(left, good_for, LOOK_AGAIN_SECONDS))
        return b""

    def _take(self, events: tuple[StoredEvent, ...]) -> None:
        for event in events:
            if event.seq <= self._tail:
                continue
            size = len(event.payload)
            full = len(self._buffer) >= BUFFER_EVENTS or self._characters + size > BUFFER_CHARACTERS
            if event.seq != self._tail + 1 or full:
                self._forget()
                return
            self._tail = event.seq
            if (event.target is None or event.target == self._client_id) and self._wants(event):
                self._buffer.append(event)
                self._characters += size

    def _forget(self) -> None:
        """Drop the buffer after a gap or a full buffer; its events are read again when the reader is ready."""
        self._buffer.clear()
        self._characters = 0
        self._tail = self._sent
        self._behind = self._news = True

    def _drain(self) -> bytes:
        frames = self._framed(self._buffer)
        self._buffer.clear()
        self._characters = 0
        self._sent = self._tail
        return frames

    async def _read_store(self) -> list[StoredEvent]:
        self._news = False
        if await self._is_superseded():
            self.close()
            return []
        begun = self._tail
        events, seen, more, oldest = await self._store.feed.after(
            self._project_id, begun, client_id=self._client_id, limit=PAGE_EVENTS
        )
        # Caught up if this was the last page and no hint came meanwhile.
        self._behind = self._news or more
        self._sent = self._tail = seen
        wanted = [event for event in events if self._wants(event)]
        if oldest > begun and not self.of_a_call:  # retention removed some; the rest follows
            gap = FeedGap(timestamp=now(), oldest=oldest)
            wanted.insert(0, StoredEvent(self._project_id, begun, gap.kind, None, None, gap.model_dump_json()))
        return wanted

    async def _is_superseded(self) -> bool:
        """True if a later generation of the client has connected."""
        if self._client is None or self._client.generation is None:
            return False
        newest = await self._store.machines.generation(self._project_id, self._client.client_id)
        if not self._client.generation.is_superseded_by(newest):
            return False
        log.warning("a client's state was copied or restored", project=self._project_id, client=self._client_id)
        return True

    def _framed(self, events: Iterable[StoredEvent]) -> bytes:
        return _frames(events if self._told is None else map(self._told, events))

    def _wants(self, event: StoredEvent) -> bool:
        return self._wanted is None or self._wanted(event)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _nap(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        alarm = loop.call_later(seconds, self._look_again)
        try:
            await waiter
        finally:
            alarm.cancel()
            self._waiter = None

    def _look_again(self) -> None:
        self._behind = True
        self._wake()


class FeedResponse(Response):
    """Sends a stream until its reader goes away or the server closes it.

    `serving` drops a reader that takes too little. However it ends, its reader is removed from the connected ones.
    """

    def __init__(self, stream: FeedStream) -> None:
        self._stream = stream
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._stream
        gone = asyncio.create_task(_watch(receive, stream))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            chunk = FIRST_BYTES
            while chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                chunk = await stream.next()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            stream.close()
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone


async def _watch(receive: Receive, stream: FeedStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.close()


class StreamManager:
    """All streams of this server."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        presence: Presence,
        neighbours: Neighbours,
        executor: ToolExecutor,
        settings: ServerSettings,
    ) -> None:
        self._store = store
        self._bus = bus
        self._presence = presence
        self._neighbours = neighbours
        self._executor = executor
        self._heartbeat = settings.heartbeat_seconds
        self._streams: dict[str, set[FeedStream]] = {}
        self._closed = False

    async def open(self, reader: Reader, sign_ins: tuple[str, ...] = (), good_until: float = math.inf) -> FeedStream:
        """Open a stream, which the caller must close. It ends with any of `sign_ins`, or at `good_until`."""
        if self._closed:
            raise Unavailable("The server is shutting down.", hint="Connect again in a moment.")
        mine = self._streams.setdefault(reader.user_id, set())
        # Streams of single calls are counted apart: an agent that opens many must not lock the person out.
        of_a_call = reader.wanted is not None
        if sum(stream.of_a_call is of_a_call for stream in mine) >= STREAMS_PER_USER:
            raise TooMany(
                f"You have {STREAMS_PER_USER} streams open already.", hint="Close one: a page, an editor, a client."
            )
        stream = FeedStream(self._store, reader.project_id, reader.client, self._heartbeat, reader.wanted, reader.told)
        stream.sign_ins, stream.good_until = sign_ins, good_until
        mine.add(stream)
        stream.on_close.append(lambda: self._forget(reader.user_id, stream))
        with contextlib.ExitStack() as undo:
            undo.callback(stream.close)
            await self._start(stream, reader)
            if stream.closed:
                raise Unavailable("The server is shutting down.", hint="Connect again in a moment.")
            undo.pop_all()
        log.debug("stream opened", project=reader.project_id, client=reader.client and reader.client.client_id)
        return stream

    async def drain(self, seconds: float) -> None:
        """Open no more streams, and end the open ones one after another: their readers must not all come back at
        once, and not to this server."""
        self._closed = True
        streams = [stream for streams in self._streams.values() for stream in streams]
        for stream in streams:
            stream.close()
            await asyncio.sleep(seconds / len(streams))

    def close(self) -> None:
        """End every stream, and open no more."""
        self._closed = True
        for streams in list(self._streams.values()):
            for stream in list(streams):
                stream.close()

    def end(self, user_id: str, sign_in: str) -> int:
        """End the streams of this page sign-in; return their number."""
        of_it = [stream for stream in self._streams.get(user_id, ()) if sign_in in stream.sign_ins]
        for stream in of_it:
            stream.close()
        return len(of_it)

    def count(self) -> int:
        """Number of open streams."""
        return sum(len(streams) for streams in self._streams.values())

    async def _start(self, stream: FeedStream, reader: Reader) -> None:
        if reader.client is not None:
            # Before the position: what was sent to the other is not for this one.
            try:
                await self._neighbours.wait_alone(reader.client)
            except TimeoutError as error:
                raise Unavailable(
                    "An earlier start of this client is still connected.", hint="Connect again in a moment."
                ) from error
        # Listen before reading the head, so that no event is missed in between.
        stream.on_close.append(self._bus.listen(feed_topic(reader.project_id), stream.hear))
        oldest, head = await self._store.feed.span(reader.project_id)
        wanted = reader.last_event_id
        # A number beyond the head is not from this feed: the record was restored or replaced.
        stream.start_at(wanted if wanted is not None and wanted <= head else head)
        resumed = wanted is not None and oldest <= wanted <= head
        if reader.client is not None:
            # Registered only now, so that everything sent to this client from here on arrives on this stream.
            stream.on_close.append(self._presence.connect(reader.client))
            await self._neighbours.announce()
            await self._executor.client_connected(reader.client, resumed=resumed)

    def _forget(self, user_id: str, stream: FeedStream) -> None:
        mine = self._streams.get(user_id)
        if mine is not None:
            mine.discard(stream)
            if not mine:
                del self._streams[user_id]


def _frames(events: Iterable[StoredEvent]) -> bytes:
    return "".join(f"id: {event.seq}\nevent: {event.kind}\ndata: {event.payload}\n\n" for event in events).encode(
        "utf-8"
    )


class Attendance:
    """Reports the connected machines to a project's feed, as they come and go.

    An arrival is reported at once, a departure after a moment: most clients are back by then. However often clients
    connect, a project hears of it about once a second, and only of differences. Nothing is reported while the server
    closes: its clients leave because of it. Clients of other servers are reported by those; a server that reported them
    before it knew better corrects itself.
    """

    def __init__(self, store: Store, presence: Presence, pause: float = PAUSE_SECONDS) -> None:
        self._store = store
        self._presence = presence
        self._pause = pause
        self._told: dict[str, list[Machine]] = {}
        """Machines last reported to each project."""
        self._telling: dict[str, asyncio.Task[None]] = {}
        presence.on_change = self._changed
        presence.on_news = self._known_better

    def close(self) -> None:
        """Report nothing more. May be called twice."""
        self._presence.on_change = self._presence.on_news = None
        for task in self._telling.values():
            task.cancel()  # a write that has reached the store still completes

    async def wait_closed(self) -> None:
        self.close()
        await asyncio.gather(*list(self._telling.values()), return_exceptions=True)

    def _known_better(self, project_id: str) -> None:
        if project_id in self._told:
            self._changed(project_id, came=False)

    def _changed(self, project_id: str, came: bool) -> None:
        if self._presence.machines(project_id) != self._told.get(project_id):
            # Whoever asks for the list now gets another one, and must hear of it when the machine is back in a moment.
            self._told.pop(project_id, None)
        if project_id not in self._telling:
            wait = 0.0 if came else self._pause
            task = asyncio.create_task(self._follow(project_id, wait), name="byleave-attendance")
            self._telling[project_id] = task

    async def _follow(self, project_id: str, wait: float) -> None:
        try:
            await asyncio.sleep(wait)
            await self._tell(project_id)
        finally:
            # No await since the last comparison: a change from here on starts a new task.
            del self._telling[project_id]

    async def _tell(self, project_id: str) -> None:
        while (here := self._presence.machines(project_id)) != self._told.get(project_id):
            try:
                await self._store.machines.tell(project_id, here)
            except STORAGE_ERRORS as error:
                # The next change tries again; meanwhile the list of machines itself is correct.
                log.error("a change of machines could not be told", project=project_id, error=str(error))
                return
            self._told[project_id] = here
            await asyncio.sleep(self._pause)
