"""Wake-ups through NATS: topics of what was committed, on one subject for each record.

Topics of the same moment travel together. While NATS is away, topics are dropped: a wake-up that comes late is worth
nothing, and everybody polls. Messages are signed with a key that the servers of a record have: a stranger can repeat
some, and no more.
"""

import asyncio
import contextlib
import hmac
from collections.abc import Callable, Iterable

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

log = structlog.stdlib.get_logger(__name__)

AGAIN_SECONDS = 1
MOST_TOPICS = 1000
"""In one message."""
SIGNATURE_BYTES = 16


class NatsWakeUps:
    """See `byleave.bus.WakeUps`."""

    def __init__(self, url: str, key: bytes) -> None:
        self._url = url
        self._key = key
        # Records that share a NATS server do not hear each other.
        self._subject = f"byleave.{hmac.digest(key, b'subject', 'sha256').hex()[:32]}"
        self._client = Client()
        self._topics: dict[str, None] = {}
        """Topics to send, each once."""
        self._is_away = False
        """Said in the log, once."""
        self._connecting: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def trouble(self) -> str | None:
        return None if self._client.is_connected else "NATS is away: news of other servers takes seconds."

    def tell(self, topic: str) -> None:
        if not self._topics:
            asyncio.get_running_loop().call_soon(self._send)
        self._topics[topic] = None

    async def start(self, hear: Callable[[Iterable[str]], None]) -> None:
        self._connecting = asyncio.create_task(self._connect(hear), name="byleave-nats")

    async def stop(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, *self._sending, return_exceptions=True)
        with contextlib.suppress(Error, OSError):
            await self._client.close()

    async def _connect(self, hear: Callable[[Iterable[str]], None]) -> None:
        """Connect, however long NATS is away; afterwards its library connects again by itself."""

        async def heard(message: Msg) -> None:
            signature, data = message.data[:SIGNATURE_BYTES], message.data[SIGNATURE_BYTES:]
            if hmac.compare_digest(signature, self._signature(data)):
                hear(data.decode().split(" "))

        while not self._client.is_connected:
            try:
                await self._client.connect(
                    self._url,
                    name="byleave",
                    no_echo=True,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=AGAIN_SECONDS,
                    error_cb=self._failed,
                    disconnected_cb=self._failed,
                    reconnected_cb=self._is_back,
                    ping_interval=10,
                )
            except (Error, OSError, TimeoutError) as error:
                await self._failed(error)
                await asyncio.sleep(AGAIN_SECONDS)
        await self._is_back()
        await self._client.subscribe(self._subject, cb=heard)  # pyright: ignore[reportUnknownMemberType]

    def _send(self) -> None:
        topics, self._topics = list(self._topics), {}
        if not self._client.is_connected:
            return
        for start in range(0, len(topics), MOST_TOPICS):
            text = " ".join(topics[start : start + MOST_TOPICS])
            task = asyncio.get_running_loop().create_task(self._publish(text.encode()))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _publish(self, data: bytes) -> None:
        with contextlib.suppress(Error, OSError):  # it is away; everybody polls
            await self._client.publish(self._subject, self._signature(data) + data)

    def _signature(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")[:SIGNATURE_BYTES]

    async def _failed(self, error: Exception | None = None) -> None:
        if not self._is_away and not self._client.is_connected:
            self._is_away = True
            log.warning("NATS is away: news of other servers takes seconds", error=str(error or ""))

    async def _is_back(self) -> None:
        self._is_away = False
        log.info("NATS carries news of other servers")
