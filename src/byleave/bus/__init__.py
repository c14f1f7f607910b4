"""Wake-ups: topics and callbacks inside one process, called in commit order, and what carries topics between servers.

Everything here is a hint. Losing all of it costs latency, never correctness: every listener also polls from time to
time. A hint's fact is a committed value; None means "look in the store", which is all that another server can say.
Callbacks run on the event loop, must be quick and must not raise.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

Listener = Callable[[object | None], None]
EVERYTHING = ""
"""Topic of a listener that hears every hint of its own process."""


class Bus(Protocol):
    """Publishes and delivers hints."""

    def publish(self, topic: str, fact: object | None = None) -> None: ...

    def listen(self, topic: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` for a topic until the returned function is called."""
        ...


class WakeUps(Protocol):
    """Carries topics to the other servers of a record, and theirs to us. May lose, repeat and reorder them."""

    def tell(self, topic: str) -> None:
        """Send a topic of something that was committed."""
        ...

    @property
    def trouble(self) -> str | None:
        """The reason that nothing is heard, as a sentence; None if all is well."""
        ...

    async def start(self, hear: Callable[[Iterable[str]], None]) -> None:
        """Begin to call `hear` for the topics of other servers, on the event loop."""
        ...

    async def stop(self) -> None: ...


class MemoryBus:
    """A bus for one process."""

    def __init__(self) -> None:
        self._listeners: dict[str, dict[int, Listener]] = {}
        self._next = 0

    def publish(self, topic: str, fact: object | None = None) -> None:
        for listeners in (self._listeners.get(topic), self._listeners.get(EVERYTHING)):
            for listener in tuple(listeners.values()) if listeners else ():
                listener(fact)

    def hear(self, topics: Iterable[str]) -> None:
        """Deliver topics of another server. One with a slash is a topic and its fact, which is a name."""
        for each in topics:
            topic, _, name = each.partition("/")
            self._deliver(topic, name or None)

    def listen(self, topic: str, listener: Listener) -> Callable[[], None]:
        self._next += 1
        key = self._next
        self._listeners.setdefault(topic, {})[key] = listener

        def stop() -> None:
            listeners = self._listeners.get(topic)
            if listeners is not None:
                listeners.pop(key, None)
                if not listeners:
                    del self._listeners[topic]

        return stop

    def _deliver(self, topic: str, fact: object | None) -> None:
        listeners = self._listeners.get(topic)
        if listeners:
            for listener in tuple(listeners.values()):
                listener(fact)
