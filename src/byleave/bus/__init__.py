"""Wake-ups: who should look at the store again, and who is connected right now.

Everything here is a hint. Losing all of it costs latency, never correctness: every listener also looks by itself from
time to time. Nothing in this package is written down.
"""

from .memory import Bus, Listener, MemoryBus
from .presence import ConnectedClient, Presence

__all__ = ["Bus", "ConnectedClient", "Listener", "MemoryBus", "Presence"]
