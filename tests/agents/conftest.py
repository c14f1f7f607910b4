"""Fixtures of the agents' tests: a room with its client, and the same with a worker that uses the offline model."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.room import Room, open_room


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with open_room(tmp_path / "home", tmp_path / "ws") as room:
        yield room


@pytest.fixture
async def offline(room: Room) -> Room:
    """The room with a worker already at work."""
    await room.worker().start()
    return room
