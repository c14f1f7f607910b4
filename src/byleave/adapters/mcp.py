"""Byleave for MCP: its six tools as an MCP server, for Claude Code, Cursor and any other host.

    await serve_stdio(byleave.Machine(url, token, project_id))     # what `byleave mcp` does
    server = byleave_server(caller)                              # for any other transport

Built on the library's low-level server: the schemas are ours, and arguments reach the gate as the host sent them. The
host gets progress while a call waits or runs, and can cancel it. There is no elicitation: the host could answer it by
itself, and only the user's own approval counts. A result is JSON text, shortened as for every model, never structured
content.
"""

import asyncio
import os
import stat
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from byleave.protocol.errors import ByleaveError
from byleave.protocol.events import ApprovalDecided, ApprovalRequested, FeedEvent, ToolOutput
from byleave.protocol.executions import ToolCaller, ToolResponse, has_ended
from byleave.protocol.states import ApprovalStatus, ResponseStatus
from byleave.protocol.tools import MAX_FILE_BYTES, ToolSpec

from .calls import response_text, specs_of

BEAT_SECONDS = 10.0
"""Interval of progress messages: hosts give up on silent calls."""
CALL_OFF_SECONDS = 5.0
LONGEST_LINE = 4 * MAX_FILE_BYTES
"""Limit of one message: a file to write, escaped."""
MESSAGE_CHARACTERS = 2000
"""Limit of one progress message."""
WAITING = "Waiting for the user's approval."
RUNNING = "Running on the user's machine."
INSTRUCTIONS = (
    "These tools act on the user's own machine, inside one directory. Reading is free; writing, most commands and web "
    "searches wait until the user has approved them, which can take minutes. Commands are one program with a list of "
    "arguments, without a shell. When the user rejects a call, do not ask for the same again."
)

Context = ServerRequestContext[Any, Any]
Report = Callable[[float, str], Awaitable[None]]
"""Tells the host how far a call is: a number that grows, and a message."""


class Found(NamedTuple):
    """The caller of a request, and the key of its call if the request may be repeated or resumed."""

    caller: ToolCaller
    key: str | None = None


FindCaller = Callable[[Context], Awaitable[Found]]


@runtime_checkable
class StreamingCaller(ToolCaller, Protocol):
    """A ToolCaller that can also stream the events of a call, such as `byleave.Machine`."""

    def follow(self, tool_id: str) -> AsyncGenerator[FeedEvent | ToolResponse]: ...


def byleave_server(caller: ToolCaller, *, tools: Iterable[str] | None = None) -> Server[Any]:
    """Return an MCP server for one caller; `tools` selects some of the six."""

    async def same_caller(context: Context) -> Found:
        return Found(caller)

    return byleave_server_for(same_caller, tools=tools)


def byleave_server_for(find: FindCaller, *, tools: Iterable[str] | None = None) -> Server[Any]:
    """Return an MCP server that calls `find` for the caller of each request; it raises a ByleaveError to refuse."""
    offered = [_tool(spec) for spec in specs_of(tools)]
    schemas = {tool.name: tool.input_schema for tool in offered}

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=offered)

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        async def report(count: float, text: str) -> None:
            await context.session.report_progress(count, message=text)

        async def call() -> ToolResponse:
            return await _call(await find(context), params.name, arguments, Progress(report))

        arguments = params.arguments or {}
        return await _told(call(), arguments)

    return Server(
        "byleave",
        version=version("byleave"),
        title="Byleave",
        instructions=INSTRUCTIONS,
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def resume_call(caller: ToolCaller, tool_id: Awaitable[str], progress: "Progress") -> CallToolResult:
    """Follow a call that began in another request to its end."""

    async def follow() -> ToolResponse:
        async with progress.heartbeat():
            return await _follow(caller, await tool_id, progress)

    return await _told(follow(), {})


async def serve_stdio(caller: ToolCaller, *, tools: Iterable[str] | None = None) -> None:
    """Speak MCP on stdin and stdout until the host closes them."""
    server = byleave_server(caller, tools=tools)
    async with stdio_server(stdin=await _lines_of_stdin()) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Lines:
    """Lines of stdin, read in the loop: the library uses a thread that nothing can stop."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def __aiter__(self) -> AsyncGenerator[str]:
        while line := await self._reader.readline():
            yield line.decode("utf-8", "replace")


async def _lines_of_stdin() -> "anyio.AsyncFile[str] | None":
    """Return an async reader of stdin; None if it is a file or a device, which never block."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or sys.stdin.isatty()):
        return None
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return cast("anyio.AsyncFile[str]", _Lines(reader))


def _tool(spec: ToolSpec) -> Tool:
    return Tool(
        name=spec.name,
        description=spec.description,
        input_schema=spec.params.model_json_schema(),
        annotations=ToolAnnotations(
            read_only_hint=not spec.changes_things or spec.name == "search_web",
            destructive_hint=spec.changes_things and spec.name != "search_web",
            idempotent_hint=not spec.changes_things,
            open_world_hint=spec.name == "search_web",
        ),
    )


async def _told(call: Awaitable[ToolResponse], arguments: Mapping[str, Any]) -> CallToolResult:
    """The end of a call, or what refused it, as the host is told."""
    try:
        response = await call
    except ByleaveError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return _result(f"{error.message}{hint}", failed=True)
    return _result(await response_text(response, arguments), failed=response.status is not ResponseStatus.COMPLETED)


def _result(text: str, *, failed: bool) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)


class Progress:
    """Reports progress to the host, if it asked for progress."""

    def __init__(self, report: Report, count: float = 0) -> None:
        self._report = report
        self._count = count
        self._state = RUNNING

    async def report(self, message: str) -> None:
        self._count += 1
        await self._report(float(self._count), message[:MESSAGE_CHARACTERS])

    async def set_state(self, now: str) -> None:
        """Set the current state; it is repeated from time to time."""
        self._state = now
        await self.report(now)

    async def handle(self, event: FeedEvent) -> None:
        match event:
            case ApprovalRequested():
                await self.set_state(f"{WAITING} {event.description}")
            case ApprovalDecided(status=ApprovalStatus.APPROVED):
                await self.set_state(RUNNING)
            case ToolOutput():
                await self.report(event.text.rstrip("\n"))
            case _:
                pass

    @asynccontextmanager
    async def heartbeat(self) -> AsyncGenerator[None]:
        beat = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beat.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self.report(self._state)


async def _call(found: Found, name: str, params: dict[str, Any], progress: Progress) -> ToolResponse:
    """Execute a call and wait for its end. If its request ends first, cancel it unless it can be found again."""
    caller, key = found
    async with progress.heartbeat():
        response = await caller.start(name, params, key=key or uuid.uuid4().hex)
        if has_ended(response):
            return response
        try:
            if response.status is ResponseStatus.AWAITING_APPROVAL:
                await progress.set_state(WAITING)
            return await _follow(caller, response.tool_id, progress)
        except asyncio.CancelledError:
            if key is None:
                # The library cancels everything awaited from here on, unless it is shielded by anyio.
                with anyio.move_on_after(CALL_OFF_SECONDS, shield=True), suppress(ByleaveError):
                    await caller.cancel(response.tool_id)
            raise


async def _follow(caller: ToolCaller, tool_id: str, progress: Progress) -> ToolResponse:
    """Wait for a call's end; report its events to the host if the caller can stream them."""
    if isinstance(caller, StreamingCaller):
        async with aclosing(caller.follow(tool_id)) as events:
            async for item in events:
                if isinstance(item, ToolResponse):
                    return item
                await progress.handle(item)
    return await caller.wait(tool_id)
