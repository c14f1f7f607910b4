"""Grants: saved with an answer, used by calls it covers, listed and taken back.

Whether a rule covers a call is the gate's to say. Here a use is counted in the same transaction that lets the call go,
by a conditional update: a grant that was revoked, has expired or is used up lets nothing through, however many calls
come at once. A grant ends with its session's last hour, never later.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from byleave.gate.commands.calls import Call, call_of
from byleave.gate.policy.grants import covers, covers_everything
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.events import GrantChanged
from byleave.protocol.grants import Grant, GrantRule, GrantStatus
from byleave.protocol.states import ApprovalScope, RiskLevel
from byleave.protocol.verdicts import VerdictLevel
from byleave.protocol.wire import new_id

from .calls import NewExecution
from .database import Database, Row, Transaction
from .ledger import Ledger
from .records import ExecutionRow, SessionRow, as_values, columns, placeholders
from .transitions import later
from .unreviewed_code import changes_code, runs_code, runs_granted_code, unseen


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
    values = {name: row[name] for name in GrantRow._fields}
    values["scope"] = ApprovalScope(values["scope"])
    values["in_chat"] = bool(values["in_chat"])
    values["rule"] = _rule(values["rule"]) if values["rule"] else None
    return GrantRow(**values)


@lru_cache(maxsize=4096)
def _rule(text: str) -> GrantRule:
    """Read once: every call that would ask is held against all rules of its session."""
    return GrantRule.model_validate_json(text)


GRANT_COLUMNS = columns(GrantRow)
ACTIVE = "revoked_at IS NULL AND expires_at > :now AND (max_uses IS NULL OR uses < max_uses)"
MOST_LISTED = 5000
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

    async def page(
        self, user_id: str, *, session_id: str | None = None, project_id: str | None = None, all_of_them: bool = False
    ) -> tuple[list[GrantRow], str]:
        """A user's grants, newest first, and the time they were looked at; those in force unless all are wanted."""

        def work(transaction: Transaction) -> tuple[list[GrantRow], str]:
            rows = transaction.all(
                f"SELECT {GRANT_COLUMNS} FROM grants WHERE user_id = :user_id "  # noqa: S608 - column names are ours
                "AND (:session_id IS NULL OR session_id = :session_id) "
                "AND (:project_id IS NULL OR project_id = :project_id) "
                # Those in force are all there, however many have ended since: what is not seen is not taken back.
                f"AND (:all OR ({ACTIVE})) ORDER BY created_at DESC, id LIMIT :most",
                {
                    "user_id": user_id,
                    "session_id": session_id,
                    "project_id": project_id,
                    "all": all_of_them,
                    "now": transaction.now,
                    "most": MOST_LISTED,
                },
            )
            return [grant_row(row) for row in rows], transaction.now

        return await self._database.read(work)

    async def revoke(self, grant_id: str, *, user_id: str, actor: str) -> tuple[GrantRow, str]:
        """Take a grant back. Calls it has let go are not called back."""

        def work(transaction: Transaction) -> tuple[GrantRow, str]:
            row = transaction.one(
                f"SELECT {GRANT_COLUMNS} FROM grants WHERE id = :id AND user_id = :user_id",  # noqa: S608 - column names are ours
                {"id": grant_id, "user_id": user_id},
            )
            if row is None:
                raise NotFound(f"No grant {grant_id!r}.", hint="See `GET /my/grants` for yours.")
            grant, now = grant_row(row), transaction.now
            status = grant.status(now)
            if status is not GrantStatus.ACTIVE:
                ended = status.value.replace("_", " ")
                raise ConflictError(f"This grant is {ended} already.", state=status.value)
            row = transaction.one(
                "UPDATE grants SET revoked_at = :now, revoked_by = :actor WHERE id = :id RETURNING *",
                {"now": now, "actor": actor, "id": grant_id},
            )
            revoked = grant._replace(revoked_at=now, revoked_by=actor)
            with Ledger(transaction, grant.project_id) as ledger:
                if row is not None:
                    ledger.kept("grants", row)
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
    in_chat: bool,
) -> GrantRow:
    """Keep a grant, in the transaction of the answer it came with."""
    now = transaction.now
    count = transaction.one(
        f"SELECT count(*) AS active FROM grants WHERE session_id = :session_id AND {ACTIVE}",  # noqa: S608 - made of our own words alone
        {"session_id": session_id, "now": now},
    )
    if count is not None and count["active"] >= MAX_ACTIVE:
        raise ConflictError(
            f"This session has {MAX_ACTIVE} grants already.", state="full", hint="Revoke some with `byleave grants`."
        )
    grant = GrantRow(
        id=new_id("grant"),
        user_id=user_id,
        project_id=project_id,
        session_id=session_id,
        scope=new.scope,
        rule=new.rule,
        text=new.text,
        in_chat=in_chat,
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
    ledger.kept("grants", values)
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as grants see it, taken apart once for all of them."""

    call: Call
    user_id: str
    project_id: str
    level: VerdictLevel
    always_asks: bool
    network: bool
    bound: Mapping[str, str]


def asked_of(
    call: NewExecution | ExecutionRow,
    bound: Mapping[str, str],
    where: Transaction | str | None,
    *,
    recorded: bool = False,
) -> Asked | None:
    """`where`: the workspace, or where to find it. `recorded`: by the masked parameters of the record."""
    params = call.tool_params if recorded else call.true_params
    if params is None or call.risk_level is RiskLevel.LOW:
        return None
    workspace = where if where is None or isinstance(where, str) else _workspace(where, call.project_id)
    return Asked(
        call=call_of(call.tool_name, json.loads(params), None, workspace),
        user_id=call.user_id,
        project_id=call.project_id,
        level=VerdictLevel(call.risk_level.value),
        always_asks=any(finding["always_asks"] for finding in json.loads(call.findings)),
        network=call.network,
        bound=bound,
    )


def use_one(
    transaction: Transaction,
    ledger: Ledger,
    call: NewExecution | ExecutionRow,
    bound: Mapping[str, str] | None = None,
) -> GrantRow | None:
    """The grant of the session that covers this call, with the use counted; None when a person must be asked."""
    in_chat = call.run_id is not None
    agent_id = None if in_chat else call.agent_id
    grants = _in_force(transaction, call.session_id, call.user_id, in_chat=in_chat, agent_id=agent_id)
    asked = asked_of(call, bound_of(call) if bound is None else bound, transaction) if grants else None
    grant = None if asked is None else _covering(transaction, grants, asked)
    return None if grant is None else _count(transaction, ledger, grant, call.id)


def would_use(transaction: Transaction, session: SessionRow, asked: Asked) -> GrantRow | None:
    """The grant that would let a call of this session's agent go now. Only looks: nothing is counted."""
    run = transaction.one("SELECT 1 FROM runs WHERE session_id = :id LIMIT 1", {"id": session.id})
    grants = _in_force(transaction, session.id, session.user_id, in_chat=run is not None)
    return _covering(transaction, grants, asked)


def _in_force(
    transaction: Transaction, session_id: str, user_id: str, *, in_chat: bool, agent_id: str | None = None
) -> list[GrantRow]:
    """`agent_id`: only those given to this agent."""
    rows = transaction.all(
        f"SELECT {GRANT_COLUMNS} FROM grants WHERE session_id = :session_id AND user_id = :user_id "  # noqa: S608 - column names are ours
        f"AND in_chat = :in_chat AND {ACTIVE} AND (:agent_id IS NULL OR "
        "EXISTS (SELECT 1 FROM approvals AS a WHERE a.id = grants.approval_id AND a.agent_id = :agent_id)) "
        # A class before everything, so that the record names the narrower reason.
        "ORDER BY CASE WHEN rule IS NULL THEN 1 ELSE 0 END, created_at, id",
        {
            "session_id": session_id,
            "user_id": user_id,
            "in_chat": in_chat,
            "agent_id": agent_id,
            "now": transaction.now,
        },
    )
    return [grant_row(row) for row in rows]


def _covering(transaction: Transaction, grants: list[GrantRow], asked: Asked) -> GrantRow | None:
    for grant in grants:
        if grant_covers(grant.rule, asked) and (grant.rule is None or _all_is_seen(transaction, grant.rule, asked)):
            return grant
    return None


def _all_is_seen(transaction: Transaction, rule: GrantRule, asked: Asked) -> bool:
    """Whether no code would run that nobody saw: not by this call, and not by one that runs now beside it.

    Code that nobody has seen is not run by a class: the next call that runs code of the workspace asks, names what
    changed, and a yes to it counts as having seen that.
    """
    if changes_code(asked.call) and runs_granted_code(transaction, asked.user_id, asked.project_id):
        return False
    if not runs_code(asked.call):
        return True
    changed = unseen(transaction, asked.user_id, asked.project_id)
    return not changed or grant_covers(rule, asked, unseen=changed)


def bound_of(call: NewExecution | ExecutionRow) -> dict[str, str]:
    """The files a call's approval is bound to."""
    text = call.bound if isinstance(call, ExecutionRow) else None
    return json.loads(text) if text else {}


def _count(transaction: Transaction, ledger: Ledger, grant: GrantRow, execution_id: str) -> GrantRow:
    now = transaction.now
    row = transaction.one(
        f"UPDATE grants SET uses = uses + 1 WHERE id = :id AND {ACTIVE} RETURNING {GRANT_COLUMNS}",  # noqa: S608 - column names are ours
        {"id": grant.id, "now": now},
    )
    if row is None:
        raise ConflictError("This grant ended a moment ago.", state="ended")
    ledger.kept("grants", row)
    used = grant_row(row)
    ledger.event(GrantChanged(timestamp=now, grant=used.to_wire(now)))
    ledger.audit("grant_used", f"grant:{grant.id}", execution_id=execution_id, uses=used.uses, text=grant.text)
    return used


def grant_covers(rule: GrantRule | None, asked: Asked, *, unseen: Collection[str] = ()) -> bool:
    """Whether a rule (None: everything) covers a call."""
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


def _workspace(transaction: Transaction, project_id: str) -> str | None:
    row = transaction.one("SELECT workspace FROM projects WHERE id = :id", {"id": project_id})
    return row["workspace"] if row else None
