"""Fixtures of the end-to-end tests: everything real, everything in its own process."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from harness.forks import Forks
from harness.processes import Site, User, environment, open_site


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What most processes here are forked from; tests that open a site of their own start them as a user does."""
    made = Forks(environment(tmp_path_factory.getbasetemp()))
    yield made
    made.close()


@pytest.fixture
async def site(tmp_path: Path, forks: Forks) -> AsyncIterator[Site]:
    async with open_site(tmp_path, forks, durability="normal") as site:
        (site.workspace / "package.json").write_text('{"name": "demo", "version": "3.2.1"}\n')
        (site.workspace / "src").mkdir()
        (site.workspace / "src" / "app.py").write_text("print('hello')  # TODO: greet\n")
        yield site


@pytest.fixture
async def alice(site: Site) -> AsyncIterator[User]:
    user = User(site.url, site.token("alice"))
    yield user
    await user.close()
