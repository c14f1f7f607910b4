"""RequestRates: how many requests each sender may send, and have unanswered. Only memory: no request costs a query.

A sender is a user, or a user's agents together: agents that send too many delay neither the reports of the user's
machine nor the page. One sender's requests never count for another's. A request is refused before its body is read,
and told when to come back. A large answer counts as many requests: it takes as much of the one event loop.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager

from .errors import TooMany

FORGET_EVERY = 1024
"""New senders after which those are forgotten whose buckets are full again."""
BUSY_SECONDS = 1
ANSWER_BYTES = 64 * 1024
"""Each so many bytes of an answer count as one more request."""
ROUNDING_SECONDS = 1e-6


class RequestRates:
    """A token bucket of each sender. Without a rate there is no limit."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds_each = 1 / per_second if per_second else 0.0
        self._burst = burst
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}
        """When a sender's bucket is full again; one that is not here is full."""
        self._forget_at = FORGET_EVERY
        self._open: Counter[Hashable] = Counter()

    @contextmanager
    def admit(self, sender: Hashable) -> Generator[None]:
        """Take one request of this sender, until it is answered; raise TooMany if there were too many."""
        if not self._seconds_each:
            yield
            return
        self._take(sender)
        self._open[sender] += 1
        try:
            yield
        finally:
            self._open[sender] -= 1
            if not self._open[sender]:
                del self._open[sender]

    def charge(self, sender: Hashable, size: int) -> None:
        """Count an answer of so many bytes, after it was sent. Its sender waits no longer than for a burst."""
        more = min(size // ANSWER_BYTES, 2 * self._burst)
        if more and self._seconds_each:
            moment = self._clock()
            self._full_at[sender] = max(self._full_at.get(sender, moment), moment) + more * self._seconds_each

    def _take(self, sender: Hashable) -> None:
        if self._open[sender] >= self._burst:
            raise TooMany(
                f"{self._burst:,} requests of yours are not answered yet.",
                hint="Wait for some of them, then send this one again.",
                retry_after=BUSY_SECONDS,
            )
        moment = self._clock()
        full_at = max(self._full_at.get(sender, moment), moment) + self._seconds_each
        wait = full_at - moment - self._burst * self._seconds_each
        if wait > ROUNDING_SECONDS:
            raise TooMany(
                f"You send more than {1 / self._seconds_each:g} requests a second.",
                hint="Nothing of this one was done: send it again after the seconds in Retry-After, and fewer at once.",
                retry_after=math.ceil(wait),
            )
        self._full_at[sender] = full_at
        if len(self._full_at) >= self._forget_at:
            self._full_at = {one: until for one, until in self._full_at.items() if until > moment}
            self._forget_at = len(self._full_at) + FORGET_EVERY
