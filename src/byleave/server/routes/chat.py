"""Messages, sessions, runs and agents of a project (R1).

A posted message is stored with its run in one transaction and answered at once; the worker picks the run up. Nothing
here waits for an agent.
"""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from byleave.installation import missing_extra
from byleave.protocol.chat import (
    CHAT_AGENT,
    AgentInfo,
    AgentList,
    Cancelled,
    MessageAccepted,
    MessageBody,
    MessageList,
    RunList,
    SessionList,
)
from byleave.protocol.errors import CallerError, NotFound, RefusedError
from byleave.protocol.states import AgentMode
from byleave.protocol.wire import Identifier, WireModel
from byleave.server.auth.tokens import Principal
from byleave.server.dependencies import Chatter, Parts, Project, StrictRoute, takes
from byleave.server.errors import Unavailable
from byleave.server.problems import problems
from byleave.server.services import Services
from byleave.store.chat import MessageKey

router = APIRouter(route_class=StrictRoute, tags=["chat"])


class MessagesQuery(WireModel):
    session_id: Identifier = Field(description="Whose messages.")
    limit: int = Field(default=1000, ge=1, le=1000, description="How many of the newest.")
    before: Identifier | None = Field(default=None, description="Only those before this message.")


class RunsQuery(WireModel):
    session_id: Identifier = Field(description="Whose runs.")
    limit: int = Field(default=20, ge=1, le=200, description="How many of the newest.")


@router.post(
    "/my/projects/{project_id}/chat/messages",
    summary="Post a message",
    status_code=202,
    responses=problems(409, 503),
)
@takes(printable=True)
async def post_message(parts: Parts, principal: Chatter, project: Project, body: MessageBody) -> MessageAccepted:
    """Stores the message and starts an agent on it in the background; the answer comes on the feed. Without
    `session_id` a new session is opened, without `agent` the agent is `chat`. `mode: full` needs a token that may
    approve, and an agent that may have it. A `model` must be one that the
    operator listed for the agent. With a `client_key`, a message that is sent again gets the same
    answer and starts nothing; another one under the same key is a 409."""
    agent = _pick(agents_of(parts, project), body.agent or CHAT_AGENT)
    if body.mode is AgentMode.FULL and not principal.may_approve:
        # Full mode answers the agent's questions beforehand, so choosing it needs the right to answer them.
        raise RefusedError(
            "Full mode needs a token that may approve.",
            hint="Use a person's token with the scope `approve`, or leave `mode` out.",
        )
    if body.mode is AgentMode.FULL and agent.widest_mode is AgentMode.SANDBOX:
        raise RefusedError(
            f"The agent {agent.name!r} works in sandbox mode only.", hint="Leave `mode` out, or choose another agent."
        )
    if body.model is not None and body.model not in agent.models:
        names = ", ".join(agent.models)
        raise CallerError(f"The agent {agent.name!r} has no model {body.model!r} to choose.", hint=f"It has: {names}.")
    posted = await parts.store.chat.post(
        principal.user_id,
        project,
        body.content,
        session_id=body.session_id,
        # Leaving the mode out gives nothing more to a caller who may not approve.
        mode=body.mode or (agent.mode if principal.may_approve else AgentMode.SANDBOX),
        agent=agent.name,
        model=body.model,
        models=agent.models,
        key=_key(body),
        actor=principal.actor,
    )
    return MessageAccepted(message_id=posted.message_id, session_id=posted.session_id, run_id=posted.run_id)


def _key(body: MessageBody) -> MessageKey | None:
    """Key of a message exactly as it was sent: a default may mean something else the next time."""
    if body.client_key is None:
        return None
    mode = None if body.mode is None else body.mode.value
    # Left out where it is none: retries of a message from before there was a choice have the same digest.
    model = {} if body.model is None else {"model": body.model}
    return MessageKey.of(body.client_key, body.session_id, content=body.content, agent=body.agent, mode=mode, **model)


@router.get("/my/projects/{project_id}/agents", summary="Agents of a project", responses=problems(503))
async def list_agents(parts: Parts, principal: Chatter, project: Project) -> AgentList:
    """Agents that can work on a message: name, model, mode and tools of each; `chat` comes first."""
    agents = agents_of(parts, project)
    return AgentList(agents=agents, total_count=len(agents))


def agents_of(parts: Services, project_id: str) -> list[AgentInfo]:
    """The agents that work on a project's messages."""
    if parts.worker is None:
        raise Unavailable(
            "This server has no agent to work on messages.",
            hint=missing_extra("agents"),
        )
    return parts.worker.agents(project_id)


def _pick(agents: list[AgentInfo], name: str) -> AgentInfo:
    for agent in agents:
        if agent.name == name:
            return agent
    names = ", ".join(agent.name for agent in agents) or "none"
    raise NotFound(f"No agent {name!r} in this project.", hint=f"It has: {names}.")


@router.get("/my/projects/{project_id}/chat/messages", summary="Messages of a session")
async def list_messages(
    parts: Parts, principal: Chatter, project: Project, query: Annotated[MessagesQuery, Query()]
) -> MessageList:
    """The newest messages of one session, oldest first; with `before`, the newest of those before that message.
    `more` says whether there are older ones."""
    await _check_session(parts, principal, project, query.session_id)
    rows, more = await parts.store.chat.message_page(principal.user_id, query.session_id, query.limit, query.before)
    return MessageList(messages=[row.to_wire() for row in rows], total_count=len(rows), more=more)


@router.get("/my/projects/{project_id}/chat/runs", summary="Runs of a session")
async def list_runs(
    parts: Parts, principal: Chatter, project: Project, query: Annotated[RunsQuery, Query()]
) -> RunList:
    """The newest runs of one session, newest first: whether an agent still works in it, and how the last one ended."""
    await _check_session(parts, principal, project, query.session_id)
    rows = await parts.store.runs.of_session(principal.user_id, query.session_id, query.limit)
    models = await parts.store.runs.models_of(query.session_id)
    return RunList(runs=[row.to_wire(models.get(row.id)) for row in rows], total_count=len(rows))


async def _check_session(parts: Services, principal: Principal, project_id: str, session_id: str) -> None:
    """Refuse a session that is another user's or another project's."""
    session = await parts.store.chat.session(session_id, user_id=principal.user_id)
    if session.project_id != project_id:
        raise NotFound(f"No session {session_id!r}.", hint="Leave session_id out to open a new one.")


@router.get("/my/projects/{project_id}/chat/sessions", summary="Sessions of a project")
async def list_sessions(parts: Parts, principal: Chatter, project: Project) -> SessionList:
    """All sessions of the project, newest first."""
    rows = await parts.store.chat.sessions(principal.user_id, project)
    return SessionList(sessions=[row.to_wire() for row in rows], total_count=len(rows))


@router.post("/my/projects/{project_id}/chat/runs/{run_id}/cancel", summary="Stop a run", responses=problems(409, 503))
async def cancel_run(
    parts: Parts,
    principal: Chatter,
    project: Project,
    run_id: str,
) -> Cancelled:
    """Stops the agent's run and cancels its open calls. Never open to an agent's token."""
    run = await parts.store.runs.get(run_id, user_id=principal.user_id)
    if run.project_id != project:
        raise NotFound(f"No run {run_id!r}.")
    called_off = await parts.store.runs.cancel(run_id, user_id=principal.user_id, connected=parts.presence.connected())
    also = f" Open calls stopped with it: {len(called_off)}." if called_off else ""
    return Cancelled(success=True, message=f"Stopped.{also}")
