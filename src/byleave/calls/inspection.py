"""Turn a client's inspection of the files a call would run or replace into a question.

The execution is PENDING meanwhile. The digest covers what the client saw, so that is part of what is approved.
Everything a person is shown comes from the stored parameters and from what that machine saw of its files, never from
the agent's own words.
"""

import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from byleave.gate import (
    Judgement,
    call_lines,
    check_path,
    cover_key,
    mask_text,
    mask_value,
    question_cover,
    safe_text,
    secret_name,
    shown_params,
)
from byleave.gate.commands.calls import call_of
from byleave.gate.commands.scripts import UNKNOWN
from byleave.gate.policy.grants import suggest
from byleave.gate.text.render import NOT_LOOKED, headline
from byleave.gate.text.secrets import Cover
from byleave.protocol.approvals import MAX_SEEN_TEXT, Edit, Inspection, SeenFile, SeenRole, call_digest
from byleave.protocol.errors import NotFound
from byleave.protocol.grants import Suggestion
from byleave.protocol.states import ErrorType, ExecutionStatus, RiskLevel
from byleave.protocol.tools import MAX_FILE_BYTES
from byleave.protocol.verdicts import Finding, Verdict, VerdictLevel, verdict_of
from byleave.protocol.wire import JsonObject, plain_json
from byleave.settings import ServerSettings
from byleave.store import ExecutionRow, Store, transitions
from byleave.store.approvals import Question
from byleave.store.database import Hint, Transaction
from byleave.store.executions import HEAVY_CHARACTERS
from byleave.store.ledger import Ledger
from byleave.store.transitions import Waits

from .approvals import Clearance, Refusal, ask, standing_answer
from .grants import MOST_NAMED, runs_code
from .long_work import LONG_CHARACTERS, LongWork
from .machines import Machine

MAX_NOTE = 400
NOT_READ = "A rule denies reading it."
MANIFEST = "package.json"
SENDERS = frozenset({"curl", "wget", "nc", "ncat", "netcat", "socat", "ssh", "scp", "sftp", "rsync", "ftp", "telnet"})
_WORDS = re.compile(r"[\w@./+-]+")
MAX_TOLD_TEXT = 4096
"""Longest text of a replaced file that a question includes; a longer one is kept beside it."""


def without_inspection(judgement: Judgement) -> Judgement:
    """The judgement of a call whose client does not inspect: nobody has seen what it would run.

    A person is asked each time and told so. If not even the files are known, it is refused.
    """
    verdict = judgement.verdict
    if verdict.refused or not verdict.runs:
        return judgement
    names = ", ".join(f"'{safe_text(path)}'" for path in verdict.runs[:MOST_NAMED])
    level, reason = verdict.level, f"Nothing was looked at: the connected client does not say what {names} would run."
    if verdict.runs == UNKNOWN:
        level, reason = VerdictLevel.REFUSE, "It cannot be told which files this would run, so nobody can be asked."
    finding = Finding(level=level, reason=reason, rule="machine.looks", always_asks=True)
    shown = verdict_of(
        [finding, *verdict.findings], network=verdict.network, understood=verdict.understood, runs=verdict.runs
    )
    return Judgement(judgement.tool_name, judgement.params, shown)


def question_for(
    tool_name: str, params: JsonObject, verdict: Verdict, settings: ServerSettings, *, workspace: str | None
) -> Question:
    """The question about a call that runs no file of the workspace, or that no client can inspect."""
    cover = question_cover(params)
    lines = [*call_lines(tool_name, params), *([NOT_LOOKED] if tool_name == "write_file" else [])]
    return Question(
        description="\n".join(lines),
        tool_params=shown_params(tool_name, params, cover),
        timeout_seconds=_seconds(verdict.level.risk, settings),
        suggestions=_suggestions(tool_name, params, verdict, {}, workspace),
        runs_code=runs_code(call_of(tool_name, params, None, workspace)),
    )


def question_after_inspection(
    row: ExecutionRow,
    verdict: Verdict,
    inspection: Inspection,
    settings: ServerSettings,
    *,
    workspace: str | None,
    written: Mapping[str, str],
) -> Question:
    """The question about a call that runs files, or replaces one. `written`: when an agent last wrote them."""
    params = json.loads(row.true_params or "{}")
    is_write = row.tool_name == "write_file"
    cover = question_cover(params, inspection.files[0].path if is_write else None)
    texts = {file.path: file.text for file in inspection.files if file.text is not None}
    masked = {path: mask_text(text, cover if is_write else cover_key) for path, text in texts.items()}
    files = [_shown(file, masked.get(file.path), written.get(file.path)) for file in inspection.files]
    lines = call_lines(row.tool_name, params)
    replaced = None
    if is_write:
        asked = posixpath.normpath(check_path(params["path"], workspace=workspace).relative)
        if asked != files[0].path:
            lines.append(f"Behind a link: what is written is '{safe_text(files[0].path)}'.")
        replaced, files = _kept_apart(files[0])
    else:
        lines += _telling_words(inspection.files)
    question = Question(
        description="\n".join(lines),
        tool_params=shown_params(row.tool_name, params, cover),
        timeout_seconds=_seconds(verdict.level.risk, settings),
        suggestions=_suggestions(row.tool_name, params, verdict, inspection.bound, workspace),
        inspection=Inspection(files=files) if files else None,
        replaced=replaced,
        unmasked={} if is_write else {path: text for path, text in texts.items() if text != masked[path]},
        runs_code=runs_code(call_of(row.tool_name, params, None, workspace)),
    )
    return with_edit(question, row, cover)


def _telling_words(files: list[SeenFile]) -> list[str]:
    """A note on a manifest's scripts that send something out or name a file of secrets: easily missed in a line."""
    scripts = (file.text or "" for file in files if file.role is SeenRole.RUNS and file.path.endswith(MANIFEST))
    words = {word for text in scripts for word in _WORDS.findall(text[:MAX_TOLD_TEXT])}
    sent = sorted(word for word in words if word.rpartition("/")[2] in SENDERS)
    secret = sorted(word for word in words if secret_name(word.lstrip("@")))
    named = [f"'{safe_text(mask_text(word))}'" for word in (*sent, *secret)][:MOST_NAMED]
    return [f"Its script names {', '.join(named)}."] if named else []


def with_edit(question: Question, row: ExecutionRow, cover: Cover | None = None) -> Question:
    """The question about a call, with what the agent asked for if a person changed that."""
    if row.edited is None or row.asked_params is None:
        return question
    asked = json.loads(row.asked_params)
    cover = cover or question_cover(asked)
    edit = Edit(edited_by=row.edited.edited_by, asked=shown_params(row.tool_name, asked, cover))
    who = safe_text(edit.edited_by.removeprefix("person:"))
    line = f"Changed by {who}. The agent asked: {headline(row.tool_name, asked)}"
    first, *rest = question.description.split("\n")
    return replace(question, edit=edit, description="\n".join([first, line, *rest]))


@dataclass(frozen=True, slots=True)
class Inspected:
    """The question that follows an inspection, or that is asked without one."""

    question: Question
    verdict: Verdict
    """From the machine that inspected: this one counts."""
    digest: str
    """Of the call and the files it is bound to."""


async def assess_inspection(
    store: Store,
    machine: Machine,
    row: ExecutionRow,
    inspection: Inspection,
    settings: ServerSettings,
    long_work: LongWork,
) -> Inspected | Refusal:
    """Turn an inspection into a question, or a refusal if nobody can be asked."""
    params = json.loads(row.true_params or "{}")
    # Judge again: the call may have begun before this machine, or its owner's newest rules, were known.
    verdict = machine.judge(row.tool_name, params).verdict
    problem = inspection.problem or _problem_with(row.tool_name, params, inspection, verdict)
    if problem is not None:
        return Refusal(mask_text(problem), ErrorType.REFUSED if verdict.refused else ErrorType.TOOL_ERROR)
    inspection = _readable(inspection, machine)
    make = partial(
        question_after_inspection,
        row,
        verdict,
        inspection,
        settings,
        workspace=machine.workspace,
        written=await store.executions.last_writes(row.project_id, inspection.bound),
    )
    size = len(row.true_params or "") + sum(len(file.text or "") for file in inspection.files)
    question = await long_work.run(row.user_id, make) if size > LONG_CHARACTERS else make()
    return Inspected(question, verdict, call_digest(row.tool_name, params, row.project_id, inspection.bound))


async def resolve_inspection(
    store: Store, row: ExecutionRow, outcome: Inspected | Refusal, *, client_id: str | None
) -> ExecutionRow:
    """Ask a person about a PENDING call, or apply a standing answer; fail it if nobody can be asked.

    A repeated inspection, or one after the call has moved on or another client was asked to look, changes nothing.
    """

    def work(transaction: Transaction) -> ExecutionRow:
        execution = transitions.load_execution(transaction, row.id)
        if execution is None:
            raise NotFound(f"No execution {row.id!r}.")
        if execution.status is not ExecutionStatus.PENDING or execution.client_id != row.client_id:
            return execution
        with Ledger(transaction, execution.project_id) as ledger:
            if isinstance(outcome, Inspected):
                return _ask_after_inspection(ledger, execution, outcome, client_id, store.waits)
            return _fail(ledger, execution, f"client:{execution.client_id}", outcome)

    size = len(row.true_params or "")
    if isinstance(outcome, Inspected):
        files = outcome.question.inspection.files if outcome.question.inspection else []
        size += len(outcome.question.replaced or "") + sum(len(file.text or "") for file in files)
        size += sum(map(len, outcome.question.unmasked.values()))
    return await store.database.write(work, heavy=size > HEAVY_CHARACTERS)


def _ask_after_inspection(
    ledger: Ledger, execution: ExecutionRow, outcome: Inspected, client_id: str | None, waits: Waits
) -> ExecutionRow:
    question, verdict, digest = outcome.question, outcome.verdict, outcome.digest
    bound = question.inspection.bound if question.inspection else {}
    risk, findings = verdict.level.risk, plain_json(verdict.findings)
    # Whoever looked is not the one that gets the signal, until it does.
    changes = {"risk_level": risk.value, "findings": findings, "network": verdict.network, "client_id": None}
    if question.inspection is not None:
        request = execution.request_digest or execution.digest
        changes |= {"digest": digest, "request_digest": request, "bound": plain_json(bound)}
        actor = f"client:{execution.client_id}"
        ledger.audit("inspected", actor, execution_id=execution.id, digest=digest, bound=bound)
    execution = execution._replace(risk_level=risk, findings=findings, network=verdict.network)
    # A person changed the call to look at what comes of it: no other answer lets it run.
    match standing_answer(ledger, execution, bound) if execution.edit is None else None:
        case Refusal() as refusal:
            return _fail(ledger, execution, "server", refusal)
        case Clearance(by):
            return transitions.approve(
                ledger, execution, approved_by=by, client_id=client_id, waits=waits, changes=changes
            )
        case None:
            changes |= {"requires_approval": True}
            row = transitions.advance(ledger, execution, ExecutionStatus.AWAITING_APPROVAL, changes)
            asked = ask(ledger, row, question)
            hint = Hint(asked.id, asked)  # now with the approval's id
            ledger.transaction.hints.append(hint)
            return asked


def _fail(ledger: Ledger, execution: ExecutionRow, actor: str, refusal: Refusal) -> ExecutionRow:
    return transitions.end(
        ledger,
        execution,
        ExecutionStatus.FAILED,
        actor=actor,
        error=refusal.error,
        error_type=refusal.error_type,
    )


def _readable(inspection: Inspection, machine: Machine) -> Inspection:
    """Drop the text of a replaced file that the rules here deny to every reader.

    The machine leaves out what its owner denies, but does not know the organisation's rules.
    """
    files = [
        file
        if file.role is SeenRole.RUNS
        or file.text is None
        or not machine.judge("read_file", {"path": file.path}).verdict.refused
        else file.model_copy(update={"text": None, "shortened": True, "note": NOT_READ})
        for file in inspection.files
    ]
    return inspection.model_copy(update={"files": files})


def _problem_with(tool_name: str, params: JsonObject, inspection: Inspection, verdict: Verdict) -> str | None:
    """The reason why nobody can be asked about an inspection; None when somebody can."""
    if verdict.refused:
        return verdict.message
    roles = [file.role for file in inspection.files]
    if tool_name == "write_file":
        # Only the machine knows the file: it reported the real path, behind all links.
        if roles != [SeenRole.REPLACES]:
            return "The machine did not say what this would replace."
        there = inspection.files[0].size or 0 if params.get("mode") == "append" else 0
        if there + len(params["content"].encode()) > MAX_FILE_BYTES:
            return f"'{safe_text(inspection.files[0].path)}' would become larger than {MAX_FILE_BYTES} bytes."
        return None
    seen = [file.path for file in inspection.files]
    if sorted(seen) == sorted(verdict.runs) and set(roles) <= {SeenRole.RUNS}:
        return None
    names = ", ".join(f"'{safe_text(path)}'" for path in sorted(verdict.runs)[:3])
    return f"The machine looked at other files than this would run ({names}), so nobody could be asked."


def _suggestions(
    tool_name: str, params: JsonObject, verdict: Verdict, bound: Mapping[str, str], workspace: str | None
) -> tuple[Suggestion, ...]:
    """Rules that an answer could save, except those that spell out a secret: they are stored and shown."""
    found = suggest(tool_name, params, verdict, bound, workspace)
    return tuple(one for one in found if mask_value(words := one.model_dump(mode="json")) == words)


def _shown(file: SeenFile, masked: str | None, written_at: str | None) -> SeenFile:
    """A file as the question shows it. Text that runs is cut only now: half a secret no longer looks like one."""
    note = None if file.note is None else safe_text(mask_text(file.note))[:MAX_NOTE]
    if masked is None or file.role is SeenRole.REPLACES or len(masked) <= MAX_SEEN_TEXT:
        return file.model_copy(update={"text": masked, "note": note, "written_at": written_at})
    shown = {"text": masked[:MAX_SEEN_TEXT], "shortened": True, "note": note, "written_at": written_at}
    return file.model_copy(update=shown)


def _kept_apart(file: SeenFile) -> tuple[str | None, list[SeenFile]]:
    """Split a long text off a file: questions stay small, and the difference is fetched apart."""
    if file.text is None or len(file.text) <= MAX_TOLD_TEXT:
        return None, [file]
    return file.text, [file.model_copy(update={"text": None, "shortened": True})]


def _seconds(level: RiskLevel, settings: ServerSettings) -> int:
    return settings.medium_approval_seconds if level is RiskLevel.MEDIUM else settings.high_approval_seconds
