"""Running the server: uvicorn, with an end that does not hang.

When asked to stop, streams end first (they would never end by themselves), then requests may finish for a while, then
the parts are closed. In a loop that runs other things too (`assent up`), `serve` leaves signals to its owner.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from assent.protocol.errors import ConfigurationError
from assent.settings import ServerSettings

from .app import create_app
from .parts import Parts, open_parts

FINISH_SECONDS = 10
MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of request line and headers: nobody may fill the memory before we know who they are."""


@dataclass(frozen=True)
class Listening:
    """A server that answers."""

    host: str
    port: int
    url: str
    parts: Parts
    stop: Callable[[], None]
    """Ask it to end; `serve` returns when it has."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with a limit on request line and headers."""

    _head_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request line or the headers are too long.")

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()


class AssentServer(uvicorn.Server):
    """uvicorn that closes the streams before it waits for requests to end."""

    def __init__(self, config: uvicorn.Config, parts: Parts, *, signals: bool, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._parts = parts
        self._signals = signals
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if not self._signals:
            yield
            return
        with super().capture_signals():
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._parts.begin_closing()
        await super().shutdown(sockets)


async def serve(
    settings: ServerSettings,
    host: str,
    port: int,
    *,
    ready: Callable[[Listening], None] = lambda listening: None,
    signals: bool = False,
) -> None:
    """Serve until asked to stop (`Listening.stop`, a signal, or cancellation). Port 0 takes a free one."""
    listener = _listen(host, port)
    try:
        parts = await open_parts(settings)
    except BaseException:
        listener.close()
        raise
    try:
        await _serve(settings, parts, listener, ready, signals=signals)
    finally:
        await parts.close()


async def _serve(
    settings: ServerSettings,
    parts: Parts,
    listener: socket.socket,
    ready: Callable[[Listening], None],
    *,
    signals: bool,
) -> None:
    config = uvicorn.Config(
        create_app(settings, parts=parts),
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=FINISH_SECONDS,
    )
    host, port = listener.getsockname()[:2]

    def stop() -> None:
        server.should_exit = True

    shown = f"[{host}]" if ":" in host else host
    listening = Listening(host, port, f"http://{shown}:{port}", parts, stop)
    server = AssentServer(config, parts, signals=signals, ready=lambda: ready(listening))
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        # Whoever runs us stops us: still in order, streams first.
        server.should_exit = True
        await task
        raise


def run_server(
    settings: ServerSettings, host: str, port: int, *, ready: Callable[[Listening], None] = lambda listening: None
) -> None:
    """Serve as the whole process: uvloop, and an orderly end on SIGINT and SIGTERM."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner, contextlib.suppress(KeyboardInterrupt):
        runner.run(serve(settings, host, port, ready=ready, signals=True))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # where there is none, asyncio's own loop does as well
        return None
    return uvloop.new_event_loop


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
            listener.setblocking(False)  # noqa: FBT003 - the standard library's signature
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            f"Cannot listen on {host}:{port}: {reason}.", hint="Is another server running? Choose another --port."
        ) from None
    return listener
