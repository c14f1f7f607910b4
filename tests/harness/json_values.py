"""Types of the JSON that tests send and read."""

from typing import Any

from byleave.protocol.wire import JsonObject as JsonObject

Json = Any
"""Decoded JSON that a test digs into; its assertions check the shape, and a cast per key would hide them."""
