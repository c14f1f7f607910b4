"""The product as a user runs it: `byleave serve` and `byleave connect` in processes of their own, over real HTTP.

Nothing here waits by the clock: a process is ready when it says so, an event is there when the stream brings it.
"""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import aiohttp
from pydantic import SecretStr

from byleave.cli.token import DEFAULT_SCOPES
from byleave.protocol.states import Scope
from byleave.server import issue_token
from byleave.settings import ServerSettings
from harness.json_values import Json, JsonObject

from .forks import Forked, Forks
from .ports import free_port

LIMIT_SECONDS = 30
START_SECONDS = 90
"""The first start loads everything, perhaps on a busy machine."""


def environment(home: Path, **extra: str) -> dict[str, str]:
    """Our own variables only, so that a developer's settings change no test.

    Nor is coverage measured in these processes: it doubles their start, and what they run other tests run in process.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BYLEAVE_", "COVERAGE_"))}
    return kept | {"BYLEAVE_HOME": str(home), "NO_COLOR": "1", **extra}


class Started(Protocol):
    """A process, however it was started."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...

    async def wait(self) -> int: ...


class Fork:
    """A forked process as asyncio would show it."""

    def __init__(self, forked: Forked) -> None:
        self._forked = forked
        self.pid = forked.pid

    @property
    def returncode(self) -> int | None:
        return self._forked.poll()

    def send_signal(self, number: int, /) -> None:
        self._forked.send_signal(number)

    async def wait(self) -> int:
        return await self._forked.ended()


@dataclass
class Process:
    """A program of ours that runs."""

    process: Started
    log: Path

    async def kill(self) -> None:
        """`kill -9`: no goodbye."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()

    async def stop(self) -> int:
        """SIGTERM, and how it left."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.process.wait()

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Site:
    """One machine's worth of Byleave: a home, a workspace, a port."""

    root: Path
    port: int = field(default_factory=free_port)
    settings: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    forks: Forks | None = None
    """What processes are forked from; without it each is started as a user starts it."""

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def workspace(self) -> Path:
        return self.root / "ws"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> str:
        """URL of the record."""
        return self.settings.get("BYLEAVE_DATABASE_URL", f"sqlite:///{self.home / 'byleave.db'}")

    def token(self, user: str, *scopes: str) -> str:
        """A token as the command makes it (which has tests of its own), without a process for each."""
        wanted = [Scope(scope) for scope in scopes] or DEFAULT_SCOPES
        secret = self.settings.get("BYLEAVE_SECRET")
        settings = ServerSettings(home=self.home, secret=None if secret is None else SecretStr(secret))
        return issue_token(settings, user, wanted, 3600)

    def byleave(self, *arguments: str) -> str:
        """What a command prints that ends by itself."""
        done = subprocess.run(
            [sys.executable, "-m", "byleave.cli.main", *arguments],
            env=environment(self.home, **self.settings),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    async def start(self, name: str, *arguments: str, **extra: str) -> Process:
        log = self.root / f"{name}-{len(self.processes)}.log"
        env = environment(self.home, **{**self.settings, **extra})
        with log.open("wb") as output:
            if self.forks is not None:
                process = Fork(self.forks.start(arguments, env, output=output.fileno()))
            else:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "byleave.cli.main",
                    *arguments,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        started = Process(process, log)
        self.processes.append(started)
        return started

    async def serve(self, *options: str, port: int | None = None) -> Process:
        """Start a server and wait until it is ready. `port`: another one than the site's, for a second server."""
        port = port or self.port
        server = await self.start("serve", "serve", "--port", str(port), *options)
        async with aiohttp.ClientSession() as http, asyncio.timeout(START_SECONDS):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                        if answer.status == 200:
                            return server
                assert server.process.returncode is None, server.output()
                await asyncio.sleep(0.02)

    async def connect(
        self,
        project_id: str,
        token: str,
        workspace: Path | None = None,
        options: tuple[str, ...] = (),
        server_url: str | None = None,
    ) -> Process:
        """Start a client (without a terminal) on the workspace and wait until it is connected."""
        client = await self.start(
            "connect",
            "connect",
            "--server",
            server_url or self.url,
            "--project",
            project_id,
            "--workspace",
            str(workspace or self.workspace),
            *options,
            BYLEAVE_TOKEN=token,
        )
        async with asyncio.timeout(START_SECONDS):
            while "onnected" not in client.output():
                assert client.process.returncode is None, client.output()
                await asyncio.sleep(0.02)
        return client

    async def close(self) -> None:
        for process in self.processes:
            await process.kill()


@asynccontextmanager
async def open_site(
    root: Path, forks: Forks | None = None, database_url: str | None = None, **settings: str
) -> AsyncGenerator[Site]:
    """`database_url`: None for a record in SQLite."""
    if database_url is not None:
        settings["database_url"] = database_url
    site = Site(root, settings={f"BYLEAVE_{name.upper()}": value for name, value in settings.items()}, forks=forks)
    site.workspace.mkdir(parents=True)
    site.home.mkdir(mode=0o700)
    try:
        yield site
    finally:
        await site.close()


@dataclass
class Answer:
    status: int
    body: Json


class User:
    """Somebody with a token and an HTTP client."""

    def __init__(self, url: str, token: str, trust: ssl.SSLContext | None = None) -> None:
        self.url = url
        self.token = token
        connector = aiohttp.TCPConnector(ssl=trust or True)
        self.http = aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}, connector=connector)

    async def get(self, path: str) -> Answer:
        async with self.http.get(self.url + path) as answer:
            return Answer(answer.status, await answer.json(content_type=None))

    async def post(self, path: str, body: object | None = None) -> Answer:
        async with self.http.post(self.url + path, json=body if body is not None else {}) as answer:
            return Answer(answer.status, await answer.json(content_type=None))

    async def execute(self, project_id: str, tool_name: str, **params: object) -> JsonObject:
        answer = await self.post(
            "/my/tools/execute", {"project_id": project_id, "tool_name": tool_name, "tool_params": params}
        )
        assert answer.status == 200, answer.body
        return answer.body

    async def end_of(self, tool_id: str) -> JsonObject:
        """The execution once it has ended."""
        answer = await self.get(f"/my/tools/{tool_id}?wait={LIMIT_SECONDS}")
        assert answer.status == 200, answer.body
        return answer.body

    @asynccontextmanager
    async def watch(
        self, project_id: str, last_event_id: int | None = None, query: str = "execute=false"
    ) -> AsyncGenerator["Stream"]:
        headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=LIMIT_SECONDS)
        url = f"{self.url}/my/projects/{project_id}/chat/stream?{query}"
        async with self.http.get(url, headers=headers, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)

    async def close(self) -> None:
        await self.http.close()


class Stream:
    """A project's feed as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.last_id = 0

    async def __aiter__(self) -> AsyncIterator[tuple[int, str, JsonObject]]:
        number, kind, data = 0, "", ""
        async for raw in self._response.content:
            line = raw.decode().rstrip("\n")
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                data += line[6:]
            elif not line and data:
                self.last_id = number
                yield number, kind, json.loads(data)
                kind, data = "", ""

    async def until(self, kind: str, where: Callable[[JsonObject], bool] = lambda event: True) -> JsonObject:
        """The next event of a kind."""
        async with asyncio.timeout(LIMIT_SECONDS):
            async for _, found, event in self:
                if found == kind and where(event):
                    return event
        raise AssertionError(f"the stream ended before {kind}")
