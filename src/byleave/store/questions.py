"""Questions inside a transaction: asked or joined, closed once, and ended along with what waited for them.

`Approvals` and the executions' own transactions build on these. Nothing here opens a transaction.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from byleave.protocol.approvals import Decision, plain_json
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.events import ApprovalDecided, ApprovalRequested
from byleave.protocol.grants import Suggestion
from byleave.protocol.inspections import Inspection
from byleave.protocol.states import AnsweredFrom, ApprovalScope, ApprovalStatus, ErrorType, ExecutionStatus
from byleave.protocol.wire import JsonObject, new_id

from . import replaced_texts, transitions
from .database import Transaction
from .ledger import Ledger
from .records import ApprovalRow, ExecutionRow, approval_row, as_values, columns, execution_row, placeholders
from .unreviewed_code import unseen

APPROVAL_COLUMNS = columns(ApprovalRow)


def approval_topic(approval_id: str) -> str:
    """Where news of one approval is told."""
    return f"approval:{approval_id}"


@dataclass(frozen=True, slots=True)
class Question:
    """A person must be asked."""

    description: str
    timeout_seconds: int
    suggestions: tuple[Suggestion, ...] = ()
    """Rules that a yes for more than this call could save."""
    inspection: Inspection | None = None
    """Small: the text of a long file that would be replaced is in `replaced`."""
    replaced: str | None = None
    tool_params: JsonObject | None = None
    """As the person sees them: what could act is not masked, and a mask says how much it covers. None: as recorded."""
    along: Callable[[Sequence[str]], str] | None = None
    """Where code of the workspace runs: words about what changed unseen and may run along."""


def ask(transaction: Transaction, ledger: Ledger, execution: ExecutionRow, question: Question) -> ExecutionRow:
    """Put an execution's question to a person, or let it join the identical one that already waits."""
    now = transaction.now
    # Found here and not before, so that what changes between is either named or counts from now on.
    changed = None if question.along is None else unseen(transaction, execution.user_id, execution.project_id)
    row = transaction.one(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE session_id = :session_id AND digest = :digest "  # noqa: S608 - column names are ours
        "AND user_id = :user_id AND status = 'pending' AND deadline > :now AND findings = :findings "
        "AND network = :network AND coalesce(unseen, '-') = :unseen AND coalesce(agent_id, '') = :agent_id",
        {
            "session_id": execution.session_id,
            "digest": execution.digest,
            "user_id": execution.user_id,
            "now": now,
            # What was shown must be the same, too: a machine without a sandbox makes another question of it.
            "findings": execution.findings,
            "network": execution.network,
            "unseen": "-" if changed is None else plain_json(changed),
            # Who asks is part of what was shown.
            "agent_id": execution.agent_id or "",
        },
    )
    if row is not None:
        approval = approval_row(row)
        ledger.audit("joined", "server", execution_id=execution.id, approval_id=approval.id)
    else:
        values = {
            "id": new_id("appr"),
            "user_id": execution.user_id,
            "project_id": execution.project_id,
            "session_id": execution.session_id,
            "agent_id": execution.agent_id,
            "tool_name": execution.tool_name,
            "tool_params": execution.tool_params if question.tool_params is None else plain_json(question.tool_params),
            "digest": execution.digest,
            "risk_level": execution.risk_level.value,
            "findings": execution.findings,
            "network": execution.network,
            "description": _described(question, changed),
            "status": ApprovalStatus.PENDING.value,
            "timeout_seconds": question.timeout_seconds,
            "created_at": now,
            "deadline": transitions.later(now, question.timeout_seconds),
            "decided_at": None,
            "decided_by": None,
            "reason": None,
            "scope": None,
            "inspection": question.inspection.model_dump_json() if question.inspection else None,
            "suggestions": plain_json(question.suggestions),
            "unseen": None if changed is None else plain_json(changed),
            "grant_id": None,
            "decided_from": None,
        }
        approval = approval_row(values)
        if question.replaced is not None:
            replaced_texts.keep(transaction, approval.id, approval.user_id, question.replaced)
        put(transaction, ledger, approval, tool_id=execution.id)
    transaction.hint(transitions.DEADLINES_TOPIC, approval.deadline)
    changes = {"approval_id": approval.id, "deadline": approval.deadline}
    return transitions.set_columns(transaction, ledger, execution, changes)


def _described(question: Question, changed: tuple[str, ...] | None) -> str:
    if question.along is None or not changed:
        return question.description
    return f"{question.description}\n{question.along(changed)}"


def waiting_executions(transaction: Transaction, approval_id: str) -> list[ExecutionRow]:
    rows = transaction.all(
        f"SELECT {transitions.EXECUTION_COLUMNS} FROM tool_executions WHERE approval_id = :approval_id "  # noqa: S608 - column names are ours
        "AND status = 'AWAITING_APPROVAL' ORDER BY created_at, id",
        {"approval_id": approval_id},
    )
    return [execution_row(row) for row in rows]


def mark_timed_out(transaction: Transaction, ledger: Ledger, approval_id: str) -> None:
    """The approval's side of an execution whose question ran out of time; a no-op for the second that joined."""
    _close_pending(transaction, ledger, approval_id, ApprovalStatus.TIMEOUT)


def close_if_unneeded(transaction: Transaction, ledger: Ledger, approval_id: str) -> None:
    """Withdraw a question nobody waits for any more."""
    if not waiting_executions(transaction, approval_id):
        _close_pending(transaction, ledger, approval_id, ApprovalStatus.CANCELLED)


def _close_pending(transaction: Transaction, ledger: Ledger, approval_id: str, after: ApprovalStatus) -> None:
    row = transaction.one(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = :id AND status = 'pending'",  # noqa: S608 - column names are ours
        {"id": approval_id},
    )
    if row is not None:
        close(
            transaction,
            ledger,
            approval_row(row),
            after,
            decided_by=None,
            reason=None,
            waiting=waiting_executions(transaction, approval_id),
        )


def time_out(transaction: Transaction, ledger: Ledger, approval: ApprovalRow) -> None:
    waiting = waiting_executions(transaction, approval.id)
    close(transaction, ledger, approval, ApprovalStatus.TIMEOUT, decided_by=None, reason=None, waiting=waiting)
    for execution in waiting:
        transitions.end(
            transaction,
            ledger,
            execution,
            ExecutionStatus.TIMEOUT,
            actor="server:deadline",
            error="Approval timeout",
            error_type=ErrorType.APPROVAL_TIMEOUT,
        )


def put(transaction: Transaction, ledger: Ledger, approval: ApprovalRow, *, tool_id: str) -> None:
    values = as_values(approval) | {
        "tool_params": json.dumps(approval.tool_params),
        "findings": plain_json(approval.findings),
        "inspection": approval.inspection.model_dump_json() if approval.inspection else None,
        "suggestions": plain_json(approval.suggestions),
    }
    del values["tool_ids"]
    transaction.change(f"INSERT INTO approvals {placeholders(values)}", values)
    ledger.kept("approvals", values)
    ledger.event(
        ApprovalRequested(
            timestamp=approval.created_at,
            approval_id=approval.id,
            tool_id=tool_id,
            tool_name=approval.tool_name,
            risk_level=approval.risk_level,
            timeout_seconds=approval.timeout_seconds,
            description=approval.description,
            tool_params=approval.tool_params,
            findings=list(approval.findings),
            network=approval.network,
            digest=approval.digest,
            deadline=approval.deadline,
            session_id=approval.session_id,
            agent_id=approval.agent_id,
            inspection=approval.inspection,
            suggestions=list(approval.suggestions),
        )
    )
    ledger.audit(
        "asked",
        "server",
        execution_id=tool_id or None,
        approval_id=approval.id,
        digest=approval.digest,
        risk=approval.risk_level.value,
        deadline=approval.deadline,
    )
    transaction.hint(transitions.DEADLINES_TOPIC, approval.deadline)


def close(
    transaction: Transaction,
    ledger: Ledger,
    approval: ApprovalRow,
    after: ApprovalStatus,
    *,
    decided_by: str | None,
    reason: str | None,
    waiting: list[ExecutionRow],
    scope: ApprovalScope = ApprovalScope.ONCE,
    grant_id: str | None = None,
    decided_from: AnsweredFrom | None = None,
) -> ApprovalRow:
    now = transaction.now
    reach = scope if after is ApprovalStatus.APPROVED else None
    ledger.changing("approvals", approval.id)
    row = transaction.one(
        "UPDATE approvals SET status = :after, decided_at = :now, decided_by = :decided_by, reason = :reason, "
        "scope = :scope, grant_id = :grant_id, decided_from = :decided_from WHERE id = :id AND status = 'pending' "
        "RETURNING *",
        {
            "after": after.value,
            "now": now,
            "decided_by": decided_by,
            "reason": reason,
            "scope": reach.value if reach else None,
            "grant_id": grant_id,
            "decided_from": decided_from,
            "id": approval.id,
        },
    )
    if row is None:
        raise ConflictError("Somebody decided this approval first.", state="unknown")
    ledger.kept("approvals", row)
    decided = approval._replace(
        status=after,
        decided_at=now,
        decided_by=decided_by,
        reason=reason,
        scope=reach,
        grant_id=grant_id,
        decided_from=decided_from,
        tool_ids=tuple(execution.id for execution in waiting),
    )
    ledger.event(
        ApprovalDecided(
            timestamp=now,
            approval_id=approval.id,
            tool_ids=list(decided.tool_ids),
            status=after,
            decided_by=decided_by,
            reason=reason,
            session_id=approval.session_id,
            scope=reach,
            grant_id=grant_id,
            decided_from=decided_from,
        )
    )
    ledger.audit(
        after.value,
        decided_by or "server:deadline",
        approval_id=approval.id,
        digest=approval.digest,
        reason=reason,
        executions=list(decided.tool_ids),
        scope=reach.value if reach else None,
        grant=grant_id,
        **({} if decided_from is None else {"where": decided_from.value}),
    )
    transaction.hint(approval_topic(approval.id), decided)
    return decided


def decisions(transaction: Transaction, approval_ids: Iterable[str | None]) -> dict[str, Decision]:
    """How these questions ended, for those that did."""
    found: dict[str, Decision] = {}
    for approval_id in {each for each in approval_ids if each is not None}:
        row = transaction.one(
            "SELECT status, decided_by, decided_from, decided_at, reason, scope, grant_id FROM approvals "
            "WHERE id = :id AND status <> 'pending'",
            {"id": approval_id},
        )
        if row is not None:
            found[approval_id] = Decision(approval_id=approval_id, **row)
    return found


def decided_already(approval: ApprovalRow) -> ConflictError:
    if approval.status is ApprovalStatus.TIMEOUT:
        message = "This approval ran out of time; nothing was run."
    elif approval.status is ApprovalStatus.CANCELLED:
        message = "This approval was withdrawn: nothing waits for it any more."
    else:
        who = (approval.decided_by or "").removeprefix("person:")
        message = f"This approval was {approval.status} already, by {who}."
    return ConflictError(message, state=approval.status.value)


def own(transaction: Transaction, approval_id: str, user_id: str, project_id: str | None) -> ApprovalRow:
    row = transaction.one(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = :id",  # noqa: S608 - column names are ours
        {"id": approval_id},
    )
    if row is None or row["user_id"] != user_id or project_id not in (None, row["project_id"]):
        raise NotFound(f"No approval {approval_id!r}.", hint="See `GET /my/approvals` for what waits.")
    return approval_row(row)


def with_tools(transaction: Transaction, approval: ApprovalRow) -> ApprovalRow:
    rows = transaction.all(
        "SELECT id FROM tool_executions WHERE approval_id = :id ORDER BY created_at, id", {"id": approval.id}
    )
    return approval._replace(tool_ids=tuple(row["id"] for row in rows))
