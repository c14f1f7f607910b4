"""A project's feed and audit chain: one transaction's additions to them, and the feed's reads.

Both depend on one counter row per project, which is locked while they are written: events are numbered without gaps
in commit order, and each audit record carries the hash of the one before. Nothing may write those tables except
through here, and nothing may change state without opening a ledger.

A link carries the digest of every row its transaction wrote (`kept`), so that rows can be checked against the chain,
and the earlier digest of a row that it changed (`changing`), so that a change made by somebody else in between shows.
The chain's head is sealed with a key that is not in the database, and so are the heads of all projects together: write
access to the file is not enough to cut a chain, nor to put back an older head of one project with its older seal.

Signals are stored without their parameters; a reader gets them joined in, and only while the execution still waits for
them: an old signal is never worth sending. A page is bounded in events and in characters, since readers are many and
slow; events beyond it are not even loaded.
"""

import hashlib
import hmac
import json
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from types import TracebackType
from typing import Any, cast

import structlog
from pydantic import BaseModel
from pydantic_core import to_json

from byleave.protocol.errors import ConfigurationError
from byleave.protocol.wire import JsonObject

from .database import Database, Head, Hint, Lookup, Row, Transaction
from .records import AuditRecord, StoredEvent, placeholders

log = structlog.stdlib.get_logger(__name__)

GENESIS = "0" * 64
"""The hash before the first record."""
NOT_COVERED: Mapping[str, frozenset[str]] = {
    "projects": frozenset({"workspace", "isolation"}),
    "sessions": frozenset(),
    "runs": frozenset(
        {"state", "history", "owner", "lease_until", "fence", "attempts", "error", "updated_at"},
    ),
    "messages": frozenset(),
    "approvals": frozenset(),
    "tool_executions": frozenset(
        {"true_params", "asked_params", "deadline", "output_seq", "output_size", "cancel_requested"}
    ),
    "grants": frozenset(),
}
"""The tables whose rows the chain covers, and the columns that change without a link.

A NULL counts as absent, so that a column added later leaves the digests of older rows as they are.
"""
LONG_CHARACTERS = 4096
ADOPTED, COPIED, JOINED, UNSEALED = "adopted", "copied", "joined", "unsealed"
PRUNED, ERASED = "pruned", "erased"
REMOVALS: Mapping[str, frozenset[str]] = {
    PRUNED: frozenset({"tool_executions", "approvals"}),
    ERASED: frozenset({"messages", "runs"}),
}
"""The links that remove rows, by age or with their conversation, and the tables whose rows each may remove: its `was`
has the digest of each removed row."""
ROWS_IN_A_LINK = 500
HEADS = "heads"
"""Name of the seal on the heads of all chains together."""
PROJECTS = "projects"
"""Name of the seal on the list of projects, which records had before."""
INSERT_EVENT = f"INSERT INTO events {placeholders((*StoredEvent._fields, 'created_at'))}"
INSERT_LINK = f"INSERT INTO audit {placeholders(AuditRecord._fields)}"
SIGNALS = {"tool.execution_signal": "EXECUTING", "tool.inspection_request": "PENDING"}
"""Events addressed to one client, and the state in which they are still worth sending."""
PAGE_CHARACTERS = 256 * 1024
"""A page ends with the event that reaches this: every stalled reader holds a page or two."""


def feed_topic(project_id: str) -> str:
    """The topic for news of a project's feed."""
    return f"feed:{project_id}"


def row_digest(table: str, row: Mapping[str, Any]) -> str:
    """Digest of the covered columns of a row."""
    # By number: `sqlite3.Row` searches its names one by one.
    values = tuple(row.values()) if isinstance(row, dict) else tuple(cast("Iterable[Any]", row))
    order = _digest_order(table, tuple(row.keys()))
    parts: list[str] = []
    for number, name in order:  # written out: a call for each column would double the time
        value = values[number]
        if value is None:
            continue
        if value.__class__ is not str:
            # A type that none of our columns has was written by somebody else, and changes the digest.
            value = str(int(value)) if isinstance(value, int) else value if isinstance(value, str) else repr(value)
        size = len(value)
        long = size > LONG_CHARACTERS
        parts.append(f"{name}#{hashlib.sha256(value.encode()).hexdigest()}" if long else f"{name}:{size}:{value}")
    insort(parts, table)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache
def _digest_order(table: str, names: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Numbers and names of the covered columns in the order of a digest, which is that of its sorted parts."""
    covered = [(f"{name}:", number, name) for number, name in enumerate(names) if name not in NOT_COVERED[table]]
    return tuple((number, name) for _, number, name in sorted(covered))


@lru_cache
def _insert(table: str, names: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} {placeholders(names)}"


@lru_cache
def _update(table: str, names: tuple[str, ...], where: tuple[str, ...]) -> str:
    assignments = ", ".join(f"{name} = :{name}" for name in names)
    conditions = "".join(f" AND {name} = :was_{name}" for name in where)
    return f"UPDATE {table} SET {assignments} WHERE id = :id{conditions}"  # noqa: S608 - our own names


def seal(key: bytes, project_id: str, seq: int, head: str) -> str:
    """HMAC that proves this server wrote the chain's head."""
    return hmac.digest(key, f"{project_id}\x1f{seq}\x1f{head}".encode(), "sha256").hex()


def is_sealed(transaction: Transaction, project_id: str, feed: Row) -> bool:
    """True if this server wrote the stored head of a project's chain."""
    expected = (seal(key, project_id, feed["audit_seq"], feed["audit_hash"]) for key in transaction.seal_keys)
    return feed["audit_seal"] in expected


def begin_chain(transaction: Transaction, project_id: str) -> None:
    """Insert a project's counter row, before its first record."""
    transaction.execute(
        "INSERT INTO feeds (project_id, seq, audit_seq, audit_hash, audit_seal) VALUES (:id, 0, 0, :genesis, :seal)",
        {"id": project_id, "genesis": GENESIS, "seal": seal(transaction.seal_keys[0], project_id, 0, GENESIS)},
    )


def is_of_all_heads(transaction: Transaction, value: str | None) -> bool:
    """True if a sealed value is that of the heads as they are stored."""
    return value is not None and value.rpartition(":")[2] == heads_of_all(transaction)


def heads_of_all(transaction: Transaction) -> str:
    """Digest of the set of all heads, independent of their order."""
    feeds = transaction.execute("SELECT project_id, audit_seq, audit_hash FROM feeds").fetchall()
    return _sum(_weight(feed["project_id"], feed["audit_seq"], feed["audit_hash"]) for feed in feeds)


def sealed_value(transaction: Transaction, name: str = HEADS) -> str | None:
    """A value that this server sealed, now or with the secret before; None if there is none, or somebody else's."""
    row = transaction.execute("SELECT value, seal FROM seals WHERE name = :name", {"name": name}).fetchone()
    return None if row is None else _if_ours(transaction, name, row)


def _if_ours(transaction: Transaction, name: str, row: Row) -> str | None:
    return row["value"] if row["seal"] in (seal(key, name, 0, row["value"]) for key in transaction.seal_keys) else None


def head_of(project_id: str) -> Lookup:
    """The lookup of the first ledger that adds to a project."""
    return Lookup(
        "feeds",
        project_id,
        "SELECT feeds.seq, audit_seq, audit_hash, audit_seal, value, seal FROM feeds "
        "LEFT JOIN seals ON name = :heads WHERE project_id = :project_id",
        {"project_id": project_id, "heads": HEADS},
    )


def _weight(project_id: str, seq: int, head: str) -> int:
    """The part of a head in the digest of all; a chain without records adds nothing."""
    return int.from_bytes(hashlib.sha256(f"{project_id}\x1f{seq}\x1f{head}".encode()).digest()) if seq else 0


def _sum(numbers: Iterable[int]) -> str:
    return f"{sum(numbers) % 2**256:064x}"


def _seal_heads(transaction: Transaction, value: str) -> None:
    transaction.execute(
        "INSERT INTO seals (name, value, seal) VALUES (:name, :value, :seal) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value, seal = excluded.seal",
        {"name": HEADS, "value": value, "seal": seal(transaction.seal_keys[0], HEADS, 0, value)},
    )


def rows_of(transaction: Transaction, table: str, project_id: str, after: str = "") -> Iterator[Row]:
    """Yield a project's rows by id, loaded one at a time: one may be as large as a file."""
    project = "id" if table == "projects" else "project_id"
    beyond = ">" if after else ">="
    while row := transaction.execute(
        f"SELECT * FROM {table} WHERE {project} = :project_id AND id {beyond} :after ORDER BY id LIMIT 1",  # noqa: S608 - made of our own words alone
        {"project_id": project_id, "after": after},
    ).fetchone():
        after, beyond = row["id"], ">"
        yield row


def adopt(transaction: Transaction) -> None:
    """Add every row to its project's chain: for a record that is new, or older than chains that cover rows."""
    _seal_heads(transaction, heads_of_all(transaction))
    for feed in transaction.execute("SELECT project_id, audit_seq, audit_hash FROM feeds").fetchall():
        project_id = feed["project_id"]
        _reseal(transaction, feed)
        rows = ((table, row) for table in NOT_COVERED for row in rows_of(transaction, table, project_id))
        more = True
        while more:
            more = False
            with Ledger(transaction, project_id) as ledger:
                for table, row in islice(rows, ROWS_IN_A_LINK):
                    more = True
                    ledger.kept(table, row)
                if more:
                    ledger.audit(ADOPTED, "server")
    write_batch(transaction)


def seal_together(transaction: Transaction) -> None:
    """Seal all heads of an older record, which has its projects sealed instead, if those are the ones it has.

    That seal goes, and each chain says that this was done: once, so that nobody can have an older head sealed by making
    the record look like an old one again.
    """
    is_sealed_at_all = transaction.execute("SELECT 1 FROM seals WHERE name = :name", {"name": PROJECTS}).fetchone()
    if is_sealed_at_all and sealed_value(transaction, PROJECTS) is None:
        # Nothing is migrated then: with the right secret the next start can still do it.
        raise ConfigurationError(
            "The record is of an older version and was sealed with another secret.",
            hint="Start once with the secret it was made with (BYLEAVE_SECRET, or the file `secret` in its "
            "BYLEAVE_HOME), or name that one in BYLEAVE_PREVIOUS_SECRET.",
        )
    ids = (row["id"].encode() for row in transaction.execute("SELECT id FROM projects").fetchall())
    if sealed_value(transaction, PROJECTS) == _sum(int.from_bytes(hashlib.sha256(each).digest()) for each in ids):
        _seal_heads(transaction, heads_of_all(transaction))
        for feed in transaction.execute("SELECT project_id FROM feeds").fetchall():
            with Ledger(transaction, feed["project_id"]) as ledger:
                ledger.audit(JOINED, "server")
        write_batch(transaction)
    transaction.execute("DELETE FROM seals WHERE name = :name", {"name": PROJECTS})


def reseal(transaction: Transaction) -> None:
    """Seal with the current key the heads that an earlier key sealed."""
    for feed in transaction.execute("SELECT project_id, audit_seq, audit_hash, audit_seal FROM feeds").fetchall():
        if is_sealed(transaction, feed["project_id"], feed):
            _reseal(transaction, feed)
    value = sealed_value(transaction)
    if value is not None:
        _seal_heads(transaction, value)


def _reseal(transaction: Transaction, feed: Row) -> None:
    project_id, key = feed["project_id"], transaction.seal_keys[0]
    transaction.execute(
        "UPDATE feeds SET audit_seal = :seal WHERE project_id = :id",
        {"seal": seal(key, project_id, feed["audit_seq"], feed["audit_hash"]), "id": project_id},
    )


def link_hash(previous_hash: str, record: AuditRecord) -> str:
    """Hash of a record: over the previous hash and all of its own fields.

    The fields are joined by a character that none can contain: ids and actors are printable, JSON escapes it.
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
        self.transaction = transaction
        self.now = transaction.now
        self._project_id = project_id
        self._events: list[tuple[str, str | None, str | None, str, str]] = []
        self._links: list[tuple[str, str, str | None, str | None, JsonObject]] = []
        self._rows: dict[str, str] = {}
        self._was: dict[str, str] = {}
        self._found: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and (self._events or self._links or self._rows):
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

    def insert(self, table: str, values: Mapping[str, Any]) -> None:
        """Insert a row; the chain covers it."""
        if (storable := self.transaction.storable) is not None:
            values = storable(values)
        self.transaction.execute(_insert(table, tuple(values)), values)
        self._found[f"{table}/{values['id']}"] = dict(values)
        self.kept(table, values)

    def update(self, table: str, sql: str, values: Mapping[str, Any], columns: str = "*") -> Row | None:
        """Change the row `:id` by an UPDATE … RETURNING; return it, or None if the condition no longer holds.

        The chain gets its digests before and after. `columns`: at least those the chain covers.
        """
        name = f"{table}/{values['id']}"
        if name not in self._rows and name not in self._was:
            before = self.transaction.execute(f"SELECT {columns} FROM {table} WHERE id = :id", {"id": values["id"]})  # noqa: S608 - our own names
            if (found := before.fetchone()) is not None:
                self.found(table, found)
        row = self.transaction.execute(sql, values).fetchone()
        if row is not None:
            self.kept(table, row)
        return row

    def change(
        self, table: str, row_id: str, changes: Mapping[str, Any], where: Mapping[str, str], columns: str
    ) -> dict[str, Any] | None:
        """Change columns of a row; return it with all these `columns`, or None if it is gone or not as `where` says.

        Its new values are known, so nobody waits for the statement. A table whose rows are changed by this must have
        them `found` with the same columns.
        """
        name = f"{table}/{row_id}"
        row = self._found.get(name)
        if row is None:
            sql = f"SELECT {columns} FROM {table} WHERE id = :id"  # noqa: S608 - our own names
            found = self.transaction.execute(sql, {"id": row_id}).fetchone()
            if found is None:
                return None
            row = self.found(table, found)
        if any(row[column] != value for column, value in where.items()):
            return None
        storable = self.transaction.storable
        stored = changes if storable is None else storable(changes)
        values = {**stored, "id": row_id, **{f"was_{column}": value for column, value in where.items()}}
        self.transaction.change(_update(table, tuple(stored), tuple(where)), values)
        changed = self._found[name] = {**row, **stored}
        self.kept(table, changed)
        return changed

    def found(self, table: str, row: Row) -> dict[str, Any]:
        """Note a row as this transaction found it, and its digest. It needs the columns the chain covers."""
        name = f"{table}/{row['id']}"
        if name not in self._rows:
            self._was.setdefault(name, row_digest(table, row))
        values: dict[str, Any] = dict(zip(row.keys(), cast("Iterable[Any]", row), strict=True))
        self._found[name] = values
        return values

    def kept(self, table: str, row: Mapping[str, Any]) -> None:
        """Note the digest of a row, with all its columns, as this transaction leaves it: the chain covers it now."""
        self._rows[f"{table}/{row['id']}"] = row_digest(table, row)

    def _write(self) -> None:
        transaction, project_id, batch = self.transaction, self._project_id, self.transaction.batch
        if self._rows:
            if not self._links:
                self.audit("kept", "server")
            detail = self._links[-1][-1]
            detail["rows"] = self._rows
            if self._was:
                detail["was"] = self._was
        head = batch.heads.get(project_id) or self._load_head()
        links = self._chain(head)
        sent: list[StoredEvent] = []
        for seq, (kind, target, ref, payload, stored) in enumerate(self._events, head.seq + 1):
            event = StoredEvent(project_id, seq, kind, target, ref, payload)
            sent.append(event)
            batch.events.append({**event._asdict(), "payload": stored, "created_at": self.now})
        if sent:
            transaction.hints.append(Hint(feed_topic(project_id), tuple(sent)))
        if links:
            batch.links.extend(map(AuditRecord._asdict, links))
            batch.sealed.setdefault(project_id, head)
        last = links[-1] if links else None
        batch.heads[project_id] = Head(
            head.seq + len(sent), last.seq if last else head.audit_seq, last.hash if last else head.audit_hash
        )

    def _load_head(self) -> Head:
        """Read the head. Nobody else changes it before this transaction ends."""
        transaction, project_id = self.transaction, self._project_id
        lookup = head_of(project_id)
        feed = transaction.execute(lookup.sql, lookup.parameters).fetchone()
        if feed is None:
            raise LookupError(f"project {project_id!r} has no feed")
        # All heads are looked at by the first ledger that adds to the batch.
        are_ours = bool(transaction.batch.heads) or _take_heads(transaction, _if_ours(transaction, HEADS, feed))
        if not are_ours or not is_sealed(transaction, project_id, feed):
            # Somebody else wrote a head. Work goes on, but the chain says so from here on: our seal alone would
            # confirm the tampering.
            log.error("the audit chain was changed from outside", project_id=project_id, record=feed["audit_seq"])
            self._links.insert(0, (UNSEALED, "server", None, None, {"head": feed["audit_hash"]}))
        return Head(feed["seq"], feed["audit_seq"], feed["audit_hash"])

    def _chain(self, newest: Head) -> list[AuditRecord]:
        """Make the links of this transaction, the first of which follows the head."""
        project_id, head = self._project_id, newest.audit_hash
        records: list[AuditRecord] = []
        for seq, (action, actor, execution_id, approval_id, detail) in enumerate(self._links, newest.audit_seq + 1):
            text = to_json(detail).decode()
            record = AuditRecord(
                project_id, seq, self.now, actor, action, execution_id, approval_id, text, head, hash=""
            )
            head = link_hash(head, record)
            records.append(record._replace(hash=head))
        return records


def _take_heads(transaction: Transaction, stored: str | None) -> bool:
    """Go on from the stored value of all heads; False if it is older than the last one that this server saw.

    That is then what it goes on from: heads that do not fit it never will.
    """
    batch = transaction.batch
    known = batch.all_heads
    is_ours = stored is not None and (known in ("", stored) or _count_of(stored) > _count_of(known))
    batch.all_heads = (stored if is_ours else known or stored) or heads_of_all(transaction)
    return is_ours


def _count_of(value: str) -> int:
    """How often all heads had been sealed; records from before did not count."""
    return int(value.rpartition(":")[0] or 0)


def write_batch(transaction: Transaction) -> None:
    """Write the events and links that ledgers have added, and the heads they lead to."""
    batch, key = transaction.batch, transaction.seal_keys[0] if transaction.seal_keys else b""
    if batch.events:
        transaction.executemany(INSERT_EVENT, batch.events)
        batch.events = []
    if batch.links:
        transaction.executemany(INSERT_LINK, batch.links)
        batch.links = []
    for project_id, head in batch.heads.items():
        values: dict[str, Any] = {"project_id": project_id, **head._asdict()}
        if project_id in batch.sealed:
            values["audit_seal"] = seal(key, project_id, head.audit_seq, head.audit_hash)
        assignments = ", ".join(f"{name} = :{name}" for name in values if name != "project_id")
        transaction.execute(f"UPDATE feeds SET {assignments} WHERE project_id = :project_id", values)  # noqa: S608 - our own names
    if batch.sealed:
        changes = (
            _weight(project_id, now.audit_seq, now.audit_hash) - _weight(project_id, was.audit_seq, was.audit_hash)
            for project_id, was in batch.sealed.items()
            if (now := batch.heads[project_id])
        )
        total = _sum((int(batch.all_heads.rpartition(":")[2], 16), *changes))
        batch.all_heads = f"{_count_of(batch.all_heads) + 1}:{total}"
        _seal_heads(transaction, batch.all_heads)
    batch.heads, batch.sealed = {}, {}


def inspected_params(tool_name: str, params: JsonObject) -> JsonObject:
    """The parameters an inspection needs, without a write's content: that is sent once, when it may be written."""
    return {**params, "content": ""} if tool_name == "write_file" else params


class Feed:
    """The feed's reads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def head(self, project_id: str) -> int:
        """The number of the newest event."""

        def work(transaction: Transaction) -> int:
            row = transaction.execute("SELECT seq FROM feeds WHERE project_id = :id", {"id": project_id}).fetchone()
            return row["seq"] if row else 0

        return await self._database.read(work)

    async def span(self, project_id: str) -> tuple[int, int]:
        """The number before the oldest event that is left, and the number of the newest."""
        return await self._database.read(lambda transaction: _span(transaction, project_id))

    async def before(self, project_id: str, moment: str) -> int:
        """Number of the newest event before a moment, for a reader who wants everything since."""

        def work(transaction: Transaction) -> int:
            # Events are numbered in the order of their times, so their number is found by halving.
            low, high = _span(transaction, project_id)
            while low < high:
                middle = (low + high + 1) // 2
                event = transaction.execute(
                    "SELECT created_at FROM events WHERE project_id = :project_id AND seq = :seq",
                    {"project_id": project_id, "seq": middle},
                ).fetchone()
                low, high = (middle, high) if event and event["created_at"] < moment else (low, middle - 1)
            return low

        return await self._database.read(work)

    async def after(
        self, project_id: str, seq: int, *, client_id: str | None, limit: int
    ) -> tuple[list[StoredEvent], int, bool, int]:
        """Return the events past `seq` that this reader may see, the number up to which it has now seen everything,
        True if there may be more, and the number after which none is missing: beyond `seq` if retention removed some.
        """

        def work(transaction: Transaction) -> tuple[list[StoredEvent], int, bool, int]:
            heads = transaction.execute(
                "SELECT e.seq, e.kind, e.target, e.ref, x.status "
                "FROM events AS e LEFT JOIN tool_executions AS x ON x.id = e.ref "
                "WHERE e.project_id = :project_id AND e.seq > :seq ORDER BY e.seq LIMIT :limit",
                {"project_id": project_id, "seq": seq, "limit": limit},
            ).fetchall()
            # Numbers have no gaps but those that retention leaves.
            oldest = heads[0]["seq"] - 1 if heads else max(seq, _span(transaction, project_id)[0])
            found: list[StoredEvent] = []
            characters = 0
            for head in heads:
                if not _is_for(client_id, head):
                    continue
                payload = _payload(transaction, project_id, head)
                found.append(StoredEvent(project_id, head["seq"], head["kind"], head["target"], head["ref"], payload))
                characters += len(payload)
                if characters >= PAGE_CHARACTERS:
                    return found, head["seq"], True, oldest
            return found, heads[-1]["seq"] if heads else oldest, len(heads) == limit, oldest

        return await self._database.read(work)


def _span(transaction: Transaction, project_id: str) -> tuple[int, int]:
    feed = transaction.execute("SELECT seq FROM feeds WHERE project_id = :id", {"id": project_id}).fetchone()
    head: int = feed["seq"] if feed else 0
    oldest = transaction.execute(
        "SELECT min(seq) AS seq FROM events WHERE project_id = :id", {"id": project_id}
    ).fetchone()
    return (head if oldest is None or oldest["seq"] is None else oldest["seq"] - 1), head


def _is_for(client_id: str | None, head: Row) -> bool:
    if head["target"] is not None and head["target"] != client_id:
        return False
    return head["kind"] not in SIGNALS or head["status"] == SIGNALS[head["kind"]]


def _payload(transaction: Transaction, project_id: str, head: Row) -> str:
    row = transaction.execute(
        "SELECT payload FROM events WHERE project_id = :project_id AND seq = :seq",
        {"project_id": project_id, "seq": head["seq"]},
    ).fetchone()
    payload: str = row["payload"] if row else "{}"
    if head["kind"] not in SIGNALS:
        return payload
    execution = transaction.execute(
        "SELECT true_params FROM tool_executions WHERE id = :id", {"id": head["ref"]}
    ).fetchone()
    return _with_params(payload, execution["true_params"] if execution else None)


def _with_params(payload: str, true_params: str | None) -> str:
    signal: dict[str, Any] = json.loads(payload)
    signal["tool_params"] = json.loads(true_params or "{}")
    if signal["kind"] == "tool.inspection_request":
        signal["tool_params"] = inspected_params(signal["tool_name"], signal["tool_params"])
    return json.dumps(signal, separators=(",", ":"))
