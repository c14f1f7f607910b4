"""Serve the feed as server-sent events (R2).

A stream gets executions if it names its client, or if its token may execute and it does not opt out; every other only
watches.
"""

import json
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from pydantic import Field, StringConstraints
from starlette.responses import Response

from byleave.calls.edits import for_agent
from byleave.calls.machines import ConnectedClient
from byleave.protocol.approvals import LOOKS_AT_WRITES
from byleave.protocol.errors import RefusedError
from byleave.protocol.states import Scope
from byleave.protocol.wire import Identifier, JsonObject, WireModel, new_id, plain_json
from byleave.server.auth.tokens import TOKEN_HINT, Principal
from byleave.server.dependencies import Allow, Anyone, Flag, Parts, Project, StrictRoute, check_client
from byleave.server.errors import WrongForm
from byleave.server.feed import FeedResponse, Reader
from byleave.server.problems import problems
from byleave.store import StoredEvent
from byleave.store.machines import ANONYMOUS

from .tools import seen_call

router = APIRouter(route_class=StrictRoute)

OF_A_CALL = frozenset(
    {"tool.approval_request", "tool.approval_decided", "tool.started", "tool.queued", "tool.output", "tool.finished"}
)
"""Events that the caller of a tool receives; signals are the client's."""
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
    execute: Flag = Field(default=True, description="`false` to only watch.")


class ToolStreamQuery(WireModel):
    last_event_id: str | None = Field(
        default=None, max_length=20, description="Where to go on, for those who cannot send the header Last-Event-ID."
    )


LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="The `id:` of the last event that was received.")
]
EVENTS: dict[int | str, JsonObject] = {
    200: {"content": {"text/event-stream": {"schema": {"$ref": "#/components/schemas/FeedEvent"}}}},
    **problems(409, 429, 503),
}


@router.get(
    "/my/projects/{project_id}/chat/stream",
    summary="The feed",
    tags=["feed"],
    response_class=Response,
    responses=EVENTS,
)
async def stream(
    parts: Parts,
    principal: Annotated[Principal, Depends(Allow(Scope.CHAT, Scope.APPROVE, Scope.EXECUTE, people_only=True))],
    project: Project,
    query: Annotated[StreamQuery, Query()],
    last_event_id: LastEventId = None,
    looks: Annotated[
        str | None,
        Header(
            alias="Byleave-Looks",
            description=f"`{LOOKS_AT_WRITES}` from a client that says what a call would run or replace, when asked.",
        ),
    ] = None,
    editor: Annotated[
        str | None,
        Header(
            alias="Byleave-Editor",
            description="`vscode` from a client in that editor: a page then says what is done there.",
        ),
    ] = None,
) -> Response:
    """Server-sent events: every event has an `id:`, its kind in `event:` and JSON in `data:` (`FeedEvent`). With
    `Last-Event-ID` everything since is replayed first, without a gap or a repeat; without, it starts now. If
    retention removed some of it, `feed.gap` comes in its place, with your last number, then the rest. An unknown
    number starts now too; a value that is no number is a 400. A comment line comes at least every heartbeat. With
    `client`, executions of the project are signalled on this stream. It ends with the token or the sign-in it was
    opened with, or when a later start of its client connects; that is a 409 from then on."""
    last = _last_event_id(last_event_id or query.last_event_id)
    client = _client(principal, query, project, looks=looks == LOOKS_AT_WRITES)
    if client is not None and editor == "vscode":
        client = replace(client, editor="vscode")
    if client is not None:
        client = replace(client, generation=principal.client_generation if client.declared else None)
        await check_client(parts, principal, project, client.client_id, joins=True)
    reader = Reader(principal.user_id, project, client, last)
    return FeedResponse(await parts.sessions.open_feed(principal, reader))


@router.get(
    "/my/tools/{tool_id}/stream",
    summary="The feed of one call",
    tags=["tools"],
    response_class=Response,
    responses={**EVENTS, **problems(404)},
)
async def stream_tool(
    parts: Parts,
    principal: Anyone,
    tool_id: str,
    query: Annotated[ToolStreamQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Server-sent events of one call: the question to a person, the decision, output as it comes, the end.
    Without `Last-Event-ID` it starts at the call's beginning. It does not end by itself: close it after
    `tool.finished`."""
    row = await seen_call(parts, principal, tool_id)
    last = _last_event_id(last_event_id or query.last_event_id)
    if last is None:
        last = await parts.store.feed.before(row.project_id, row.created_at)
    told = for_agents if Scope.AGENT in principal.scopes else None
    reader = Reader(principal.user_id, row.project_id, None, last, lambda event: tells_of(event, tool_id), told)
    return FeedResponse(await parts.sessions.open_feed(principal, reader))


def tells_of(event: StoredEvent, tool_id: str) -> bool:
    """True if an event is about this call. The cheap check comes first: most events are about others."""
    if event.kind not in OF_A_CALL or tool_id not in event.payload:
        return False
    told = json.loads(event.payload)
    return told.get("tool_id") == tool_id or tool_id in told.get("tool_ids", ())


def for_agents(event: StoredEvent) -> StoredEvent:
    """Return an event as the agent it is about may see it."""
    if event.kind != "tool.approval_request":
        return event
    told = json.loads(event.payload)
    seen = for_agent(told)
    return event if seen is told else event._replace(payload=plain_json(seen))


def _last_event_id(text: str | None) -> int | None:
    if not text:
        return None
    # Length first: Python refuses to parse a number of thousands of digits.
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
        return ConnectedClient(new_id(ANONYMOUS), project_id, declared=False)
    return None
