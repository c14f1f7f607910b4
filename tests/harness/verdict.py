"""What a drill has to show in the end: the account of its load, compared with the record and the files.

Every accepted call ended, in the record as its caller was told. Each line is in its file as often as the end of its
call says: once if it completed, never if it was not run, and at most once if that is not known. Every feed arrived
whole: no number missing, none twice, each event as the record has it. Nothing is open, and nothing is there that
nobody asked for.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from byleave.protocol.states import RunState

from .load import Account, Call, Event, Place

LINE = re.compile(r"L-[\w-]+\.")
MOST_FAULTS = 30
NEVER_RAN = frozenset({"rejected", "approval_timeout", "no_client", "drifted"})
NOT_KNOWN = frozenset({"interrupted", "execution_timeout", "cancelled"})
"""Ends after which a call may have had its effect: the client died, fell silent or was told to stop."""
GIVEN_UP = "This message was given up"
READ_LATER = "Its client reported later: it completed"
CALLS = (
    "SELECT id, project_id, run_id, tool_name, tool_params, status, error, error_type, approved_at, result "
    "FROM tool_executions"
)


class Record:
    """The record's rows, read behind the servers' backs."""

    def __init__(self, url: str) -> None:
        self._url = url

    def rows(self, statement: str) -> Sequence[Any]:
        path = self._url.removeprefix("sqlite:///")
        if path != self._url:
            with closing(sqlite3.connect(path)) as connection:
                return connection.execute(statement).fetchall()
        import psycopg  # not for drills that need no server

        with psycopg.connect(self._url) as connection:
            return connection.execute(statement.encode()).fetchall()

    def head(self, project_id: str) -> int:
        """The number of a project's newest event for everybody."""
        return self.rows(f"SELECT max(seq) FROM events WHERE project_id = '{project_id}' AND target IS NULL")[0][0] or 0

    def events(self, project_id: str) -> list[Event]:
        """A project's events for everybody, in order."""
        found = self.rows(
            f"SELECT seq, kind, payload FROM events WHERE project_id = '{project_id}' AND target IS NULL ORDER BY seq"
        )
        return [Event(*row) for row in found]


def faults(account: Account, record: Record, places: Sequence[Place]) -> list[str]:
    """All that was not as promised, in words; empty if nothing was."""
    found = [
        *account.faults,
        *_open_faults(record),
        *_feed_faults(account, record),
        *_decision_faults(account, record),
        *_call_faults(account, record, places),
    ]
    left_out = [f"… and {len(found) - MOST_FAULTS} more"] if len(found) > MOST_FAULTS else []
    return found[:MOST_FAULTS] + left_out


def _open_faults(record: Record) -> Iterator[str]:
    for what, statement in (
        (
            "call",
            "SELECT id, status FROM tool_executions WHERE status NOT IN ('COMPLETED', 'REJECTED', 'TIMEOUT', 'FAILED')",
        ),
        ("question", "SELECT id, status FROM approvals WHERE status = 'pending'"),
        ("run", "SELECT id, state FROM runs WHERE state NOT IN ('DONE', 'FAILED')"),
    ):
        for name, state in record.rows(statement):
            yield f"{what} {name} is still {state.lower()}"


def _feed_faults(account: Account, record: Record) -> Iterator[str]:
    for project_id, first, last, count in record.rows(
        "SELECT project_id, min(seq), max(seq), count(*) FROM events GROUP BY project_id"
    ):
        if (first, last) != (1, count):
            yield f"the events of {project_id} have a gap: {count} numbers from {first} to {last}"
    for project_id, seen in account.seen.items():
        kept = record.events(project_id)
        missed = sorted(set(kept) - set(seen))
        foreign = sorted(set(seen) - set(kept))
        yield from (f"a watcher never got event {event.seq} ({event.kind}) of {project_id}" for event in missed)
        yield from (f"a watcher got event {event.seq} ({event.kind}) of {project_id}, which the record does not have "
                    for event in foreign)  # fmt: skip
        if not missed and not foreign and kept != seen:
            yield f"a watcher got the events of {project_id} in another order"


def _decision_faults(account: Account, record: Record) -> Iterator[str]:
    kept = dict(record.rows("SELECT id, status FROM approvals"))
    for approval_id, decision in account.decisions.items():
        if kept.get(approval_id) != decision:
            yield f"the answer to {approval_id} was acknowledged as {decision}, and is {kept.get(approval_id)}"


def _call_faults(account: Account, record: Record, places: Sequence[Place]) -> Iterator[str]:
    written = Counter(line for place in places for line in _lines(place.workspace))
    rows = {row[0]: row for row in record.rows(CALLS)}
    by_run: dict[str, list[Any]] = {}
    for row in rows.values():
        if row[2] is not None:
            by_run.setdefault(row[2], []).append(row)
    asked: set[str] = set()
    runs = {row[0]: row[1] for row in record.rows("SELECT id, error FROM runs")}
    for call in account.calls:
        if call.run_id is not None:
            yield from _run_faults(call, runs, by_run.get(call.run_id, []))
            mine = by_run.get(call.run_id, [])
        else:
            mine = [rows[call.tool_id]] if call.tool_id in rows else []
            if call.tool_id is not None and not mine:
                yield f"{call.line} was accepted as {call.tool_id}, and is not in the record"
        if not call.is_over:
            yield f"{call.line} ({call.what}) never ended for its caller"
        asked.update(row[0] for row in mine)
        for row in mine:
            yield from _end_faults(call, row, written[call.line])
        if not mine and written[call.line]:
            yield f"{call.line} was written, and no call is in the record"
    yield from (f"{name} is in the record, and nobody asked for it" for name in rows.keys() - asked)
    yield from (
        f"{line} was written, and nobody asked for it" for line in written.keys() - {c.line for c in account.calls}
    )


def _run_faults(call: Call, runs: dict[str, str | None], rows: list[Any]) -> Iterator[str]:
    if call.run_id not in runs:
        yield f"{call.line} was accepted as {call.run_id}, and is not in the record"
        return
    error = runs[call.run_id] or ""
    if call.run_state is RunState.FAILED and not error.startswith(GIVEN_UP):
        yield f"run {call.run_id} failed: {error}"
    if len(rows) > 1:
        yield f"run {call.run_id} made {len(rows)} calls instead of one"
    if call.run_state is RunState.DONE and not rows:
        yield f"run {call.run_id} is done without its call"


def _end_faults(call: Call, row: Any, times: int) -> Iterator[str]:
    """Compare one row with what its caller was told, and with the files."""
    name, _, _, tool, _, status, error, error_type, approved_at, result = row
    if call.end is not None and call.end.status.name != status:
        yield f"{call.line} ended as {call.end.status}, and the record says {status.lower()}"
    if status == "COMPLETED":
        least, most = (1, 1) if tool != "read_file" else (0, 0)
        if tool == "execute_command" and '"exit_code":0' not in result.replace(" ", ""):
            yield f"{call.line}: the command failed: {result}"
            least = 0
    elif error_type in NEVER_RAN or (error_type == "cancelled" and approved_at is None):
        least, most = 0, 0
    elif error_type in NOT_KNOWN:
        least, most = (1 if READ_LATER in (error or "") else 0), 1
    else:
        yield f"{call.line} ({name}) ended as {status.lower()}, {error_type}: {error}"
        return
    if tool == "read_file":
        least = most = 0
    if not least <= times <= most:
        yield f"{call.line} ({name}) is {times} times in its file; it ended as {status.lower()}, {error_type}: {error}"


def _lines(workspace: Path) -> Iterator[str]:
    for path in workspace.glob("*.txt"):
        yield from LINE.findall(path.read_text())
