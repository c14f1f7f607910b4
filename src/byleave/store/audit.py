"""The audit chain: reading it, and proving that nobody changed it or the rows it covers.

Verification has the database check its tables, recomputes every hash from the first record on, holds the head against
the project's counter row and the seal on it, all heads against the seal on them together, and each row of the project
against the digest its last link carries, both ways: a row that was changed, removed or slipped in shows as a changed,
removed, inserted or reordered record does. A row that retention removed is named by a link `pruned`, with the digest it
had: it must have been as the chain says then, and must be gone. What it cannot show by itself is a whole database that
was put back as it was earlier, or rewritten by somebody who also holds the server's secret: keep the printed heads
somewhere else for that. A chain of any length is read and hashed a piece at a time beside the event loop, so that
others are served in between.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from .database import Database, Row, Transaction
from .ledger import (
    ADOPTED,
    GENESIS,
    JOINED,
    NOT_COVERED,
    REMOVALS,
    UNSEALED,
    is_of_all_heads,
    is_sealed,
    link_hash,
    row_digest,
    rows_of,
    sealed_value,
)
from .records import AuditRecord, audit_record, columns

AUDIT_COLUMNS = columns(AuditRecord)
PAGE = 5000
PIECE = 500
"""Records that are hashed in one go: a few milliseconds on the one thread that reads."""
PIECE_CHARACTERS = 4 * 1024 * 1024
"""A piece of rows ends after so much text."""


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """The result of verifying one project's chain."""

    project_id: str
    records: int
    head: str
    fault: str | None
    """None when the chain holds."""
    since: str | None = None
    """Time at which an upgrade took older rows in as they were then; nothing proves what they said before."""


class _Fault(Exception):
    """A fault in the record, as a sentence."""


class Audit:
    """The chain's reads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def records(self, project_id: str, after: int = 0, limit: int = PAGE) -> list[AuditRecord]:
        return await self._database.read(lambda transaction: _after(transaction, project_id, after, limit))

    async def newest(self, project_id: str, before: int | None, limit: int) -> tuple[list[AuditRecord], int]:
        """Records newest first, those before a number if one is given; and how many there are in all."""

        def work(transaction: Transaction) -> tuple[list[AuditRecord], int]:
            count = _head(transaction, project_id)[1]
            last = count if before is None else min(count, before - 1)
            rows = transaction.execute(
                f"SELECT {AUDIT_COLUMNS} FROM audit WHERE project_id = :project_id AND seq BETWEEN 1 AND :last "  # noqa: S608 - column names are ours
                "ORDER BY seq DESC LIMIT :limit",
                {"project_id": project_id, "last": last, "limit": limit},
            ).fetchall()
            return [audit_record(row) for row in rows], count

        return await self._database.read(work)

    async def verify(self) -> list[ChainCheck]:
        """Check every project's chain."""

        def work(transaction: Transaction) -> list[tuple[object, str]]:
            tables = ["feeds", "audit", *(table for table in NOT_COVERED if table != "projects")]
            named = " UNION ".join(f"SELECT project_id, '{table}' AS place FROM {table}" for table in tables)  # noqa: S608 - our own names
            rows = transaction.execute(
                f"SELECT id AS project_id, 'projects' AS place FROM projects UNION {named}"  # noqa: S608 - our own names
            ).fetchall()
            return [(row["project_id"], row["place"]) for row in rows]

        fault = await self._database_fault()
        found = [] if fault is None else [ChainCheck("", 0, "", fault)]
        try:
            named = await self._database.read(work)
        except self._database.errors as error:
            return [*found, ChainCheck("", 0, "", f"the record cannot be read: {error}")]
        projects = sorted({project_id for project_id, _ in named if isinstance(project_id, str)})
        found += [await self._verify_chain(project_id) for project_id in projects]
        found += [
            ChainCheck("", 0, "", f"a row of {table} was changed or slipped in: its project {project_id!r} is no text")
            for project_id, table in named
            if not isinstance(project_id, str)
        ]
        fault = await self._fault(_heads_fault)
        return found if fault is None else [*found, ChainCheck("", len(projects), "", fault)]

    async def verify_project(self, project_id: str) -> ChainCheck:
        """Check the file, one project's chain, the project's rows against it, and its head among all."""
        fault = await self._database_fault()
        if fault is not None:
            return ChainCheck(project_id, 0, "", fault)
        found = await self._verify_chain(project_id)
        return found if found.fault is not None else replace(found, fault=await self._fault(_heads_fault))

    async def _database_fault(self) -> str | None:
        try:
            return await self._database.check()
        except (*self._database.errors, TypeError) as error:
            return f"the record cannot be read: {error}"

    async def _fault(self, find: Callable[[Transaction], str | None]) -> str | None:
        try:
            return await self._database.read(find)
        except (*self._database.errors, TypeError) as error:
            return f"the record cannot be read: {error}"

    async def _verify_chain(self, project_id: str) -> ChainCheck:
        proof, fault = _Proof(project_id), None
        try:
            await self._database.read(proof.begin)
            while await self._database.read(proof.walk):
                pass
            for table in NOT_COVERED:
                after: str | None = ""
                while after is not None:
                    after = await self._database.read(
                        lambda transaction, table=table, after=after: proof.compare(transaction, table, after)
                    )
            while await self._database.read(proof.find_missing):
                pass
        except _Fault as found:
            fault = str(found)
        except (*self._database.errors, TypeError) as error:  # also values of a type that none of our columns has
            fault = f"the record cannot be read: {error}"
        return ChainCheck(project_id, proof.position, proof.head, fault, proof.since)


class _Proof:
    """Verified part of a project's record. Each step is one read, and sees one state of the database.

    Others write meanwhile: a step that looks at rows first follows the chain to the end it has in that same state.
    """

    def __init__(self, project_id: str) -> None:
        self.project_id = project_id
        self.position = 0
        self.head = GENESIS
        self.since: str | None = None
        self._joined = False
        self._rows: dict[str, bytes] = {}
        """The digest that each row should have: every row that was covered and not pruned since."""
        self._unmet: set[str] = set()
        """Those rows that were not looked at since."""

    def begin(self, transaction: Transaction) -> None:
        head, count, last = _head(transaction, self.project_id)
        if transaction.execute(
            "SELECT 1 FROM audit WHERE project_id = :id AND seq < 1", {"id": self.project_id}
        ).fetchone():
            raise _Fault("a record was added before the first one")
        if last > count:
            self.position, self.head = count, head
            raise _Fault(f"record {count + 1} was added behind the project's back")
        if count == 0:
            raise _Fault("the chain is gone: a project begins with a record")

    def walk(self, transaction: Transaction) -> bool:
        """One piece further along the chain; False at its end, when its head was found to hold."""
        piece = _after(transaction, self.project_id, self.position, PIECE)
        for record in piece:
            fault = _fault(record, self.position, self.head) or self._cover(record)
            if fault is not None:
                raise _Fault(fault)
            self.head, self.position = record.hash, record.seq
        if len(piece) < PIECE:
            self._check_head(transaction)
        return len(piece) == PIECE

    def compare(self, transaction: Transaction, table: str, after: str) -> str | None:
        """Hold some of a table's rows against the chain; gives the id to go on from, None at the end."""
        self._catch_up(transaction)
        size = 0
        for number, row in enumerate(rows_of(transaction, table, self.project_id, after), 1):
            self._check_row(table, row["id"], row_digest(table, row))
            if table == "tool_executions" and row["completed_at"] is not None and _keeps_parameters(row):
                raise _Fault(f"the row {row['id']!r} of {table} was given other parameters after its end")
            size += sum(len(row[name]) for name in row.keys() if isinstance(row[name], str))  # noqa: SIM118
            if number == PIECE or size > PIECE_CHARACTERS:
                return row["id"]
        return None

    def find_missing(self, transaction: Transaction) -> bool:
        """Look for rows of the chain that were not met; False when all are accounted for."""
        self._catch_up(transaction)
        for name in list(islice(self._unmet, PIECE)):
            table, _, row_id = name.partition("/")
            row = transaction.execute(f"SELECT * FROM {table} WHERE id = :id", {"id": row_id}).fetchone()  # noqa: S608 - checked when it was covered
            self._check_row(table, row_id, None if row is None else row_digest(table, row))
        return bool(self._unmet)

    def _catch_up(self, transaction: Transaction) -> None:
        while self.walk(transaction):
            pass

    def _cover(self, record: AuditRecord) -> str | None:
        if record.action == UNSEALED:
            return (
                f"before record {record.seq} somebody other than this server changed the end of this chain or another"
            )
        try:
            detail = json.loads(record.detail)
            was, rows = (
                {str(name): bytes.fromhex(digest) for name, digest in detail.get(key, {}).items()}
                for key in ("was", "rows")
            )
        except (ValueError, TypeError, AttributeError):
            return f"record {record.seq} cannot be read"
        # A call that joins a waiting question is called so too, and names that call.
        if record.action == JOINED and record.execution_id is None:
            if self._joined:
                return f"before record {record.seq} somebody made the record look like an old one"
            self._joined = True
        if record.action == ADOPTED and not self._rows.keys().isdisjoint(rows):
            return f"record {record.seq} takes in rows that were covered before"
        # A row from outside was never covered; one that was removed comes again as if it were new.
        for name in was.keys() | (rows.keys() & self._rows.keys()):
            if name not in was or self._rows.get(name) != was[name]:
                table, _, row_id = name.partition("/")
                return (
                    f"before record {record.seq} somebody other than this server changed the row {row_id!r} of {table}"
                )
        if record.action in REMOVALS:
            return self._remove(record, was)
        if any(name.partition("/")[0] not in NOT_COVERED for name in rows):
            return f"record {record.seq} covers rows that this version does not know"
        if record.action == ADOPTED:
            self.since = record.at
        self._rows |= rows
        self._unmet |= rows.keys()
        return None

    def _remove(self, record: AuditRecord, removed: dict[str, bytes]) -> str | None:
        """Expect these rows to be gone from here on: they were as the chain says when the server removed them."""
        if any(name.partition("/")[0] not in REMOVALS[record.action] for name in removed):
            return f"record {record.seq} removes rows that are never removed"
        for name in removed:
            del self._rows[name]
        self._unmet -= removed.keys()
        return None

    def _check_row(self, table: str, row_id: str, digest: str | None) -> None:
        name = f"{table}/{row_id}"
        expected = self._rows.get(name)
        self._unmet.discard(name)
        if expected is None:
            raise _Fault(f"the row {row_id!r} of {table} is not in the chain")
        if digest is None:
            raise _Fault(f"the row {row_id!r} of {table} is gone")
        if bytes.fromhex(digest) != expected:
            raise _Fault(f"the row {row_id!r} of {table} was changed")

    def _check_head(self, transaction: Transaction) -> None:
        feed = transaction.execute("SELECT * FROM feeds WHERE project_id = :id", {"id": self.project_id}).fetchone()
        count = feed["audit_seq"] if feed else 0
        if self.position != count:
            raise _Fault(f"record {self.position + 1} of {count} is missing")
        if feed is None or self.head != feed["audit_hash"]:
            raise _Fault("the last record is not the one the project remembers")
        if not is_sealed(transaction, self.project_id, feed):
            raise _Fault("the last record is not sealed with this server's secret: those after it may be cut off")


def _keeps_parameters(row: Row) -> bool:
    """True if a call's row has parameters that are dropped at its end."""
    return row["true_params"] is not None or row["asked_params"] is not None


def _heads_fault(transaction: Transaction) -> str | None:
    if is_of_all_heads(transaction, sealed_value(transaction)):
        return None
    return (
        "the chains' ends together are not those this server wrote: "
        "one is older than the others, or a project is gone or was slipped in"
    )


def _after(transaction: Transaction, project_id: str, after: int, limit: int) -> list[AuditRecord]:
    rows = transaction.execute(
        f"SELECT {AUDIT_COLUMNS} FROM audit WHERE project_id = :project_id AND seq > :after "  # noqa: S608 - column names are ours
        "ORDER BY seq LIMIT :limit",
        {"project_id": project_id, "after": after, "limit": limit},
    ).fetchall()
    return [audit_record(row) for row in rows]


def _head(transaction: Transaction, project_id: str) -> tuple[str, int, int]:
    """The hash and number the project remembers, and the number of the last record there is."""
    row = transaction.execute(
        "SELECT audit_hash, audit_seq FROM feeds WHERE project_id = :id", {"id": project_id}
    ).fetchone()
    last = transaction.execute(
        "SELECT coalesce(max(seq), 0) AS seq FROM audit WHERE project_id = :id", {"id": project_id}
    ).fetchone()
    found = last["seq"] if last else 0
    return (row["audit_hash"], row["audit_seq"], found) if row else ("", 0, found)


def _fault(record: AuditRecord, position: int, previous: str) -> str | None:
    if record.seq != position + 1:
        return f"record {position + 1} is missing"
    if record.previous_hash != previous:
        return f"record {record.seq} does not follow the one before it"
    # The hash does not tell these two from a NULL.
    forged = not {record.execution_id, record.approval_id}.isdisjoint(("", "-"))
    if forged or link_hash(previous, record) != record.hash:
        return f"record {record.seq} was changed"
    return None
