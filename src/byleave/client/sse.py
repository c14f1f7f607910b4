"""Server-sent events, read by bytes: chunks of any size go in, whole frames come out.

A frame is dispatched only at its blank line, so a stream cut in the middle never yields half an event. Time is linear
in the bytes received, and a frame larger than the largest call may be is refused instead of kept.
"""

from typing import NamedTuple

from byleave.protocol.errors import UnreachableError

MAX_FRAME_BYTES = 512 * 1024 * 1024


class Frame(NamedTuple):
    """One event as it came."""

    id: str | None
    event: str
    data: bytes


class FrameReader:
    """Turns chunks into frames. `id` stays as the last one seen, as the standard has it."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._rest = bytearray()
        self._scanned = 0
        self._held = b""
        self._limit = max_frame_bytes
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """All frames that are whole now."""
        if self._held or b"\r" in chunk:
            chunk = self._line_ends(chunk)
        rest = self._rest
        rest += chunk
        frames: list[Frame] = []
        start = 0
        while (end := rest.find(b"\n\n", max(start, self._scanned))) >= 0:
            frame = self._frame(bytes(rest[start:end]))
            if frame is not None:
                frames.append(frame)
            start = self._scanned = end + 2
        del rest[:start]
        self._scanned = max(len(rest) - 1, 0)
        if len(rest) > self._limit:
            raise UnreachableError(f"The server sent an event larger than {self._limit} bytes.")
        return frames

    def _line_ends(self, chunk: bytes) -> bytes:
        """Other line ends become \\n. A \\r at the end waits: it may be the first half of one line end."""
        chunk = self._held + chunk
        self._held = b"\r" if chunk.endswith(b"\r") else b""
        return chunk.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _frame(self, block: bytes) -> Frame | None:
        event = "message"
        data: list[bytes] = []
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if name == b"data":
                data.append(value)
            elif name == b"event":
                event = value.decode("utf-8", "replace")
            elif name == b"id":
                self._id = value.decode("ascii", "replace")
        return Frame(self._id, event, b"\n".join(data)) if data else None
