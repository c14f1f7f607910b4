"""A real server on a free port in the test's own loop, and users who talk to it over HTTP."""

import asyncio
import contextlib
import io
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypedDict, Unpack

import aiohttp
import jwt
from multidict import CIMultiDictProxy

from byleave.protocol.states import AgentMode, Scope
from byleave.server import Listening, Services, issue_token, serve, server_secret
from byleave.settings import ServerSettings
from harness.json_values import Json, JsonObject
from harness.options import ServerOptions

SECRET = "a secret of the tests, long enough to be one"
PERSON = (Scope.CHAT, Scope.APPROVE, Scope.EXECUTE)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: CIMultiDictProxy[str]
    text: str

    @property
    def json(self) -> Json:
        return json.loads(self.text)


@dataclass(frozen=True)
class Frame:
    """One server-sent event."""

    seq: int
    kind: str
    data: JsonObject


class Feed:
    """An open stream, read frame by frame."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self._rest = b""
        self._frames: list[bytes] = []
        self.beats = 0

    async def raw(self) -> bytes | None:
        """The next block between blank lines; None at the end of the stream."""
        while not self._frames:
            chunk = await self.response.content.readany()
            if not chunk:
                return None
            *whole, self._rest = (self._rest + chunk).split(b"\n\n")
            self._frames.extend(whole)
        return self._frames.pop(0)

    async def frames(self) -> AsyncIterator[Frame]:
        while (block := await self.raw()) is not None:
            if block.startswith(b":"):
                self.beats += 1
                continue
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
            if "id" in fields:
                yield Frame(int(fields["id"]), fields["event"], json.loads(fields["data"]))

    async def until(self, kind: str, **wanted: object) -> Frame:
        """The next event of this kind (and with these values)."""
        async with asyncio.timeout(10):
            async for frame in self.frames():
                if frame.kind == kind and all(frame.data.get(name) == value for name, value in wanted.items()):
                    return frame
        raise AssertionError(f"the stream ended before {kind}")

    async def take(self, count: int) -> list[Frame]:
        found: list[Frame] = []
        async with asyncio.timeout(20):
            async for frame in self.frames():
                found.append(frame)
                if len(found) == count:
                    return found
        raise AssertionError(f"the stream ended after {len(found)} events")


class RequestOptions(TypedDict, total=False):
    """Options of a request that tests use, as aiohttp names them."""

    headers: dict[str, str]
    data: str | bytes | io.BytesIO | AsyncIterator[bytes]
    skip_auto_headers: list[str]


@dataclass
class User:
    """Somebody with a token."""

    url: str
    session: aiohttp.ClientSession
    token: str
    headers: dict[str, str] = field(default_factory=dict[str, str])

    async def ask(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Answer:
        options["headers"] = {"Authorization": f"Bearer {self.token}", **self.headers, **options.get("headers", {})}
        async with self.session.request(method, self.url + path, allow_redirects=False, **options) as response:
            return Answer(response.status, response.headers, await response.text())

    async def get(self, path: str, **options: Unpack[RequestOptions]) -> Answer:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, body: object = None, **options: Unpack[RequestOptions]) -> Answer:
        return await self.send("POST", path, body, **options)

    async def send(self, method: str, path: str, body: object = None, **options: Unpack[RequestOptions]) -> Answer:
        if body is not None:
            # As a file: aiohttp warns of large bodies given as bytes.
            options["data"] = io.BytesIO(json.dumps(body).encode())
            options["headers"] = {"Content-Type": "application/json", **options.get("headers", {})}
        return await self.ask(method, path, **options)

    async def project(self, name: str = "a project") -> str:
        answer = await self.post("/my/projects", {"name": name})
        assert answer.status == 201, answer.text
        return answer.json["project_id"]

    async def execute(self, project_id: str, tool_name: str, tool_params: object, **more: object) -> Answer:
        body = {"project_id": project_id, "tool_name": tool_name, "tool_params": tool_params, **more}
        return await self.post("/my/tools/execute", body)

    async def question(self, project_id: str, path: str = "a.txt") -> tuple[str, str]:
        """A write that waits: its execution and its approval."""
        answer = await self.execute(project_id, "write_file", {"path": path, "content": "x"})
        assert answer.json["status"] == "awaiting_approval", answer.text
        return answer.json["tool_id"], answer.json["approval_id"]

    @asynccontextmanager
    async def feed(
        self, project_id: str, query: str = "execute=false", last: int | str | None = None, **more: str
    ) -> AsyncGenerator[Feed]:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "text/event-stream"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        url = f"{self.url}/my/projects/{project_id}/chat/stream?{query}"
        async with self.session.get(url, headers=headers, timeout=aiohttp.ClientTimeout(total=60)) as response:
            assert response.status == 200, await response.text()
            feed = Feed(response)
            assert await feed.raw() == b"retry: 1000"
            yield feed

    @asynccontextmanager
    async def machine(self, project_id: str, client: str = "laptop") -> AsyncGenerator[list[JsonObject]]:
        """A client that answers every signal with the same result; yields the signals it got."""
        got: list[JsonObject] = []

        async def work(feed: Feed) -> None:
            async for frame in feed.frames():
                if frame.kind == "tool.execution_signal":
                    got.append(frame.data)
                    path = f"/my/projects/{project_id}/tools/{frame.data['tool_id']}/result"
                    body = {"status": "completed", "result": {"success": True, "content": "hello"}}
                    answer = await self.post(path, body, headers={"Byleave-Client": client})
                    assert answer.status == 200, answer.text

        query = f"client={client}&workspace=/home/someone/code&isolation=bubblewrap"
        async with self.feed(project_id, query) as feed:
            working = asyncio.create_task(work(feed))
            try:
                yield got
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)


@dataclass
class Server:
    """A server that answers, and people who may ask it."""

    settings: ServerSettings
    listening: Listening
    session: aiohttp.ClientSession
    task: asyncio.Task[None]

    @property
    def url(self) -> str:
        return self.listening.url

    @property
    def parts(self) -> Services:
        return self.listening.parts

    def user(
        self,
        name: str = "alice",
        scopes: tuple[Scope, ...] = PERSON,
        agent: str | None = None,
        mode: AgentMode | None = None,
    ) -> User:
        """Each time another token. What this server would not issue may come from elsewhere, signed all the same."""
        if {Scope.AGENT, Scope.EXECUTE} <= set(scopes):
            return self.bearer(self.signed({"sub": name, "scope": " ".join(scopes)}))
        return self.bearer(issue_token(self.settings, name, scopes, 600, agent=agent, mode=mode))

    def signed(self, claims: JsonObject) -> str:
        return jwt.encode({"exp": int(time.time()) + 600, **claims}, server_secret(self.settings), algorithm="HS256")

    def bearer(self, token: str) -> User:
        return User(self.url, self.session, token)


class StartServer(Protocol):
    async def __call__(self, **settings: Unpack[ServerOptions]) -> Server: ...


@asynccontextmanager
async def running_server(settings: ServerSettings) -> AsyncGenerator[Server]:
    """Serve until the block ends."""
    ready: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(settings, "127.0.0.1", 0, ready=ready.set_result))
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=jar) as session:
        try:
            yield Server(settings, ready.result(), session, task)
        finally:
            await session.close()
            ready.result().stop()
            with contextlib.suppress(asyncio.CancelledError):
                await task
