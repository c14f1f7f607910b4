"""Grants: what a person has allowed beyond one call.

A grant is given with an answer (`approvals`); here grants are listed, tried out and taken back.
"""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from byleave.protocol.grants import Grant, GrantList, GrantPreview, GrantPreviewBody
from byleave.protocol.wire import Identifier, WireModel
from byleave.server.dependencies import Approver, Flag, Parts, Person, Project, StrictRoute, check_project
from byleave.server.problems import problems

router = APIRouter(route_class=StrictRoute, tags=["grants"])


class GrantsQuery(WireModel):
    project_id: Identifier | None = Field(default=None, description="Only those of this project.")
    session_id: Identifier | None = Field(default=None, description="Only those of this session.")
    all: Flag = Field(default=False, description="Also those that have ended.")


@router.get("/my/grants", summary="Grants in force", responses=problems(404))
async def list_grants(parts: Parts, principal: Person, query: Annotated[GrantsQuery, Query()]) -> GrantList:
    """What was allowed beyond one call: by which rule, until when, how often it was used. Newest first."""
    await check_project(parts, principal, query.project_id)
    grants = await parts.approvals.grants(
        principal.user_id, session_id=query.session_id, project_id=query.project_id, all_of_them=query.all
    )
    return GrantList(grants=grants, total_count=len(grants))


@router.post("/my/grants/{grant_id}/revoke", summary="Take a grant back", responses=problems(404, 409, 503))
async def revoke(parts: Parts, principal: Approver, grant_id: str) -> Grant:
    """Calls that come later ask again; what it has let go is not called back. One that has ended is a 409."""
    return await parts.approvals.revoke_grant(grant_id, principal.user_id)


@router.post("/my/projects/{project_id}/grants/preview", summary="Try a rule out")
async def preview(parts: Parts, principal: Person, project: Project, body: GrantPreviewBody) -> GrantPreview:
    """What it would have covered of the last 200 calls, also of those that were refused; and why it may not be
    saved, if so. Saves nothing."""
    return await parts.approvals.preview_grant(principal.user_id, project, body.rule)
