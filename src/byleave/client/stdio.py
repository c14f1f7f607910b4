"""JSON-RPC 2.0 on a pair of pipes, framed by `Content-Length` as in language servers.

`Channel.serve` answers requests concurrently until the other end closes its pipe. A message without Content-Length
ends the conversation: nobody could tell where the next one begins. Nothing here knows a method.
"""

import asyncio
import json
import logging
import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from byleave.protocol.errors import ByleaveError, CallerError, ConfigurationError, refusal_of_system

from .log import log

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
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone = False

    async def serve(self, handle: Handler) -> None:
        """Answer requests until the other end closes; then cancel unfinished ones."""
        try:
            while (message := await self._read()) is not _END:
                task = asyncio.create_task(self._answer(handle, message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            self._gone = True
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

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
            return  # an answer to no request of ours, or a notification: neither means anything here
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
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):  # what Node calls a pipe is a socket
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
