"""Output of a command: decoded as it comes, kept within a bound, passed on while it runs.

Memory is constant whatever a command prints: each stream keeps its beginning and its end, counts the rest and drops it.
The bound is on the text that leaves here (UTF-8, undecodable bytes replaced), both streams together. Pieces passed on
while it runs are bounded too.
"""

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, str], None]

_MARKER_BYTES = 64


class KeptStream:
    """The beginning and the end of one stream, at most `limit` bytes of each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Take some bytes; gives back the text they complete."""
        text = self._decoder.decode(data, final)
        if text:
            self._keep(text.encode("utf-8"))
        return text

    def _keep(self, data: bytes) -> None:
        self.total += len(data)
        room = self._limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # One block, cut when it is twice what is needed: many small pieces would weigh more than what they hold.
        if len(self._tail) > 2 * self._limit:
            del self._tail[: -self._limit]

    def text(self, budget: int) -> str:
        """What was kept, in at most `budget` bytes; says how much was left out of the middle."""
        tail = bytes(self._tail)
        if self.total <= budget and self.total == len(self._head) + len(tail):
            return (bytes(self._head) + tail).decode("utf-8")
        half = max(budget - _MARKER_BYTES, 0) // 2
        whole_end = tail if len(tail) >= half else bytes(self._head) + tail
        # A cut inside a character leaves a broken piece of it; "ignore" drops just that.
        first = bytes(self._head[:half]).decode("utf-8", "ignore")
        last = whole_end[len(whole_end) - half :].decode("utf-8", "ignore")
        left_out = self.total - len(first.encode("utf-8")) - len(last.encode("utf-8"))
        return f"{first}\n[... {left_out} bytes left out ...]\n{last}"


@dataclass(frozen=True, slots=True)
class Captured:
    stdout: str
    stderr: str
    truncated: bool


class OutputKeeper:
    """Both streams of one command under one bound."""

    gathers = False
    """Whether output may wait some milliseconds for more of it."""

    def __init__(self, limit: int, on_output: OnOutput | None = None) -> None:
        self._limit = limit
        self._on_output = on_output
        self._passed_on = 0
        self._streams: dict[StreamName, KeptStream] = {"stdout": KeptStream(limit), "stderr": KeptStream(limit)}

    def feed(self, stream: StreamName, data: bytes, *, final: bool = False) -> None:
        text = self._streams[stream].feed(data, final=final)
        if not text or self._on_output is None or self._passed_on > self._limit:
            return
        self._passed_on += len(text)
        if self._passed_on > self._limit:
            text = "[... more output follows; the result will hold its end ...]\n"
        self._on_output(stream, text)

    def captured(self) -> Captured:
        """What is kept; a short stream is kept whole while a long one is cut."""
        out, err = self._streams["stdout"], self._streams["stderr"]
        truncated = out.total + err.total > self._limit
        small = self._limit // 2
        if out.total <= err.total:
            out_budget = min(out.total, small) if truncated else out.total
            err_budget = self._limit - out_budget
        else:
            err_budget = min(err.total, small) if truncated else err.total
            out_budget = self._limit - err_budget
        return Captured(out.text(out_budget), err.text(err_budget), truncated)
