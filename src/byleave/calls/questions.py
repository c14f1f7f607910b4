"""How a question is put: what a person reads, how long there is to answer, and which rules an answer could save.

Everything shown is made from the stored parameters and from what the machine that will act saw of its files; nothing
of it is the agent's own words. This module asks nobody and decides nothing.
"""

import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from byleave.gate import Judgement, check_path, cover_inert, describe, mask_text, mask_value, safe_text, shown_params
from byleave.gate.commands.calls import call_of
from byleave.gate.commands.scripts import UNKNOWN
from byleave.gate.policy.grants import suggest
from byleave.gate.text.changes import MISSING, NOT_LOOKED
from byleave.protocol.grants import Suggestion
from byleave.protocol.inspections import Inspection, SeenFile, SeenRole
from byleave.protocol.states import RiskLevel
from byleave.protocol.verdicts import Finding, Verdict, VerdictLevel, verdict_of
from byleave.protocol.wire import JsonObject, moment
from byleave.settings import ServerSettings
from byleave.store import ExecutionRow
from byleave.store.questions import Question
from byleave.store.unreviewed_code import ANY_FILE, runs_code

SHOWN_DIGITS = 12
MOST_NAMED = 20
MAX_NOTE = 400
NOT_READ = "A rule denies reading it."
MAX_TOLD_TEXT = 4096
"""The text of a file that would be replaced is told with the question up to this; else it is kept beside it."""


def unlooked(judgement: Judgement) -> Judgement:
    """The judgement of a call on a machine whose client does not look: what it would run nobody has seen, so a person
    is asked each time and told so. Where not even the files can be told, it is refused."""
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
    """The question about a call that runs no file of the workspace, or where no machine can look."""
    lines = [describe(tool_name, params, verdict), *([NOT_LOOKED] if tool_name == "write_file" else [])]
    return Question(
        description="\n".join(lines),
        tool_params=shown_params(tool_name, params, cover_inert),
        timeout_seconds=_seconds(verdict.risk_level, settings),
        suggestions=_suggestions(tool_name, params, verdict, {}, workspace),
        along=_along(tool_name, params, workspace),
    )


def question_after_inspection(
    row: ExecutionRow,
    verdict: Verdict,
    inspection: Inspection,
    settings: ServerSettings,
    *,
    workspace: str | None,
    written: Mapping[str, str],
    now: datetime,
) -> Question:
    """The question about a call that runs files, or replaces one. `written`: when an agent last wrote them."""
    params = json.loads(row.true_params or "{}")
    files = [
        file.model_copy(
            update={
                "text": None if file.text is None else mask_text(file.text, cover_inert),
                "note": None if file.note is None else safe_text(mask_text(file.note))[:MAX_NOTE],
            }
        )
        for file in inspection.files
    ]
    lines = [describe(row.tool_name, params, verdict)]
    replaced = None
    if row.tool_name == "write_file":
        lines += _replaced(files[0], params, written.get(files[0].path), workspace, now)
        replaced, files = _kept_apart(files[0])
    else:
        lines += _running(files, written, now)
    return Question(
        description="\n".join(lines),
        tool_params=shown_params(row.tool_name, params, cover_inert),
        timeout_seconds=_seconds(verdict.risk_level, settings),
        suggestions=_suggestions(row.tool_name, params, verdict, inspection.bound, workspace),
        inspection=Inspection(files=files),
        replaced=replaced,
        along=_along(row.tool_name, params, workspace),
    )


def readable(inspection: Inspection, may_read: Callable[[str], bool]) -> Inspection:
    """What a machine saw, without the text of a file that would be replaced and that rules here deny every reader.

    The machine leaves out what its owner denies; the organisation's rules it does not know.
    """
    files = [
        file
        if file.role is SeenRole.RUNS or file.text is None or may_read(file.path)
        else file.model_copy(update={"text": None, "shortened": True, "note": NOT_READ})
        for file in inspection.files
    ]
    return inspection.model_copy(update={"files": files})


def problem_with_look(tool_name: str, inspection: Inspection, verdict: Verdict) -> str | None:
    """Why nobody can be asked about what a machine saw; None when somebody can."""
    if verdict.refused:
        return verdict.message
    roles = [file.role for file in inspection.files]
    if tool_name == "write_file":
        # Which file it is only the machine knows: it told the real path, behind all links.
        return None if roles == [SeenRole.REPLACES] else "The machine did not say what this would replace."
    seen = [file.path for file in inspection.files]
    if sorted(seen) == sorted(verdict.runs) and set(roles) <= {SeenRole.RUNS}:
        return None
    names = ", ".join(f"'{safe_text(path)}'" for path in sorted(verdict.runs)[:3])
    return f"The machine looked at other files than this would run ({names}), so nobody could be asked."


def _suggestions(
    tool_name: str, params: JsonObject, verdict: Verdict, bound: Mapping[str, str], workspace: str | None
) -> tuple[Suggestion, ...]:
    """Rules an answer could save. One that would spell out a secret is not offered: it is stored and shown."""
    found = suggest(tool_name, params, verdict, bound, workspace)
    return tuple(one for one in found if mask_value(words := one.model_dump(mode="json")) == words)


def _running(files: Sequence[SeenFile], written: Mapping[str, str], now: datetime) -> list[str]:
    there = [file for file in files if file.sha256 != MISSING]
    if there:
        return [_seen(file, written.get(file.path), now) for file in there]
    names = ", ".join(f"'{safe_text(file.path)}'" for file in files)
    return [f"The workspace has no {names}; one that appears before it runs stops it."]


def _replaced(
    file: SeenFile, params: JsonObject, written_at: str | None, workspace: str | None, now: datetime
) -> list[str]:
    """The file that would be replaced, in one or two sentences."""
    name, lines = safe_text(mask_text(file.path)), list[str]()
    if posixpath.normpath(check_path(params["path"], workspace=workspace).relative) != file.path:
        lines.append(f"Behind a link: what is written is '{name}'.")
    if file.sha256 == MISSING:
        return [*lines, f"There is no '{name}' now; one that appears before it is written stops it."]
    does = "adds to" if params.get("mode") == "append" else "replaces"
    size = "" if file.size is None else f"{file.size} bytes, "
    lines.append(
        f"It {does} '{name}' as it is now ({size}{_age(file, written_at, now)}, sha256 "
        f"{file.sha256[:SHOWN_DIGITS]}…); a change before it is written stops it."
    )
    return lines


def _kept_apart(file: SeenFile) -> tuple[str | None, list[SeenFile]]:
    """A long text, and the file without it: questions stay small, and the difference is asked for."""
    if file.text is None or len(file.text) <= MAX_TOLD_TEXT:
        return None, [file]
    return file.text, [file.model_copy(update={"text": None, "shortened": True})]


def _seen(file: SeenFile, written_at: str | None, now: datetime) -> str:
    """One file that would run, in one sentence."""
    when, name = _age(file, written_at, now), safe_text(file.path)
    digest = file.sha256[:SHOWN_DIGITS]
    part = " Only its beginning is shown here; open the file to see all of it." if file.shortened else ""
    return f"It runs '{name}' as it is now ({when}, sha256 {digest}…); a change before it runs stops it.{part}"


def _age(file: SeenFile, written_at: str | None, now: datetime) -> str:
    if written_at is not None:
        return f"written by the agent {ago(now, moment(written_at))} ago"
    if file.modified_at is not None:
        return f"last changed {ago(now, moment(file.modified_at))} ago"
    return "of unknown age"


def _along(tool_name: str, params: JsonObject, workspace: str | None) -> Callable[[Sequence[str]], str] | None:
    """How to name what may run along, where code of the workspace would run."""
    return _unseen if runs_code(call_of(tool_name, params, None, workspace)) else None


def _unseen(paths: Sequence[str]) -> str:
    """What could run along and was not shown to anybody."""
    named = [f"'{safe_text(path)}'" for path in paths if path != ANY_FILE]
    if len(named) < len(paths):
        named.append("files a command brought in")
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return (
        f"Changed without asking you since you last looked, and may run along: {', '.join(named[:MOST_NAMED])}{more}."
    )


def ago(now: datetime, then: datetime) -> str:
    """A span in the largest unit that says it: `20 s`, `3 min`, `5 h`, `12 days`."""
    seconds = max(0, round((now - then).total_seconds()))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit} {name}"
    return f"{seconds // 86_400} days"


def _seconds(level: RiskLevel, settings: ServerSettings) -> int:
    return settings.medium_approval_seconds if level is RiskLevel.MEDIUM else settings.high_approval_seconds
