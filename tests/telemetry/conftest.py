"""Telemetry switched on for one test."""

from collections.abc import Iterator

import pytest

from harness.recorded import Seen, recording


@pytest.fixture
def seen() -> Iterator[Seen]:
    with recording() as seen:
        yield seen
