"""What waits for a decision, and the decision (R4, R5, R8, R9).

The first decision counts; a later one is told what holds and who decided (409). A decision is only ever a person's:
an agent's token does not get this far.
"""

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from byleave.protocol.approvals import ApprovalList, ApproveBody, ConfirmBody, DecisionAnswer, RejectBody
from byleave.protocol.grants import GrantTerms
from byleave.protocol.states import AnsweredFrom, ApprovalScope, Scope
from byleave.protocol.wire import Identifier, WireModel
from byleave.server.auth.isolation import no_project
from byleave.server.bodies import read_body, read_query
from byleave.server.problems import WrongForm
from byleave.server.routing import ANY_SCOPE, APPROVE, PEOPLE, JsonAnswer, Route, parts_of, principal_of


class ApprovalsQuery(WireModel):
    project_id: Identifier | None = Field(default=None, description="Only those of this project.")


class WholeQuery(WireModel):
    reveal: bool = Field(default=False, description="Also what is masked in the question.")


async def approve(request: Request) -> Response:
    body = await read_body(request, ApproveBody)
    return await _decide(request, approve=True, digest=body.digest, scope=body.scope, terms=body.terms)


async def reject(request: Request) -> Response:
    body = await read_body(request, RejectBody, printable=True)
    return await _decide(request, approve=False, reason=body.reason)


async def confirm(request: Request) -> Response:
    body = await read_body(request, ConfirmBody, printable=True)
    approve = body.decision == "approved"
    if not approve and body.scope is not ApprovalScope.ONCE:
        raise WrongForm("A no covers one call.", hint="Leave `scope` out.")
    return await _decide(
        request, approve=approve, reason=body.reason, digest=body.digest, scope=body.scope, terms=body.terms
    )


async def whole_call(request: Request) -> Response:
    reveal = read_query(request, WholeQuery).reveal
    approvals, user_id = parts_of(request).approvals, principal_of(request).user_id
    return JsonAnswer(await approvals.whole_call(request.path_params["approval_id"], user_id, reveal=reveal))


async def change(request: Request) -> Response:
    user_id = principal_of(request).user_id
    return JsonAnswer(await parts_of(request).approvals.change(request.path_params["approval_id"], user_id))


async def list_approvals(request: Request) -> Response:
    parts, user_id = parts_of(request), principal_of(request).user_id
    query = read_query(request, ApprovalsQuery)
    if query.project_id is not None and not await parts.store.chat.owns(user_id, query.project_id):
        raise no_project(query.project_id)
    waiting = await parts.approvals.get_pending_approvals(user_id, query.project_id)
    if Scope.AGENT in principal_of(request).scopes:
        waiting = [
            one if one.inspection is None else one.model_copy(update={"inspection": one.inspection.without_texts()})
            for one in waiting
            if principal_of(request).may_see(None, one.agent_id)
        ]
    return JsonAnswer(ApprovalList(approvals=waiting, total_count=len(waiting)))


async def _decide(
    request: Request,
    *,
    approve: bool,
    reason: str | None = None,
    digest: str | None = None,
    scope: ApprovalScope = ApprovalScope.ONCE,
    terms: GrantTerms | None = None,
) -> Response:
    principal = principal_of(request)
    row, grant, released = await parts_of(request).approvals.decide(
        request.path_params["approval_id"],
        principal.user_id,
        approve=approve,
        reason=reason,
        digest=digest,
        project_id=request.path_params.get("project_id"),
        scope=scope,
        terms=terms,
        decided_from=AnsweredFrom.PAGE if principal.sign_ins else AnsweredFrom.PROGRAM,
    )
    answer = DecisionAnswer(
        success=True,
        approval_id=row.id,
        status=row.status,
        message=_told(len(row.tool_ids) + len(released), approve=approve),
        grant_id=grant.id if grant else None,
        released=list(released),
    )
    return JsonAnswer(answer)


def _told(calls: int, *, approve: bool) -> str:
    number = "1 call" if calls == 1 else f"{calls} calls"
    if approve:
        return f"{number} {'goes' if calls == 1 else 'go'} on."
    return f"{number} {'was' if calls == 1 else 'were'} ended."


_ERRORS = (400, 404, 409, 413, 415, 503)

ROUTES = (
    Route(
        "POST",
        "/my/projects/{project_id}/approvals/{approval_id}/approve",
        approve,
        "Approve",
        "Lets exactly what was shown run. With `digest`, only if that is what waits. With the scope `class` or "
        "`session`, further calls too, as `terms` say; those that already wait go with it. A decision that came too "
        "late or second is a 409 whose `state` says what holds.",
        "approvals",
        APPROVE,
        body="ApproveBody",
        answer="DecisionAnswer",
        errors=_ERRORS,
    ),
    Route(
        "POST",
        "/my/projects/{project_id}/approvals/{approval_id}/reject",
        reject,
        "Reject",
        "Nothing runs; the agent is told, with the reason.",
        "approvals",
        APPROVE,
        body="RejectBody",
        answer="DecisionAnswer",
        errors=_ERRORS,
    ),
    Route(
        "POST",
        "/my/approvals/{approval_id}/confirm",
        confirm,
        "Decide",
        "Approve or reject without naming the project.",
        "approvals",
        APPROVE,
        body="ConfirmBody",
        answer="DecisionAnswer",
        errors=_ERRORS,
    ),
    Route(
        "GET",
        "/my/approvals",
        list_approvals,
        "What waits for a decision",
        "Oldest first. An agent's token sees the questions about its own calls.",
        "approvals",
        ANY_SCOPE,
        query=ApprovalsQuery,
        answer="ApprovalList",
        errors=(400, 404),
    ),
    Route(
        "GET",
        "/my/approvals/{approval_id}/whole",
        whole_call,
        "All of what waits",
        "Where a question shows a part of a long content, this shows all of it. What looks like a secret and could not "
        "act is masked, with its length; `reveal` shows that too. Never open to an agent's token.",
        "approvals",
        PEOPLE,
        people_only=True,
        query=WholeQuery,
        answer="WholeCall",
        errors=(400, 404),
    ),
    Route(
        "GET",
        "/my/approvals/{approval_id}/change",
        change,
        "What a write would change",
        "The file as it is on the machine and as it would be, secrets masked on both sides. The approval is bound to "
        "what the machine read: another content when it is written is drift, and refused. 404 where it is no write.",
        "approvals",
        PEOPLE,
        people_only=True,
        answer="WriteChange",
        errors=(404,),
    ),
)
