"""A whole Byleave in the test's own loop: a real server over HTTP, a real client on a real workspace, and a person.

For tests of what calls tools from outside (SDK, adapters, bridges): open one with `open_household`, hand
`household.agent()` or its URL and token to what is tested, and say what the person does with `person`. Nothing here
waits by the clock.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Unpack

import jwt
from pydantic import SecretStr

from byleave.client.api import ServerApi
from byleave.client.connection import ClientConnection, connect_client
from byleave.protocol.approvals import ApproveBody, RejectBody
from byleave.protocol.events import ApprovalRequested, FeedEvent
from byleave.protocol.executions import Execution
from byleave.protocol.states import Scope
from byleave.sdk import Machine
from byleave.server import Listening, issue_token, serve
from byleave.settings import ClientSettings, ServerSettings
from harness.options import ServerOptions

SECRET = "a secret of the tests, long enough to be one"
LIMIT_SECONDS = 30
Decide = Callable[[ApprovalRequested], str | bool | None]
"""What the person does with a question: True approves, a text rejects with that reason, False or None leaves it."""


@dataclass
class Person:
    """Watches the feed, remembers every event, and answers questions as `decide` says."""

    api: ServerApi
    project_id: str
    decide: Decide = lambda question: None
    events: list[FeedEvent] = field(default_factory=list[FeedEvent])
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _watching: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        async with self.api.stream(self.project_id) as stream:
            self._watching.set()
            async for _, event in stream:
                async with self._news:
                    self.events.append(event)
                    self._news.notify_all()
                if isinstance(event, ApprovalRequested):
                    await self._answer(event)

    async def _answer(self, question: ApprovalRequested) -> None:
        said = self.decide(question)
        if said is True:
            await self.approve(question.approval_id)
        elif isinstance(said, str):
            await self.reject(question.approval_id, said)

    async def approve(self, approval_id: str) -> None:
        await self.api.approve(self.project_id, approval_id, ApproveBody(decision="approved"))

    async def reject(self, approval_id: str, reason: str) -> None:
        await self.api.reject(self.project_id, approval_id, RejectBody(reason=reason))

    async def until(self, kind: str, number: int = 1, **wanted: object) -> FeedEvent:
        """The first (or another) event of this kind and with these values, also one that came already."""

        def found() -> FeedEvent | None:
            fitting = (
                event
                for event in self.events
                if event.kind == kind and all(getattr(event, name) == value for name, value in wanted.items())
            )
            return next(islice(fitting, number - 1, None), None)

        async with asyncio.timeout(LIMIT_SECONDS), self._news:
            await self._news.wait_for(lambda: found() is not None)
        event = found()
        assert event is not None
        return event

    async def record(self) -> list[Execution]:
        """Every execution there is, oldest first."""
        return list(reversed((await self.api.history({"limit": 200})).executions))


@dataclass
class Household:
    """Everything that is up."""

    settings: ServerSettings
    listening: Listening
    connection: ClientConnection
    person: Person
    workspace: Path
    project_id: str
    home: Path

    @property
    def url(self) -> str:
        return self.listening.url

    def token(self, *scopes: Scope, user: str = "alice") -> str:
        return issue_token(self.settings, user, scopes or (Scope.AGENT,), 600)

    @property
    def expired_token(self) -> str:
        """An agent's token that was good until an hour ago."""
        claims = jwt.decode(self.token(), options={"verify_signature": False})
        past = int(time.time()) - 3600
        return jwt.encode(claims | {"iat": past - 1, "exp": past}, SECRET, algorithm="HS256")

    @cached_property
    def agent_token(self) -> str:
        return self.token()

    def agent(self, *, name: str | None = None) -> Machine:
        """An agent that runs elsewhere, with a token that can approve nothing; each time the same one."""
        return Machine(self.url, self.agent_token, self.project_id, name=name)


@asynccontextmanager
async def open_household(tmp_path: Path, **settings: Unpack[ServerOptions]) -> AsyncGenerator[Household]:
    """Server settings may be given by name, such as `medium_timeout_seconds=1`."""
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir(exist_ok=True)
    chosen: ServerOptions = {
        "home": home,
        "secret": SecretStr(SECRET),
        "model": "offline",
        "durability": "normal",
        **settings,
    }
    server_settings = ServerSettings(**chosen)
    async with AsyncExitStack() as ends:
        up: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve(server_settings, "127.0.0.1", 0, ready=up.set_result))
        ends.push_async_callback(_left, serving, up)
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.wait({up, serving}, return_when=asyncio.FIRST_COMPLETED)
            listening = up.result()
        ends.callback(listening.stop)
        token = issue_token(server_settings, "alice", (Scope.CHAT, Scope.APPROVE, Scope.EXECUTE), 600)
        api = await ends.enter_async_context(ServerApi(listening.url, token))
        project_id = (await api.create_project("demo")).project_id
        client_settings = ClientSettings(home=tmp_path / "client", server_url=listening.url, token=SecretStr(token))
        connection = await ends.enter_async_context(connect_client(client_settings, project_id, workspace))
        running = asyncio.create_task(connection.run())
        ends.push_async_callback(_end, running)
        person = Person(api, project_id)
        watching = asyncio.create_task(person.watch())
        ends.push_async_callback(_end, watching)
        async with asyncio.timeout(LIMIT_SECONDS):
            await connection.connected.wait()
            await person._watching.wait()
        ends.callback(listening.stop)
        yield Household(server_settings, listening, connection, person, workspace, project_id, home)


async def _left(serving: "asyncio.Task[None]", up: "asyncio.Future[Listening]") -> None:
    """A server that was up was asked to stop: whoever cancels it while it closes its parts leaves some of them open."""
    if up.done():
        await asyncio.wait({serving}, timeout=LIMIT_SECONDS)
    await _end(serving)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(task, return_exceptions=True)
