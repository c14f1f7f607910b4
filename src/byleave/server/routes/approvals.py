"""Approvals that wait for a decision, and the decision (R4, R5, R8, R9).

The first decision counts; a later one gets a 409 with the decision that holds and who made it. Only a person decides:
an agent's token is refused.
"""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from byleave.calls.edits import for_agent
from byleave.protocol.approvals import (
    ApprovalList,
    ApprovalRequest,
    ApproveBody,
    ConfirmBody,
    DecisionAnswer,
    EditableCall,
    EditAnswer,
    EditBody,
    RejectBody,
    WholeCall,
)
from byleave.protocol.changes import WriteChange
from byleave.protocol.grants import GrantTerms
from byleave.protocol.states import AnsweredFrom, ApprovalScope, Scope
from byleave.protocol.wire import Identifier, WireModel
from byleave.server.auth.tokens import Principal
from byleave.server.dependencies import (
    Anyone,
    Approver,
    Flag,
    Parts,
    Person,
    Project,
    StrictRoute,
    check_project,
    takes,
)
from byleave.server.errors import WrongForm
from byleave.server.problems import problems
from byleave.server.services import Services

router = APIRouter(route_class=StrictRoute, tags=["approvals"])


class ApprovalsQuery(WireModel):
    project_id: Identifier | None = Field(default=None, description="Only those of this project.")


class WholeQuery(WireModel):
    reveal: Flag = Field(default=False, description="Also what is masked in the question.")


@router.post(
    "/my/projects/{project_id}/approvals/{approval_id}/approve", summary="Approve", responses=problems(409, 503)
)
async def approve(
    parts: Parts, principal: Approver, project: Project, approval_id: str, body: ApproveBody
) -> DecisionAnswer:
    """Lets exactly what was shown run. With `digest`, only if that is what waits. If more identical calls wait than
    `calls` says were shown, nothing runs, and the 409 has the state `pending`. With the scope `class`, `session` or
    `project`, further calls too, as `terms` say, including those that already wait. A late or second decision is a 409
    whose `state` says what holds."""
    return await _decide(
        parts,
        principal,
        approval_id,
        project_id=project,
        approve=True,
        digest=body.digest,
        calls=body.calls,
        scope=body.scope,
        terms=body.terms,
    )


@router.post("/my/projects/{project_id}/approvals/{approval_id}/reject", summary="Reject", responses=problems(409, 503))
@takes(printable=True)
async def reject(
    parts: Parts, principal: Approver, project: Project, approval_id: str, body: RejectBody
) -> DecisionAnswer:
    """Nothing runs; the agent is told, with the reason."""
    return await _decide(parts, principal, approval_id, project_id=project, approve=False, reason=body.reason)


@router.post("/my/approvals/{approval_id}/confirm", summary="Decide", responses=problems(404, 409, 503))
@takes(printable=True)
async def confirm(parts: Parts, principal: Approver, approval_id: str, body: ConfirmBody) -> DecisionAnswer:
    """Approve or reject without naming the project."""
    approve = body.decision == "approved"
    if not approve and body.scope is not ApprovalScope.ONCE:
        raise WrongForm("A no covers one call.", hint="Leave `scope` out.")
    return await _decide(
        parts,
        principal,
        approval_id,
        approve=approve,
        reason=body.reason,
        digest=body.digest,
        calls=body.calls,
        scope=body.scope,
        terms=body.terms,
    )


@router.get("/my/approvals/{approval_id}/editable", summary="What may be changed", responses=problems(404, 409))
async def editable(
    parts: Parts, principal: Person, approval_id: str, query: Annotated[WholeQuery, Query()]
) -> EditableCall:
    """The content, command line, time limit or query of a call that waits, as they are. If people see a part of it
    masked, its texts come only with `reveal`. Refused to an agent's token."""
    return await parts.edits.editable(approval_id, principal.user_id, reveal=query.reveal)


@router.post(
    "/my/projects/{project_id}/approvals/{approval_id}/edit",
    summary="Change before allowing",
    responses=problems(409, 503),
)
async def edit(parts: Parts, principal: Approver, project: Project, approval_id: str, body: EditBody) -> EditAnswer:
    """Changes a call that waits; nothing runs yet. The changed call is judged anew: a refusal is a 400 with the reason,
    and the question stays as it was. Else this question is withdrawn, the machine looks again, and `approval_id` is the
    new question. The agent is told what was changed."""
    where = AnsweredFrom.PAGE if principal.sign_ins else AnsweredFrom.PROGRAM
    return await parts.edits.edit(approval_id, principal.user_id, body, project_id=project, decided_from=where)


@router.get("/my/approvals", summary="What waits for a decision", responses=problems(404))
async def list_approvals(parts: Parts, principal: Anyone, query: Annotated[ApprovalsQuery, Query()]) -> ApprovalList:
    """Oldest first. An agent's token sees the questions about its own calls."""
    await check_project(parts, principal, query.project_id)
    waiting = await parts.approvals.get_pending_approvals(principal.user_id, query.project_id)
    if Scope.AGENT in principal.scopes:
        waiting = [
            ApprovalRequest.model_validate(for_agent(one.model_dump(mode="json")))
            for one in waiting
            if principal.may_see(None, one.agent_id)
        ]
    return ApprovalList(approvals=waiting, total_count=len(waiting))


@router.get("/my/approvals/{approval_id}/whole", summary="All of what waits", responses=problems(404))
async def whole_call(
    parts: Parts, principal: Person, approval_id: str, query: Annotated[WholeQuery, Query()]
) -> WholeCall:
    """The whole call and the files it would run, also if the question shows only a part. Text that looks like a secret
    and could not act is masked, with its length; `reveal` shows it too. Refused to an agent's token."""
    return await parts.approvals.whole_call(approval_id, principal.user_id, reveal=query.reveal)


@router.get("/my/approvals/{approval_id}/change", summary="What a write would change", responses=problems(404))
async def change(parts: Parts, principal: Person, approval_id: str) -> WriteChange:
    """The file as it is on the machine and as it would be, secrets masked in both. The approval is bound to the content
    the machine read: if that has changed by the time of the write, the write is refused. 404 if it is no write."""
    return await parts.approvals.change(approval_id, principal.user_id)


async def _decide(
    parts: Services,
    principal: Principal,
    approval_id: str,
    *,
    approve: bool,
    project_id: str | None = None,
    reason: str | None = None,
    digest: str | None = None,
    calls: int = 1,
    scope: ApprovalScope = ApprovalScope.ONCE,
    terms: GrantTerms | None = None,
) -> DecisionAnswer:
    row, grant, released = await parts.approvals.decide(
        approval_id,
        principal.user_id,
        approve=approve,
        reason=reason,
        digest=digest,
        calls=calls,
        project_id=project_id,
        scope=scope,
        terms=terms,
        decided_from=AnsweredFrom.PAGE if principal.sign_ins else AnsweredFrom.PROGRAM,
    )
    return DecisionAnswer(
        success=True,
        approval_id=row.id,
        status=row.status,
        message=_told(len(row.tool_ids) + len(released), approve=approve),
        grant_id=grant.id if grant else None,
        released=list(released),
    )


def _told(calls: int, *, approve: bool) -> str:
    number = "1 call" if calls == 1 else f"{calls} calls"
    if approve:
        return f"{number} {'goes' if calls == 1 else 'go'} on."
    return f"{number} {'was' if calls == 1 else 'were'} ended."
