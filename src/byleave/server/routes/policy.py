"""Routes for the rules of a project, and for checking a call against them.

A client declares its owner's rules here; the server judges with them, and the client judges again itself. The check
judges as the executor would, with the rules of the machine that would run the call, the mode, and the session's grants
and refusals. It records, runs and uses up nothing. No agent may use it: it would probe for what passes. Secrets in the
given parameters are masked in the whole answer.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from fastapi import APIRouter
from starlette.responses import Response

from byleave.calls.approvals import Refusal, foresee_answer
from byleave.calls.grants import Asked
from byleave.calls.long_work import LONG_CHARACTERS
from byleave.calls.machines import Machine
from byleave.gate import Gate, Judgement, declared_layers, describe, mask_text, mask_value, safe_text, shown_params
from byleave.gate.commands.calls import call_of
from byleave.gate.policy.policy import Decider, decider
from byleave.gate.text.secrets import WITHHELD
from byleave.protocol.approvals import call_digest
from byleave.protocol.errors import NotFound
from byleave.protocol.overview import (
    CheckAnswer,
    CheckBody,
    CheckDecision,
    Layer,
    PolicyDeclaration,
    PolicyText,
    RuleLayer,
    RuleLayers,
)
from byleave.protocol.states import AgentMode, ErrorType
from byleave.protocol.tools import MAX_ARGUMENT_BYTES, MAX_ARGUMENTS
from byleave.protocol.verdicts import Finding, Verdict, VerdictLevel
from byleave.protocol.wire import JsonObject, plain_json
from byleave.server.dependencies import Executor, Parts, Person, Project, StrictRoute, check_client
from byleave.server.problems import problems
from byleave.server.services import Services
from byleave.settings import ServerSettings
from byleave.store import SessionRow
from byleave.store.grants import GrantRow

router = APIRouter(route_class=StrictRoute)

UNSEEN = "unseen"
"""Placeholder for the digest of a file that no machine was asked about."""
MOST_MASKED = MAX_ARGUMENT_BYTES + MAX_ARGUMENTS
"""Most characters of a command that are searched for secrets."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The predicted decision and its reason."""

    decision: CheckDecision
    because: str
    decided_by: str
    layer: str | None


@router.post("/my/projects/{project_id}/check", summary="What would happen if…", tags=["policy"])
async def check(parts: Parts, principal: Person, project: Project, body: CheckBody) -> CheckAnswer:
    """Judges a call as if an agent had made it: with the rules of the machine that would run it, the mode, and with
    `session_id` the grants and refusals of that session. Nothing runs and nothing is recorded."""
    session = None
    if body.session_id is not None:
        session = await parts.store.chat.session(body.session_id, user_id=principal.user_id)
        if session.project_id != project:
            raise NotFound(f"No session {body.session_id!r}.", hint="Leave session_id out.")
    machine = await parts.machines.of(project)
    judgement = machine.judge(body.tool_name, body.tool_params)
    outcome = outcome_of(judgement.verdict, machine, body.mode)
    if outcome.decision is CheckDecision.ASKS and session is not None:
        outcome = await _in_session(parts, session, judgement, machine, outcome)
    answer = partial(_answer, judgement, outcome, machine.gate, body.tool_params, parts.settings)
    is_long = len(plain_json(body.tool_params)) > LONG_CHARACTERS
    return await parts.executor.long_work.run(principal.user_id, answer) if is_long else answer()


@router.get("/my/projects/{project_id}/policy", summary="The rules of a project", tags=["policy"])
async def policy(parts: Parts, principal: Person, project: Project) -> RuleLayers:
    """The rules as written, layer by layer: the server's own, and those of the machine that would execute next, or
    was connected last."""
    machine = await parts.machines.of(project)
    declared = await parts.machines.declared(project)
    layers = [_layer(text, None) for text in parts.own_rules]
    if declared is not None:
        layers += [_layer(text, declared.client_id) for text in declared.layers]
    return RuleLayers(layers=layers, widest_mode=machine.widest_mode)


@router.put(
    "/my/projects/{project_id}/policy",
    summary="Declare a machine's rules",
    tags=["grants"],
    status_code=204,
    responses=problems(409, 503),
)
async def declare_policy(parts: Parts, principal: Executor, project: Project, body: PolicyDeclaration) -> Response:
    """Rules that the owner of a client's machine wrote, layer by layer. The server judges with them from now on. Rules
    that cannot be read are a 400; a client that is not who it was at first contact is a 403; a copy
    of it, or an earlier start, a 409."""
    await check_client(parts, principal, project, body.client_id, joins=False)
    declared_layers(body.layers)  # refuse unreadable rules now, not at the first call
    text = body.model_dump_json()
    digest = hashlib.sha256(text.encode()).hexdigest()
    await parts.store.machines.declare(project, body.client_id, text, digest=digest)
    return Response(status_code=204)


def _layer(text: PolicyText, client_id: str | None) -> RuleLayer:
    return RuleLayer(**text.model_dump(), client_id=client_id)


def outcome_of(verdict: Verdict, machine: Machine, mode: AgentMode) -> Outcome:
    """Decide a call by its verdict and mode; grants come after."""
    rule = decider(verdict, machine.gate.rules.policy)
    layer = _where(rule)
    strictest = verdict.findings[0].rule
    if verdict.refused:
        return Outcome(CheckDecision.REFUSED, _refused(verdict, rule), strictest, layer)
    if verdict.level is VerdictLevel.LOW:
        return Outcome(CheckDecision.RUNS, "It is LOW, so it runs at once.", strictest, layer)
    if verdict.waived_by is not None:
        because = f"Rule {rule.rule} waives the question ({rule.text}); it is in the layer {layer}."
        return Outcome(CheckDecision.RUNS, because, f"rule:{verdict.waived_by}", layer)
    may_be_full = machine.widest_mode is AgentMode.FULL
    if mode is AgentMode.FULL and may_be_full and not verdict.always_asks:
        because = f"It is {verdict.level}, and the mode full runs it without asking."
        return Outcome(CheckDecision.RUNS, because, "mode:full", None)
    because = _asks(verdict, rule)
    if mode is AgentMode.FULL and not may_be_full:
        because += " The rules here do not allow the mode full."
    return Outcome(CheckDecision.ASKS, because, strictest, layer)


def _refused(verdict: Verdict, rule: Decider) -> str:
    if verdict.error_type is ErrorType.INVALID:
        return "The call is malformed, so it never runs; the agent is told what is wrong with it."
    if rule.layer is not Layer.BUILT_IN:
        return f"Rule {rule.rule} denies it; it is in the layer {_where(rule)}."
    return "The gate refuses it, so it never runs, whatever a person, a grant or a mode allows."


def _asks(verdict: Verdict, rule: Decider) -> str:
    if rule.layer is not Layer.BUILT_IN:
        return f"Rule {rule.rule} wants it asked each time; it is in the layer {_where(rule)}."
    if verdict.always_asks:
        return f"It is {verdict.level} and of a kind that is asked about each time, also in the mode full."
    return f"It is {verdict.level}, so a person is asked first."


def _where(rule: Decider) -> str:
    return rule.layer.value if rule.source is None else f"{rule.layer.value} ({rule.source})"


async def _in_session(
    parts: Services, session: SessionRow, judgement: Judgement, machine: Machine, outcome: Outcome
) -> Outcome:
    """Apply earlier answers of this session, which may stand in for a person's."""
    name, params, verdict, _ = judgement
    if params is None:
        return outcome
    bound = dict.fromkeys(verdict.runs, UNSEEN)
    asked = Asked(
        call=call_of(name, params, None, machine.workspace),
        user_id=session.user_id,
        project_id=session.project_id,
        level=verdict.level,
        always_asks=verdict.always_asks,
        network=verdict.network,
        bound=bound,
    )
    recorded, digest = plain_json(shown_params(name, params)), call_digest(name, params, session.project_id)
    match await foresee_answer(parts.store, session, recorded, digest, asked):
        case Refusal() as refusal:
            return Outcome(CheckDecision.REFUSED, refusal.error, "session.refused", None)
        case GrantRow() as grant:
            because = f"A grant of this session covers it: {grant.text}"
            return Outcome(CheckDecision.RUNS, because, f"grant:{grant.id}", None)
        case None if bound and not verdict.always_asks:
            because = (
                f"{outcome.because} A grant for exactly what it would run is found when the machine looks at that."
            )
            return Outcome(outcome.decision, because, outcome.decided_by, outcome.layer)
        case None:
            return outcome


# The answer


def _answer(
    judgement: Judgement, outcome: Outcome, gate: Gate, given: Mapping[str, Any], settings: ServerSettings
) -> CheckAnswer:
    name, params, verdict, _ = judgement
    hidden = Hidden(name, params if params is not None else dict(given))
    asks = outcome.decision is CheckDecision.ASKS
    is_refused = outcome.decision is CheckDecision.REFUSED
    described = [] if is_refused else describe(name, params, verdict).splitlines()
    seconds = settings.high_approval_seconds
    if verdict.level is VerdictLevel.MEDIUM:
        seconds = settings.medium_approval_seconds
    return CheckAnswer(
        verdict=verdict.level,
        decision=outcome.decision,
        because=hidden.text(outcome.because),
        findings=[_finding(finding, hidden) for finding in verdict.findings],
        decided_by=hidden.text(outcome.decided_by),
        layer=None if outcome.layer is None else hidden.text(outcome.layer),
        always_asks=verdict.always_asks and not verdict.refused,
        network=verdict.network,
        runs=[hidden.text(path) for path in verdict.runs],
        description=None if is_refused else "\n".join(map(hidden.text, described)),
        understood=_understood(gate, verdict, hidden),
        timeout_seconds=seconds if asks else None,
    )


def _finding(finding: Finding, hidden: "Hidden") -> Finding:
    instead = None if finding.instead is None else hidden.text(finding.instead)
    return finding.model_copy(
        update={"reason": hidden.text(finding.reason), "instead": instead, "rule": hidden.text(finding.rule)}
    )


def _understood(gate: Gate, verdict: Verdict, hidden: "Hidden") -> JsonObject | None:
    """The arguments as they were read; with a secret among them, as they are read with it masked."""
    understood = verdict.understood
    if understood is not None and hidden.masked is not None:
        understood = gate.judge("execute_command", hidden.masked).verdict.understood
    masked = None if understood is None else mask_value(understood)
    return cast("JsonObject", masked) if isinstance(masked, dict) else None


class Hidden:
    """Masks secrets in a text, also those that only their place among the arguments reveals."""

    def __init__(self, name: str, params: JsonObject) -> None:
        self.masked: JsonObject | None = None
        """A command's parameters with its secrets masked; None when there are none."""
        self._pairs: list[tuple[str, str]] = []
        self._withheld = False
        # Only the command: other parameters, such as content, are never quoted.
        command = {key: params[key] for key in ("command", "args") if key in params}
        given = _texts(command.get("args"))
        if len(str(command.get("command"))) + sum(map(len, given)) + len(given) > MOST_MASKED:
            # A command this long never runs, and searching all of it would take many seconds.
            self._withheld = True
            return
        masked = _texts(shown_params(name, command).get("args")) if given else []
        if given != masked:
            self.masked = {**params, "args": masked}
            one_by_one = list(zip(given, masked, strict=False))
            self._pairs = [pair for one, other in one_by_one if one != other for pair in _parts(one, other)]
            self._withheld = len(masked) != len(given)

    def text(self, text: str) -> str:
        if self._withheld:  # the arguments could not be masked one by one, so no text that may quote them is returned
            return WITHHELD
        for secret, mask in self._pairs:
            text = text.replace(secret, mask)
        return safe_text(mask_text(text))


def _texts(values: object) -> list[str]:
    return [str(value) for value in cast("list[Any]", values)] if isinstance(values, list) else []


def _parts(given: str, masked: str) -> list[tuple[str, str]]:
    """The whole argument and the masked part of it, each with its mask: a reason may quote either."""
    start = 0
    while start < min(len(given), len(masked)) and given[start] == masked[start]:
        start += 1
    secret = given[start:]
    return [(given, masked), (secret, masked[start:])] if len(secret) >= 4 else [(given, masked)]
