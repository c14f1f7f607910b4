"""Byleave for MCP: its six tools as an MCP server, for Claude Code, Cursor and any other host.

    await serve_stdio(byleave.Machine(url, token, project_id))     # what `byleave mcp` does
    server = byleave_server(caller)                              # for any other transport

Built on the library's low-level server: the schemas are ours, and arguments reach the gate as the host sent them. The
host gets progress while a call waits or runs, and can cancel it. A question is never asked through the host, which
could answer it by itself: the host is told the address of the page where the user answers, and opens it if it can. A
result is JSON text, shortened as for every model, and the same as structured content.
"""

import asyncio
import json
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
from mcp.shared.exceptions import MCPError
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
from byleave.protocol.tools import MAX_FILE_BYTES, TOOLS, ToolSpec

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
Open = Callable[[str, str], None]
"""Has the host open the page for its user, with a message, because of a call."""


class Found(NamedTuple):
    """The caller of a request, the key of its call if the request may be repeated or resumed, and where to answer."""

    caller: ToolCaller
    key: str | None = None
    page: str | None = None
    """Address of the page on which the user answers; None if it is not known."""


FindCaller = Callable[[Context], Awaitable[Found]]


@runtime_checkable
class StreamingCaller(ToolCaller, Protocol):
    """A ToolCaller that can also stream the events of a call, such as `byleave.Machine`."""

    def follow(self, tool_id: str) -> AsyncGenerator[FeedEvent | ToolResponse]: ...


def byleave_server(caller: ToolCaller, *, tools: Iterable[str] | None = None, page: str | None = None) -> Server[Any]:
    """Return an MCP server for one caller; `tools` selects some of the six, `page` is where the user answers."""

    async def same_caller(context: Context) -> Found:
        return Found(caller, page=page)

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
            found = await find(context)
            async with _opener(context, found.page) as opens:
                return await _call(found, params.name, arguments, Progress(report, page=found.page, opens=opens))

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


async def serve_stdio(caller: ToolCaller, *, tools: Iterable[str] | None = None, page: str | None = None) -> None:
    """Speak MCP on stdin and stdout until the host closes them."""
    server = byleave_server(caller, tools=tools, page=page)
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
        output_schema=_output_schema(spec),
        annotations=ToolAnnotations(
            read_only_hint=not spec.changes_things or spec.name == "search_web",
            destructive_hint=spec.changes_things and spec.name != "search_web",
            idempotent_hint=not spec.changes_things,
            open_world_hint=spec.name == "search_web",
        ),
    )


def _output_schema(spec: ToolSpec) -> dict[str, Any]:
    """The result's schema. A shortened result lacks parts and says so in a field more."""
    schema = spec.result.model_json_schema(mode="serialization")
    return {**schema, "required": ["success"], "additionalProperties": True}


def _structured(tool_name: str, text: str) -> dict[str, Any]:
    """A result as it is shown, if it has the form of its tool: a machine may report anything."""
    try:
        value: Any = json.loads(text)
        fields = {name: part for name, part in value.items() if name != "shortened"}
        TOOLS[tool_name].result.model_validate(fields)
    except (ValueError, AttributeError, RecursionError):
        return {"success": True}
    return value


@asynccontextmanager
async def _opener(context: Context, page: str | None) -> AsyncGenerator["Open | None"]:
    """A way to have the host open the page for its user; None if the host or the connection has none.

    What the host answers means nothing: the user answers on the page.
    """
    offered = context.session.client_capabilities
    if page is None or offered is None or offered.elicitation is None or offered.elicitation.url is None:
        yield None
        return
    opening: set[asyncio.Task[None]] = set()

    async def open_page(address: str, message: str, tool_id: str) -> None:
        with suppress(MCPError):
            await context.session.elicit_url(message, address, tool_id, related_request_id=context.request_id)

    def opens(message: str, tool_id: str) -> None:
        opening.add(asyncio.create_task(open_page(page, message, tool_id)))

    try:
        yield opens
    finally:
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)


async def _told(call: Awaitable[ToolResponse], arguments: Mapping[str, Any]) -> CallToolResult:
    """The end of a call, or what refused it, as the host is told."""
    try:
        response = await call
    except ByleaveError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return _result(f"{error.message}{hint}", failed=True)
    text = await response_text(response, arguments)
    if response.status is not ResponseStatus.COMPLETED:
        return _result(text, failed=True)
    return _result(text, failed=False, structured=_structured(response.tool_name, text))


def _result(text: str, *, failed: bool, structured: dict[str, Any] | None = None) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed, structured_content=structured)


class Progress:
    """Reports progress to the host, if it asked for progress."""

    def __init__(
        self, report: Report, count: float = 0, *, page: str | None = None, opens: "Open | None" = None
    ) -> None:
        self._report = report
        self._count = count
        self._state = RUNNING
        self._where = f" Answer at {page}" if page else ""
        self._opens = opens

    async def report(self, message: str) -> None:
        self._count += 1
        await self._report(float(self._count), message[:MESSAGE_CHARACTERS])

    async def set_state(self, now: str) -> None:
        """Set the current state; it is repeated from time to time."""
        self._state = now
        await self.report(now)

    async def wait_for_answer(self, tool_id: str, description: str = "") -> None:
        """Tell the host that a question waits, and where; have it opened once."""
        opens, self._opens = self._opens, None
        if opens is not None:
            opens(WAITING, tool_id)
        await self.set_state(f"{WAITING}{self._where} {description}".rstrip())

    async def handle(self, event: FeedEvent) -> None:
        match event:
            case ApprovalRequested():
                reasons = [finding.reason for finding in event.findings]
                await self.wait_for_answer(event.tool_id, "\n".join([event.description, *reasons]))
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
    caller, key = found.caller, found.key
    async with progress.heartbeat():
        response = await caller.start(name, params, key=key or uuid.uuid4().hex)
        if has_ended(response):
            return response
        try:
            if response.status is ResponseStatus.AWAITING_APPROVAL:
                await progress.wait_for_answer(response.tool_id)
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
