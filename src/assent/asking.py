"""How a question is put: what a person reads, how long there is to answer, and which rules an answer could save.

Everything shown is made from the stored parameters and from what the machine that will act saw of its files; nothing
of it is the agent's own words. This module asks nobody and decides nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from assent.gate import describe, mask_text, mask_value, safe_text
from assent.gate.grants import suggest
from assent.gate.rules import call_of
from assent.protocol.grants import Suggestion
from assent.protocol.inspections import Inspection, SeenFile
from assent.protocol.states import RiskLevel
from assent.protocol.values import JsonObject, moment
from assent.protocol.verdicts import Verdict
from assent.settings import ServerSettings
from assent.store import ExecutionRow
from assent.store.questions import Question
from assent.store.unseen import ANY_FILE, runs_code

SHOWN_DIGITS = 12
MOST_NAMED = 20


def question_for(
    tool_name: str, params: JsonObject, verdict: Verdict, settings: ServerSettings, *, workspace: str | None
) -> Question:
    """The question about a call that runs no file of the workspace."""
    return Question(
        description=describe(tool_name, params, verdict),
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
    """The question about a call that runs files. `written`: when an agent last wrote them."""
    params = json.loads(row.true_params or "{}")
    files = [
        file.model_copy(update={"text": None if file.text is None else mask_text(file.text)})
        for file in inspection.files
    ]
    lines = [describe(row.tool_name, params, verdict)]
    there = [file for file in inspection.files if file.sha256 != "missing"]
    lines += [_seen(file, written.get(file.path), now) for file in there]
    if not there:
        names = ", ".join(f"'{safe_text(file.path)}'" for file in inspection.files)
        lines.append(f"The workspace has no {names}; one that appears before it runs stops it.")
    return Question(
        description="\n".join(lines),
        timeout_seconds=_seconds(verdict.risk_level, settings),
        suggestions=_suggestions(row.tool_name, params, verdict, inspection.bound, workspace),
        inspection=Inspection(files=files),
        along=_along(row.tool_name, params, workspace),
    )


def problem_with_look(inspection: Inspection, verdict: Verdict) -> str | None:
    """Why nobody can be asked about what a machine saw; None when somebody can."""
    if verdict.refused:
        return verdict.message
    seen = [file.path for file in inspection.files]
    if sorted(seen) == sorted(verdict.runs):
        return None
    names = ", ".join(f"'{safe_text(path)}'" for path in sorted(verdict.runs)[:3])
    return f"The machine looked at other files than this would run ({names}), so nobody could be asked."


def _suggestions(
    tool_name: str, params: JsonObject, verdict: Verdict, bound: Mapping[str, str], workspace: str | None
) -> tuple[Suggestion, ...]:
    """Rules an answer could save. One that would spell out a secret is not offered: it is stored and shown."""
    found = suggest(tool_name, params, verdict, bound, workspace)
    return tuple(one for one in found if mask_value(words := one.model_dump(mode="json")) == words)


def _seen(file: SeenFile, written_at: str | None, now: datetime) -> str:
    """One file that would run, in one sentence."""
    if written_at is not None:
        when = f"written by the agent {ago(now, moment(written_at))} ago"
    elif file.modified_at is not None:
        when = f"last changed {ago(now, moment(file.modified_at))} ago"
    else:
        when = "of unknown age"
    name = safe_text(file.path)
    digest = file.sha256[:SHOWN_DIGITS]
    part = " Only its beginning is shown here; open the file to see all of it." if file.shortened else ""
    return f"It runs '{name}' as it is now ({when}, sha256 {digest}…); a change before it runs stops it.{part}"


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
