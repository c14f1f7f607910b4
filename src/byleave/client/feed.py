"""One connection to a project's feed, as a stream of `(seq, event)`.

The stream ends when the server ends it, and fails with `UnreachableError` when it breaks or falls silent; connecting
again is the caller's business. What a newer server says and this client does not understand is passed over and never
fatal; the content of an event is never logged.

Server-sent events, read by bytes: chunks of any size go in, whole frames come out.

A frame is dispatched only at its blank line, so a stream cut in the middle never yields half an event. Time is linear
in the bytes received, and a frame larger than the largest call may be is refused instead of kept.
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
    """One event as it came."""

    id: str | None
    event: str
    data: bytes


class FrameReader:
    """Turns chunks into frames. `id` stays as the last one seen, as the standard has it."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._rest = bytearray()
        self._scanned = 0
        self._held = b""
        self._limit = max_frame_bytes
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """All frames that are whole now."""
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
        """Other line ends become \\n. A \\r at the end waits: it may be the first half of one line end."""
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
"""The server beats every 15 s; a stream that says nothing for so long is taken for dead."""
CONNECT_SECONDS = 10.0

BadFrame = Callable[[Frame], None]

_KINDS = frozenset(event.model_fields["kind"].default for event in get_args(get_args(FeedEvent)[0]))


class Server(Protocol):
    """What a stream needs of `ServerApi`."""

    server_url: str

    @property
    def session(self) -> aiohttp.ClientSession: ...

    async def pinned(self, url: URL) -> URL: ...

    def unreachable(self, error: BaseException) -> UnreachableError: ...

    async def problem(self, response: aiohttp.ClientResponse) -> ByleaveError: ...


class FeedStream:
    """One connection to a feed: enter it, then iterate; or only iterate, and it opens and closes itself."""

    def __init__(self, api: Server, url: URL, headers: dict[str, str], on_bad_frame: BadFrame | None = None) -> None:
        self._api = api
        self._url = url
        self._headers = headers
        self._on_bad_frame = on_bad_frame
        self._response: aiohttp.ClientResponse | None = None
        self.status = 0
        """The answer's; 0 while there is none."""
        self.server_time: datetime | None = None
        """The server's clock when it answered."""

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        try:
            url = await self._api.pinned(self._url)
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
                f"What answers at {self._api.server_url} has no feed.", hint="is this the address of a Byleave server?"
            )
        self.server_time = server_date(response)
        self._response = response
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._response is not None:
            # Not released: a stream has no end that could be read before the connection is used again.
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
        """The frames as they come; the stream must be entered."""
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
        """A frame as an event. What a newer server says and we do not understand is passed over, never fatal."""
        if frame.event not in _KINDS:
            log.debug("unknown event passed over", kind=frame.event[:100])
            return None
        try:
            number = int(frame.id or "")
            return number, FEED_EVENT.validate_json(frame.data)
        except ValueError as error:
            # ValidationError is a ValueError; its text would quote the content, so only its kind is logged.
            log.error("event not understood", kind=frame.event, error=type(error).__name__)
            if self._on_bad_frame is not None:
                self._on_bad_frame(frame)
            return None


def server_date(response: aiohttp.ClientResponse) -> datetime | None:
    """The server's clock when it answered."""
    header = response.headers.get("Date")
    try:
        return parsedate_to_datetime(header).astimezone(UTC) if header else None
    except (ValueError, OverflowError):
        return None
