"""ToolExecutor: the order of things. Read this first.

    judge (gate) → begin (store: record, question or signal in one transaction) → wait → response

A command and a write make a stop before the question: the client that will execute says what the files of the workspace
hold that it would run or replace (`inspected`), so that a person sees it and the approval is bound to it; or that its
program is not installed. What runs no such file, and a grant answers, makes none. A client that did not say that it
looks is not asked to: the question then says so, and is asked each time. So it is about a write while no machine is
there.

Progress never depends on a waiting coroutine: decisions, results and deadlines move the rows, and whoever waits is
merely told. That is why a restart in the middle loses nothing. This module never executes a tool, never writes SQL,
and never lets a call pass the gate's REFUSE, whatever the mode.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from byleave.bus import Bus, ConnectedClient, Presence
from byleave.gate import Gate, Judgement, mask_text, mask_value, shown_params
from byleave.protocol.approvals import call_digest, plain_json
from byleave.protocol.errors import CallerError, ConfigurationError, ConflictError, NotFound
from byleave.protocol.executions import CompletedReport, FailedReport, ToolResponse
from byleave.protocol.inspections import Inspection
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus, ResponseStatus
from byleave.protocol.tool_caller import OWN_SESSION, id_of_call, key_scope, own_session_id
from byleave.protocol.tools import TOOLS
from byleave.protocol.verdicts import Verdict, VerdictLevel
from byleave.protocol.wire import Id, id_text, moment, new_id
from byleave.settings import ServerSettings
from byleave.store import STORAGE_ERRORS, ExecutionRow, SessionRow, Store
from byleave.store.calls import Clearance, Look, NewExecution, Refusal
from byleave.store.executions import HEAVY_CHARACTERS, Step
from byleave.store.questions import Question
from byleave.store.transitions import DEADLINES_TOPIC, execution_topic
from byleave.telemetry import clock, ids_of, judged

from .machines import Machine, Machines, withheld
from .questions import problem_with_look, question_after_inspection, question_for, readable, unlooked
from .watch import Watch

log = structlog.stdlib.get_logger(__name__)

LOOK_AGAIN_SECONDS = 2.0
"""How often a waiter looks for itself, in case a hint got lost."""
PROMPTLY_SECONDS = 2.0
"""How long one who calls from elsewhere waits for a look; mostly it is there sooner, and the question with it."""
LONGEST_NAP_SECONDS = 30.0
BIG_RESULT_CHARACTERS = 256 * 1024
"""Masking more than this leaves the event loop."""
LONG_CHARACTERS = 16 * 1024
"""A call or a text longer than this is described beside the event loop."""
MALFORMED_LIMIT = 64 * 1024
REMEMBERED = 1000
"""Sessions kept in memory: those that are talked in now, not those that wait."""
MAX_ACTOR = 250


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a tool is called."""

    run_id: str | None = None
    agent_id: str | None = None
    mode: AgentMode = AgentMode.SANDBOX
    fence: int | None = None
    """The run's claim; a call under an older one is refused."""
    key: str | None = None
    """What makes this call the same call when it is repeated: a tool_call_id, an idempotency key."""
    tools: frozenset[str] | None = None
    """The tools this agent has; None: all of them."""


CHAT_AGENT = Caller()


class ToolExecutor:
    """Takes a tool call from an agent to a machine and back."""

    def __init__(self, store: Store, bus: Bus, presence: Presence, gate: Gate, settings: ServerSettings) -> None:
        self._store = store
        self._bus = bus
        self._presence = presence
        self._machines = Machines(store, bus, presence, gate)
        self._settings = settings
        self._sessions: dict[str, SessionRow] = {}
        self._elsewhere: dict[tuple[str, str, str], SessionRow] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._sweep_now = asyncio.Event()
        self._next_deadline: str | None = None

    async def start(self) -> None:
        """Begin watching deadlines; those that passed while nobody was here fire at once."""
        self._stop_listening = self._bus.listen(DEADLINES_TOPIC, self._deadline_set)
        # What a client that goes was asked to look at, another may be there to look at instead.
        self._presence.on_leave = lambda client: self._sweep_now.set()
        self._sweeper = asyncio.create_task(self._sweep(), name="byleave-deadlines")

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._stop_listening()
            self._presence.on_leave = None
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
            self._sweeper = None

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

        With `seconds`, come back after them with how it then stands; it goes on all the same.
        """
        try:
            session = await self._session(id_text("sess", session_id))
        except NotFound as error:  # whose record it would go to nobody knows
            return ToolResponse(
                tool_id=new_id("exec"),
                tool_name=tool_name,
                status=ResponseStatus.FAILED,
                error=error.message,
                error_type=ErrorType.INVALID,
                hint=error.hint,
            )
        return (await self.call(tool_name, tool_params, session, caller=caller, seconds=seconds)).to_response()

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
        """Judge, record, wait. With `until_asked`, come back as soon as a person has to be asked."""
        machine = await self._machines.of(session.project_id)
        began = clock()
        judgement = withheld(machine.judge(tool_name, tool_params), caller.tools, caller.agent_id)
        if machine.widest_mode is AgentMode.SANDBOX and caller.mode is AgentMode.FULL:
            caller = replace(caller, mode=AgentMode.SANDBOX)
        # Chosen and queued without an await between: a client that connects meanwhile is served after us.
        client = self._presence.choose(session.project_id)
        if client is not None and not client.looks and _cleared(judgement.verdict, caller.mode) is None:
            judgement = unlooked(judgement)
        new = self._new_execution(judgement, tool_params, session, caller)
        step = self._step(judgement, caller.mode, machine, client)
        if not isinstance(step, Clearance):  # what runs without asking is the record's business, and the hot path
            log.info("call judged", tool=new.tool_name, verdict=judgement.verdict.level.value, **ids_of(new))
        judged(new, judgement.verdict.level.value, began)
        with Watch(self._bus, new.id) as watch:
            row = await self._store.executions.begin(new, step, client_id=client.client_id if client else None)
            if until_asked and row.status is ExecutionStatus.PENDING and row.client_id is not None:
                row = await self._follow(watch, row, PROMPTLY_SECONDS, until_asked=True)
            if row.status.ended or (until_asked and self._asks(row)):
                return row
            return await self._follow(watch, row, seconds, until_asked=until_asked)

    def _asks(self, row: ExecutionRow) -> bool:
        """Whether there is nothing to wait for but a person, or a machine that says what there is to ask."""
        return row.status in (ExecutionStatus.PENDING, ExecutionStatus.AWAITING_APPROVAL)

    async def inspected(
        self, tool_id: str, inspection: Inspection, *, user_id: str, project_id: str, client_id: str
    ) -> None:
        """A client says what a call would run or replace: the person is asked now, and shown it."""
        row = await self._store.executions.get(tool_id, user_id=user_id)
        if row.project_id != project_id:
            raise NotFound(f"No execution {tool_id!r}.", hint="See `GET /my/tools/history` for yours.")
        if row.status is not ExecutionStatus.PENDING:
            return
        if client_id != row.client_id:
            raise ConflictError("Another client was asked to look at this.", state=row.status.value)
        machine = await self._machines.of(project_id)
        params = json.loads(row.true_params or "{}")
        # Judged once more: it may have been begun before this machine, or its owner's newest rules, were known.
        verdict = machine.judge(row.tool_name, params).verdict
        problem = inspection.problem or problem_with_look(row.tool_name, inspection, verdict)
        size = len(row.true_params or "")
        if problem is not None:
            error_type = ErrorType.REFUSED if verdict.refused else ErrorType.TOOL_ERROR
            heavy = size > HEAVY_CHARACTERS
            await self._store.executions.inspection_failed(tool_id, mask_text(problem), error_type, heavy=heavy)
            return
        inspection = readable(inspection, lambda path: not machine.judge("read_file", {"path": path}).verdict.refused)
        size += sum(len(file.text or "") for file in inspection.files)
        ask = partial(
            question_after_inspection,
            row,
            verdict,
            inspection,
            self._settings,
            workspace=machine.workspace,
            written=await self._store.executions.last_writes(project_id, inspection.bound),
            now=datetime.now(UTC),
        )
        question = await asyncio.to_thread(ask) if size > LONG_CHARACTERS else ask()
        client = self._presence.choose(project_id)
        await self._store.executions.inspected(
            tool_id,
            question,
            verdict,
            digest=call_digest(row.tool_name, params, project_id, inspection.bound),
            client_id=client.client_id if client else None,
            heavy=size > HEAVY_CHARACTERS,
        )

    async def wait(self, row: ExecutionRow, timeout_seconds: float | None = None) -> ExecutionRow:
        """Wait for an execution's end; with a timeout, return it as it then stands."""
        if row.status.ended:
            return row
        with Watch(self._bus, row.id) as watch:
            # Looked at once after listening began, so that an end just before it is not missed.
            current = await self._store.executions.load(row.id) or row
            return current if current.status.ended else await self._follow(watch, current, timeout_seconds)

    async def _follow(
        self, watch: Watch, row: ExecutionRow, timeout_seconds: float | None, *, until_asked: bool = False
    ) -> ExecutionRow:
        loop = asyncio.get_running_loop()
        give_up = None if timeout_seconds is None else loop.time() + timeout_seconds
        while not (row.status.ended or (until_asked and row.status is ExecutionStatus.AWAITING_APPROVAL)):
            nap = LOOK_AGAIN_SECONDS if give_up is None else min(LOOK_AGAIN_SECONDS, give_up - loop.time())
            if nap <= 0:
                break
            row = await watch.moved(nap) or await self._store.executions.load(row.id) or row
            if until_asked and watch.failure is not None and not row.status.ended:
                raise ConfigurationError(
                    "This call went on, but how it ended cannot be recorded: the server's disk is full or failing.",
                    hint="Free disk space on the server; the client reports again. Then ask with the same "
                    "idempotency_key, or look at `GET /my/tools/history`.",
                ) from watch.failure
        return row

    async def settle(
        self,
        tool_id: str,
        report: CompletedReport | FailedReport,
        *,
        user_id: str,
        project_id: str,
        client_id: str,
    ) -> ExecutionRow:
        """A client's report: masked, stored, and whoever waits is told."""
        failed = isinstance(report, FailedReport)
        error = report.error if failed else None
        error_type = (report.error_type or ErrorType.TOOL_ERROR) if failed else None
        raw = plain_json([report.status, report.result, error, error_type])
        result_text: str | None = None
        if report.result is not None:
            big = len(raw) > BIG_RESULT_CHARACTERS
            masked = await asyncio.to_thread(mask_value, report.result) if big else mask_value(report.result)
            result_text = plain_json(masked)
        try:
            return await self._store.executions.settle(
                tool_id,
                user_id=user_id,
                project_id=project_id,
                client_id=client_id,
                result=result_text,
                result_hash=hashlib.sha256(raw.encode()).hexdigest(),
                error=mask_text(error) if error is not None else None,
                error_type=error_type,
                duration_ms=report.duration_ms,
            )
        except STORAGE_ERRORS as unwritten:
            # Whoever waits over HTTP would wait until there is room again.
            self._bus.publish(execution_topic(tool_id), unwritten)
            raise

    async def client_connected(self, client: ConnectedClient, *, resumed: bool) -> None:
        """A client is there and registered: it gets what waited, and what it may have forgotten."""
        if client.declared:
            await self._store.chat.remember_machine(client.project_id, client.workspace, client.isolation)
        if not resumed:
            await self._store.executions.repeat_signals(client.project_id, client.client_id)
        looking = self._presence.looking(client.project_id)
        # Asked again itself: it may have forgotten.
        await self._look(client, looking - {client.client_id} if client.looks else looking)
        await self._store.executions.dispatch_waiting(client.project_id, client.client_id)

    async def _look(self, client: ConnectedClient, elsewhere: frozenset[str]) -> None:
        """What waits for a look, and for none of the clients `elsewhere`: this one looks, or it is asked without."""
        if client.looks:
            await self._store.executions.look_again(client.project_id, client.client_id, elsewhere)
            return
        for row in await self._store.executions.waiting_for_look(client.project_id, elsewhere):
            machine = await self._machines.of(row.project_id)
            judgement = unlooked(machine.judge(row.tool_name, json.loads(row.true_params or "{}")))
            verdict, heavy = judgement.verdict, len(row.true_params or "") > HEAVY_CHARACTERS
            step = self._step(judgement, row.mode, machine, client)
            if isinstance(step, Question):
                await self._store.executions.inspected(
                    row.id, step, verdict, digest=row.digest, client_id=client.client_id, heavy=heavy
                )
            elif isinstance(step, Refusal):
                await self._store.executions.inspection_failed(
                    row.id, mask_text(step.error), step.error_type, heavy=heavy
                )

    async def agent_session(
        self, user_id: str, project_id: str | None, session_id: str | None, agent_id: str
    ) -> SessionRow:
        """The session a call from elsewhere belongs to; without one, the agent's own in this project.

        The caller has checked that the project is the user's.
        """
        if session_id is not None:
            session = await self._session(session_id)
            if session.user_id != user_id or project_id not in (None, session.project_id):
                raise NotFound(f"No session {session_id!r}.", hint="Leave session_id out.")
            if session.id.startswith(OWN_SESSION) and session.id != own_session_id(
                user_id, session.project_id, agent_id
            ):
                raise NotFound(f"No session {session_id!r}.", hint="Leave session_id out: every agent has its own.")
            return session
        if project_id is None:
            raise CallerError("A call needs a project.", hint="Send `project_id`, or the `session_id` that tells it.")
        key = (user_id, project_id, agent_id)
        session = self._elsewhere.get(key)
        if session is None:
            known = own_session_id(*key)
            session = await self._store.chat.ensure_session(known, user_id, project_id, agent_id)
            if len(self._elsewhere) >= REMEMBERED:
                self._elsewhere.clear()
            self._elsewhere[key] = session
        return session

    def _new_execution(
        self, judgement: Judgement, raw: Mapping[str, Any], session: SessionRow, caller: Caller
    ) -> NewExecution:
        verdict, params = judgement.verdict, judgement.params
        scope = caller.run_id or key_scope(session.user_id, session.project_id, session.id, caller.agent_id)
        tool = TOOLS.get(judgement.tool_name)
        timeout = tool.timeout_seconds if tool else 0
        if params is not None and judgement.tool_name == "execute_command":
            timeout = params["timeout"]
        return NewExecution(
            id=id_of_call(scope, caller.key) if caller.key else new_id("exec"),
            user_id=session.user_id,
            project_id=session.project_id,
            session_id=session.id,
            run_id=caller.run_id,
            agent_id=caller.agent_id,
            mode=caller.mode,
            tool_name=judgement.tool_name[:100],
            tool_params=_recorded(judgement, raw),
            true_params=None if params is None else plain_json(params),
            digest=call_digest(judgement.tool_name, params, session.project_id) if params is not None else "malformed",
            risk_level=verdict.risk_level,
            findings=plain_json(verdict.findings),
            network=verdict.network,
            timeout_seconds=timeout,
            fence=caller.fence,
            repeatable=caller.key is not None,
            changes_nothing=tool is not None and not tool.changes_things,
        )

    def _step(self, judgement: Judgement, mode: AgentMode, machine: Machine, client: ConnectedClient | None) -> Step:
        verdict, params = judgement.verdict, judgement.params
        if verdict.refused or params is None:
            return Refusal(verdict.message, verdict.error_type or ErrorType.REFUSED)
        cleared = _cleared(verdict, mode)
        if cleared is not None:
            return cleared
        # From a client that did not say it looks nothing would come.
        looks = client is not None and client.looks
        if verdict.runs and (looks or client is None):
            return Look()
        if judgement.tool_name in ("write_file", "execute_command") and looks:
            return Look(unless_answered=True)
        return question_for(judgement.tool_name, params, verdict, self._settings, workspace=machine.workspace)

    async def _session(self, session_id: str) -> SessionRow:
        # Sessions never change owner or project, so a session once seen needs no second look.
        session = self._sessions.get(session_id)
        return session or self._remember(await self._store.chat.session(session_id))

    def _remember(self, session: SessionRow) -> SessionRow:
        if len(self._sessions) >= REMEMBERED:
            self._sessions.clear()
        self._sessions[session.id] = session
        return session

    def _deadline_set(self, fact: object | None) -> None:
        if not isinstance(fact, str) or self._next_deadline is None or fact < self._next_deadline:
            self._sweep_now.set()

    async def _sweep(self) -> None:
        while True:
            self._sweep_now.clear()
            try:
                nap = await self._sweep_once()
            except Exception as error:  # a loop that dies at the first database error would stop all deadlines
                log.exception("deadlines could not be checked")
                nap = 1.0
                if isinstance(error, STORAGE_ERRORS):
                    for execution_id in await self._store.executions.overdue():
                        self._bus.publish(execution_topic(execution_id), error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(nap):
                    await self._sweep_now.wait()

    async def _sweep_once(self) -> float:
        # Who was out of reach until now, by our fault or the network's, may have a result to report.
        spared = self._presence.on_the_move(self._settings.result_grace_seconds)
        ended, upcoming = await self._store.executions.expire(self._presence.connected(), spared)
        await self._store.approvals.expire()
        for row in ended:
            log.warning("deadline passed", status=row.status.value, error_type=row.error_type, **ids_of(row))
        for project_id in await self._store.executions.waiting_projects():
            client = self._presence.choose(project_id)
            if client is not None:
                await self._store.executions.dispatch_waiting(project_id, client.client_id)
        for project_id, client_id in await self._store.executions.unlooked_at():
            client, looking = self._presence.choose(project_id), self._presence.looking(project_id)
            if client is not None and client_id not in looking:
                await self._look(client, looking)
        self._next_deadline = upcoming
        longest = LONGEST_NAP_SECONDS if spared == frozenset() else LOOK_AGAIN_SECONDS
        if upcoming is None:
            return longest
        remaining = (moment(upcoming) - datetime.now(UTC)).total_seconds()
        return min(max(remaining, 0.02), longest)


def _cleared(verdict: Verdict, mode: AgentMode) -> Clearance | None:
    """What lets a call run without a question; None where one is asked, or the call refused."""
    if verdict.level is VerdictLevel.LOW:
        return Clearance("risk:LOW")
    if verdict.waived_by is not None:
        return Clearance(f"rule:{verdict.waived_by}"[:MAX_ACTOR])
    if mode is AgentMode.FULL and not verdict.always_asks and not verdict.refused:
        return Clearance("mode:full")
    return None


def _recorded(judgement: Judgement, raw: Mapping[str, Any]) -> str:
    """What the record keeps of the parameters: masked, and not more than is useful of a malformed call."""
    if judgement.params is not None:
        return plain_json(shown_params(judgement.tool_name, judgement.params))
    try:
        text = json.dumps(mask_value(dict(raw)), separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError):  # a lone surrogate is a ValueError, too
        return json.dumps({"left_out": "parameters that are not JSON"})
    if len(text) > MALFORMED_LIMIT:
        return json.dumps({"left_out": f"malformed parameters of {len(text)} characters"})
    return text
