"""Grants: find the one that covers a call, check a new one, and track code changed unseen, which none may run.

The gate decides if a rule covers a call. `use_grant` runs inside the transaction that lets the call run, so a grant for
three uses lets three of twenty parallel calls run. A grant holds for the agent it was given to: in one session, for at
most 24 hours, or in all sessions of a project, for at most 30 days.

No class of calls may run code that changed without anybody being shown it. A grant, a rule and the mode `full` let
calls change files that no person sees; they count until a person approves a question that names them. They count for
the workspace, not for a session: other sessions of the project, and other projects of the same user in the same
directory, write the same files. A change of unknown files counts as a change of all.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from byleave.gate import call_lines, safe_text
from byleave.gate.commands.calls import Call, call_of
from byleave.gate.policy.grants import (
    breadth,
    could_run,
    covers,
    covers_everything,
    leaves_unseen,
    may_be_granted,
    problem_with,
    text_of,
    widest_of,
)
from byleave.protocol.errors import CallerError, ConflictError
from byleave.protocol.grants import (
    DEFAULT_EVERYTHING_SECONDS,
    DEFAULT_GRANT_SECONDS,
    DEFAULT_PROJECT_SECONDS,
    EVERYTHING_WARNING,
    LONGEST_GRANT_SECONDS,
    LONGEST_PROJECT_SECONDS,
    GrantPreview,
    GrantRule,
    GrantTerms,
    PastCall,
)
from byleave.protocol.states import ApprovalScope, ErrorType, RiskLevel
from byleave.protocol.verdicts import VerdictLevel
from byleave.store import ApprovalRow, ExecutionRow, SessionRow, Store
from byleave.store.approvals import last_code_review
from byleave.store.chat import projects_in_same_workspace, workspace_of
from byleave.store.database import Row, Transaction
from byleave.store.executions import HistoryFilter
from byleave.store.grants import (
    GrantRow,
    NewGrant,
    active_grants,
    agent_at_work,
    calls_without_question,
    commands_under_class_grants,
    count_active,
    count_use,
    save_grant,
)
from byleave.store.ledger import Ledger
from byleave.store.transitions import NewExecution

ANY_FILE = "**"
MOST_LOOKED_AT = 50
"""Most changes named one by one: the query runs on the writer, and nobody reads more."""
MOST_NAMED = 20
CHANGING_TOOLS = ("write_file", "execute_command")


def unreviewed_changes(transaction: Transaction, user_id: str, project_id: str) -> tuple[str, ...]:
    """Workspace-relative paths that changed unseen, oldest change first; `**` for unknown files."""
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
    """A sentence that names the unseen changes."""
    names = [f"'{safe_text(path)}'" for path in paths if path != ANY_FILE]
    if len(names) < len(paths):
        names.append("files a command brought in")
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"Changed without asking you since you last looked, and may run along: {', '.join(names[:MOST_NAMED])}{more}."
    )


def is_running_granted_code(transaction: Transaction, user_id: str, project_id: str, changed: Sequence[str]) -> bool:
    """True if code that a class covers runs in this workspace now and could run one of these files."""
    return any(
        runs_code(call := _call(row, workspace)) and could_run(call, changed)
        for place, workspace in projects_in_same_workspace(transaction, user_id, project_id)
        for row in commands_under_class_grants(transaction, place)
    )


def runs_code(call: Call) -> bool:
    """True if a call runs code of the workspace and does not merely inspect it."""
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
        return leaves_unseen(call)
    return (ANY_FILE,) if runs_code(call) or not breadth().is_runner(call.argv) else ()


def _call(row: Row, workspace: str | None) -> Call:
    return call_of(row["tool_name"], json.loads(row["tool_params"]), None, workspace)


MAX_ACTIVE = 200
"""Most grants of a session, and of a project's that hold in all sessions: each call that would ask is compared with all
of them."""
SPANS = {
    ApprovalScope.SESSION: (DEFAULT_EVERYTHING_SECONDS, LONGEST_GRANT_SECONDS),
    ApprovalScope.CLASS: (DEFAULT_GRANT_SECONDS, LONGEST_GRANT_SECONDS),
    ApprovalScope.PROJECT: (DEFAULT_PROJECT_SECONDS, LONGEST_PROJECT_SECONDS),
}
"""Usual and longest time of grants, in seconds."""
PREVIEWED_CALLS = 200
PREVIEW_EXAMPLES = 5
EVERYTHING = "Everything in this session, except what always asks."


class GrantProblem(CallerError):
    """A grant that may not be saved, with the reason."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as grants see it, parsed once for all of them."""

    call: Call
    user_id: str
    project_id: str
    level: VerdictLevel
    always_asks: bool
    network: bool
    bound: Mapping[str, str]


def asked_of(
    call: NewExecution | ExecutionRow, bound: Mapping[str, str], workspace: str | None, *, recorded: bool = False
) -> Asked | None:
    """Parse a call for grants; None if no grant can cover it. `recorded`: use the record's masked parameters."""
    params = call.tool_params if recorded else call.true_params
    if params is None or call.risk_level is RiskLevel.LOW:
        return None
    return Asked(
        call=call_of(call.tool_name, json.loads(params), None, workspace),
        user_id=call.user_id,
        project_id=call.project_id,
        level=VerdictLevel(call.risk_level.value),
        always_asks=any(finding["always_asks"] for finding in json.loads(call.findings)),
        network=call.network,
        bound=bound,
    )


# Using a grant


def use_grant(
    ledger: Ledger, call: NewExecution | ExecutionRow, bound: Mapping[str, str] | None = None
) -> GrantRow | None:
    """Find a grant to this agent that covers this call and count the use; None if a person must be asked."""
    transaction, in_chat, agent_id = ledger.transaction, call.run_id is not None, call.agent_id or ""
    place = call.session_id, call.project_id, call.user_id
    grants = active_grants(transaction, *place, in_chat=in_chat, agent_id=agent_id)
    if not grants:
        return None
    bound = _bound_of(call) if bound is None else bound
    asked = asked_of(call, bound, workspace_of(transaction, call.project_id))
    grant = None if asked is None else _covering(transaction, grants, asked)
    return None if grant is None else count_use(ledger, grant, call.id)


def would_use(transaction: Transaction, session: SessionRow, asked: Asked) -> GrantRow | None:
    """Find the grant that would cover a call of this session's agent now. Nothing is counted."""
    agent_id = agent_at_work(transaction, session.id)
    in_chat = agent_id is not None
    place = session.id, session.project_id, session.user_id
    grants = active_grants(transaction, *place, in_chat=in_chat, agent_id=agent_id)
    return _covering(transaction, grants, asked)


def _covering(transaction: Transaction, grants: list[GrantRow], asked: Asked) -> GrantRow | None:
    for grant in grants:
        if _rule_covers(grant.rule, asked) and (grant.rule is None or _all_is_seen(transaction, grant.rule, asked)):
            return grant
    return None


def _all_is_seen(transaction: Transaction, rule: GrantRule, asked: Asked) -> bool:
    """True if no unseen code would run, neither by this call nor by one that runs beside it.

    A class never runs unseen code: the next call that runs code of the workspace asks and names the changes, and an
    approval of it counts as having seen them.
    """
    if is_running_granted_code(transaction, asked.user_id, asked.project_id, _changes(asked.call)):
        return False
    if not runs_code(asked.call):
        return True
    changed = unreviewed_changes(transaction, asked.user_id, asked.project_id)
    return not changed or _rule_covers(rule, asked, unseen=changed)


def _rule_covers(rule: GrantRule | None, asked: Asked, *, unseen: Collection[str] = ()) -> bool:
    """True if a rule (None for everything) covers a call."""
    if rule is None:
        return covers_everything(level=asked.level, always_asks=asked.always_asks)
    return rule.tool == asked.call.tool and covers(
        rule,
        asked.call,
        level=asked.level,
        always_asks=asked.always_asks,
        network=asked.network,
        bound=asked.bound,
        unseen=unseen,
    )


def _bound_of(call: NewExecution | ExecutionRow) -> dict[str, str]:
    """The files a call's approval is bound to."""
    text = call.bound if isinstance(call, ExecutionRow) else None
    return json.loads(text) if text else {}


# Giving a grant


async def checked_grant(store: Store, pending: ApprovalRow, scope: ApprovalScope, terms: GrantTerms) -> NewGrant | None:
    """Return the grant an answer asks for, or raise GrantProblem; None for an answer to this call alone."""
    match scope:
        case ApprovalScope.ONCE:
            if terms != GrantTerms():
                raise GrantProblem("An answer to this call alone takes no terms.", hint="Leave `terms` out.")
            return None
        case ApprovalScope.SESSION:
            if not terms.warned:
                raise GrantProblem(EVERYTHING_WARNING, hint="Show this warning, then send `warned: true`.")
            if terms.rule is not None:
                raise GrantProblem("Everything in the session has no rule.", hint="Use the scope `class`.")
            return NewGrant(scope, None, EVERYTHING, _seconds(scope, terms), terms.max_uses)
        case ApprovalScope.CLASS | ApprovalScope.PROJECT:
            project = await store.chat.project(pending.project_id)
            rule = _checked_rule(pending, terms.rule, project.workspace if project else None)
            return NewGrant(scope, rule, text_of(rule), _seconds(scope, terms), terms.max_uses)


def _seconds(scope: ApprovalScope, terms: GrantTerms) -> int:
    """Time that a grant lasts, or GrantProblem if it is too long."""
    usual, longest = SPANS[scope]
    seconds = terms.expires_in_seconds or usual
    if seconds > longest:
        most = "30 days" if scope is ApprovalScope.PROJECT else "24 hours"
        raise GrantProblem(f"Such a grant lasts {most} at most.", hint="Choose a shorter time.")
    return seconds


def _checked_rule(pending: ApprovalRow, rule: GrantRule | None, workspace: str | None) -> GrantRule:
    try:
        call = call_of(pending.tool_name, pending.tool_params, None, workspace)
    except (KeyError, TypeError):  # a question without an execution may be about anything
        call = None
    level, always_asks = VerdictLevel(pending.risk_level.value), any(found.always_asks for found in pending.findings)
    medium = level is VerdictLevel.MEDIUM
    if not (medium if call is None else may_be_granted(call, level=level, always_asks=always_asks)):
        raise GrantProblem("This call asks every time: no class of calls like it can be allowed.")
    if rule is None:
        raise GrantProblem("Allowing a class of calls needs its rule.", hint="Send one of `suggestions`.")
    problem = problem_with(rule)
    if problem is not None:
        raise GrantProblem(problem, hint="Narrow it, or take one of `suggestions`.")
    bound = pending.inspection.bound if pending.inspection else {}
    # By the parameters as shown: a person could not have read a rule that fits only masked text.
    if (
        call is None
        or rule.tool != pending.tool_name
        or not covers(rule, call, level=level, always_asks=False, network=pending.network, bound=bound)
    ):
        raise GrantProblem("This rule does not cover the call you are answering.")
    return rule


def save_with_answer(
    ledger: Ledger, approval: ApprovalRow, waiting: list[ExecutionRow], grant: NewGrant, created_by: str
) -> GrantRow:
    """Save a grant in the transaction of its answer, or raise ConflictError."""
    if approval.session_id is None:
        raise ConflictError("This question belongs to no session, so its answer cannot cover one.", state="pending")
    for_project = grant.scope is ApprovalScope.PROJECT
    place = approval.project_id if for_project else approval.session_id
    if count_active(ledger.transaction, place, for_project=for_project) >= MAX_ACTIVE:
        where = "project" if for_project else "session"
        raise ConflictError(
            f"This {where} has {MAX_ACTIVE} grants already.", state="full", hint="Revoke some with `byleave grants`."
        )
    in_chat = any(execution.run_id is not None for execution in waiting)
    return save_grant(ledger, grant, approval, approval.session_id, created_by=created_by, in_chat=in_chat)


async def preview_grant(store: Store, user_id: str, project_id: str, rule: GrantRule) -> GrantPreview:
    """The user's last calls in a project that a rule would have covered, including refused ones."""
    page = await store.executions.page(
        HistoryFilter(user_id=user_id, project_id=project_id, limit=PREVIEWED_CALLS, counted=False)
    )
    rows = page.rows
    project = await store.chat.project(project_id)
    workspace = project.workspace if project else None
    # A malformed call does not have its tool's parameters.
    formed = (row for row in rows if row.error_type is not ErrorType.INVALID)
    asked = ((row, asked_of(row, _bound_of(row), workspace, recorded=True)) for row in formed)
    hits = [row for row, one in asked if one is not None and _rule_covers(rule, one)]
    refused = [row for row in hits if row.error_type is ErrorType.REJECTED]
    calls = "1 call" if len(rows) == 1 else f"{len(rows)} calls"
    among = f", among them {len(refused)} you refused" if refused else ""
    return GrantPreview(
        rule=rule,
        text=text_of(rule),
        widest=widest_of(rule),
        problem=problem_with(rule),
        looked_at=len(rows),
        covered=len(hits),
        refused=[_past(row) for row in refused[:PREVIEW_EXAMPLES]],
        examples=[_past(row) for row in hits[:PREVIEW_EXAMPLES]],
        sentence=f"It would have covered {len(hits)} of your last {calls}{among}.",
    )


def _past(row: ExecutionRow) -> PastCall:
    params = json.loads(row.tool_params)
    return PastCall(
        tool_id=row.id,
        description=call_lines(row.tool_name, params)[0],
        risk_level=row.risk_level,
        status=row.status,
        created_at=row.created_at,
    )
