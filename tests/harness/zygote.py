"""Starts clients at almost no cost: all is imported once, and each client is a fork. As a program, and as its owner.

The program reads a line for each thing to do (`start`, `kill`) and answers each with one line. A client it starts is
connected when the answer comes, and one it kills is gone: `kill -9`, no goodbye. The sandbox is tried out only once.
"""

import asyncio
import functools
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import byleave.workspace.workspace
from byleave.client.connection import connect_client
from byleave.settings import ClientSettings
from byleave.workspace.sandbox.backends import choose_sandbox
from byleave.workspace.workspace import Workspace


class Zygote:
    """Clients of one project and workspace, one at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def start(self) -> None:
        """Fork a client and wait until it is connected."""
        await self._tell("start")

    async def kill(self) -> None:
        """End it in the middle of whatever it does."""
        await self._tell("kill")

    async def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n".encode())
        answer = await self._process.stdout.readline()
        assert answer == f"{word} done\n".encode(), answer


@asynccontextmanager
async def open_zygote(env: dict[str, str], project_id: str, workspace: Path, log: Path) -> AsyncGenerator[Zygote]:
    """`env` holds the client's settings, its token among them."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            project_id,
            str(workspace),
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
        )
    try:
        yield Zygote(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _serve(project_id: str, workspace: str, ready: int) -> None:
    async with connect_client(ClientSettings(), project_id, workspace) as connection, asyncio.TaskGroup() as group:
        group.create_task(connection.run())
        await connection.connected.wait()
        os.write(ready, b"x")


def _fork(project_id: str, workspace: str) -> int:
    connected, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(connected)
        asyncio.run(_serve(project_id, workspace, ready))
        os._exit(0)
    os.close(ready)
    os.read(connected, 1)
    os.close(connected)
    return pid


def _try_sandbox_once(workspace: str) -> None:
    setattr(byleave.workspace.workspace, "choose_sandbox", functools.cache(choose_sandbox))  # noqa: B010 - a stand-in
    tried = Workspace(workspace, ClientSettings())
    assert tried.isolation.isolated
    asyncio.run(tried.close())


def main() -> None:
    client = None
    _try_sandbox_once(sys.argv[2])
    for line in sys.stdin:
        word = line.strip()
        if word == "start":
            client = _fork(*sys.argv[1:])
        elif client is not None:
            os.kill(client, signal.SIGKILL)
            os.waitpid(client, 0)
            client = None
        print(word, "done", flush=True)
    if client is not None:
        os.kill(client, signal.SIGKILL)


if __name__ == "__main__":
    main()
