"""Retention: removes old calls with their questions, and old events, in small transactions.

Open calls, pending questions and everything else stay, however old. So do ended calls and answered questions that a
later decision needs: calls of a run that is not over, the newest changes that no person has looked at, the question at
which a person last looked, and the question of a grant in force. The audit chain stays whole: a link `pruned` names
every removed row with the digest it had, so that verification tells a pruned row from one that somebody deleted.

Candidates are found on the threads that read; each step then looks again at its few rows, inside the transaction that
removes them. Every step is whole: stopping between two of them leaves a record that verifies.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field

from byleave.protocol.wire import later

from .database import Database, Row, Space, Transaction
from .ledger import PRUNED, Feed, Ledger, row_digest
from .transitions import OPEN

STEP_ROWS = 25
"""Most calls or questions of one step: a few milliseconds on the event loop, in a record of any length."""
STEP_EVENTS = 200
STEP_CHARACTERS = 256 * 1024
"""A step with more text than this holds one row, and gets a thread to itself."""
LOOKED_AT = 500
"""Rows of one read."""
UNREVIEWED_KEPT = 50
"""Newest unreviewed changes that are kept, of each project and tool; `calls.grants` looks at no more."""
CHANGING_TOOLS = ("write_file", "execute_command")
YOUNGEST_SECONDS = 24 * 3600
"""A limit of size removes nothing younger than this."""
LEAST_FACTOR = 0.01
"""Texts are stored at no less than this part of their length, however well they can be compressed."""
PASSES = 20
"""A limit of size removes about this share of all calls before it looks for the next oldest."""

ENDED = (
    f"NOT x.{OPEN} AND x.completed_at < :before AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = "  # noqa: S608 - our own words
    "x.run_id AND runs.state IN ('READY', 'RUNNING', 'WAITING'))"
)
"""A call that may go: it ended before the moment, and no run will ask for its result."""
ANSWERED = (
    "a.status <> 'pending' AND a.decided_at < :before AND NOT EXISTS (SELECT 1 FROM grants WHERE "
    "grants.id = a.grant_id AND grants.approval_id = a.id AND grants.revoked_at IS NULL AND grants.expires_at > :now)"
)
"""A question that may go, once none of its calls is left."""
SIZE_OF_CALL = (
    "length(x.tool_params) + length(x.findings) + coalesce(length(x.result), 0) + coalesce(length(x.bound), 0)"
)
SIZE_OF_QUESTION = (
    "length(a.tool_params) + length(a.findings) + length(a.description) + coalesce(length(a.inspection), 0) "
    "+ coalesce(length(a.suggestions), 0) + coalesce((SELECT t.size FROM replaced_texts AS t "
    "WHERE t.approval_id = a.id), 0)"
)
ROW_BYTES = 800
"""About what a call or question takes beside its texts, with its share of the indexes."""
EVENT_BYTES = 120
SIZES = (
    f"SELECT x.id AS place, {SIZE_OF_CALL} + coalesce(length(x.true_params), 0) "  # noqa: S608 - our own words
    f"+ coalesce(length(x.asked_params), 0) + coalesce(length(x.edit), 0) + {ROW_BYTES} AS size "
    "FROM tool_executions AS x WHERE x.project_id = :project_id AND x.id > :after ORDER BY x.id LIMIT :most",
    f"SELECT a.id AS place, {SIZE_OF_QUESTION} + {ROW_BYTES} AS size FROM approvals AS a "  # noqa: S608 - our own words
    "WHERE a.project_id = :project_id AND a.id > :after ORDER BY a.id LIMIT :most",
    f"SELECT e.seq AS place, length(e.payload) + {EVENT_BYTES} AS size FROM events AS e "  # noqa: S608 - our own words
    "WHERE e.project_id = :project_id AND e.seq > :after ORDER BY e.seq LIMIT :most",
)
"""What a project's calls, questions and events take, in pages: what pruning may remove, and what a call holds until it
ends."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Numbers of removed rows, or of rows that would be removed."""

    calls: int = 0
    approvals: int = 0
    events: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.calls + other.calls, self.approvals + other.approvals, self.events + other.events)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Rows that pruning would remove."""

    removed: Removed = Removed()
    oldest: str | None = None
    newest: str | None = None
    """Beginning of the first and the last of them; None if there is nothing to remove."""
    bytes: int = 0
    """About how much of the file it takes."""

    def with_more(self, removed: Removed, times: Iterable[str | None], size: int) -> "Outlook":
        known = [time for time in (self.oldest, self.newest, *times) if time is not None]
        return Outlook(self.removed + removed, min(known, default=None), max(known, default=None), self.bytes + size)


@dataclass(frozen=True, slots=True)
class _Found:
    """A row that may go."""

    id: str
    project_id: str
    at: str
    size: int
    approval_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """Rows of all projects that stay because a later decision needs them."""

    calls: frozenset[str] = frozenset()
    approvals: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Step:
    """Rows that one transaction removes."""

    rows: list[_Found] = field(default_factory=list[_Found])
    size: int = 0

    @property
    def heavy(self) -> bool:
        return self.size > STEP_CHARACTERS


class Retention:
    """Removes old rows, and gives back their room."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feed = Feed(database)

    async def moment(self, seconds: float) -> str:
        """The moment so many seconds ago, by the record's clock."""
        return await self._database.read(lambda transaction: later(transaction.now, -seconds))

    async def space(self, above: int = 0) -> Space:
        return await self._database.space(above)

    async def shares(self) -> AsyncIterator[tuple[str, int]]:
        """About the bytes of each user's calls, questions and events, as parts to add up: one after each look."""
        owners = await self._database.read(
            lambda transaction: transaction.execute("SELECT id, user_id FROM projects ORDER BY user_id, id").fetchall()
        )
        for owner in owners:
            for sql, first in zip(SIZES, ("", "", 0), strict=True):
                place: str | int | None = first
                while place is not None:
                    size, place = await self._database.read(
                        lambda transaction, sql=sql, ids=(owner["id"], place): _sizes(transaction, sql, *ids)
                    )
                    yield owner["user_id"], size

    async def outlook(self, before: str) -> Outlook:
        """Count what `prune` would remove, without changing anything."""
        found, kept = Outlook(), await self._kept()
        async for calls in self._calls(before, kept):
            size = sum(call.size + ROW_BYTES for call in calls)
            found = found.with_more(Removed(calls=len(calls)), (call.at for call in calls), size)
        async for approvals in self._approvals(before, kept):
            size = sum(approval.size + ROW_BYTES for approval in approvals)
            found = found.with_more(Removed(approvals=len(approvals)), (each.at for each in approvals), size)
        for project_id in await self._projects():
            last = await self._feed.before(project_id, before)
            row = await self._database.read(
                lambda transaction, ids=(project_id, last): _events_until(transaction, *ids)
            )
            if row is not None and row["events"]:
                size = row["size"] + row["events"] * EVENT_BYTES
                found = found.with_more(Removed(events=row["events"]), (row["oldest"], row["newest"]), size)
        return found

    async def prune(self, before: str, *, actor: str = "server") -> AsyncIterator[Removed]:
        """Remove what ended before a moment; yields what each committed step removed, and after each look."""
        async for removed, _ in self._prune(before, actor):
            yield removed

    async def _prune(self, before: str, actor: str) -> AsyncIterator[tuple[Removed, int]]:
        """The same, with about how much room each step made."""
        kept = await self._kept()
        async for calls in self._calls(before, kept):
            for step in _steps(calls):
                removed = await self._database.write(
                    lambda transaction, step=step: _remove_calls(transaction, step.rows, before, kept, actor),
                    relaxed=True,  # a removal that a power cut undoes is done again
                    heavy=step.heavy,
                )
                yield removed, step.size + (removed.calls + removed.approvals) * ROW_BYTES
            yield Removed(), 0
        for project_id in await self._projects():
            gone, last = (await self._feed.span(project_id))[0], await self._feed.before(project_id, before)
            while gone < last:
                upto = min(last, gone + STEP_EVENTS)  # numbers have no gaps
                events = await self._database.write(
                    lambda transaction, ids=(project_id, upto): _remove_events(transaction, *ids), relaxed=True
                )
                gone = upto
                yield Removed(events=events), events * EVENT_BYTES
        async for approvals in self._approvals(before, kept):
            for step in _steps(approvals):
                removed = await self._database.write(
                    lambda transaction, step=step: _remove_answered(transaction, step.rows, before, actor),
                    relaxed=True,
                    heavy=step.heavy,
                )
                yield removed, step.size + removed.approvals * ROW_BYTES
            yield Removed(), 0

    async def prune_to(self, most_bytes: int, *, actor: str = "server") -> AsyncIterator[Removed]:
        """Remove the oldest until the record fits, but nothing of the last day; yields as `prune` does."""
        youngest, before = await self.moment(YOUNGEST_SECONDS), ""
        over, made, factor = await self._over(most_bytes), 0, 1.0
        while before < youngest and over > 0:
            before = await self._database.read(
                lambda transaction, after=before: _next_oldest(transaction, after, youngest)
            )
            async for removed, size in self._prune(before, actor):
                yield removed
                made += size
                # Measuring may take long, and what a step makes room for is a guess: correct that each time.
                if made and made * factor >= over:
                    was, over = over, await self._over(most_bytes)
                    if over <= 0:
                        return
                    factor, made = max((was - over) / made, LEAST_FACTOR), 0
            over, made = await self._over(most_bytes), 0

    async def _over(self, most_bytes: int) -> int:
        return (await self.space(most_bytes)).used - most_bytes

    async def give_back(self, *, keep_bytes: int = 0) -> int:
        """Give some free pages back to the disk; returns the pages that can still be given back."""
        return await self._database.give_back(keep_bytes)

    async def rewrite(self) -> None:
        """Write the file anew without its free pages, for a record that cannot give them back in steps."""
        await self._database.rewrite()

    async def _kept(self) -> _Kept:
        kept = _Kept()
        for project_id in await self._projects():
            more = await self._database.read(lambda transaction, place=project_id: _needed(transaction, place))
            kept = _Kept(kept.calls | more.calls, kept.approvals | more.approvals)
        return kept

    async def _projects(self) -> list[str]:
        rows = await self._database.read(
            lambda transaction: transaction.execute("SELECT id FROM projects ORDER BY id").fetchall()
        )
        return [row["id"] for row in rows]

    async def _calls(self, before: str, kept: _Kept) -> AsyncIterator[list[_Found]]:
        """Calls that may go, each user's oldest first."""
        user = await self._database.read(lambda transaction: _next_user(transaction, ""))
        while user is not None:
            place: tuple[str, str] | None = ("", "")
            while place is not None:
                found, place = await self._database.read(
                    lambda transaction, user=user, place=place: _ended_calls(transaction, user, place, before)
                )
                yield [call for call in found if call.id not in kept.calls]
            user = await self._database.read(lambda transaction, user=user: _next_user(transaction, user))

    async def _approvals(self, before: str, kept: _Kept) -> AsyncIterator[list[_Found]]:
        """Questions that may go: those all of whose calls are gone, or may go too."""
        for project_id in await self._projects():
            after: str | None = ""
            while after is not None:
                found, after = await self._database.read(
                    lambda transaction, place=project_id, after=after: _answered(transaction, place, after, before)
                )
                yield [approval for approval in found if approval.id not in kept.approvals]


def _steps(rows: list[_Found]) -> Iterable[_Step]:
    step = _Step()
    for row in rows:
        if step.rows and (len(step.rows) == STEP_ROWS or step.size + row.size > STEP_CHARACTERS):
            yield step
            step = _Step()
        step.rows.append(row)
        step.size += row.size
    if step.rows:
        yield step


# Inside a transaction


def _needed(transaction: Transaction, project_id: str) -> _Kept:
    """Rows that tell which changes of a project no person has looked at; see `calls.grants.unreviewed_changes`."""
    review = transaction.execute(
        "SELECT id, created_at FROM approvals WHERE project_id = :project_id AND unseen IS NOT NULL "
        "AND status = 'approved' AND decided_by LIKE 'person:%' ORDER BY created_at DESC LIMIT 1",
        {"project_id": project_id},
    ).fetchone()
    calls: list[Row] = []
    for tool in CHANGING_TOOLS:
        calls += transaction.execute(
            "SELECT id, approval_id FROM tool_executions WHERE project_id = :project_id AND tool_name = :tool "
            "AND risk_level <> 'LOW' AND approved_at >= :since AND substr(approved_by, 1, 7) <> 'person:' "
            "ORDER BY approved_at DESC LIMIT :most",
            {
                "project_id": project_id,
                "tool": tool,
                "since": review["created_at"] if review else "",
                "most": UNREVIEWED_KEPT,
            },
        ).fetchall()
    asked = {call["approval_id"] for call in calls if call["approval_id"]} | ({review["id"]} if review else set[str]())
    return _Kept(frozenset(call["id"] for call in calls), frozenset(asked))


def _next_user(transaction: Transaction, after: str) -> str | None:
    row = transaction.execute(
        "SELECT user_id FROM tool_executions WHERE user_id > :after ORDER BY user_id LIMIT 1", {"after": after}
    ).fetchone()
    return row["user_id"] if row else None


def _ended_calls(
    transaction: Transaction, user_id: str, place: tuple[str, str], before: str
) -> tuple[list[_Found], tuple[str, str] | None]:
    """Some of a user's calls that may go, and where to look on; None at the end."""
    rows = transaction.execute(
        f"SELECT x.id, x.project_id, x.approval_id, x.created_at, {SIZE_OF_CALL} AS size, {ENDED} AS ended "  # noqa: S608 - our own words
        "FROM tool_executions AS x WHERE x.user_id = :user_id AND (x.created_at, x.id) > (:created_at, :id) "
        "AND x.created_at < :before ORDER BY x.created_at, x.id LIMIT :most",
        {"user_id": user_id, "created_at": place[0], "id": place[1], "before": before, "most": LOOKED_AT},
    ).fetchall()
    found = [
        _Found(row["id"], row["project_id"], row["created_at"], row["size"], row["approval_id"])
        for row in rows
        if row["ended"]
    ]
    return found, (rows[-1]["created_at"], rows[-1]["id"]) if len(rows) == LOOKED_AT else None


def _sizes(transaction: Transaction, sql: str, project_id: str, after: str | int) -> tuple[int, str | int | None]:
    """The size of some rows of a project, and where to look on; None at the end."""
    rows = transaction.execute(sql, {"project_id": project_id, "after": after, "most": LOOKED_AT}).fetchall()
    return sum(row["size"] for row in rows), rows[-1]["place"] if len(rows) == LOOKED_AT else None


def _answered(transaction: Transaction, project_id: str, after: str, before: str) -> tuple[list[_Found], str | None]:
    """Some of a project's questions that may go, and the id to look on from; None at the end."""
    rows = transaction.execute(
        f"SELECT a.id, a.created_at, {ANSWERED} AND NOT EXISTS (SELECT 1 FROM tool_executions AS x "  # noqa: S608 - our own words
        f"WHERE x.approval_id = a.id AND NOT ({ENDED})) AS goes, "
        f"CASE WHEN a.decided_at < :before THEN {SIZE_OF_QUESTION} ELSE 0 END AS size FROM approvals AS a "
        "WHERE a.project_id = :project_id AND a.id > :after ORDER BY a.id LIMIT :most",
        {"project_id": project_id, "after": after, "before": before, "now": transaction.now, "most": LOOKED_AT},
    ).fetchall()
    found = [_Found(row["id"], project_id, row["created_at"], row["size"]) for row in rows if row["goes"]]
    return found, rows[-1]["id"] if len(rows) == LOOKED_AT else None


def _remove_calls(transaction: Transaction, calls: list[_Found], before: str, kept: _Kept, actor: str) -> Removed:
    """Remove these calls, unless they changed since they were found, and the questions that only they had."""
    removed = Removed()
    for project_id, some in _by_project(calls).items():
        was: dict[str, str] = {}
        for call in some:
            row = transaction.execute(
                f"SELECT * FROM tool_executions AS x WHERE x.id = :id AND {ENDED}",  # noqa: S608 - our own words
                {"id": call.id, "before": before},
            ).fetchone()
            if row is not None:
                was[f"tool_executions/{call.id}"] = row_digest("tool_executions", row)
                transaction.execute("DELETE FROM tool_executions WHERE id = :id", {"id": call.id})
        asked = {call.approval_id for call in some if call.approval_id} - kept.approvals
        answered = _take_answered(transaction, sorted(asked), before)
        _tell(transaction, project_id, was | answered, before, actor)
        removed += Removed(calls=len(was), approvals=len(answered))
    return removed


def _remove_answered(transaction: Transaction, approvals: list[_Found], before: str, actor: str) -> Removed:
    """Remove questions that have no call, unless they changed since they were found."""
    removed = Removed()
    for project_id, some in _by_project(approvals).items():
        was = _take_answered(transaction, [approval.id for approval in some], before)
        _tell(transaction, project_id, was, before, actor)
        removed += Removed(approvals=len(was))
    return removed


def _take_answered(transaction: Transaction, approval_ids: Iterable[str], before: str) -> dict[str, str]:
    """Delete those that are answered and have no call left; return their digests."""
    was: dict[str, str] = {}
    for approval_id in approval_ids:
        row = transaction.execute(
            f"SELECT * FROM approvals AS a WHERE a.id = :id AND {ANSWERED} "  # noqa: S608 - our own words
            "AND NOT EXISTS (SELECT 1 FROM tool_executions WHERE approval_id = a.id)",
            {"id": approval_id, "before": before, "now": transaction.now},
        ).fetchone()
        if row is not None:
            was[f"approvals/{approval_id}"] = row_digest("approvals", row)
            transaction.execute("DELETE FROM replaced_texts WHERE approval_id = :id", {"id": approval_id})
            transaction.execute("DELETE FROM approvals WHERE id = :id", {"id": approval_id})
    return was


def _tell(transaction: Transaction, project_id: str, was: Mapping[str, str], before: str, actor: str) -> None:
    if was:
        with Ledger(transaction, project_id) as ledger:
            ledger.audit(PRUNED, actor, before=before, was=dict(was))


def _remove_events(transaction: Transaction, project_id: str, last: int) -> int:
    return transaction.execute(
        "DELETE FROM events WHERE project_id = :project_id AND seq <= :last",
        {"project_id": project_id, "last": last},
    ).rowcount


def _events_until(transaction: Transaction, project_id: str, last: int) -> Row | None:
    return transaction.execute(
        "SELECT count(*) AS events, min(created_at) AS oldest, max(created_at) AS newest, "
        "coalesce(sum(length(payload)), 0) AS size FROM events WHERE project_id = :project_id AND seq <= :last",
        {"project_id": project_id, "last": last},
    ).fetchone()


def _next_oldest(transaction: Transaction, after: str, youngest: str) -> str:
    """A moment before which about one of `PASSES` of the calls since `after` began; `youngest` at the latest."""
    row = transaction.execute(
        "SELECT created_at FROM tool_executions WHERE created_at > :after AND created_at < :youngest "
        "ORDER BY created_at LIMIT 1 OFFSET (SELECT CASE WHEN count(*) / :passes > :least "
        "THEN count(*) / :passes ELSE :least END FROM tool_executions)",
        {"after": after, "youngest": youngest, "least": LOOKED_AT, "passes": PASSES},
    ).fetchone()
    return row["created_at"] if row else youngest


def _by_project(rows: list[_Found]) -> dict[str, list[_Found]]:
    found: dict[str, list[_Found]] = {}
    for row in rows:
        found.setdefault(row.project_id, []).append(row)
    return found
