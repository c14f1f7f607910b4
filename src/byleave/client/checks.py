"""The checks a signal passes before anything acts on it: the client trusts none of them blindly (C2).

In order: is its time still running, is it what was approved (the digest, computed here), does the owner's own gate
let it pass, where the gate wants an approval, is there one, and was everything shown that it would run. The first that
fails ends it with an error whose `error_type` says why. That the files still hold what was shown is checked by the
workspace, as it starts the command. Nothing here runs a tool.
"""

import asyncio
from datetime import UTC, datetime, timedelta

from byleave.gate import Gate, Judgement
from byleave.protocol.approvals import call_digest
from byleave.protocol.errors import ByleaveError, ExecutionCancelled, ExecutionTimeout, NotFound, RefusedError
from byleave.protocol.events import ExecutionSignal
from byleave.protocol.states import AgentMode, ErrorType, ExecutionStatus
from byleave.protocol.tools import TOOLS
from byleave.protocol.verdicts import Verdict, VerdictLevel
from byleave.protocol.wire import JsonObject, moment
from byleave.workspace import DriftedError, Workspace

from .log import log
from .outbox import Link

STALE = timedelta(seconds=10)
"""A signal older than this may have ended meanwhile; before it changes anything the server is asked."""
LARGE_CHARACTERS = 256 * 1024
TOO_LATE = "Its time was up before it could be run; nothing was run."


class GateRefusal(RefusedError):
    """The owner's gate says no."""

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
        # The same rules, where words do not reach: what a search passes over, what a command opens.
        workspace.obey(gate.rules.policy)
        self._link = link
        self.server_ahead = timedelta()
        """How far the server's clock is ahead of ours; deadlines are on the server's."""

    def ends_at(self, event: ExecutionSignal) -> float:
        """A call's deadline on our clock, in seconds since 1970."""
        return (moment(event.deadline) - self.server_ahead).timestamp()

    async def check(self, event: ExecutionSignal) -> Judgement:
        """The gate's answer for a signal that may run; raises for any other."""
        server_now = datetime.now(UTC) + self.server_ahead
        if server_now >= moment(event.deadline):
            raise ExecutionTimeout(TOO_LATE)
        if TOOLS[event.tool_name].changes_things and server_now - moment(event.timestamp) > STALE:
            await self._check_still_wanted(event)
        await self._check_digest(event)
        return await self._check_gate(event)

    async def _check_still_wanted(self, event: ExecutionSignal) -> None:
        """A replayed signal may have been called off or given up meanwhile: it must not have a late effect."""
        try:
            status = (await self._link.get_tool(event.tool_id)).status
        except NotFound:
            status = ExecutionStatus.FAILED
        except ByleaveError as error:
            # The signal is genuine and in time; not being able to ask again is no reason against it.
            log.warning("could not ask whether it is still wanted", tool_id=event.tool_id, error=error.message)
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
            # What JSON cannot say one way has no digest, so nobody can have approved it.
            digest = None
        if digest != event.digest:
            raise DriftedError("What was signalled is not what was approved; nothing was run.")

    async def _check_gate(self, event: ExecutionSignal) -> Judgement:
        if self._isolated is None:
            # Found out by really starting something in the sandbox, so not on the loop.
            self._isolated = await asyncio.to_thread(lambda: self._workspace.isolation.isolated)
        judgement = self._judge(event, event.tool_params)
        if self._gate.rules.policy.has_rules:
            # A rule knows names only: a link must meet the rules of what it leads to as well.
            real = await self._workspace.under_real_names(event.tool_params)
            if real != event.tool_params:
                self._judge(event, real)
        check_bound(event, judgement.verdict)
        return judgement

    def _judge(self, event: ExecutionSignal, params: JsonObject) -> Judgement:
        """Our own answer on a call under one spelling; raises where that needed more than the signal has."""
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
    """An answer to a question covers what was shown: it must be bound to exactly the files that would run.

    A mode and the owner's own rules answer no question; nothing had to be shown for them. A write is bound to the one
    file it replaces, where a machine has looked; that it is this one is the workspace's to see, which knows the links.
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
    """What must be there as it was shown. A grant covers writes whatever they replace: it was given without a look."""
    granted = event.tool_name == "write_file" and not event.approved_by.startswith("person:")
    return {} if granted else event.bound


def has_approval(event: ExecutionSignal, verdict: Verdict) -> bool:
    """Whether the signal says who allowed it: a person by an approval, a grant, the mode `full`, or a rule.

    What always asks is allowed by a person alone: no grant, no mode and no rule covers it. A rule counts only where
    this machine's own rules allow the call too.
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
