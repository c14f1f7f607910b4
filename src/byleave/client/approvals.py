"""Approvals known to this client: pending ones with their timers, past ones, and the prompt.

One question is asked at a time, in order of arrival. An answer is posted with the digest that was shown; if that
fails, it is kept and sent again while its question is open, and the person hears if the server never confirmed it. No
answer, a late answer, a closed terminal or a closing client never become an approval: they post nothing at all.
Nothing here draws: an unattended client never loads terminal code (`terminal`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from byleave.gate import safe_text
from byleave.gate.policy.grants import text_of
from byleave.protocol.approvals import (
    ApprovalRequest,
    ApproveBody,
    DecisionAnswer,
    EditableCall,
    EditAnswer,
    EditBody,
    RejectBody,
)
from byleave.protocol.changes import WriteChange
from byleave.protocol.errors import (
    ByleaveError,
    CallerError,
    ConflictError,
    NotFound,
    ToolApprovalTimeout,
    UnreachableError,
)
from byleave.protocol.events import ApprovalDecided, ApprovalRequested
from byleave.protocol.grants import GrantPreview, GrantRule, GrantTerms
from byleave.protocol.states import AnsweredFrom, ApprovalScope, ApprovalStatus, RiskLevel
from byleave.protocol.wire import moment, now

from .log import log
from .outbox import Link
from .tasks import Tasks, cancel, pause


@dataclass(frozen=True)
class Answer:
    """A person's decision."""

    allow: bool
    reason: str | None = None
    scope: ApprovalScope = ApprovalScope.ONCE
    terms: GrantTerms | None = None
    """Set for a scope wider than this call."""


@dataclass(frozen=True, eq=False)
class Question:
    """An approval to ask for. `closed` gets a sentence if it ends without an answer from here."""

    event: ApprovalRequested
    closed: asyncio.Future[str]
    until: float
    """On the loop's clock."""
    preview: Callable[[GrantRule], Awaitable[GrantPreview]] | None = None
    """Previews a rule on past calls, on the server."""
    whole: Callable[[bool], Awaitable[str]] | None = None
    """Returns the whole call if the question shows a part; with True, unmasked."""
    change: Callable[[], Awaitable[WriteChange]] | None = None
    """Returns the effect of a write on its file."""
    editable: Callable[[bool], Awaitable[EditableCall]] | None = None
    """Returns what may be changed in the call; with True, also what is masked."""
    edit: Callable[[EditBody], Awaitable[EditAnswer]] | None = None
    """Changes the call. The question then ends, and another one asks about the changed call."""
    position: Callable[[], tuple[int, int]] = lambda: (1, 1)
    """Returns the number of this question and the count of those that came together with it, as they are now."""


class ApprovalPrompt(Protocol):
    """Asks a person, one question at a time."""

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer; None if there was none."""
        ...

    def say(self, sentence: str) -> None:
        """Show a sentence to the person."""
        ...


HISTORY = 200
DAY_SECONDS = 24 * 3600
EDITABLE_TOOLS = ("write_file", "execute_command", "search_web")
TRY_AGAIN_SECONDS = 15.0
_CLOCK_SECONDS = 0.1
"""Two times computed one after the other differ by less."""
CLOSED_HERE = "This question is closed here. It may still be answered elsewhere."
TIME_IS_UP = "Nobody answered here in time."
_ENDED = {status.value: status for status in ApprovalStatus if status is not ApprovalStatus.PENDING}
UNCONFIRMED = "The server did not confirm your answer before the question ended. `byleave history` shows if it ran."


@dataclass(frozen=True)
class PastApproval:
    """Outcome of a question, as this client saw it."""

    approval_id: str
    tool_name: str
    status: ApprovalStatus | None
    """The status that the server told; None if the question only closed here."""
    decided_by: str | None
    timestamp: str


@dataclass(eq=False)
class PendingApproval:
    """A question that waits for an answer."""

    event: ApprovalRequested
    timer: asyncio.TimerHandle
    question: Question
    deadline: float
    """The server's, on the loop's clock; the question may close here before."""
    answer: Answer | None = None
    """Answer given here, but not yet delivered."""
    asked: bool = False
    posting: bool = False
    kept: bool = False
    """True if posting the answer failed, and the person was told that it is sent later."""


class ApprovalDesk:
    """Keeps the questions, asks them through a prompt, and posts the answers."""

    def __init__(
        self, link: Link, project_id: str, prompt: ApprovalPrompt | None, *, timeout_seconds: float, tries: int
    ) -> None:
        self._link = link
        self._project_id = project_id
        self._prompt = prompt
        self._timeout_seconds = timeout_seconds
        self._tries = tries
        self._pending: dict[str, PendingApproval] = {}
        self._over: deque[PastApproval] = deque(maxlen=HISTORY)
        self._asker: asyncio.Task[None] | None = None
        self._asked = 0
        """Questions asked since none was waiting."""
        self._posts = Tasks()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> list[ApprovalRequested]:
        return [waiting.event for waiting in self._pending.values()]

    @property
    def history(self) -> list[PastApproval]:
        return list(self._over)

    def request(self, event: ApprovalRequested, *, server_ahead: float = 0.0) -> None:
        """Add a question, unless it is known already. If more calls wait for a known one, that is shown before the next
        answer to it."""
        known = self._pending.get(event.approval_id)
        if known is not None:
            if event.calls > known.event.calls:
                known.event = event
                known.question = known.question if known.asked else replace(known.question, event=event)
            return
        if any(past.approval_id == event.approval_id for past in self._over):
            return
        seconds = self._seconds(event, server_ahead)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(seconds, 0.0), self._expire, event.approval_id)
        question = self._question(event, loop.time() + seconds)
        deadline = loop.time() + self._server_seconds(event, server_ahead)
        self._pending[event.approval_id] = PendingApproval(event, timer, question, deadline)
        log.info("approval requested", approval_id=event.approval_id, tool=event.tool_name, risk=event.risk_level.value)
        self._ask_soon()

    def decided(self, event: ApprovalDecided) -> None:
        """Close a question that was decided, here or elsewhere."""
        self._end(event.approval_id, event.status, event.decided_by, event.decided_from)

    def settle(
        self, waiting: list[ApprovalRequest], *, known: list[ApprovalRequested], server_ahead: float = 0.0
    ) -> None:
        """Apply the server's list: close questions `known` before it was requested that are not on it."""
        still = {request.id for request in waiting}
        for event in known:
            if event.approval_id not in still:
                self._end(event.approval_id, ApprovalStatus.CANCELLED, None)
        for request in waiting:
            if request.project_id == self._project_id and request.status is ApprovalStatus.PENDING:
                self.request(as_event(request), server_ahead=server_ahead)

    def resend(self) -> None:
        """Post the answers that could not be posted before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiting in self._pending.values():
            if waiting.answer is not None and not waiting.posting:
                self._posts.spawn(self._post(waiting))

    async def close(self) -> None:
        """Cancel the timers and close all questions here; they stay open for others. Nothing is approved."""
        for approval_id in list(self._pending):
            self._close_here(approval_id, CLOSED_HERE)
        if self._timer is not None:
            self._timer.cancel()
        await cancel(self._asker)
        await self._posts.close()

    # Timers

    def _seconds(self, event: ApprovalRequested, server_ahead: float) -> float:
        """Return the seconds a question stays open, never past the server's deadline.

        HIGH gets twice as long, as on the server.
        """
        limit = self._timeout_seconds * (2 if event.risk_level is RiskLevel.HIGH else 1)
        return min(limit, self._server_seconds(event, server_ahead), event.timeout_seconds)

    def _server_seconds(self, event: ApprovalRequested, server_ahead: float) -> float:
        """Return the seconds until the server's own deadline."""
        return (moment(event.deadline) - moment(now())).total_seconds() - server_ahead

    def _expire(self, approval_id: str) -> None:
        """Close a question whose time is up: the server's, or this client's own, which may be shorter."""
        waiting = self._pending.get(approval_id)
        is_over = waiting is None or asyncio.get_running_loop().time() + _CLOCK_SECONDS >= waiting.deadline
        told = TIME_IS_UP if is_over else f"{TIME_IS_UP} {CLOSED_HERE}"
        log.error("approval timed out", approval_id=approval_id, error=ToolApprovalTimeout(told).message)
        self._close_here(approval_id, told)

    def _close_here(self, approval_id: str, told: str) -> None:
        """Close a question of which the server has not said how it ended."""
        waiting = self._forget(approval_id, None, None)
        if waiting is not None:
            log.info("approval closed here", approval_id=approval_id)
            self._tell_closed(waiting, told if waiting.answer is None else UNCONFIRMED)

    def _end(
        self,
        approval_id: str,
        status: ApprovalStatus,
        decided_by: str | None,
        decided_from: AnsweredFrom | None = None,
    ) -> None:
        """End a question as the server said."""
        waiting = self._forget(approval_id, status, decided_by)
        if waiting is None:
            return
        log.info("approval ended", approval_id=approval_id, status=status.value, decided_by=decided_by)
        decided = status in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED) and decided_by is not None
        is_known = decided or waiting.answer is None
        self._tell_closed(waiting, _closing_sentence(status, decided_by, decided_from) if is_known else UNCONFIRMED)

    def _forget(
        self, approval_id: str, status: ApprovalStatus | None, decided_by: str | None
    ) -> PendingApproval | None:
        waiting = self._pending.pop(approval_id, None)
        if waiting is not None:
            waiting.timer.cancel()
            self._over.append(PastApproval(approval_id, waiting.event.tool_name, status, decided_by, now()))
        return waiting

    def _tell_closed(self, waiting: PendingApproval, told: str) -> None:
        if not waiting.question.closed.done():
            waiting.question.closed.set_result(told)
        self._say_unconfirmed(waiting)

    # Prompting

    def _question(self, event: ApprovalRequested, until: float) -> Question:
        async def preview(rule: GrantRule) -> GrantPreview:
            return await self._link.preview_grant(self._project_id, rule)

        async def whole(reveal: bool) -> str:
            return (await self._link.whole_call(event.approval_id, reveal=reveal)).text

        async def change() -> WriteChange:
            return await self._link.change(event.approval_id)

        async def editable(reveal: bool) -> EditableCall:
            return await self._link.editable(event.approval_id, reveal=reveal)

        async def edit(body: EditBody) -> EditAnswer:
            return await self._link.edit(self._project_id, event.approval_id, body)

        can_edit = event.tool_name in EDITABLE_TOOLS
        closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        diff = change if event.tool_name == "write_file" else None
        return Question(
            event=event,
            closed=closed,
            until=until,
            preview=preview,
            whole=whole,
            change=diff,
            editable=editable if can_edit else None,
            edit=edit if can_edit else None,
            position=self._position,
        )

    def _position(self) -> tuple[int, int]:
        """Return the number of the question that is asked now, and how many there are with those that wait."""
        return self._asked, self._asked + sum(not waiting.asked for waiting in self._pending.values())

    def _ask_soon(self) -> None:
        if self._prompt is not None and self._asker is None:
            self._asker = asyncio.get_running_loop().create_task(self._ask_all(self._prompt))

    def _next(self) -> PendingApproval | None:
        """The next question: one about a call that a person changed first, then in order of arrival."""
        waiting = [one for one in self._pending.values() if not one.asked]
        return min(waiting, key=lambda one: one.event.edit is None, default=None)

    async def _ask_all(self, prompt: ApprovalPrompt) -> None:
        try:
            while (waiting := self._next()) is not None:
                waiting.asked = True
                self._asked += 1
                answer = await prompt.ask(waiting.question)
                if answer is not None and waiting.event.approval_id in self._pending:
                    waiting.answer = answer
                    await self._post(waiting)
        finally:
            self._asker = None
            self._asked = 0

    async def _post(self, waiting: PendingApproval) -> None:
        """Post an answer, with retries; on failure keep it while the question is open."""
        approval_id = waiting.event.approval_id
        waiting.posting = True
        try:
            for attempt in range(self._tries):
                if approval_id not in self._pending:
                    return
                try:
                    decided = await self._decide(waiting)
                    answer, waiting.answer = waiting.answer, None
                    self._end_and_say(approval_id, decided.status, "you")
                    self._say_granted(answer, decided)
                    return
                except UnreachableError as error:
                    log.warning("decision not delivered", approval_id=approval_id, error=error.message)
                    if attempt + 1 < self._tries:
                        await asyncio.sleep(pause(attempt))
                except ConflictError as error:
                    self._handle_conflict(waiting, error)
                    return
                except CallerError as error:
                    log.error("decision not accepted", approval_id=approval_id, error=error.message)
                    self._handle_refusal(waiting, error)
                    return
                except ByleaveError as error:
                    log.error("decision refused", approval_id=approval_id, error=error.message)
                    self._say(f"Your answer was not taken: {error}")
                    waiting.answer = None
                    return
            self._keep(waiting)
        finally:
            waiting.posting = False
            self._say_unconfirmed(waiting)

    def _keep(self, waiting: PendingApproval) -> None:
        if not waiting.kept:
            self._say("The server cannot be reached; your answer is sent when it can.")
        waiting.kept = True
        if self._timer is None:
            # Posts may fail while the stream stays up, without a reconnection: retry on a timer too.
            self._timer = asyncio.get_running_loop().call_later(TRY_AGAIN_SECONDS, self.resend)

    def _say_unconfirmed(self, waiting: PendingApproval) -> None:
        """Tell what came of an answer whose question ended before the server confirmed it."""
        if waiting.answer is not None and not waiting.posting and waiting.question.closed.done():
            self._say(waiting.question.closed.result())

    def _end_and_say(self, approval_id: str, status: ApprovalStatus, decided_by: str | None) -> None:
        self._end(approval_id, status, decided_by)
        self._say(_closing_sentence(status, decided_by))

    def _handle_refusal(self, waiting: PendingApproval, error: CallerError) -> None:
        """Ask again if the grant may not be saved; any other error ends the question."""
        answer, waiting.answer = waiting.answer, None
        if answer is None or answer.terms is None or isinstance(error, NotFound):
            self._end_and_say(waiting.event.approval_id, ApprovalStatus.CANCELLED, None)
            return
        self._ask_again(waiting, error)

    def _handle_conflict(self, waiting: PendingApproval, error: ConflictError) -> None:
        """End the question if the server says that it ended; else it still waits, so ask again."""
        waiting.answer = None
        status = _ENDED.get(error.state.lower())
        if status is None:
            self._ask_again(waiting, error)
            return
        decided = status in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED)
        self._end(waiting.event.approval_id, status, "somebody faster" if decided else None)
        self._say(f"Your answer came too late: {error.message.replace('person:', '')}")

    def _ask_again(self, waiting: PendingApproval, error: ByleaveError) -> None:
        self._say(f"Your answer was not taken: {error}")
        waiting.question = replace(waiting.question, event=waiting.event)
        waiting.asked = False
        self._ask_soon()

    def _say_granted(self, answer: Answer | None, decided: DecisionAnswer) -> None:
        if answer is None or answer.terms is None or decided.grant_id is None:
            return
        for_project = answer.scope is ApprovalScope.PROJECT
        self._say(granted_sentence(answer.terms, len(decided.released), for_project=for_project))

    async def _decide(self, waiting: PendingApproval) -> DecisionAnswer:
        event, answer = waiting.question.event, waiting.answer
        if answer is not None and answer.allow:
            body = ApproveBody(
                decision="approved",
                digest=event.digest,
                calls=event.calls,
                scope=answer.scope,
                terms=answer.terms,
            )
            return await self._link.approve(self._project_id, event.approval_id, body)
        reason = None if answer is None else answer.reason
        return await self._link.reject(self._project_id, event.approval_id, RejectBody(reason=reason))

    def _say(self, sentence: str) -> None:
        if self._prompt is not None:
            self._prompt.say(sentence)


def as_event(request: ApprovalRequest) -> ApprovalRequested:
    """Return a listed approval as the event that asked for it."""
    return ApprovalRequested(
        timestamp=request.created_at,
        approval_id=request.id,
        tool_id=request.tool_ids[0] if request.tool_ids else "",
        tool_name=request.tool_name,
        risk_level=request.risk_level,
        timeout_seconds=request.timeout_seconds,
        description=request.description,
        tool_params=request.tool_params,
        findings=request.findings,
        network=request.network,
        digest=request.digest,
        deadline=request.deadline,
        session_id=request.session_id,
        agent_id=request.agent_id,
        inspection=request.inspection,
        suggestions=request.suggestions,
        edit=request.edit,
        calls=max(1, len(request.tool_ids)),
    )


def granted_sentence(terms: GrantTerms, released: int, *, for_project: bool = False) -> str:
    """Describe a saved grant: its calls, its expiry, and how to revoke it."""
    what = "everything that does not always ask" if terms.rule is None else text_of(terms.rule).rstrip(".")
    seconds = terms.expires_in_seconds or 0
    until = (datetime.now().astimezone() + timedelta(seconds=seconds)).strftime(
        "%d %b %H:%M" if for_project else "%H:%M"
    )
    calls = "1 call" if released == 1 else f"{released} calls"
    released_text = f" {calls} that waited went with it." if released else ""
    where = "in every conversation of this project" if for_project else "in this conversation"
    return (
        f"Allowed {where} from now on: {what}; {uses_words(terms.max_uses)}, until {until} "
        f"({span_words(seconds)}).{released_text} Manage it with `byleave grants`."
    )


def _closing_sentence(status: ApprovalStatus, decided_by: str | None, decided_from: AnsweredFrom | None = None) -> str:
    """Return the sentence shown at the prompt when a question ends."""
    by = ""
    if decided_by:
        words = approved_by_text(decided_by) if ":" in decided_by else f"by {decided_by}"
        by = f" {(words or '').removeprefix('approved ')}"
        if decided_from is not None:
            by += ", in a browser" if decided_from is AnsweredFrom.PAGE else ", elsewhere"
    match status:
        case ApprovalStatus.APPROVED:
            return f"Allowed{by}."
        case ApprovalStatus.REJECTED:
            return f"Denied{by}."
        case ApprovalStatus.TIMEOUT:
            return "Nobody answered in time; nothing was run."
        case ApprovalStatus.CANCELLED if by:
            return f"Changed{by}. The changed call is asked about next."
        case _:
            return "This question is no longer open."


def span_words(seconds: float) -> str:
    """Format a duration in its largest fitting unit: `45 seconds`, `30 minutes`, `8 hours`."""
    whole = max(0, round(seconds))
    if whole >= 2 * DAY_SECONDS:
        return f"{round(whole / DAY_SECONDS)} days"
    for unit, one in ((3600, "hour"), (60, "minute")):
        if whole >= 2 * unit or whole == unit:
            return f"{round(whole / unit)} {one if round(whole / unit) == 1 else one + 's'}"
    return f"{whole} second{'' if whole == 1 else 's'}"


def uses_words(uses: int | None) -> str:
    """Format a limit of uses."""
    return "any number of times" if uses is None else "once" if uses == 1 else f"at most {uses} times"


def approved_by_text(
    actor: str | None, *, user_id: str | None = None, grants: Mapping[str, str] | None = None
) -> str | None:
    """Describe the person or rule that let a call run, safe to print; None if nothing did.

    `user_id` is the reader; `grants` holds the texts of known grants.
    """
    kind, _, name = (actor or "").partition(":")
    shown = safe_text(name)
    match kind:
        case "":
            return None
        case "person":
            return f"approved by {'you' if name == user_id else shown}"
        case "grant":
            text = (grants or {}).get(name)
            return f"by a grant ({safe_text(text).rstrip('.')})" if text else f"by grant {shown}"
        case "rule":
            return f"by rule {shown}"
        case "mode":
            return f"by mode {shown}, not asked"
        case "risk":
            return f"not asked: {shown.lower()} risk"
        case _:
            return f"by {safe_text(actor or '')}"
