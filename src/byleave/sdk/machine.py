"""Machine: a user's machine, as an agent that runs elsewhere calls it; SyncMachine: the same for code without a loop.

Every call has a key, given or generated, so that a retry after a broken connection finds the same execution and never
begins another. Whoever stops waiting for a call (cancelled, interrupted, out of time) calls it off, and its question is
taken back. The span that is current in OpenTelemetry becomes the parent of a call's spans.
"""

import asyncio
import sys
import threading
import uuid
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import Any, Literal, Self, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from byleave.adapters.calls import ADVICE, UNREADABLE, typed_result
from byleave.gate.text.render import describe_edit
from byleave.protocol.errors import (
    ByleaveError,
    CallerError,
    ConflictError,
    DriftedError,
    ExecutionCancelled,
    ExecutionInterrupted,
    ExecutionTimeout,
    NoClient,
    NotFound,
    RefusedError,
    RejectedError,
    ToolApprovalTimeout,
    ToolFailure,
    UnreachableError,
)
from byleave.protocol.events import FeedEvent, ToolFinished
from byleave.protocol.executions import (
    ExecuteRequest,
    Execution,
    ToolCaller,
    ToolResponse,
    has_ended,
    id_of_call,
    key_scope,
)
from byleave.protocol.states import RESPONSE_STATUS, AgentMode, ErrorType, ResponseStatus
from byleave.protocol.tools import (
    WEB_RESULTS,
    ExecuteCommandResult,
    ListDirectoryResult,
    ReadFileResult,
    SearchFilesResult,
    SearchWebResult,
    ToolCatalogue,
    ToolResult,
    WriteFileResult,
)
from byleave.protocol.wire import Id, id_text

from .background import BackgroundLoop
from .client import CALL_OFF_SECONDS, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Client

WAIT_SECONDS = 60.0
"""Wait of one request; the next follows at once."""
SHORTEST_WAIT_SECONDS = 1.0
"""Every server allows this much."""
EARLY_SECONDS = 0.5
SOON_SECONDS = 0.5
RECENT_CALLS = 200
LONGEST_NAME = 100

Result = TypeVar("Result", bound=ToolResult)
Answer = TypeVar("Answer")


class Machine:
    """The machine of one project's user. A `ToolCaller`."""

    def __init__(
        self,
        server_url: str | None = None,
        token: str | None = None,
        project_id: Id | None = None,
        *,
        name: str | None = None,
        session_id: Id | None = None,
        mode: AgentMode | None = None,
        client: Client | None = None,
    ) -> None:
        """Share a `client`, or make one from the URL and token and close it with the machine.

        `mode` sets how much its calls ask, never wider than the token allows. `name` is for your own use: people and
        the record see the name in the token.
        """
        if project_id is None:
            raise CallerError("A machine is that of a project.", hint="pass project_id; `Client.projects()` lists them")
        if client is None:
            self.client, self._own = Client(server_url, token), True
        else:
            self.client, self._own = client, False
        self.project_id = id_text("proj", project_id)
        self.session_id = None if session_id is None else id_text("sess", session_id)
        self.name = name
        self.mode = mode
        self._longest = WAIT_SECONDS
        self._blocking: SyncMachine | None = None
        self._making = threading.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._blocking is not None:
            await asyncio.to_thread(self._blocking.close)
        if self._own:
            await self.client.close()

    def blocking(self) -> "SyncMachine":
        """Return the same machine for code that blocks, over a connection of its own. It closes with this one."""
        with self._making:  # frameworks run the calls of a turn in threads
            if self._blocking is None:
                self._blocking = SyncMachine.of(self)
            return self._blocking

    def on_client(self, client: Client) -> "Machine":
        """Return the same machine over another client."""
        return Machine(
            project_id=self.project_id, name=self.name, session_id=self.session_id, mode=self.mode, client=client
        )

    async def tools(self) -> ToolCatalogue:
        """Return the available tools, with JSON Schema of their parameters."""
        return await self.client.persist(lambda: self.client.api.available_tools(self.project_id))

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call. Return at its end, or as soon as a person has to be asked. Cancelling this cancels the call."""
        key = key or uuid.uuid4().hex
        return await self.client.own(self._see_through(self._post(tool_name, tool_params, key), key, to_its_end=False))

    def _post(self, tool_name: str, tool_params: Mapping[str, Any], key: str) -> "asyncio.Task[ToolResponse]":
        request, parent = self._request(tool_name, tool_params, key), _current_span()

        async def post() -> ToolResponse:
            try:
                return await self.client.persist(lambda: self.client.api.execute(request, parent))
            except PydanticSerializationError:
                # Nothing was sent. Send it in a form that the gate refuses, so that it is on the record like any other
                # call.
                unreadable = request.model_copy(update={"tool_params": {UNREADABLE: "what cannot be written as JSON"}})
                return await self.client.persist(lambda: self.client.api.execute(unreadable, parent))

        # A task of its own: when its caller is cancelled, the call may already be on the server, its id on the way.
        return asyncio.create_task(post())

    def _request(self, tool_name: str, tool_params: Mapping[str, Any], key: str) -> ExecuteRequest:
        try:
            return ExecuteRequest(
                project_id=self.project_id,
                tool_name=tool_name[:LONGEST_NAME],  # no tool has a longer name: the gate refuses it
                tool_params=dict(tool_params),
                session_id=self.session_id,
                mode=self.mode,
                idempotency_key=key,
            )
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in wrong["loc"])
            raise CallerError(f"This call cannot be made: {place}: {wrong['msg']}.") from None

    async def wait(self, tool_id: Id, seconds: float | None = None) -> ToolResponse:
        """Wait for the end of a call, or at most `seconds`; return its current state."""
        tool_id = id_text("exec", tool_id)
        loop = asyncio.get_running_loop()
        give_up = None if seconds is None else loop.time() + seconds
        while True:
            asked = loop.time()
            left = self._longest if give_up is None else max(min(self._longest, give_up - asked), 0.0)
            try:
                execution = await self.client.persist(lambda left=left: self.client.api.get_tool(tool_id, left))
            except NotFound:
                raise
            except CallerError:
                if left <= SHORTEST_WAIT_SECONDS:
                    raise
                self._longest = max(left / 2, SHORTEST_WAIT_SECONDS)  # this server allows less
                continue
            response = _response(execution)
            if has_ended(response) or (give_up is not None and loop.time() >= give_up):
                return response
            # A closing server answers early: do not ask again at once.
            await asyncio.sleep(max(min(asked + left - loop.time(), EARLY_SECONDS), 0.0))

    async def execute(
        self,
        tool_name: str,
        tool_params: Mapping[str, Any],
        *,
        key: str | None = None,
        seconds: float | None = None,
    ) -> ToolResponse:
        """Begin a call and wait for its end, however long a person takes. Cancelling this cancels the call.

        After `seconds` the call is cancelled, too; the response says so, or how it ended just before.
        """
        key = key or uuid.uuid4().hex
        starting = self._post(tool_name, tool_params, key)
        try:
            async with asyncio.timeout(seconds):
                return await self.client.own(self._see_through(starting, key, to_its_end=True))
        except TimeoutError:
            if not starting.done():  # the server is away; what arrives later is cancelled
                raise
        return await self.wait(starting.result().tool_id, CALL_OFF_SECONDS)

    async def _see_through(self, starting: "asyncio.Task[ToolResponse]", key: str, *, to_its_end: bool) -> ToolResponse:
        """Wait for a call; if cancelled, cancel it."""
        try:
            response = await asyncio.shield(starting)
            return await self.wait(response.tool_id) if to_its_end and not has_ended(response) else response
        except asyncio.CancelledError:
            try:
                with suppress(ByleaveError):
                    await self._cancel_by_key(starting, key)
            finally:
                starting.cancel()  # given up: it must not outlive the connection
            raise

    async def _cancel_by_key(self, starting: "asyncio.Task[ToolResponse]", key: str) -> None:
        await asyncio.wait({starting}, timeout=SOON_SECONDS)
        if not starting.done():
            # It runs without a question, so the server answers only at its end: find it by its key.
            recent = await self.client.api.history({"project_id": self.project_id, "limit": RECENT_CALLS})
            for one in recent.executions:
                scope = key_scope(one.user_id, one.project_id, one.session_id, one.agent_id)
                if one.tool_id == id_of_call(scope, key):
                    await self.cancel(one.tool_id)
        response = await starting
        if not has_ended(response):
            await self.cancel(response.tool_id)

    async def stream(
        self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None
    ) -> AsyncGenerator[FeedEvent | ToolResponse]:
        """Yield the events of a call as they happen; the last item is its response.

        Leaving early does not cancel the call.
        """
        response = await self.start(tool_name, tool_params, key=key)
        if has_ended(response):
            yield response
            return
        async with aclosing(self.follow(response.tool_id)) as events:
            async for item in events:
                yield item

    async def follow(self, tool_id: Id) -> AsyncGenerator[FeedEvent | ToolResponse]:
        """Yield the events of a begun call from its beginning; the last item is its response."""
        tool_id = id_text("exec", tool_id)
        seen: int | None = None
        response: ToolResponse | None = None
        pause = 0.0
        while response is None or not has_ended(response):
            before = seen
            try:
                async with self.client.api.tool_stream(tool_id, seen) as events:
                    async for number, event in events:
                        seen = number
                        yield event
                        if isinstance(event, ToolFinished):
                            break
            except UnreachableError:
                pass  # resumed below
            # Back off if a stream was refused or closed without an event.
            pause = 0.0 if seen != before else min(2 * pause or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            response = await self.wait(tool_id, pause)
        yield response

    async def cancel(self, tool_id: Id) -> bool:
        """Cancel a call; return False if it had ended already."""
        tool_id = id_text("exec", tool_id)
        try:
            await self.client.persist(lambda: self.client.api.cancel(self.project_id, tool_id))
        except ConflictError:
            return False
        return True

    # The six tools. Each waits for its end and raises an error of `byleave.errors` unless it completed.

    async def read_file(
        self, path: str, *, start_line: int | None = None, end_line: int | None = None
    ) -> ReadFileResult:
        return await self._done("read_file", ReadFileResult, path=path, start_line=start_line, end_line=end_line)

    async def write_file(
        self, path: str, content: str, *, mode: Literal["write", "append"] = "write"
    ) -> WriteFileResult:
        return await self._done("write_file", WriteFileResult, path=path, content=content, mode=mode)

    async def execute_command(
        self,
        command: str,
        args: list[str] | tuple[str, ...] = (),
        *,
        timeout: int = 30,  # noqa: ASYNC109 - the tool's own, on the user's machine
    ) -> ExecuteCommandResult:
        """A command that ran to its end is a success, whatever its exit code."""
        return await self._done(
            "execute_command", ExecuteCommandResult, command=command, args=list(args), timeout=timeout
        )

    async def list_directory(
        self, path: str = ".", *, recursive: bool = False, pattern: str = "*"
    ) -> ListDirectoryResult:
        return await self._done("list_directory", ListDirectoryResult, path=path, recursive=recursive, pattern=pattern)

    async def search_files(
        self,
        pattern: str,
        path: str = ".",
        *,
        regex: bool = False,
        glob: str | None = None,
        case_sensitive: bool = True,
        max_results: int | None = None,
    ) -> SearchFilesResult:
        return await self._done(
            "search_files",
            SearchFilesResult,
            pattern=pattern,
            path=path,
            regex=regex,
            glob=glob,
            case_sensitive=case_sensitive,
            max_results=max_results,
        )

    async def search_web(self, query: str, *, max_results: int = WEB_RESULTS) -> SearchWebResult:
        return await self._done("search_web", SearchWebResult, query=query, max_results=max_results)

    async def _done(self, tool_name: str, kind: type[Result], **params: Any) -> Result:
        given = {name: value for name, value in params.items() if value is not None}
        response = await self.execute(tool_name, given)
        if response.status is not ResponseStatus.COMPLETED:
            raise _error(response)
        result = typed_result(response)
        if not isinstance(result, kind):
            raise ToolFailure(
                f"The machine answered something that is not a {kind.__name__}.",
                hint="update Byleave here: the machine's may be newer",
            )
        return result


class SyncMachine:
    """A machine for code without an event loop: every method waits. Works in a notebook, too, whose loop runs.

    Its connection lives on a loop in a thread of its own. Ctrl-C while it waits calls the call off.
    """

    def __init__(
        self,
        server_url: str | None = None,
        token: str | None = None,
        project_id: Id | None = None,
        *,
        name: str | None = None,
        session_id: Id | None = None,
        mode: AgentMode | None = None,
    ) -> None:
        self._machine = Machine(server_url, token, project_id, name=name, session_id=session_id, mode=mode)
        self._loop = BackgroundLoop()

    @classmethod
    def of(cls, machine: Machine) -> "SyncMachine":
        """Return a machine for code that blocks. It has a connection of its own."""
        made = cls.__new__(cls)
        made._machine = machine.on_client(machine.client.another())
        made._loop = BackgroundLoop()
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._run(self._machine.client.close())
        self._loop.close()

    @property
    def caller(self) -> ToolCaller:
        """The same machine for an event loop, whichever it is."""
        return _FromAnyLoop(self._machine, self._loop)

    def tools(self) -> ToolCatalogue:
        return self._run(self._machine.tools())

    def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        """Begin a call. Return at its end, or as soon as a person has to be asked."""
        return self._run(self._machine.start(tool_name, tool_params, key=key))

    def wait(self, tool_id: Id, seconds: float | None = None) -> ToolResponse:
        """Wait for the end of a call, or at most `seconds`; return its current state."""
        return self._run(self._machine.wait(tool_id, seconds))

    def execute(
        self,
        tool_name: str,
        tool_params: Mapping[str, Any],
        *,
        key: str | None = None,
        seconds: float | None = None,
    ) -> ToolResponse:
        """Begin a call and wait for its end, or cancel it after `seconds`."""
        return self._run(self._machine.execute(tool_name, tool_params, key=key, seconds=seconds))

    def stream(
        self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None
    ) -> Generator[FeedEvent | ToolResponse]:
        """Yield the events of a call as they happen; the last item is its response."""
        events = self._machine.stream(tool_name, tool_params, key=key)
        try:
            while (item := self._run(anext(events, None))) is not None:
                yield item
        finally:
            self._run(events.aclose())

    def cancel(self, tool_id: Id) -> bool:
        """Cancel a call; return False if it had ended already."""
        return self._run(self._machine.cancel(tool_id))

    def read_file(self, path: str, *, start_line: int | None = None, end_line: int | None = None) -> ReadFileResult:
        return self._run(self._machine.read_file(path, start_line=start_line, end_line=end_line))

    def write_file(self, path: str, content: str, *, mode: Literal["write", "append"] = "write") -> WriteFileResult:
        return self._run(self._machine.write_file(path, content, mode=mode))

    def execute_command(
        self, command: str, args: list[str] | tuple[str, ...] = (), *, timeout: int = 30
    ) -> ExecuteCommandResult:
        return self._run(self._machine.execute_command(command, args, timeout=timeout))

    def list_directory(self, path: str = ".", *, recursive: bool = False, pattern: str = "*") -> ListDirectoryResult:
        return self._run(self._machine.list_directory(path, recursive=recursive, pattern=pattern))

    def search_files(
        self,
        pattern: str,
        path: str = ".",
        *,
        regex: bool = False,
        glob: str | None = None,
        case_sensitive: bool = True,
        max_results: int | None = None,
    ) -> SearchFilesResult:
        return self._run(
            self._machine.search_files(
                pattern, path, regex=regex, glob=glob, case_sensitive=case_sensitive, max_results=max_results
            )
        )

    def search_web(self, query: str, *, max_results: int = WEB_RESULTS) -> SearchWebResult:
        return self._run(self._machine.search_web(query, max_results=max_results))

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self._loop.run(work)


class _FromAnyLoop:
    """A ToolCaller whose work is done on a background loop. A cancelled waiter cancels it there."""

    def __init__(self, machine: Machine, loop: BackgroundLoop) -> None:
        self._machine = machine
        self._loop = loop

    async def start(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        return await self._hop(self._machine.start(tool_name, tool_params, key=key))

    async def wait(self, tool_id: str, seconds: float | None = None) -> ToolResponse:
        return await self._hop(self._machine.wait(tool_id, seconds))

    async def execute(self, tool_name: str, tool_params: Mapping[str, Any], *, key: str | None = None) -> ToolResponse:
        return await self._hop(self._machine.execute(tool_name, tool_params, key=key))

    async def cancel(self, tool_id: str) -> bool:
        return await self._hop(self._machine.cancel(tool_id))

    async def _hop(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        future: Future[Answer] = self._loop.submit(work)
        return await asyncio.wrap_future(future)


def _response(execution: Execution) -> ToolResponse:
    edit = execution.edit
    return ToolResponse(
        tool_id=execution.tool_id,
        tool_name=execution.tool_name,
        status=RESPONSE_STATUS[execution.status],
        result=execution.result,
        error=execution.error,
        approval_id=execution.approval_id,
        error_type=execution.error_type,
        edited=None if edit is None else describe_edit(execution.tool_name, edit.asked, execution.tool_params),
    )


_ERRORS: dict[ErrorType | None, type[ByleaveError]] = {
    ErrorType.INVALID: CallerError,
    ErrorType.REFUSED: RefusedError,
    ErrorType.REJECTED: RejectedError,
    ErrorType.DRIFTED: DriftedError,
    ErrorType.APPROVAL_TIMEOUT: ToolApprovalTimeout,
    ErrorType.NO_CLIENT: NoClient,
    ErrorType.CANCELLED: ExecutionCancelled,
    ErrorType.INTERRUPTED: ExecutionInterrupted,
    ErrorType.EXECUTION_TIMEOUT: ExecutionTimeout,
    ErrorType.TOOL_ERROR: ToolFailure,
}


def _error(response: ToolResponse) -> ByleaveError:
    """Return the error for a call that did not complete."""
    kind = _ERRORS.get(response.error_type, ByleaveError)
    message = response.error or f"The call ended as {response.status.value}."
    check = "`byleave check` tells what the gate says of a call" if kind in (CallerError, RefusedError) else None
    return kind(message, hint=response.hint or ADVICE.get(response.error_type) or check)


def _current_span() -> str | None:
    """Return OpenTelemetry's current span as a traceparent, if the program uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    context = None if trace is None else trace.get_current_span().get_span_context()
    if context is None or not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
