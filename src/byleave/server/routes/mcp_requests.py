"""Answers one MCP request. No server keeps anything of a session, so any of them answers the next request.

A session id is signed for its user, agent and project. It and the request's own id give the call's id in the record:
a request that is repeated, cancelled or resumed at another server finds its call there. The id of each event names the
request, so a stream that broke goes on with `Last-Event-ID`. A call of a session outlives its stream; one without a
session (protocol 2026-07-28) is cancelled with it. User and project come from the middleware and the route, never from
the MCP message. The library gets a call without its arguments, which may be a whole file: nothing may keep them while
the call's question waits. Loaded with the first MCP request.
"""

import asyncio
import base64
import hmac
import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import DEFAULT_NEGOTIATED_VERSION, JSONRPCMessage, JSONRPCNotification, JSONRPCResponse
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import FiniteFloat, StrictInt, StrictStr, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from byleave.adapters.mcp import Context, Found, Progress, byleave_server_for, resume_call
from byleave.agents.toolset import LocalCaller
from byleave.calls.executor import Caller
from byleave.protocol.errors import NotFound
from byleave.protocol.events import FEED_EVENT, FeedEvent, ToolFinished
from byleave.protocol.executions import ToolResponse, group_prefix, id_of_call, key_scope, own_session_id
from byleave.protocol.wire import JsonObject
from byleave.server.auth.tokens import Principal
from byleave.server.bodies import RequestBody
from byleave.server.errors import MethodNotAllowed, TooMany, Unavailable, WrongForm
from byleave.server.feed import Reader
from byleave.server.problems import origin_of
from byleave.server.services import Services
from byleave.store import ExecutionRow, SessionRow

from .feed import tells_of

ASKED = "byleave.mcp.asked"
SESSION_ID = "mcp-session-id"
VERSION = "mcp-protocol-version"
LAST_EVENT_ID = "last-event-id"
RETRY_MILLISECONDS = 3000
"""Pause before a host resumes a broken stream. Hosts try twice, and a server may just be starting again."""
PAUSES = (0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""A call that is cancelled or resumed may still be on its way into the record, through another server."""


async def answer_request(
    parts: Services, principal: Principal, project_id: str, request: Request, body: bytes, message: object
) -> Response:
    """Answer one request of an agent about a project of its user; `message` is the value of its checked body."""
    fields = cast(JsonObject, message) if isinstance(message, dict) else {}
    content, body = _Content.split(fields, body, request.scope.get("byleave.body"))
    asked = Asked(parts, principal, project_id, page=f"{origin_of(request.scope)}/", content=content)
    if request.headers.get(VERSION, DEFAULT_NEGOTIATED_VERSION) not in HANDSHAKE_PROTOCOL_VERSIONS:
        return _McpResponse(asked, _serve_alone, body)
    session_id = request.headers.get(SESSION_ID)
    if session_id is None and fields.get("method") == "initialize":
        session_id = asked.new_session()
    session_id = asked.checked(session_id)
    asked = replace(asked, session_id=session_id)
    match request.method, request.headers.get(LAST_EVENT_ID):
        case "DELETE", _:
            await asked.cancel_all(session_id)
            return Response()
        case "GET", None:  # the server has no messages of its own
            raise MethodNotAllowed("GET without Last-Event-ID", ["POST", "DELETE"])
        case "GET", str(event_id):
            stream = _Stream(asked, _Place.parse(event_id))
        case _:
            stream = _Stream(asked, _Place.of(fields)) if fields.get("method") == "tools/call" else None
    return _McpResponse(asked, partial(_serve_in_session, stream, fields), body)


@dataclass
class _Content:
    """The arguments of a call, until it begins, and the room that its body has."""

    arguments: JsonObject | None = None
    body: RequestBody | None = None

    @classmethod
    def split(cls, message: JsonObject, whole: bytes, body: RequestBody | None) -> "tuple[_Content, bytes]":
        """Take the arguments out of a checked message; return them, and the bytes of what is left."""
        params = message.get("params")
        if message.get("method") != "tools/call" or not isinstance(params, dict):
            return cls(body=body), whole
        named = cast(JsonObject, params)
        if not isinstance(named.get("arguments"), dict):
            return cls(body=body), whole
        content = cls(named.pop("arguments"), body)
        return content, json.dumps({**message, "params": {**named, "arguments": {}}}).encode()

    def take(self) -> JsonObject:
        """Give the arguments away, once."""
        arguments, self.arguments = self.arguments, None
        return arguments or {}

    async def free(self) -> None:
        """Give back the room: what was to be kept is in the record."""
        if self.body is not None:
            await self.body.free()


@dataclass(frozen=True)
class Asked:
    """Who asks, about which project, in which MCP session, if any."""

    parts: Services
    principal: Principal
    project_id: str
    session_id: str | None = None
    page: str | None = None
    """Address of the page, as the host reaches this server."""
    content: _Content = field(default_factory=_Content, compare=False)

    def new_session(self) -> str:
        name = secrets.token_urlsafe(16)
        return f"{name}.{self._signature(name)}"

    def checked(self, session_id: str | None) -> str:
        """Return the id of a session that a server with our secret opened for this agent in this project."""
        if session_id is None:
            raise WrongForm(
                "The request names no MCP session.", hint="Send `initialize`, then the Mcp-Session-Id of its answer."
            )
        name, _, signature = session_id.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(name).encode()):
            raise NotFound(
                "This is no MCP session of yours in this project.", hint="Begin a new one: send `initialize`."
            )
        return session_id

    async def found(self, request_id: object) -> Found:
        """The caller and the key of a request."""
        agent_id = self.principal.agent_id
        session = await self.parts.executor.agent_session(self.principal.user_id, self.project_id, None, agent_id)
        caller = Caller(agent_id=agent_id, mode=self.principal.mode, group=self.session_id)
        watched = _WatchedCaller(self.parts, session, caller, self.content)
        return Found(watched, self._key(request_id) if self.session_id else None, self.page)

    async def recorded(self, request_id: object) -> str:
        """Return the id of the call of a request, once it is in the record; raise NotFound if it never gets there."""
        tool_id = id_of_call(self._scope, self._key(request_id), self.session_id)
        for pause in PAUSES:
            await asyncio.sleep(pause)
            if await self.parts.store.executions.load(tool_id) is not None:
                return tool_id
        raise NotFound("This call is not in the record.", hint="Call the tool again.")

    async def cancel(self, request_id: object) -> None:
        with suppress(NotFound):
            tool_id = await self.recorded(request_id)
            await (await self.found(request_id)).caller.cancel(tool_id)

    async def cancel_all(self, session_id: str) -> None:
        """Cancel every open call of a session."""
        calls = await self.parts.store.executions.open_in_group(self.project_id, group_prefix(self._scope, session_id))
        caller = (await self.found(None)).caller
        for tool_id in calls:
            await caller.cancel(tool_id)

    @property
    def _scope(self) -> str:
        user_id, agent_id = self.principal.user_id, self.principal.agent_id
        return key_scope(user_id, self.project_id, own_session_id(user_id, self.project_id, agent_id), agent_id)

    def _key(self, request_id: object) -> str:
        return f"{self.session_id}/{json.dumps(request_id)}"

    def _signature(self, name: str) -> str:
        key = self.parts.signing.derived("mcp session")
        return hmac.digest(key, json.dumps([name, self._scope]).encode(), "sha256").hex()


async def _find(context: Context) -> Found:
    """Take the caller from the request that carried this message."""
    asked: Asked = cast(Request, context.request).scope[ASKED]
    return await asked.found(context.request_id)


SERVER = byleave_server_for(_find)


async def _serve_alone(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request of protocol 2026-07-28, which has no sessions."""
    asked: Asked = scope[ASKED]
    # One manager for each request: it lives in the task that opened it, and keeps nothing.
    manager = StreamableHTTPSessionManager(
        SERVER, stateless=True, max_request_body_size=asked.parts.settings.max_payload_bytes
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


async def _serve_in_session(
    stream: "_Stream | None", message: JsonObject, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer a request of an older protocol, with a transport of its own."""
    asked: Asked = scope[ASKED]
    version = Request(scope).headers.get(VERSION, DEFAULT_NEGOTIATED_VERSION)
    transport = StreamableHTTPServerTransport(asked.session_id, event_store=stream, retry_interval=RETRY_MILLISECONDS)
    async with transport.connect() as (incoming, outgoing), anyio.create_task_group() as serving:
        dispatcher = JSONRPCDispatcher[TransportContext](incoming, outgoing)
        connection = Connection.from_envelope(version, None, None)
        serving.start_soon(partial(serve_connection, SERVER, dispatcher, connection=connection, lifespan_state=None))
        try:
            await transport.handle_request(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await transport.terminate()
    if message.get("method") == "notifications/cancelled":
        await asked.cancel(_params(message).get("requestId"))


def _params(message: JsonObject) -> JsonObject:
    params = message.get("params")
    return cast(JsonObject, params) if isinstance(params, dict) else {}


@dataclass(frozen=True)
class _Place:
    """A place in the stream of a call, as the id of an event: which request, and how far its progress counted."""

    request_id: int | str
    token: int | str | None
    count: float = 0.0

    @classmethod
    def of(cls, message: JsonObject) -> "_Place":
        """The beginning of the stream of a request."""
        meta = _params(message).get("_meta")
        return cls(
            message.get("id", ""), cast(JsonObject, meta).get("progressToken") if isinstance(meta, dict) else None
        )

    @classmethod
    def parse(cls, event_id: str) -> "_Place":
        """Read the id of an event that a host sends back."""
        try:
            return cls(*PLACE.validate_json(base64.urlsafe_b64decode(event_id)))
        except ValueError:
            raise WrongForm(
                "The Last-Event-ID is none of ours.", hint="Send the `id` of an event as it came."
            ) from None

    def __str__(self) -> str:
        text = json.dumps([self.request_id, self.token, self.count])
        return base64.urlsafe_b64encode(text.encode()).decode()


PLACE = TypeAdapter(tuple[StrictInt | StrictStr, StrictInt | StrictStr | None, FiniteFloat])


class _Stream(EventStore):
    """The stream of one call. It stores nothing: what follows an event is read from the record."""

    def __init__(self, asked: Asked, place: _Place) -> None:
        self._asked = asked
        self._place = place

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        if isinstance(message, JSONRPCNotification):
            self._place = replace(self._place, count=(message.params or {}).get("progress", self._place.count))
        return str(self._place)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> None:
        """Send what is left of the call: progress from here on, and its result."""
        request_id, token = self._place.request_id, self._place.token

        async def send(message: JSONRPCMessage) -> None:
            await send_callback(EventMessage(message, await self.store_event("", message)))

        async def report(count: float, text: str) -> None:
            if token is not None:
                params = {"progressToken": token, "progress": count, "message": text}
                await send(JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params=params))

        caller = (await self._asked.found(request_id)).caller
        progress = Progress(report, self._place.count, page=self._asked.page)
        result = await resume_call(caller, self._asked.recorded(request_id), progress)
        shown = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        await send(JSONRPCResponse(jsonrpc="2.0", id=request_id, result=shown))


class _McpResponse(Response):
    """Lets the library answer; ends when the server closes."""

    def __init__(self, asked: Asked, serve: ASGIApp, body: bytes) -> None:
        self._asked = asked
        self._serve = serve
        self._body = body
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ASKED] = self._asked
        sent = _Sent(send)
        answering = asyncio.ensure_future(self._serve(scope, _replayed(self._body, receive), sent))
        closing = asyncio.ensure_future(self._asked.parts.closing.wait())
        try:
            await asyncio.wait({answering, closing}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            closing.cancel()
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
        if not sent.started:
            raise Unavailable("The server is shutting down.", hint="Connect again in a moment.")
        if not sent.ended:
            await sent({"type": "http.response.body", "body": b"", "more_body": False})


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, then what else comes: the end of the connection."""
    left = [body]

    async def next_message() -> Message:
        return {"type": "http.request", "body": left.pop(), "more_body": False} if left else await receive()

    return next_message


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
    """A caller that begins a call with its true arguments, and follows it through the feed as its user may see it."""

    def __init__(self, parts: Services, session: SessionRow, caller: Caller, content: _Content) -> None:
        super().__init__(parts.executor, parts.store, parts.presence, session, caller)
        self._parts = parts
        self._of = session
        self._content = content

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        try:
            return await super().start(tool_name, self._content.take(), key=key)
        finally:
            await self._content.free()

    async def follow(self, tool_id: str) -> AsyncGenerator[FeedEvent | ToolResponse]:
        row = await self._parts.store.executions.get(tool_id, user_id=self._of.user_id)
        if not row.status.ended:
            with suppress(TooMany, Unavailable):  # without the feed only progress is missing
                async with aclosing(self._events(row)) as events:
                    async for event in events:
                        yield event
                        if isinstance(event, ToolFinished):
                            break
        yield await self.wait(tool_id)

    async def _events(self, row: ExecutionRow) -> AsyncGenerator[FeedEvent]:
        tool_id = row.id
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
