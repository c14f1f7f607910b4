"""Carry out undos that the server requests: `tool.undo_request` in, one report out.

Undos run one at a time, beside the executions; the workspace makes sure that none of those runs meanwhile. A request
that was seen before, is meant for another client or is too late is ignored: a replayed feed must not act late or twice.
An undo that was begun is reported until the server has it, also on the next connection and after the client was killed;
anything else only while somebody waits for it. An undo that takes long is reported as begun. Nothing here decides what
may be undone: the workspace's plan does.

`UndoIntents` stores each undo before its first step, until the server knows how it ended. A client that was killed
between an undo and its report finds there what it still has to report. Each has one small file, since few are open at a
time. The outcome of an undo is not stored there: the workspace's own list has it.
"""

import asyncio
import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import Field, ValidationError

from byleave.gate import mask_text
from byleave.protocol.changes import CallUndo, SessionUndoReport, UndoPlan, UndoReport
from byleave.protocol.errors import ByleaveError, UnreachableError
from byleave.protocol.events import SessionUndoRequested, UndoRequested
from byleave.protocol.wire import Identifier, Timestamp, WireModel, moment, now, steady
from byleave.workspace.undo.desk import UndoDesk, UndoRefused

from .identity import private_directory
from .journal import sync_directory, write_private
from .log import log
from .tasks import Tasks, pause

MOST = 1000
"""Most intents that are read: nobody asks for so many, and a lost one costs a line in the record."""
_SUFFIX = ".json"


UndoEvent = UndoRequested | SessionUndoRequested
Report = UndoReport | SessionUndoReport


class UndoIntent(WireModel):
    """An undo that is about to begin."""

    request_id: Identifier
    tool_id: Identifier
    plan: str
    at: Timestamp
    session_id: Identifier | None = None
    """Set if it is about all calls of a conversation, of which `tool_id` is the oldest."""
    tool_ids: list[Identifier] = Field(default_factory=list[str])


class UndoIntents:
    """The intents of one client, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "undos"
        private_directory(self._directory)
        self.left = self._read()
        """Intents by request, of a client that stopped before it reported how they ended."""
        self._own: set[str] = set()

    def keep(self, request_id: str, tool_id: str, plan: str, session: SessionUndoRequested | None = None) -> None:
        """Store an intent on disk. If this raises OSError, nothing may begin. `session`: a request for many calls."""
        intent = UndoIntent(request_id=request_id, tool_id=tool_id, plan=plan, at=now())
        if session is not None:
            intent = intent.model_copy(update={"session_id": session.session_id, "tool_ids": session.tool_ids})
        os.close(write_private(self._path(request_id), intent.model_dump_json(exclude_defaults=True).encode()))
        sync_directory(self._directory)
        self._own.add(request_id)

    def has(self, request_id: str) -> bool:
        """Return True for an undo begun by this process that the server does not know of yet."""
        return request_id in self._own

    def drop(self, request_id: str) -> None:
        """Remove an intent: the server knows of it, or never will."""
        self.left.pop(request_id, None)
        self._own.discard(request_id)
        with contextlib.suppress(OSError):  # reported again after the next start, which does no harm
            self._path(request_id).unlink(missing_ok=True)

    def _path(self, request_id: str) -> Path:
        return self._directory / f"{request_id}{_SUFFIX}"

    def _read(self) -> dict[str, UndoIntent]:
        found: list[UndoIntent] = []
        for path in sorted(self._directory.glob(f"*{_SUFFIX}"))[:MOST]:
            try:
                found.append(UndoIntent.model_validate_json(path.read_bytes()))
            except (OSError, ValidationError):
                # Torn: it was not yet on disk, so the undo had not begun.
                log.warning("an undo's intent cannot be read", name=path.name)
                path.unlink(missing_ok=True)
        return {intent.request_id: intent for intent in sorted(found, key=lambda intent: intent.at)}


TRIES = 5
WAITING = 16
"""Further requests are dropped; the server tells the caller that no answer came."""
REMEMBERED = 1000
LAST_POST_SECONDS = 2.0
LONG_SECONDS = 5.0
"""An undo that takes longer is reported as begun."""
HALF_DONE = (
    "The client stopped in the middle: some paths may be as before the call, others not. "
    "Look at what undoing would do now."
)
SESSION_HALF_DONE = (
    "The client stopped in the middle: some calls are undone, others may not be. Look at what undoing would do now."
)
MAX_PROBLEM = 1000
Result = TypeVar("Result")


class UndoLink(Protocol):
    """Interface to the server; `ServerApi` implements it."""

    async def post_undo_report(self, project_id: str, tool_id: str, report: UndoReport) -> None: ...

    async def post_session_undo_report(self, project_id: str, session_id: str, report: SessionUndoReport) -> None: ...


@dataclass(eq=False, kw_only=True)
class Undoer:
    """Undoes calls in one workspace when the server asks."""

    project_id: str
    client_id: str
    desk: UndoDesk
    link: UndoLink
    forget: Callable[[], None]
    """Forgets cached reads: the files change."""
    intents: UndoIntents
    on_done: Callable[[UndoPlan, str], None] | None = None
    """Called for each undo that changed something, with the id under which it can be taken back."""
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    _seen: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])
    _tasks: Tasks = field(default_factory=Tasks)
    _unsent: OrderedDict[str, tuple[str, Report]] = field(default_factory=OrderedDict[str, "tuple[str, Report]"])
    """Reports of undos that were begun, by request, each with its call or conversation, until the server has them."""
    _closed: bool = False

    def request(self, event: UndoEvent, *, server_ahead: float) -> None:
        """Answer a request in the background."""
        if self._closed or event.client_id != self.client_id:
            return
        if event.request_id in self._seen:
            log.warning("repeated undo request ignored", tool_id=event.tool_id)
            return
        # Computed once: setting our wall clock later does not count.
        until = steady() + (moment(event.deadline) - datetime.now(UTC)).total_seconds() - server_ahead
        if _is_late(until):
            log.info("late undo request ignored", tool_id=event.tool_id)
            return
        if len(self._tasks) >= WAITING:
            log.warning("undo request left out", tool_id=event.tool_id)
            return
        self._seen[event.request_id] = None
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        log.info("undo requested", tool_id=event.tool_id, acts=event.plan is not None)
        self._tasks.spawn(self._answer(event, until))

    async def resend(self) -> None:
        """Deliver the unsent reports, also those of a client that was killed. Never raises."""
        for intent in list(self.intents.left.values()):
            about = intent.session_id or intent.tool_id
            await self._post(about, await asyncio.to_thread(self._owed, intent))
        for request_id, (about, report) in list(self._unsent.items()):
            if request_id in self._unsent:
                await self._post(about, report)

    async def close(self) -> None:
        """Begin nothing more; finish the current undo, and report it if the server answers soon."""
        self._closed = True
        async with self._alone:
            pass
        await self._tasks.close(LAST_POST_SECONDS)

    async def _answer(self, event: UndoEvent, until: float) -> None:
        about = event.session_id if isinstance(event, SessionUndoRequested) else event.tool_id
        async with self._alone:
            if self._closed:
                return
            if isinstance(event, SessionUndoRequested):
                report = await self._act_on_session(event, until)
            else:
                report = await self._act(event, until)
        if self.intents.has(event.request_id):
            self._unsent[event.request_id] = (about, report)
            while len(self._unsent) > REMEMBERED:
                self._unsent.popitem(last=False)
        for attempt in range(TRIES):
            if await self._post(about, report):
                return
            if attempt + 1 < TRIES:
                await asyncio.sleep(pause(attempt))

    async def _act(self, event: UndoRequested, until: float) -> UndoReport:
        """Act on a request; return one report, whatever goes wrong."""
        request_id, digest = event.request_id, event.plan
        try:
            if digest is None:
                plan = await asyncio.to_thread(self.desk.look, event.tool_id, event.keep_off)
                return UndoReport(request_id=request_id, plan=plan)
            self.forget()
            try:
                plan, undo_id = await self._carry_out(event, digest, until)
            finally:
                self.forget()
            log.info("undone", tool_id=event.tool_id, undo_id=undo_id, paths=plan.total_files)
            if self.on_done is not None and undo_id is not None:
                self.on_done(plan, undo_id)
            return UndoReport(request_id=request_id, plan=plan, undo_id=undo_id, done=True)
        except UndoRefused as error:
            return UndoReport(request_id=request_id, plan=error.plan, problem=_problem(error))
        except ByleaveError as error:
            return UndoReport(request_id=request_id, problem=_problem(error))
        except Exception as error:  # noqa: BLE001 - a boundary: every request is answered, whatever goes wrong
            log.error("undo failed unexpectedly", tool_id=event.tool_id, exc_info=error)
            return UndoReport(request_id=request_id, problem=_unexpected(error))

    async def _carry_out(self, event: UndoRequested, digest: str, until: float) -> tuple[UndoPlan, str | None]:
        return await self._while_telling(
            event,
            digest,
            until,
            lambda wanted: self.desk.carry_out(
                event.tool_id, digest, partial=event.partial, wanted=wanted, keep_off=event.keep_off
            ),
        )

    async def _act_on_session(self, event: SessionUndoRequested, until: float) -> SessionUndoReport:
        """The same for all calls of a conversation."""
        digest, undone = event.plan, list[tuple[UndoPlan, str]]()
        report = SessionUndoReport(request_id=event.request_id, tool_id=event.tool_id)
        try:
            if digest is None:
                plan = await asyncio.to_thread(self.desk.look_all, event.tool_ids, event.keep_off)
                return report.model_copy(update={"plan": plan})
            self.forget()
            try:
                plan = await self._while_telling(
                    event,
                    digest,
                    until,
                    lambda wanted: self.desk.carry_out_all(
                        event.tool_ids, digest, undone, partial=event.partial, wanted=wanted, keep_off=event.keep_off
                    ),
                )
            finally:
                self.forget()
            log.info("conversation undone", session_id=event.session_id, calls=len(undone))
            return report.model_copy(update={"plan": plan, "undone": _calls(undone), "done": True})
        except UndoRefused as error:
            return report.model_copy(update={"plan": error.plan, "problem": _problem(error)})
        except ByleaveError as error:
            return report.model_copy(update={"undone": _calls(undone), "problem": _problem(error)})
        except Exception as error:  # noqa: BLE001 - a boundary: every request is answered, whatever goes wrong
            log.error("undo failed unexpectedly", session_id=event.session_id, exc_info=error)
            return report.model_copy(update={"undone": _calls(undone), "problem": _unexpected(error)})
        finally:
            if self.on_done is not None:
                for plan, undo_id in undone:
                    self.on_done(plan, undo_id)

    async def _while_telling(
        self, event: UndoEvent, digest: str, until: float, act: Callable[[Callable[[], bool]], Result]
    ) -> Result:
        """Undo in a thread; report it as begun if that takes long. `act` is given what says if it is still wanted."""
        begun, told = threading.Event(), False

        def wanted() -> bool:
            if _is_late(until):
                return False
            many = (event,) if isinstance(event, SessionUndoRequested) else ()
            self.intents.keep(event.request_id, event.tool_id, digest, *many)
            if _is_late(until):  # the disk was slow
                self.intents.drop(event.request_id)
                return False
            begun.set()
            return True

        acting = asyncio.create_task(asyncio.to_thread(act, wanted))
        while not acting.done():
            await asyncio.wait({acting}, timeout=LONG_SECONDS)
            if begun.is_set() and not told and not acting.done():
                told = True
                await self._say(event)
        return acting.result()

    def _owed(self, intent: UndoIntent) -> Report:
        """The report that a killed client did not send."""
        if intent.session_id is not None:
            return self._owed_of_session(intent)
        request_id = intent.request_id
        try:
            found = self.desk.outcome(intent.tool_id, intent.at)
        except ByleaveError as error:
            return UndoReport(request_id=request_id, problem=_problem(error))
        if found is None:
            return UndoReport(request_id=request_id, problem="The client stopped before anything was undone.")
        undo_id, paths, finished = found
        if not finished:
            return UndoReport(request_id=request_id, problem=HALF_DONE)
        plan = UndoPlan(tool_id=intent.tool_id, plan=intent.plan, files=[], total_files=paths)
        return UndoReport(request_id=request_id, plan=plan, undo_id=undo_id, done=True)

    def _owed_of_session(self, intent: UndoIntent) -> SessionUndoReport:
        report = SessionUndoReport(request_id=intent.request_id, tool_id=intent.tool_id)
        try:
            found = {tool_id: self.desk.outcome(tool_id, intent.at) for tool_id in intent.tool_ids}
        except ByleaveError as error:
            return report.model_copy(update={"problem": _problem(error)})
        undone = [
            CallUndo(tool_id=tool_id, undo_id=ended[0], files=ended[1])
            for tool_id, ended in found.items()
            if ended is not None and ended[2]
        ]
        return report.model_copy(update={"undone": undone, "problem": SESSION_HALF_DONE})

    async def _say(self, event: UndoEvent) -> None:
        """Post once that an undo has begun; nothing depends on it."""
        try:
            if isinstance(event, SessionUndoRequested):
                report = SessionUndoReport(request_id=event.request_id, tool_id=event.tool_id, begun=True)
                await self.link.post_session_undo_report(self.project_id, event.session_id, report)
            else:
                report = UndoReport(request_id=event.request_id, begun=True)
                await self.link.post_undo_report(self.project_id, event.tool_id, report)
        except ByleaveError as error:
            log.info("undo under way not told", tool_id=event.tool_id, error=error.message)

    async def _post(self, about: str, report: Report) -> bool:
        """Post a report on a call or a conversation; return True if it need not be sent again."""
        try:
            if isinstance(report, SessionUndoReport):
                await self.link.post_session_undo_report(self.project_id, about, report)
            else:
                await self.link.post_undo_report(self.project_id, about, report)
        except UnreachableError as error:
            log.warning("undo report not delivered", about=about, error=error.message)
            return False
        except ByleaveError as error:
            log.warning("undo report not taken", about=about, error=error.message)
        self._unsent.pop(report.request_id, None)
        self.intents.drop(report.request_id)
        return True


def _calls(undone: list[tuple[UndoPlan, str]]) -> list[CallUndo]:
    return [CallUndo(tool_id=plan.tool_id, undo_id=undo_id, files=plan.total_files) for plan, undo_id in undone]


def _is_late(until: float) -> bool:
    return steady() >= until


def _problem(error: ByleaveError) -> str:
    """Join the message and the hint of an error."""
    hint = error.hint or ""
    if hint:
        hint = f" {hint[:1].upper()}{hint[1:]}{'' if hint.endswith('.') else '.'}"
    # Masked before it is cut: half a secret would no longer look like one.
    return mask_text(f"{error.message}{hint}")[:MAX_PROBLEM]


def _unexpected(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"The machine could not do it: {error.strerror}. Look at the files before you try again."
    return f"The client failed with {type(error).__name__}; its log says more."
