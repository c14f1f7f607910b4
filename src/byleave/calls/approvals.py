"""Approvals: standing answers, questions, and a person's decision.

A decision counts once, by the store's compare-and-set, and covers exactly the parameters that were shown. Its deadline
is checked inside the transaction by the database's clock, so a late yes loses even if no sweeper has run yet. Nothing
here answers by itself: there is no default, and a timeout is only ever TIMEOUT.
"""

import asyncio
import contextlib
import json
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from byleave.bus import Bus
from byleave.gate import MASK_PREFIX, describe, question_cover, shown_params, understand
from byleave.gate.text.render import Write, full_text, write_change
from byleave.gate.text.secrets import cover_nothing
from byleave.protocol.approvals import ApprovalRequest, SeenFile, WholeCall, call_digest
from byleave.protocol.changes import MAX_SHOWN_TEXT, WriteChange
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.grants import Grant, GrantPreview, GrantRule, GrantTerms
from byleave.protocol.states import AnsweredFrom, ApprovalScope, ApprovalStatus, ErrorType, ExecutionStatus, RiskLevel
from byleave.protocol.verdicts import Finding, VerdictLevel, verdict_of
from byleave.protocol.wire import Id, JsonObject, id_text, later, plain_json
from byleave.store import ApprovalRow, ExecutionRow, SessionRow, Store, transitions
from byleave.store.approvals import (
    NewApproval,
    Question,
    close,
    count_pending,
    own_approval,
    pending_in_project,
    pending_in_session,
    put_question,
    refused_calls,
    time_out,
    waiting_executions,
)
from byleave.store.chat import workspace_of
from byleave.store.database import Transaction
from byleave.store.executions import HEAVY_CHARACTERS
from byleave.store.grants import GrantRow, NewGrant
from byleave.store.ledger import Ledger
from byleave.store.transitions import NewExecution, Waits

from .deadlines import LOOK_AGAIN_SECONDS
from .grants import (
    Asked,
    checked_grant,
    named,
    preview_grant,
    save_with_answer,
    unreviewed_changes,
    use_grant,
    would_use,
)
from .long_work import LongWork
from .machines import Presence

MAX_WHOLE_BYTES = 4 * MAX_SHOWN_TEXT
"""Content larger than this is never shown in a diff."""
NOT_KEPT = "[What is masked in this file is not kept here: open the file on the machine to see it.]"
MAX_WAITING = 200
"""Most questions that may wait for one user: nobody answers more, and an agent could ask without end."""
REFUSALS_BEFORE_SILENCE = 3
"""After a person refused the same call of an agent this often in a session, it is refused without asking."""
REFUSALS_COUNT_SECONDS = 3600
"""Time that a refusal counts: a session may never end, and people change their minds."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call may not run."""

    error: str
    error_type: ErrorType


@dataclass(frozen=True, slots=True)
class Clearance:
    """A call may run without asking."""

    approved_by: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to a question."""

    approval_id: str
    user_id: str
    approve: bool
    reason: str | None = None
    digest: str | None = None
    """Digest of the question as shown; an answer to another one is refused."""
    calls: int = 1
    """Number of waiting calls that was shown; a yes to fewer than wait is refused."""
    project_id: str | None = None
    grant: NewGrant | None = None
    """Saved with a yes; it also answers open questions that it covers."""
    decided_from: AnsweredFrom | None = None


class Decided(NamedTuple):
    """A decision that counted, with its grant and the calls that it released."""

    approval: ApprovalRow
    grant: GrantRow | None = None
    released: tuple[str, ...] = ()
    """Other executions that waited and run under the grant."""


_NOT_AGAIN = Refusal(
    "A person refused this same call three times within the hour; it is not asked again for now.", ErrorType.REFUSED
)


def standing_answer(
    ledger: Ledger, call: NewExecution | ExecutionRow, bound: Mapping[str, str]
) -> Refusal | Clearance | None:
    """Return the answer that already holds for a call, or None if a person must be asked.

    A call refused three times stays refused for a while; a grant of the session lets a call run that it covers; and
    nobody is asked more than they can answer. A refusal comes before a grant. An answer to one agent holds for no
    other.
    """
    transaction = ledger.transaction
    if _refused_too_often(transaction, call, bound):
        return _NOT_AGAIN
    grant = use_grant(ledger, call, bound)
    if grant is not None:
        return Clearance(f"grant:{grant.id}")
    if count_pending(transaction, call.user_id) >= MAX_WAITING:
        return Refusal(
            f"{MAX_WAITING} questions wait for this user already; nothing more is asked until some are answered.",
            ErrorType.REFUSED,
        )
    return None


async def foresee_answer(
    store: Store, session: SessionRow, tool_params: str, digest: str, asked: Asked
) -> Refusal | GrantRow | None:
    """Return the answer that would hold if this session's agent made a call now. Nothing is counted.

    `tool_params`: as the record would keep them. `digest`: of the call as it is.
    """
    call = _Wanted(session.id, session.project_id, None, asked.call.tool, tool_params, digest)

    def work(transaction: Transaction) -> Refusal | GrantRow | None:
        if _refused_too_often(transaction, call, asked.bound):
            return _NOT_AGAIN
        return would_use(transaction, session, asked)

    return await store.database.read(work)


class _Wanted(NamedTuple):
    """A call that nobody has made yet."""

    session_id: str
    project_id: str
    agent_id: str | None
    tool_name: str
    tool_params: str
    digest: str
    request_digest: str | None = None


def _refused_too_often(
    transaction: Transaction, call: NewExecution | ExecutionRow | _Wanted, bound: Mapping[str, str]
) -> bool:
    since = later(transaction.now, -REFUSALS_COUNT_SECONDS)
    refused = refused_calls(transaction, call.session_id, call.tool_name, since=since, agent_id=call.agent_id)
    if len(refused) < REFUSALS_BEFORE_SILENCE:
        return False
    workspace = workspace_of(transaction, call.project_id)
    wanted = _essence(call, bound, workspace)
    same = [one for one in refused if _essence(one, json.loads(one.bound or "{}"), workspace) == wanted]
    return len(same) >= REFUSALS_BEFORE_SILENCE


def _essence(
    call: NewExecution | ExecutionRow | _Wanted, bound: Mapping[str, str], workspace: str | None
) -> tuple[object, ...]:
    """A call without what only respells it: another time limit, another way to write a path or options.

    A write is the same whatever it would replace; a command that runs other code is another, and so is a call with
    another secret, which its parameters as recorded do not show.
    """
    rest: JsonObject = json.loads(call.tool_params)
    secret = _digest_of(call) if MASK_PREFIX in call.tool_params else None
    if call.tool_name == "write_file":
        real = next(iter(bound), None) or posixpath.normpath(str(rest.pop("path", "")))
        return real, secret, *(value for key, value in sorted(rest.items()) if key != "path")
    rest.pop("timeout", None)
    if call.tool_name == "execute_command":
        args = [str(arg) for arg in rest.pop("args", None) or ()]
        line = understand(str(rest.pop("command", "")), args, workspace).essence
        return line, secret, plain_json(rest), *sorted(bound.items())
    return secret, plain_json(rest), *sorted(bound.items())


def _digest_of(call: NewExecution | ExecutionRow | _Wanted) -> str:
    """The digest of a call alone, without files it was bound to since."""
    return call.digest if isinstance(call, NewExecution) else call.request_digest or call.digest


def ask(ledger: Ledger, execution: ExecutionRow, question: Question) -> ExecutionRow:
    """Put an execution's question to a person, or let it join the identical one that already waits."""
    if not question.runs_code:
        return put_question(ledger, execution, question, None)
    # Read in this transaction: a change is either named here or counts from now on.
    changed = unreviewed_changes(ledger.transaction, execution.user_id, execution.project_id)
    if changed:
        question = replace(question, description=f"{question.description}\n{named(changed)}")
    return put_question(ledger, execution, question, changed)


Outcome = TypeVar("Outcome")


async def decide(store: Store, answer: Answer, *, client_id: str | None, heavy: bool = False) -> Decided:
    """Apply an answer. The first one wins; a later one raises ConflictError with the state that holds."""

    def act(ledger: Ledger, approval: ApprovalRow, waiting: list[ExecutionRow]) -> Decided:
        if answer.approve:
            return _approve(ledger, approval, waiting, answer, client_id, store.waits)
        return _reject(ledger, approval, waiting, answer)

    return await take(store, answer, act, heavy=heavy)


async def take(
    store: Store,
    answer: Answer,
    act: Callable[[Ledger, ApprovalRow, list[ExecutionRow]], Outcome],
    *,
    heavy: bool,
) -> Outcome:
    """Act on an open question and the calls that wait for it, in one transaction, if it is still the one that was
    shown. The first one wins; a later one raises ConflictError with the state that holds."""
    outcome = await store.database.write(lambda transaction: _take(transaction, answer, act), heavy=heavy)
    if isinstance(outcome, ConflictError):
        raise outcome
    return outcome


def _take(
    transaction: Transaction, answer: Answer, act: Callable[[Ledger, ApprovalRow, list[ExecutionRow]], Outcome]
) -> Outcome | ConflictError:
    approval = own_approval(transaction, answer.approval_id, answer.user_id, answer.project_id)
    if approval.status is not ApprovalStatus.PENDING:
        raise decided_already(approval)
    if answer.digest not in (None, approval.digest):
        raise ConflictError(
            "This approval is for other parameters than the ones you were shown.",
            state=approval.status.value,
            hint="Reload it and look again.",
        )
    with Ledger(transaction, approval.project_id) as ledger:
        if transaction.now >= approval.deadline:
            # Ended in this transaction, so that no answer can slip in before the sweeper. The error is returned, not
            # raised, so that the transaction commits.
            time_out(ledger, approval)
            return decided_already(approval._replace(status=ApprovalStatus.TIMEOUT))
        waiting = waiting_executions(transaction, approval.id)
        if answer.approve and len(waiting) > answer.calls:
            raise ConflictError(
                f"{len(waiting)} identical calls wait for this answer now, and you were shown {answer.calls}; "
                "nothing was approved.",
                state=approval.status.value,
                hint="Look again, and answer with `calls` for as many as you allow.",
            )
        if answer.approve:
            waiting = waiting_executions(transaction, approval.id, whole=True)
        return act(ledger, approval, waiting)


def _approve(
    ledger: Ledger,
    approval: ApprovalRow,
    waiting: list[ExecutionRow],
    answer: Answer,
    client_id: str | None,
    waits: Waits,
) -> Decided:
    grant, person = answer.grant, f"person:{answer.user_id}"
    saved = None if grant is None else save_with_answer(ledger, approval, waiting, grant, person)
    decided = close(
        ledger,
        approval,
        ApprovalStatus.APPROVED,
        waiting=waiting,
        decided_by=person,
        reason=answer.reason,
        scope=ApprovalScope.ONCE if grant is None else grant.scope,
        grant_id=saved.id if saved else None,
        decided_from=answer.decided_from,
    )
    for execution in waiting:
        transitions.approve(ledger, execution, approved_by=person, client_id=client_id, waits=waits)
    released = () if saved is None else _release(ledger, saved, client_id, waits)
    return Decided(decided, saved, tuple(released))


def _release(ledger: Ledger, grant: GrantRow, client_id: str | None, waits: Waits) -> list[str]:
    """Approve the waiting calls that a new grant covers, as far as its uses reach. What a person changed is theirs."""
    released: list[str] = []
    for approval in _pending_under(ledger.transaction, grant):
        if approval.edit is not None:
            continue
        waiting = waiting_executions(ledger.transaction, approval.id, whole=True)
        left = len(waiting)
        for execution in waiting:
            used = use_grant(ledger, execution)
            if used is None:
                break
            left -= 1
            by = f"grant:{used.id}"
            transitions.approve(ledger, execution, approved_by=by, client_id=client_id, waits=waits)
            released.append(execution.id)
            if left == 0:  # identical calls wait for one approval; while one still waits, so does the question
                close(ledger, approval, ApprovalStatus.APPROVED, waiting=waiting, decided_by=by, grant_id=used.id)
    return released


def _pending_under(transaction: Transaction, grant: GrantRow) -> list[ApprovalRow]:
    if grant.scope is ApprovalScope.PROJECT:
        return pending_in_project(transaction, grant.project_id, grant.user_id)
    return pending_in_session(transaction, grant.session_id, grant.user_id)


def _reject(ledger: Ledger, approval: ApprovalRow, waiting: list[ExecutionRow], answer: Answer) -> Decided:
    person, reason = f"person:{answer.user_id}", answer.reason
    decided = close(
        ledger,
        approval,
        ApprovalStatus.REJECTED,
        waiting=waiting,
        decided_by=person,
        reason=reason,
        decided_from=answer.decided_from,
    )
    for execution in waiting:
        transitions.end(
            ledger,
            execution,
            ExecutionStatus.REJECTED,
            actor=person,
            error=f"Rejected by the user: {reason}" if reason else "Rejected by the user.",
            error_type=ErrorType.REJECTED,
        )
    if waiting:
        _withdraw_same(ledger, waiting[0])
    return Decided(decided)


def _withdraw_same(ledger: Ledger, refused: ExecutionRow) -> None:
    """After the last refusal that is needed, withdraw the questions about the same call that wait already."""
    transaction, bound = ledger.transaction, json.loads(refused.bound or "{}")
    if not _refused_too_often(transaction, refused, bound):
        return
    workspace = workspace_of(transaction, refused.project_id)
    unwanted = refused.agent_id, refused.tool_name, _essence(refused, bound, workspace)
    for question in pending_in_session(transaction, refused.session_id, refused.user_id):
        waiting = waiting_executions(transaction, question.id)
        call = next(iter(waiting), None)
        if call is None or call.tool_name != refused.tool_name:
            continue
        if (call.agent_id, call.tool_name, _essence(call, json.loads(call.bound or "{}"), workspace)) == unwanted:
            close(ledger, question, ApprovalStatus.CANCELLED, waiting=waiting, actor="server")
            for execution in waiting:
                transitions.end(
                    ledger,
                    execution,
                    ExecutionStatus.FAILED,
                    actor="server",
                    error=_NOT_AGAIN.error,
                    error_type=_NOT_AGAIN.error_type,
                )


def _revealed(file: SeenFile, text: str | None) -> SeenFile:
    """A file with its unmasked text; without one, told where its masked text can be seen."""
    if text is None and MASK_PREFIX in (file.text or ""):
        return file.model_copy(update={"text": f"{file.text}\n{NOT_KEPT}"})
    return file if text is None else file.model_copy(update={"text": text})


def decided_already(approval: ApprovalRow) -> ConflictError:
    """The error for an answer that comes after another one."""
    who = (approval.decided_by or "").removeprefix("person:")
    if approval.status is ApprovalStatus.TIMEOUT:
        message = "This approval ran out of time; nothing was run."
    elif approval.status is ApprovalStatus.CANCELLED and who:
        message = f"This call was changed by {who}: another question asks about it."
    elif approval.status is ApprovalStatus.CANCELLED:
        message = "This approval was withdrawn: nothing waits for it any more."
    else:
        message = f"This approval was {approval.status} already, by {who}."
    return ConflictError(message, state=approval.status.value)


class ApprovalManager:
    """Ask, list, decide, wait."""

    def __init__(self, store: Store, bus: Bus, presence: Presence, long_work: LongWork) -> None:
        self._store = store
        self._bus = bus
        self._presence = presence
        self._long_work = long_work

    async def request_tool_approval(
        self,
        user_id: Id,
        tool_name: str,
        tool_params: dict[str, Any],
        risk_level: RiskLevel | str,
        timeout_seconds: int,
        agent_id: Id | None = None,
        session_id: Id | None = None,
    ) -> ApprovalRequest:
        """Ask about a call. Without a session the question goes to the user's first project."""
        user_id, risk_level = str(user_id), RiskLevel(risk_level)
        session_id = None if session_id is None else id_text("sess", session_id)
        project_id = await self._project_for(user_id, session_id)
        level = VerdictLevel(risk_level.value)
        verdict = verdict_of([Finding(level=level, reason=f"Assessed {level}.", rule="approvals.requested")])
        row = await self._store.approvals.create(
            NewApproval(
                user_id=user_id,
                project_id=project_id,
                session_id=session_id,
                agent_id=None if agent_id is None else str(agent_id),
                tool_name=tool_name,
                tool_params=shown_params(tool_name, tool_params, question_cover(tool_params)),
                digest=call_digest(tool_name, tool_params, project_id),
                risk_level=risk_level,
                description=describe(tool_name, tool_params, verdict, question_cover(tool_params)),
                timeout_seconds=timeout_seconds,
            )
        )
        return row.to_wire()

    async def get_pending_approvals(self, user_id: Id, project_id: Id | None = None) -> list[ApprovalRequest]:
        """The user's open questions, oldest first."""
        project = None if project_id is None else id_text("proj", project_id)
        return [row.to_wire() for row in await self._store.approvals.pending(str(user_id), project)]

    async def approve_tool(self, approval_id: Id, user_id: Id, calls: int = 1) -> bool:
        """True if this answer counted; False after an earlier decision or a timeout, if the user has no such approval,
        or if more than `calls` calls wait."""
        return await self._counts(approval_id, user_id, approve=True, calls=calls)

    async def reject_tool(self, approval_id: Id, user_id: Id, reason: str | None = None) -> bool:
        """True if this answer counted."""
        return await self._counts(approval_id, user_id, approve=False, reason=reason)

    async def confirm_approval(
        self, approval_id: Id, user_id: Id, decision: Literal["approved", "rejected"], calls: int = 1
    ) -> bool:
        """Approve or reject. Any other `decision` decides nothing."""
        if decision not in ("approved", "rejected"):
            return False
        return await self._counts(approval_id, user_id, approve=decision == "approved", calls=calls)

    async def decide(
        self,
        approval_id: str,
        user_id: str,
        *,
        approve: bool,
        reason: str | None = None,
        digest: str | None = None,
        calls: int = 1,
        project_id: str | None = None,
        scope: ApprovalScope = ApprovalScope.ONCE,
        terms: GrantTerms | None = None,
        decided_from: AnsweredFrom | None = None,
    ) -> Decided:
        """Decide, or raise ConflictError with the state that holds, or NotFound.

        With a scope beyond this call, a yes also saves a grant; if that is not allowed, GrantProblem is raised and
        nothing is decided.
        """
        pending = await self._store.approvals.get(approval_id, user_id=user_id)
        answer = Answer(
            approval_id,
            user_id,
            approve=approve,
            reason=reason,
            digest=digest,
            calls=calls,
            project_id=project_id,
            grant=await checked_grant(self._store, pending, scope, terms or GrantTerms()) if approve else None,
            decided_from=decided_from,
        )
        # No await between choosing and queueing: a client that connects meanwhile is served after us.
        client = self._presence.choose(pending.project_id)
        heavy = pending.tool_params.get("content_size", 0) > HEAVY_CHARACTERS
        return await decide(self._store, answer, client_id=client.client_id if client else None, heavy=heavy)

    async def preview_grant(self, user_id: str, project_id: str, rule: GrantRule) -> GrantPreview:
        """The user's last calls in a project that a rule would have covered, including refused ones."""
        return await preview_grant(self._store, user_id, project_id, rule)

    async def whole_call(self, approval_id: str, user_id: str, *, reveal: bool = False) -> WholeCall:
        """The whole call and the files that it would run, also if its question shows only a part of them.

        `reveal` also shows masked text: a person must be able to see all that they allow.
        """
        row, kept, call = await self._store.approvals.replaced(
            approval_id, user_id=user_id, whole=lambda approval: True
        )
        params = true_params(call)
        if params is None:
            raise NotFound("Nothing waits for this approval any more.", hint="The record has the call as it was shown.")
        files = row.inspection.files if row.inspection else []
        cover = cover_nothing if reveal else question_cover(params, files[0].path if files else None)
        if reveal:
            texts: dict[str, str] = {} if kept is None or row.tool_name == "write_file" else json.loads(kept)
            files = [_revealed(file, texts.get(file.path)) for file in files]
        text = await self._long_work.run(user_id, partial(full_text, row.tool_name, params, cover, files))
        return WholeCall(approval_id=approval_id, text=text)

    async def change(self, approval_id: str, user_id: str) -> WriteChange:
        """The file before and after a write that waits, or waited. NotFound if it is no write."""
        row, kept, call = await self._store.approvals.replaced(
            approval_id, user_id=user_id, whole=lambda approval: _size(approval.tool_params) <= MAX_WHOLE_BYTES
        )
        params = true_params(call)
        shown = row.tool_params
        path, content = shown.get("path"), (params or shown).get("content")
        if row.tool_name != "write_file" or not isinstance(path, str) or not isinstance(content, str):
            raise NotFound("This approval is about no write.", hint="`GET /my/approvals/{id}/whole` shows the call.")
        if params is None and "content_size" in shown:
            content = None  # the record has only a part of it
        seen = row.inspection.files[0] if row.inspection and row.inspection.files else None
        text = kept if kept is not None or seen is None else seen.text
        cover = question_cover({"path": path, "content": content}, seen.path if seen else None)
        write = Write(path or ".", shown.get("mode") == "append", content, seen, text, cover)
        asked = None if call is None or call.asked_params is None else json.loads(call.asked_params)["content"]
        as_asked = None if asked is None else replace(write, content=asked)
        return WriteChange(
            approval_id=row.id,
            digest=row.digest,
            change=await self._long_work.run(user_id, partial(write_change, write)),
            asked=None
            if as_asked is None
            else await self._long_work.run(user_id, lambda: write_change(as_asked).after),
            before_sha256=seen.sha256 if seen else None,
            before_size=seen.size if seen else None,
            seen_at=row.created_at if seen else None,
        )

    async def grants(
        self,
        user_id: str,
        *,
        session_id: str | None = None,
        project_id: str | None = None,
        all_of_them: bool = False,
    ) -> list[Grant]:
        """The user's grants, newest first."""
        rows, now = await self._store.grants.page(
            user_id, session_id=session_id, project_id=project_id, all_of_them=all_of_them
        )
        return [row.to_wire(now) for row in rows]

    async def revoke_grant(self, grant_id: str, user_id: str) -> Grant:
        """Revoke a grant; later calls ask again."""
        row, now = await self._store.grants.revoke(grant_id, user_id=user_id, actor=f"person:{user_id}")
        return row.to_wire(now)

    async def wait_for_approval(self, approval_id: Id, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - the sources' name
        """True once a person or a grant approved. False for a rejection, no answer in time, an unknown approval, or
        a call that a person changed: another approval asks about that."""
        approval_id = id_text("appr", approval_id)
        asked = await self._store.approvals.load(approval_id)
        if asked is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                decided = await self.wait_for_decision(approval_id, asked.user_id)
        except TimeoutError:
            return False
        return decided.status is ApprovalStatus.APPROVED

    async def wait_for_decision(self, approval_id: Id, user_id: Id) -> ApprovalRequest:
        """Wait until it is decided, times out or is withdrawn."""
        approval_id, user_id = id_text("appr", approval_id), str(user_id)
        news = asyncio.Event()
        stop = self._bus.listen(approval_id, lambda fact: news.set())
        try:
            while True:
                row = await self._store.approvals.get(approval_id, user_id=user_id)
                if row.status is not ApprovalStatus.PENDING:
                    return row.to_wire()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                        await news.wait()
                news.clear()
        finally:
            stop()

    async def _counts(
        self, approval_id: Id, user_id: Id, *, approve: bool, reason: str | None = None, calls: int = 1
    ) -> bool:
        try:
            await self.decide(id_text("appr", approval_id), str(user_id), approve=approve, reason=reason, calls=calls)
        except (ConflictError, NotFound):
            return False
        return True

    async def _project_for(self, user_id: str, session_id: str | None) -> str:
        if session_id is not None:
            return (await self._store.chat.session(session_id, user_id=user_id)).project_id
        projects = await self._store.chat.projects(user_id)
        if not projects:
            raise NotFound(f"The user {user_id!r} has no project.", hint="Create one with `POST /my/projects`.")
        return projects[0].id


def true_params(call: ExecutionRow | None) -> JsonObject | None:
    """The parameters of an open call; None of one that is over."""
    return None if call is None or call.true_params is None else json.loads(call.true_params)


def _size(tool_params: JsonObject) -> int:
    """Size of a write's content in bytes, if the question shows only a part; else 0, since it is small."""
    size = tool_params.get("content_size", 0)
    return size if isinstance(size, int) else 0
