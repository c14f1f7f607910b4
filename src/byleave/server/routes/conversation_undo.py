"""Undo of a whole conversation: the machine that ran its calls plans it, and carries it out when a person confirms.

As for one call, see `undo`: what is shown has a digest, and only that is carried out. The calls are those of one
machine; it undoes them newest first, and each is recorded as its own undo.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Header
from starlette.requests import Request
from starlette.responses import Response

from byleave.protocol.changes import (
    MAX_UNDO_CALLS,
    SessionUndoAnswer,
    SessionUndoPlan,
    SessionUndoReport,
    UndoBody,
)
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.states import Scope
from byleave.server.auth.tokens import Principal
from byleave.server.dependencies import Allow, Executor, Parts, Person, Project, StrictRoute, takes
from byleave.server.errors import TooLarge, WrongForm
from byleave.server.problems import problems
from byleave.server.services import Services
from byleave.store import ExecutionRow, SessionRow
from byleave.store.conversations import ChangingCall
from byleave.store.executions import given_to_another

from .conversations import own_session
from .tools import reporter
from .undo import ASKS, MAX_REPORT_BYTES, UNDER_WAY_SECONDS, as_may_be_read, ask, disconnected

router = APIRouter(route_class=StrictRoute, tags=["chat"])
Approver = Annotated[Principal, Depends(Allow(Scope.APPROVE, people_only=True))]


@router.get(
    "/my/projects/{project_id}/chat/sessions/{session_id}/undo",
    summary="What undoing a conversation would do",
    description=f"{ASKS} Nothing is changed. Each file is compared with what it was before the first of the calls that "
    "changed it; one that was changed by anybody else since is a conflict.",
    responses=problems(409, 429, 503),
)
async def session_undo_plan(parts: Parts, principal: Person, project: Project, session_id: str) -> SessionUndoPlan:
    session = await own_session(parts, principal, project, session_id)
    lead, calls = await _calls_to_undo(parts, session)
    report = _report(await ask(parts, lead, None, [call.id for call in calls]), lead)
    plan = _plan_of(report)
    machine = await parts.machines.of(session.project_id)
    return as_may_be_read(machine, _with_old_writes(plan, calls))


@router.post(
    "/my/projects/{project_id}/chat/sessions/{session_id}/undo",
    summary="Undo what a conversation changed",
    description=f"{ASKS} It looks again, and acts only when its plan still has this digest and nothing changed since; "
    "else 409. Calls are undone newest first. Safe to repeat: what is undone is not undone twice.",
    responses=problems(409, 429, 503),
)
async def undo_session(
    parts: Parts, principal: Approver, project: Project, session_id: str, body: UndoBody
) -> SessionUndoAnswer:
    session = await own_session(parts, principal, project, session_id)
    lead, calls = await _calls_to_undo(parts, session)
    report = _report(await ask(parts, lead, body, [call.id for call in calls]), lead)
    if report.begun:
        message = "The machine is undoing it; that takes a while. Each call is marked when it is undone."
        return SessionUndoAnswer(session_id=session.id, state="undoing", undone=[], files=0, message=message)
    if not report.done:
        if report.undone:
            count = f"{len(report.undone)} of the calls {'is' if len(report.undone) == 1 else 'are'} undone."
            raise ConflictError(f"{report.problem or 'It stopped.'} {count}", state="stopped")
        _plan_of(report)
        raise ConflictError("The machine did not undo it.", state="refused")
    files = report.plan.total_files if report.plan is not None else 0
    if not report.undone:
        message = "Nothing to do: everything is already as it was before this conversation."
    else:
        message = f"Undone: {files} {'path is' if files == 1 else 'paths are'} as before this conversation."
    return SessionUndoAnswer(session_id=session.id, undone=report.undone, files=files, message=message)


@router.post(
    "/my/projects/{project_id}/chat/sessions/{session_id}/undo-report",
    summary="Say what undoing a conversation would do, or did",
    status_code=204,
    responses=problems(409, 503),
)
@takes(file=True)
async def post_session_undo_report(
    parts: Parts,
    principal: Executor,
    project: Project,
    session_id: str,
    report: SessionUndoReport,
    request: Request,
    client: Annotated[
        str,
        Header(alias="Byleave-Client", description="Which client reports; only the one that executed the calls may."),
    ],
) -> Response:
    """The answer of the client that was asked (`session.undo_request`). Each call it undid is recorded once; repeats
    and late reports are dropped silently."""
    if len(await request.body()) > MAX_REPORT_BYTES:
        raise TooLarge("The report is too large.", hint="Leave texts out; say so in each `note`.")
    store, actor = parts.store, f"user:{principal.user_id}"
    lead = await store.executions.get(report.tool_id, user_id=principal.user_id)
    if (lead.project_id, lead.session_id) != (project, session_id):
        raise NotFound(f"No execution {report.tool_id!r} in this conversation.")
    if await reporter(parts, principal, project, client, lead.id) != lead.client_id:
        raise given_to_another(lead)
    if report.plan is not None and report.plan.tool_id != lead.id:
        raise WrongForm("The plan is about other calls.", hint="Report on those that were asked about.")
    undone: list[tuple[ExecutionRow, str, int]] = []
    for call in report.undone:
        row = await store.executions.get(call.tool_id, user_id=principal.user_id)
        if (row.session_id, row.client_id) != (lead.session_id, lead.client_id):
            raise WrongForm(f"The call {call.tool_id!r} is not one that was asked about.")
        undone.append((row, call.undo_id, call.files))
    if undone or report.done:
        # Recorded before anyone is told that it was done.
        await store.undos.record_together(lead, report.request_id, actor=actor, undone=undone)
    if report.problem is not None:
        await store.undos.record_failure(lead, report.request_id, actor=actor, problem=report.problem)
    if report.begun:
        await store.undos.has_begun(lead, report.request_id, seconds=UNDER_WAY_SECONDS)
    else:
        await store.undos.tell(lead, report.request_id, report.model_dump_json())
    return Response(status_code=204)


async def _calls_to_undo(parts: Services, session: SessionRow) -> tuple[ExecutionRow, list[ChangingCall]]:
    """The calls that one connected machine ran, newest first, and the oldest of them."""
    store = parts.store.conversations
    calls, _ = await store.changing_calls(session.user_id, session.id)
    if not calls:
        raise ConflictError("No call of this conversation changed a file, so there is nothing to undo.", state="empty")
    if await store.is_at_work(session.user_id, session.id):
        raise ConflictError(
            "An agent is at work in this conversation; what it changes is not known yet.",
            state="working",
            hint="Stop the agent or wait until it is done.",
        )
    await parts.presence.until_returned(session.project_id)
    here = parts.presence.declared(session.project_id)
    client = next((call.client_id for call in reversed(calls) if call.client_id in here), None)
    if client is None:
        raise disconnected("These calls", another=bool(here))
    own = [call for call in reversed(calls) if call.client_id == client][:MAX_UNDO_CALLS]
    return await parts.store.executions.get(own[-1].id, user_id=session.user_id), own


def _report(text: str | None, lead: ExecutionRow) -> SessionUndoReport:
    if text is None:
        return SessionUndoReport(request_id=lead.id, tool_id=lead.id, begun=True)
    return SessionUndoReport.model_validate_json(text)


def _plan_of(report: SessionUndoReport) -> SessionUndoPlan:
    """Return the machine's plan; raise ConflictError if it gave a problem instead."""
    if report.problem is not None or report.plan is None:
        raise ConflictError(report.problem or "The machine gave no plan.", state="refused")
    return report.plan


def _with_old_writes(plan: SessionUndoPlan, calls: list[ChangingCall]) -> SessionUndoPlan:
    """Name the writes of which the machine keeps nothing: a command may have changed nothing, a write has not."""
    unknown = set(plan.unknown)
    old = {
        str(call.params.get("path"))
        for call in calls
        if call.tool_name == "write_file" and call.status == "COMPLETED" and call.id in unknown
    }
    if not old:
        return plan
    number = len(old)
    named = ", ".join(sorted(old)[:5]) + (f" and {number - 5} more" if number > 5 else "")
    note = f"Not undone, since nothing of it is kept any more: {'a write' if number == 1 else 'writes'} to {named}."
    return plan.model_copy(update={"notes": [note[:1000], *plan.notes][:50]})
