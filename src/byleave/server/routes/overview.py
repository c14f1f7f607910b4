"""What the page shows beside the conversation: who is signed in, machines, the audit chain; a link for another browser.

All of it is the asking user's own, and nothing here changes anything in a project.
"""

import json
from functools import cache
from importlib.metadata import version
from urllib.parse import quote

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from byleave.protocol.overview import AuditEntry, AuditPage, MachineList, Me, SignInLink
from byleave.protocol.wire import WireModel
from byleave.server.auth.links import CODE_SECONDS
from byleave.server.bodies import read_query
from byleave.server.routing import ANY_SCOPE, PEOPLE, JsonAnswer, Route, parts_of, principal_of
from byleave.server.verifying import Verifications


class AuditQuery(WireModel):
    before: int | None = Field(default=None, ge=1, le=2**53, description="Only entries before this number.")
    limit: int = Field(default=50, ge=1, le=200, description="How many.")


async def me(request: Request) -> Response:
    parts, principal = parts_of(request), principal_of(request)
    return JsonAnswer(
        Me(
            user_id=principal.user_id,
            scopes=sorted(principal.scopes),
            version=_version(),
            chat=parts.worker is not None,
        )
    )


@cache
def _version() -> str:
    return version("byleave")


async def machines(request: Request) -> Response:
    here = parts_of(request).presence.machines(request.path_params["project_id"])
    return JsonAnswer(MachineList(machines=here, total_count=len(here)))


async def audit(request: Request) -> Response:
    query = read_query(request, AuditQuery)
    records, total = await parts_of(request).store.audit.newest(
        request.path_params["project_id"], query.before, query.limit
    )
    entries = [
        AuditEntry(
            seq=record.seq,
            at=record.at,
            actor=record.actor,
            action=record.action,
            tool_id=record.execution_id,
            approval_id=record.approval_id,
            detail=json.loads(record.detail),
            previous_hash=record.previous_hash,
            hash=record.hash,
        )
        for record in records
    ]
    further = entries[-1].seq if len(entries) == query.limit and entries[-1].seq > 1 else None
    return JsonAnswer(AuditPage(entries=entries, total_count=total, next_before=further))


async def verify(request: Request) -> Response:
    parts = parts_of(request)
    async with parts.until_closing("Ask again when it is back."):
        user_id = principal_of(request).user_id
        return JsonAnswer(await Verifications.of(parts).verify(request.path_params["project_id"], user_id))


async def sign_in_link(request: Request) -> Response:
    principal = principal_of(request)
    code = parts_of(request).sign_in.asked_for(
        principal.user_id, until=principal.expires_at, scopes=principal.scopes, led_by=principal.sign_ins
    )
    return JsonAnswer(SignInLink(path=f"/signin?code={quote(code)}", expires_in_seconds=round(CODE_SECONDS)))


ROUTES = (
    Route(
        "GET",
        "/my/me",
        me,
        "Who you are here",
        "The user and the scopes of the token, the server's version, and whether an agent works on messages.",
        "projects",
        ANY_SCOPE,
        answer="Me",
    ),
    Route(
        "GET",
        "/my/projects/{project_id}/machines",
        machines,
        "Machines that are there",
        "Clients that are connected now, the longest first; `next` marks the one that would get the next call. The "
        "feed tells of changes with `project.machines`.",
        "projects",
        PEOPLE,
        people_only=True,
        answer="MachineList",
        errors=(404,),
    ),
    Route(
        "GET",
        "/my/projects/{project_id}/audit",
        audit,
        "The audit chain",
        "Newest first. Go on with `before`, which `next_before` names.",
        "audit",
        PEOPLE,
        people_only=True,
        query=AuditQuery,
        answer="AuditPage",
        errors=(400, 404),
    ),
    Route(
        "GET",
        "/my/projects/{project_id}/audit/verify",
        verify,
        "Verify the audit chain",
        "Recomputes the project's chain from its first record on. One at a time for each user, and after a long one "
        "not at once again: else 429 with Retry-After. A server that was tampered with could lie here: "
        "`byleave audit verify` reads the database itself.",
        "audit",
        PEOPLE,
        people_only=True,
        answer="AuditCheck",
        errors=(404, 429, 503),
    ),
    Route(
        "POST",
        "/my/signin",
        sign_in_link,
        "A link that signs a browser in",
        "Works once and for ten minutes, for chat and approve; what it signs in lasts no longer than the token or the "
        "sign-in that asked. A program may exchange it at `/signin/exchange` for a token that may do no more than what "
        "asked. Needs both scopes. Too many at once are a 429.",
        "page",
        PEOPLE,
        needs_all=True,
        people_only=True,
        answer="SignInLink",
        errors=(429,),
    ),
)
