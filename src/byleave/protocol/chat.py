"""Projects, sessions, messages and runs, as the API tells them."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StringConstraints

from .states import AgentMode, RunState
from .wire import Identifier, Timestamp, WireModel

MAX_MESSAGE_CHARACTERS = 100_000
CHAT_AGENT = "chat"
"""The built-in agent: who works on a message that names none."""


class ProjectBody(WireModel):
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
    if_none: StrictBool = False
    """Only where the user has no project yet; else the answer is their oldest. Two who ask at once get the same one."""


class Project(WireModel):
    project_id: str
    name: str
    created_at: Timestamp


class ProjectList(WireModel):
    projects: list[Project]
    total_count: int


class MessageBody(WireModel):
    content: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARACTERS)
    session_id: Identifier | None = None
    """Leave it out to open a new session."""
    mode: AgentMode | None = None
    """How much the agent must ask in this run; left out: the agent's own mode. Never wider than the agent's widest."""
    agent: Identifier | None = None
    """Which of the project's agents works on it; left out: `chat`."""
    client_key: Identifier | None = None
    """The sender's own name for this message. Sent again under the same key, it is answered as it was the first time,
    and neither kept nor worked on twice; another message under the same key is a conflict."""


class MessageAccepted(WireModel):
    message_id: str
    session_id: str
    run_id: str


class Message(WireModel):
    message_id: str
    session_id: str
    run_id: str | None
    role: Literal["user", "agent"]
    content: str
    created_at: Timestamp


class MessageList(WireModel):
    messages: list[Message]
    total_count: int
    """How many are here."""
    more: bool = False
    """Whether there are older ones; `before` with the first message's id gets them."""


class Session(WireModel):
    session_id: str
    project_id: str
    title: str
    created_at: Timestamp


class SessionList(WireModel):
    sessions: list[Session]
    total_count: int


class Run(WireModel):
    run_id: str
    project_id: str
    session_id: str
    agent: str
    state: RunState
    mode: AgentMode
    error: str | None
    created_at: Timestamp
    updated_at: Timestamp


class RunList(WireModel):
    runs: list[Run]
    """Newest first."""
    total_count: int
    """How many are here."""


class AgentInfo(WireModel):
    """One of the agents that work on messages."""

    name: str
    description: str
    model: str
    mode: AgentMode
    """How much it must ask when a message does not say."""
    widest_mode: AgentMode
    """The most a message may choose."""
    tools: list[str]


class AgentList(WireModel):
    agents: list[AgentInfo]
    total_count: int


class Cancelled(WireModel):
    success: bool
    message: str
