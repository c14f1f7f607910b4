"""MCP sessions of this server: one session manager for each agent of a user; calls go straight to the executor.

Separate managers keep users and agents apart: nobody can reach the session of another, whatever id they send. Each
agent has its own limit, beyond which its session idle longest ends, so it cannot use up another's. User and project
come from the middleware and the route, never from the MCP message. Loaded with the first MCP request.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import cast

import structlog
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from byleave.adapters.mcp import Context, byleave_server_for
from byleave.agents.toolset import LocalCaller
from byleave.calls.executor import Caller
from byleave.protocol.events import FEED_EVENT, FeedEvent, ToolFinished
from byleave.protocol.executions import ToolCaller, ToolResponse
from byleave.server.auth.tokens import Principal
from byleave.server.errors import TooMany, Unavailable
from byleave.server.feed import Reader
from byleave.server.services import Services
from byleave.store import SessionRow

from .feed import tells_of

log = structlog.stdlib.get_logger(__name__)

PROJECT = "byleave.mcp.project"
SESSION_ID = "mcp-session-id"
SESSIONS_PER_AGENT = 32
"""Beyond this many, the session idle longest ends."""
MOST_SESSIONS = 2 * SESSIONS_PER_AGENT
"""Limit while all of them work; a further one is refused."""
IDLE_SECONDS = 30 * 60
MOST_AGENTS = 1000
"""Beyond this many, the agent quiet longest is forgotten; its hosts open a new session."""


class McpSessions:
    """All MCP sessions of this server."""

    def __init__(self, parts: Services) -> None:
        self._parts = parts
        self._server = byleave_server_for(self._caller)
        self._agents: dict[tuple[str, str], _Keeper] = {}

    async def answer(self, principal: Principal, project_id: str, message: bytes) -> Response:
        """Answer one request of an agent about a project of its user; `message` is its checked body."""
        keeper = await self._keeper((principal.user_id, principal.agent_id))
        return _McpResponse(self._parts, keeper, project_id, message)

    async def close(self) -> None:
        for keeper in list(self._agents.values()):
            await keeper.close()

    async def _keeper(self, agent: tuple[str, str]) -> "_Keeper":
        keeper = self._agents.pop(agent, None) or _Keeper(self._manager())
        self._agents[agent] = keeper  # moved to the end: the first is quiet longest
        await keeper.open()
        if len(self._agents) > MOST_AGENTS:
            quiet = next((one for one, its in self._agents.items() if not its.busy), None)
            if quiet is not None and quiet != agent:
                await self._agents.pop(quiet).close()
        return keeper

    def _manager(self) -> StreamableHTTPSessionManager:
        return StreamableHTTPSessionManager(
            self._server,
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=self._parts.settings.max_payload_bytes,
            max_sessions=MOST_SESSIONS,
        )

    async def _caller(self, context: Context) -> ToolCaller:
        """Take the caller from the request that carried this message, not from its session."""
        scope = cast(Request, context.request).scope
        principal: Principal = scope["byleave.principal"]
        agent_id = principal.agent_id
        session = await self._parts.executor.agent_session(principal.user_id, scope[PROJECT], None, agent_id)
        return _WatchedCaller(self._parts, session, Caller(agent_id=agent_id, mode=principal.mode))


@dataclass
class _Keeper:
    """One agent's sessions. The library requires that one task opens and closes them."""

    manager: StreamableHTTPSessionManager
    busy: int = 0
    """Requests that are being answered."""
    _sessions: dict[str, int] = field(default_factory=dict[str, int])
    """Messages that each session is answering, the one idle longest first. One that only listens is idle."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _opened: asyncio.Event = field(default_factory=asyncio.Event)
    _task: "asyncio.Task[None] | None" = None

    async def open(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name="byleave-mcp")
        await self._opened.wait()

    async def close(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the library answer a request; end the session idle longest when one too many was opened."""
        session_id = Headers(scope=scope).get(SESSION_ID)
        works = scope["method"] == "POST"

        async def watched(message: Message) -> None:
            if session_id is None and message["type"] == "http.response.start" and message["status"] < 400:
                opened = Headers(raw=message["headers"]).get(SESSION_ID)
                if opened is not None:  # later versions of the protocol have no sessions
                    await self._end_idle(SESSIONS_PER_AGENT - 1)
                    self._sessions[opened] = 0
            await send(message)

        if session_id is None:  # there may be more, if all worked
            await self._end_idle(MOST_SESSIONS - 1)
        self._count(session_id, works)
        try:
            await self.manager.handle_request(scope, receive, watched)
        finally:
            self._count(session_id, -works)
            if session_id is not None and scope["method"] == "DELETE":
                self._sessions.pop(session_id, None)

    def _count(self, session_id: str | None, change: int) -> None:
        """Count a message that a session begins (+1) or ends (-1) to answer."""
        if change and session_id in self._sessions:
            self._sessions[session_id] = self._sessions.pop(session_id) + change

    async def _end_idle(self, most: int) -> None:
        """End the sessions idle longest, until there are no more than `most` or all work."""
        while len(self._sessions) > most:
            idle = next((one for one, works in self._sessions.items() if not works), None)
            if idle is None:
                return
            del self._sessions[idle]
            headers = [(SESSION_ID.encode(), idle.encode())]
            ending = {"type": "http", "method": "DELETE", "path": "/", "headers": headers}
            await self.manager.handle_request(ending, _no_body, _unheard)

    async def _keep(self) -> None:
        async with self.manager.run():
            self._opened.set()
            await self._stop.wait()


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, then what else comes: the end of the connection."""
    left = [body]

    async def next_message() -> Message:
        return {"type": "http.request", "body": left.pop(), "more_body": False} if left else await receive()

    return next_message


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(message: Message) -> None:
    pass


class _McpResponse(Response):
    """Lets the library answer; ends when the server closes."""

    def __init__(self, parts: Services, keeper: _Keeper, project_id: str, message: bytes) -> None:
        self._parts = parts
        self._keeper = keeper
        self._project_id = project_id
        self._message = message
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PROJECT] = self._project_id
        sent = _Sent(send)
        answering = asyncio.ensure_future(self._keeper.handle(scope, _replayed(self._message, receive), sent))
        closing = asyncio.ensure_future(self._parts.closing.wait())
        self._keeper.busy += 1
        try:
            await asyncio.wait({answering, closing}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            self._keeper.busy -= 1
            closing.cancel()
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
        if not sent.started:
            raise Unavailable("The server is shutting down.", hint="Connect again in a moment.")
        if not sent.ended:
            await sent({"type": "http.response.body", "body": b"", "more_body": False})


class _Sent:
    """Remembers how far an answer got."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = self.ended = False

    async def __call__(self, message: Message) -> None:
        self.started = True
        self.ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


class _WatchedCaller(LocalCaller):
    """A caller that also follows a call, through the feed as its user may see it."""

    def __init__(self, parts: Services, session: SessionRow, caller: Caller) -> None:
        super().__init__(parts.executor, parts.store, parts.presence, session, caller)
        self._parts = parts
        self._of = session

    async def follow(self, tool_id: str) -> AsyncGenerator[FeedEvent | ToolResponse]:
        with suppress(TooMany, Unavailable):  # without the feed only progress is missing
            async with aclosing(self._events(tool_id)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, ToolFinished):
                        break
        yield await self.wait(tool_id)

    async def _events(self, tool_id: str) -> AsyncGenerator[FeedEvent]:
        row = await self._parts.store.executions.get(tool_id, user_id=self._of.user_id)
        before = await self._parts.store.feed.before(row.project_id, row.created_at)
        reader = Reader(self._of.user_id, row.project_id, None, before, wanted=lambda event: tells_of(event, tool_id))
        stream = await self._parts.streams.open(reader)
        try:
            while frames := await stream.next():
                for line in frames.decode().split("\n"):
                    if line.startswith("data: "):
                        yield FEED_EVENT.validate_json(line.removeprefix("data: "))
        finally:
            stream.close()
