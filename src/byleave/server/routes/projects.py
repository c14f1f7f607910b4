"""Projects, their connected machines, and the caller's own identity (R0)."""

from functools import cache
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Depends

from byleave.protocol.chat import Project as ProjectInfo
from byleave.protocol.chat import ProjectBody, ProjectList
from byleave.protocol.overview import MachineList
from byleave.protocol.sign_in import Me
from byleave.protocol.states import Scope
from byleave.server.auth.tokens import Principal
from byleave.server.dependencies import Allow, Anyone, Parts, Person, Project, StrictRoute, takes
from byleave.server.problems import problems

router = APIRouter(route_class=StrictRoute, tags=["projects"])


@router.post("/my/projects", summary="Create a project", status_code=201, responses=problems(503))
@takes(printable=True)
async def create_project(
    parts: Parts, principal: Annotated[Principal, Depends(Allow(Scope.CHAT, Scope.EXECUTE))], body: ProjectBody
) -> ProjectInfo:
    """A project has one workspace, one feed and any number of sessions. With `if_none` one is created only if you have
    none; else the answer is your oldest."""
    project = await parts.store.chat.create_project(
        principal.user_id, body.name, if_none=body.if_none, actor=principal.actor
    )
    return project.to_wire()


@router.get("/my/projects", summary="Your projects")
async def list_projects(parts: Parts, principal: Anyone) -> ProjectList:
    """Oldest first."""
    rows = await parts.store.chat.projects(principal.user_id)
    return ProjectList(projects=[row.to_wire() for row in rows], total_count=len(rows))


@router.get("/my/me", summary="Who you are here")
async def me(parts: Parts, principal: Anyone) -> Me:
    """The user and the scopes of the token, the server's version, and whether an agent works on messages."""
    return Me(
        user_id=principal.user_id,
        scopes=sorted(principal.scopes),
        version=_version(),
        chat=parts.worker is not None,
    )


@cache
def _version() -> str:
    return version("byleave")


@router.get("/my/projects/{project_id}/machines", summary="Machines that are there")
async def machines(parts: Parts, principal: Person, project: Project) -> MachineList:
    """Connected clients, longest connected first; `next` marks the one that would get the next call. The feed reports
    changes as `project.machines`."""
    here = parts.presence.machines(project)
    return MachineList(machines=here, total_count=len(here))
