"""Grants and rules: what a person has allowed beyond one call, and what a machine's owner wrote.

Grants are given with an answer (`approvals`); here they are listed, tried out and taken back. A client declares its
owner's rules here, which the server then judges with; the client does so again itself.
"""

import hashlib

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from byleave.gate import declared_layers
from byleave.protocol.grants import GrantList, GrantPreviewBody
from byleave.protocol.policies import PolicyDeclaration
from byleave.protocol.wire import Identifier, WireModel
from byleave.server.auth.isolation import no_project
from byleave.server.bodies import read_body, read_query
from byleave.server.routing import APPROVE, EXECUTE, PEOPLE, JsonAnswer, Route, parts_of, principal_of


class GrantsQuery(WireModel):
    project_id: Identifier | None = Field(default=None, description="Only those of this project.")
    session_id: Identifier | None = Field(default=None, description="Only those of this session.")
    all: bool = Field(default=False, description="Also those that have ended.")


async def list_grants(request: Request) -> Response:
    parts, user_id = parts_of(request), principal_of(request).user_id
    query = read_query(request, GrantsQuery)
    if query.project_id is not None and not await parts.store.chat.owns(user_id, query.project_id):
        raise no_project(query.project_id)
    grants = await parts.approvals.grants(
        user_id, session_id=query.session_id, project_id=query.project_id, all_of_them=query.all
    )
    return JsonAnswer(GrantList(grants=grants, total_count=len(grants)))


async def revoke(request: Request) -> Response:
    user_id = principal_of(request).user_id
    return JsonAnswer(await parts_of(request).approvals.revoke_grant(request.path_params["grant_id"], user_id))


async def preview(request: Request) -> Response:
    body = await read_body(request, GrantPreviewBody)
    found = await parts_of(request).approvals.preview_grant(
        principal_of(request).user_id, request.path_params["project_id"], body.rule
    )
    return JsonAnswer(found)


async def declare_policy(request: Request) -> Response:
    body = await read_body(request, PolicyDeclaration)
    declared_layers(body.layers)  # what cannot be read is refused now, not when it matters
    text = body.model_dump_json()
    await parts_of(request).store.machines.declare(
        request.path_params["project_id"],
        body.client_id,
        text,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )
    return Response(status_code=204)


ROUTES = (
    Route(
        "GET",
        "/my/grants",
        list_grants,
        "Grants in force",
        "What was allowed beyond one call: by which rule, until when, how often it was used. Newest first.",
        "grants",
        PEOPLE,
        people_only=True,
        query=GrantsQuery,
        answer="GrantList",
        errors=(400, 404),
    ),
    Route(
        "POST",
        "/my/grants/{grant_id}/revoke",
        revoke,
        "Take a grant back",
        "Calls that come later ask again; what it has let go is not called back. One that has ended is a 409.",
        "grants",
        APPROVE,
        answer="Grant",
        errors=(404, 409, 503),
    ),
    Route(
        "POST",
        "/my/projects/{project_id}/grants/preview",
        preview,
        "Try a rule out",
        "What it would have covered of the last 200 calls, also of those that were refused; and why it may not be "
        "saved, if so. Saves nothing.",
        "grants",
        PEOPLE,
        people_only=True,
        body="GrantPreviewBody",
        answer="GrantPreview",
        errors=(400, 404, 413, 415),
    ),
    Route(
        "PUT",
        "/my/projects/{project_id}/policy",
        declare_policy,
        "Declare a machine's rules",
        "What the owner of a client's machine wrote, layer by layer. The server judges with it from now on; rules that "
        "cannot be read are a 400.",
        "grants",
        EXECUTE,
        body="PolicyDeclaration",
        status=204,
        errors=(400, 404, 413, 415, 503),
    ),
)
