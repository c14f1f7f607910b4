"""Signals that wait for a place, in order: bounded by their number and by the bytes they hold (C3).

A signal carries the whole content of a write, and it is queued before the gate has judged it, so every text in it
counts, wherever it stands. What does not fit is refused with an error to report; nothing already here is dropped.
"""

from typing import Any, cast

from byleave.protocol.errors import ConcurrencyLimitError
from byleave.protocol.events import ExecutionSignal

MAX_QUEUED_BYTES = 256 * 1024 * 1024


class WaitingSignals:
    """A queue by tool_id."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._signals: dict[str, tuple[ExecutionSignal, int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._signals)

    @property
    def signals(self) -> list[ExecutionSignal]:
        """What waits, in order."""
        return [event for event, _ in self._signals.values()]

    def add(self, event: ExecutionSignal) -> None:
        """Put it at the end; raises when there is no room for it."""
        size = _text_bytes(event.tool_params)
        if len(self) >= self._limit:
            raise ConcurrencyLimitError(f"{len(self)} calls wait on this machine already; it was not run.")
        if self._bytes + size > MAX_QUEUED_BYTES:
            raise ConcurrencyLimitError(
                f"Calls of {self._bytes} bytes wait on this machine already and this one has {size}; it was not run.",
                hint="call it again when others have ended",
            )
        self._signals[event.tool_id] = (event, size)
        self._bytes += size

    def take(self, tool_id: str) -> ExecutionSignal | None:
        """Take one out of the order; None when it does not wait here."""
        event, size = self._signals.pop(tool_id, (None, 0))
        self._bytes -= size
        return event

    def next(self) -> ExecutionSignal | None:
        """Take the one that has waited longest."""
        return self.take(next(iter(self._signals), ""))


def _text_bytes(value: Any) -> int:
    """The bytes of every text in a JSON value."""
    total = 0
    open_values: list[Any] = [value]
    while open_values:
        one = open_values.pop()
        if isinstance(one, str):
            total += len(one) if one.isascii() else len(one.encode("utf-8", "surrogatepass"))
        elif isinstance(one, dict):
            for key, item in cast("dict[Any, Any]", one).items():
                open_values += (key, item)
        elif isinstance(one, list):
            open_values += cast("list[Any]", one)
    return total
