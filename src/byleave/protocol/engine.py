"""Messages between an editor and its engine (`byleave connect --stdio`): JSON-RPC 2.0 on stdin and stdout.

`REQUESTS` and `NOTIFICATIONS` are the whole protocol; docs/engine.md describes it for authors of editor extensions.
The token is passed only here: never on a command line, never in the environment.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from .changes import ChangeKind, UndoPlan
from .executions import ClientResult
from .sign_in import ExchangedToken
from .states import ExecutionStatus
from .wire import Identifier, JsonObject, Timestamp, WireModel

ENGINE_PROTOCOL = 1
"""Incremented with every change that an older editor would not understand."""
MAX_LISTED_CHANGES = 200

ServerUrl = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
ServerPath = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^/my/[!-~]*$")]
FeedNumber = Annotated[int, Field(ge=0, le=2**53)]


class Nothing(WireModel):
    """Empty parameters, or an empty result."""


# Starting


class Initialize(WireModel):
    """First request: the editor, and its protocol version."""

    protocol: int
    editor: Annotated[str, StringConstraints(max_length=200)] = ""


class Initialized(WireModel):
    """Answer of the engine."""

    protocol: int
    version: str
    home: str
    """Directory of its state; `byleave undo` in a terminal uses the same."""


# The server


class ExchangeLink(WireModel):
    """Exchange the code of a one-time link for a token."""

    server_url: ServerUrl
    code: Annotated[str, StringConstraints(pattern=r"^[\w-]{1,200}$")]


class UseServer(WireModel):
    """Server and token of all further requests and connections."""

    server_url: ServerUrl
    token: Annotated[str, StringConstraints(min_length=1, max_length=64 * 1024)]


class ServerRequest(WireModel):
    """A request to the server, with the token."""

    method: Literal["GET", "POST"]
    path: ServerPath
    body: JsonObject | None = None


class ServerAnswer(WireModel):
    """Answer of the server. Status 421: the other side did not prove that it is the server, so it got no token."""

    status: int
    body: JsonObject | None
    server_time: int | None
    """Server time in milliseconds since 1970."""


class OpenFeed(WireModel):
    """Open an event stream. Its frames follow as notifications, under a number the editor chose."""

    feed: FeedNumber
    path: ServerPath
    last_event_id: Annotated[str, StringConstraints(pattern=r"^\d{1,20}$")] | None = None


class FeedRef(WireModel):
    """Number of a stream."""

    feed: FeedNumber


class FeedFrame(WireModel):
    """An event of a stream."""

    feed: FeedNumber
    id: str | None
    event: str
    data: str


class FeedClosed(WireModel):
    """End of a stream. `status` is the server's refusal, or 0 if it was unreachable or the connection broke."""

    feed: FeedNumber
    status: int


# The workspace


class WorkspaceSettings(WireModel):
    """Settings of the editor; missing ones default as in the terminal."""

    command_timeout_seconds: int | None = None
    max_file_bytes: int | None = None
    concurrency: int | None = None
    approval_timeout_seconds: int | None = None
    cache_enabled: bool | None = None
    cache_seconds: float | None = None
    sandbox: str | None = None
    search_provider: str | None = None
    searxng_url: str | None = None
    tavily_url: str | None = None
    tavily_api_key: str | None = None
    brave_url: str | None = None
    brave_api_key: str | None = None
    search_allow_private: bool | None = None


class ConnectWorkspace(WireModel):
    """Execute a project's calls in a directory, with the server and token of `server/use`."""

    project_id: Identifier
    workspace: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    """An absolute path."""
    settings: WorkspaceSettings = WorkspaceSettings()


class WorkspaceConnected(WireModel):
    """The client that now executes."""

    client_id: str
    workspace: str
    """Its real path."""
    rules: str | None
    """The owner's rules in effect, in a sentence."""


class ConnectionChanged(WireModel):
    """State of the connection to the server."""

    state: Literal["connected", "lost", "ended"]
    """`lost` is retried automatically; `ended` is not."""
    message: str | None = None
    hint: str | None = None
    signed_out: bool = False
    """True if it ended because the token is no longer accepted."""


class IsolationFound(WireModel):
    """Isolation of the commands that run here."""

    isolated: bool
    backend: str
    warnings: list[str]


# Executions


class ExecutionStarted(WireModel):
    """A call began to run."""

    tool_id: str
    tool_name: str
    tool_params: JsonObject
    """Secrets are masked."""
    approved_by: str
    timestamp: Timestamp


class ExecutionOutput(WireModel):
    """Output of a running command, with secrets masked."""

    tool_id: str
    stream: Literal["stdout", "stderr"]
    text: str


class ExecutionAcknowledged(WireModel):
    """The server has the result."""

    tool_id: str
    status: ExecutionStatus


class RunTool(WireModel):
    """Run one tool now, as `byleave tool` does: without a question, but with the gate, the limits and the sandbox."""

    tool_name: Annotated[str, StringConstraints(max_length=100)]
    tool_params: JsonObject


class RanTool(WireModel):
    """Result of the tool: always with `success`, and with `error` on failure."""

    result: JsonObject


class ResolvePath(WireModel):
    """A path of the workspace, as written by a person or agent."""

    path: Annotated[str, StringConstraints(max_length=4096)]


class ResolvedPath(WireModel):
    """Real path, if a tool may read it."""

    valid: bool
    error: str | None = None
    real_path: str | None = None


# Undo


class CallRef(WireModel):
    """One call, or one undo, by its id."""

    tool_id: Identifier


class ChangedFile(WireModel):
    """A file that a call changed and that was not restored."""

    tool_id: str
    path: str
    kind: ChangeKind
    at: Timestamp
    interrupted: bool
    """Its undo began and did not end."""


class UndoneCall(WireModel):
    """An undone call that can be redone."""

    undo_id: str
    paths: list[str]
    at: Timestamp


class UndoList(WireModel):
    """Changes by agents in the workspace, newest first."""

    changes: list[ChangedFile]
    undone: list[UndoneCall]


class FileBefore(WireModel):
    """A file as it was before a call."""

    tool_id: Identifier
    path: Annotated[str, StringConstraints(max_length=4096)]


class TextBefore(WireModel):
    """Its content. `text` is null if there was no file, or if `shown` is false and it cannot be shown."""

    text: str | None
    shown: bool


class CarryOut(WireModel):
    """Undo a call as previewed."""

    tool_id: Identifier
    plan: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    partial: bool = False


class Undone(WireModel):
    """Outcome of an undo."""

    message: str
    undo_id: str | None
    """Id to redo it by; null if nothing changed."""


class UndoneElsewhere(WireModel):
    """A call was undone here by a request from the page or the chat."""

    tool_id: str
    undo_id: str
    paths: list[str]


# Diagnostics


class Diagnosis(WireModel):
    """State of the engine for a log or a bug report, without secrets."""

    version: str
    python: str
    system: str
    home: str
    server_url: str | None
    workspace: str | None
    connection: str
    isolation: IsolationFound | None
    running: list[str]
    queued: list[str]
    unsent: int
    """Results that the server has not received."""
    history: list[ClientResult]


REQUESTS: dict[str, tuple[type[WireModel], type[WireModel]]] = {
    "initialize": (Initialize, Initialized),
    "shutdown": (Nothing, Nothing),
    "server/exchange": (ExchangeLink, ExchangedToken),
    "server/try": (UseServer, ServerAnswer),
    "server/use": (UseServer, Nothing),
    "server/forget": (Nothing, Nothing),
    "server/request": (ServerRequest, ServerAnswer),
    "server/openFeed": (OpenFeed, Nothing),
    "server/closeFeed": (FeedRef, Nothing),
    "workspace/connect": (ConnectWorkspace, WorkspaceConnected),
    "workspace/disconnect": (Nothing, Nothing),
    "tool/run": (RunTool, RanTool),
    "path/resolve": (ResolvePath, ResolvedPath),
    "undo/list": (Nothing, UndoList),
    "undo/before": (FileBefore, TextBefore),
    "undo/preview": (CallRef, UndoPlan),
    "undo/carryOut": (CarryOut, Undone),
    "undo/bringBack": (CallRef, Undone),
    "diagnostics": (Nothing, Diagnosis),
}
"""Requests of the editor: parameters and result."""

NOTIFICATIONS: dict[str, type[WireModel]] = {
    "server/feedOpened": FeedRef,
    "server/feedFrame": FeedFrame,
    "server/feedClosed": FeedClosed,
    "connection/changed": ConnectionChanged,
    "isolation/found": IsolationFound,
    "execution/started": ExecutionStarted,
    "execution/output": ExecutionOutput,
    "execution/ended": ClientResult,
    "execution/acknowledged": ExecutionAcknowledged,
    "undo/done": UndoneElsewhere,
}
"""Notifications of the engine."""
