"""Fixtures of the store's tests, which run on both databases."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from byleave.settings import ServerSettings
from byleave.store import Store
from byleave.store.database import Hint
from harness.records import SEAL_KEYS, Clock, Records


@pytest.fixture
def settings(tmp_path: Path, database_url: str | None) -> ServerSettings:
    return ServerSettings(
        home=tmp_path / "home", client_wait_seconds=60, result_grace_seconds=30, database_url=database_url
    )


@pytest.fixture
async def records(settings: ServerSettings) -> AsyncIterator[Records]:
    clock = Clock()
    hints: list[Hint] = []
    store = await Store.open(
        settings, seal_keys=SEAL_KEYS, on_commit=lambda *hint: hints.append(Hint(*hint)), clock=clock
    )
    project = await store.chat.create_project("alice", "demo")
    session = await store.chat.create_session("alice", project.id, "first")
    made = Records(store, clock, settings, project, session, hints)
    yield made
    await made.store.close()  # the one that a test opened in place of the first, if it did
