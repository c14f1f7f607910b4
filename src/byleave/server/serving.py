"""Run the server on uvicorn, with limits on HTTP and a shutdown that does not hang.

A server that is told to stop first drains, if so set: it still answers while load balancers turn to others. Shutdown
then ends the streams (they would never end by themselves), lets requests finish for a while, and closes the services.
`serve` may share its loop (`byleave up`) and leaves signals to the loop's owner.
"""

import asyncio
import contextlib
import importlib
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from byleave.descriptors import raise_limit
from byleave.protocol.errors import ConfigurationError, Problem
from byleave.settings import ServerSettings

from .app import create_app
from .bodies import MUCH_BYTES, QUIET_SECONDS, give_back
from .problems import PROBLEM_TYPE
from .services import Services, open_services

if TYPE_CHECKING:
    from pydantic_ai.models import Model

log = structlog.stdlib.get_logger(__name__)

FINISH_SECONDS = 10
CLOSE = (b"connection", b"close")
HEAD_SECONDS = 30
"""Time limit for the request line and headers to arrive."""
BODY_SECONDS = 20
BODY_BYTES = 160 * 1024
"""An incomplete body must grow by this many bytes in every BODY_SECONDS."""
ANSWER_SECONDS = 60
ANSWER_BYTES = 160 * 1024
"""An answer that fills its buffer must shrink by this many bytes in every ANSWER_SECONDS."""
MAX_PIPELINED = 16
"""Most requests that wait behind the one being answered; the connection ends after them."""
SAY_AGAIN_SECONDS = 10
SWITCH_SECONDS = 0.0005
"""How soon a thread that computes gives the interpreter to the event loop, where everybody waits. Python: 0.005."""
MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of request line and headers, and of trailers: nobody may fill the memory before authentication."""


@dataclass(frozen=True)
class Listening:
    """A server that accepts requests."""

    host: str
    port: int
    url: str
    parts: Services
    stop: Callable[[], None]
    """Ask it to stop; `serve` returns when it has."""


class Descriptors:
    """Raises the limit of open files of this process, and logs an error before they run out."""

    def __init__(self) -> None:
        self._scarce_from = sys.maxsize
        self._said_at = -math.inf

    def raise_limit(self) -> None:
        """Raise the soft limit, and learn from which number on descriptors are scarce."""
        limit = raise_limit()
        self._scarce_from = sys.maxsize if limit is None else math.floor(limit * 0.95)

    def taken(self, descriptor: int) -> None:
        """Check a new connection's descriptor: the lowest free number is taken, so it tells how many are in use."""
        if descriptor >= self._scarce_from and time.monotonic() - self._said_at > SAY_AGAIN_SECONDS:
            self._said_at = time.monotonic()
            log.error(
                "file descriptors run out; further connections will be reset",
                open=descriptor,
                hint="raise the hard limit (ulimit -Hn, LimitNOFILE=), or end clients that are not needed",
            )


DESCRIPTORS = Descriptors()
"""The process has one limit, however many servers are in it."""


class AnswerMemory:
    """Returns the memory of large answers to the system, shortly after much of it was freed."""

    def __init__(self) -> None:
        self._freed = 0

    def freed(self, size: int) -> None:
        self._freed += size
        if self._freed > MUCH_BYTES:
            self._freed = 0
            asyncio.get_running_loop().call_later(QUIET_SECONDS, give_back)


MEMORY = AnswerMemory()


class PipelineFull(Exception):
    """Ends the parsing of a connection that has too many requests waiting."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with limits on size and time: of request line and headers, a body, waiting requests and an answer."""

    _head_bytes = 0
    _body_bytes = 0
    _in_head = True
    """In the request line, the headers, or after the size of a chunk: trailers may follow the last one."""
    _alarm: asyncio.TimerHandle | None = None
    _answer_alarm: asyncio.TimerHandle | None = None
    _unsent_bytes = 0
    _running: RequestResponseCycle | None = None
    _is_full = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - uvicorn narrows it so, too
        super().connection_made(transport)
        self._expect_head()
        DESCRIPTORS.taken(transport.get_extra_info("socket").fileno())

    def connection_lost(self, exc: Exception | None) -> None:
        self._came()
        self._taken()
        if self._running is not None and not self._running.response_complete:
            # uvicorn tells only the last request; an earlier unanswered one would write to a closed connection.
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_taken()

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._is_full:
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request line, the headers or the trailers are too long.")

    def on_message_begin(self) -> None:
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._came()
        if len(self.pipeline) >= MAX_PIPELINED:
            self._is_full = True
            self.cycle.keep_alive = False
            raise PipelineFull
        self._expect_body()
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self.headers = []  # trailers do not join the headers of a request that is under way

    def on_body(self, body: bytes) -> None:
        self._in_head = False
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._came()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self._is_full:
            self._refuse(HTTPStatus.BAD_REQUEST, msg, "Send HTTP/1.1.")

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: anyone may ask for an upgrade, and no library is missing."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _refuse(self, status: HTTPStatus, detail: str, hint: str) -> None:
        if self.cycle and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
            return
        problem = Problem(title=status.phrase, status=status, detail=detail, hint=hint)
        body = problem.model_dump_json(exclude_none=True).encode()
        head = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: {PROBLEM_TYPE}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def _expect_head(self) -> None:
        self._came()
        self._in_head, self._head_bytes = True, 0
        self._alarm = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _expect_body(self) -> None:
        self._body_bytes = 0
        self._alarm = self.loop.call_later(BODY_SECONDS, self._check_body)

    def _check_body(self) -> None:
        # While we do not read, the sender cannot send.
        if self._body_bytes >= BODY_BYTES or self.flow.read_paused:
            self._expect_body()
        elif self.cycle.response_complete:
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The body took too long to arrive.", "Send it again, faster.")

    def _expect_taken(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._answer_alarm = self.loop.call_later(ANSWER_SECONDS, self._check_taken)

    def _check_taken(self) -> None:
        if self._unsent_bytes - self.transport.get_write_buffer_size() >= ANSWER_BYTES:
            self._expect_taken()
        else:
            self.transport.abort()  # closing would wait for the reader

    def _taken(self) -> None:
        """Cancel the answer's alarm: the reader has taken it, or is gone."""
        if self._answer_alarm is not None:
            self._answer_alarm.cancel()
            self._answer_alarm = None
            MEMORY.freed(self._unsent_bytes)

    def _came(self) -> None:
        """Cancel the alarm: the head, or the whole request, has arrived."""
        self._in_head = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class ByleaveServer(uvicorn.Server):
    """uvicorn that closes the streams before it waits for requests to end, and leaves signals alone."""

    def __init__(self, config: uvicorn.Config, parts: Services, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._parts = parts
        self._ready = ready
        self._draining: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn raises a signal again once it has stopped; the process would die before the record is closed.
        yield

    def stop(self) -> None:
        """Drain, then stop. May be called twice."""
        if not self._parts.settings.drain_seconds:
            self.should_exit = True
        elif self._draining is None:
            self._draining = asyncio.create_task(self._drain(), name="byleave-drain")

    def stop_now(self) -> None:
        """Stop without draining; after an earlier request to stop, do not wait for requests either."""
        self.force_exit = self.should_exit or self._draining is not None
        self.should_exit = True
        if self._draining is not None:
            self._draining.cancel()

    async def _drain(self) -> None:
        log.info("draining", seconds=self._parts.settings.drain_seconds, streams=self._parts.streams.count())
        # Each connection ends with its next answer, so that a proxy's next request goes on one to another server.
        self.config.encoded_headers.append(CLOSE)
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        await self._parts.drain(self._parts.settings.drain_seconds)
        self.should_exit = True

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
    model: "Model | None" = None,
) -> None:
    """Serve until asked to stop (`Listening.stop` or cancellation). Port 0 takes a free one; `model` replaces the
    settings'."""
    DESCRIPTORS.raise_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    listener = _listen(host, port)
    try:
        parts = await open_services(settings, model=model)
    except BaseException:
        listener.close()
        raise
    try:
        await _serve(settings, parts, listener, ready)
    finally:
        await parts.close()


async def _serve(
    settings: ServerSettings,
    parts: Services,
    listener: socket.socket,
    ready: Callable[[Listening], None],
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
    shown = f"[{host}]" if ":" in host else host
    server = ByleaveServer(config, parts, lambda: ready(listening))
    listening = Listening(host, port, f"http://{shown}:{port}", parts, server.stop)
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        server.stop_now()  # still in order, streams first
        await task
        raise


def run_server(
    settings: ServerSettings, host: str, port: int, *, ready: Callable[[Listening], None] = lambda listening: None
) -> None:
    """Serve as the whole process, with uvloop, until SIGINT, SIGTERM or SIGHUP; a second signal hurries it.

    An ignored SIGHUP (nohup) stays ignored.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner, contextlib.suppress(asyncio.CancelledError):
        runner.run(_until_signalled(settings, host, port, ready))


async def _until_signalled(settings: ServerSettings, host: str, port: int, ready: Callable[[Listening], None]) -> None:
    stops: list[Callable[[], None]] = []

    def serving(listening: Listening) -> None:
        stops.append(listening.stop)
        ready(listening)

    task = asyncio.ensure_future(serve(settings, host, port, ready=serving))

    def stop() -> None:
        # Before it is ready there is nothing to finish.
        if stops:
            stops.pop()()
        else:
            task.cancel()

    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        await task
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    # uvloop is optional.
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None


def _notice_who_vanishes(listener: socket.socket) -> None:
    """End connections whose other side takes nothing for as long as an answer may take: a machine that sleeps or lost
    its network says no word, and would seem to be connected for a quarter of an hour. Connections inherit this."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", ANSWER_SECONDS // 2), ("TCP_KEEPINTVL", ANSWER_SECONDS // 6)):
        if hasattr(socket, option):  # not everywhere by these names
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, ANSWER_SECONDS * 1000)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ConfigurationError(f"There is no port {port}.", hint="Choose one from 1 to 65535, or 0 for a free one.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _notice_who_vanishes(listener)
            listener.bind(address)
            listener.listen(2048)
            listener.setblocking(False)  # noqa: FBT003 - the standard library's signature
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            f"Cannot listen on {host}:{port}: {reason}.", hint="Is another server running? Choose another --port."
        ) from None
    return listener
