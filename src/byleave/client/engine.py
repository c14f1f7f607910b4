"""The client as an editor's engine: `byleave connect --stdio`, driven by `protocol.engine`.

It connects, executes, records and undoes as `byleave connect` does in a terminal, and notifies the editor. It also
sends the requests of the editor's chat, so that one process holds the token and checks the server's proof. It asks
nobody: the editor shows the questions. It never takes a token or a server from the command line or the environment.

`Channel` is JSON-RPC 2.0 on a pair of pipes, framed by `Content-Length` as in language servers. A message without
Content-Length ends the conversation: nobody could tell where the next one begins.
"""

import asyncio
import contextlib
import json
import logging
import os
import platform
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
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
from .tasks import Tasks, cancel

MAX_HEADER_BYTES = 4096
MAX_BODY_BYTES = 256 * 1024 * 1024
CROWDED_BYTES = 8 * 1024 * 1024
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
FAILED = -32000
"""A `ByleaveError`: `data` holds its class name and hint."""

Handler = Callable[[str, Any], Awaitable[Any]]

_END = object()


class MethodNotFound(CallerError):
    """Request for an unknown method."""


class InvalidParams(CallerError):
    """Request with malformed parameters."""


class Channel:
    """Conversation with the parent process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._tasks = Tasks()
        self._gone = False

    async def serve(self, handle: Handler) -> None:
        """Answer requests until the other end closes; then cancel unfinished ones."""
        try:
            while (message := await self._read()) is not _END:
                self._tasks.spawn(self._answer(handle, message))
        finally:
            self._gone = True
            await self._tasks.close()

    def notify(self, method: str, params: Any) -> None:
        """Send a notification. Never raises: the listener may have closed."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    @property
    def crowded(self) -> bool:
        """True if the other end has not read for long, so optional messages should be dropped."""
        return self._writer.transport.get_write_buffer_size() > CROWDED_BYTES

    async def drain(self) -> None:
        """Wait until the other end has read enough; otherwise a fast sender fills our memory."""
        try:
            await self._writer.drain()
        except OSError:
            self._gone = True

    async def _read(self) -> Any:
        """Return the next message, of any type; `_END` at the end of input."""
        length: int | None = None
        try:
            while line := (await self._reader.readuntil(b"\n")).strip():
                name, _, value = line.partition(b":")
                if name.strip().lower() == b"content-length" and value.strip().isdigit():
                    length = int(value)
            if length is None or length > MAX_BODY_BYTES:
                raise ConfigurationError("What arrives on stdin is no message with a Content-Length.")
            body = await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            return _END
        except asyncio.LimitOverrunError:
            raise ConfigurationError("What arrives on stdin is no message with a Content-Length.") from None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body  # answered as an invalid request

    async def _answer(self, handle: Handler, given: Any) -> None:
        if not isinstance(given, dict):
            self._write({"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": "No request."}})
            return
        message = cast("dict[str, Any]", given)
        number, method = message.get("id"), message.get("method")
        if not isinstance(method, str) or number is None:
            return  # a stray answer or a notification: neither has a meaning here
        answer: dict[str, Any]
        try:
            answer = {"result": await handle(method, message.get("params"))}
        except ByleaveError as error:
            answer = {"error": _problem(error)}
        except OSError as error:
            answer = {"error": _problem(refusal_of_system(error))}
        except Exception as error:  # noqa: BLE001 - a boundary: every request is answered, whatever goes wrong
            log.error("request failed unexpectedly", method=method[:100], exc_info=error)
            answer = {"error": {"code": INTERNAL_ERROR, "message": f"The engine failed with {type(error).__name__}."}}
        self._write({"jsonrpc": "2.0", "id": number, **answer})
        await self.drain()

    def _write(self, message: dict[str, Any]) -> None:
        if self._gone or self._writer.is_closing():
            return
        # ASCII: file names may hold lone surrogates, which UTF-8 cannot encode.
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
        self._writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)


def _problem(error: ByleaveError) -> dict[str, Any]:
    codes: dict[type[ByleaveError], int] = {MethodNotFound: METHOD_NOT_FOUND, InvalidParams: INVALID_PARAMS}
    data = {"kind": type(error).__name__, "hint": error.hint}
    return {"code": codes.get(type(error), FAILED), "message": error.message, "data": data}


@asynccontextmanager
async def own_channel() -> AsyncGenerator[Channel]:
    """Take over stdin and stdout as the channel; nothing else in the process can use them.

    Both move to descriptors that no child inherits, and /dev/null and stderr take their places: a stray `print` cannot
    break the wire, and a command cannot write to it.
    """
    # A reader that ignores our log must not block us: a line that finds no room is dropped.
    kind = os.fstat(2).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):  # Node's pipes are sockets
        os.set_blocking(2, False)
        logging.raiseExceptions = False
    if os.isatty(0):
        raise ConfigurationError(
            "`byleave connect --stdio` speaks with a program, not with a person.",
            hint="leave out --stdio to connect in this terminal",
        )
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_HEADER_BYTES)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", buffering=0)
    )
    writing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(outgoing, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(writing, protocol, None, loop)
    try:
        yield Channel(reader, writer)
    finally:
        reading.close()
        writer.close()


MAX_FEEDS = 16
UNRECORDED = "Undone. The server could not be told, so its record does not have it."
NOTHING_TO_UNDO = "Nothing to do: everything is already as it was before this call."
BROUGHT_BACK = "Brought back: it is as it was before the undo."

ReadSettings = Callable[..., ClientSettings]
"""Reads the settings of this machine; an editor's values take precedence."""


class Engine:
    """An editor's engine: at most one server and one workspace at a time."""

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
        """Held while the server or the workspace changes."""
        self._connection: ClientConnection | None = None
        self._running: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._own_calls: set[asyncio.Task[Any]] = set()
        """Tools run by the editor itself."""
        self._state = "none"
        self._isolation: messages.IsolationFound | None = None
        self._undoing: dict[str, str | None] = {}
        """Undos requested by this editor, by call, with the id of the undo once carried out here."""

    async def run(self) -> None:
        """Serve the editor until it disconnects, requests shutdown, or `stop` is called."""
        serving = asyncio.create_task(self._channel.serve(self._handle))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # raises what broke the channel
        finally:
            await cancel(serving, stopping)
            await self._leave_workspace()
            await self._leave_server()

    def stop(self) -> None:
        """Stop soon, in order."""
        self._stop.set()

    async def _handle(self, method: str, params: Any) -> Any:
        method_handler = self._methods.get(method)
        if method_handler is None:
            raise MethodNotFound(f"The engine has no method {method[:100]!r}.")
        if not self._initialized and method != "initialize":
            raise CallerError("The first request must be `initialize`.")
        try:
            request = REQUESTS[method][0].model_validate(params if params is not None else {})
        except ValidationError as error:
            # Leave the input out of the error: it may hold a token.
            wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in wrong["loc"])
            raise InvalidParams(f"{method}: {where}: {wrong['msg']}.") from None
        return (await method_handler(request)).model_dump(mode="json")

    def _notify(self, method: str, model: WireModel) -> None:
        self._channel.notify(method, model.model_dump(mode="json"))

    # Starting and ending

    async def _initialize(self, request: messages.Initialize) -> WireModel:
        if request.protocol != ENGINE_PROTOCOL:
            raise ConfigurationError(
                f"Byleave {version('byleave')} speaks engine protocol {ENGINE_PROTOCOL}, not {request.protocol}.",
                hint="install the version that belongs to the editor's extension",
            )
        self._initialized = True
        home = self._read_settings().home
        log.info("engine started", editor=request.editor)
        return messages.Initialized(protocol=ENGINE_PROTOCOL, version=version("byleave"), home=str(home))

    async def _shutdown(self, _: messages.Nothing) -> WireModel:
        await self._leave_workspace()
        asyncio.get_running_loop().call_soon(self.stop)
        return messages.Nothing()

    # The server

    async def _exchange(self, request: messages.ExchangeLink) -> ExchangedToken:
        return await exchange_link(request.server_url, request.code)

    async def _try_server(self, request: messages.UseServer) -> WireModel:
        """Ask the server whose token this is; change nothing else."""
        async with ServerApi(request.server_url, request.token) as api:
            return await _answer(api, "GET", "/my/me", None)

    async def _use_server(self, request: messages.UseServer) -> WireModel:
        async with self._changing:
            api = ServerApi(request.server_url, request.token)  # raises if either is invalid: then nothing changes
            await self._leave_workspace()
            await self._leave_server()
            self._api, self._token = api, request.token
        return messages.Nothing()

    async def _forget_server(self, _: messages.Nothing) -> WireModel:
        async with self._changing:
            await self._leave_workspace()
            await self._leave_server()
        return messages.Nothing()

    async def _leave_server(self) -> None:
        feeds = [*self._feeds.values()]
        self._feeds.clear()
        await cancel(*feeds)
        api, self._api, self._token = self._api, None, ""
        if api is not None:
            await api.close()

    @property
    def _server(self) -> ServerApi:
        if self._api is None:
            raise CallerError("There is no server yet: `server/use` names it.")
        return self._api

    async def _request(self, request: messages.ServerRequest) -> WireModel:
        data = None if request.method == "GET" else json.dumps(request.body or {}).encode()
        return await _answer(self._server, request.method, request.path, data)

    async def _open_feed(self, request: messages.OpenFeed) -> WireModel:
        if request.feed in self._feeds or len(self._feeds) >= MAX_FEEDS:
            raise CallerError("This feed is open already, or too many are.")
        self._feeds[request.feed] = asyncio.create_task(self._read_feed(self._server, request))
        return messages.Nothing()

    async def _close_feed(self, request: messages.FeedRef) -> WireModel:
        await cancel(self._feeds.pop(request.feed, None))
        return messages.Nothing()

    async def _read_feed(self, api: ServerApi, request: messages.OpenFeed) -> None:
        number = request.feed
        stream = api.feed_at(request.path, request.last_event_id)
        try:
            async with stream:
                self._notify("server/feedOpened", messages.FeedRef(feed=number))
                async for frame in stream.frames():
                    data = frame.data.decode("utf-8", "replace")
                    notice = messages.FeedFrame(feed=number, id=frame.id, event=frame.event, data=data)
                    self._notify("server/feedFrame", notice)
                    await self._channel.drain()
        except asyncio.CancelledError:
            raise  # closed by the editor: nobody listens
        except Exception as error:  # noqa: BLE001 - a boundary: whatever a server sends, the editor hears that it closed
            log.debug("feed closed", error=type(error).__name__)
        self._feeds.pop(number, None)
        status = 0 if stream.status == 200 else stream.status
        self._notify("server/feedClosed", messages.FeedClosed(feed=number, status=status))

    # The workspace

    async def _connect(self, request: messages.ConnectWorkspace) -> WireModel:
        async with self._changing:
            server = self._server
            if not os.path.isabs(request.workspace):
                raise CallerError(f"The workspace {request.workspace!r} is no absolute path.")
            await self._leave_workspace()
            settings = self._read_settings(
                server_url=server.server_url,
                token=SecretStr(self._token),
                **request.settings.model_dump(exclude_none=True),
            )
            self._connection = connection = connect_client(
                settings,
                request.project_id,
                request.workspace,
                on_connection=self._on_connection,
                on_undone=self._on_undone,
                observer=_EditorObserver(self._notify, self._channel),
            )
            self._running = asyncio.create_task(self._serve_workspace(connection))
        return messages.WorkspaceConnected(
            client_id=connection.client_id, workspace=str(connection.workspace.root), rules=connection.rules.summary
        )

    async def _disconnect(self, _: messages.Nothing) -> WireModel:
        async with self._changing:
            await self._leave_workspace()
        return messages.Nothing()

    async def _leave_workspace(self) -> None:
        """Stop and report everything that runs in the workspace, even if the requester disconnects."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._close_workspace())
            self._leaving.add_done_callback(lambda _: setattr(self, "_leaving", None))
        await asyncio.shield(self._leaving)

    async def _close_workspace(self) -> None:
        connection, self._connection = self._connection, None
        running, self._running = self._running, None
        await cancel(*self._own_calls, running)
        if connection is not None:
            await connection.close()
        self._state, self._isolation = "none", None

    async def _serve_workspace(self, connection: ClientConnection) -> None:
        """Serve the workspace; report errors that a retry cannot fix."""
        try:
            found = await asyncio.to_thread(lambda: connection.workspace.isolation)
            warnings = [*found.degraded]
            self._isolation = messages.IsolationFound(isolated=found.isolated, backend=found.backend, warnings=warnings)
            self._notify("isolation/found", self._isolation)
            await connection.run()
        except ByleaveError as error:
            self._end(error.message, error.hint, signed_out=isinstance(error, SignedOut))
        except OSError as error:
            refusal = refusal_of_system(error)
            self._end(refusal.message, refusal.hint)
        except Exception as error:  # noqa: BLE001 - a boundary: the editor hears of it, whatever goes wrong
            log.error("connection failed unexpectedly", exc_info=error)
            self._end(f"The engine failed with {type(error).__name__}.", "its log says more")

    def _end(self, message: str, hint: str | None, *, signed_out: bool = False) -> None:
        self._state = "ended"
        log.error("connection ended", error=message)
        self._notify(
            "connection/changed",
            messages.ConnectionChanged(state="ended", message=message, hint=hint, signed_out=signed_out),
        )

    def _on_connection(self, problem: UnreachableError | None) -> None:
        self._state = "connected" if problem is None else "lost"
        notice = messages.ConnectionChanged(state="connected")
        if problem is not None:
            notice = messages.ConnectionChanged(state="lost", message=problem.message, hint=problem.hint)
        self._notify("connection/changed", notice)

    @property
    def _connected(self) -> ClientConnection:
        if self._connection is None:
            raise CallerError("There is no workspace yet: `workspace/connect` opens it.")
        return self._connection

    # Tools run by the editor itself

    async def _run_tool(self, request: messages.RunTool) -> WireModel:
        connection = self._connected
        call = asyncio.create_task(
            run_here(connection.handler.gate, connection.workspace, request.tool_name, request.tool_params)
        )
        self._own_calls.add(call)
        try:
            return messages.RanTool(result=mask_value(await call))
        except asyncio.CancelledError:
            if not call.cancelled():
                call.cancel()  # the editor disconnected
                raise
            raise ExecutionCancelled("The folder was left while this ran; part of its effect may remain.") from None
        finally:
            self._own_calls.discard(call)
            connection.handler.forget_reads()

    async def _resolve_path(self, request: messages.ResolvePath) -> WireModel:
        connection = self._connected
        return await asyncio.to_thread(_resolved, connection, request.path)

    # Undo

    async def _list_changes(self, _: messages.Nothing) -> WireModel:
        return await asyncio.to_thread(self._connected.workspace.undoing.changes)

    async def _text_before(self, request: messages.FileBefore) -> WireModel:
        return await asyncio.to_thread(self._connected.workspace.undoing.before, request.tool_id, request.path)

    async def _preview_undo(self, request: messages.CallRef) -> WireModel:
        """Preview through the server if connected, so that its rules count; else on this machine."""
        connection = self._connected
        if self._state == "connected":
            with contextlib.suppress(UnreachableError, NotFound):
                return await connection.api.undo_plan(request.tool_id)
        return await asyncio.to_thread(connection.workspace.undoing.look, request.tool_id)

    async def _carry_out(self, request: messages.CarryOut) -> WireModel:
        connection = self._connected
        self._undoing[request.tool_id] = None
        try:
            if self._state == "connected":
                with contextlib.suppress(UnreachableError, NotFound):
                    body = UndoBody(plan=request.plan, partial=request.partial)
                    answer = await connection.api.undo(request.tool_id, body)
                    return messages.Undone(
                        message=answer.message, undo_id=answer.undo_id or self._undoing[request.tool_id]
                    )
            _, undo_id = await self._undo_here(connection, request.tool_id, request.plan, partial=request.partial)
            return messages.Undone(message=NOTHING_TO_UNDO if undo_id is None else UNRECORDED, undo_id=undo_id)
        except ByleaveError:
            # The answer was lost or late, but the undo was carried out.
            done = self._undoing[request.tool_id]
            if done is None:
                raise
            return messages.Undone(message="Undone.", undo_id=done)
        finally:
            del self._undoing[request.tool_id]

    async def _bring_back(self, request: messages.CallRef) -> WireModel:
        """Undo an undo. Only this machine knows of it."""
        connection = self._connected
        plan = await asyncio.to_thread(connection.workspace.undoing.look, request.tool_id)
        if plan.conflicts:
            raise CallerError(f"Nothing was brought back: {named(plan.conflicts)} changed since the undo.")
        _, undo_id = await self._undo_here(connection, request.tool_id, plan.plan, partial=False)
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
            self._undoing[plan.tool_id] = undo_id  # requested by this editor: it gets the id with the answer
            return
        paths = [file.path for file in plan.files]
        self._notify("undo/done", messages.UndoneElsewhere(tool_id=plan.tool_id, undo_id=undo_id, paths=paths))

    # Diagnostics

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
            # Outcomes only, without results: this is made to be sent to somebody.
            history=[]
            if handler is None
            else [_masked(one).model_copy(update={"result": None}) for one in handler.history[-20:]],
        )


class _EditorObserver(ExecutionObserver):
    """Notifies the editor of executions, with secrets masked."""

    def __init__(self, notify: Callable[[str, WireModel], None], channel: Channel) -> None:
        self._notify = notify
        self._channel = channel

    def started(self, event: ExecutionSignal) -> None:
        params = shown_params(event.tool_name, event.tool_params)
        if "content" in params:
            params = {**params, "content": "(left out)"}
        self._notify(
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
            return  # the result holds all output
        self._notify("execution/output", messages.ExecutionOutput(tool_id=tool_id, stream=stream, text=text))

    def ended(self, result: ClientResult) -> None:
        self._notify("execution/ended", _masked(result))

    def acknowledged(self, event: ResultAcknowledged) -> None:
        notice = messages.ExecutionAcknowledged(tool_id=event.tool_id, status=event.status)
        self._notify("execution/acknowledged", notice)


def _masked(result: ClientResult) -> ClientResult:
    return result.model_copy(update={"result": mask_value(result.result), "error": mask_value(result.error)})


def _resolved(connection: ClientConnection, path: str) -> messages.ResolvedPath:
    """Return the real path if a tool may read it; the gate and the disk are both consulted."""
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
        # It answers but is the wrong server: use a status of its own, so that a person is told.
        notice = {"detail": error.message, "hint": error.hint, "state": "unproven"}
        return messages.ServerAnswer(status=421, body=notice, server_time=None)
    time = None if date is None else round(date.timestamp() * 1000)
    return messages.ServerAnswer(status=status, body=_object(body), server_time=time)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None  # a proxy's error page: the status says enough
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
