"""ModelSlots: how many requests to models run at once. Users whose requests wait take turns, and one user never has all
slots: a thousand messages of one delay another's only by the requests that run already."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class ModelSlots:
    """The slots of a server."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._most_of_one = max(1, at_once - max(1, at_once // 4))
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Those who wait, by user; who waits longest for a turn comes first."""

    @asynccontextmanager
    async def take(self, user_id: str) -> AsyncGenerator[None]:
        """Wait for a slot, and have it for the block."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user_id, deque()).append(turn)
        self._give()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._free += 1
                self._taken -= Counter({user_id: 1})  # drops users at zero
            self._give()

    def _give(self) -> None:
        """Give free slots to those who wait, one to each user in turn."""
        for user_id in list(self._waiting):
            mine = self._waiting[user_id]
            while mine and mine[0].cancelled():
                mine.popleft()
            if mine and self._free and self._taken[user_id] < self._most_of_one:
                mine.popleft().set_result(None)
                self._free -= 1
                self._taken[user_id] += 1
                del self._waiting[user_id]
                if mine:
                    self._waiting[user_id] = mine  # behind the others
            elif not mine:
                del self._waiting[user_id]
