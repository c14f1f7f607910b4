"""ToolExecutor: the whole sequence of a call, in order. Read this first.

    judge     the gate says LOW, MEDIUM, HIGH or REFUSE, by the rules of the server and of the machine's owner
    begin     one transaction: the record, and the first step that is possible
                refused       → FAILED
                cleared       → EXECUTING, or APPROVED while no client is there: by risk, rule, mode or a grant
                to inspect    → PENDING, the client is asked what it would run or replace, or what is missing
                to ask        → AWAITING_APPROVAL, or the answer that already holds
    inspected one transaction: PENDING → the question, or the answer that already holds
    decided   one transaction (`approvals.decide`): → EXECUTING or REJECTED
    edited    one transaction (`edits.Edits`): the person changed it → PENDING or another question
    dispatch  the signal goes to one client; what was approved while none was there goes to the first that comes
    settle    one transaction: the client's report → COMPLETED or FAILED
    expire    one transaction: whatever is past its deadline → TIMEOUT or FAILED

Progress never depends on a waiting coroutine: decisions, results and deadlines change the rows, and waiters are only
notified. So a restart in the middle loses nothing. This module never executes a tool, never writes SQL, and never lets
a call pass the gate's REFUSE, whatever the mode.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog
from pydantic_core import to_json

from byleave import telemetry
from byleave.bus import Bus
from byleave.gate import Gate, Judgement, mask_start, mask_text, mask_value, shown_params
from byleave.protocol.approvals import Inspection, call_digest
from byleave.protocol.chat import CHAT_AGENT as CHAT_AGENT_NAME
from byleave.protocol.errors import CallerError, ConfigurationError, ConflictError, NotFound, RefusedError
from byleave.protocol.executions import (
    MAX_ERROR_CHARACTERS,
    OWN_SESSION,
    CompletedReport,
    FailedReport,
    ToolResponse,
    id_of_call,
    key_scope,
    own_session_id,
)
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, ResponseStatus
from byleave.protocol.tools import TOOLS
from byleave.protocol.verdicts import Verdict, VerdictLevel
from byleave.protocol.wire import Id, JsonObject, later, new_id, plain_json
from byleave.settings import ServerSettings
from byleave.store import STORAGE_ERRORS, ExecutionRow, SessionRow, Store, transitions
from byleave.store.approvals import Question
from byleave.store.database import Transaction
from byleave.store.executions import HEAVY_CHARACTERS, given_to_another
from byleave.store.ledger import Ledger, head_of
from byleave.store.runs import check_claim
from byleave.store.transitions import LONGEST_NAP_SECONDS, NewExecution, Waits
from byleave.telemetry import ids_of

from .approvals import Clearance, Refusal, ask, standing_answer
from .deadlines import LOOK_AGAIN_SECONDS, Sweeper, expire, was_given_up
from .inspection import (
    Inspected,
    assess_inspection,
    question_for,
    resolve_inspection,
    with_edit,
    without_inspection,
)
from .limits import RecordFullError, UserLimits
from .long_work import LONG_CHARACTERS, LongWork
from .machines import ConnectedClient, Machine, Machines, Presence, withheld

log = structlog.stdlib.get_logger(__name__)

LOOKED_AT = ("write_file", "execute_command")
"""Tools whose calls the machine looks at before a person is asked."""
PROMPTLY_SECONDS = 2.0
"""An external caller waits this long for an inspection; mostly the question comes sooner."""
BIG_RESULT_BYTES = 64 * 1024
"""Masking more than this leaves the event loop."""
MAX_ACTOR = 250
MALFORMED_LIMIT = 64 * 1024
NO_REASON = "The client gave no reason."


@dataclass(frozen=True, slots=True)
class Caller:
    """The run or agent on whose behalf a tool is called."""

    run_id: str | None = None
    agent_id: str | None = None
    mode: AgentMode = AgentMode.SANDBOX
    fence: int | None = None
    """The run's claim; a call under an older one is refused."""
    key: str | None = None
    """Identifies a repeated call: a tool_call_id, an idempotency key."""
    group: str | None = None
    """Finds its calls with a key together: an MCP session."""
    tools: frozenset[str] | None = None
    """The tools this agent has; None for all."""


CHAT_AGENT = Caller()


@dataclass(frozen=True, slots=True)
class Inspect:
    """The client must say what a call would run or replace before anybody is asked."""

    unless_answered: bool = False
    """Skip it if an answer already holds: a grant for writes covers them whatever they replace."""


Step = Refusal | Clearance | Question | Inspect
"""The first step of a new call."""


class ToolExecutor:
    """Takes a tool call from an agent to a machine and back."""

    def __init__(self, store: Store, bus: Bus, presence: Presence, gate: Gate, settings: ServerSettings) -> None:
        self._store = store
        self._bus = bus
        self._presence = presence
        self.machines = Machines(store, bus, presence, gate)
        self._settings = settings
        self.limits = UserLimits(settings)
        self.long_work = LongWork()
        self._sweeper = Sweeper(store, bus, self._sweep, presence.resumed)

    async def start(self) -> None:
        """Begin watching deadlines; those missed while the server was down fire at once."""
        # Another client may inspect what was asked of one that leaves, and one that another server told us of may run
        # what was begun here before we heard.
        self._presence.on_leave = self._presence.on_arrival = self._sweeper.wake
        self._sweeper.start()

    async def stop(self) -> None:
        self._presence.on_leave = self._presence.on_arrival = None
        await self._sweeper.stop()
        self.long_work.close()

    async def execute_tool(
        self,
        tool_name: str,
        tool_params: Mapping[str, Any],
        session_id: Id,
        *,
        caller: Caller = CHAT_AGENT,
        seconds: float | None = None,
    ) -> ToolResponse:
        """Call a tool and wait for its end, however long a person takes. Never raises for what an agent may send.

        With `seconds`, return after them with its state; the call goes on.
        """
        try:
            session = await self._store.chat.session(session_id)
            row = await self.call(tool_name, tool_params, session, caller=caller, seconds=seconds)
        except (NotFound, RecordFullError) as error:  # nobody knows whose record it would go to, or it would grow
            return unrecorded(tool_name, error)
        return row.to_response()

    async def call(
        self,
        tool_name: str,
        tool_params: Mapping[str, Any],
        session: SessionRow,
        *,
        caller: Caller = CHAT_AGENT,
        until_asked: bool = False,
        seconds: float | None = None,
    ) -> ExecutionRow:
        """Judge, begin, wait. With `until_asked`, return as soon as a person has to be asked."""
        if tool_name in LOOKED_AT:
            await self._presence.until_returned(session.project_id)
        machine = await self.machines.of(session.project_id)
        began = telemetry.clock()
        judgement = withheld(machine.judge(tool_name, tool_params), caller.tools, caller.agent_id)
        if machine.widest_mode is AgentMode.SANDBOX and caller.mode is AgentMode.FULL:
            caller = replace(caller, mode=AgentMode.SANDBOX)
        # Chosen and queued without an await between: a client that connects meanwhile is served after us.
        client = self._presence.choose(session.project_id)
        prepare = partial(self._prepare, judgement, tool_params, session, caller, machine)
        prepared = prepare(client) if _size(judgement.params) <= LONG_CHARACTERS else None
        while prepared is None:
            made, before = await self.long_work.run(session.user_id, partial(prepare, client)), client
            client = self._presence.choose(session.project_id)
            prepared = made if client is before else None
        judgement, new, step = prepared
        level = judgement.verdict.level.value
        if not isinstance(step, Clearance):  # a call that runs without asking is in the record, and on the hot path
            log.info("call judged", tool=new.tool_name, verdict=level, **ids_of(new))
        if telemetry.switch.sdk is not None:
            telemetry.judged(new, level, began)
        with Watch(self._store, self._bus, new.id) as watch:
            client_id = client.client_id if client else None
            try:
                row = await begin(self._store, new, step, client_id=client_id, limits=self.limits)
            except RecordFullError:
                self.limits.met.set()
                raise
            if until_asked and row.status is ExecutionStatus.PENDING and row.client_id is not None:
                row = await watch.follow(row, PROMPTLY_SECONDS, until_asked=True)
            if until_asked and row.status in (ExecutionStatus.PENDING, ExecutionStatus.AWAITING_APPROVAL):
                return row
            return await watch.follow(row, seconds, until_asked=until_asked)

    def _prepare(
        self,
        judgement: Judgement,
        tool_params: Mapping[str, Any],
        session: SessionRow,
        caller: Caller,
        machine: Machine,
        client: ConnectedClient | None,
    ) -> tuple[Judgement, NewExecution, Step]:
        """The record of a call and its first step. Masking a long call takes long, so this may run in a thread."""
        if client is not None and not client.looks and _cleared(judgement.verdict, caller.mode) is None:
            judgement = without_inspection(judgement)
        step = self.first_step(judgement, caller.mode, machine, client)
        is_asked = isinstance(step, Question | Inspect)
        return judgement, new_execution(judgement, tool_params, session, caller, is_asked=is_asked), step

    async def agent_session(
        self, user_id: str, project_id: str | None, session_id: str | None, agent_id: str = CHAT_AGENT_NAME
    ) -> SessionRow:
        """The session of a call from elsewhere; without a `session_id`, the agent's own in this project.

        The caller must have checked that the project is the user's.
        """
        if session_id is not None:
            session = await self._store.chat.session(session_id)
            if session.user_id != user_id or project_id not in (None, session.project_id):
                raise NotFound(f"No session {session_id!r}.", hint="Leave session_id out.")
            own = own_session_id(user_id, session.project_id, agent_id)
            if session.id.startswith(OWN_SESSION) and session.id != own:
                raise NotFound(f"No session {session_id!r}.", hint="Leave session_id out: every agent has its own.")
            return session
        if project_id is None:
            raise CallerError("A call needs a project.", hint="Send `project_id`, or the `session_id` that tells it.")
        own = own_session_id(user_id, project_id, agent_id)
        return await self._store.chat.ensure_session(own, user_id, project_id, agent_id)

    async def wait(self, row: ExecutionRow, timeout_seconds: float | None = None) -> ExecutionRow:
        """Wait for an execution's end; with a timeout, return it as it then stands."""
        if row.status.ended:
            return row
        with Watch(self._store, self._bus, row.id) as watch:
            # Read once after listening began, so that an end just before it is not missed.
            return await watch.follow(await self._store.executions.load(row.id) or row, timeout_seconds)

    def first_step(
        self, judgement: Judgement, mode: AgentMode | None, machine: Machine, client: ConnectedClient | None
    ) -> Step:
        """The step that the verdict, the mode and the client allow. Without a mode, only a person may let it run."""
        tool_name, params, verdict = judgement.tool_name, judgement.params, judgement.verdict
        if verdict.level is VerdictLevel.REFUSE or params is None:
            return Refusal(mask_text(verdict.message), verdict.error_type or ErrorType.REFUSED)
        cleared = None if mode is None else _cleared(verdict, mode)
        if cleared is not None:
            return cleared
        # A client that did not say it inspects would never answer.
        inspects = client is not None and client.looks
        if verdict.runs and (inspects or client is None):
            return Inspect()
        if tool_name in LOOKED_AT and inspects:
            return Inspect(unless_answered=True)
        return question_for(tool_name, params, verdict, self._settings, workspace=machine.workspace)

    async def inspected(
        self, tool_id: str, inspection: Inspection, *, user_id: str, project_id: str, client_id: str
    ) -> None:
        """Take a client's report on what a call would run or replace, and ask the person with it."""
        row = await self._store.executions.get(tool_id, user_id=user_id, whole=True)
        if row.project_id != project_id:
            raise NotFound(f"No execution {tool_id!r}.", hint="See `GET /my/tools/history` for yours.")
        if row.status is not ExecutionStatus.PENDING:
            return
        if client_id != row.client_id:
            raise ConflictError("Another client was asked to look at this.", state=row.status.value)
        machine = await self.machines.of(project_id)
        outcome = await assess_inspection(self._store, machine, row, inspection, self._settings, self.long_work)
        client = self._presence.choose(project_id)
        await resolve_inspection(self._store, row, outcome, client_id=client.client_id if client else None)

    async def settle(
        self,
        tool_id: str,
        report: CompletedReport | FailedReport,
        *,
        user_id: str,
        project_id: str,
        client_id: str,
    ) -> ExecutionRow:
        """Mask and store a client's report, and notify waiters."""
        error = error_type = None
        if isinstance(report, FailedReport):
            error, error_type = report.error, report.error_type or ErrorType.TOOL_ERROR
        raw = to_json([report.status, report.result, error, error_type])
        if isinstance(report, CompletedReport) and not report.result.get("success", True):
            # It contradicts itself: what did not succeed has failed.
            told = report.result.get("error")
            error, error_type = told if isinstance(told, str) else "", ErrorType.TOOL_ERROR
        if error is not None and not error.strip():
            error = NO_REASON
        result: str | None = None
        if report.result is not None:
            big = len(raw) > BIG_RESULT_BYTES
            mask = partial(mask_value, report.result)
            masked = await self.long_work.run(user_id, mask) if big else mask()
            result = plain_json(masked)
            if self.limits.most_bytes:
                self.limits.add(user_id, result)
        try:
            return await settle(
                self._store,
                tool_id,
                user_id=user_id,
                project_id=project_id,
                client_id=client_id,
                result=result,
                result_hash=hashlib.sha256(raw).hexdigest(),
                error=mask_start(error, MAX_ERROR_CHARACTERS) if error is not None else None,
                error_type=error_type,
                duration_ms=report.duration_ms,
            )
        except STORAGE_ERRORS as unwritten:
            # Callers over HTTP would wait until the disk has room again. Whatever id was sent: all who hear only look.
            self._bus.publish(tool_id, unwritten)
            raise

    async def client_connected(self, client: ConnectedClient, *, resumed: bool) -> None:
        """Send a registered client the calls that waited, and those it may have forgotten."""
        if client.declared:
            await self._store.chat.remember_machine(client.project_id, client.workspace, client.isolation)
        if not resumed:
            await self._store.executions.repeat_signals(client.project_id, client.client_id)
        looking = self._presence.looking(client.project_id)
        # Ask this client again: it may have forgotten.
        await self._inspect_waiting(client, looking - {client.client_id} if client.looks else looking)
        await self._store.executions.dispatch_waiting(client.project_id, client.client_id)

    async def _inspect_waiting(self, client: ConnectedClient, elsewhere: frozenset[str]) -> None:
        """Have this client inspect the waiting calls that none of the clients `elsewhere` inspects, or ask a person
        without an inspection."""
        if client.looks:
            await self._store.executions.request_inspections(client.project_id, client.client_id, elsewhere)
            return
        for row in await self._store.executions.pending(client.project_id, elsewhere):
            machine = await self.machines.of(row.project_id)
            judgement = without_inspection(machine.judge(row.tool_name, json.loads(row.true_params or "{}")))
            step = self.first_step(judgement, row.mode if row.edit is None else None, machine, client)
            if isinstance(step, Question):
                outcome = Inspected(with_edit(step, row), judgement.verdict, row.digest)
            elif isinstance(step, Refusal):
                outcome = step
            else:
                continue
            await resolve_inspection(self._store, row, outcome, client_id=client.client_id)

    async def _sweep(self) -> tuple[str | None, float]:
        """Expire what is past its deadline, and serve what waits for a client; return the next deadline."""
        # A client that was out of reach until now, by our fault or the network's, may have a result to report.
        spared = self._presence.on_the_move(self._settings.result_grace_seconds)
        ended, upcoming = await expire(self._store, self._presence.connected(), spared)
        for row in ended:
            log.warning("deadline passed", status=row.status.value, error_type=row.error_type, **ids_of(row))
        for project_id in await self._store.executions.waiting_projects():
            client = self._presence.choose(project_id)
            if client is not None:
                await self._store.executions.dispatch_waiting(project_id, client.client_id)
        for project_id, client_id in await self._store.executions.awaiting_inspection():
            client, looking = self._presence.choose(project_id), self._presence.looking(project_id)
            if client is not None and client_id not in looking:
                await self._inspect_waiting(client, looking)
        return upcoming, LONGEST_NAP_SECONDS if spared == frozenset() else LOOK_AGAIN_SECONDS


def unrecorded(tool_name: str, error: CallerError | RefusedError) -> ToolResponse:
    """The answer to a call that was refused and is not in the record."""
    return ToolResponse(
        tool_id=new_id("exec"),
        tool_name=tool_name,
        status=ResponseStatus.FAILED,
        error=error.message,
        error_type=error.error_type,
        hint=error.hint,
    )


def _size(params: JsonObject | None) -> int:
    """Characters in the texts of a call, and in its arguments."""
    texts: list[Any] = [] if params is None else [*params.values(), *params.get("args", ())]
    return sum(len(text) for text in texts if isinstance(text, str))


def _cleared(verdict: Verdict, mode: AgentMode) -> Clearance | None:
    """The clearance of a call that runs without a question; None if it is asked about or refused."""
    if verdict.level is VerdictLevel.LOW:
        return Clearance("risk:LOW")
    if verdict.waived_by is not None:
        return Clearance(f"rule:{verdict.waived_by}"[:MAX_ACTOR])
    if mode is AgentMode.FULL and not verdict.always_asks and not verdict.refused:
        return Clearance("mode:full")
    return None


# The record of a call, and the wait for its end


def new_execution(
    judgement: Judgement, sent: Mapping[str, Any], session: SessionRow, caller: Caller, *, is_asked: bool
) -> NewExecution:
    """The record of a judged call. Findings are kept whole for a question: who decides must see what they quote."""
    tool_name, params, verdict = judgement.tool_name, judgement.params, judgement.verdict
    risk_level = verdict.level.risk
    tool = TOOLS.get(tool_name)
    timeout = tool.timeout_seconds if tool else 0
    if params is None:
        shown, true_params, digest = _malformed(sent), None, "malformed"
    else:
        shown, true_params = plain_json(shown_params(tool_name, params)), plain_json(params)
        digest = call_digest(tool_name, params, session.project_id)
        if tool_name == "execute_command":
            timeout = params["timeout"]
    findings = plain_json(verdict.findings)
    if not is_asked and verdict.level is not VerdictLevel.LOW:
        findings = plain_json(mask_value(json.loads(findings)))
    execution_id = new_id("exec")
    if caller.key:
        scope = caller.run_id or key_scope(session.user_id, session.project_id, session.id, caller.agent_id)
        execution_id = id_of_call(scope, caller.key, caller.group)
    return NewExecution(
        id=execution_id,
        user_id=session.user_id,
        project_id=session.project_id,
        session_id=session.id,
        run_id=caller.run_id,
        agent_id=caller.agent_id,
        mode=caller.mode,
        tool_name=tool_name[:100],
        tool_params=shown,
        true_params=true_params,
        digest=digest,
        risk_level=risk_level,
        findings=findings,
        network=verdict.network,
        timeout_seconds=timeout,
        fence=caller.fence,
        repeatable=caller.key is not None,
        changes_nothing=tool is not None and not tool.changes_things,
    )


def _malformed(sent: Mapping[str, Any]) -> str:
    """Malformed parameters for the record: masked, and left out if too long."""
    try:
        text = _compact(sent)
        if len(text) <= MALFORMED_LIMIT:  # measured first: masking takes seconds on what nobody would keep
            text = _compact(mask_value(dict(sent)))
    except (ValueError, TypeError, RecursionError):  # a lone surrogate is a ValueError, too
        return json.dumps({"left_out": "parameters that are not JSON"})
    if len(text) > MALFORMED_LIMIT:
        return json.dumps({"left_out": f"malformed parameters of {len(text)} characters"})
    return text


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


class Watch:
    """Listens for the question and the end of one execution."""

    def __init__(self, store: Store, bus: Bus, execution_id: str) -> None:
        self._store = store
        self._row: ExecutionRow | None = None
        self._failure: Exception | None = None
        """The storage error that kept its end from being recorded."""
        self._waiter: asyncio.Future[None] | None = None
        self._stop = bus.listen(execution_id, self._hear)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    async def follow(
        self, row: ExecutionRow, timeout_seconds: float | None, *, until_asked: bool = False
    ) -> ExecutionRow:
        """Wait for the end, or with `until_asked` for the question; after a timeout, return the row as it is."""
        loop = asyncio.get_running_loop()
        give_up = None if timeout_seconds is None else loop.time() + timeout_seconds
        while not (row.status.ended or (until_asked and row.status is ExecutionStatus.AWAITING_APPROVAL)):
            nap = LOOK_AGAIN_SECONDS if give_up is None else min(LOOK_AGAIN_SECONDS, give_up - loop.time())
            if nap <= 0:
                break
            row = await self._moved(nap) or await self._store.executions.load(row.id) or row
            if until_asked and self._failure is not None and not row.status.ended:
                raise ConfigurationError(
                    "This call went on, but how it ended cannot be recorded: the server's disk is full or failing.",
                    hint="Free disk space on the server; the client reports again. Then ask with the same "
                    "idempotency_key, or look at `GET /my/tools/history`.",
                ) from self._failure
        return row

    def _hear(self, fact: object | None) -> None:
        if isinstance(fact, ExecutionRow):
            if not (fact.status.ended or fact.status is ExecutionStatus.AWAITING_APPROVAL):
                return
            self._row = fact
        if isinstance(fact, Exception):
            self._failure = fact
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _moved(self, nap: float) -> ExecutionRow | None:
        """The row of the last hint, or None after the nap or a hint without one."""
        if self._row is None:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            alarm = loop.call_later(nap, lambda: waiter.done() or waiter.set_result(None))
            try:
                await waiter
            finally:
                alarm.cancel()
        row, self._row = self._row, None
        return row


# The transactions


async def begin(
    store: Store, new: NewExecution, step: Step, *, client_id: str | None, limits: UserLimits | None = None
) -> ExecutionRow:
    """Record a call and take its first step. A known id returns its execution and changes nothing."""
    # A call that changes nothing may be signalled before its record is on disk; its result is acknowledged after.
    return await store.database.write(
        lambda transaction: _begin(transaction, new, step, client_id, store.waits, limits),
        relaxed=isinstance(step, Clearance) and new.changes_nothing,
        heavy=len(new.true_params or "") > HEAVY_CHARACTERS,
        ahead=lambda: [head_of(new.project_id), *([transitions.execution_of(new.id)] if new.repeatable else [])],
    )


def _begin(
    transaction: Transaction,
    new: NewExecution,
    step: Step,
    client_id: str | None,
    waits: Waits,
    limits: UserLimits | None,
) -> ExecutionRow:
    known = transitions.load_execution(transaction, new.id) if new.repeatable else None
    if known is not None:
        return _same_call(known, new)
    if new.fence is not None:
        check_claim(transaction, new.run_id, new.fence)
    # Before an answer that holds is looked for: it would use up a grant.
    reason = None if limits is None else limits.admit(transaction, new, begins=not isinstance(step, Refusal))
    if reason is not None:
        step = Refusal(reason, ErrorType.REFUSED)
    with Ledger(transaction, new.project_id) as ledger:
        if isinstance(step, Question) or (isinstance(step, Inspect) and step.unless_answered):
            step = standing_answer(ledger, new, {}) or step
        match step:
            case Refusal(error, error_type):
                return transitions.insert_refused(ledger, new, error, error_type)
            case Clearance(by):
                return transitions.insert_approved(ledger, new, by, client_id, waits)
            case Inspect():
                return transitions.insert_for_inspection(ledger, new, client_id, waits)
            case Question():
                return ask(ledger, transitions.insert(ledger, new, ExecutionStatus.AWAITING_APPROVAL), step)


def _same_call(known: ExecutionRow, new: NewExecution) -> ExecutionRow:
    """The execution that already has this id; an error if it is of another call."""
    if known.user_id != new.user_id:
        raise NotFound("No such session.")
    if (known.request_digest or known.digest) != new.digest and new.run_id is None:
        raise ConflictError(
            "This idempotency key was used for another call.",
            state=known.status.value,
            hint="Use a fresh key for a different call.",
        )
    return known


async def settle(
    store: Store,
    execution_id: str,
    *,
    user_id: str,
    project_id: str,
    client_id: str,
    result: str | None,
    result_hash: str,
    error: str | None = None,
    error_type: ErrorType | None = None,
    duration_ms: int | None = None,
) -> ExecutionRow:
    """EXECUTING → COMPLETED or FAILED. The same result again is accepted again; a different one is a conflict.

    A report on a call that was given up is stored with it; its end stands, since the caller was told of it.
    """

    def work(transaction: Transaction) -> ExecutionRow:
        with Ledger(transaction, project_id) as ledger:
            execution = transitions.own_execution(transaction, execution_id, user_id, project_id, ledger)
            if execution.client_id is not None and client_id != execution.client_id:
                raise given_to_another(execution)
            if execution.status.ended and execution.result_hash == result_hash:
                return execution
            if execution.started_at is None and (error_type is not ErrorType.CANCELLED or result is not None):
                # It left its client's queue while the server was out of reach, but it ran.
                worked = transitions.work_ms(execution, transaction.now, duration_ms or 0) or 0
                execution = execution._replace(started_at=later(transaction.now, -worked / 1000))
            if execution.status.ended and was_given_up(execution):
                found = "it completed" if error is None else f"it failed: {error}"
                told = f"{execution.error} Its client reported later: {found}"
                return transitions.end_late(ledger, execution, told, result, result_hash, duration_ms)
            if execution.status is not ExecutionStatus.EXECUTING:
                raise ConflictError(
                    f"This execution is {execution.status}; it takes no result.", state=execution.status.value
                )
            return transitions.end(
                ledger,
                execution,
                ExecutionStatus.COMPLETED if error is None else ExecutionStatus.FAILED,
                actor=f"client:{execution.client_id}",
                error=error,
                error_type=error_type,
                result=result,
                result_hash=result_hash,
                duration_ms=duration_ms,
            )

    return await store.database.write(
        work,
        heavy=len(result or "") > HEAVY_CHARACTERS,
        ahead=lambda: [transitions.execution_of(execution_id, user_id, whole=False), head_of(project_id)],
    )
