"""The feed's route (R2): who reads, from where, and the bytes.

A stream that says which client it is, or that could execute and does not say otherwise, is offered executions; every
other only watches. However it ends, its reader is taken out of the list of those who are here.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import structlog
from pydantic import Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from byleave.bus import ConnectedClient
from byleave.protocol.approvals import plain_json
from byleave.protocol.errors import RefusedError
from byleave.protocol.inspections import LOOKS_AT_WRITES, Inspection
from byleave.protocol.states import Scope
from byleave.protocol.wire import Identifier, WireModel, new_id
from byleave.server.auth.tokens import TOKEN_HINT, Principal
from byleave.server.bodies import read_query
from byleave.server.feed import FIRST_BYTES, FeedStream, Reader
from byleave.server.problems import WrongForm
from byleave.server.routing import ANY_SCOPE, Route, parts_of, principal_of
from byleave.store import StoredEvent

from .tools import seen_call

log = structlog.stdlib.get_logger(__name__)

STALLED_SECONDS = 60.0
"""A reader that takes nothing for so long is gone; it may come back with its Last-Event-ID."""
OF_A_CALL = frozenset(
    {"tool.approval_request", "tool.approval_decided", "tool.started", "tool.queued", "tool.output", "tool.finished"}
)
"""What one who called a tool is told of it; signals are the client's."""
LARGEST_NUMBER = 2**53
LONGEST_NUMBER = len(str(LARGEST_NUMBER))


class StreamQuery(WireModel):
    last_event_id: str | None = Field(
        default=None, max_length=20, description="Where to go on, for those who cannot send the header Last-Event-ID."
    )
    client: Identifier | None = Field(default=None, description="The id of the client that will execute.")
    workspace: Annotated[str, StringConstraints(max_length=4096)] | None = Field(
        default=None, description="The directory on the client's machine."
    )
    isolation: Annotated[str, StringConstraints(max_length=40, pattern=r"^[A-Za-z0-9_.+-]*$")] | None = Field(
        default=None, description="Which isolation commands get there; `none` when there is none."
    )
    execute: bool = Field(default=True, description="`false` to only watch.")


class ToolStreamQuery(WireModel):
    last_event_id: str | None = Field(
        default=None, max_length=20, description="Where to go on, for those who cannot send the header Last-Event-ID."
    )


class FeedResponse(Response):
    """Sends a stream until its reader goes away or the server closes it."""

    def __init__(self, stream: FeedStream) -> None:
        self._stream = stream
        self.background = None

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        stream = self._stream
        gone = asyncio.create_task(_watch(receive, stream))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            chunk = FIRST_BYTES
            while chunk:
                async with asyncio.timeout(STALLED_SECONDS):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                chunk = await stream.next()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.info("reader took nothing any more", seconds=STALLED_SECONDS)
        finally:
            stream.close()
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone


async def stream(request: Request) -> Response:
    principal, query = principal_of(request), read_query(request, StreamQuery)
    project_id: str = request.path_params["project_id"]
    last = _last_event_id(request.headers.get("last-event-id") or query.last_event_id)
    looks = request.headers.get("byleave-looks") == LOOKS_AT_WRITES
    client = _client(principal, query, project_id, looks=looks)
    if client is not None and request.headers.get("byleave-editor") == "vscode":
        client = replace(client, editor="vscode")
    if client is not None:
        await parts_of(request).store.machines.connected(project_id, client.client_id, principal.token)
    reader = Reader(principal.user_id, project_id, client, last, told=_told(principal))
    return FeedResponse(await parts_of(request).sessions.open_feed(principal, reader))


async def stream_tool(request: Request) -> Response:
    """The feed of one call: for an agent, which may not watch the project."""
    principal, query = principal_of(request), read_query(request, ToolStreamQuery)
    parts, tool_id = parts_of(request), str(request.path_params["tool_id"])
    row = await seen_call(request)
    last = _last_event_id(request.headers.get("last-event-id") or query.last_event_id)
    if last is None:
        last = await parts.store.feed.before(row.project_id, row.created_at)
    told = _told(principal)
    reader = Reader(principal.user_id, row.project_id, None, last, lambda event: tells_of(event, tool_id), told)
    return FeedResponse(await parts.sessions.open_feed(principal, reader))


def tells_of(event: StoredEvent, tool_id: str) -> bool:
    """Whether an event says how this call goes. The cheap look first: most events are about others."""
    if event.kind not in OF_A_CALL or tool_id not in event.payload:
        return False
    told = json.loads(event.payload)
    return told.get("tool_id") == tool_id or tool_id in told.get("tool_ids", ())


def for_agents(event: StoredEvent) -> StoredEvent:
    """An event without what files hold: an agent must not read by asking to write or to run."""
    if event.kind != "tool.approval_request":
        return event
    told = json.loads(event.payload)
    if not told.get("inspection"):
        return event
    seen = Inspection.model_validate(told["inspection"]).without_texts()
    return event._replace(payload=plain_json({**told, "inspection": seen}))


def _told(principal: Principal) -> Callable[[StoredEvent], StoredEvent] | None:
    return for_agents if Scope.AGENT in principal.scopes else None


async def _watch(receive: Receive, stream: FeedStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.close()


def _last_event_id(text: str | None) -> int | None:
    if not text:
        return None
    # Its length first: Python refuses to read a number of thousands of digits.
    if len(text) > LONGEST_NUMBER or not (text.isascii() and text.isdigit()) or int(text) > LARGEST_NUMBER:
        raise WrongForm(
            f"Last-Event-ID is not the number of an event: {text[:40]!r}.",
            hint="Send the `id:` of the last event you got, or nothing to start now.",
        )
    return int(text)


def _client(principal: Principal, query: StreamQuery, project_id: str, *, looks: bool) -> ConnectedClient | None:
    may_execute = Scope.EXECUTE in principal.scopes
    if query.client is not None and query.execute:
        if not may_execute:
            raise RefusedError("A client that executes needs a token with the scope `execute`.", hint=TOKEN_HINT)
        if query.workspace is not None and not query.workspace.isprintable():
            raise WrongForm("`workspace` holds control characters.", hint="Send the path of a directory.")
        return ConnectedClient(
            query.client,
            project_id,
            declared=True,
            workspace=query.workspace,
            isolation=query.isolation,
            looks=looks,
        )
    if may_execute and query.execute:
        return ConnectedClient(new_id("anon"), project_id, declared=False)
    return None


_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]

ROUTES = (
    Route(
        "GET",
        "/my/projects/{project_id}/chat/stream",
        stream,
        "The feed",
        "Server-sent events: every event has an `id:`, its kind in `event:` and JSON in `data:` (`FeedEvent`). With "
        "`Last-Event-ID` everything since is replayed first, without a gap or a repeat; without, it starts now. A "
        "number that was never given starts now too; something that is no number is a 400. A comment line comes at "
        "least every heartbeat. With `client`, executions of the project are signalled on this stream. It ends with "
        "the token or the sign-in it was opened with.",
        "feed",
        frozenset({Scope.CHAT, Scope.APPROVE, Scope.EXECUTE}),
        query=StreamQuery,
        headers=(
            ("Last-Event-ID", "The `id:` of the last event that was received."),
            (
                "Byleave-Looks",
                f"`{LOOKS_AT_WRITES}` from a client that says what a call would run or replace, when asked.",
            ),
            ("Byleave-Editor", "`vscode` from a client in that editor: a page then says what is done there."),
        ),
        answer="FeedEvent",
        answer_type="text/event-stream",
        errors=(400, 404, 429, 503),
    ),
    Route(
        "GET",
        "/my/tools/{tool_id}/stream",
        stream_tool,
        "The feed of one call",
        "Server-sent events of one call only: that it waits for a person, the decision, output as it comes, the end. "
        "Without `Last-Event-ID` it starts at the call's beginning. It does not end by itself: close it after "
        "`tool.finished`.",
        "tools",
        ANY_SCOPE,
        query=ToolStreamQuery,
        headers=(("Last-Event-ID", "The `id:` of the last event that was received."),),
        answer="FeedEvent",
        answer_type="text/event-stream",
        errors=(400, 404, 429, 503),
    ),
)
