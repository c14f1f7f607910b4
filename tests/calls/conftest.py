"""Fixtures of the executor's tests, which run on both databases."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from byleave.settings import ServerSettings
from harness.desk import Desk, open_desk


@pytest.fixture
def settings(tmp_path: Path, database_url: str | None) -> ServerSettings:
    return ServerSettings(home=tmp_path / "home", durability="normal", database_url=database_url)


@pytest.fixture
async def desk(settings: ServerSettings) -> AsyncIterator[Desk]:
    async with open_desk(settings) as desk:
        yield desk
