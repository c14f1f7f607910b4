"""Grants: saved with an answer, used by calls it covers, listed and taken back.

Whether a rule covers a call is the gate's to say. Here a use is counted in the same transaction that lets the call go,
by a conditional update: a grant that was revoked, has expired or is used up lets nothing through, however many calls
come at once. A grant ends with its session's last hour, never later.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from assent.gate.grants import covers, covers_everything, leaves_unseen
from assent.gate.rules import call_of
from assent.protocol.errors import ConflictError, NotFound
from assent.protocol.events import GrantChanged
from assent.protocol.grants import Grant, GrantRule, GrantStatus
from assent.protocol.states import ApprovalScope, RiskLevel
from assent.protocol.values import new_id
from assent.protocol.verdicts import VerdictLevel

from .calls import NewExecution
from .database import Database, Row, Transaction
from .ledger import Ledger
from .moves import later
from .records import ExecutionRow, as_values, columns, placeholders


class GrantRow(NamedTuple):
    id: str
    user_id: str
    project_id: str
    session_id: str
    scope: ApprovalScope
    rule: GrantRule | None
    text: str
    approval_id: str | None
    uses: int
    max_uses: int | None
    created_at: str
    created_by: str
    expires_at: str
    revoked_at: str | None
    revoked_by: str | None

    def status(self, now: str) -> GrantStatus:
        if self.revoked_at is not None:
            return GrantStatus.REVOKED
        if self.max_uses is not None and self.uses >= self.max_uses:
            return GrantStatus.USED_UP
        return GrantStatus.ACTIVE if now < self.expires_at else GrantStatus.EXPIRED

    def to_wire(self, now: str) -> Grant:
        return Grant(**self._asdict(), status=self.status(now))


def grant_row(row: Row) -> GrantRow:
    values = {name: row[name] for name in GrantRow._fields}
    values["scope"] = ApprovalScope(values["scope"])
    values["rule"] = GrantRule.model_validate_json(values["rule"]) if values["rule"] else None
    return GrantRow(**values)


GRANT_COLUMNS = columns(GrantRow)
MAX_ACTIVE = 200
"""Most grants a session may have: each call that would ask is held against all of them."""


@dataclass(frozen=True, slots=True)
class NewGrant:
    """A grant as a person asked for it, checked by the gate."""

    scope: ApprovalScope
    rule: GrantRule | None
    text: str
    seconds: int
    max_uses: int | None


class Grants:
    """The grants' transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unseen(self, user_id: str, session_id: str) -> tuple[str, ...]:
        """What changed in a session without a question since a person was last shown what would run."""
        return await self._database.read(lambda transaction: unseen(transaction, user_id, session_id))

    async def page(
        self, user_id: str, *, session_id: str | None = None, project_id: str | None = None, all_of_them: bool = False
    ) -> tuple[list[GrantRow], str]:
        """A user's grants, newest first, and the time they were looked at; those in force unless all are wanted."""

        def work(transaction: Transaction) -> tuple[list[GrantRow], str]:
            rows = transaction.all(
                f"SELECT {GRANT_COLUMNS} FROM grants WHERE user_id = :user_id "  # noqa: S608 - column names are ours
                "AND (:session_id IS NULL OR session_id = :session_id) "
                "AND (:project_id IS NULL OR project_id = :project_id) ORDER BY created_at DESC, id LIMIT 500",
                {"user_id": user_id, "session_id": session_id, "project_id": project_id},
            )
            now = transaction.now
            grants = [grant_row(row) for row in rows]
            return [grant for grant in grants if all_of_them or grant.status(now) is GrantStatus.ACTIVE], now

        return await self._database.read(work)

    async def revoke(self, grant_id: str, *, user_id: str, actor: str) -> tuple[GrantRow, str]:
        """Take a grant back. Calls it has let go are not called back."""

        def work(transaction: Transaction) -> tuple[GrantRow, str]:
            row = transaction.one(
                f"SELECT {GRANT_COLUMNS} FROM grants WHERE id = :id AND user_id = :user_id",  # noqa: S608
                {"id": grant_id, "user_id": user_id},
            )
            if row is None:
                raise NotFound(f"No grant {grant_id!r}.", hint="See `GET /my/grants` for yours.")
            grant, now = grant_row(row), transaction.now
            status = grant.status(now)
            if status is not GrantStatus.ACTIVE:
                ended = status.value.replace("_", " ")
                raise ConflictError(f"This grant is {ended} already.", state=status.value)
            transaction.change(
                "UPDATE grants SET revoked_at = :now, revoked_by = :actor WHERE id = :id AND revoked_at IS NULL",
                {"now": now, "actor": actor, "id": grant_id},
            )
            revoked = grant._replace(revoked_at=now, revoked_by=actor)
            with Ledger(transaction, grant.project_id) as ledger:
                ledger.event(GrantChanged(timestamp=now, grant=revoked.to_wire(now)))
                ledger.audit("grant_revoked", actor, approval_id=grant.approval_id, grant=grant.id, uses=grant.uses)
            return revoked, now

        return await self._database.write(work)


def save(
    transaction: Transaction,
    ledger: Ledger,
    new: NewGrant,
    *,
    user_id: str,
    project_id: str,
    session_id: str,
    approval_id: str,
    created_by: str,
) -> GrantRow:
    """Keep a grant, in the transaction of the answer it came with."""
    now = transaction.now
    count = transaction.one(
        "SELECT count(*) AS active FROM grants WHERE session_id = :session_id AND revoked_at IS NULL "
        "AND expires_at > :now",
        {"session_id": session_id, "now": now},
    )
    if count is not None and count["active"] >= MAX_ACTIVE:
        raise ConflictError(
            f"This session has {MAX_ACTIVE} grants already.", state="full", hint="Revoke some with `assent grants`."
        )
    grant = GrantRow(
        id=new_id("grant"),
        user_id=user_id,
        project_id=project_id,
        session_id=session_id,
        scope=new.scope,
        rule=new.rule,
        text=new.text,
        approval_id=approval_id,
        uses=0,
        max_uses=new.max_uses,
        created_at=now,
        created_by=created_by,
        expires_at=later(now, new.seconds),
        revoked_at=None,
        revoked_by=None,
    )
    values = as_values(grant) | {
        "scope": grant.scope.value,
        "rule": grant.rule.model_dump_json() if grant.rule else None,
    }
    transaction.change(f"INSERT INTO grants {placeholders(values)}", values)
    ledger.event(GrantChanged(timestamp=now, grant=grant.to_wire(now)))
    ledger.audit(
        "granted",
        created_by,
        approval_id=approval_id,
        grant=grant.id,
        scope=grant.scope.value,
        rule=grant.rule.model_dump() if grant.rule else None,
        text=grant.text,
        expires_at=grant.expires_at,
        max_uses=grant.max_uses,
    )
    return grant


def use_one(
    transaction: Transaction,
    ledger: Ledger,
    call: NewExecution | ExecutionRow,
    bound: Mapping[str, str] | None = None,
) -> GrantRow | None:
    """The grant of the session that covers this call, with the use counted; None when a person must be asked."""
    now = transaction.now
    rows = transaction.all(
        f"SELECT {GRANT_COLUMNS} FROM grants WHERE session_id = :session_id AND user_id = :user_id "  # noqa: S608
        "AND revoked_at IS NULL AND expires_at > :now AND (max_uses IS NULL OR uses < max_uses) "
        # A class before everything, so that the record names the narrower reason.
        "ORDER BY CASE WHEN rule IS NULL THEN 1 ELSE 0 END, created_at, id",
        {"session_id": call.session_id, "user_id": call.user_id, "now": now},
    )
    if not rows:
        return None
    workspace = _workspace(transaction, call.project_id)
    if bound is None:
        bound = bound_of(call)
    changed = unseen(transaction, call.user_id, call.session_id) if call.tool_name == "execute_command" else ()
    for grant in map(grant_row, rows):
        if grant_covers(grant.rule, call, bound, workspace, unseen=changed):
            return _count(transaction, ledger, grant, call.id)
    return None


def unseen(transaction: Transaction, user_id: str, session_id: str) -> tuple[str, ...]:
    """What calls without a question changed in a session since a person was last shown what would run.

    Code that nobody has seen is not run by a grant: the next call that runs code of the workspace asks, names these,
    and a yes to it counts as having seen them.
    """
    shown = transaction.one(
        "SELECT max(created_at) AS at FROM approvals WHERE session_id = :session_id AND status = 'approved' "
        "AND inspection IS NOT NULL AND decided_by LIKE 'person:%'",
        {"session_id": session_id},
    )
    rows = transaction.all(
        "SELECT project_id, tool_name, tool_params FROM tool_executions WHERE user_id = :user_id "
        "AND session_id = :session_id AND created_at >= :since AND tool_name IN ('write_file', 'execute_command') "
        "AND (approved_by LIKE 'grant:%' OR approved_by LIKE 'rule:%' OR approved_by LIKE 'mode:%') "
        "ORDER BY created_at, id",
        {"user_id": user_id, "session_id": session_id, "since": (shown["at"] if shown else None) or ""},
    )
    workspace = _workspace(transaction, rows[0]["project_id"]) if rows else None
    calls = (call_of(row["tool_name"], json.loads(row["tool_params"]), None, workspace) for row in rows)
    return tuple(dict.fromkeys(path for call in calls for path in leaves_unseen(call)))


def bound_of(call: NewExecution | ExecutionRow) -> dict[str, str]:
    """The files a call's approval is bound to."""
    text = call.bound if isinstance(call, ExecutionRow) else None
    return json.loads(text) if text else {}


def _count(transaction: Transaction, ledger: Ledger, grant: GrantRow, execution_id: str) -> GrantRow:
    transaction.change("UPDATE grants SET uses = uses + 1 WHERE id = :id", {"id": grant.id})
    used = grant._replace(uses=grant.uses + 1)
    now = transaction.now
    ledger.event(GrantChanged(timestamp=now, grant=used.to_wire(now)))
    ledger.audit("grant_used", f"grant:{grant.id}", execution_id=execution_id, uses=used.uses, text=grant.text)
    return used


def grant_covers(
    rule: GrantRule | None,
    call: NewExecution | ExecutionRow,
    bound: Mapping[str, str],
    workspace: str | None,
    *,
    unseen: Collection[str] = (),
    recorded: bool = False,
) -> bool:
    """Whether a rule (None: everything) covers a call. `recorded`: by the masked parameters of the record."""
    params = call.tool_params if recorded else call.true_params
    if params is None:
        return False
    level = VerdictLevel(call.risk_level.value)
    always_asks = any(finding["always_asks"] for finding in json.loads(call.findings))
    if rule is None:
        return covers_everything(level=level, always_asks=always_asks)
    if rule.tool != call.tool_name or call.risk_level is not RiskLevel.MEDIUM or always_asks:
        return False
    return covers(
        rule,
        call_of(call.tool_name, json.loads(params), None, workspace),
        level=level,
        always_asks=always_asks,
        network=call.network,
        bound=bound,
        unseen=unseen,
    )


def _workspace(transaction: Transaction, project_id: str) -> str | None:
    row = transaction.one("SELECT workspace FROM projects WHERE id = :id", {"id": project_id})
    return row["workspace"] if row else None
