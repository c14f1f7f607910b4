"""Whole conversations, as a person sees them: renamed, found, deleted, and what their calls changed.

A deleted conversation loses its title, its messages, its runs with all that the agent remembered, and what the feed
told of them; the chain gets the digest of each removed row. Its calls, questions and grants stay: they are what the
chain proves. Its session stays without a title, since they refer to it. Nothing is deleted while an agent works in it.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.events import SessionChanged
from byleave.protocol.executions import OWN_LISTINGS
from byleave.protocol.wire import Timestamp

from .chat import NOT_DELETED, SESSION_COLUMNS, load_session
from .database import Database, Hint, Row, Transaction
from .grants import revoke_all_of
from .ledger import ERASED, Ledger, row_digest
from .records import SessionRow, session_row
from .transitions import OPEN

SESSIONS_TOPIC = "sessions"
"""The topic for a session that a person changed."""
SEARCHED_AT_ONCE = 200
MOST_SEARCHED = 50_000
MOST_FOUND = 50
EXCERPT_CHARACTERS = 160
ERASED_AT_ONCE = 100
"""Rows in one link, and in memory."""
MOST_CHANGES = 2000
SAID = {"chat.message": "content", "chat.text": "text", "chat.error": "message"}
"""Events that hold what was said, and where."""


class Found(NamedTuple):
    """A conversation that a search found."""

    session: SessionRow
    messages: int
    """Number of messages that hold the text."""
    excerpt: str | None
    """A part of the newest of them; None if only the title holds it."""


class Search(NamedTuple):
    """What was found, newest conversations first."""

    found: list[Found]
    complete: bool
    """False if there is more to look through, or more was found."""


class ChangingCall(NamedTuple):
    """A call that may have changed something, as its record has it."""

    id: str
    tool_name: str
    params: Mapping[str, object]
    """Without a write's content."""
    result: Mapping[str, object] | None
    bound: Mapping[str, str]
    status: str
    client_id: str | None
    created_at: Timestamp


class Conversations:
    """The transactions of whole conversations."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # The text of a write may be as large as a file.
        self._call_columns = (
            "id, tool_name, "
            f"CASE tool_name WHEN 'write_file' THEN {database.shortened('tool_params', ('content',))} "
            "ELSE tool_params END AS tool_params, "
            f"CASE tool_name WHEN 'execute_command' THEN {database.shortened('result', ('stdout', 'stderr'))} "
            "ELSE NULL END AS result, bound, status, client_id, created_at"
        )

    async def rename(self, user_id: str, session_id: str, title: str) -> SessionRow:
        """Give a conversation another title."""

        def work(transaction: Transaction) -> SessionRow:
            session = load_session(transaction, session_id, user_id)
            with Ledger(transaction, session.project_id) as ledger:
                row = _retitle(ledger, session, title)
                ledger.event(
                    SessionChanged(timestamp=transaction.now, session_id=session.id, title=title, deleted=False)
                )
                ledger.audit("session_renamed", f"user:{user_id}", session=session.id)
            transaction.hints.append(Hint(SESSIONS_TOPIC))
            return row

        return await self._database.write(work)

    async def delete(self, user_id: str, session_id: str) -> None:
        """Delete a conversation; raise ConflictError while an agent works in it."""

        def work(transaction: Transaction) -> None:
            session = load_session(transaction, session_id, user_id)
            if _is_at_work(transaction, session):
                raise ConflictError(
                    "An agent is at work in this conversation, so it was not deleted.",
                    state="working",
                    hint="Stop the agent or wait until it is done, then delete the conversation.",
                )
            actor = f"user:{user_id}"
            with Ledger(transaction, session.project_id) as ledger:
                # An agent's own may begin again under its id.
                revoke_all_of(ledger, session.id, actor)
                _retitle(ledger, session, "")
                ledger.event(SessionChanged(timestamp=transaction.now, session_id=session.id, title="", deleted=True))
                ledger.audit("conversation_deleted", actor, session=session.id)
            of_it = {"id": session.id, "now": transaction.now}
            transaction.execute("INSERT INTO deleted_sessions (session_id, deleted_at) VALUES (:id, :now)", of_it)
            transaction.execute(
                "DELETE FROM message_keys WHERE message_id IN (SELECT id FROM messages WHERE session_id = :id)", of_it
            )
            transaction.execute("DELETE FROM run_models WHERE session_id = :id", of_it)
            for table in ("messages", "runs"):
                _erase(transaction, session, table, actor)
            _silence(transaction, session)
            transaction.hints.append(Hint(SESSIONS_TOPIC))

        await self._database.write(work, heavy=True)

    async def search(self, user_id: str, project_id: str, text: str) -> Search:
        """Find conversations by their titles and messages, whatever the case and the blanks between words."""
        wanted = _pattern(text)
        sessions = await self._database.read(lambda transaction: _sessions(transaction, user_id, project_id))
        matches: dict[str, list[_Match]] = {}
        after, looked = "", 0
        while looked < MOST_SEARCHED:
            found, following = await self._database.read(
                partial(_messages, project_id=project_id, after=after, wanted=wanted)
            )
            for match in found:
                matches.setdefault(match.session_id, []).append(match)
            if following is None:
                break
            after, looked = following, looked + SEARCHED_AT_ONCE
        fitting = [session for session in sessions if session.id in matches or wanted(session.title)]
        complete = looked < MOST_SEARCHED and len(fitting) <= MOST_FOUND
        return Search([_found(session, matches.get(session.id, [])) for session in fitting[:MOST_FOUND]], complete)

    async def is_at_work(self, user_id: str, session_id: str) -> bool:
        """True if an agent has a run or a call open in it."""
        return await self._database.read(
            lambda transaction: _is_at_work(transaction, load_session(transaction, session_id, user_id))
        )

    async def changing_calls(self, user_id: str, session_id: str) -> tuple[list[ChangingCall], bool]:
        """The newest calls of a conversation that ran and may have changed something, oldest first; True if these are
        all."""

        def work(transaction: Transaction) -> tuple[list[ChangingCall], bool]:
            session = load_session(transaction, session_id, user_id)
            rows = transaction.execute(
                f"SELECT {self._call_columns} FROM tool_executions WHERE session_id = :id AND risk_level <> 'LOW' "  # noqa: S608 - our own words
                "AND user_id = :user_id AND tool_name IN ('write_file', 'execute_command') AND started_at IS NOT NULL "
                "ORDER BY created_at DESC, id DESC LIMIT :most",
                {"id": session.id, "user_id": session.user_id, "most": MOST_CHANGES + 1},
            ).fetchall()
            return [_changing_call(row) for row in reversed(rows[:MOST_CHANGES])], len(rows) <= MOST_CHANGES

        return await self._database.read(work)


# Inside a transaction


def _retitle(ledger: Ledger, session: SessionRow, title: str) -> SessionRow:
    row = ledger.update(
        "sessions",
        "UPDATE sessions SET title = :title WHERE id = :id RETURNING *",
        {"id": session.id, "title": title},
    )
    if row is None:
        raise NotFound(f"No session {session.id!r}.")
    return session_row(row)


def _is_at_work(transaction: Transaction, session: SessionRow) -> bool:
    values = {"id": session.id, "project_id": session.project_id}
    works = transaction.execute(
        "SELECT 1 FROM runs WHERE session_id = :id AND state IN ('READY', 'RUNNING', 'WAITING') LIMIT 1", values
    ).fetchone()
    calls = transaction.execute(
        f"SELECT 1 FROM tool_executions WHERE project_id = :project_id AND session_id = :id AND {OPEN} LIMIT 1",  # noqa: S608 - our own words
        values,
    ).fetchone()
    return works is not None or calls is not None


def _erase(transaction: Transaction, session: SessionRow, table: str, actor: str) -> None:
    """Remove a session's rows from a table; links of their own tell the chain which they were."""
    while rows := transaction.execute(
        f"SELECT * FROM {table} WHERE session_id = :id ORDER BY position LIMIT :most",  # noqa: S608 - our own names
        {"id": session.id, "most": ERASED_AT_ONCE},
    ).fetchall():
        was = {f"{table}/{row['id']}": row_digest(table, row) for row in rows}
        transaction.execute(
            f"DELETE FROM {table} WHERE session_id = :id AND position <= :last",  # noqa: S608 - our own names
            {"id": session.id, "last": rows[-1]["position"]},
        )
        with Ledger(transaction, session.project_id) as ledger:
            ledger.audit(ERASED, actor, session=session.id, was=was)


def _silence(transaction: Transaction, session: SessionRow) -> None:
    """Leave the feed's events in their order, without what was said."""
    after = 0
    while rows := transaction.execute(
        "SELECT seq, kind, payload FROM events WHERE project_id = :project_id AND seq > :after "
        "AND kind IN ('chat.message', 'chat.text', 'chat.error') AND payload LIKE :mark ORDER BY seq LIMIT :most",
        {
            "project_id": session.project_id,
            "after": after,
            "mark": f'%"session_id":"{session.id}"%',
            "most": ERASED_AT_ONCE,
        },
    ).fetchall():
        after = rows[-1]["seq"]
        for row in rows:
            event = json.loads(row["payload"])
            if event["session_id"] == session.id:
                transaction.change(
                    "UPDATE events SET payload = :payload WHERE project_id = :project_id AND seq = :seq",
                    {
                        "project_id": session.project_id,
                        "seq": row["seq"],
                        "payload": json.dumps({**event, SAID[row["kind"]]: ""}, separators=(",", ":")),
                    },
                )


def _sessions(transaction: Transaction, user_id: str, project_id: str) -> list[SessionRow]:
    """All conversations of a project, newest first."""
    rows = transaction.execute(
        f"SELECT {SESSION_COLUMNS} FROM sessions WHERE project_id = :project_id AND user_id = :user_id "  # noqa: S608 - column names are ours
        f"AND {NOT_DELETED} AND id NOT LIKE :listings ORDER BY created_at DESC, id",
        {"project_id": project_id, "user_id": user_id, "listings": f"{OWN_LISTINGS}%"},
    ).fetchall()
    return [session_row(row) for row in rows]


class _Match(NamedTuple):
    """A message that holds the text."""

    session_id: str
    position: int
    excerpt: str


Finder = Callable[[str], re.Match[str] | None]


def _pattern(text: str) -> Finder:
    return re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE).search


def _messages(transaction: Transaction, project_id: str, after: str, wanted: Finder) -> tuple[list[_Match], str | None]:
    """Look through the next messages; return those that hold the text, and the id to go on from, None at the end."""
    rows = transaction.execute(
        "SELECT id, session_id, content, position FROM messages WHERE project_id = :project_id AND id > :after "
        "ORDER BY id LIMIT :most",
        {"project_id": project_id, "after": after, "most": SEARCHED_AT_ONCE},
    ).fetchall()
    found = [
        _Match(row["session_id"], row["position"], _excerpt(row["content"], match))
        for row in rows
        if (match := wanted(row["content"])) is not None
    ]
    return found, rows[-1]["id"] if len(rows) == SEARCHED_AT_ONCE else None


def _found(session: SessionRow, matches: list[_Match]) -> Found:
    newest = max(matches, key=lambda match: match.position, default=None)
    return Found(session, len(matches), newest.excerpt if newest else None)


def _excerpt(content: str, match: re.Match[str]) -> str:
    """The text around a match, on one line."""
    around = max(0, (EXCERPT_CHARACTERS - (match.end() - match.start())) // 2)
    start, end = max(0, match.start() - around), min(len(content), match.start() + EXCERPT_CHARACTERS - around)
    words = " ".join(content[start:end].split())
    return f"{'…' if start else ''}{words}{'…' if end < len(content) else ''}"


def _changing_call(row: Row) -> ChangingCall:
    return ChangingCall(
        row["id"],
        row["tool_name"],
        json.loads(row["tool_params"]),
        json.loads(row["result"]) if row["result"] else None,
        json.loads(row["bound"]) if row["bound"] else {},
        row["status"],
        row["client_id"],
        row["created_at"],
    )
