"""Files of the workspace that a person may want to name in a message.

The machine lists them, by the same calls of `list_directory` as an agent's: judged by the same gate, on record, seen by
nobody if the rules deny it. Where listing would ask a person it is not done at all. What a message names is only text:
reading the file is the agent's own call.
"""

import asyncio
import re
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query
from pydantic import Field

from byleave.calls.executor import Caller
from byleave.calls.machines import Machine
from byleave.gate import secret_name
from byleave.protocol.conversations import FileOffers, OfferedFile
from byleave.protocol.errors import ConflictError, RefusedError
from byleave.protocol.executions import listings_session_id
from byleave.protocol.states import ExecutionStatus
from byleave.protocol.verdicts import VerdictLevel
from byleave.protocol.wire import JsonObject, WireModel
from byleave.server.dependencies import Chatter, Parts, Project, StrictRoute
from byleave.server.problems import problems
from byleave.server.services import Services
from byleave.store import SessionRow

router = APIRouter(route_class=StrictRoute, tags=["chat"])

MOST_OFFERED = 50
MOST_BRANCHES = 12
LIST_SECONDS = 10.0
LISTS = Caller(agent_id="person", tools=frozenset({"list_directory"}))
MADE_BY_TOOLS = frozenset({"node_modules", "venv", "dist", "build", "target", "vendor", "__pycache__", "coverage"})
"""Directories that programs fill: what lies in them comes last."""
_SPECIAL = re.compile(r"[*?\[\]{}!,\\]")


class FilesQuery(WireModel):
    query: str = Field(default="", max_length=200, description="Part of a path; empty for the top directory.")


@router.get("/my/projects/{project_id}/files", summary="Files to name in a message", responses=problems(409, 503))
async def offer_files(
    parts: Parts, principal: Chatter, project: Project, query: Annotated[FilesQuery, Query()]
) -> FileOffers:
    """Asks the connected machine for files whose path holds the text. Files that usually hold secrets are left out, and
    so is what the rules deny reading. A 403 if the rules do not let listing happen without a question."""
    machine = await parts.machines.of(project)
    session = await parts.store.chat.ensure_session(
        listings_session_id(principal.user_id, project), principal.user_id, project, "Files named in messages"
    )
    directory, slash, name = query.query.replace("\\", "/").removeprefix("./").rpartition("/")
    params: JsonObject = {"path": directory or ("/" if slash else ".")}
    if name:
        params |= {"pattern": _pattern(name), "recursive": True}
    found, complete = await _listed(parts, machine, session, params)
    if name and not complete:
        # A directory that a tool has filled may have used up the room: the others are listed each for itself.
        top, _ = await _listed(parts, machine, session, {"path": params["path"]})
        own = [one["path"] for one in top if one["type"] == "directory" and one["name"] not in MADE_BY_TOOLS]
        more = await asyncio.gather(
            *(_listed(parts, machine, session, {**params, "path": path}) for path in own[:MOST_BRANCHES])
        )
        found += [one for entries, _ in more for one in entries]
    offers = {one["path"]: one for one in found if not secret_name(one["path"])}
    ordered = sorted(offers.values(), key=lambda one: _rank(one["path"], name.lower()))
    readable = [one for one in ordered[: 2 * MOST_OFFERED] if not _denied(machine, one)]
    files = [OfferedFile(path=one["path"], type=one["type"]) for one in readable[:MOST_OFFERED]]
    return FileOffers(files=files, complete=complete and len(ordered) <= len(files))


async def _listed(
    parts: Services, machine: Machine, session: SessionRow, params: JsonObject
) -> tuple[list[JsonObject], bool]:
    """A directory as the machine lists it; True if that is all."""
    verdict = machine.judge("list_directory", params).verdict
    if verdict.refused:  # such as a path outside the workspace: there is nothing to offer
        return [], True
    if verdict.level is not VerdictLevel.LOW:
        raise RefusedError(
            "The rules do not let files be listed here without a question.",
            hint="Type the path: what the agent may read of it is decided when it asks.",
        )
    row = await parts.executor.call("list_directory", params, session, caller=LISTS, seconds=LIST_SECONDS)
    if row.status is not ExecutionStatus.COMPLETED:
        if not row.status.ended:
            await parts.store.executions.cancel(
                row.id, user_id=session.user_id, actor=f"user:{session.user_id}", connected=parts.presence.connected()
            )
        raise ConflictError(row.error or "The machine did not answer in time.", state=row.status.value)
    result: JsonObject = row.to_response().result or {}
    entries = [cast(JsonObject, one) for one in cast("list[Any]", result.get("files") or [])]
    known = [one for one in entries if isinstance(one.get("path"), str) and one.get("type") in ("file", "directory")]
    return known, not result.get("truncated")


def _pattern(name: str) -> str:
    """A glob for names that hold this text, in any case."""
    return f"*{''.join(_letter(letter) for letter in name)}*"


def _letter(letter: str) -> str:
    if _SPECIAL.match(letter):
        return f"[{letter}]" if letter not in "[]!\\" else "?"
    lower, upper = letter.lower(), letter.upper()
    return f"[{lower}{upper}]" if lower != upper and len(lower) == len(upper) == 1 else letter


def _rank(path: str, wanted: str) -> tuple[bool, int, int, str]:
    """What tools made comes last; names that begin with the text come first, then short paths."""
    *above, last = path.lower().split("/")
    place = 0 if last.startswith(wanted) else 1 if wanted in last else 2
    return bool(MADE_BY_TOOLS.intersection(above)), place, len(above), path.lower()


def _denied(machine: Machine, one: JsonObject) -> bool:
    tool = "list_directory" if one["type"] == "directory" else "read_file"
    return machine.judge(tool, {"path": one["path"]}).verdict.refused
