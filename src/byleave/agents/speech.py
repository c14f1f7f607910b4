"""The agent's text on its way to the feed: gathered for a moment, so that a long answer is a few commits, not hundreds.

`add` never waits; a task of its own writes what has gathered every 80 ms, or at once when it is much. Nothing is said
in another order than it was added, and `finish` returns when everything is written.
"""

import asyncio
import contextlib
from types import TracebackType

from byleave.store import RunRow, Store

from .history import whole_characters

GATHER_SECONDS = 0.08
MUCH_CHARACTERS = 500


class Speech:
    """What one model response says."""

    def __init__(self, store: Store, run: RunRow) -> None:
        self._store = store
        self._run = run
        self._pending: list[str] = []
        self._length = 0
        self._hurry = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Speech":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer

    def add(self, text: str) -> None:
        """Say this, soon."""
        if not text:
            return
        self._pending.append(text)
        self._length += len(text)
        if self._length >= MUCH_CHARACTERS:
            self._hurry.set()
        if self._writer is None or self._writer.done():
            self._raise_failure()
            self._writer = asyncio.create_task(self._write(), name=f"byleave-speech-{self._run.id}")

    async def finish(self) -> None:
        """Wait until all of it is written."""
        self._hurry.set()
        if self._writer is not None:
            await self._writer

    async def _write(self) -> None:
        while self._pending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._hurry.wait()
            self._hurry.clear()
            text = whole_characters("".join(self._pending))
            self._pending.clear()
            self._length = 0
            await self._store.runs.say(self._run, text)

    def _raise_failure(self) -> None:
        if self._writer is not None and (error := self._writer.exception()) is not None:
            raise error
