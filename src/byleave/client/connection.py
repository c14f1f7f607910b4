"""The client's connection: read the feed, pass events to the handler, reconnect when it breaks.

On each connection it declares this machine's rules, sends undelivered results, and takes the pending questions from
the server's list. If the server itself rejects the token, finds a scope missing or does not know the project, the
connection ends with a clear error, because a retry would not help; so it does when another client with the same
identity has connected since, and then the next start is a new client. Everything else is retried, with growing pauses.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, Self

from byleave.descriptors import raise_limit
from byleave.policy_files import LoadedPolicy, load_policy, machine_gate
from byleave.protocol.changes import UndoPlan
from byleave.protocol.errors import (
    ByleaveError,
    ConfigurationError,
    ConflictError,
    NotFound,
    UnreachableError,
)
from byleave.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    ExecutionCancelSignal,
    ExecutionSignal,
    FeedEvent,
    InspectionRequested,
    ResultAcknowledged,
    SessionUndoRequested,
    UndoRequested,
)
from byleave.protocol.generation import SUPERSEDED
from byleave.protocol.overview import PolicyDeclaration
from byleave.settings import ClientSettings
from byleave.workspace.workspace import Workspace

from .api import Frame, ServerApi
from .approvals import ApprovalPrompt
from .handler import ExecutionObserver, ToolHandler
from .identity import TOKEN_HINT, client_directory, forget_identity, load_token, open_identity
from .journal import Journal
from .log import log
from .tasks import cancel, pause
from .undo import Undoer, UndoIntents

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 15.0
GOOD_SECONDS = 5.0
"""A connection that lasted this long, or brought an event, was good: the pauses start small again."""

OnEvent = Callable[[int, FeedEvent], None]
OnConnection = Callable[[UnreachableError | None], None]
"""Called with None when the feed opens, and with the error when it could not be opened or broke."""


@dataclass(eq=False, kw_only=True)
class ClientConnection:
    """A workspace connected to a project of a server."""

    project_id: str
    workspace: Workspace
    api: ServerApi
    handler: ToolHandler
    journal: Journal
    rules: LoadedPolicy
    """This machine's rules, as read at the start."""
    interactive: bool
    on_event: OnEvent | None
    on_connection: OnConnection | None
    on_undone: InitVar[Callable[[UndoPlan, str], None] | None]
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the feed is open."""
    _last_event_id: int | None = None
    _failures: int = 0
    _catch_up_task: asyncio.Task[None] | None = None
    _preparing: asyncio.Task[None] | None = None

    def __post_init__(self, on_undone: Callable[[UndoPlan, str], None] | None) -> None:
        self.undoer = Undoer(
            project_id=self.project_id,
            client_id=self.client_id,
            desk=self.workspace.undoing,
            link=self.api,
            forget=self.handler.forget_reads,
            intents=UndoIntents(self.journal.directory),
            on_done=on_undone,
        )

    @property
    def client_id(self) -> str:
        return self.api.client_id or ""

    @property
    def unsent(self) -> int:
        """Results that the server has not received."""
        return len(self.journal.unsent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self) -> None:
        """Serve until cancelled. Raise errors that a retry cannot fix."""
        isolation = await asyncio.to_thread(lambda: self.workspace.isolation)
        self._preparing = asyncio.create_task(asyncio.to_thread(self.workspace.prepare))
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._serve(isolation.backend)
                log.info("stream ended by the server", server=self.api.server_url)
                self._tell(UnreachableError("The server ended the connection."))
            except UnreachableError as error:
                log.warning("not connected", error=error.message)
                self._tell(error)
            except ConflictError as error:
                if error.state != SUPERSEDED:
                    raise
                # Not to come back with it: two that start by themselves would take it from each other for ever.
                forget_identity(self.journal.directory)
                raise ConfigurationError(
                    error.message, hint="start it again: it then comes as a new client, and both can be connected"
                ) from error
            finally:
                self.connected.clear()
            if loop.time() - began > GOOD_SECONDS:
                self._failures = 0
            seconds = pause(self._failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            self._failures += 1
            log.debug("reconnecting", seconds=round(seconds, 2))
            await asyncio.sleep(seconds)

    def _tell(self, problem: UnreachableError | None) -> None:
        if self.on_connection is not None:
            self.on_connection(problem)

    async def close(self) -> None:
        """Stop everything that runs for this connection, in order."""
        self.connected.clear()
        await cancel(self._catch_up_task)
        await self.undoer.close()
        await self.handler.dispose()
        await self.api.close()
        if self._preparing is not None:
            await asyncio.gather(self._preparing, return_exceptions=True)
        await self.workspace.close()
        self.journal.close()

    async def _serve(self, backend: str) -> None:
        await self._declare()
        stream = self.api.stream(
            self.project_id,
            self._last_event_id,
            executes=True,
            workspace=str(self.workspace.root),
            isolation=backend,
            on_bad_frame=self._bad_frame,
        )
        async with stream:
            if stream.server_time is not None:
                self.handler.set_server_time(stream.server_time)
            self.connected.set()
            self._tell(None)
            log.info("connected", server=self.api.server_url, project=self.project_id, again=self._failures > 0)
            await cancel(self._catch_up_task)
            self._catch_up_task = asyncio.create_task(self._catch_up())
            async for number, event in stream:
                self._failures = 0
                self._dispatch(event)
                self._last_event_id = number
                if self.on_event is not None:
                    self.on_event(number, event)

    async def _declare(self) -> None:
        """Declare the rules on each connection, even if there are none: earlier declarations must not persist."""
        declaration = PolicyDeclaration(client_id=self.client_id, layers=self.rules.texts, unable=self.workspace.unable)
        try:
            await self.api.declare_policy(self.project_id, declaration)
        except NotFound:
            # An unknown project fails the same way right after, on the feed.
            log.warning("the server accepts no machine rules; they still apply here")

    def _dispatch(self, event: FeedEvent) -> None:
        match event:
            case ExecutionSignal():
                self.handler.handle_tool_execution_signal(event)
            case ResultAcknowledged():
                self.handler.handle_tool_result_ack(event)
            case ExecutionCancelSignal():
                self.handler.handle_tool_cancel_signal(event)
            case UndoRequested() | SessionUndoRequested():
                self.undoer.request(event, server_ahead=self.handler.server_ahead)
            case InspectionRequested():
                self.handler.handle_tool_inspection_request(event)
            case ApprovalRequested():
                self.handler.handle_tool_approval_request(event)
            case ApprovalDecided():
                self.handler.handle_tool_approval_decided(event)
            case _:
                pass

    async def _catch_up(self) -> None:
        """Deliver unsent results, and fetch the pending questions."""
        try:
            await self.handler.outbox.resend()
            self.handler.approvals.resend()
            await self.undoer.resend()
            if self.interactive:
                known = self.handler.pending_approvals
                waiting = (await self.api.approvals()).approvals
                self.handler.approvals.settle(waiting, known=known, server_ahead=self.handler.server_ahead)
        except ByleaveError as error:
            log.warning("could not catch up", error=error.message)

    def _bad_frame(self, frame: Frame) -> None:
        """Fail a signal that cannot be read at once, instead of at its deadline: it is still somebody's call."""
        if frame.event != "tool.execution_signal":
            return
        try:
            value: Any = json.loads(frame.data)
        except ValueError:
            return
        match value:
            case {"tool_id": str(tool_id), "client_id": self.client_id}:
                self.handler.handle_unreadable_signal(tool_id)
            case _:
                pass


def connect_client(
    settings: ClientSettings,
    project_id: str,
    workspace_dir: str | Path,
    prompt: ApprovalPrompt | None = None,
    *,
    on_event: OnEvent | None = None,
    on_connection: OnConnection | None = None,
    on_undone: Callable[[UndoPlan, str], None] | None = None,
    observer: ExecutionObserver | None = None,
) -> ClientConnection:
    """Build a client from settings. Call it inside a running loop, and close the result."""
    token = settings.token.get_secret_value() if settings.token is not None else load_token(settings.home)
    if not token:
        raise ConfigurationError("There is no token.", hint=f"set BYLEAVE_TOKEN, or {TOKEN_HINT}")
    raise_limit()
    rules = load_policy(settings, workspace_dir)
    journal = Journal(client_directory(settings.home, settings.server_url, project_id, Path(workspace_dir).resolve()))
    try:
        identity = open_identity(journal.directory)
        api = ServerApi(
            settings.server_url,
            token,
            client_id=identity.client_id,
            key=identity.key,
            generation=journal.generation,
        )
        workspace = Workspace(workspace_dir, settings)
    except BaseException:
        journal.close()
        raise
    handler = ToolHandler(
        settings=settings,
        project_id=project_id,
        client_id=identity.client_id,
        workspace=workspace,
        gate=machine_gate(settings, rules),
        journal=journal,
        link=api,
        prompt=prompt,
        observer=observer,
    )
    return ClientConnection(
        project_id=project_id,
        workspace=workspace,
        api=api,
        handler=handler,
        journal=journal,
        rules=rules,
        interactive=prompt is not None,
        on_event=on_event,
        on_connection=on_connection,
        on_undone=on_undone,
    )
