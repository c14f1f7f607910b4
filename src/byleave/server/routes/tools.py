"""Routes for tool calls of external agents, clients' reports and the history (R3, R6, R7, R8).

`execute` and `result` are the hot path: bytes in, one call, bytes out. A call the gate refuses is an answer with the
status `failed`, not an HTTP error; an HTTP error means the request itself was wrong.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from byleave import telemetry
from byleave.calls.executor import Caller, unrecorded
from byleave.calls.limits import RecordFullError
from byleave.gate import mask_text
from byleave.protocol.approvals import Decision, Inspection
from byleave.protocol.chat import Cancelled
from byleave.protocol.errors import ByleaveError, NotFound, RefusedError
from byleave.protocol.executions import (
    BatchAck,
    Begun,
    ExecuteRequest,
    Execution,
    ExecutionPage,
    OutputChunk,
    QueueReport,
    ResultAck,
    ResultBatch,
    ResultReport,
    ToolResponse,
)
from byleave.protocol.states import ExecutionStatus, RiskLevel, Scope
from byleave.protocol.tools import ToolCatalogue, tool_catalogue
from byleave.protocol.wire import Identifier, WireModel
from byleave.server.auth.tokens import Principal
from byleave.server.dependencies import (
    IDENTIFIER,
    IDENTIFIER_SCHEMA,
    Allow,
    Anyone,
    Executor,
    HotRoute,
    Parts,
    Project,
    StrictRoute,
    check_project,
    takes,
)
from byleave.server.errors import WrongForm
from byleave.server.isolation import unlogged
from byleave.server.problems import problems
from byleave.server.services import Services
from byleave.store import STORAGE_ERRORS, ExecutionRow
from byleave.store.executions import HistoryFilter, given_to_another
from byleave.store.transitions import PREVIEW_CHARACTERS, preview

router = APIRouter(route_class=StrictRoute, tags=["tools"])
hot = APIRouter(route_class=HotRoute, tags=["tools"])
"""Routes for a call itself and for the reports of its client."""

CURSOR = re.compile(r"[0-9TZ:.-]{24}~[A-Za-z0-9_.-]{1,64}")
CATALOGUE = tool_catalogue().model_dump_json().encode()
MUCH_TO_SHORTEN = 1024 * 1024
GOES_ON = (
    "What was recorded goes on without you. Ask again with the same idempotency_key, or without one look at "
    "`GET /my/tools/history` before you ask again."
)


REPORTS_WITH = (
    "Report with the key, or without one with the token, that the client's stream was opened with; with a new token "
    "open the stream first."
)
CLIENT_HEADER = Header(
    alias="Byleave-Client",
    description="Which client reports: only the one that got the signal may, with a token it has opened its stream "
    "with. Needed where several clients share a token.",
    json_schema_extra=IDENTIFIER_SCHEMA,
)
TRACEPARENT = {
    "name": "traceparent",
    "in": "header",
    "required": False,
    "description": "The span you call from; where telemetry is on, it is the parent of the call's spans, if sampled.",
    "schema": {"type": "string"},
}
ClientHeader = Annotated[str | None, CLIENT_HEADER]


class StatusQuery(WireModel):
    wait: float = Field(default=0, ge=0, description="Seconds to wait for its end.")


class HistoryQuery(WireModel):
    project_id: Identifier | None = Field(default=None, description="Only of this project.")
    session_id: Identifier | None = Field(default=None, description="Only of this session.")
    tool_name: str | None = Field(default=None, max_length=100, description="Only of this tool.")
    status: ExecutionStatus | None = Field(default=None, description="Only in this state.")
    risk_level: RiskLevel | None = Field(default=None, description="Only of this level.")
    cursor: str | None = Field(
        default=None,
        max_length=100,
        description="`next_cursor` of the page before.",
        json_schema_extra={"pattern": f"^{CURSOR.pattern}$"},
    )
    limit: int = Field(default=50, ge=1, le=200, description="How many on a page.")


@hot.post(
    "/my/tools/execute",
    summary="Call a tool",
    response_model=ToolResponse,
    responses=problems(404, 503),
    openapi_extra={"parameters": [TRACEPARENT]},
)
@unlogged
@takes(file=True)
async def execute(
    parts: Parts,
    principal: Annotated[Principal, Depends(Allow(Scope.AGENT, Scope.CHAT))],
    body: ExecuteRequest,
    request: Request,
) -> Response:
    """Calls a tool for an agent that runs elsewhere. LOW answers with the result; MEDIUM and HIGH answer
    `awaiting_approval` at once, or `pending` while the client inspects what would run: follow it with
    `GET /my/tools/{tool_id}?wait=`. A refused call is an answer with the status `failed`. The same
    `idempotency_key` in the same session never runs twice."""
    await check_project(parts, principal, body.project_id)
    session = await parts.executor.agent_session(
        principal.user_id, body.project_id, body.session_id, principal.agent_id
    )
    async with parts.until_closing(GOES_ON):
        with telemetry.called_from(_caller_of(request)):
            try:
                row = await parts.executor.call(
                    body.tool_name,
                    body.tool_params,
                    session,
                    caller=Caller(
                        agent_id=principal.agent_id, mode=principal.bounded(body.mode), key=body.idempotency_key
                    ),
                    until_asked=True,
                    seconds=parts.settings.max_wait_seconds,
                )
            except RecordFullError as error:
                answer = unrecorded(body.tool_name, error).model_dump_json().encode()
            else:
                answer = row.response_json()
    return Response(answer, media_type="application/json")


@hot.post("/my/projects/{project_id}/tools/{tool_id}/result", summary="Report a result", responses=problems(409, 503))
@unlogged
@takes(file=True, mended=True)
async def post_result(
    parts: Parts, principal: Executor, project: Project, tool_id: str, body: ResultReport, client: ClientHeader = None
) -> ResultAck:
    """Stores the result from the client that executed it. The same result again is accepted; another one is a 409."""
    began = telemetry.clock()
    row = await parts.executor.settle(
        tool_id,
        body,
        user_id=principal.user_id,
        project_id=project,
        client_id=await reporter(parts, principal, project, client, tool_id),
    )
    if began:
        place = telemetry.place_of_client(row.id, row.run_id)
        telemetry.record("byleave.result", began, telemetry.clock(), parent=place, tool_id=row.id)
    return ResultAck(success=True, tool_id=tool_id, status=row.status, message="Result stored.")


@hot.post("/my/projects/{project_id}/tools/results", summary="Report several results", responses=problems(503))
@unlogged
@takes(mended=True)
async def post_results(
    parts: Parts, principal: Executor, project: Project, body: ResultBatch, client: Annotated[str, CLIENT_HEADER]
) -> BatchAck:
    """Stores results that a client has ready at the same time, each as if reported alone. One that is not
    accepted has to be reported alone; that answer says why."""
    began = telemetry.clock()
    client_id = await reporter(parts, principal, project, client)
    settled = await asyncio.gather(
        *(
            parts.executor.settle(
                result.tool_id, result.report, user_id=principal.user_id, project_id=project, client_id=client_id
            )
            for result in body.results
        ),
        return_exceptions=True,
    )
    rows: list[ExecutionRow] = []
    for result in settled:
        if isinstance(result, ExecutionRow):
            rows.append(result)
        elif not isinstance(result, (ByleaveError, *STORAGE_ERRORS)):
            raise result
    for row in rows if began else ():
        place = telemetry.place_of_client(row.id, row.run_id)
        telemetry.record("byleave.result", began, telemetry.clock(), parent=place, tool_id=row.id)
    return BatchAck(accepted=[row.id for row in rows])


@hot.post(
    "/my/projects/{project_id}/tools/{tool_id}/output",
    summary="Report output as it comes",
    status_code=204,
    responses=problems(409, 503),
)
@unlogged
async def post_output(
    parts: Parts, principal: Executor, project: Project, tool_id: str, body: OutputChunk, client: ClientHeader = None
) -> Response:
    """Adds a piece of a running command's output to the feed. Repeated and late pieces are dropped silently."""
    await parts.store.executions.append_output(
        tool_id,
        user_id=principal.user_id,
        project_id=project,
        client_id=await reporter(parts, principal, project, client, tool_id),
        stream=body.stream,
        text=mask_text(body.text),
        sequence=body.sequence,
    )
    return Response(status_code=204)


@hot.post(
    "/my/projects/{project_id}/tools/queued",
    summary="Say which calls wait on the machine",
    status_code=204,
    responses=problems(503),
)
@unlogged
async def post_queued(
    parts: Parts, principal: Executor, project: Project, body: QueueReport, client: Annotated[str, CLIENT_HEADER]
) -> Response:
    """Names calls that were signalled to this client and wait there behind others. Their time does not run until the
    client begins them, while it stays connected and up to a limit. Calls that have ended are ignored."""
    await parts.store.executions.queued(
        body.tool_ids,
        user_id=principal.user_id,
        project_id=project,
        client_id=await reporter(parts, principal, project, client),
    )
    return Response(status_code=204)


@hot.post(
    "/my/projects/{project_id}/tools/{tool_id}/begin",
    summary="Begin with a call that waited",
    responses=problems(409, 503),
)
@unlogged
async def post_begin(
    parts: Parts, principal: Executor, project: Project, tool_id: str, client: ClientHeader = None
) -> Begun:
    """Starts the time of the call. A 409 means it is no longer wanted and must not run. A repeat changes nothing."""
    row = await parts.store.executions.start(
        tool_id,
        user_id=principal.user_id,
        project_id=project,
        client_id=await reporter(parts, principal, project, client, tool_id),
    )
    return Begun(started_at=row.started_at or row.created_at, deadline=row.deadline or row.created_at)


@hot.post(
    "/my/projects/{project_id}/tools/{tool_id}/inspection",
    summary="Say what a call would run",
    status_code=204,
    responses=problems(409, 503),
)
@unlogged
async def post_inspection(
    parts: Parts, principal: Executor, project: Project, tool_id: str, body: Inspection, client: ClientHeader = None
) -> Response:
    """Takes the report of the client that was asked (`tool.inspection_request`) on the files the call would run or
    replace. A person is then asked, and shown it. Repeated and late reports are dropped silently."""
    await parts.executor.inspected(
        tool_id,
        body,
        user_id=principal.user_id,
        project_id=project,
        client_id=await reporter(parts, principal, project, client, tool_id),
    )
    return Response(status_code=204)


@router.get("/my/projects/{project_id}/tools/available", summary="The tools there are", response_model=ToolCatalogue)
async def available(principal: Anyone, project: Project) -> Response:
    """The catalogue, with JSON Schema of each tool's parameters."""
    return Response(CATALOGUE, media_type="application/json")


@router.get("/my/tools/history", summary="Executions, newest first", responses=problems(404))
async def history(parts: Parts, principal: Anyone, query: Annotated[HistoryQuery, Query()]) -> ExecutionPage:
    """Filtered and paged, refused calls included. A long result is shortened and says so; all of it is at
    `GET /my/tools/{tool_id}`. An agent's token sees its own calls."""
    await check_project(parts, principal, query.project_id)
    if query.cursor is not None and not CURSOR.fullmatch(query.cursor):
        raise WrongForm("`cursor` is not one we gave.", hint="Pass `next_cursor` of the page before, unchanged.")
    agent_id = principal.agent_id if Scope.AGENT in principal.scopes else None
    wanted = HistoryFilter(user_id=principal.user_id, agent_id=agent_id, **query.model_dump())
    page = await parts.store.executions.page(wanted)
    rows = page.rows
    much = sum(len(row.result or "") for row in rows) > MUCH_TO_SHORTEN
    ended = await parts.store.approvals.decisions([row.approval_id for row in rows])
    executions = await asyncio.to_thread(shortened, rows, ended) if much else shortened(rows, ended)
    return ExecutionPage(
        executions=executions, total_count=page.total, total_is_exact=page.exact, next_cursor=page.cursor
    )


@router.get("/my/tools/{tool_id}", summary="One execution", responses=problems(404))
async def get_tool(parts: Parts, principal: Anyone, tool_id: str, query: Annotated[StatusQuery, Query()]) -> Execution:
    """With `wait`, answers when the call has ended or the time is up, whichever comes first."""
    longest = parts.settings.max_wait_seconds
    if not query.wait <= longest:
        raise WrongForm(f"`wait` is at most {longest} seconds.", hint="Ask again when it is over.")
    row = await seen_call(parts, principal, tool_id)
    if query.wait and not row.status.ended:
        row = await _wait(parts, row, query.wait)
    ended = await parts.store.approvals.decisions([row.approval_id])
    return row.to_wire(ended.get(row.approval_id or ""))


async def seen_call(parts: Services, principal: Principal, tool_id: str) -> ExecutionRow:
    """Return a call that the caller may see: an agent's token sees those of that agent only."""
    row = await parts.store.executions.get(tool_id, user_id=principal.user_id)
    if not principal.may_see(row.run_id, row.agent_id):
        raise NotFound(f"No execution {tool_id!r}.", hint="See `GET /my/tools/history` for yours.")
    return row


MayCancel = Annotated[Principal, Depends(Allow(Scope.CHAT, Scope.APPROVE, Scope.AGENT))]


@router.post("/my/tools/{tool_id}/cancel", summary="Call an execution off", responses=problems(404, 409, 503))
async def cancel_tool(parts: Parts, principal: MayCancel, tool_id: str) -> Cancelled:
    """Cancels a call at once if it has not started. If it runs, its client is told to stop it and reports what
    happened. An agent's token cancels its own calls only."""
    return await _cancel(parts, principal, await parts.store.executions.get(tool_id, user_id=principal.user_id))


@router.post(
    "/my/projects/{project_id}/tools/{tool_id}/cancel",
    summary="Call an execution of a project off",
    responses=problems(409, 503),
)
async def cancel_tool_of_project(parts: Parts, principal: MayCancel, project: Project, tool_id: str) -> Cancelled:
    """The same as `POST /my/tools/{tool_id}/cancel`, for an execution of this project."""
    row = await parts.store.executions.get(tool_id, user_id=principal.user_id)
    if row.project_id != project:
        raise NotFound(f"No execution {tool_id!r}.", hint="See `GET /my/tools/history` for yours.")
    return await _cancel(parts, principal, row)


async def _cancel(parts: Services, principal: Principal, row: ExecutionRow) -> Cancelled:
    if Scope.AGENT in principal.scopes and (row.run_id is not None or row.agent_id != principal.agent_id):
        raise RefusedError("An agent calls off its own calls only.", hint="The person, or who made the call, can.")
    row = await parts.store.executions.cancel(
        row.id, user_id=principal.user_id, actor=principal.actor, connected=parts.presence.connected()
    )
    return Cancelled(success=True, message="Stopped." if row.status.ended else "The client was told to stop it.")


def shortened(rows: Sequence[ExecutionRow], ended: Mapping[str, Decision]) -> list[Execution]:
    """Shorten rows for a list: a page of whole results could be gigabytes."""
    return [_short(row, ended.get(row.approval_id or "")) for row in rows]


def _short(row: ExecutionRow, decision: Decision | None) -> Execution:
    if row.result is None or len(row.result) <= PREVIEW_CHARACTERS:
        return row.to_wire(decision)
    return row._replace(result=None).to_wire(decision).model_copy(update={"result": preview(row.result)[0]})


async def _wait(parts: Services, row: ExecutionRow, seconds: float) -> ExecutionRow:
    """Wait for the end of a call, but not past the server's shutdown."""
    waiting = asyncio.ensure_future(parts.executor.wait(row, seconds))
    closing = asyncio.ensure_future(parts.closing.wait())
    try:
        await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else row
    finally:
        waiting.cancel()
        closing.cancel()


def _caller_of(request: Request) -> telemetry.SpanId | None:
    """The span that an external agent says it calls from."""
    given = request.headers.getlist("traceparent") if telemetry.on() else []
    return telemetry.calling(given[0]) if len(given) == 1 else None


async def reporter(
    parts: Services, principal: Principal, project_id: str, client_id: str | None, tool_id: str | None = None
) -> str:
    """Id of the reporting client; without the header, of the one the call was given to, if key or token match."""
    known, token, key = parts.store.machines, principal.token, principal.client_key
    if client_id is not None:
        if not IDENTIFIER.fullmatch(client_id):
            hint = "Send the id of the stream's `client`."
            raise WrongForm("The header Byleave-Client is not a client's id.", hint=hint)
        if await known.speaks_for(project_id, client_id, token=token, key=key):
            return client_id
    if tool_id is None:
        raise RefusedError("Only the client itself says what waits in its queue.", hint=REPORTS_WITH)
    row = await parts.store.executions.get(tool_id, user_id=principal.user_id)
    if client_id is not None and client_id != row.client_id:
        raise given_to_another(row)
    if row.client_id is None:  # nobody was told anything, so there is nothing to report
        return ""
    speaks = client_id is None and await known.speaks_for(project_id, row.client_id, token=token, key=key)
    if not speaks:
        raise RefusedError("Only the client that was told to execute a call may report on it.", hint=REPORTS_WITH)
    return row.client_id
