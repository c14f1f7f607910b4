"""Projects, messages, sessions and runs (R0, R1).

A posted message is stored with its run in one transaction and answered at once; who works on it is the worker's
business. Nothing here waits for an agent.
"""

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from byleave.protocol.chat import (
    CHAT_AGENT,
    AgentInfo,
    AgentList,
    Cancelled,
    MessageAccepted,
    MessageBody,
    MessageList,
    ProjectBody,
    ProjectList,
    RunList,
    SessionList,
)
from byleave.protocol.errors import NotFound, RefusedError
from byleave.protocol.states import AgentMode, Scope
from byleave.protocol.wire import Identifier, WireModel
from byleave.server.bodies import read_body, read_query
from byleave.server.problems import Unavailable
from byleave.server.routing import ANY_SCOPE, CHAT, JsonAnswer, Route, parts_of, principal_of
from byleave.server.services import Services
from byleave.store.chat import MessageKey


class MessagesQuery(WireModel):
    session_id: Identifier = Field(description="Whose messages.")
    limit: int = Field(default=1000, ge=1, le=1000, description="How many of the newest.")
    before: Identifier | None = Field(default=None, description="Only those before this message.")


class RunsQuery(WireModel):
    session_id: Identifier = Field(description="Whose runs.")
    limit: int = Field(default=20, ge=1, le=200, description="How many of the newest.")


async def create_project(request: Request) -> Response:
    body = await read_body(request, ProjectBody, printable=True)
    chat, principal = parts_of(request).store.chat, principal_of(request)
    project = await chat.create_project(principal.user_id, body.name, if_none=body.if_none, actor=principal.actor)
    return JsonAnswer(project.to_wire(), 201)


async def list_projects(request: Request) -> Response:
    rows = await parts_of(request).store.chat.projects(principal_of(request).user_id)
    return JsonAnswer(ProjectList(projects=[row.to_wire() for row in rows], total_count=len(rows)))


async def post_message(request: Request) -> Response:
    parts, principal = parts_of(request), principal_of(request)
    body = await read_body(request, MessageBody, printable=True)
    project_id: str = request.path_params["project_id"]
    agent = _pick(agents_of(parts, project_id), body.agent or CHAT_AGENT)
    if body.mode is AgentMode.FULL and not principal.may_approve:
        # Full mode answers the agent's questions beforehand, so only who may answer them may choose it.
        raise RefusedError(
            "Full mode needs a token that may approve.",
            hint="Use a person's token with the scope `approve`, or leave `mode` out.",
        )
    if body.mode is AgentMode.FULL and agent.widest_mode is AgentMode.SANDBOX:
        raise RefusedError(
            f"The agent {agent.name!r} works in sandbox mode only.", hint="Leave `mode` out, or choose another agent."
        )
    posted = await parts.store.chat.post(
        principal.user_id,
        project_id,
        body.content,
        session_id=body.session_id,
        # Who may not approve does not open anything by leaving the mode out, either.
        mode=body.mode or (agent.mode if principal.may_approve else AgentMode.SANDBOX),
        agent=agent.name,
        key=_key(body),
        actor=principal.actor,
    )
    accepted = MessageAccepted(message_id=posted.message_id, session_id=posted.session_id, run_id=posted.run_id)
    return JsonAnswer(accepted, 202)


def _key(body: MessageBody) -> MessageKey | None:
    """What was sent, as it was sent: what is left out may mean something else the next time."""
    if body.client_key is None:
        return None
    mode = None if body.mode is None else body.mode.value
    return MessageKey.of(body.client_key, body.session_id, content=body.content, agent=body.agent, mode=mode)


async def list_agents(request: Request) -> Response:
    agents = agents_of(parts_of(request), request.path_params["project_id"])
    return JsonAnswer(AgentList(agents=agents, total_count=len(agents)))


def agents_of(parts: Services, project_id: str) -> list[AgentInfo]:
    """The agents that work on a project's messages."""
    if parts.worker is None:
        raise Unavailable(
            "This server has no agent to work on messages.",
            hint="In a checkout: `pip install '.[agents]'`.",
        )
    return parts.worker.agents(project_id)


def _pick(agents: list[AgentInfo], name: str) -> AgentInfo:
    for agent in agents:
        if agent.name == name:
            return agent
    names = ", ".join(agent.name for agent in agents) or "none"
    raise NotFound(f"No agent {name!r} in this project.", hint=f"It has: {names}.")


async def list_messages(request: Request) -> Response:
    store, user_id = parts_of(request).store, principal_of(request).user_id
    query = read_query(request, MessagesQuery)
    await _session_here(request, query.session_id)
    rows, more = await store.chat.message_page(user_id, query.session_id, query.limit, query.before)
    return JsonAnswer(MessageList(messages=[row.to_wire() for row in rows], total_count=len(rows), more=more))


async def list_runs(request: Request) -> Response:
    query = read_query(request, RunsQuery)
    await _session_here(request, query.session_id)
    rows = await parts_of(request).store.runs.of_session(principal_of(request).user_id, query.session_id, query.limit)
    return JsonAnswer(RunList(runs=[row.to_wire() for row in rows], total_count=len(rows)))


async def _session_here(request: Request, session_id: str) -> None:
    """Refuses a session that is another user's or another project's."""
    session = await parts_of(request).store.chat.session(session_id, user_id=principal_of(request).user_id)
    if session.project_id != request.path_params["project_id"]:
        raise NotFound(f"No session {session_id!r}.", hint="Leave session_id out to open a new one.")


async def list_sessions(request: Request) -> Response:
    rows = await parts_of(request).store.chat.sessions(principal_of(request).user_id, request.path_params["project_id"])
    return JsonAnswer(SessionList(sessions=[row.to_wire() for row in rows], total_count=len(rows)))


async def cancel_run(request: Request) -> Response:
    parts, user_id = parts_of(request), principal_of(request).user_id
    run_id: str = request.path_params["run_id"]
    run = await parts.store.runs.get(run_id, user_id=user_id)
    if run.project_id != request.path_params["project_id"]:
        raise NotFound(f"No run {run_id!r}.")
    called_off = await parts.store.runs.cancel(run_id, user_id=user_id, connected=parts.presence.connected())
    also = f" Open calls stopped with it: {len(called_off)}." if called_off else ""
    return JsonAnswer(Cancelled(success=True, message=f"Stopped.{also}"))


ROUTES = (
    Route(
        "GET",
        "/my/projects/{project_id}/agents",
        list_agents,
        "Agents of a project",
        "Who can work on a message: name, model, mode and tools of each; `chat` comes first.",
        "chat",
        CHAT,
        answer="AgentList",
        errors=(404, 503),
    ),
    Route(
        "POST",
        "/my/projects/{project_id}/chat/messages",
        post_message,
        "Post a message",
        "Stores the message and starts an agent on it in the background; the answer comes on the feed. Without "
        "`session_id` a new session is opened, without `agent` it is `chat`. `mode: full` needs a token that may "
        "approve, and an agent that may have it. With a `client_key`, a message that is sent again gets the same "
        "answer and starts nothing; another one under the same key is a 409.",
        "chat",
        CHAT,
        body="MessageBody",
        answer="MessageAccepted",
        status=202,
        errors=(400, 404, 409, 413, 415, 503),
    ),
    Route(
        "GET",
        "/my/projects/{project_id}/chat/messages",
        list_messages,
        "Messages of a session",
        "The newest messages of one session, oldest first; with `before`, the newest of those before that message. "
        "`more` says whether there are older ones.",
        "chat",
        CHAT,
        query=MessagesQuery,
        answer="MessageList",
        errors=(400, 404),
    ),
    Route(
        "GET",
        "/my/projects/{project_id}/chat/sessions",
        list_sessions,
        "Sessions of a project",
        "Newest first.",
        "chat",
        CHAT,
        answer="SessionList",
        errors=(404,),
    ),
    Route(
        "GET",
        "/my/projects/{project_id}/chat/runs",
        list_runs,
        "Runs of a session",
        "The newest runs of one session, newest first: whether an agent still works in it, and how the last one ended.",
        "chat",
        CHAT,
        query=RunsQuery,
        answer="RunList",
        errors=(400, 404),
    ),
    Route(
        "POST",
        "/my/projects/{project_id}/chat/runs/{run_id}/cancel",
        cancel_run,
        "Stop a run",
        "Stops the agent's run and calls off everything it has open. Never open to an agent's token.",
        "chat",
        CHAT,
        people_only=True,
        answer="Cancelled",
        errors=(404, 409, 503),
    ),
    Route(
        "POST",
        "/my/projects",
        create_project,
        "Create a project",
        "A project has one workspace, one feed and any number of sessions. With `if_none` one is made only for who has "
        "none yet; else the answer is their oldest.",
        "projects",
        frozenset({Scope.CHAT, Scope.EXECUTE}),
        body="ProjectBody",
        answer="Project",
        status=201,
        errors=(400, 413, 415, 503),
    ),
    Route(
        "GET",
        "/my/projects",
        list_projects,
        "Your projects",
        "Oldest first.",
        "projects",
        ANY_SCOPE,
        answer="ProjectList",
    ),
)
