"""What one transaction adds to a project's feed and to its audit chain.

Both hang on one counter row per project, which is locked while they are written: events are numbered without gaps
in commit order, and each audit record carries the hash of the one before. Nothing may write those tables except
through here, and nothing may change state without opening a ledger.
"""

import hashlib
from types import TracebackType
from typing import Any

from pydantic import BaseModel

from byleave.protocol.digests import plain_json
from byleave.protocol.values import JsonObject

from .database import Transaction
from .records import AuditRecord, StoredEvent

GENESIS = "0" * 64
"""The hash before the first record."""


def feed_topic(project_id: str) -> str:
    """Where news of a project's feed is told."""
    return f"feed:{project_id}"


def link_hash(previous_hash: str, record: AuditRecord) -> str:
    """The hash of a record: over the one before and all of its own fields.

    The fields are joined by a character none of them can hold: ids and actors are printable, JSON escapes it.
    """
    fields = (
        previous_hash,
        record.project_id,
        str(record.seq),
        record.at,
        record.actor,
        record.action,
        record.execution_id or "-",
        record.approval_id or "-",
        record.detail,
    )
    return hashlib.sha256("\x1f".join(fields).encode()).hexdigest()


class Ledger:
    """Collects events and audit links; writes them when the `with` block ends without an error."""

    def __init__(self, transaction: Transaction, project_id: str) -> None:
        self._transaction = transaction
        self._project_id = project_id
        self._events: list[tuple[str, str | None, str | None, str, str]] = []
        self._links: list[tuple[str, str, str | None, str | None, JsonObject]] = []

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and (self._events or self._links):
            self._write()

    def event(
        self,
        event: BaseModel,
        *,
        target: str | None = None,
        ref: str | None = None,
        stored_without: frozenset[str] = frozenset(),
    ) -> None:
        """Add an event. `stored_without`: fields that are sent but not kept in the events table."""
        payload = event.model_dump_json()
        stored = event.model_dump_json(exclude=set(stored_without)) if stored_without else payload
        self._events.append((getattr(event, "kind"), target, ref, payload, stored))  # noqa: B009 - every event has one

    def audit(
        self,
        action: str,
        actor: str,
        *,
        execution_id: str | None = None,
        approval_id: str | None = None,
        **detail: Any,
    ) -> None:
        """Add a link to the chain."""
        self._links.append((action, actor, execution_id, approval_id, detail))

    def _write(self) -> None:
        transaction, project_id, now = self._transaction, self._project_id, self._transaction.now
        counter = transaction.one(
            "UPDATE feeds SET seq = seq + :events, audit_seq = audit_seq + :links WHERE project_id = :project_id "
            "RETURNING seq, audit_seq, audit_hash",
            {"events": len(self._events), "links": len(self._links), "project_id": project_id},
        )
        if counter is None:
            raise LookupError(f"project {project_id!r} has no feed")
        self._write_events(counter["seq"] - len(self._events), now)
        head = self._write_links(counter["audit_seq"] - len(self._links), counter["audit_hash"], now)
        transaction.change(
            "UPDATE feeds SET audit_hash = :head WHERE project_id = :project_id",
            {"head": head, "project_id": project_id},
        )

    def _write_events(self, seq: int, now: str) -> None:
        if not self._events:
            return
        rows: list[dict[str, Any]] = []
        sent: list[StoredEvent] = []
        for kind, target, ref, payload, stored in self._events:
            seq += 1
            rows.append(
                {
                    "project_id": self._project_id,
                    "seq": seq,
                    "kind": kind,
                    "target": target,
                    "ref": ref,
                    "payload": stored,
                    "created_at": now,
                }
            )
            sent.append(StoredEvent(self._project_id, seq, kind, target, ref, payload))
        self._transaction.change_many(
            "INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) "
            "VALUES (:project_id, :seq, :kind, :target, :ref, :payload, :created_at)",
            rows,
        )
        self._transaction.hint(feed_topic(self._project_id), tuple(sent))

    def _write_links(self, seq: int, previous_hash: str, now: str) -> str:
        rows: list[dict[str, Any]] = []
        for action, actor, execution_id, approval_id, detail in self._links:
            seq += 1
            record = AuditRecord(
                self._project_id,
                seq,
                now,
                actor,
                action,
                execution_id,
                approval_id,
                plain_json(detail),
                previous_hash,
                "",
            )
            record = record._replace(hash=link_hash(previous_hash, record))
            rows.append(record._asdict())
            previous_hash = record.hash
        if rows:
            self._transaction.change_many(
                "INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, "
                "previous_hash, hash) VALUES (:project_id, :seq, :at, :actor, :action, :execution_id, :approval_id, "
                ":detail, :previous_hash, :hash)",
                rows,
            )
        return previous_hash
