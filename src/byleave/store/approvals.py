"""Approvals: questions put to people, closed once, and the texts kept beside them.

Closing is one conditional update. Several executions may wait for one approval (identical calls join it). Functions
that take a transaction or a ledger run inside the caller's; `byleave.calls` decides who is asked and what an answer
means.

A text too long for its question is stored beside it for a day, in `replaced_texts`. It is never a reason to lose a
question: if a user has too much of it, texts of decided questions are deleted first, and then a new text is not stored.
Files that run, where their question masks something, are stored there unmasked and deleted when the question closes.
An approval is bound by the digest, not by the text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from byleave.protocol.approvals import Decision, Edit, Inspection
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.events import ApprovalDecided, ApprovalRequested
from byleave.protocol.grants import Suggestion
from byleave.protocol.states import AnsweredFrom, ApprovalScope, ApprovalStatus, ErrorType, ExecutionStatus, RiskLevel
from byleave.protocol.wire import JsonObject, later, new_id, plain_json

from . import transitions
from .database import Database, Hint, Transaction
from .ledger import Ledger
from .records import ApprovalRow, approval_row, columns
from .transitions import ExecutionRow, execution_row

DEADLINE = "server:deadline"
"""Actor in the audit chain of what ended because its time was up."""
APPROVAL_COLUMNS = columns(ApprovalRow)
MOST_REFUSALS = 100
TEXT_SECONDS = 24 * 3600
"""Time that such a text is kept."""
MAX_TEXT_CHARACTERS = 32 * 1024 * 1024
"""Most characters kept for one user."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question for a person."""

    description: str
    timeout_seconds: int
    suggestions: tuple[Suggestion, ...] = ()
    """Rules that an answer for more than this call could save."""
    inspection: Inspection | None = None
    """Without the text of a long file that would be replaced: that is in `replaced`."""
    replaced: str | None = None
    unmasked: Mapping[str, str] = field(default_factory=dict[str, str])
    """Text of files that run, by path, where the inspection masks something. A write has none."""
    tool_params: JsonObject | None = None
    """As the person sees them: text that could act is not masked, and a mask gives its length. None: as recorded."""
    runs_code: bool = False
    """True if code of the workspace runs: unseen changes there may run too, and are named."""
    edit: Edit | None = None
    """Set if a person changed the call."""


@dataclass(frozen=True, slots=True)
class NewApproval:
    """A question that stands alone, without an execution (A: `request_tool_approval`)."""

    user_id: str
    project_id: str
    session_id: str | None
    agent_id: str | None
    tool_name: str
    tool_params: JsonObject
    digest: str
    risk_level: RiskLevel
    description: str
    timeout_seconds: int


class Approvals:
    """The approvals' reads, and questions without an execution."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, new: NewApproval) -> ApprovalRow:
        """Ask a question without an execution."""

        def work(transaction: Transaction) -> ApprovalRow:
            now = transaction.now
            approval = ApprovalRow(
                id=new_id("appr"),
                user_id=new.user_id,
                project_id=new.project_id,
                session_id=new.session_id,
                agent_id=new.agent_id,
                tool_name=new.tool_name,
                tool_params=new.tool_params,
                digest=new.digest,
                risk_level=new.risk_level,
                description=new.description,
                timeout_seconds=new.timeout_seconds,
                findings=(),
                network=False,
                status=ApprovalStatus.PENDING,
                created_at=now,
                deadline=later(now, new.timeout_seconds),
                decided_at=None,
                decided_by=None,
                reason=None,
                scope=None,
            )
            with Ledger(transaction, new.project_id) as ledger:
                _insert(ledger, approval, tool_id="")
            return approval

        return await self._database.write(work)

    async def pending(self, user_id: str, project_id: str | None = None) -> list[ApprovalRow]:
        """A user's open questions, oldest first."""

        def work(transaction: Transaction) -> list[ApprovalRow]:
            rows = transaction.execute(
                f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE user_id = :user_id AND status = 'pending' "  # noqa: S608 - column names are ours
                "AND deadline > :now AND (:project_id IS NULL OR project_id = :project_id) ORDER BY created_at, id",
                {"user_id": user_id, "now": transaction.now, "project_id": project_id},
            ).fetchall()
            return [_with_tools(transaction, approval_row(row)) for row in rows]

        return await self._database.read(work)

    async def get(self, approval_id: str, *, user_id: str) -> ApprovalRow:
        return await self._database.read(
            lambda transaction: _with_tools(transaction, own_approval(transaction, approval_id, user_id))
        )

    async def load(self, approval_id: str) -> ApprovalRow | None:
        """An approval by id alone: for waiters inside the server."""

        def work(transaction: Transaction) -> ApprovalRow | None:
            row = transaction.execute(
                f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = :id",  # noqa: S608 - column names are ours
                {"id": approval_id},
            ).fetchone()
            return approval_row(row) if row else None

        return await self._database.read(work)

    async def decisions(self, approval_ids: Sequence[str | None]) -> dict[str, Decision]:
        """Decisions of those questions that are closed. The caller must own their executions: nothing is checked."""
        wanted = {each for each in approval_ids if each is not None}

        def work(transaction: Transaction) -> dict[str, Decision]:
            found: dict[str, Decision] = {}
            for approval_id in wanted:
                row = transaction.execute(
                    "SELECT status, decided_by, decided_from, decided_at, reason, scope, grant_id FROM approvals "
                    "WHERE id = :id AND status <> 'pending'",
                    {"id": approval_id},
                ).fetchone()
                if row is not None:
                    found[approval_id] = Decision(approval_id=approval_id, **row)
            return found

        return await self._database.read(work) if wanted else {}

    async def replaced(
        self, approval_id: str, *, user_id: str, whole: Callable[[ApprovalRow], bool]
    ) -> tuple[ApprovalRow, str | None, ExecutionRow | None]:
        """Return a question, the text stored beside it, and if `whole` the oldest open call it is about."""

        def work(transaction: Transaction) -> tuple[ApprovalRow, str | None, ExecutionRow | None]:
            approval = own_approval(transaction, approval_id, user_id)
            row = None
            if whole(approval):
                row = transaction.execute(
                    f"SELECT {transitions.EXECUTION_COLUMNS} FROM tool_executions WHERE approval_id = :id "  # noqa: S608 - our own words
                    f"AND true_params IS NOT NULL AND {transitions.OPEN} ORDER BY created_at, id LIMIT 1",
                    {"id": approval_id},
                ).fetchone()
            text = transaction.execute(
                "SELECT text FROM replaced_texts WHERE approval_id = :id AND created_at >= :since",
                {"id": approval_id, "since": later(transaction.now, -TEXT_SECONDS)},
            ).fetchone()
            return approval, text["text"] if text else None, execution_row(row) if row else None

        return await self._database.read(work)


# Inside a transaction


def put_question(
    ledger: Ledger, execution: ExecutionRow, question: Question, unseen: tuple[str, ...] | None
) -> ExecutionRow:
    """Ask about an execution, or join the identical question that already waits.

    `unseen`: changes that the question names because nobody has seen them; None if no code would run.
    """
    now, named = ledger.now, None if unseen is None else plain_json(unseen)
    edit = None if question.edit is None else question.edit.model_dump_json()
    row = ledger.transaction.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE session_id = :session_id AND digest = :digest "  # noqa: S608 - column names are ours
        "AND user_id = :user_id AND status = 'pending' AND deadline > :now AND findings = :findings "
        "AND network = :network AND coalesce(unseen, '-') = :unseen AND coalesce(agent_id, '') = :agent_id "
        "AND coalesce(edit, '-') = :edit",
        {
            "session_id": execution.session_id,
            "digest": execution.digest,
            "user_id": execution.user_id,
            "now": now,
            # The findings shown must be the same too: a machine without a sandbox makes it another question.
            "findings": execution.findings,
            "network": execution.network,
            "unseen": named or "-",
            # The agent was shown too.
            "agent_id": execution.agent_id or "",
            "edit": edit or "-",
        },
    ).fetchone()
    if row is not None:
        approval = approval_row(row)
        waiting = len(waiting_executions(ledger.transaction, approval.id))
        ledger.event(_asked(approval, execution.id, waiting + 1))
        ledger.audit("joined", "server", execution_id=execution.id, approval_id=approval.id)
        ledger.transaction.hints.append(Hint(transitions.DEADLINES_TOPIC, approval.deadline, stays=True))
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
            "description": question.description,
            "status": ApprovalStatus.PENDING.value,
            "timeout_seconds": question.timeout_seconds,
            "created_at": now,
            "deadline": later(now, question.timeout_seconds),
            "decided_at": None,
            "decided_by": None,
            "reason": None,
            "scope": None,
            "inspection": question.inspection.model_dump_json() if question.inspection else None,
            "suggestions": plain_json(question.suggestions),
            "unseen": named,
            "grant_id": None,
            "decided_from": None,
            "edit": edit,
        }
        approval = approval_row(values)
        kept = plain_json(question.unmasked) if question.unmasked else question.replaced
        if kept is not None:
            _keep_text(ledger.transaction, approval.id, approval.user_id, kept)
        _insert(ledger, approval, tool_id=execution.id)
    return transitions.set_columns(ledger, execution, {"approval_id": approval.id, "deadline": approval.deadline})


def own_approval(
    transaction: Transaction, approval_id: str, user_id: str, project_id: str | None = None
) -> ApprovalRow:
    """A user's approval, or NotFound."""
    row = transaction.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = :id",  # noqa: S608 - column names are ours
        {"id": approval_id},
    ).fetchone()
    if row is None or row["user_id"] != user_id or project_id not in (None, row["project_id"]):
        raise NotFound(f"No approval {approval_id!r}.", hint="See `GET /my/approvals` for what waits.")
    return approval_row(row)


def pending_in_session(transaction: Transaction, session_id: str, user_id: str) -> list[ApprovalRow]:
    """A session's open questions, oldest first."""
    rows = transaction.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE session_id = :session_id AND user_id = :user_id "  # noqa: S608 - column names are ours
        "AND status = 'pending' AND deadline > :now ORDER BY created_at, id",
        {"session_id": session_id, "user_id": user_id, "now": transaction.now},
    ).fetchall()
    return [approval_row(row) for row in rows]


def pending_in_project(transaction: Transaction, project_id: str, user_id: str) -> list[ApprovalRow]:
    """A project's open questions in any session, oldest first."""
    rows = transaction.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE project_id = :project_id AND user_id = :user_id "  # noqa: S608 - column names are ours
        "AND status = 'pending' AND deadline > :now AND session_id IS NOT NULL ORDER BY created_at, id",
        {"project_id": project_id, "user_id": user_id, "now": transaction.now},
    ).fetchall()
    return [approval_row(row) for row in rows]


def overdue_approvals(transaction: Transaction, project_id: str) -> list[ApprovalRow]:
    """Open questions of a project past their deadline, at most 200."""
    rows = transaction.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE status = 'pending' AND deadline <= :now "  # noqa: S608 - column names are ours
        "AND project_id = :project_id LIMIT 200",
        {"now": transaction.now, "project_id": project_id},
    ).fetchall()
    return [approval_row(row) for row in rows]


def waiting_executions(transaction: Transaction, approval_id: str, *, whole: bool = False) -> list[ExecutionRow]:
    """The executions that wait for an approval, oldest first. `whole`: with their true parameters."""
    columns = transitions.EXECUTION_COLUMNS if whole else transitions.SHOWN_COLUMNS
    rows = transaction.execute(
        f"SELECT {columns} FROM tool_executions WHERE approval_id = :approval_id "  # noqa: S608 - column names are ours
        "AND status = 'AWAITING_APPROVAL' ORDER BY created_at, id",
        {"approval_id": approval_id},
    ).fetchall()
    return [execution_row(row) for row in rows]


def count_pending(transaction: Transaction, user_id: str) -> int:
    """The number of questions that wait for a user."""
    row = transaction.execute(
        "SELECT count(*) AS waiting FROM approvals WHERE user_id = :user_id AND status = 'pending'",
        {"user_id": user_id},
    ).fetchone()
    return row["waiting"] if row else 0


def refused_calls(
    transaction: Transaction, session_id: str, tool_name: str, *, since: str, agent_id: str | None = None
) -> list[ExecutionRow]:
    """A call of each question about a tool that a person refused in a session, newest first.

    `agent_id`: only this agent's. No more than anybody refuses in an hour; how many calls waited does not count.
    """
    rows = transaction.execute(
        f"SELECT {columns(ExecutionRow, 'x.')} FROM approvals AS a "  # noqa: S608 - column names are ours
        "JOIN tool_executions AS x ON x.id = (SELECT min(id) FROM tool_executions WHERE approval_id = a.id) "
        # What a person changed is not what the agent asked for.
        "WHERE a.session_id = :session_id AND a.status = 'rejected' AND a.decided_at > :since AND a.edit IS NULL "
        "AND (:agent_id IS NULL OR a.agent_id = :agent_id) AND a.tool_name = :tool_name "
        "ORDER BY a.decided_at DESC, a.id LIMIT :most",
        {"session_id": session_id, "tool_name": tool_name, "agent_id": agent_id, "since": since, "most": MOST_REFUSALS},
    ).fetchall()
    return [execution_row(row) for row in rows]


def last_code_review(transaction: Transaction, project_id: str) -> str:
    """Creation time of the newest approved question that named unseen code; '' if a person approved none."""
    row = transaction.execute(
        "SELECT created_at FROM approvals WHERE project_id = :project_id AND unseen IS NOT NULL "
        "AND status = 'approved' AND decided_by LIKE 'person:%' ORDER BY created_at DESC LIMIT 1",
        {"project_id": project_id},
    ).fetchone()
    return row["created_at"] if row else ""


def close_pending(ledger: Ledger, approval_id: str, after: ApprovalStatus, actor: str) -> None:
    """Close a question if it is still open; a no-op for the second execution that joined it."""
    row = ledger.transaction.execute(
        f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = :id AND status = 'pending'",  # noqa: S608 - column names are ours
        {"id": approval_id},
    ).fetchone()
    if row is not None:
        waiting = waiting_executions(ledger.transaction, approval_id)
        close(ledger, approval_row(row), after, waiting=waiting, actor=actor)


def time_out(ledger: Ledger, approval: ApprovalRow) -> None:
    """PENDING → TIMEOUT, with the executions that waited."""
    waiting = waiting_executions(ledger.transaction, approval.id)
    close(ledger, approval, ApprovalStatus.TIMEOUT, waiting=waiting)
    for execution in waiting:
        transitions.end(
            ledger,
            execution,
            ExecutionStatus.TIMEOUT,
            actor=DEADLINE,
            error="Approval timeout",
            error_type=ErrorType.APPROVAL_TIMEOUT,
        )


def close(
    ledger: Ledger,
    approval: ApprovalRow,
    after: ApprovalStatus,
    *,
    waiting: list[ExecutionRow],
    decided_by: str | None = None,
    actor: str = DEADLINE,
    reason: str | None = None,
    scope: ApprovalScope = ApprovalScope.ONCE,
    grant_id: str | None = None,
    decided_from: AnsweredFrom | None = None,
) -> ApprovalRow:
    """Close an open question, or raise ConflictError if somebody else has. `actor`: who closed it undecided."""
    reach = scope if after is ApprovalStatus.APPROVED else None
    row = ledger.update(
        "approvals",
        "UPDATE approvals SET status = :after, decided_at = :now, decided_by = :decided_by, reason = :reason, "
        "scope = :scope, grant_id = :grant_id, decided_from = :decided_from WHERE id = :id AND status = 'pending' "
        "RETURNING *",
        {
            "after": after.value,
            "now": ledger.now,
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
    if approval.inspection is not None and approval.tool_name != "write_file":
        ledger.transaction.execute("DELETE FROM replaced_texts WHERE approval_id = :id", {"id": approval.id})
    decided = approval._replace(
        status=after,
        decided_at=ledger.now,
        decided_by=decided_by,
        reason=reason,
        scope=reach,
        grant_id=grant_id,
        decided_from=decided_from,
        tool_ids=tuple(execution.id for execution in waiting),
    )
    ledger.event(
        ApprovalDecided(
            timestamp=ledger.now,
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
        decided_by or actor,
        approval_id=approval.id,
        digest=approval.digest,
        reason=reason,
        executions=list(decided.tool_ids),
        scope=reach.value if reach else None,
        grant=grant_id,
        **({} if decided_from is None else {"where": decided_from.value}),
    )
    ledger.transaction.hints.append(Hint(approval.id, decided))
    return decided


def _insert(ledger: Ledger, approval: ApprovalRow, *, tool_id: str) -> None:
    values = approval._asdict() | {
        "tool_params": json.dumps(approval.tool_params),
        "findings": plain_json(approval.findings),
        "inspection": approval.inspection.model_dump_json() if approval.inspection else None,
        "suggestions": plain_json(approval.suggestions),
        "edit": approval.edit.model_dump_json() if approval.edit else None,
    }
    del values["tool_ids"]
    ledger.insert("approvals", values)
    ledger.event(_asked(approval, tool_id, 1))
    ledger.audit(
        "asked",
        "server",
        execution_id=tool_id or None,
        approval_id=approval.id,
        digest=approval.digest,
        risk=approval.risk_level.value,
        deadline=approval.deadline,
    )
    ledger.transaction.hints.append(Hint(transitions.DEADLINES_TOPIC, approval.deadline, stays=True))


def _asked(approval: ApprovalRow, tool_id: str, calls: int) -> ApprovalRequested:
    return ApprovalRequested(
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
        edit=approval.edit,
        calls=calls,
    )


def _with_tools(transaction: Transaction, approval: ApprovalRow) -> ApprovalRow:
    rows = transaction.execute(
        "SELECT id FROM tool_executions WHERE approval_id = :id ORDER BY created_at, id", {"id": approval.id}
    ).fetchall()
    return approval._replace(tool_ids=tuple(row["id"] for row in rows))


def _keep_text(transaction: Transaction, approval_id: str, user_id: str, text: str) -> None:
    """Keep a text beside its question, if there is room."""
    transaction.execute(
        "DELETE FROM replaced_texts WHERE created_at < :before",
        {"before": later(transaction.now, -TEXT_SECONDS)},
    )
    if _kept_characters(transaction, user_id) + len(text) > MAX_TEXT_CHARACTERS:
        transaction.execute(
            "DELETE FROM replaced_texts WHERE user_id = :user_id AND approval_id NOT IN "
            "(SELECT id FROM approvals WHERE user_id = :user_id AND status = 'pending')",
            {"user_id": user_id},
        )
        if _kept_characters(transaction, user_id) + len(text) > MAX_TEXT_CHARACTERS:
            return
    transaction.execute(
        "INSERT INTO replaced_texts (approval_id, user_id, size, text, created_at) "
        "VALUES (:approval_id, :user_id, :size, :text, :now)",
        {"approval_id": approval_id, "user_id": user_id, "size": len(text), "text": text, "now": transaction.now},
    )


def _kept_characters(transaction: Transaction, user_id: str) -> int:
    row = transaction.execute(
        "SELECT coalesce(sum(size), 0) AS kept FROM replaced_texts WHERE user_id = :user_id", {"user_id": user_id}
    ).fetchone()
    return row["kept"] if row else 0
