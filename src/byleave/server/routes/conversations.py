"""Whole conversations: rename, find, export, delete, and what one changed.

A conversation is the sessions resource under another light: its messages and runs are in `chat`. An agent's token is
refused everywhere here: what it called stays on its user's record.
"""

import re
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from byleave.protocol.chat import Message, Session
from byleave.protocol.conversations import (
    MAX_SEARCH_CHARACTERS,
    FoundSession,
    SessionChanges,
    SessionDeleted,
    SessionExport,
    SessionSearch,
    SessionText,
    SessionTitle,
)
from byleave.protocol.errors import CallerError, NotFound
from byleave.protocol.executions import Execution
from byleave.protocol.wire import NOT_BLANK, WireModel, now
from byleave.server.auth.tokens import Principal
from byleave.server.conversations import changes_of, file_name, markdown
from byleave.server.dependencies import Chatter, Parts, Project, StrictRoute, takes
from byleave.server.problems import problems
from byleave.server.services import Services
from byleave.store import SessionRow
from byleave.store.executions import HistoryFilter

from .tools import shortened

router = APIRouter(route_class=StrictRoute, tags=["chat"])

PAGE = 200
MOST_MESSAGES = 5000
MOST_CALLS = 5000


class SearchQuery(WireModel):
    query: str = Field(
        min_length=1,
        max_length=MAX_SEARCH_CHARACTERS,
        description="The text, in any case.",
        json_schema_extra={"pattern": NOT_BLANK},
    )


async def own_session(parts: Services, principal: Principal, project: str, session_id: str) -> SessionRow:
    """The conversation in the path, which must be the caller's and of this project."""
    session = await parts.store.chat.session(session_id, user_id=principal.user_id)
    if session.project_id != project:
        raise NotFound(f"No session {session_id!r}.", hint="See `GET …/chat/sessions` for yours.")
    return session


@router.get("/my/projects/{project_id}/chat/search", summary="Find conversations")
async def search_sessions(
    parts: Parts, principal: Chatter, project: Project, query: Annotated[SearchQuery, Query()]
) -> SessionSearch:
    """Conversations whose title or messages hold a text, newest first, with a part of the newest message that does."""
    if not re.search(NOT_BLANK, query.query):
        raise CallerError("There is nothing to search for.", hint="Give a word or more.")
    search = await parts.store.conversations.search(principal.user_id, project, query.query)
    found = [
        FoundSession(session=each.session.to_wire(), messages=each.messages, excerpt=each.excerpt)
        for each in search.found
    ]
    return SessionSearch(found=found, complete=search.complete)


@router.post("/my/projects/{project_id}/chat/sessions/{session_id}/rename", summary="Rename a conversation")
@takes(printable=True)
async def rename_session(
    parts: Parts, principal: Chatter, project: Project, session_id: str, body: SessionTitle
) -> Session:
    """Its messages and its record stay as they are."""
    session = await own_session(parts, principal, project, session_id)
    return (await parts.store.conversations.rename(principal.user_id, session.id, body.title)).to_wire()


@router.post(
    "/my/projects/{project_id}/chat/sessions/{session_id}/delete",
    summary="Delete a conversation",
    responses=problems(409),
)
async def delete_session(parts: Parts, principal: Chatter, project: Project, session_id: str) -> SessionDeleted:
    """Removes its title, its messages, what the agent remembered of it, and the grants given in it. Its calls stay on
    record with their questions, so that the audit chain still proves them; files stay as they are. A 409 with the state
    `working` while an agent works in it. An agent that runs elsewhere begins a new one with its next call."""
    session = await own_session(parts, principal, project, session_id)
    await parts.store.conversations.delete(principal.user_id, session.id)
    return SessionDeleted(success=True, message="Deleted. What its calls did stays on record.")


@router.get("/my/projects/{project_id}/chat/sessions/{session_id}/export", summary="A conversation as JSON")
async def export_session(parts: Parts, principal: Chatter, project: Project, session_id: str) -> SessionExport:
    """Its messages, and its calls as the record has them: secrets are masked."""
    session = await own_session(parts, principal, project, session_id)
    return await _export(parts, principal.user_id, session)


@router.get("/my/projects/{project_id}/chat/sessions/{session_id}/markdown", summary="A conversation as Markdown")
async def session_markdown(parts: Parts, principal: Chatter, project: Project, session_id: str) -> SessionText:
    """The same as a document, with a name for its file."""
    session = await own_session(parts, principal, project, session_id)
    export = await _export(parts, principal.user_id, session)
    text = await parts.executor.long_work.run(principal.user_id, lambda: markdown(export))
    return SessionText(file_name=f"{file_name(session.title)}.md", text=text)


@router.get("/my/projects/{project_id}/chat/sessions/{session_id}/changes", summary="What a conversation changed")
async def session_changes(parts: Parts, principal: Chatter, project: Project, session_id: str) -> SessionChanges:
    """The files its calls created, changed and deleted, and the commands it ran, as the record tells. What undoing them
    would do, the machine says: `GET …/undo`."""
    session = await own_session(parts, principal, project, session_id)
    calls, complete = await parts.store.conversations.changing_calls(principal.user_id, session.id)
    machine = await parts.machines.of(session.project_id)
    return changes_of(session.id, calls, machine.workspace, complete=complete)


async def _export(parts: Services, user_id: str, session: SessionRow) -> SessionExport:
    messages, more = await _messages(parts, user_id, session.id)
    calls, all_calls = await _calls(parts, user_id, session)
    project = await parts.store.chat.project(session.project_id)
    return SessionExport(
        session=session.to_wire(),
        project_name=project.name if project else "",
        exported_at=now(),
        messages=messages,
        calls=calls,
        complete=all_calls and not more,
    )


async def _messages(parts: Services, user_id: str, session_id: str) -> tuple[list[Message], bool]:
    """The newest messages, oldest first; True if there are more."""
    messages: list[Message] = []
    before, more = None, True
    while more and len(messages) < MOST_MESSAGES:
        rows, more = await parts.store.chat.message_page(user_id, session_id, 1000, before)
        messages = [*(row.to_wire() for row in rows), *messages]
        before = rows[0].id if rows else None
    return messages, more


async def _calls(parts: Services, user_id: str, session: SessionRow) -> tuple[list[Execution], bool]:
    """The newest calls, oldest first; True if these are all."""
    calls: list[Execution] = []
    cursor = None
    while len(calls) < MOST_CALLS:
        page = await parts.store.executions.page(
            HistoryFilter(
                user_id=user_id,
                session_id=session.id,
                since=session.created_at,
                limit=PAGE,
                cursor=cursor,
                counted=False,
            )
        )
        decisions = await parts.store.approvals.decisions([row.approval_id for row in page.rows])
        calls += shortened(page.rows, decisions)
        cursor = page.cursor
        if cursor is None:
            break
    return calls[::-1], cursor is None
