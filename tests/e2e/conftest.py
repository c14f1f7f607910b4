"""Fixtures of the end-to-end tests: everything real, everything in its own process, on both databases."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.forks import untraced_forks
from harness.processes import Site, User, open_site


@pytest.fixture
async def site(tmp_path: Path, database_url: str | None) -> AsyncIterator[Site]:
    """Its processes are forks; tests that open a site of their own start them as a user does."""
    async with open_site(tmp_path, untraced_forks(), database_url, durability="normal") as site:
        (site.workspace / "package.json").write_text('{"name": "demo", "version": "3.2.1"}\n')
        (site.workspace / "src").mkdir()
        (site.workspace / "src" / "app.py").write_text("print('hello')  # TODO: greet\n")
        yield site


@pytest.fixture
async def alice(site: Site) -> AsyncIterator[User]:
    user = User(site.url, site.token("alice"))
    yield user
    await user.close()
