"""Projects, sessions, messages and runs, as the API returns them."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StringConstraints

from .states import AgentMode, RunState
from .wire import Identifier, Name, Timestamp, WireModel

MAX_MESSAGE_CHARACTERS = 100_000
CHAT_AGENT = "chat"
"""The built-in agent; works on messages that name no agent."""


class ProjectBody(WireModel):
    name: Name
    if_none: StrictBool = False
    """Create only if the user has no project; otherwise return the oldest. Concurrent requests get the same one."""


class Project(WireModel):
    project_id: str
    name: str
    created_at: Timestamp


class ProjectList(WireModel):
    projects: list[Project]
    total_count: int


class MessageBody(WireModel):
    content: str = Field(
        min_length=1, max_length=MAX_MESSAGE_CHARACTERS, json_schema_extra={"pattern": r"^[^\u0000]*$"}
    )
    session_id: Identifier | None = None
    """Omit to open a new session."""
    mode: AgentMode | None = None
    """Approval mode of this run; defaults to the agent's mode, never wider than its widest."""
    agent: Identifier | None = None
    """Agent of the project that works on the message; defaults to `chat`."""
    model: Annotated[str, StringConstraints(min_length=1, max_length=300)] | None = None
    """One of the agent's `models`; defaults to that of its run before in the conversation, else to the first."""
    client_key: Identifier | None = None
    """Idempotency key of the sender. A repeated message gets the first answer and is neither stored nor worked on
    twice; another message with the same key is a conflict.
    """


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
    """Number of messages returned."""
    more: bool = False
    """True if there are older messages; pass the first message's id as `before` to get them."""


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
    model: str | None = None
    """Model that was chosen for it; null for the agent's usual one."""
    error: str | None
    """Why it failed; null if it did not, or a person stopped it."""
    created_at: Timestamp
    updated_at: Timestamp


class RunList(WireModel):
    runs: list[Run]
    """Newest first."""
    total_count: int
    """Number of runs returned."""


class AgentInfo(WireModel):
    """An agent that works on messages."""

    name: str
    description: str
    model: str
    models: list[str] = Field(default_factory=list[str])
    """Models a message may choose, the usual one first."""
    mode: AgentMode
    """Default approval mode of a message."""
    widest_mode: AgentMode
    """Widest mode a message may choose."""
    tools: list[str]


class AgentList(WireModel):
    agents: list[AgentInfo]
    total_count: int


class Cancelled(WireModel):
    success: bool
    message: str
