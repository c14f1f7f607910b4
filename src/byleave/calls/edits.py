"""Edits: a person changes a call that waits for them, before they allow it.

The tool and the path stay; the content, the command line, its time limit or the query may change. The changed call is
judged like any other. If it is refused, nothing changes and the person is told why. Else one transaction withdraws the
question and sends its calls back: to the machine, which inspects what the changed call would run or replace, and then
to the person, who is asked about exactly that. Only the person's answer to this question lets it run: no risk level,
rule, mode or grant does, and the three-refusals rule does not count it. The agent is told what was changed.

An edit never takes a masked text for the real one: what is masked is handed out only revealed, and a text with a mask
that the call does not have is refused.
"""

import json
import re
from collections import Counter
from functools import partial

import structlog

from byleave.bus import Bus
from byleave.gate import MASK_PREFIX, Judgement, mask_text, mask_value, question_cover, shown_params
from byleave.gate.commands.lines import NotPlain, plain_words, typed_line
from byleave.gate.text.secrets import cover_inert
from byleave.protocol.approvals import MAX_EDITED, EditableCall, EditAnswer, EditBody, Inspection
from byleave.protocol.errors import CallerError, ConflictError, NotFound
from byleave.protocol.states import AnsweredFrom, ApprovalStatus, ExecutionStatus
from byleave.protocol.verdicts import VerdictLevel
from byleave.protocol.wire import JsonObject
from byleave.store import ApprovalRow, ExecutionRow, SessionRow, Store, transitions
from byleave.store.approvals import Question, close
from byleave.store.executions import HEAVY_CHARACTERS
from byleave.store.ledger import Ledger
from byleave.store.transitions import NewExecution
from byleave.telemetry import ids_of

from .approvals import Answer, Refusal, ask, decided_already, take, true_params
from .executor import PROMPTLY_SECONDS, Caller, Inspect, ToolExecutor, Watch, new_execution
from .inspection import with_edit, without_inspection
from .long_work import LONG_CHARACTERS
from .machines import ConnectedClient, Machine, Presence

log = structlog.stdlib.get_logger(__name__)

EDITABLE = {"write_file": ("content",), "execute_command": ("line", "timeout"), "search_web": ("query",)}
"""The fields of an `EditBody` that each tool takes."""
_MASK = re.compile(rf"{re.escape(MASK_PREFIX)}[^\]\n]{{0,80}}")


class EditProblem(CallerError):
    """An edit that is not taken, with the reason. The call waits as it was."""


class Edits:
    """Hands out what a person may change in a waiting call, and takes the change."""

    def __init__(self, executor: ToolExecutor, store: Store, bus: Bus, presence: Presence) -> None:
        self._executor = executor
        self._store = store
        self._bus = bus
        self._presence = presence

    async def editable(self, approval_id: str, user_id: str, *, reveal: bool) -> EditableCall:
        """The parts of a waiting call that may be changed. What is masked for people comes only with `reveal`."""
        approval, call, params = await self._waiting(approval_id, user_id)
        found = EditableCall(approval_id=approval.id, digest=approval.digest, tool_name=call.tool_name)
        if call.tool_name == "execute_command":
            timeout = params["timeout"]
            texts: JsonObject = {"line": typed_line([params["command"], *params["args"]]), "timeout": timeout}
        else:
            texts = {name: params[name] for name in EDITABLE[call.tool_name]}
        if any(isinstance(text, str) and len(text) > MAX_EDITED for text in texts.values()):
            raise EditProblem(
                f"It is longer than {MAX_EDITED} characters, too long to be changed here.",
                hint="Deny it with a reason, or allow it and change the file afterwards.",
            )
        masked = await self._executor.long_work.run(user_id, partial(_is_masked, approval, call.tool_name, params))
        if masked and not reveal:
            texts = {name: value for name, value in texts.items() if not isinstance(value, str)}
        return found.model_copy(update={**texts, "masked": masked})

    async def edit(
        self,
        approval_id: str,
        user_id: str,
        body: EditBody,
        *,
        project_id: str | None = None,
        decided_from: AnsweredFrom | None = None,
    ) -> EditAnswer:
        """Change a waiting call. EditProblem if it may not be so; ConflictError if the question is not open any more
        or was about something else."""
        approval, call, params = await self._waiting(approval_id, user_id, project_id)
        changed = _changed(call.tool_name, params, body)
        machine = await self._executor.machines.of(approval.project_id)
        client = self._presence.choose(approval.project_id)
        prepare = partial(self._prepare, call, changed, machine, client)
        long = len(body.content or "") > LONG_CHARACTERS
        new, step = await self._executor.long_work.run(user_id, prepare) if long else prepare()
        answer = Answer(
            approval_id,
            user_id,
            approve=True,
            digest=body.digest,
            calls=body.calls,
            project_id=project_id,
            decided_from=decided_from,
        )
        act = partial(self._act, new=new, step=step, answer=answer, client=client)
        heavy = len(call.true_params or "") + len(new.true_params or "") > HEAVY_CHARACTERS
        with Watch(self._store, self._bus, call.id) as watch:
            rows = await take(self._store, answer, act, heavy=heavy)
            log.info("call edited", calls=len(rows), **ids_of(rows[0]))
            row = next((row for row in rows if row.id == call.id), rows[0])
            waits_for_machine = row.status is ExecutionStatus.PENDING and row.client_id is not None
            row = await watch.follow(row, PROMPTLY_SECONDS, until_asked=True) if waits_for_machine else row
        return EditAnswer(approval_id=row.approval_id, tool_ids=[each.id for each in rows], message=_told(row))

    async def _waiting(
        self, approval_id: str, user_id: str, project_id: str | None = None
    ) -> tuple[ApprovalRow, ExecutionRow, JsonObject]:
        """An open question with the oldest call that waits for it, and that call's true parameters."""
        approval, _, call = await self._store.approvals.replaced(
            approval_id, user_id=user_id, whole=lambda approval: True
        )
        if project_id not in (None, approval.project_id):
            raise NotFound(f"No approval {approval_id!r}.", hint="See `GET /my/approvals` for what waits.")
        if approval.status is not ApprovalStatus.PENDING:
            raise decided_already(approval)
        params = true_params(call)
        if call is None or params is None or call.tool_name not in EDITABLE:
            raise EditProblem("There is nothing in this call that could be changed.", hint="Allow or deny it as it is.")
        return approval, call, params

    def _prepare(
        self, call: ExecutionRow, changed: JsonObject, machine: Machine, client: ConnectedClient | None
    ) -> tuple[NewExecution, Question | Inspect]:
        """Judge the changed call: its record, and how the person is asked about it."""
        judgement = machine.judge(call.tool_name, changed)
        if client is not None and not client.looks:
            judgement = without_inspection(judgement)
        step = self._executor.first_step(judgement, None, machine, client)
        if isinstance(step, Refusal) or judgement.verdict.level is VerdictLevel.REFUSE:
            raise EditProblem(_reason(judgement), hint="It waits as it was: change it otherwise, allow or deny it.")
        assert isinstance(step, Question | Inspect)  # noqa: S101 - without a mode nothing is cleared
        caller = Caller(run_id=call.run_id, agent_id=call.agent_id, mode=call.mode)
        session = SessionRow(call.session_id, call.project_id, call.user_id, title="", created_at=call.created_at)
        return new_execution(judgement, changed, session, caller, is_asked=True), step

    def _act(
        self,
        ledger: Ledger,
        approval: ApprovalRow,
        waiting: list[ExecutionRow],
        *,
        new: NewExecution,
        step: Question | Inspect,
        answer: Answer,
        client: ConnectedClient | None,
    ) -> list[ExecutionRow]:
        person, waits = f"person:{answer.user_id}", self._store.waits
        if not waiting:
            raise ConflictError("Nothing waits for this approval any more.", state=approval.status.value)
        self._executor.limits.admit(ledger.transaction, new, begins=False)  # the call has begun; it may grow
        close(
            ledger,
            approval,
            ApprovalStatus.CANCELLED,
            waiting=waiting,
            decided_by=person,
            decided_from=answer.decided_from,
        )
        rows: list[ExecutionRow] = []
        for execution in waiting:
            row = transitions.edit(ledger, execution, new, person, waits)
            if isinstance(step, Inspect):
                if client is not None:
                    row = transitions.set_columns(ledger, row, {"client_id": client.client_id})
                    transitions.request_inspection(ledger, row, client.client_id)
            else:
                row = transitions.advance(ledger, row, ExecutionStatus.AWAITING_APPROVAL, {"requires_approval": True})
                row = ask(ledger, row, with_edit(step, row))
            rows.append(row)
        return rows


def _changed(tool_name: str, params: JsonObject, body: EditBody) -> JsonObject:
    """The parameters as the person wants them. Nothing but what the tool takes may be changed."""
    given = {
        name: value for name in ("content", "line", "timeout", "query") if (value := getattr(body, name)) is not None
    }
    wrong = [name for name in given if name not in EDITABLE[tool_name]]
    if wrong:
        raise EditProblem(f"{wrong[0]!r} is no part of {tool_name} that can be changed.")
    if "line" in given:
        try:
            command, *args = plain_words(given.pop("line"))
        except NotPlain as error:
            message, _, hint = str(error).partition("\nhint: ")
            raise EditProblem(message, hint=f"{hint[0].upper()}{hint[1:]}." if hint else None) from error
        given |= {"command": command, "args": args}
    changed = {**params, **given}
    if changed == params:
        raise EditProblem("Nothing was changed.", hint="Allow it as it is, or change it first.")
    if _masks(changed) - _masks(params):
        raise EditProblem(
            "A masked part would be written as its mask.", hint="Show what is masked first, and change that."
        )
    return changed


def _masks(params: JsonObject) -> Counter[str]:
    """What looks like a mask in the parameters."""
    return Counter(_MASK.findall(json.dumps(params, ensure_ascii=False)))


def _is_masked(approval: ApprovalRow, tool_name: str, params: JsonObject) -> bool:
    """True if a question masks a part of what could be changed."""
    if tool_name == "write_file":
        files = approval.inspection.files if approval.inspection else []
        content = params["content"]
        return mask_text(content, question_cover(params, files[0].path if files else None)) != content
    return shown_params(tool_name, params, cover_inert) != params


def _reason(judgement: Judgement) -> str:
    instead = next((finding.instead for finding in judgement.verdict.findings if finding.instead), None)
    reason = mask_text(judgement.verdict.message)
    return f"Changed like this it is refused: {reason}" + (f" Safer: {mask_text(instead)}." if instead else "")


def _told(row: ExecutionRow) -> str:
    match row.status:
        case ExecutionStatus.AWAITING_APPROVAL:
            return "It is asked about as you changed it."
        case ExecutionStatus.PENDING:
            return "It is asked about as you changed it, once the machine has looked."
        case _:
            return f"Nobody can be asked about it as you changed it: {row.error or row.status.value}"


def for_agent(question: JsonObject) -> JsonObject:
    """A question as its agent may see it: without the contents of files, which it must not read by asking to write or
    to run; and of a person's change no more than the record keeps."""
    if question.get("inspection"):
        seen = Inspection.model_validate(question["inspection"]).without_texts()
        question = {**question, "inspection": seen.model_dump(mode="json")}
    if not question.get("edit"):
        return question
    told = question["description"].split("\n")[:2]
    return {
        **question,
        "tool_params": mask_value(question["tool_params"]),
        "edit": mask_value(question["edit"]),
        "description": mask_text("\n".join(told)),
        "findings": mask_value(question["findings"]),
        "suggestions": [],
    }
