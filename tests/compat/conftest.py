"""Fixtures of the tests with other projects' software: a real server for each."""

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
async def start_server(tmp_path: Path) -> AsyncGenerator[StartServer]:
    """Starts a server with other settings than the usual ones."""
    async with AsyncExitStack() as stack:

        async def start(**changes: Unpack[ServerOptions]) -> Server:
            values: ServerOptions = {"home": tmp_path / "home", "secret": SecretStr(SECRET), **changes}
            return await stack.enter_async_context(running_server(ServerSettings(**values)))

        yield start
