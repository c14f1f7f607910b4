"""Byleave for MCP: its six tools as an MCP server, for Claude Code, Cursor and any other host.

    await serve_stdio(byleave.Agent(url, token, project_id))     # what `byleave mcp` does
    server = byleave_server(caller)                              # for any other transport

Built on the library's low-level server: the schemas are ours, word for word, and arguments reach the gate as the host
sent them. While a call waits or runs the host gets progress; when the host cancels it, it is called off. There is no
elicitation: the host would answer it, perhaps by itself, and only the user's own approval counts. A result is JSON
text, shortened as for every model, never structured content beside it.
"""

import asyncio
import os
import stat
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any, Protocol, cast, runtime_checkable

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
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
from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import ApprovalStatus, ResponseStatus
from byleave.protocol.tool_caller import ToolCaller, has_ended
from byleave.protocol.tools import MAX_FILE_BYTES, ToolSpec

from .calls import specs_of, told

BEAT_SECONDS = 10.0
"""How often a host hears that a call still waits: hosts give up on what is silent."""
CALL_OFF_SECONDS = 5.0
LONGEST_LINE = 4 * MAX_FILE_BYTES
"""One message: a file to write, escaped."""
MESSAGE_CHARACTERS = 2000
"""The most of one progress message."""
WAITING = "Waiting for the user's approval."
RUNNING = "Running on the user's machine."
INSTRUCTIONS = (
    "These tools act on the user's own machine, inside one directory. Reading is free; writing, most commands and web "
    "searches wait until the user has approved them, which can take minutes. Commands are one program with a list of "
    "arguments, without a shell. When the user rejects a call, do not ask for the same again."
)

Context = ServerRequestContext[Any, Any]
FindCaller = Callable[[Context], Awaitable[ToolCaller]]


@runtime_checkable
class StreamingCaller(ToolCaller, Protocol):
    """A ToolCaller that can also tell what happens to a call, such as `byleave.Agent`."""

    def follow(self, tool_id: str) -> AsyncGenerator[FeedEvent | ToolResponse]: ...


def byleave_server(caller: ToolCaller, *, tools: Iterable[str] | None = None) -> Server[Any]:
    """An MCP server whose calls all go to one caller. `tools`: which of the six; left out, all."""

    async def the_one(context: Context) -> ToolCaller:
        return caller

    return byleave_server_for(the_one, tools=tools)


def byleave_server_for(find: FindCaller, *, tools: Iterable[str] | None = None) -> Server[Any]:
    """An MCP server that asks for each request who calls: `find` raises a ByleaveError for who may not."""
    offered = [_tool(spec) for spec in specs_of(tools)]
    schemas = {tool.name: tool.input_schema for tool in offered}

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=offered)

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        arguments = params.arguments or {}
        try:
            response = await _call(await find(context), params.name, arguments, _Progress(context.session))
        except ByleaveError as error:
            hint = f"\nhint: {error.hint}" if error.hint else ""
            return _result(f"{error.message}{hint}", failed=True)
        return _result(await told(response, arguments), failed=response.status is not ResponseStatus.COMPLETED)

    return Server(
        "byleave",
        version=version("byleave"),
        title="Byleave",
        instructions=INSTRUCTIONS,
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(caller: ToolCaller, *, tools: Iterable[str] | None = None) -> None:
    """Speak MCP on stdin and stdout until the host closes them."""
    server = byleave_server(caller, tools=tools)
    async with stdio_server(stdin=await _lines_of_stdin()) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Lines:
    """The lines of stdin, read in the loop: the library's own way is a thread that nothing can stop."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def __aiter__(self) -> AsyncGenerator[str]:
        while line := await self._reader.readline():
            yield line.decode("utf-8", "replace")


async def _lines_of_stdin() -> "anyio.AsyncFile[str] | None":
    """None for the library's own way, where stdin is a file or a device: they never keep anybody waiting."""
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


def _result(text: str, *, failed: bool) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)


class _Progress:
    """Tells the host how a call goes; a host that did not ask for progress is told nothing."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._count = 0
        self._now = RUNNING

    async def tell(self, message: str) -> None:
        self._count += 1
        await self._session.report_progress(float(self._count), message=message[:MESSAGE_CHARACTERS])

    async def stands(self, now: str) -> None:
        """How the call stands now; said again from time to time."""
        self._now = now
        await self.tell(now)

    async def hear(self, event: FeedEvent) -> None:
        match event:
            case ApprovalRequested():
                await self.stands(f"{WAITING} {event.description}")
            case ApprovalDecided(status=ApprovalStatus.APPROVED):
                await self.stands(RUNNING)
            case ToolOutput():
                await self.tell(event.text.rstrip("\n"))
            case _:
                pass

    @asynccontextmanager
    async def beating(self) -> AsyncGenerator[None]:
        beat = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beat.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self.tell(self._now)


async def _call(caller: ToolCaller, name: str, params: dict[str, Any], progress: _Progress) -> ToolResponse:
    """Have a call executed and wait for its end. Cancelled by the host, it is called off."""
    async with progress.beating():
        response = await caller.start(name, params, key=uuid.uuid4().hex)
        if has_ended(response):
            return response
        try:
            if response.status is ResponseStatus.AWAITING_APPROVAL:
                await progress.stands(WAITING)
            if isinstance(caller, StreamingCaller):
                return await _follow(caller, response.tool_id, progress)
            return await caller.wait(response.tool_id)
        except asyncio.CancelledError:
            # The library cancels everything that is awaited from here on, unless it is shielded its way.
            with anyio.move_on_after(CALL_OFF_SECONDS, shield=True), suppress(ByleaveError):
                await caller.cancel(response.tool_id)
            raise


async def _follow(caller: StreamingCaller, tool_id: str, progress: _Progress) -> ToolResponse:
    """Tell the host what happens to a call until it has ended."""
    async with aclosing(caller.follow(tool_id)) as happening:
        async for item in happening:
            if isinstance(item, ToolResponse):
                return item
            await progress.hear(item)
    return await caller.wait(tool_id)
