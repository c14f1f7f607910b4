"""One connection to a feed: server-sent events in, `(seq, event)` pairs out.

The stream ends when the server ends it, and raises `UnreachableError` when it breaks or falls silent; the caller
reconnects. Events of a newer server that this client does not know are skipped, never fatal. Event contents are never
logged. A frame is dispatched only at its blank line, so a cut stream never yields half an event. Parsing is linear in
the bytes received, and an oversized frame is refused.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import NamedTuple, Protocol, Self, get_args

import aiohttp
from yarl import URL

from byleave.protocol.errors import ByleaveError, ConfigurationError, UnreachableError
from byleave.protocol.events import FEED_EVENT, FeedEvent

from .log import log

MAX_FRAME_BYTES = 512 * 1024 * 1024


class Frame(NamedTuple):
    """A server-sent event, not parsed further."""

    id: str | None
    event: str
    data: bytes


class FrameReader:
    """Splits chunks into frames. `id` keeps its last value, as the standard demands."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._rest = bytearray()
        self._scanned = 0
        self._held = b""
        self._limit = max_frame_bytes
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames completed by this chunk."""
        if self._held or b"\r" in chunk:
            chunk = self._line_ends(chunk)
        rest = self._rest
        rest += chunk
        frames: list[Frame] = []
        start = 0
        while (end := rest.find(b"\n\n", max(start, self._scanned))) >= 0:
            frame = self._frame(bytes(rest[start:end]))
            if frame is not None:
                frames.append(frame)
            start = self._scanned = end + 2
        del rest[:start]
        self._scanned = max(len(rest) - 1, 0)
        if len(rest) > self._limit:
            raise UnreachableError(f"The server sent an event larger than {self._limit} bytes.")
        return frames

    def _line_ends(self, chunk: bytes) -> bytes:
        r"""Convert line ends to \n. Hold back a final \r: it may be half of a \r\n."""
        chunk = self._held + chunk
        self._held = b"\r" if chunk.endswith(b"\r") else b""
        return chunk.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _frame(self, block: bytes) -> Frame | None:
        event = "message"
        data: list[bytes] = []
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if name == b"data":
                data.append(value)
            elif name == b"event":
                event = value.decode("utf-8", "replace")
            elif name == b"id":
                self._id = value.decode("ascii", "replace")
        return Frame(self._id, event, b"\n".join(data)) if data else None


SILENCE_SECONDS = 45.0
"""The server sends a heartbeat every 15 s; a stream silent for this long counts as dead."""
CONNECT_SECONDS = 10.0

BadFrame = Callable[[Frame], None]

_KINDS = frozenset(event.model_fields["kind"].default for event in get_args(get_args(FeedEvent)[0]))


class Server(Protocol):
    """The part of `ServerApi` that a stream needs."""

    server_url: str

    @property
    def session(self) -> aiohttp.ClientSession: ...

    async def resolved(self, url: URL) -> URL: ...

    def unreachable(self, error: BaseException) -> UnreachableError: ...

    async def problem(self, response: aiohttp.ClientResponse) -> ByleaveError: ...


class FeedStream:
    """A connection to a feed. Enter it, then iterate; or only iterate, and it opens and closes itself."""

    def __init__(self, api: Server, url: URL, headers: dict[str, str], on_bad_frame: BadFrame | None = None) -> None:
        self._api = api
        self._url = url
        self._headers = headers
        self._on_bad_frame = on_bad_frame
        self._response: aiohttp.ClientResponse | None = None
        self.status = 0
        """Status of the response; 0 before there is one."""
        self.server_time: datetime | None = None
        """Server time of the response."""

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        try:
            url = await self._api.resolved(self._url)
            response = await self._api.session.get(url, headers=self._headers, timeout=timeout, allow_redirects=False)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._api.unreachable(error) from error
        self.status = response.status
        if response.status != 200:
            try:
                raise await self._api.problem(response)
            finally:
                response.close()
        if response.content_type != "text/event-stream":
            response.close()
            raise ConfigurationError(
                f"The program at {self._api.server_url} has no feed.", hint="is this the address of a Byleave server?"
            )
        self.server_time = server_date(response)
        self._response = response
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._response is not None:
            # Close instead of release: a stream has no end to read before the connection could be reused.
            self._response.close()
            self._response = None

    def __aiter__(self) -> AsyncIterator[tuple[int, FeedEvent]]:
        return self._events()

    async def _events(self) -> AsyncGenerator[tuple[int, FeedEvent]]:
        if self._response is None:
            async with self:
                async for pair in self._events():
                    yield pair
            return
        async for frame in self.frames():
            event = self._event(frame)
            if event is not None:
                yield event

    async def frames(self) -> AsyncGenerator[Frame]:
        """Yield frames as they arrive; the stream must be entered."""
        if self._response is None:
            raise RuntimeError("The feed is not open.")
        reader = FrameReader()
        content = self._response.content
        while True:
            try:
                chunk = await content.readany()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._api.unreachable(error) from error
            if not chunk:
                return
            for frame in reader.feed(chunk):
                yield frame

    def _event(self, frame: Frame) -> tuple[int, FeedEvent] | None:
        """Parse a frame. Skip kinds that we do not know: a newer server may send them."""
        if frame.event not in _KINDS:
            log.debug("unknown event skipped", kind=frame.event[:100])
            return None
        try:
            number = int(frame.id or "")
            return number, FEED_EVENT.validate_json(frame.data)
        except ValueError as error:
            # ValidationError is a ValueError; its text would quote the content, so only its type is logged.
            log.error("malformed event", kind=frame.event, error=type(error).__name__)
            if self._on_bad_frame is not None:
                self._on_bad_frame(frame)
            return None


def server_date(response: aiohttp.ClientResponse) -> datetime | None:
    """Return the server's time from the response's Date header."""
    header = response.headers.get("Date")
    try:
        return parsedate_to_datetime(header).astimezone(UTC) if header else None
    except (ValueError, OverflowError):
        return None
