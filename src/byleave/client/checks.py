"""Checks of a call on this machine: inspection before a person is asked, checks of a signal before it runs (C2).

An inspection reads the files that a call would run or replace. The owner's gate judges the call first: files of a
refused call are not read. A few inspections run at once, beside the executions and without their slots. An answer that
cannot be posted is dropped: the server asks again on the next connection.

A signal is checked in order: its deadline has not passed; the server still wants it, if it is old; its digest, computed
here, is the approved one; the owner's gate lets it pass; an approval exists if the gate wants one; and every file it
would run was shown. The first failure ends it with an error whose `error_type` says why. The workspace checks that the
files still hold what was shown, as it starts the command. Nothing here runs a tool.
"""

import asyncio
import time
from dataclasses import dataclass, field

from byleave.gate import Gate, Judgement, mask_text
from byleave.protocol.approvals import Inspection, SeenFile, SeenRole, call_digest
from byleave.protocol.errors import (
    ByleaveError,
    CallerError,
    DriftedError,
    ExecutionCancelled,
    ExecutionTimeout,
    NotFound,
    RefusedError,
    UnreachableError,
)
from byleave.protocol.events import ExecutionSignal, InspectionRequested
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus
from byleave.protocol.tools import TOOLS
from byleave.protocol.verdicts import Verdict, VerdictLevel
from byleave.protocol.wire import JsonObject, moment, steady
from byleave.workspace.workspace import Workspace

from .log import log
from .outbox import Link
from .tasks import cancel, pause

AT_ONCE = 8
WAITING = 1000
"""Further requests are dropped; the server asks again."""


@dataclass(eq=False, kw_only=True)
class Inspector:
    """Inspects files for one project and workspace."""

    project_id: str
    workspace: Workspace
    gate: Gate
    link: Link
    tries: int
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])
    _running: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """The parameters that each task inspects."""

    def request(self, event: InspectionRequested) -> None:
        """Answer in the background, unless the same request is being answered. A call that a person changed meanwhile
        is another one."""
        running = self._running.get(event.tool_id)
        if running == event.tool_params:
            return
        if running is not None:
            self._tasks[event.tool_id].cancel()
        if len(self._tasks) >= WAITING:
            log.warning("inspection dropped", tool_id=event.tool_id)
            return
        log.info("inspection requested", tool_id=event.tool_id, tool=event.tool_name)
        task = asyncio.get_running_loop().create_task(self._answer(event))
        self._tasks[event.tool_id], self._running[event.tool_id] = task, event.tool_params
        task.add_done_callback(lambda ended: self._forget(event.tool_id, ended))

    def _forget(self, tool_id: str, ended: asyncio.Task[None]) -> None:
        if self._tasks.get(tool_id) is ended:
            del self._tasks[tool_id], self._running[tool_id]

    async def close(self) -> None:
        """Stop inspecting; nobody waits for a missing answer."""
        await cancel(*self._tasks.values())

    async def _answer(self, event: InspectionRequested) -> None:
        async with self._places:
            inspection = await self._look(event)
            await self._post(event.tool_id, inspection)

    async def _look(self, event: InspectionRequested) -> Inspection:
        judgement = await self._judge(event.tool_name, event.tool_params)
        verdict, params = judgement.verdict, judgement.params
        if not verdict.refused and params is not None and judgement.tool_name == "write_file":
            if self.gate.rules.policy.has_rules:
                # Rules match names only: a link must also pass the rules of its target.
                real = await self.workspace.under_real_names(params)
                verdict = verdict if real == params else (await self._judge(event.tool_name, real)).verdict
            if not verdict.refused:
                return await self.workspace.inspect_write(params["path"])
        if verdict.refused or judgement.command is None:
            return Inspection(files=[], problem=f"Refused on this machine: {mask_text(verdict.message)}"[:400])
        return await self.workspace.inspect(judgement.command)

    async def _judge(self, tool_name: str, params: JsonObject) -> Judgement:
        isolation = await asyncio.to_thread(lambda: self.workspace.isolation)
        root = str(self.workspace.root)
        return self.gate.judge(tool_name, params, workspace=root, isolated=isolation.isolated)

    async def _post(self, tool_id: str, inspection: Inspection) -> None:
        for attempt in range(self.tries):
            try:
                await self.link.post_inspection(self.project_id, tool_id, inspection)
            except UnreachableError as error:
                log.warning("inspection not delivered", tool_id=tool_id, attempt=attempt + 1, error=error.message)
                if attempt + 1 < self.tries:
                    await asyncio.sleep(pause(attempt))
            except ByleaveError as error:
                log.warning("inspection not accepted", tool_id=tool_id, error=error.message)
                lean = _without_texts(inspection)
                if isinstance(error, CallerError) and not isinstance(error, NotFound) and lean != inspection:
                    await self._post(tool_id, lean)  # perhaps larger than this server accepts
                return
            else:
                log.info("inspected", tool_id=tool_id, files=len(inspection.files), problem=inspection.problem)
                return


def _without_texts(inspection: Inspection) -> Inspection:
    """Return a copy with digests only for files to be replaced. Text that would run is never left out."""
    return Inspection(files=[_by_digest(file) for file in inspection.files], problem=inspection.problem)


def _by_digest(file: SeenFile) -> SeenFile:
    if file.role is not SeenRole.REPLACES or not file.text:
        return file
    return file.model_copy(update={"text": None, "shortened": True, "note": "It is too long for this server."})


STALE_SECONDS = 10.0
"""An older signal may have ended meanwhile; the server is asked before it changes anything."""
LARGE_CHARACTERS = 256 * 1024
TOO_LATE = "Its time was up before it could be run; nothing was run."


class GateRefusal(RefusedError):
    """The owner's gate refused the call."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.message)
        self.error_type = verdict.error_type or ErrorType.REFUSED


class SignalChecks:
    """Checks signals for one project and workspace."""

    def __init__(self, *, project_id: str, workspace: Workspace, gate: Gate, link: Link) -> None:
        self._project_id = project_id
        self._workspace = workspace
        self._root = str(workspace.root)
        self._isolated: bool | None = None
        self._gate = gate
        # Searches and commands open files that their parameters do not name; the workspace applies the rules to those.
        workspace.obey(gate.rules.policy)
        self._link = link
        self.server_offset = time.time() - steady()
        """Seconds from `steady` to the server's clock, which deadlines use: setting our wall clock does not count."""

    @property
    def server_now(self) -> float:
        """The server's time, in seconds since 1970."""
        return steady() + self.server_offset

    def ends_at(self, event: ExecutionSignal) -> float:
        """Return a call's deadline on the clock `steady`."""
        return moment(event.deadline).timestamp() - self.server_offset

    async def check(self, event: ExecutionSignal) -> Judgement:
        """Return the gate's judgement of a signal that may run; raise for any other."""
        if steady() >= self.ends_at(event):
            raise ExecutionTimeout(TOO_LATE)
        age = self.server_now - moment(event.timestamp).timestamp()
        if TOOLS[event.tool_name].changes_things and age > STALE_SECONDS:
            await self._check_still_wanted(event)
        await self._check_digest(event)
        return await self._check_gate(event)

    async def _check_still_wanted(self, event: ExecutionSignal) -> None:
        """Raise if a replayed signal was cancelled or given up meanwhile: it must have no late effect."""
        try:
            status = (await self._link.get_tool(event.tool_id)).status
        except NotFound:
            status = ExecutionStatus.FAILED
        except ByleaveError as error:
            # The signal is genuine and in time; being unable to ask again is no reason to refuse it.
            log.warning(
                "could not ask the server if the call is still open", tool_id=event.tool_id, error=error.message
            )
            return
        if status.ended:
            raise ExecutionCancelled("It ended on the server before it could be run; nothing was run.")

    async def _check_digest(self, event: ExecutionSignal) -> None:
        content = event.tool_params.get("content")
        large = isinstance(content, str) and len(content) > LARGE_CHARACTERS
        call = (event.tool_name, event.tool_params, self._project_id, dict(event.bound))
        try:
            digest = await asyncio.to_thread(call_digest, *call) if large else call_digest(*call)
        except (ValueError, RecursionError):
            # A value without canonical JSON has no digest, so nobody can have approved it.
            digest = None
        if digest != event.digest:
            raise DriftedError("What was signalled is not what was approved; nothing was run.")

    async def _check_gate(self, event: ExecutionSignal) -> Judgement:
        if self._isolated is None:
            # The probe starts a process in the sandbox, so it must not block the loop.
            self._isolated = await asyncio.to_thread(lambda: self._workspace.isolation.isolated)
        judgement = self._judge(event, event.tool_params)
        if self._gate.rules.policy.has_rules:
            # Rules match names only: a link must also pass the rules of its target.
            real = await self._workspace.under_real_names(event.tool_params)
            if real != event.tool_params:
                self._judge(event, real)
        check_bound(event, judgement.verdict)
        return judgement

    def _judge(self, event: ExecutionSignal, params: JsonObject) -> Judgement:
        """Return our own judgement of one spelling of a call; raise if the signal lacks the approval it needs."""
        judgement = self._gate.judge(event.tool_name, params, workspace=self._root, isolated=bool(self._isolated))
        verdict = judgement.verdict
        if verdict.refused:
            raise GateRefusal(verdict)
        if verdict.level is VerdictLevel.LOW:
            return judgement
        if event.approved_by.startswith("mode:") and self._gate.rules.policy.widest_mode is AgentMode.SANDBOX:
            raise RefusedError("This machine's rules permit no mode but sandbox; it was not run.")
        if not has_approval(event, verdict):
            needed = "approval by a person" if verdict.always_asks else "approval"
            raise RefusedError(
                f"On this machine it is {verdict.level.value}: it needed {needed} and has none, so it was not run."
            )
        return judgement


def check_bound(event: ExecutionSignal, verdict: Verdict) -> None:
    """Raise unless the approval is bound to exactly the files that would run.

    A mode and the owner's own rules answer no question, so nothing had to be shown for them. A write is bound to the
    one file it replaces, if a machine has looked; the workspace checks that it is this file, because it knows the
    links.
    """
    if event.approved_by.partition(":")[0] not in ("person", "grant") or verdict.level is VerdictLevel.LOW:
        return
    if event.tool_name == "write_file" and len(event.bound) <= 1:
        return
    if set(event.bound) != set(verdict.runs):
        names = ", ".join(repr(name) for name in sorted(set(verdict.runs) ^ set(event.bound))[:3])
        raise DriftedError(
            f"What was shown is not what it would run ({names}); nothing was run.",
            hint="Ask again: what it would run is then shown.",
        )


def bound_of(event: ExecutionSignal) -> dict[str, str]:
    """Return the files that must be unchanged, with their digests.

    Empty for a write that no person approved: a grant covers it whatever it replaces.
    """
    granted = event.tool_name == "write_file" and not event.approved_by.startswith("person:")
    return {} if granted else event.bound


def has_approval(event: ExecutionSignal, verdict: Verdict) -> bool:
    """Return True if the signal names an approval: a person, a grant, mode `full`, or a rule.

    Calls that always ask need a person: no grant, mode or rule covers them. A rule counts only if this machine's own
    rules allow the call too.
    """
    kind, _, name = event.approved_by.partition(":")
    if verdict.always_asks and kind != "person":
        return False
    match kind:
        case "person":
            return bool(name) and event.approval_id is not None
        case "grant":
            return bool(name)
        case "mode":
            return name == "full" and event.mode is AgentMode.FULL
        case "rule":
            return bool(name) and verdict.waived_by is not None
        case _:
            return False
