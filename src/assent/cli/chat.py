"""`assent chat`: a conversation in the terminal, over the same REST and SSE as every other chat.

Watches the project's feed, posts messages, shows what the agent says and does, and puts approvals to the person in
between. Without a terminal it says what waits and how to answer elsewhere, and keeps waiting: it never decides.
Ctrl-C cancels the run first and leaves the second time.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Generator
from pathlib import Path
from typing import TypeVar

from assent.client import ApprovalDesk, ServerApi
from assent.client.outbox import pause
from assent.protocol.chat import MessageBody
from assent.protocol.errors import AssentError, UnreachableError
from assent.protocol.events import ApprovalDecided, ApprovalRequested, FeedEvent, RunChanged
from assent.protocol.states import AgentMode, RunState
from assent.settings import ClientSettings

from .exits import ExitCode
from .places import find_place, project_to_watch
from .preferences import read_settings
from .screen import complain, say
from .stopping import on_stop
from .terminal import Terminal
from .transcript import JsonTranscript, TerminalTranscript, Transcript

RECONNECT_TRIES = 8
Result = TypeVar("Result")


class Chat:
    """One conversation with a project's agent."""

    def __init__(
        self,
        api: ServerApi,
        project_id: str,
        transcript: Transcript,
        *,
        desk: ApprovalDesk | None = None,
        session_id: str | None = None,
        mode: AgentMode | None = None,
        one_session: bool = False,
    ) -> None:
        self._api = api
        self._project_id = project_id
        self._transcript = transcript
        self._desk = desk
        self.session_id = session_id
        self._mode = mode
        self._one_session = one_session
        """Whether questions of other sessions are left to others."""
        self._run_id: str | None = None
        self._cancelled = False
        self._heard: asyncio.Queue[FeedEvent] | None = None
        self._last_event_id: int | None = None
        self._open = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Chat":
        self._watcher = asyncio.create_task(self._watch(), name="assent-chat-feed")
        await self._unless_feed_fails(self._open.wait())
        if self._desk is not None and not self._one_session:
            self._desk.settle((await self._api.approvals()).approvals)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._desk is not None:
            await self._desk.close()
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    async def turn(self, message: str) -> RunState:
        """Send one message and follow its run to the end."""
        # Everything heard from now on is kept until the answer says which run is ours.
        self._heard = asyncio.Queue()
        self._cancelled = False
        try:
            body = MessageBody(content=message, session_id=self.session_id, mode=self._mode)
            accepted = await self._api.post_message(self._project_id, body)
            self.session_id, self._run_id = accepted.session_id, accepted.run_id
            while True:
                event = await self._unless_feed_fails(self._heard.get())
                if not self._is_ours(event):
                    continue
                self._tell(event)
                if isinstance(event, RunChanged) and event.state in (RunState.DONE, RunState.FAILED):
                    return event.state
        finally:
            self._heard, self._run_id = None, None
            self._transcript.end_turn()

    async def cancel(self) -> bool:
        """Call off the run; False when there is none, or it was called off before."""
        if self._run_id is None or self._cancelled:
            return False
        self._cancelled = True
        try:
            await self._api.cancel_run(self._project_id, self._run_id)
        except AssentError as error:
            complain(error.message, error.hint)
        return True

    @property
    def running(self) -> bool:
        return self._run_id is not None and not self._cancelled

    def _is_ours(self, event: FeedEvent) -> bool:
        if getattr(event, "session_id", None) != self.session_id:
            return False
        return getattr(event, "run_id", None) in (None, self._run_id)

    def _tell(self, event: FeedEvent) -> None:
        self._transcript.show(event)
        if self._one_session:
            self._decide(event)

    def _decide(self, event: FeedEvent) -> None:
        if self._desk is None:
            return
        if isinstance(event, ApprovalRequested):
            self._desk.request(event)
        elif isinstance(event, ApprovalDecided):
            self._desk.decided(event)

    async def _watch(self) -> None:
        failures = 0
        while True:
            try:
                stream = self._api.stream(self._project_id, self._resume_at())
                async with stream:
                    self._open.set()
                    async for number, event in stream:
                        failures, self._last_event_id = 0, number
                        if not self._one_session:
                            self._decide(event)
                        if self._heard is not None:
                            self._heard.put_nowait(event)
            except UnreachableError:
                if not self._open.is_set() or failures >= RECONNECT_TRIES:
                    raise
            failures += 1
            await asyncio.sleep(pause(failures, 0.2, 5.0))

    def _resume_at(self) -> int | None:
        """Where the feed goes on. One that broke in a turn before it said anything is read from its beginning."""
        if self._last_event_id is None and self._heard is not None:
            return 0
        return self._last_event_id

    async def _unless_feed_fails(self, wanted: Awaitable[Result]) -> Result:
        """Wait, but not for something that can no longer come."""
        waiting = asyncio.ensure_future(wanted)
        assert self._watcher is not None  # noqa: S101 - set when the chat was entered
        await asyncio.wait({waiting, self._watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            await self._watcher  # raises what ended it
        return await waiting


async def chat(
    message: str | None,
    *,
    server_url: str | None,
    project_id: str | None,
    session_id: str | None,
    mode: AgentMode | None,
    as_json: bool,
) -> ExitCode:
    """Talk to the agent of a running server."""
    place = find_place(server_url)
    async with place.api() as api:
        if project_id is None:
            project_id = (await project_to_watch(api, place, Path.cwd())).project_id
        terminal = Terminal.here()
        desk = desk_for(api, project_id, terminal)
        transcript = JsonTranscript() if as_json else TerminalTranscript(can_ask=desk is not None)
        one_turn = message is not None
        conversation = Chat(
            api, project_id, transcript, desk=desk, session_id=session_id, mode=mode, one_session=one_turn
        )
        async with conversation:
            if message is not None:
                return await one_message(conversation, message)
            return await converse(conversation, terminal)


def desk_for(api: ServerApi, project_id: str, terminal: Terminal | None) -> ApprovalDesk | None:
    """Where questions are put; None without a person to put them to."""
    if terminal is None:
        return None
    settings = read_settings(ClientSettings)
    return ApprovalDesk(
        api, project_id, terminal, timeout_seconds=settings.approval_timeout_seconds, tries=settings.post_tries
    )


async def one_message(conversation: Chat, message: str) -> ExitCode:
    """One turn, then the end."""
    with _leaving(conversation) as leave:
        turn = asyncio.create_task(conversation.turn(message))
        state = await _unless_left(turn, leave)
    if state is None:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if state is RunState.DONE else ExitCode.FAILED


async def converse(conversation: Chat, terminal: Terminal | None) -> ExitCode:
    """Turn after turn, until the person leaves."""
    if terminal is None:
        complain("There is no terminal to chat on.", "give the message: assent chat 'list src'")
        return ExitCode.USAGE
    say("Type a message and Enter. Ctrl-C cancels what runs, Ctrl-D leaves.")
    with _leaving(conversation) as leave:
        while not leave.is_set():
            line = await _unless_left(asyncio.create_task(terminal.line()), leave)
            if line is None:
                break
            try:
                await _unless_left(asyncio.create_task(conversation.turn(line)), leave)
            except AssentError as error:
                complain(error.message, error.hint)
    say("")
    return ExitCode.OK


@contextlib.contextmanager
def _leaving(conversation: Chat) -> Generator[asyncio.Event]:
    """Ctrl-C: the first calls off the run, the next leaves."""
    leave = asyncio.Event()
    cancelling: set[asyncio.Task[bool]] = set()

    def act() -> None:
        if conversation.running:
            say("\nCancelling. Ctrl-C again leaves.")
            cancelling.add(asyncio.create_task(conversation.cancel()))
        else:
            leave.set()

    with on_stop(act):
        try:
            yield leave
        finally:
            for task in cancelling:
                task.cancel()


async def _unless_left(task: "asyncio.Task[Result]", leave: asyncio.Event) -> Result | None:
    leaving = asyncio.create_task(leave.wait())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        leaving.cancel()
        task.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)
