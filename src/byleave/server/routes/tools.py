"""Tool calls from elsewhere, clients' results, and looking back (R3, R6, R7, R8).

`execute` and `result` are the hot path: bytes in, one call, bytes out. A call the gate refuses is an answer with the
status `failed`, not an HTTP error; an HTTP error means the request itself was wrong.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from byleave import telemetry
from byleave.calls.executor import Caller
from byleave.gate import mask_text
from byleave.protocol.approvals import Decision
from byleave.protocol.chat import Cancelled
from byleave.protocol.errors import NotFound, RefusedError
from byleave.protocol.events import PREVIEW_CHARACTERS, preview
from byleave.protocol.executions import (
    Begun,
    CompletedReport,
    ExecuteRequest,
    Execution,
    ExecutionPage,
    FailedReport,
    OutputChunk,
    QueueReport,
    ResultAck,
    ResultReport,
)
from byleave.protocol.inspections import Inspection
from byleave.protocol.states import ExecutionStatus, RiskLevel, Scope
from byleave.protocol.tools import tool_catalogue
from byleave.protocol.wire import Identifier, WireModel
from byleave.server.auth.isolation import IDENTIFIER, no_project
from byleave.server.auth.tokens import Principal
from byleave.server.bodies import read_body, read_query, read_union
from byleave.server.problems import WrongForm
from byleave.server.routing import ANY_SCOPE, EXECUTE, JsonAnswer, Route, parts_of, principal_of
from byleave.store import ExecutionRow
from byleave.store.executions import given_to_another
from byleave.store.history import HistoryFilter

REPORT: "TypeAdapter[CompletedReport | FailedReport]" = TypeAdapter(ResultReport)
CURSOR = re.compile(r"[0-9TZ:.-]{24}~[A-Za-z0-9_.-]{1,64}")
CATALOGUE = tool_catalogue().model_dump_json().encode()
AGENT_OR_CHAT = frozenset({Scope.AGENT, Scope.CHAT})
MUCH_TO_SHORTEN = 1024 * 1024
GOES_ON = (
    "What was recorded goes on without you. Ask again with the same idempotency_key, or without one look at "
    "`GET /my/tools/history` before you ask again."
)


class StatusQuery(WireModel):
    wait: float = Field(default=0, ge=0, description="Seconds to wait for its end.")


class HistoryQuery(WireModel):
    project_id: Identifier | None = Field(default=None, description="Only of this project.")
    session_id: Identifier | None = Field(default=None, description="Only of this session.")
    tool_name: str | None = Field(default=None, max_length=100, description="Only of this tool.")
    status: ExecutionStatus | None = Field(default=None, description="Only in this state.")
    risk_level: RiskLevel | None = Field(default=None, description="Only of this level.")
    cursor: str | None = Field(default=None, max_length=100, description="`next_cursor` of the page before.")
    limit: int = Field(default=50, ge=1, le=200, description="How many on a page.")


async def execute(request: Request) -> Response:
    parts, principal = parts_of(request), principal_of(request)
    body = await read_body(request, ExecuteRequest)
    if body.project_id is not None and not await parts.store.chat.owns(principal.user_id, body.project_id):
        raise no_project(body.project_id)
    session = await parts.executor.agent_session(
        principal.user_id, body.project_id, body.session_id, principal.agent_id
    )
    async with parts.until_closing(GOES_ON):
        with telemetry.called_from(_caller_of(request)):
            row = await parts.executor.call(
                body.tool_name,
                body.tool_params,
                session,
                caller=Caller(agent_id=principal.agent_id, mode=principal.bounded(body.mode), key=body.idempotency_key),
                until_asked=True,
                seconds=parts.settings.max_wait_seconds,
            )
    return Response(row.response_json(), media_type="application/json")


async def post_result(request: Request) -> Response:
    report = cast(CompletedReport | FailedReport, await read_union(request, REPORT))
    tool_id: str = request.path_params["tool_id"]
    began = telemetry.clock()
    row = await parts_of(request).executor.settle(
        tool_id,
        report,
        user_id=principal_of(request).user_id,
        project_id=request.path_params["project_id"],
        client_id=await client_of(request),
    )
    if began:
        place = telemetry.place_of_client(row.id, row.run_id)
        telemetry.record("byleave.result", began, telemetry.clock(), parent=place, tool_id=row.id)
    ack = ResultAck(success=True, tool_id=tool_id, status=row.status, message="Result stored.")
    return JsonAnswer(ack)


async def post_output(request: Request) -> Response:
    chunk = await read_body(request, OutputChunk)
    await parts_of(request).store.executions.append_output(
        request.path_params["tool_id"],
        user_id=principal_of(request).user_id,
        project_id=request.path_params["project_id"],
        client_id=await client_of(request),
        stream=chunk.stream,
        text=mask_text(chunk.text),
        sequence=chunk.sequence,
    )
    return Response(status_code=204)


async def post_queued(request: Request) -> Response:
    report = await read_body(request, QueueReport)
    await parts_of(request).store.executions.queued(
        report.tool_ids,
        user_id=principal_of(request).user_id,
        project_id=request.path_params["project_id"],
        client_id=await client_of(request),
    )
    return Response(status_code=204)


async def post_begin(request: Request) -> Response:
    row = await parts_of(request).store.executions.start(
        request.path_params["tool_id"],
        user_id=principal_of(request).user_id,
        project_id=request.path_params["project_id"],
        client_id=await client_of(request),
    )
    return JsonAnswer(Begun(started_at=row.started_at or row.created_at, deadline=row.deadline or row.created_at))


async def post_inspection(request: Request) -> Response:
    inspection = await read_body(request, Inspection)
    await parts_of(request).executor.inspected(
        request.path_params["tool_id"],
        inspection,
        user_id=principal_of(request).user_id,
        project_id=request.path_params["project_id"],
        client_id=await client_of(request),
    )
    return Response(status_code=204)


async def available(request: Request) -> Response:
    return Response(CATALOGUE, media_type="application/json")


async def get_tool(request: Request) -> Response:
    parts = parts_of(request)
    query = read_query(request, StatusQuery)
    longest = parts.settings.max_wait_seconds
    if not query.wait <= longest:
        raise WrongForm(f"`wait` is at most {longest} seconds.", hint="Ask again when it is over.")
    row = await seen_call(request)
    if query.wait and not row.status.ended:
        row = await _wait(request, row, query.wait)
    ended = await parts.store.approvals.decisions([row.approval_id])
    return JsonAnswer(row.to_wire(ended.get(row.approval_id or "")))


async def seen_call(request: Request) -> ExecutionRow:
    """The call of the path. What a person let one agent read, another reads as little here as elsewhere."""
    principal, tool_id = principal_of(request), str(request.path_params["tool_id"])
    row = await parts_of(request).store.executions.get(tool_id, user_id=principal.user_id)
    if not principal.may_see(row.run_id, row.agent_id):
        raise NotFound(f"No execution {tool_id!r}.", hint="See `GET /my/tools/history` for yours.")
    return row


async def history(request: Request) -> Response:
    parts, user_id = parts_of(request), principal_of(request).user_id
    query = read_query(request, HistoryQuery)
    if query.project_id is not None and not await parts.store.chat.owns(user_id, query.project_id):
        raise no_project(query.project_id)
    if query.cursor is not None and not CURSOR.fullmatch(query.cursor):
        raise WrongForm("`cursor` is not one we gave.", hint="Pass `next_cursor` of the page before, unchanged.")
    rows, total, cursor = await parts.store.executions.page(
        HistoryFilter(user_id=user_id, agent_id=_only_of(principal_of(request)), **query.model_dump())
    )
    much = sum(len(row.result or "") for row in rows) > MUCH_TO_SHORTEN
    ended = await parts.store.approvals.decisions([row.approval_id for row in rows])
    executions = await asyncio.to_thread(_shortened, rows, ended) if much else _shortened(rows, ended)
    return JsonAnswer(ExecutionPage(executions=executions, total_count=total, next_cursor=cursor))


def _only_of(principal: Principal) -> str | None:
    return principal.agent_id if Scope.AGENT in principal.scopes else None


async def cancel_tool(request: Request) -> Response:
    parts, principal = parts_of(request), principal_of(request)
    store = parts.store
    tool_id: str = request.path_params["tool_id"]
    project_id = request.path_params.get("project_id")
    row = await store.executions.get(tool_id, user_id=principal.user_id)
    if project_id not in (None, row.project_id):
        raise NotFound(f"No execution {tool_id!r}.", hint="See `GET /my/tools/history` for yours.")
    if Scope.AGENT in principal.scopes and (row.run_id is not None or row.agent_id != principal.agent_id):
        raise RefusedError("An agent calls off its own calls only.", hint="The person, or who made the call, can.")
    row = await store.executions.cancel(
        tool_id, user_id=principal.user_id, actor=principal.actor, connected=parts.presence.connected()
    )
    message = "Called off." if row.status.ended else "The client was told to stop it."
    return JsonAnswer(Cancelled(success=True, message=message))


def _shortened(rows: Sequence[ExecutionRow], ended: Mapping[str, Decision]) -> list[Execution]:
    """Rows for a list: a page of whole results could be gigabytes."""
    return [_short(row, ended.get(row.approval_id or "")) for row in rows]


def _short(row: ExecutionRow, decision: Decision | None) -> Execution:
    if row.result is None or len(row.result) <= PREVIEW_CHARACTERS:
        return row.to_wire(decision)
    return row._replace(result=None).to_wire(decision).model_copy(update={"result": preview(row.result)[0]})


async def _wait(request: Request, row: ExecutionRow, seconds: float) -> ExecutionRow:
    """Wait for the end, but not beyond the server's own."""
    parts = parts_of(request)
    waiting = asyncio.ensure_future(parts.executor.wait(row, seconds))
    closing = asyncio.ensure_future(parts.closing.wait())
    try:
        await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else row
    finally:
        waiting.cancel()
        closing.cancel()


def _caller_of(request: Request) -> telemetry.SpanId | None:
    """The span that an agent elsewhere says it calls from."""
    given = request.headers.getlist("traceparent") if telemetry.on() else []
    return telemetry.arriving(given[0]) if len(given) == 1 else None


REPORTS_WITH = "Report with the token the client's stream was opened with; with a new token open the stream first."


async def client_of(request: Request) -> str:
    """The client that reports; without the header the one the call was given to, if the token is that client's."""
    parts, principal = parts_of(request), principal_of(request)
    client_id = request.headers.get("byleave-client")
    if client_id is not None:
        if not IDENTIFIER.fullmatch(client_id):
            hint = "Send the id of the stream's `client`."
            raise WrongForm("The header Byleave-Client is not a client's id.", hint=hint)
        if await _speaks_for(request, client_id):
            return client_id
    tool_id = request.path_params.get("tool_id")
    if tool_id is None:
        raise RefusedError("Only the client itself says what waits in its queue.", hint=REPORTS_WITH)
    row = await parts.store.executions.get(tool_id, user_id=principal.user_id)
    if client_id is not None and client_id != row.client_id:
        raise given_to_another(row)
    if row.client_id is None:  # nobody was told anything, so there is nothing to report
        return ""
    if client_id is not None or not await _speaks_for(request, row.client_id):
        raise RefusedError(
            "Only the client that was told to execute a call may report on it.",
            hint=REPORTS_WITH,
        )
    return row.client_id


async def _speaks_for(request: Request, client_id: str) -> bool:
    token, project_id = principal_of(request).token, request.path_params["project_id"]
    return await parts_of(request).store.machines.speaks_for(project_id, client_id, token)


CLIENT_HEADER = (
    (
        "Byleave-Client",
        "Which client reports: only the one that got the signal may, with a token it has opened its stream with. "
        "Needed where several clients share a token.",
    ),
)
_CANCEL = (
    "At once when it has not started; when it runs, its client is told to stop it and reports what happened. An "
    "agent's token calls off its own calls only."
)

ROUTES = (
    Route(
        "POST",
        "/my/tools/execute",
        execute,
        "Call a tool",
        "The way in for an agent that runs elsewhere. LOW answers with the result; MEDIUM and HIGH answer "
        "`awaiting_approval` at once, or `pending` while the machine looks at what would run: follow it with "
        "`GET /my/tools/{tool_id}?wait=`. A refused call is an answer with the status `failed`. The same "
        "`idempotency_key` in the same session never runs twice.",
        "tools",
        AGENT_OR_CHAT,
        body="ExecuteRequest",
        carries_file=True,
        headers=(("traceparent", "The span you call from; the call is linked with it where telemetry is on."),),
        answer="ToolResponse",
        errors=(400, 404, 413, 415, 503),
        quiet=True,
    ),
    Route(
        "POST",
        "/my/projects/{project_id}/tools/{tool_id}/result",
        post_result,
        "Report a result",
        "What the client that executed it sends. The same result again is accepted again; another one is a 409.",
        "tools",
        EXECUTE,
        body="ResultReport",
        carries_file=True,
        headers=CLIENT_HEADER,
        answer="ResultAck",
        errors=(400, 404, 409, 413, 415, 503),
        quiet=True,
    ),
    Route(
        "POST",
        "/my/projects/{project_id}/tools/{tool_id}/output",
        post_output,
        "Report output as it comes",
        "A piece of a running command's output, for the feed. Repeats and latecomers are dropped silently.",
        "tools",
        EXECUTE,
        body="OutputChunk",
        headers=CLIENT_HEADER,
        status=204,
        errors=(400, 404, 409, 413, 415, 503),
        quiet=True,
    ),
    Route(
        "POST",
        "/my/projects/{project_id}/tools/queued",
        post_queued,
        "Say which calls wait on the machine",
        "Calls that this client was signalled and has not begun, because others come first. Their time does not run "
        "until it begins with them, for as long as it is connected and up to a bound. Ended ones are passed over.",
        "tools",
        EXECUTE,
        body="QueueReport",
        headers=CLIENT_HEADER,
        status=204,
        errors=(400, 404, 413, 415, 503),
        quiet=True,
    ),
    Route(
        "POST",
        "/my/projects/{project_id}/tools/{tool_id}/begin",
        post_begin,
        "Begin with a call that waited",
        "Its time begins now. A 409 says that it is not wanted any more: it must not run. The same again is the same.",
        "tools",
        EXECUTE,
        headers=CLIENT_HEADER,
        answer="Begun",
        errors=(404, 409, 503),
        quiet=True,
    ),
    Route(
        "POST",
        "/my/projects/{project_id}/tools/{tool_id}/inspection",
        post_inspection,
        "Say what a call would run",
        "What the client that was asked (`tool.inspection_request`) sees of the files the call would run. A person is "
        "asked then, and shown it. Repeats and latecomers are dropped silently.",
        "tools",
        EXECUTE,
        body="Inspection",
        headers=CLIENT_HEADER,
        status=204,
        errors=(400, 404, 409, 413, 415, 503),
        quiet=True,
    ),
    Route(
        "GET",
        "/my/projects/{project_id}/tools/available",
        available,
        "The tools there are",
        "The catalogue, with JSON Schema of each tool's parameters.",
        "tools",
        ANY_SCOPE,
        answer="ToolCatalogue",
        errors=(404,),
    ),
    Route(
        "GET",
        "/my/tools/history",
        history,
        "Executions, newest first",
        "Filtered and paged; also refused ones are there. A long result is shortened and says so; the whole "
        "is at `GET /my/tools/{tool_id}`. An agent's token sees its own calls.",
        "tools",
        ANY_SCOPE,
        query=HistoryQuery,
        answer="ExecutionPage",
        errors=(400, 404),
    ),
    Route(
        "GET",
        "/my/tools/{tool_id}",
        get_tool,
        "One execution",
        "With `wait`, answers when it has ended or the time is over, whichever comes first.",
        "tools",
        ANY_SCOPE,
        query=StatusQuery,
        answer="Execution",
        errors=(400, 404),
    ),
    *(
        Route(
            "POST",
            path,
            cancel_tool,
            "Call an execution off",
            _CANCEL,
            "tools",
            frozenset({Scope.CHAT, Scope.APPROVE, Scope.AGENT}),
            answer="Cancelled",
            errors=(404, 409, 503),
        )
        for path in ("/my/tools/{tool_id}/cancel", "/my/projects/{project_id}/tools/{tool_id}/cancel")
    ),
)
