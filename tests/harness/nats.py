"""A NATS server of the tests' own, on a free port."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from harness.ports import free_port

PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))


def program() -> str | None:
    """Path of the server; None if it is not installed."""
    return shutil.which("nats-server", path=PLACES)


@asynccontextmanager
async def running(port: int | None = None) -> AsyncGenerator[str]:
    """Start a server; gives its URL."""
    name, port = program(), port or free_port()
    assert name is not None
    process = await asyncio.create_subprocess_exec(
        name, "-a", "127.0.0.1", "-p", str(port), stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stderr is not None
        while b"Server is ready" not in (line := await process.stderr.readline()):
            assert line, "NATS did not start"
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()
