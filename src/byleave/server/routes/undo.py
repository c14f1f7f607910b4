"""Undo from the page: the machine that ran a call plans its undo, and carries it out when a person confirms.

The server knows no file. It asks the client that executed the call, over the feed, and waits a bounded time for its
report, which may come to another server; only that client may report. A plan is carried out by its digest, so that what
happens is what was shown. A completed undo is recorded when it is reported, even if nobody waits for it any more. An
agent's token is refused.
"""

import asyncio
from contextlib import suppress
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Header
from starlette.requests import Request
from starlette.responses import Response

from byleave.calls.machines import Machine
from byleave.protocol.changes import ShownChange, UndoAnswer, UndoBody, UndoPlan, UndoReport
from byleave.protocol.errors import ConflictError, NotFound, RefusedError
from byleave.protocol.states import Scope
from byleave.protocol.wire import new_id
from byleave.server.auth.tokens import Principal
from byleave.server.dependencies import (
    IDENTIFIER_SCHEMA,
    Allow,
    ChatOrApprove,
    Executor,
    Parts,
    Project,
    StrictRoute,
    takes,
)
from byleave.server.errors import TooLarge, TooMany, Unavailable, WrongForm
from byleave.server.problems import problems
from byleave.server.services import Services
from byleave.store import ExecutionRow, Store
from byleave.store.executions import given_to_another
from byleave.store.undos import Pending, report_topic

from .tools import reporter

router = APIRouter(route_class=StrictRoute, tags=["tools"])

START_SECONDS = 10.0
"""The client begins no later than this: nobody would wait for the end."""
WAIT_SECONDS = 15.0
UNDER_WAY_SECONDS = 600.0
"""An undo that was begun and not reported within this time counts as lost."""
LOOK_AGAIN_SECONDS = 1.0
"""Interval at which a request's row is read, in case a hint got lost."""
WAITING_PER_USER = 8
MAX_REPORT_BYTES = 16 * 1024 * 1024
CHANGES_FILES = frozenset({"write_file", "execute_command"})
NOT_READ = "not shown: the rules deny reading it"
Shown = TypeVar("Shown", bound=UndoPlan)
ASKS = "The machine that ran the call is asked; it must be connected, or the answer is a 409 that says so."


@router.get(
    "/my/tools/{tool_id}/undo",
    summary="What undoing a call would do",
    description=f"{ASKS} Nothing is changed. `plan` is the digest of what was shown.",
    responses=problems(404, 409, 429, 503),
)
async def undo_plan(parts: Parts, principal: ChatOrApprove, tool_id: str) -> UndoPlan:
    if Scope.AGENT in principal.scopes:
        raise RefusedError(
            "An agent's token can never ask a machine to undo.",
            hint="A person does, with a token that has the scope `chat` or `approve` and not `agent`.",
        )
    row, report = await _ask_about(parts, principal.user_id, tool_id, None)
    machine = await parts.machines.of(row.project_id)
    return as_may_be_read(machine, _plan_of(row, report))


@router.post(
    "/my/tools/{tool_id}/undo",
    summary="Undo what a call changed",
    description=f"{ASKS} It looks again, and acts only when its plan still has this digest and nothing changed since "
    "the call; else 409, and nothing was changed. Safe to repeat: what is undone is not undone twice. Where it takes "
    "long, `state` is `undoing`; asking again meanwhile is a 409 with that state.",
    responses=problems(404, 409, 429, 503),
)
async def undo(
    parts: Parts,
    principal: Annotated[Principal, Depends(Allow(Scope.APPROVE, people_only=True))],
    tool_id: str,
    body: UndoBody,
) -> UndoAnswer:
    row, report = await _ask_about(parts, principal.user_id, tool_id, body)
    if report.begun:
        message = "The machine is undoing it; that takes a while. The feed says when it is done."
        return UndoAnswer(tool_id=row.id, state="undoing", undo_id=None, files=0, message=message)
    if not report.done:
        _plan_of(row, report)
        raise _refused(row, "The machine did not undo it.")
    files = _files_of(report)
    if report.undo_id is None:
        message = "Nothing to do: everything is already as it was before this call."
    else:
        message = f"Undone: {files} {'path is' if files == 1 else 'paths are'} as before the call."
    return UndoAnswer(tool_id=row.id, undo_id=report.undo_id, files=files, message=message)


@router.post(
    "/my/projects/{project_id}/tools/{tool_id}/undo-report",
    summary="Say what an undo would do, or did",
    status_code=204,
    responses=problems(409, 503),
)
@takes(file=True)
async def post_undo_report(
    parts: Parts,
    principal: Executor,
    project: Project,
    tool_id: str,
    report: UndoReport,
    request: Request,
    client: Annotated[
        str,
        Header(
            alias="Byleave-Client",
            description="Which client reports; only the one that executed the call may.",
            json_schema_extra=IDENTIFIER_SCHEMA,
        ),
    ],
) -> Response:
    """The answer of the client that was asked (`tool.undo_request`). An undo that was carried out is recorded once,
    even if nobody waits any more; repeats and late reports are dropped silently."""
    if len(await request.body()) > MAX_REPORT_BYTES:
        raise TooLarge("The report is too large.", hint="Leave texts out; say so in each `note`.")
    row = await parts.store.executions.get(tool_id, user_id=principal.user_id)
    if row.project_id != project:
        raise NotFound(f"No execution {tool_id!r}.", hint="See `GET /my/tools/history` for yours.")
    # Unlike for results, the header is required.
    if await reporter(parts, principal, project, client, tool_id) != row.client_id:
        raise given_to_another(row)
    if report.plan is not None and report.plan.tool_id != tool_id:
        raise WrongForm("The plan is about another call.", hint="Report on the call that was asked about.")
    if report.done:
        # Recorded before anyone is told that it was done.
        await parts.store.undos.record(
            row,
            report.request_id,
            actor=f"user:{principal.user_id}",
            undo_id=report.undo_id,
            files=_files_of(report),
        )
    elif report.problem is not None:
        actor = f"user:{principal.user_id}"
        await parts.store.undos.record_failure(row, report.request_id, actor=actor, problem=report.problem)
    if report.begun:
        await parts.store.undos.has_begun(row, report.request_id, seconds=UNDER_WAY_SECONDS)
    else:
        await parts.store.undos.tell(row, report.request_id, report.model_dump_json())
    return Response(status_code=204)


async def _ask_about(
    parts: Services, user_id: str, tool_id: str, body: UndoBody | None
) -> tuple[ExecutionRow, UndoReport]:
    """Ask the machine about one call, and wait for its report."""
    row = await parts.store.executions.get(tool_id, user_id=user_id)
    await parts.presence.until_returned(row.project_id)
    _check_can_be_asked(parts, row)
    report = await ask(parts, row, body)
    if report is None:
        return row, UndoReport(request_id=row.id, begun=True)
    return row, UndoReport.model_validate_json(report)


async def ask(
    parts: Services, row: ExecutionRow, body: UndoBody | None, together: list[str] | None = None
) -> str | None:
    """Ask the machine and wait for its report; None if it has begun and takes long. `together`: all calls of the
    conversation, newest first, of which `row` is the oldest."""
    request_id, news = new_id("undoreq"), asyncio.Event()
    stop = parts.bus.listen(report_topic(request_id), lambda fact: news.set())
    try:
        async with parts.until_closing("Look at the record before you try again."):
            await parts.store.undos.ask(
                row,
                request_id,
                actor=f"user:{row.user_id}",
                plan=None if body is None else body.plan,
                partial=body is not None and body.partial,
                seconds=START_SECONDS,
                awaited_seconds=WAIT_SECONDS,
                # The machine knows its owner's rules, not those of the server.
                keep_off=parts.machines.keep_off("read_file", *CHANGES_FILES),
                admit=_admit,
                together=together,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await _until_reported(parts.store, request_id, news)
            left = await parts.store.undos.leave(request_id)
    finally:
        stop()
    if left.report is None and not left.has_begun:
        raise _no_answer(acts=body is not None)
    return left.report


def _admit(pending: Pending) -> None:
    if pending.is_under_way:
        raise ConflictError(
            "The machine is undoing this call right now.",
            state="undoing",
            hint="The feed says when it is done; or look again in a moment.",
        )
    if pending.awaited >= WAITING_PER_USER:
        raise TooMany("You wait for too many machines at once.", hint="Try again when those have answered.")


async def _until_reported(store: Store, request_id: str, news: asyncio.Event) -> None:
    """Wait for the report, which may come to any server."""
    while not await store.undos.is_reported(request_id):
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                await news.wait()
        news.clear()


def _check_can_be_asked(parts: Services, row: ExecutionRow) -> None:
    if row.tool_name not in CHANGES_FILES:
        raise _refused(row, f"A call of {row.tool_name} changes no files, so there is nothing to undo.")
    if not row.status.ended:
        raise _refused(row, "This call has not ended; what it changes is not known yet.", "Wait for it, or stop it.")
    if row.client_id is None or row.started_at is None:
        raise _refused(row, "This call never ran, so there is nothing to undo.")
    here = parts.presence.declared(row.project_id)
    if row.client_id in here:
        return
    raise disconnected("This call", another=bool(here))


def disconnected(what: str, *, another: bool) -> ConflictError:
    """The answer where the machine cannot be asked. `another`: one that did not run it is connected."""
    known = "Only that machine knows what was there before."
    if another:
        message = f"{what} ran on another machine than the one that is connected now. {known}"
    else:
        message = f"{what} ran on a machine that is not connected now. {known}"
    # It may have been an editor, whose changes `byleave undo` does not know.
    hint = (
        "Connect it again: `byleave connect` in its directory, or its folder opened in VS Code. Or undo it there: with "
        "`byleave undo`; in VS Code, with Undo This Change in the list Changed by Agents."
    )
    return ConflictError(message, state="disconnected", hint=hint)


def _plan_of(row: ExecutionRow, report: UndoReport) -> UndoPlan:
    """Return the machine's plan; raise ConflictError if it gave a problem instead."""
    if report.problem is not None or report.plan is None:
        raise _refused(row, report.problem or "The machine gave no plan.")
    return report.plan


def as_may_be_read(machine: Machine, plan: Shown) -> Shown:
    """Remove the texts of files that the rules deny reading: the client may not know these rules."""
    files = [
        change
        if (change.before is None and change.after is None) or not _denied(machine, change)
        else change.model_copy(update={"before": None, "after": None, "note": NOT_READ})
        for change in plan.files
    ]
    return plan.model_copy(update={"files": files})


def _denied(machine: Machine, change: ShownChange) -> bool:
    return machine.judge("read_file", {"path": change.path}).verdict.refused


def _refused(row: ExecutionRow, message: str, hint: str | None = None) -> ConflictError:
    return ConflictError(message, state=row.status.value, hint=hint)


def _no_answer(*, acts: bool) -> Unavailable:
    message = f"The machine did not answer within {WAIT_SECONDS:g} seconds."
    if acts:
        hint = "It may have undone it all the same, and is recorded when it says so; look again before you repeat it."
    else:
        hint = "Nothing was changed. Try again."
    return Unavailable(message, hint=hint)


def _files_of(report: UndoReport) -> int:
    return report.plan.total_files if report.plan is not None and report.undo_id is not None else 0
