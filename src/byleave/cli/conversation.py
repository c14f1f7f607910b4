"""A conversation with a project's agent, over the same REST and SSE as every other chat.

One task reads the feed and reconnects when it breaks; another shows the events in order, and pauses while a question
is on the screen. A decision made elsewhere closes a question at once. Nothing here decides: questions go to the desk.
"""

import asyncio
import time
from collections.abc import Awaitable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from byleave.client.api import ServerApi
from byleave.client.approvals import ApprovalDesk, approved_by_text
from byleave.client.tasks import cancel, pause
from byleave.protocol.chat import MessageBody
from byleave.protocol.errors import ByleaveError, CallerError, UnreachableError
from byleave.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    FeedEvent,
    GrantChanged,
    RunChanged,
    ToolFinished,
    ToolStarted,
)
from byleave.protocol.states import AgentMode, ExecutionStatus, RiskLevel, RunState
from byleave.protocol.wire import steady
from byleave.settings import ClientSettings

from .screen import complain, say
from .transcript import Transcript

if TYPE_CHECKING:
    from .chat_terminal import ChatTerminal

Result = TypeVar("Result")

RECONNECT_TRIES = 8


class Conversation:
    """A conversation with a project's agent. Enter it, then call `turn`."""

    def __init__(
        self,
        api: ServerApi,
        project_id: str,
        transcript: Transcript,
        *,
        settings: ClientSettings,
        terminal: "ChatTerminal | None" = None,
        session_id: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        mode: AgentMode | None = None,
        one_session: bool = False,
    ) -> None:
        """With `one_session`, questions of other sessions are not asked here."""
        self._api = api
        self._project_id = project_id
        self._transcript = transcript
        self._terminal = terminal
        self._desk = ApprovalDesk(
            api, project_id, terminal, timeout_seconds=settings.approval_timeout_seconds, tries=settings.post_tries
        )
        self.session_id = session_id
        self._agent = agent
        self._model = model
        self._mode = mode
        self._one_session = one_session
        self._run_id: str | None = None
        self._cancelled = False
        self._ended: asyncio.Future[RunState] | None = None
        self._decided: set[str] = set()
        self._unasked: set[str] = set()
        """Calls above LOW that nobody has been asked about."""
        self._grants: dict[str, str] = {}
        """Texts of known grants, by id."""
        self._events: asyncio.Queue[FeedEvent] = asyncio.Queue()
        self._run_is_known = asyncio.Event()
        """Cleared while a message is being posted: events meanwhile may belong to its run."""
        self._run_is_known.set()
        self._last_event_id: int | None = None
        self._server_offset = time.time() - steady()
        """Seconds from `steady` to the server's clock, which deadlines use."""
        self._open = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Conversation":
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._show_events())]
        try:
            await self._while_feed_works(self._open.wait())
            if not self._one_session:
                known = self._desk.pending
                waiting = (await self._api.approvals()).approvals
                self._desk.settle(waiting, known=known, server_ahead=self._server_ahead())
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._desk.close()
        await cancel(*self._tasks)

    @property
    def can_cancel(self) -> bool:
        """True if a run is active and not yet cancelled."""
        return self._run_id is not None and not self._cancelled

    @property
    def is_running(self) -> bool:
        return self._run_id is not None

    @property
    def cancelled(self) -> bool:
        """True if the last run was cancelled here."""
        return self._cancelled

    def say(self, sentence: str) -> None:
        """Print a message beside what is shown."""
        if self._terminal is None:
            say(sentence)
        else:
            self._terminal.say(sentence)

    async def turn(self, message: str) -> RunState:
        """Send one message and follow its run to the end."""
        ended = self._ended = asyncio.get_running_loop().create_future()
        self._cancelled = False
        self._run_is_known.clear()
        self._transcript.begin_turn()
        try:
            accepted = await self._api.post_message(self._project_id, self._body(message))
            self.session_id, self._run_id = accepted.session_id, accepted.run_id
            self._run_is_known.set()
            return await self._while_feed_works(ended)
        finally:
            self._run_id = self._ended = None
            self._run_is_known.set()
            self._transcript.end_turn()

    def _body(self, message: str) -> MessageBody:
        try:
            return MessageBody(
                content=message, session_id=self.session_id, mode=self._mode, agent=self._agent, model=self._model
            )
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            raise CallerError(f"This message cannot be sent: {wrong['loc'][0]}: {wrong['msg']}.") from None

    async def cancel(self) -> None:
        """Cancel the run."""
        if self._run_id is None:
            return
        self._cancelled = True
        try:
            await self._api.cancel_run(self._project_id, self._run_id)
        except ByleaveError as error:
            with nullcontext() if self._terminal is None else self._terminal.screen.above():
                complain(error.message, error.hint)

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                stream = self._api.stream(self._project_id, self._resume_at())
                async with stream:
                    if stream.server_time is not None:
                        self._server_offset = stream.server_time.timestamp() - steady()
                    self._open.set()
                    async for number, event in stream:
                        failures, self._last_event_id = 0, number
                        if isinstance(event, ApprovalDecided):
                            self._decided.add(event.approval_id)
                            self._desk.decided(event)
                        self._events.put_nowait(event)
            except UnreachableError:
                if not self._open.is_set() or failures >= RECONNECT_TRIES:
                    raise
            failures += 1
            await asyncio.sleep(pause(failures, 0.2, 5.0))

    def _server_ahead(self) -> float:
        """Seconds the server's clock is ahead of ours, as ours is set now."""
        return steady() + self._server_offset - time.time()

    def _resume_at(self) -> int | None:
        """Return the event to resume after.

        A feed that broke in a turn before its first event is read from the beginning.
        """
        return 0 if self._last_event_id is None and self._ended is not None else self._last_event_id

    async def _show_events(self) -> None:
        while True:
            event = await self._events.get()
            await self._run_is_known.wait()
            if self._terminal is not None:
                await self._terminal.unasked()
            ours = self._is_ours(event)
            if isinstance(event, GrantChanged):
                self._grants[event.grant.id] = event.grant.text
            if ours:
                self._show_allowed_by(event)
                self._transcript.show(event)
                if isinstance(event, RunChanged) and event.state in (RunState.DONE, RunState.FAILED):
                    self._end(event.state)
            if isinstance(event, ApprovalRequested) and (ours or not self._one_session):
                if event.approval_id in self._decided:
                    continue  # decided while it was in the queue
                self._desk.request(event, server_ahead=self._server_ahead())
                # The desk asks in its own task: let it start first, so that the next event waits for the answer.
                await asyncio.sleep(0)

    def _show_allowed_by(self, event: FeedEvent) -> None:
        """Show what allowed a call that ran without a question: a grant, a rule, the mode."""
        match event:
            case ToolStarted() if event.risk_level is not RiskLevel.LOW:
                self._unasked.add(event.tool_id)
            case ApprovalDecided(decided_by=by) if by is not None and not by.startswith("grant:"):
                self._unasked.difference_update(event.tool_ids)
            case ToolFinished(status=ExecutionStatus.COMPLETED) if event.tool_id in self._unasked:
                self._unasked.discard(event.tool_id)
                by = approved_by_text(event.approved_by, user_id=None, grants=self._grants)
                if by is not None:
                    self._transcript.allowed(event.tool_id, by)
            case _:
                pass

    def _end(self, state: RunState) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(state)

    def _is_ours(self, event: FeedEvent) -> bool:
        if self._run_id is None or getattr(event, "session_id", None) != self.session_id:
            return False
        return getattr(event, "run_id", None) in (None, self._run_id)

    async def _while_feed_works(self, awaitable: Awaitable[Result]) -> Result:
        """Await something, but raise if the feed has failed, since it can no longer come."""
        waiting: asyncio.Future[Result] = asyncio.ensure_future(awaitable)
        everything: set[asyncio.Future[Any]] = {waiting, *self._tasks}
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                for task in self._tasks:
                    if task.done():
                        task.result()  # raises the error that ended it
            return await waiting
        finally:
            waiting.cancel()
