"""Whose turn it is: commands that are held off protected names, or a write that replaces one of them.

The sandbox keeps those names read-only by a mount on each of them. A file that is replaced loses its mount, and a
command that still runs could then write what editors and shells trust. So a write to such a name, or to what it leads
to where it is a link, waits for the commands that run and could write, and such that come wait for the write. It knows
nothing of what they do, and opens nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Set
from contextlib import asynccontextmanager

from byleave.protocol.errors import ToolFailure

from .protection import PROTECTED

SECONDS = 40.0
"""Less than a write has, by what it may take itself: else nobody is told what it waited for."""
_NOTHING: frozenset[str] = frozenset()


class Turns:
    """The turns of one workspace, in one event loop."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._commands: list[Set[str]] = []
        self._writes = 0
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def command(self, led_to: Set[str] = _NOTHING) -> AsyncGenerator[None]:
        """While a command runs. `led_to`: what the protected names that are links lead to."""
        await self._until(lambda: not self._writes)
        self._commands.append(led_to)
        try:
            yield
        finally:
            self._commands.remove(led_to)
            self._ended.set()

    @asynccontextmanager
    async def write(self, real: str, led_to: Set[str] = _NOTHING) -> AsyncGenerator[None]:
        """While the file at a real path (from the workspace, links resolved) is written."""
        # As it is now, and as it was when the commands began: one of them may have replaced the link.
        is_led_to = any(real in paths for paths in (led_to, *self._commands))
        if real.partition("/")[0] not in PROTECTED and not is_led_to:
            yield
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._until(lambda: not self._commands)
        except TimeoutError:
            raise ToolFailure(
                f"{real!r} was not written: commands are still running, and while it is replaced they could change it.",
                hint="Wait until they have ended, or cancel them.",
            ) from None
        self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1
            self._ended.set()

    async def _until(self, free: Callable[[], bool]) -> None:
        while not free():
            self._ended.clear()
            await self._ended.wait()
