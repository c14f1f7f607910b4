"""Frames from bytes, however they are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byleave.client.api import Frame, FrameReader
from byleave.protocol.errors import UnreachableError

pytestmark = pytest.mark.promise("R2")

STREAM = (
    b": beat\n\n"
    b'id: 1\nevent: chat.text\ndata: {"a":1}\n\n'
    b": beat\n\n\n"
    b"id: 2\nevent:other\ndata:first\ndata: second\nretry: 5\nunknown\n\n"
    b"data: without\n\n"
    b"id: 3\nevent: cut\ndata: never"
)
FRAMES = [
    Frame("1", "chat.text", b'{"a":1}'),
    Frame("2", "other", b"first\nsecond"),
    Frame("2", "message", b"without"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_cuts_and_line_ends_change_nothing(cuts: list[int], line_end: bytes) -> None:
    stream = STREAM.replace(b"\n", line_end)
    edges = [0, *sorted(cuts), len(stream)]
    reader = FrameReader()
    frames: list[Frame] = []
    for start, end in pairwise(edges):
        frames += reader.feed(stream[start:end])
    assert frames == FRAMES


def test_byte_by_byte_is_the_same() -> None:
    reader = FrameReader()
    assert [frame for byte in STREAM for frame in reader.feed(bytes([byte]))] == FRAMES


def test_a_frame_without_end_is_refused() -> None:
    reader = FrameReader(max_frame_bytes=100)
    with pytest.raises(UnreachableError, match="larger than 100 bytes"):
        reader.feed(b"data: " + b"x" * 200)
