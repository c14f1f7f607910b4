"""Tells a project's feed which machines are there, as they come and go.

A machine that comes is told at once, one that goes after a moment: most of those that go are back by then, and nothing
changed. However often clients connect, a project hears of it about once a second, and only of what is different then.
Nothing is told while the server closes: that its clients leave is no news of theirs.
"""

import asyncio

import structlog

from byleave.bus import ConnectedClient, Presence
from byleave.protocol.overview import Machine
from byleave.store import STORAGE_ERRORS, Store

log = structlog.stdlib.get_logger(__name__)

PAUSE_SECONDS = 1.0


class Attendance:
    """Watches who is present."""

    def __init__(self, store: Store, presence: Presence, pause: float = PAUSE_SECONDS) -> None:
        self._store = store
        self._presence = presence
        self._pause = pause
        self._told: dict[str, list[Machine]] = {}
        """What each project's feed was told last; not there: nobody."""
        self._telling: dict[str, asyncio.Task[None]] = {}
        presence.on_change = self._changed

    def close(self) -> None:
        """Say nothing any more. May be called twice."""
        self._presence.on_change = None
        for task in self._telling.values():
            task.cancel()  # what has reached the store by now is written all the same

    async def wait_closed(self) -> None:
        self.close()
        await asyncio.gather(*list(self._telling.values()), return_exceptions=True)

    def _changed(self, client: ConnectedClient, came: bool) -> None:
        project_id = client.project_id
        if project_id not in self._telling:
            wait = 0.0 if came else self._pause
            task = asyncio.create_task(self._follow(project_id, wait), name="byleave-attendance")
            self._telling[project_id] = task

    async def _follow(self, project_id: str, wait: float) -> None:
        try:
            await asyncio.sleep(wait)
            await self._tell(project_id)
        finally:
            # In the same breath as the last look: a change that comes now begins anew.
            del self._telling[project_id]

    async def _tell(self, project_id: str) -> None:
        while (here := self._presence.machines(project_id)) != self._told.get(project_id, []):
            try:
                await self._store.machines.tell(project_id, here)
            except STORAGE_ERRORS as error:
                # The next change tries again; who asks for the list itself gets the truth meanwhile.
                log.error("a change of machines could not be told", project=project_id, error=str(error))
                return
            if here:
                self._told[project_id] = here
            else:
                self._told.pop(project_id, None)
            await asyncio.sleep(self._pause)
