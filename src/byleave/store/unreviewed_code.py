"""What changed in a workspace without anybody being shown it: code that no class of calls may run.

A grant, a rule and the mode `full` let calls change files that no person sees. They count until a person said yes to a
question that named them (`approvals.unseen`). A workspace is what counts, not a session: other sessions of the project,
and other projects of the same user in the same directory, write the same files. Read inside the transaction that asks
or lets go, so that nothing comes between. What cannot be told counts as everything.
"""

import json
from collections.abc import Sequence

from byleave.gate.commands.breadth import breadth
from byleave.gate.commands.calls import Call, call_of
from byleave.gate.policy.grants import NEVER_CODE, leaves_unseen
from byleave.protocol.states import RiskLevel

from .database import Row, Transaction

ANY_FILE = "**"
MOST_LOOKED_AT = 50
"""Beyond this many changes nothing is named one by one: it runs on the writer, and nobody reads more."""
CHANGING_TOOLS = ("write_file", "execute_command")


def unseen(transaction: Transaction, user_id: str, project_id: str) -> tuple[str, ...]:
    """Paths from the workspace, oldest first; `**` for what cannot be named."""
    places = _places(transaction, user_id, project_id)
    since = max((_last_shown(transaction, place["id"]) for place in places), default="")
    found: list[tuple[str, str]] = []
    for place in places:
        for tool in CHANGING_TOOLS:
            rows = _let_go(transaction, place["id"], tool, since)
            found += [(row["approved_at"], path) for row in rows for path in _left_by(row, place["workspace"])]
            if len(rows) == MOST_LOOKED_AT:
                found.append((rows[-1]["approved_at"], ANY_FILE))
    return tuple(dict.fromkeys(path for _, path in sorted(found)))


def runs_granted_code(transaction: Transaction, user_id: str, project_id: str) -> bool:
    """Whether code that a class covers runs in this workspace now: what changes meanwhile would run along."""
    return any(
        runs_code(_call(row, place["workspace"]))
        for place in _places(transaction, user_id, project_id)
        for row in transaction.all(
            "SELECT x.tool_name, x.tool_params FROM tool_executions AS x JOIN grants AS g "
            "ON g.id = substr(x.approved_by, 7) WHERE x.project_id = :project_id "
            "AND x.status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING') "
            "AND x.status IN ('APPROVED', 'EXECUTING') AND x.tool_name = 'execute_command' "
            "AND x.approved_by LIKE 'grant:%' AND g.rule IS NOT NULL",
            {"project_id": place["id"]},
        )
    )


def changes_code(call: Call) -> bool:
    """Whether a call leaves behind what could run and nobody saw."""
    return bool(_left(call))


def _places(transaction: Transaction, user_id: str, project_id: str) -> Sequence[Row]:
    """The project, and the user's others whose client was last in the same directory."""
    return transaction.all(
        "SELECT id, workspace FROM projects WHERE user_id = :user_id AND (id = :project_id OR workspace = "
        "(SELECT workspace FROM projects WHERE id = :project_id)) ORDER BY id",
        {"user_id": user_id, "project_id": project_id},
    )


def _last_shown(transaction: Transaction, project_id: str) -> str:
    row = transaction.one(
        "SELECT created_at FROM approvals WHERE project_id = :project_id AND unseen IS NOT NULL "
        "AND status = 'approved' AND decided_by LIKE 'person:%' ORDER BY created_at DESC LIMIT 1",
        {"project_id": project_id},
    )
    return row["created_at"] if row else ""


def _let_go(transaction: Transaction, project_id: str, tool: str, since: str) -> Sequence[Row]:
    """Calls that went without a question, newest first. By when they were let go: a call may have waited for long."""
    return transaction.all(
        "SELECT x.tool_name, x.tool_params, x.approved_at, x.risk_level, g.rule FROM tool_executions AS x "
        "LEFT JOIN grants AS g ON g.id = substr(x.approved_by, 7) WHERE x.project_id = :project_id "
        "AND x.tool_name = :tool AND x.risk_level <> 'LOW' AND x.approved_at >= :since "
        "AND x.approved_by NOT LIKE 'person:%' ORDER BY x.approved_at DESC LIMIT :most",
        {"project_id": project_id, "tool": tool, "since": since, "most": MOST_LOOKED_AT},
    )


def _left_by(row: Row, workspace: str | None) -> tuple[str, ...]:
    call = _call(row, workspace)
    if call.tool == "execute_command":
        if row["risk_level"] == RiskLevel.HIGH.value:
            return (ANY_FILE,)
        if row["rule"] is not None and call.argv[0] in breadth().runners:
            return ()  # a class covers only code that a person was shown
    return _left(call)


def _left(call: Call) -> tuple[str, ...]:
    if call.tool != "execute_command" or call.argv[0] in breadth().plain:
        return tuple(path for path in leaves_unseen(call) if not path.lower().endswith(NEVER_CODE))
    return (ANY_FILE,) if runs_code(call) or call.argv[0] not in breadth().runners else ()


def runs_code(call: Call) -> bool:
    """Whether code of the workspace runs, and is not merely looked at."""
    if call.tool != "execute_command" or call.argv[0] not in breadth().runners:
        return False
    opening = breadth().opening(call.argv)
    harmless = opening is not None and not opening.runs and opening.lets(call.argv[len(opening.words) :])
    return not harmless


def _call(row: Row, workspace: str | None) -> Call:
    return call_of(row["tool_name"], json.loads(row["tool_params"]), None, workspace)
