"""Fixtures of the agents' tests: a room with its client, and the same with a worker that uses the offline model."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from byleave.agents import failures
from harness.room import Room, open_room


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with open_room(tmp_path / "home", tmp_path / "ws") as room:
        yield room


@pytest.fixture
async def offline(room: Room) -> Room:
    """The room with a worker already at work."""
    await room.worker().start()
    return room


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """A provider that cannot answer is asked again soon."""
    monkeypatch.setattr(failures, "FIRST_PAUSE_SECONDS", 0.01)
