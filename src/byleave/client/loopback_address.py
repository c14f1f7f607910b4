"""At which number a server of this machine is spoken to, where it was given by a name.

A name may lead elsewhere the next time it is looked up, so it is looked up by nobody: of the numbers that a name of
this machine means, the first at which somebody listens is kept until a request fails. Who that is is not asked here:
each connection that is made there is proven (`proof`). Nothing is sent. An https address keeps its name, which its
certificate is for.
"""

import asyncio
import contextlib

from yarl import URL

from .addresses import loopback_numbers


class Pinned:
    """One server's address."""

    def __init__(self, url: URL, *, connect_seconds: float) -> None:
        self._port = url.port
        self._numbers: tuple[str, ...] = loopback_numbers(url.host or "") if url.scheme == "http" else ()
        self._seconds = connect_seconds
        self._found: str | None = None

    def lost(self) -> None:
        """Nobody answered: the server may listen at another number by now."""
        self._found = None

    async def at(self, url: URL) -> URL:
        """Where to send what is meant for `url`."""
        if not self._numbers:
            return url
        if self._found is None:
            self._found = await self._find()
        return url.with_host(self._found)

    async def _find(self) -> str:
        *before, last = self._numbers
        for number in before:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(self._seconds):
                    _, writer = await asyncio.open_connection(number, self._port)
                writer.close()
                return number
        return last  # where nobody listens there either, a request fails and says so
