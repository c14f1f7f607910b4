"""Code in a workspace that changed without anybody being shown it: no class of calls may run it.

A grant, a rule and the mode `full` let calls change files that no person sees. They count until a person said yes to a
question that named them (`approvals.unseen`). A workspace is what counts, not a session: other sessions of the project,
and other projects of the same user in the same directory, write the same files. Read inside the transaction that asks
or approves, so that nothing comes between. What cannot be told counts as everything.
"""

import json
from collections.abc import Sequence

from byleave.gate import safe_text
from byleave.gate.commands.calls import Call, call_of
from byleave.gate.policy.grants import NEVER_CODE, breadth, leaves_unseen
from byleave.protocol.states import RiskLevel
from byleave.store.approvals import last_code_review
from byleave.store.chat import projects_in_same_workspace
from byleave.store.database import Row, Transaction
from byleave.store.grants import calls_without_question, commands_under_class_grants

ANY_FILE = "**"
MOST_LOOKED_AT = 50
"""Beyond this many changes nothing is named one by one: it runs on the writer, and nobody reads more."""
MOST_NAMED = 20
CHANGING_TOOLS = ("write_file", "execute_command")


def unreviewed_changes(transaction: Transaction, user_id: str, project_id: str) -> tuple[str, ...]:
    """Workspace-relative paths, oldest change first; `**` for what cannot be named."""
    places = projects_in_same_workspace(transaction, user_id, project_id)
    since = max((last_code_review(transaction, place) for place, _ in places), default="")
    found: list[tuple[str, str]] = []
    for place, workspace in places:
        for tool in CHANGING_TOOLS:
            rows = calls_without_question(transaction, place, tool, since, MOST_LOOKED_AT)
            found += [(row["approved_at"], path) for row in rows for path in _changed_by(row, workspace)]
            if len(rows) == MOST_LOOKED_AT:
                found.append((rows[-1]["approved_at"], ANY_FILE))
    return tuple(dict.fromkeys(path for _, path in sorted(found)))


def named(paths: Sequence[str]) -> str:
    """A sentence that names changes nobody was shown."""
    names = [f"'{safe_text(path)}'" for path in paths if path != ANY_FILE]
    if len(names) < len(paths):
        names.append("files a command brought in")
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"Changed without asking you since you last looked, and may run along: {', '.join(names[:MOST_NAMED])}{more}."
    )


def is_running_granted_code(transaction: Transaction, user_id: str, project_id: str) -> bool:
    """True if code that a class covers runs in this workspace now: what changes meanwhile would run along."""
    return any(
        runs_code(_call(row, workspace))
        for place, workspace in projects_in_same_workspace(transaction, user_id, project_id)
        for row in commands_under_class_grants(transaction, place)
    )


def changes_code(call: Call) -> bool:
    """True if a call leaves behind what could run and nobody saw."""
    return bool(_changes(call))


def runs_code(call: Call) -> bool:
    """True if code of the workspace runs, and is not merely looked at."""
    return call.tool == "execute_command" and breadth().runs_code(call.argv)


def _changed_by(row: Row, workspace: str | None) -> tuple[str, ...]:
    call = _call(row, workspace)
    if call.tool == "execute_command":
        if row["risk_level"] == RiskLevel.HIGH.value:
            return (ANY_FILE,)
        if row["rule"] is not None and breadth().is_runner(call.argv):
            return ()  # a class covers only code that a person was shown
    return _changes(call)


def _changes(call: Call) -> tuple[str, ...]:
    if call.tool != "execute_command" or breadth().is_plain(call.argv):
        return tuple(path for path in leaves_unseen(call) if not path.lower().endswith(NEVER_CODE))
    return (ANY_FILE,) if runs_code(call) or not breadth().is_runner(call.argv) else ()


def _call(row: Row, workspace: str | None) -> Call:
    return call_of(row["tool_name"], json.loads(row["tool_params"]), None, workspace)
