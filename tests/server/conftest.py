"""A real server on a free port for each test that asks for one."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Unpack

import pytest
from pydantic import SecretStr

from byleave.settings import ServerSettings
from harness.http_server import SECRET, Server, StartServer, running_server
from harness.options import ServerOptions


@pytest.fixture
async def start_server(tmp_path: Path, record_url: str | None) -> AsyncGenerator[StartServer]:
    """Starts a server with other settings than the usual ones."""
    async with AsyncExitStack() as stack:

        async def start(**changes: Unpack[ServerOptions]) -> Server:
            values: ServerOptions = {
                "home": tmp_path / "home",
                "secret": SecretStr(SECRET),
                "database_url": record_url,
                **changes,
            }
            return await stack.enter_async_context(running_server(ServerSettings(**values)))

        yield start


@pytest.fixture
async def server(start_server: StartServer) -> Server:
    return await start_server()
