"""Grants: list, preview and revoke them. They are given with an answer (`approvals`), never here."""

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
    """Newest first, each with its rule, its end and the number of its uses."""
    await check_project(parts, principal, query.project_id)
    grants = await parts.approvals.grants(
        principal.user_id, session_id=query.session_id, project_id=query.project_id, all_of_them=query.all
    )
    return GrantList(grants=grants, total_count=len(grants))


@router.post("/my/grants/{grant_id}/revoke", summary="Take a grant back", responses=problems(404, 409, 503))
async def revoke(parts: Parts, principal: Approver, grant_id: str) -> Grant:
    """Later calls ask again; calls it has already covered go on. A grant that has ended is a 409."""
    return await parts.approvals.revoke_grant(grant_id, principal.user_id)


@router.post("/my/projects/{project_id}/grants/preview", summary="Try a rule out")
async def preview(parts: Parts, principal: Person, project: Project, body: GrantPreviewBody) -> GrantPreview:
    """Tells which of the last 200 calls, refused ones included, the rule would have covered; and the reason if it may
    not be saved. Saves nothing."""
    return await parts.approvals.preview_grant(principal.user_id, project, body.rule)
