"""Messages between an editor and its engine (`byleave connect --stdio`), as JSON-RPC 2.0 on stdin and stdout.

`REQUESTS` and `NOTIFICATIONS` are the whole protocol; docs/engine.md describes it for whoever writes an editor's side.
The token travels here and nowhere else between the two: never on a command line, never in an environment.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from .changes import ChangeKind, UndoPlan
from .executions import ClientResult
from .sign_in import ExchangedToken
from .states import ExecutionStatus
from .wire import Identifier, JsonObject, Timestamp, WireModel

ENGINE_PROTOCOL = 1
"""Counts up with every change that an older editor would not understand."""
MAX_LISTED_CHANGES = 200

ServerUrl = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
ServerPath = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^/my/[!-~]*$")]
FeedNumber = Annotated[int, Field(ge=0, le=2**53)]


class Nothing(WireModel):
    """No parameters, or no answer but that it is done."""


# Starting


class Initialize(WireModel):
    """The first request: who starts the engine, and which protocol it speaks."""

    protocol: int
    editor: Annotated[str, StringConstraints(max_length=200)] = ""


class Initialized(WireModel):
    """The engine that answers."""

    protocol: int
    version: str
    home: str
    """Where it keeps its state; `byleave undo` in a terminal sees the same."""


# The server


class ExchangeLink(WireModel):
    """Exchange the code of a one-time link for a token."""

    server_url: ServerUrl
    code: Annotated[str, StringConstraints(pattern=r"^[\w-]{1,200}$")]


class UseServer(WireModel):
    """The server, and the token for it, that requests and connections use from now on."""

    server_url: ServerUrl
    token: Annotated[str, StringConstraints(min_length=1, max_length=64 * 1024)]


class ServerRequest(WireModel):
    """One request to the server with the token."""

    method: Literal["GET", "POST"]
    path: ServerPath
    body: JsonObject | None = None


class ServerAnswer(WireModel):
    """What the server answered. Status 421: what answers did not prove that it is the server, so it got no token."""

    status: int
    body: JsonObject | None
    server_time: int | None
    """The server's clock in milliseconds since 1970."""


class OpenFeed(WireModel):
    """Open one stream of events; its frames follow as notifications under the number the editor chose."""

    feed: FeedNumber
    path: ServerPath
    last_event_id: Annotated[str, StringConstraints(pattern=r"^\d{1,20}$")] | None = None


class FeedRef(WireModel):
    """One stream by its number."""

    feed: FeedNumber


class FeedFrame(WireModel):
    """One event of a stream."""

    feed: FeedNumber
    id: str | None
    event: str
    data: str


class FeedClosed(WireModel):
    """A stream ended. `status` when the server refused it, 0 when it could not be reached or broke off."""

    feed: FeedNumber
    status: int


# The workspace


class WorkspaceSettings(WireModel):
    """What a person set in the editor; what is left out is as in the terminal."""

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
    """The client that executes now."""

    client_id: str
    workspace: str
    """Its real path."""
    rules: str | None
    """The owner's rules that hold here, in a sentence."""


class ConnectionChanged(WireModel):
    """How the client that executes stands with the server."""

    state: Literal["connected", "lost", "ended"]
    """`lost` is tried again by itself; `ended` is not."""
    message: str | None = None
    hint: str | None = None
    signed_out: bool = False
    """It ended because the token is no longer taken."""


class IsolationFound(WireModel):
    """What holds the commands that run here."""

    isolated: bool
    backend: str
    warnings: list[str]


# Executions


class ExecutionStarted(WireModel):
    """A call began to run."""

    tool_id: str
    tool_name: str
    tool_params: JsonObject
    """With secrets masked."""
    approved_by: str
    timestamp: Timestamp


class ExecutionOutput(WireModel):
    """A piece of what a command prints, with secrets masked."""

    tool_id: str
    stream: Literal["stdout", "stderr"]
    text: str


class ExecutionAcknowledged(WireModel):
    """The server has the result."""

    tool_id: str
    status: ExecutionStatus


class RunTool(WireModel):
    """Run one tool here and now, as `byleave tool` does: no question, but the gate, the bounds and the sandbox hold."""

    tool_name: Annotated[str, StringConstraints(max_length=100)]
    tool_params: JsonObject


class RanTool(WireModel):
    """Its result: always `success`, and `error` on failure."""

    result: JsonObject


class ResolvePath(WireModel):
    """A path of the workspace, as somebody wrote it."""

    path: Annotated[str, StringConstraints(max_length=4096)]


class ResolvedPath(WireModel):
    """Its real place, if it is one that a tool may read."""

    valid: bool
    error: str | None = None
    real_path: str | None = None


# Undo


class CallRef(WireModel):
    """One call, or one undo, by its id."""

    tool_id: Identifier


class ChangedFile(WireModel):
    """A file that a call changed and nobody took back."""

    tool_id: str
    path: str
    kind: ChangeKind
    at: Timestamp
    interrupted: bool
    """Its undo began and did not end."""


class UndoneCall(WireModel):
    """A call that was undone and can be brought back."""

    undo_id: str
    paths: list[str]
    at: Timestamp


class UndoList(WireModel):
    """What agents changed in the workspace, newest first."""

    changes: list[ChangedFile]
    undone: list[UndoneCall]


class FileBefore(WireModel):
    """A file as a call found it."""

    tool_id: Identifier
    path: Annotated[str, StringConstraints(max_length=4096)]


class TextBefore(WireModel):
    """What it held: `text` is null where there was no file, or where `shown` is false and it cannot be shown."""

    text: str | None
    shown: bool


class CarryOut(WireModel):
    """Undo a call as the preview showed it."""

    tool_id: Identifier
    plan: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    partial: bool = False


class Undone(WireModel):
    """How an undo ended."""

    message: str
    undo_id: str | None
    """Under this id it can be brought back; null where nothing changed."""


class UndoneElsewhere(WireModel):
    """A call was undone here because somebody asked for it on the page or in the chat."""

    tool_id: str
    undo_id: str
    paths: list[str]


# What a person who looks for a fault wants to know


class Diagnosis(WireModel):
    """The engine as it stands: facts for a log or a report, without secrets."""

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
    """Results that the server does not have yet."""
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
"""Requests of the editor, with what they take and answer."""

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
