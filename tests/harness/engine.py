"""An editor's side of the engine: `byleave connect --stdio` as a real process, and JSON-RPC on its pipes."""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from byleave.protocol.engine import ENGINE_PROTOCOL
from harness.json_values import Json, JsonObject

from .processes import LIMIT_SECONDS, environment


class EngineError(Exception):
    """What the engine answered instead of a result."""

    def __init__(self, error: JsonObject) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.data: JsonObject = error.get("data", {})


class Editor:
    """Whoever started an engine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told: list[tuple[str, JsonObject]] = []
        self.unasked: list[JsonObject] = []
        """Answers to what was no request of `ask`."""
        self._news = asyncio.Condition()
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._numbers = itertools.count(1)
        self._reading = asyncio.create_task(self._read())

    async def ask(self, name: str, /, **params: object) -> Json:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self.send({"jsonrpc": "2.0", "id": number, "method": name, "params": params})
        async with asyncio.timeout(LIMIT_SECONDS):
            return await answer

    async def send(self, message: object) -> None:
        body = json.dumps(message).encode()
        await self.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def hears(self, method: str, where: Callable[[JsonObject], bool] = lambda _: True) -> JsonObject:
        """The first notification of a kind, from the beginning."""

        def found() -> list[JsonObject]:
            return [params for name, params in self.told if name == method and where(params)]

        async with asyncio.timeout(LIMIT_SECONDS), self._news:
            await self._news.wait_for(lambda: bool(found()))
            return found()[0]

    async def use(self, url: str, token: str) -> None:
        await self.ask("server/use", server_url=url, token=token)

    async def leave(self) -> int:
        """Close the pipe, as an editor that ends does; how the engine left."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.process.wait()

    async def end(self) -> None:
        """Let the engine end by itself: one that is killed saves no coverage."""
        try:
            if self.process.returncode is None:
                await self.leave()
        finally:
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        reader = self.process.stdout
        assert reader is not None
        while header := await reader.readline():
            length = int(header.split(b":")[1])
            await reader.readline()
            message = json.loads(await reader.readexactly(length))
            if "method" in message:
                async with self._news:
                    self.told.append((message["method"], message["params"]))
                    self._news.notify_all()
                continue
            if message["id"] not in self._answers:
                self.unasked.append(message)
                continue
            answer = self._answers.pop(message["id"])
            if "error" in message:
                answer.set_exception(EngineError(message["error"]))
            else:
                answer.set_result(message["result"])


@asynccontextmanager
async def open_engine(
    home: Path, extra: dict[str, str] | None = None, *, initialize: bool = True
) -> AsyncGenerator[Editor]:
    log = home.parent / "engine.log"
    # Only these tests run the engine's code, so its process is traced if the test is.
    tracing = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "byleave.cli.main", "connect", "--stdio",
            env=environment(home, **tracing, **(extra or {})), limit=2**26,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    editor = Editor(process)
    try:
        if initialize:
            await editor.ask("initialize", protocol=ENGINE_PROTOCOL, editor="tests")
        yield editor
    finally:
        await editor.end()
