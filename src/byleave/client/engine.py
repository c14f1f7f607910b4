"""The client as an editor's engine: `byleave connect --stdio`, driven by the messages of `protocol.engine`.

It connects to the server itself, executes, records and undoes as `byleave connect` does in a terminal, and tells the
editor what happens. Requests of the editor's chat go to the server with the token from here, so that the token and
the proof of who the server is have one keeper. It asks nobody: questions are the editor's. It never takes a token or a
server from the command line or the environment.
"""

import asyncio
import contextlib
import json
import os
import platform
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, cast

from pydantic import SecretStr, ValidationError

from byleave.gate import mask_value, shown_params
from byleave.protocol import engine as messages
from byleave.protocol.changes import UndoBody, UndoPlan
from byleave.protocol.engine import ENGINE_PROTOCOL, REQUESTS
from byleave.protocol.errors import (
    ByleaveError,
    CallerError,
    ConfigurationError,
    ExecutionCancelled,
    NotFound,
    SignedOut,
    UnreachableError,
    refusal_of_system,
)
from byleave.protocol.events import ExecutionSignal, ResultAcknowledged
from byleave.protocol.executions import ClientResult
from byleave.protocol.sign_in import ExchangedToken
from byleave.protocol.wire import WireModel, now
from byleave.settings import ClientSettings
from byleave.workspace.commands.operands import DryRun
from byleave.workspace.undo.desk import named

from .api import ServerApi
from .connection import ClientConnection, connect_client
from .handler import ExecutionObserver
from .identity import exchange_link
from .local_calls import run_here
from .log import log
from .outbox import Stream
from .stdio import Channel, InvalidParams, MethodNotFound

MAX_FEEDS = 16
UNRECORDED = "Undone. The server could not be told, so its record does not have it."
NOTHING_TO_UNDO = "Nothing to do: everything is already as it was before this call."
BROUGHT_BACK = "Brought back: it is as it was before the undo."

ReadSettings = Callable[..., ClientSettings]
"""The settings of this machine, with what an editor says before them."""


class Engine:
    """One editor's engine: at most one server and one workspace at a time."""

    def __init__(self, channel: Channel, read_settings: ReadSettings) -> None:
        self._channel = channel
        self._read_settings = read_settings
        self._methods: dict[str, Callable[[Any], Awaitable[WireModel]]] = {
            "initialize": self._initialize,
            "shutdown": self._shutdown,
            "server/exchange": self._exchange,
            "server/try": self._try_server,
            "server/use": self._use_server,
            "server/forget": self._forget_server,
            "server/request": self._request,
            "server/openFeed": self._open_feed,
            "server/closeFeed": self._close_feed,
            "workspace/connect": self._connect,
            "workspace/disconnect": self._disconnect,
            "tool/run": self._run_tool,
            "path/resolve": self._resolve_path,
            "undo/list": self._list_changes,
            "undo/before": self._text_before,
            "undo/preview": self._preview_undo,
            "undo/carryOut": self._carry_out,
            "undo/bringBack": self._bring_back,
            "diagnostics": self._diagnose,
        }
        self._initialized = False
        self._stop = asyncio.Event()
        self._api: ServerApi | None = None
        self._token: str = ""
        self._feeds: dict[int, asyncio.Task[None]] = {}
        self._changing = asyncio.Lock()
        """One change of server or workspace at a time."""
        self._connection: ClientConnection | None = None
        self._running: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._own_calls: set[asyncio.Task[Any]] = set()
        """Tools that the editor runs itself."""
        self._state = "none"
        self._isolation: messages.IsolationFound | None = None
        self._undoing: dict[str, str | None] = {}
        """Calls whose undo this editor asked the server for, and under which id it was carried out here."""

    async def run(self) -> None:
        """Serve the editor until it goes away, asks for the end, or this process is told to stop."""
        serving = asyncio.create_task(self._channel.serve(self._handle))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # raises what made the conversation impossible
        finally:
            for task in (serving, stopping):
                task.cancel()
            await asyncio.gather(serving, stopping, return_exceptions=True)
            await self._leave_workspace()
            await self._leave_server()

    def stop(self) -> None:
        """End in order, soon."""
        self._stop.set()

    async def _handle(self, method: str, params: Any) -> Any:
        act = self._methods.get(method)
        if act is None:
            raise MethodNotFound(f"The engine has no method {method[:100]!r}.")
        if not self._initialized and method != "initialize":
            raise CallerError("The first request must be `initialize`.")
        try:
            asked = REQUESTS[method][0].model_validate(params if params is not None else {})
        except ValidationError as error:
            # Without what was sent: it may hold a token.
            wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in wrong["loc"])
            raise InvalidParams(f"{method}: {where}: {wrong['msg']}.") from None
        return (await act(asked)).model_dump(mode="json")

    def _tell(self, method: str, word: WireModel) -> None:
        self._channel.notify(method, word.model_dump(mode="json"))

    # Starting and ending

    async def _initialize(self, asked: messages.Initialize) -> WireModel:
        if asked.protocol != ENGINE_PROTOCOL:
            raise ConfigurationError(
                f"Byleave {version('byleave')} speaks engine protocol {ENGINE_PROTOCOL}, not {asked.protocol}.",
                hint="install the version that belongs to the editor's extension",
            )
        self._initialized = True
        home = self._read_settings().home
        log.info("engine started", editor=asked.editor)
        return messages.Initialized(protocol=ENGINE_PROTOCOL, version=version("byleave"), home=str(home))

    async def _shutdown(self, _: messages.Nothing) -> WireModel:
        await self._leave_workspace()
        asyncio.get_running_loop().call_soon(self.stop)
        return messages.Nothing()

    # The server

    async def _exchange(self, asked: messages.ExchangeLink) -> ExchangedToken:
        return await exchange_link(asked.server_url, asked.code)

    async def _try_server(self, asked: messages.UseServer) -> WireModel:
        """Whose token it is, as the server says; nothing else changes."""
        async with ServerApi(asked.server_url, asked.token) as api:
            return await _answer(api, "GET", "/my/me", None)

    async def _use_server(self, asked: messages.UseServer) -> WireModel:
        async with self._changing:
            api = ServerApi(asked.server_url, asked.token)  # raises where either makes no sense: then nothing changes
            await self._leave_workspace()
            await self._leave_server()
            self._api, self._token = api, asked.token
        return messages.Nothing()

    async def _forget_server(self, _: messages.Nothing) -> WireModel:
        async with self._changing:
            await self._leave_workspace()
            await self._leave_server()
        return messages.Nothing()

    async def _leave_server(self) -> None:
        feeds = [*self._feeds.values()]
        self._feeds.clear()
        for task in feeds:
            task.cancel()
        await asyncio.gather(*feeds, return_exceptions=True)
        api, self._api, self._token = self._api, None, ""
        if api is not None:
            await api.close()

    @property
    def _server(self) -> ServerApi:
        if self._api is None:
            raise CallerError("There is no server yet: `server/use` names it.")
        return self._api

    async def _request(self, asked: messages.ServerRequest) -> WireModel:
        data = None if asked.method == "GET" else json.dumps(asked.body or {}).encode()
        return await _answer(self._server, asked.method, asked.path, data)

    async def _open_feed(self, asked: messages.OpenFeed) -> WireModel:
        if asked.feed in self._feeds or len(self._feeds) >= MAX_FEEDS:
            raise CallerError("This feed is open already, or too many are.")
        self._feeds[asked.feed] = asyncio.create_task(self._read_feed(self._server, asked))
        return messages.Nothing()

    async def _close_feed(self, asked: messages.FeedRef) -> WireModel:
        task = self._feeds.pop(asked.feed, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return messages.Nothing()

    async def _read_feed(self, api: ServerApi, asked: messages.OpenFeed) -> None:
        number = asked.feed
        stream = api.feed_at(asked.path, asked.last_event_id)
        try:
            async with stream:
                self._tell("server/feedOpened", messages.FeedRef(feed=number))
                async for frame in stream.frames():
                    data = frame.data.decode("utf-8", "replace")
                    told = messages.FeedFrame(feed=number, id=frame.id, event=frame.event, data=data)
                    self._tell("server/feedFrame", told)
                    await self._channel.drain()
        except asyncio.CancelledError:
            raise  # it was closed from there: nobody listens
        except Exception as error:  # noqa: BLE001 - a boundary: whatever a server sends, the editor hears that it is over
            log.debug("feed closed", error=type(error).__name__)
        self._feeds.pop(number, None)
        status = 0 if stream.status == 200 else stream.status
        self._tell("server/feedClosed", messages.FeedClosed(feed=number, status=status))

    # The workspace

    async def _connect(self, asked: messages.ConnectWorkspace) -> WireModel:
        async with self._changing:
            server = self._server
            if not os.path.isabs(asked.workspace):
                raise CallerError(f"The workspace {asked.workspace!r} is no absolute path.")
            await self._leave_workspace()
            settings = self._read_settings(
                server_url=server.server_url,
                token=SecretStr(self._token),
                **asked.settings.model_dump(exclude_none=True),
            )
            self._connection = connection = connect_client(
                settings,
                asked.project_id,
                asked.workspace,
                on_connection=self._on_connection,
                on_undone=self._on_undone,
                observer=_Told(self._tell, self._channel),
            )
            self._running = asyncio.create_task(self._stay(connection))
        return messages.WorkspaceConnected(
            client_id=connection.client_id, workspace=str(connection.workspace.root), rules=connection.rules.summary
        )

    async def _disconnect(self, _: messages.Nothing) -> WireModel:
        async with self._changing:
            await self._leave_workspace()
        return messages.Nothing()

    async def _leave_workspace(self) -> None:
        """End what runs there, the whole tree of it, and report it; also when whoever asked for it goes away."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._close_workspace())
            self._leaving.add_done_callback(lambda _: setattr(self, "_leaving", None))
        await asyncio.shield(self._leaving)

    async def _close_workspace(self) -> None:
        connection, self._connection = self._connection, None
        running, self._running = self._running, None
        ending = [*self._own_calls, *([] if running is None else [running])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if connection is not None:
            await connection.close()
        self._state, self._isolation = "none", None

    async def _stay(self, connection: ClientConnection) -> None:
        """Serve the workspace; what trying again cannot mend is told."""
        try:
            found = await asyncio.to_thread(lambda: connection.workspace.isolation)
            warnings = [*found.degraded]
            self._isolation = messages.IsolationFound(isolated=found.isolated, backend=found.backend, warnings=warnings)
            self._tell("isolation/found", self._isolation)
            await connection.run()
        except ByleaveError as error:
            self._end(error.message, error.hint, signed_out=isinstance(error, SignedOut))
        except OSError as error:
            refusal = refusal_of_system(error)
            self._end(refusal.message, refusal.hint)
        except Exception as error:  # noqa: BLE001 - a boundary: the editor hears of it, whatever goes wrong
            log.error("the connection failed unexpectedly", exc_info=error)
            self._end(f"The engine failed with {type(error).__name__}.", "its log says more")

    def _end(self, message: str, hint: str | None, *, signed_out: bool = False) -> None:
        self._state = "ended"
        log.error("not connected any more", error=message)
        self._tell(
            "connection/changed",
            messages.ConnectionChanged(state="ended", message=message, hint=hint, signed_out=signed_out),
        )

    def _on_connection(self, problem: UnreachableError | None) -> None:
        self._state = "connected" if problem is None else "lost"
        told = messages.ConnectionChanged(state="connected")
        if problem is not None:
            told = messages.ConnectionChanged(state="lost", message=problem.message, hint=problem.hint)
        self._tell("connection/changed", told)

    @property
    def _connected(self) -> ClientConnection:
        if self._connection is None:
            raise CallerError("There is no workspace yet: `workspace/connect` opens it.")
        return self._connection

    # The editor's own hands

    async def _run_tool(self, asked: messages.RunTool) -> WireModel:
        connection = self._connected
        call = asyncio.create_task(
            run_here(connection.handler.gate, connection.workspace, asked.tool_name, asked.tool_params)
        )
        self._own_calls.add(call)
        try:
            return messages.RanTool(result=mask_value(await call))
        except asyncio.CancelledError:
            if not call.cancelled():
                call.cancel()  # the editor went away
                raise
            raise ExecutionCancelled("The folder was left while this ran; part of its effect may remain.") from None
        finally:
            self._own_calls.discard(call)
            connection.handler.forget_reads()

    async def _resolve_path(self, asked: messages.ResolvePath) -> WireModel:
        connection = self._connected
        return await asyncio.to_thread(_resolved, connection, asked.path)

    # Undo

    async def _list_changes(self, _: messages.Nothing) -> WireModel:
        return await asyncio.to_thread(self._connected.workspace.undoing.changes)

    async def _text_before(self, asked: messages.FileBefore) -> WireModel:
        return await asyncio.to_thread(self._connected.workspace.undoing.before, asked.tool_id, asked.path)

    async def _preview_undo(self, asked: messages.CallRef) -> WireModel:
        """Through the server while it is there, so that its rules count; else as this machine sees it."""
        connection = self._connected
        if self._state == "connected":
            with contextlib.suppress(UnreachableError, NotFound):
                return await connection.api.undo_plan(asked.tool_id)
        return await asyncio.to_thread(connection.workspace.undoing.look, asked.tool_id)

    async def _carry_out(self, asked: messages.CarryOut) -> WireModel:
        connection = self._connected
        self._undoing[asked.tool_id] = None
        try:
            if self._state == "connected":
                with contextlib.suppress(UnreachableError, NotFound):
                    body = UndoBody(plan=asked.plan, partial=asked.partial)
                    answer = await connection.api.undo(asked.tool_id, body)
                    return messages.Undone(
                        message=answer.message, undo_id=answer.undo_id or self._undoing[asked.tool_id]
                    )
            return await self._carry_out_here(connection, asked)
        except ByleaveError:
            # The answer was lost, or came too late; it was done all the same.
            done = self._undoing[asked.tool_id]
            if done is None:
                raise
            return messages.Undone(message="Undone.", undo_id=done)
        finally:
            del self._undoing[asked.tool_id]

    async def _carry_out_here(self, connection: ClientConnection, asked: messages.CarryOut) -> messages.Undone:
        _, undo_id = await self._undo_here(connection, asked.tool_id, asked.plan, partial=asked.partial)
        return messages.Undone(message=NOTHING_TO_UNDO if undo_id is None else UNRECORDED, undo_id=undo_id)

    async def _bring_back(self, asked: messages.CallRef) -> WireModel:
        """Undo an undo. Only this machine knows of it."""
        connection = self._connected
        plan = await asyncio.to_thread(connection.workspace.undoing.look, asked.tool_id)
        if plan.conflicts:
            raise CallerError(f"Nothing was brought back: {named(plan.conflicts)} changed since the undo.")
        _, undo_id = await self._undo_here(connection, asked.tool_id, plan.plan, partial=False)
        return messages.Undone(message=BROUGHT_BACK, undo_id=undo_id)

    async def _undo_here(
        self, connection: ClientConnection, tool_id: str, plan: str, *, partial: bool
    ) -> tuple[UndoPlan, str | None]:
        desk = connection.workspace.undoing
        connection.handler.forget_reads()
        try:
            return await asyncio.to_thread(desk.carry_out, tool_id, plan, partial=partial, wanted=lambda: True)
        finally:
            connection.handler.forget_reads()

    def _on_undone(self, plan: UndoPlan, undo_id: str) -> None:
        if plan.tool_id in self._undoing:
            self._undoing[plan.tool_id] = undo_id  # asked for here: the answer tells it
            return
        paths = [file.path for file in plan.files]
        self._tell("undo/done", messages.UndoneElsewhere(tool_id=plan.tool_id, undo_id=undo_id, paths=paths))

    # For whoever looks for a fault

    async def _diagnose(self, _: messages.Nothing) -> WireModel:
        connection = self._connection
        handler = None if connection is None else connection.handler
        return messages.Diagnosis(
            version=version("byleave"),
            python=platform.python_version(),
            system=platform.platform(),
            home=str(self._read_settings().home),
            server_url=None if self._api is None else self._api.server_url,
            workspace=None if connection is None else str(connection.workspace.root),
            connection=self._state,
            isolation=self._isolation,
            running=[] if handler is None else [one.event.tool_id for one in handler.active],
            queued=[] if handler is None else [event.tool_id for event in handler.queued],
            unsent=0 if connection is None else connection.unsent,
            # How calls ended, not what they read: this is made to be sent to somebody.
            history=[]
            if handler is None
            else [_masked(one).model_copy(update={"result": None}) for one in handler.history[-20:]],
        )


class _Told(ExecutionObserver):
    """Tells the editor of executions, with secrets masked."""

    def __init__(self, tell: Callable[[str, WireModel], None], channel: Channel) -> None:
        self._tell = tell
        self._channel = channel

    def started(self, event: ExecutionSignal) -> None:
        params = shown_params(event.tool_name, event.tool_params)
        if "content" in params:
            params = {**params, "content": "(left out)"}
        self._tell(
            "execution/started",
            messages.ExecutionStarted(
                tool_id=event.tool_id,
                tool_name=event.tool_name,
                tool_params=params,
                approved_by=event.approved_by,
                timestamp=now(),
            ),
        )

    def output(self, tool_id: str, stream: Stream, text: str) -> None:
        if self._channel.crowded:
            return  # the result has it all
        self._tell("execution/output", messages.ExecutionOutput(tool_id=tool_id, stream=stream, text=text))

    def ended(self, result: ClientResult) -> None:
        self._tell("execution/ended", _masked(result))

    def acknowledged(self, event: ResultAcknowledged) -> None:
        told = messages.ExecutionAcknowledged(tool_id=event.tool_id, status=event.status)
        self._tell("execution/acknowledged", told)


def _masked(result: ClientResult) -> ClientResult:
    return result.model_copy(update={"result": mask_value(result.result), "error": mask_value(result.error)})


def _resolved(connection: ClientConnection, path: str) -> messages.ResolvedPath:
    """The real place of a path that a tool may read; the gate and the disk both have their say."""
    root = str(connection.workspace.root)
    judgement = connection.handler.gate.judge("read_file", {"path": path}, workspace=root)
    if judgement.verdict.refused or judgement.params is None:
        return messages.ResolvedPath(valid=False, error=judgement.verdict.message)
    with DryRun(root) as disk:
        refusal = disk.refusal("read_file", judgement.params)
        if refusal is not None:
            return messages.ResolvedPath(valid=False, error=refusal.message)
        real = str(disk.under_real_names(judgement.params)["path"])
    return messages.ResolvedPath(valid=True, real_path=os.path.normpath(os.path.join(root, real)))


async def _answer(api: ServerApi, method: str, path: str, data: bytes | None) -> messages.ServerAnswer:
    try:
        status, body, date = await api.ask(method, path, data)
    except ConfigurationError as error:
        # It is there, and it is not the one: an answer of its own, so that a person is told.
        told = {"detail": error.message, "hint": error.hint, "state": "unproven"}
        return messages.ServerAnswer(status=421, body=told, server_time=None)
    time = None if date is None else round(date.timestamp() * 1000)
    return messages.ServerAnswer(status=status, body=_object(body), server_time=time)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None  # a proxy's page in between: the status says enough
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
