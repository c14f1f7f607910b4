"""The audit chain: reading it, and proving that nobody changed it.

Verification recomputes every hash from the first record on and compares the last with the project's counter row, so a
changed, removed, inserted or reordered record shows. What it cannot show by itself is a whole chain that was
rewritten along with its counter: keep the printed heads somewhere else for that. A chain of any length is read and
hashed a piece at a time beside the event loop, so that others are served in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .database import Database, Transaction
from .ledger import GENESIS, link_hash
from .records import AuditRecord, audit_record, columns

AUDIT_COLUMNS = columns(AuditRecord)
PAGE = 5000
LARGEST = 2**63 - 1
PIECE = 500
"""Records that are hashed in one go: a few milliseconds on the one thread that reads."""


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """What verifying one project's chain found."""

    project_id: str
    records: int
    head: str
    fault: str | None
    """None when the chain holds."""


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a chain was found to hold."""

    position: int
    previous: str
    fault: str | None = None
    over: bool = False


class Audit:
    """The chain's reads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def records(self, project_id: str, after: int = 0, limit: int = PAGE) -> list[AuditRecord]:
        return await self._database.read(lambda transaction: _after(transaction, project_id, after, limit))

    async def newest(self, project_id: str, before: int | None, limit: int) -> tuple[list[AuditRecord], int]:
        """Records newest first, those before a number if one is given; and how many there are in all."""

        def work(transaction: Transaction) -> tuple[list[AuditRecord], int]:
            rows = transaction.all(
                f"SELECT {AUDIT_COLUMNS} FROM audit WHERE project_id = :project_id AND seq < :before "  # noqa: S608 - column names are ours
                "ORDER BY seq DESC LIMIT :limit",
                {"project_id": project_id, "before": LARGEST if before is None else before, "limit": limit},
            )
            return [audit_record(row) for row in rows], _head(transaction, project_id)[1]

        return await self._database.read(work)

    async def verify(self) -> list[ChainCheck]:
        """Check every project's chain."""

        def work(transaction: Transaction) -> list[str]:
            rows = transaction.all(
                "SELECT project_id FROM feeds UNION SELECT DISTINCT project_id FROM audit "
                "UNION SELECT id FROM projects ORDER BY project_id"
            )
            return [row["project_id"] for row in rows]

        return [await self.verify_project(project_id) for project_id in await self._database.read(work)]

    async def verify_project(self, project_id: str) -> ChainCheck:
        """Check one project's chain."""
        head, count, last = await self._database.read(lambda transaction: _head(transaction, project_id))
        if last > count:
            return ChainCheck(project_id, count, head, f"record {count + 1} was added behind the project's back")
        if count == 0:
            return ChainCheck(project_id, 0, head, "the chain is gone: a project begins with a record")
        place = _Place(0, GENESIS)
        while not place.over:
            place = await self._database.read(
                lambda transaction, place=place: _walked(transaction, project_id, place, count)
            )
        position, previous = place.position, place.previous
        if place.fault is not None:
            return ChainCheck(project_id, position, previous, place.fault)
        if position != count:
            return ChainCheck(project_id, position, previous, f"record {position + 1} of {count} is missing")
        if previous != head:
            return ChainCheck(project_id, position, previous, "the last record is not the one the project remembers")
        return ChainCheck(project_id, position, previous, None)


def _after(transaction: Transaction, project_id: str, after: int, limit: int) -> list[AuditRecord]:
    rows = transaction.all(
        f"SELECT {AUDIT_COLUMNS} FROM audit WHERE project_id = :project_id AND seq > :after "  # noqa: S608 - column names are ours
        "ORDER BY seq LIMIT :limit",
        {"project_id": project_id, "after": after, "limit": limit},
    )
    return [audit_record(row) for row in rows]


def _walked(transaction: Transaction, project_id: str, place: _Place, count: int) -> _Place:
    """One piece further along the chain, up to the record `count`."""
    position, previous = place.position, place.previous
    piece: Sequence[AuditRecord] = _after(transaction, project_id, position, PIECE)
    for record in piece:
        if record.seq > count:  # written since we looked; the next check covers it
            return _Place(position, previous, over=True)
        fault = _fault(record, position, previous)
        if fault is not None:
            return _Place(position, previous, fault, over=True)
        previous, position = record.hash, record.seq
    return _Place(position, previous, over=len(piece) < PIECE)


def _head(transaction: Transaction, project_id: str) -> tuple[str, int, int]:
    """The hash and number the project remembers, and the number of the last record there is."""
    row = transaction.one("SELECT audit_hash, audit_seq FROM feeds WHERE project_id = :id", {"id": project_id})
    last = transaction.one("SELECT coalesce(max(seq), 0) AS seq FROM audit WHERE project_id = :id", {"id": project_id})
    found = last["seq"] if last else 0
    return (row["audit_hash"], row["audit_seq"], found) if row else ("", 0, found)


def _fault(record: AuditRecord, position: int, previous: str) -> str | None:
    if record.seq != position + 1:
        return f"record {position + 1} is missing"
    if record.previous_hash != previous:
        return f"record {record.seq} does not follow the one before it"
    if link_hash(previous, record) != record.hash:
        return f"record {record.seq} was changed"
    return None
