"""Fixtures of the store's tests: they run on both databases, but those marked `sqlite` are about its file alone."""

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from byleave.settings import ServerSettings
from byleave.store import Store
from byleave.store.database import Hint
from harness.postgres import PostgresServer
from harness.records import SEAL_KEYS, Clock, Records

DATABASES = ("sqlite", "postgres")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    alone = [item for item in items if item.get_closest_marker("sqlite") and "postgres" in _parameters(item)]
    if alone:
        config.hook.pytest_deselected(items=alone)
        items[:] = [item for item in items if item not in alone]


def _parameters(item: pytest.Item) -> list[object]:
    call = getattr(item, "callspec", None)
    return [] if call is None else [call.params.get("database_url")]


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> Generator[str | None]:
    """None for SQLite in the state directory."""
    if request.param == "sqlite":
        yield None
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.database() as url:
        yield url


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
    yield Records(store, clock, settings, project, session, hints)
    await store.close()
