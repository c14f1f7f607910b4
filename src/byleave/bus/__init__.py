"""Wake-ups: hints to look at the store again, and the clients connected right now.

Everything here is a hint. Losing all of it costs latency, never correctness: every listener also polls from time to
time. Nothing in this package is stored.
"""

from .memory import EVERYTHING, Bus, Listener, MemoryBus
from .presence import ConnectedClient, Presence

__all__ = ["EVERYTHING", "Bus", "ConnectedClient", "Listener", "MemoryBus", "Presence"]
