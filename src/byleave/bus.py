"""Wake-ups inside one process: topics and callbacks, called in commit order.

Everything here is a hint. Losing all of it costs latency, never correctness: every listener also polls from time to
time. A hint's fact is a committed value; None means "look in the store" (all that a bus between processes can say).
Callbacks run on the event loop, must be quick and must not raise.
"""

from collections.abc import Callable
from typing import Protocol

Listener = Callable[[object | None], None]
EVERYTHING = ""
"""Topic of a listener that hears every hint."""


class Bus(Protocol):
    """Publishes and delivers hints."""

    def publish(self, topic: str, fact: object | None = None) -> None: ...

    def listen(self, topic: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` for a topic until the returned function is called."""
        ...


class MemoryBus:
    """A bus for one process."""

    def __init__(self) -> None:
        self._listeners: dict[str, dict[int, Listener]] = {}
        self._next = 0

    def publish(self, topic: str, fact: object | None = None) -> None:
        for heard in (topic, EVERYTHING):
            listeners = self._listeners.get(heard)
            if listeners:
                for listener in tuple(listeners.values()):
                    listener(fact)

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
