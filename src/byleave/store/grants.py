"""Grants: saved with an answer, counted per use, listed and revoked.

`byleave.calls.grants` decides if a grant covers a call, never this module. A use is counted in the transaction that
lets the call run, by a conditional update: a grant that was revoked, has expired or is used up lets nothing through,
however many calls come at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.events import GrantChanged
from byleave.protocol.grants import Grant, GrantRule, GrantStatus
from byleave.protocol.states import ApprovalScope
from byleave.protocol.wire import later, new_id

from .database import Database, Row, Transaction
from .ledger import Ledger
from .records import ApprovalRow


class GrantRow(NamedTuple):
    id: str
    user_id: str
    project_id: str
    session_id: str
    scope: ApprovalScope
    rule: GrantRule | None
    text: str
    in_chat: bool
    approval_id: str | None
    uses: int
    max_uses: int | None
    created_at: str
    created_by: str
    expires_at: str
    revoked_at: str | None
    revoked_by: str | None
    agent_id: str | None = None
    """The agent it was given to: that of its question."""

    def status(self, now: str) -> GrantStatus:
        if self.revoked_at is not None:
            return GrantStatus.REVOKED
        if self.max_uses is not None and self.uses >= self.max_uses:
            return GrantStatus.USED_UP
        return GrantStatus.ACTIVE if now < self.expires_at else GrantStatus.EXPIRED

    def to_wire(self, now: str) -> Grant:
        values = self._asdict()
        del values["in_chat"]
        return Grant(**values, status=self.status(now))


def grant_row(row: Row) -> GrantRow:
    values = {name: row[name] for name in _STORED}
    values["scope"] = ApprovalScope(values["scope"])
    values["in_chat"] = bool(values["in_chat"])
    values["rule"] = _rule(values["rule"]) if values["rule"] else None
    return GrantRow(**values, agent_id=row["agent_id"] if "agent_id" in row.keys() else None)  # noqa: SIM118 - a row iterates over its values


@lru_cache(maxsize=4096)
def _rule(text: str) -> GrantRule:
    """Parse a rule once: every call that would ask is compared with all rules of its session."""
    return GrantRule.model_validate_json(text)


_STORED = tuple(name for name in GrantRow._fields if name != "agent_id")
STORED_COLUMNS = ", ".join(_STORED)
GRANT_COLUMNS = f"{STORED_COLUMNS}, (SELECT a.agent_id FROM approvals AS a WHERE a.id = grants.approval_id) AS agent_id"  # noqa: S608 - our own words
ACTIVE = "revoked_at IS NULL AND expires_at > :now AND (max_uses IS NULL OR uses < max_uses)"
MOST_LISTED = 5000
IN_SESSION = "session_id = :session_id AND scope <> 'project'"
IN_PROJECT = "project_id = :project_id AND scope = 'project'"


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

    async def page(
        self, user_id: str, *, session_id: str | None = None, project_id: str | None = None, all_of_them: bool = False
    ) -> tuple[list[GrantRow], str]:
        """A user's grants in force (or all), newest first, and the time of the query."""

        def work(transaction: Transaction) -> tuple[list[GrantRow], str]:
            rows = transaction.execute(
                f"SELECT {GRANT_COLUMNS} FROM grants WHERE user_id = :user_id "  # noqa: S608 - column names are ours
                f"AND (:session_id IS NULL OR {IN_SESSION} OR (scope = 'project' AND project_id = "
                "(SELECT s.project_id FROM sessions AS s WHERE s.id = :session_id))) "
                "AND (:project_id IS NULL OR project_id = :project_id) "
                # Ended grants must not crowd out those in force: nobody revokes a grant that is not listed.
                f"AND (:all OR ({ACTIVE})) ORDER BY created_at DESC, id LIMIT :most",
                {
                    "user_id": user_id,
                    "session_id": session_id,
                    "project_id": project_id,
                    "all": all_of_them,
                    "now": transaction.now,
                    "most": MOST_LISTED,
                },
            ).fetchall()
            return [grant_row(row) for row in rows], transaction.now

        return await self._database.read(work)

    async def revoke(self, grant_id: str, *, user_id: str, actor: str) -> tuple[GrantRow, str]:
        """Revoke a grant. Calls it has already let run go on."""

        def work(transaction: Transaction) -> tuple[GrantRow, str]:
            row = transaction.execute(
                f"SELECT {GRANT_COLUMNS} FROM grants WHERE id = :id AND user_id = :user_id",  # noqa: S608 - column names are ours
                {"id": grant_id, "user_id": user_id},
            ).fetchone()
            if row is None:
                raise NotFound(f"No grant {grant_id!r}.", hint="See `GET /my/grants` for yours.")
            grant, now = grant_row(row), transaction.now
            status = grant.status(now)
            if status is not GrantStatus.ACTIVE:
                ended = status.value.replace("_", " ")
                raise ConflictError(f"This grant is {ended} already.", state=status.value)
            with Ledger(transaction, grant.project_id) as ledger:
                return _revoke(ledger, grant, actor), now

        return await self._database.write(work)


# Inside a transaction


def _revoke(ledger: Ledger, grant: GrantRow, actor: str) -> GrantRow:
    revoked = grant._replace(revoked_at=ledger.now, revoked_by=actor)
    ledger.update(
        "grants",
        "UPDATE grants SET revoked_at = :now, revoked_by = :actor WHERE id = :id RETURNING *",
        {"now": ledger.now, "actor": actor, "id": grant.id},
    )
    ledger.event(GrantChanged(timestamp=ledger.now, grant=revoked.to_wire(ledger.now)))
    ledger.audit("grant_revoked", actor, approval_id=grant.approval_id, grant=grant.id, uses=grant.uses)
    return revoked


def revoke_all_of(ledger: Ledger, session_id: str, actor: str) -> None:
    """Revoke what is in force in a conversation; what was given for the whole project outlives it."""
    rows = ledger.transaction.execute(
        f"SELECT {GRANT_COLUMNS} FROM grants WHERE session_id = :id AND scope <> 'project' AND {ACTIVE}",  # noqa: S608 - column names are ours
        {"id": session_id, "now": ledger.now},
    ).fetchall()
    for row in rows:
        _revoke(ledger, grant_row(row), actor)


def count_active(transaction: Transaction, place: str, *, for_project: bool) -> int:
    """The number of grants in force in a session; `for_project`, of those that hold in all sessions of a project."""
    where = IN_PROJECT if for_project else IN_SESSION
    row = transaction.execute(
        f"SELECT count(*) AS active FROM grants WHERE {where} AND {ACTIVE}",  # noqa: S608 - made of our own words alone
        {"session_id": place, "project_id": place, "now": transaction.now},
    ).fetchone()
    return row["active"] if row else 0


def save_grant(
    ledger: Ledger, new: NewGrant, approval: ApprovalRow, session_id: str, *, created_by: str, in_chat: bool
) -> GrantRow:
    """Save a grant, in the transaction of the answer it came with."""
    now = ledger.now
    grant = GrantRow(
        id=new_id("grant"),
        user_id=approval.user_id,
        project_id=approval.project_id,
        session_id=session_id,
        scope=new.scope,
        rule=new.rule,
        text=new.text,
        in_chat=in_chat,
        approval_id=approval.id,
        uses=0,
        max_uses=new.max_uses,
        created_at=now,
        created_by=created_by,
        expires_at=later(now, new.seconds),
        revoked_at=None,
        revoked_by=None,
        agent_id=approval.agent_id,
    )
    values = grant._asdict() | {
        "scope": grant.scope.value,
        "rule": grant.rule.model_dump_json() if grant.rule else None,
    }
    del values["agent_id"]
    ledger.insert("grants", values)
    ledger.event(GrantChanged(timestamp=now, grant=grant.to_wire(now)))
    ledger.audit(
        "granted",
        created_by,
        approval_id=approval.id,
        grant=grant.id,
        scope=grant.scope.value,
        rule=grant.rule.model_dump() if grant.rule else None,
        text=grant.text,
        expires_at=grant.expires_at,
        max_uses=grant.max_uses,
        agent=grant.agent_id,
    )
    return grant


def active_grants(
    transaction: Transaction,
    session_id: str,
    project_id: str,
    user_id: str,
    *,
    in_chat: bool,
    agent_id: str | None = None,
) -> list[GrantRow]:
    """Grants in force in a session, also those for all of its project, narrower ones first.

    `agent_id`: only those given to this agent; empty if it has none.
    """
    rows = transaction.execute(
        f"SELECT {GRANT_COLUMNS} FROM grants WHERE id IN (SELECT id FROM grants WHERE {IN_SESSION} AND {ACTIVE} "  # noqa: S608 - column names are ours
        f"UNION ALL SELECT id FROM grants WHERE {IN_PROJECT} AND {ACTIVE}) AND user_id = :user_id "
        f"AND in_chat = :in_chat AND {ACTIVE} AND (:agent_id IS NULL OR EXISTS ("
        "SELECT 1 FROM approvals AS a WHERE a.id = grants.approval_id AND coalesce(a.agent_id, '') = :agent_id)) "
        # A class before everything, so that the record names the narrower reason.
        "ORDER BY CASE WHEN rule IS NULL THEN 1 ELSE 0 END, created_at, id",
        {
            "session_id": session_id,
            "project_id": project_id,
            "user_id": user_id,
            "in_chat": in_chat,
            "agent_id": agent_id,
            "now": transaction.now,
        },
    ).fetchall()
    return [grant_row(row) for row in rows]


def count_use(ledger: Ledger, grant: GrantRow, execution_id: str) -> GrantRow:
    """Count one use, or raise ConflictError when the grant has ended."""
    row = ledger.update(
        "grants",
        f"UPDATE grants SET uses = uses + 1 WHERE id = :id AND {ACTIVE} RETURNING {STORED_COLUMNS}",  # noqa: S608 - column names are ours
        {"id": grant.id, "now": ledger.now},
    )
    if row is None:
        raise ConflictError("This grant ended a moment ago.", state="ended")
    used = grant_row(row)._replace(agent_id=grant.agent_id)
    ledger.event(GrantChanged(timestamp=ledger.now, grant=used.to_wire(ledger.now)))
    ledger.audit("grant_used", f"grant:{grant.id}", execution_id=execution_id, uses=used.uses, text=grant.text)
    return used


def agent_at_work(transaction: Transaction, session_id: str) -> str | None:
    """The agent of a session's newest run; None where none of the chat's agents works."""
    row = transaction.execute(
        "SELECT agent FROM runs WHERE session_id = :id ORDER BY position DESC LIMIT 1", {"id": session_id}
    ).fetchone()
    return row["agent"] if row else None


def calls_without_question(
    transaction: Transaction, project_id: str, tool: str, since: str, most: int
) -> Sequence[Row]:
    """Calls that ran without a person's answer, newest first, with the rule of the grant that let them.

    Ordered by their approval: a call may have waited long before it.
    """
    return transaction.execute(
        "SELECT x.tool_name, x.tool_params, x.approved_at, x.risk_level, g.rule FROM tool_executions AS x "
        "LEFT JOIN grants AS g ON g.id = substr(x.approved_by, 7) WHERE x.project_id = :project_id "
        "AND x.tool_name = :tool AND x.risk_level <> 'LOW' AND x.approved_at >= :since "
        "AND substr(x.approved_by, 1, 7) <> 'person:' ORDER BY x.approved_at DESC LIMIT :most",
        {"project_id": project_id, "tool": tool, "since": since, "most": most},
    ).fetchall()


def commands_under_class_grants(transaction: Transaction, project_id: str) -> Sequence[Row]:
    """Commands that a grant for a class approved and that have not ended."""
    return transaction.execute(
        "SELECT x.tool_name, x.tool_params FROM tool_executions AS x JOIN grants AS g "
        "ON g.id = substr(x.approved_by, 7) WHERE x.project_id = :project_id "
        "AND x.status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING') "
        "AND x.status IN ('APPROVED', 'EXECUTING') AND x.tool_name = 'execute_command' "
        "AND x.approved_by LIKE 'grant:%' AND g.rule IS NOT NULL",
        {"project_id": project_id},
    ).fetchall()
