"""Services of a running server, opened in order and closed in reverse.

Routes find everything they need here; nothing is global, so that two servers can run in one process. Without the
`agents` extra there is no worker, and the answer to a chat message says how to install it.
"""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from byleave import telemetry
from byleave.agents.worker import RunWorker
from byleave.bus import Bus, MemoryBus, WakeUps
from byleave.calls.approvals import ApprovalManager
from byleave.calls.edits import Edits
from byleave.calls.executor import ToolExecutor
from byleave.calls.machines import Machines, Presence
from byleave.calls.neighbours import Neighbours
from byleave.calls.spans import Observer
from byleave.gate import DEFAULT_COMMANDS, Gate, GateRules, Policy, PolicyError, parse_policy
from byleave.installation import install_command
from byleave.policy_files import organisation_text
from byleave.protocol.chat import AgentInfo
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.overview import PolicyText
from byleave.server.auth.claims import ClaimMap
from byleave.server.auth.keys import SharedSecret
from byleave.server.auth.provider import IdentityProvider
from byleave.server.auth.secret import link_key, seal_keys, server_secret
from byleave.server.auth.sign_ins import PageSessions, SignIn
from byleave.server.auth.tokens import TokenVerifier, session_verifier
from byleave.settings import ServerSettings
from byleave.store import Store
from byleave.store.conversations import SESSIONS_TOPIC
from byleave.store.store import POSTGRES_PREFIXES

from .errors import Unavailable
from .feed import Attendance, StreamManager
from .notices.task import NoticeTask
from .readiness import Readiness
from .retention import RetentionTask
from .shares import ShareTask

if TYPE_CHECKING:
    from pydantic_ai.models import Model

if find_spec("pydantic_ai") is None:  # installed without the `agents` extra
    RunWorker = None  # type: ignore[assignment,misc] - a name that may be missing is looked at before use

log = structlog.stdlib.get_logger(__name__)


class Worker(Protocol):
    """Worker that processes runs."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def agents(self, project_id: str) -> list[AgentInfo]:
        """Agents available for a project's messages."""
        ...


class OnDemand(Protocol):
    """A service that is opened on first use."""

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Services:
    """An open server."""

    settings: ServerSettings
    store: Store
    bus: Bus
    presence: Presence
    neighbours: Neighbours
    wake_ups: WakeUps | None
    """Wake-ups of other servers; None for a server that has the record for itself."""
    executor: ToolExecutor
    approvals: ApprovalManager
    edits: Edits
    streams: StreamManager
    verifier: TokenVerifier
    sign_in: SignIn
    sessions: PageSessions
    worker: Worker | None
    machines: Machines
    attendance: Attendance
    retention: RetentionTask
    shares: ShareTask
    notices: NoticeTask
    signing: SharedSecret
    """Signs the tokens this server issues itself, and proves its identity."""
    readiness: Readiness
    provider: IdentityProvider | None = None
    """Signs people in to the page, beside links."""
    own_rules: tuple[PolicyText, ...] = ()
    """The server's own layers, as read when it started."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is asked to stop: requests that only wait then answer at once."""

    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set before that, when load balancers are to turn to other servers: see `drain`."""

    waiting: set[asyncio.Timeout] = field(default_factory=set[asyncio.Timeout])
    observer: Observer | None = None
    """Only while telemetry is on; `metrics` has one of its own else."""
    on_demand: dict[str, OnDemand] = field(default_factory=dict[str, OnDemand])
    """Services opened on first use, by name."""

    async def check_ready(self) -> None:
        """Raise Unavailable, in words for anybody, unless this server can do its work."""
        if self.draining.is_set() or self.closing.is_set():
            raise Unavailable("The server is shutting down.", hint="Ask another server, or again in a moment.")
        await self.readiness.check()

    async def drain(self, seconds: float) -> None:
        """Send everybody elsewhere: not ready, and without streams. Other requests are answered as always, and what
        waits goes on waiting."""
        self.draining.set()
        self.attendance.close()
        await asyncio.gather(self.streams.drain(seconds / 2), asyncio.sleep(seconds))

    def begin_closing(self) -> None:
        """End everything that would not end by itself: streams and waiting requests."""
        self.closing.set()
        while self.waiting:
            self.waiting.pop().reschedule(0)
        self.attendance.close()
        self.streams.close()

    @contextlib.asynccontextmanager
    async def until_closing(self, hint: str) -> AsyncGenerator[None]:
        """Raise Unavailable in the block once the server is asked to stop. Needs no task: this is the hot path."""
        if self.closing.is_set():
            raise Unavailable("The server is shutting down.", hint=hint)
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self.waiting.add(limit)
                try:
                    yield
                finally:
                    self.waiting.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Unavailable("The server is shutting down.", hint=hint) from None

    async def close(self) -> None:
        self.begin_closing()
        await self.readiness.close()
        await self.retention.stop()
        await self.shares.stop()
        await self.notices.stop()
        await self.attendance.wait_closed()
        await self.sessions.close()
        if self.provider is not None:
            await self.provider.close()
        for part in self.on_demand.values():
            await part.close()
        if self.worker is not None:
            await self.worker.stop()
        await self.executor.stop()
        if self.observer is not None:
            await self.observer.stop()
        await self.neighbours.stop()
        if self.wake_ups is not None:
            await self.wake_ups.stop()
        await self.store.close()


async def open_services(settings: ServerSettings, *, model: "Model | None" = None) -> Services:
    """Open everything the settings name; raise ConfigurationError if they are wrong. `model` replaces the settings'."""
    verifier, cookies = TokenVerifier.of(settings), session_verifier(settings)
    signing = SharedSecret(server_secret(settings))
    provider = _provider(settings, signing)
    own_rules = _own_rules(settings)
    gate = _gate(settings, own_rules)
    bus, nats = MemoryBus(), _nats(settings)
    store = await Store.open(
        settings, seal_keys=seal_keys(settings), on_commit=bus.publish, tell=nats.tell if nats else None
    )
    # Until the process ends: a session that a person changed, here or at another server.
    bus.listen(SESSIONS_TOPIC, lambda fact: store.chat.forget_sessions())
    presence = Presence(server_id=store.servers.own_id or "")
    neighbours = Neighbours(store, bus, presence)
    with store.database.told_in_words():
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(store.close)
            wake_ups = nats or store.wake_ups(settings.bus_url)
            if wake_ups is not None:
                await wake_ups.start(bus.hear)
                undo.push_async_callback(wake_ups.stop)
            await neighbours.start()
            undo.push_async_callback(neighbours.stop)
            executor = ToolExecutor(store, bus, presence, gate, settings)
            await executor.start()
            undo.push_async_callback(executor.stop)
            observer = Observer(store, bus, presence) if telemetry.on() else None
            if observer is not None:
                observer.start()
                undo.push_async_callback(observer.stop)
            worker = await _start_worker(store, bus, executor, settings, model=model)
            undo.pop_all()
    streams = StreamManager(store, bus, presence, neighbours, executor, settings)
    retention = RetentionTask(store, settings)
    retention.start()
    shares = ShareTask(store, executor.limits)
    shares.start()
    notices = NoticeTask(store, settings)
    notices.start()
    log.info("server opened", agent=worker is not None)
    return Services(
        settings=settings,
        store=store,
        bus=bus,
        presence=presence,
        neighbours=neighbours,
        wake_ups=wake_ups,
        executor=executor,
        approvals=ApprovalManager(store, bus, presence, executor.long_work),
        edits=Edits(executor, store, bus, presence),
        streams=streams,
        verifier=verifier,
        sign_in=SignIn(store, link_key(settings)),
        sessions=PageSessions(cookies, store, bus, streams),
        worker=worker,
        machines=executor.machines,
        attendance=Attendance(store, presence),
        retention=retention,
        shares=shares,
        notices=notices,
        signing=signing,
        provider=provider,
        # Any read will do: all use the same thread and file.
        readiness=Readiness(lambda: store.feed.head(""), store.check_writable),
        own_rules=own_rules,
        observer=observer,
    )


def _provider(settings: ServerSettings, signing: SharedSecret) -> IdentityProvider | None:
    if settings.oidc_issuer is None and settings.oidc_client_id is None:
        return None
    return IdentityProvider(settings, signing.derived("sign-in tickets"), ClaimMap.of(settings))


def _nats(settings: ServerSettings) -> WakeUps | None:
    """NATS, if the settings name it and the record is one that servers share."""
    url = settings.bus_url
    if url is None or not url.startswith(("nats://", "tls://")):
        return None
    if not settings.database.startswith(POSTGRES_PREFIXES):
        raise ConfigurationError(
            "BYLEAVE_BUS_URL is of use only to servers that share a record in PostgreSQL.",
            hint="Leave it out, or set BYLEAVE_DATABASE_URL=postgresql://…",
        )
    try:
        from byleave.bus.nats import NatsWakeUps
    except ImportError as error:
        raise ConfigurationError(
            f"Wake-ups through NATS need nats-py, which cannot be loaded: {error}.",
            hint=install_command("nats"),
        ) from None
    return NatsWakeUps(url, hmac.digest(seal_keys(settings)[0], b"byleave wake-ups", "sha256"))


def _own_rules(settings: ServerSettings) -> tuple[PolicyText, ...]:
    """The organisation's policy, read once."""
    if settings.policy is None:
        return ()
    try:
        return (organisation_text(settings.policy),)
    except PolicyError as error:
        raise ConfigurationError(error.message, hint=error.hint) from None


def _gate(settings: ServerSettings, own_rules: tuple[PolicyText, ...]) -> Gate:
    """Make the gate from the operator's list of commands and the organisation's policy."""
    allowed = DEFAULT_COMMANDS if settings.allowed_commands is None else frozenset(settings.allowed_commands)
    try:
        layers = [parse_policy(text.text, text.layer, source=text.source) for text in own_rules]
    except PolicyError as error:
        raise ConfigurationError(error.message, hint=error.hint) from None
    for layer in layers:
        log.info("organisation's rules", source=layer.source, rules=len(layer.rules))
    gate = Gate(GateRules(allowed_commands=allowed, policy=Policy(layers)))
    gate.commands.check()  # fails loudly at startup, before any call is judged
    return gate


async def _start_worker(*parts: Any, model: "Model | None") -> Worker | None:
    if RunWorker is None:
        return None
    worker: Worker = RunWorker(*parts, model=model)
    await worker.start()
    return worker
