"""Wake-ups through PostgreSQL: each transaction notifies of its topics, and a connection of each server listens.

The database sends a notice to everybody who listens, its sender too: a server that does not hear even its own is deaf,
as behind a pooler in transaction mode. Notices of one commit travel together. Nothing here reads or writes the record.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable

import psycopg
import structlog

from .connections import Connection, connect

log = structlog.stdlib.get_logger(__name__)

CHANNEL = "byleave"
MOST_BYTES = 7900
"""PostgreSQL takes 8,000 bytes in a notice."""
DEAF_SECONDS = 12.0
"""An idle server notifies of its lease several times in this."""
AGAIN_SECONDS = 1.0
NOTIFY = f"SELECT pg_notify('{CHANNEL}', :text)"


def notices(sender: str, topics: Iterable[str]) -> list[str]:
    """Texts of the notices for these topics: one, unless they are very many."""
    texts = [sender]
    for topic in dict.fromkeys(topics):
        if len(texts[-1]) + len(topic) >= MOST_BYTES:
            texts.append(sender)
        texts[-1] += f" {topic}"
    return [text for text in texts if text != sender]


class PostgresWakeUps:
    """See `byleave.bus.WakeUps`. Transactions tell by themselves; this listens."""

    def __init__(self, url: str, server_id: str) -> None:
        self._url = url
        self._server_id = server_id
        self._closed = False
        self._trouble: str | None = None

    @property
    def trouble(self) -> str | None:
        return self._trouble

    def tell(self, topic: str) -> None:
        """Nothing to do: the transaction told."""

    async def start(self, hear: Callable[[Iterable[str]], None]) -> None:
        loop = asyncio.get_running_loop()
        # A daemon: it may hang in a connection that nobody answers.
        threading.Thread(target=self._run, args=(loop, hear), name="byleave-notices", daemon=True).start()

    async def stop(self) -> None:
        """Its thread ends with the next notice, or in a second."""
        self._closed = True

    def _run(self, loop: asyncio.AbstractEventLoop, hear: Callable[[Iterable[str]], None]) -> None:
        while not self._closed:
            try:
                with contextlib.closing(connect(self._url)) as connection:
                    self._listen(connection, loop, hear)
            except psycopg.Error as error:
                self._say(type(error).__name__)
            except RuntimeError:  # the event loop has ended
                return
            if not self._closed:
                time.sleep(AGAIN_SECONDS)

    def _listen(
        self, connection: Connection, loop: asyncio.AbstractEventLoop, hear: Callable[[Iterable[str]], None]
    ) -> None:
        connection.execute(f"LISTEN {CHANNEL}".encode())
        heard_at = time.monotonic()
        while not self._closed and time.monotonic() - heard_at < DEAF_SECONDS:
            for notice in connection.notifies(timeout=AGAIN_SECONDS):
                heard_at, self._trouble = time.monotonic(), None
                sender, *topics = notice.payload.split(" ")
                if sender != self._server_id:
                    loop.call_soon_threadsafe(hear, topics)
                if self._closed:
                    return
        if not self._closed:
            self._say("not even its own are heard")

    def _say(self, reason: str) -> None:
        if self._trouble is None and not self._closed:
            self._trouble = "Wake-ups of other servers are not heard: their news takes seconds."
            log.warning(
                "wake-ups of other servers are not heard: their news takes seconds",
                reason=reason,
                hint="Is a pooler before the database? Name a direct connection (postgresql://…) or a NATS server "
                "(nats://…) in BYLEAVE_BUS_URL.",
            )
