"""Projects, sessions and messages. A message opens a run in the same transaction, so neither exists alone.

A message that is sent again, because its answer was lost, is found by its sender's key. The key is stored in the
message's transaction: either both exist or neither. The same key finds the same message and never makes another; with
another message it is a conflict, and nothing is stored.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate
from uuid import UUID

from byleave.protocol.chat import CHAT_AGENT
from byleave.protocol.errors import ConflictError, NotFound
from byleave.protocol.events import ChatMessage, RunChanged
from byleave.protocol.executions import OWN_LISTINGS, PROGRAM, PROGRAM_WORDS
from byleave.protocol.states import AgentMode, RunState
from byleave.protocol.wire import Id, canonical_json, id_text, new_id

from .database import Database, Hint, Row, Transaction
from .ledger import Ledger, begin_chain
from .records import MessageRow, ProjectRow, SessionRow, columns, message_row, placeholders, project_row, session_row
from .transitions import RUNS_TOPIC


@dataclass(frozen=True, slots=True)
class MessageKey:
    """The sender's key of one message, and the digest of what was sent."""

    key: str
    digest: str
    session_id: str | None
    """As sent: None asks for a new session."""

    @classmethod
    def of(cls, key: str, session_id: str | None, **sent: str | None) -> "MessageKey":
        return cls(key, hashlib.sha256(canonical_json(sent).encode("ascii")).hexdigest(), session_id)


def sent_before(transaction: Transaction, user_id: str, project_id: str, key: MessageKey) -> Row | None:
    """The message that was sent under this key: its id, session and run."""
    row = transaction.execute(
        "SELECT message_keys.digest, message_keys.session_id AS asked_session, messages.id, messages.session_id, "
        "messages.run_id FROM message_keys JOIN messages ON messages.id = message_keys.message_id "
        "WHERE message_keys.project_id = :project_id AND message_keys.user_id = :user_id AND client_key = :key",
        {"project_id": project_id, "user_id": user_id, "key": key.key},
    ).fetchone()
    # A sender who gave no session may have learned the one it opened by now.
    if row is not None and (
        row["digest"] != key.digest or key.session_id not in (row["asked_session"], row["session_id"])
    ):
        raise ConflictError(
            f"Another message was sent under the key {key.key!r}.",
            state="sent",
            hint="It was kept. Give each message a key of its own, and send the same message again under its key.",
        )
    return row


def remember(transaction: Transaction, user_id: str, project_id: str, key: MessageKey, message_id: str) -> None:
    """Store the key of a message."""
    transaction.execute(
        "INSERT INTO message_keys (project_id, user_id, client_key, digest, session_id, message_id) "
        "VALUES (:project_id, :user_id, :key, :digest, :session_id, :message_id)",
        {
            "project_id": project_id,
            "user_id": user_id,
            "key": key.key,
            "digest": key.digest,
            "session_id": key.session_id,
            "message_id": message_id,
        },
    )


TITLE_CHARACTERS = 80
MOST_OWNERS = 10_000
MOST_SESSIONS = 1000
"""Most sessions cached: enough for the active ones, not for those that wait."""
PAGE_CHARACTERS = 2 * 1024 * 1024
"""A page of messages ends before it has more, but for a first message."""
BEYOND = 2**63 - 1
"""A position no message has."""

PROJECT_COLUMNS = columns(ProjectRow)
SESSION_COLUMNS = columns(SessionRow)
NOT_DELETED = "NOT EXISTS (SELECT 1 FROM deleted_sessions AS d WHERE d.session_id = sessions.id)"
MESSAGE_COLUMNS = columns(MessageRow)


@dataclass(frozen=True, slots=True)
class Posted:
    """A message that was stored, with its run."""

    message_id: str
    session_id: str
    run_id: str


class Chat:
    """The chat's transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Owners never change, so they can be cached; sessions until one is renamed or deleted: see `forget_sessions`.
        self._owners: dict[str, str] = {}
        self._sessions: dict[str, SessionRow] = {}

    async def create_project(
        self, user_id: str, name: str, *, if_none: bool = False, actor: str | None = None
    ) -> ProjectRow:
        """Create a project; with `if_none`, return the user's oldest if there is one. `actor` defaults to the user."""

        def work(transaction: Transaction) -> ProjectRow:
            if if_none and (known := _projects(transaction, user_id)):
                return known[0]
            project = ProjectRow(new_id("proj"), user_id, name, None, None, transaction.now)
            with Ledger(transaction, project.id) as ledger:
                ledger.insert("projects", project._asdict())
                begin_chain(transaction, project.id)
                ledger.audit("project_created", actor or f"user:{user_id}", name=name)
            return project

        return await self._database.write(work)

    async def projects(self, user_id: str) -> list[ProjectRow]:
        return await self._database.read(lambda transaction: _projects(transaction, user_id))

    async def owns(self, user_id: str, project_id: str) -> bool:
        """True if this project is this user's. Called on every request."""
        owner = self._owners.get(project_id)
        if owner is None:
            project = await self.project(project_id)
            if project is None:
                return False
            if len(self._owners) >= MOST_OWNERS:
                self._owners.clear()
            owner = self._owners[project_id] = project.user_id
        return owner == user_id

    async def project(self, project_id: str) -> ProjectRow | None:
        def work(transaction: Transaction) -> ProjectRow | None:
            row = transaction.execute(
                f"SELECT {PROJECT_COLUMNS} FROM projects WHERE id = :id",  # noqa: S608 - column names are ours
                {"id": project_id},
            ).fetchone()
            return project_row(row) if row else None

        return await self._database.read(work)

    async def remember_machine(self, project_id: str, workspace: str | None, isolation: str | None) -> None:
        """Store the workspace and isolation that the connected client declared."""
        await self._database.write(
            lambda transaction: (
                transaction.execute(
                    "UPDATE projects SET workspace = :workspace, isolation = :isolation WHERE id = :id",
                    {"workspace": workspace, "isolation": isolation, "id": project_id},
                ).rowcount
            )
        )

    async def create_session(self, user_id: str, project_id: str, title: str) -> SessionRow:
        def work(transaction: Transaction) -> SessionRow:
            with Ledger(transaction, project_id) as ledger:
                session = SessionRow(new_id("sess"), project_id, user_id, title, "")
                return _create_session(transaction, ledger, session, f"user:{user_id}")

        return await self._database.write(work)

    async def ensure_session(self, session_id: str, user_id: str, project_id: str, agent_id: str) -> SessionRow:
        """Return an agent's session with this id; create it if there is none."""

        def work(transaction: Transaction) -> SessionRow:
            with Ledger(transaction, project_id) as ledger:
                title = PROGRAM_WORDS.capitalize() if agent_id == PROGRAM else agent_id
                session = SessionRow(session_id, project_id, user_id, title, "")
                _create_session(transaction, ledger, session, f"agent:{agent_id}")
            return load_session(transaction, session_id, user_id)

        known = self._sessions.get(session_id)
        if known is not None and known.user_id == user_id:
            return known
        return self._remember(await self._database.write(work))

    async def session(self, session_id: Id, *, user_id: str | None = None) -> SessionRow:
        """A session; with `user_id`, only if it is theirs."""
        known = None if isinstance(session_id, UUID) else self._sessions.get(session_id)
        if known is not None and user_id in (None, known.user_id):
            return known
        own_id = id_text("sess", session_id)
        return self._remember(await self._database.read(lambda transaction: load_session(transaction, own_id, user_id)))

    def forget_sessions(self) -> None:
        """Read sessions anew: a person changed one, here or at another server."""
        self._sessions.clear()

    def _remember(self, session: SessionRow) -> SessionRow:
        if len(self._sessions) >= MOST_SESSIONS:
            self._sessions.clear()
        self._sessions[session.id] = session
        return session

    async def sessions(self, user_id: str, project_id: str, limit: int = 200) -> list[SessionRow]:
        def work(transaction: Transaction) -> list[SessionRow]:
            rows = transaction.execute(
                f"SELECT {SESSION_COLUMNS} FROM sessions WHERE project_id = :project_id AND user_id = :user_id "  # noqa: S608 - column names are ours
                f"AND {NOT_DELETED} AND id NOT LIKE :listings ORDER BY created_at DESC, id LIMIT :limit",
                {"project_id": project_id, "user_id": user_id, "listings": f"{OWN_LISTINGS}%", "limit": limit},
            ).fetchall()
            return [session_row(row) for row in rows]

        return await self._database.read(work)

    async def messages(self, user_id: str, session_id: str, limit: int = 1000) -> list[MessageRow]:
        """The newest messages of a session, oldest first."""
        return (await self.message_page(user_id, session_id, limit))[0]

    async def message_page(
        self, user_id: str, session_id: str, limit: int, before: str | None = None
    ) -> tuple[list[MessageRow], bool]:
        """Return a session's newest messages (`before`: those before that one), oldest first, and True if there are
        older ones. Long messages make a page with fewer. Ordered by position, whatever their clocks say."""

        def work(transaction: Transaction) -> tuple[list[MessageRow], bool]:
            load_session(transaction, session_id, user_id)
            place = {
                "session_id": session_id,
                "before": BEYOND if before is None else _position(transaction, session_id, before),
            }
            sizes = transaction.execute(
                "SELECT position, length(content) AS size FROM messages WHERE session_id = :session_id "
                "AND position < :before ORDER BY position DESC LIMIT :limit",
                {**place, "limit": limit + 1},
            ).fetchall()
            ends = accumulate(row["size"] for row in sizes[:limit])
            fit = max(1, sum(end <= PAGE_CHARACTERS for end in ends))
            rows = transaction.execute(
                f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_id = :session_id "  # noqa: S608 - column names are ours
                "AND position < :before ORDER BY position DESC LIMIT :limit",
                {**place, "limit": fit},
            ).fetchall()
            return [message_row(row) for row in reversed(rows)], len(sizes) > len(rows)

        return await self._database.read(work)

    async def post(
        self,
        user_id: str,
        project_id: str,
        content: str,
        *,
        session_id: str | None,
        mode: AgentMode,
        agent: str = CHAT_AGENT,
        model: str | None = None,
        models: Collection[str] = (),
        key: MessageKey | None = None,
        actor: str | None = None,
    ) -> Posted:
        """Store a user's message, announce it and make a run ready for it; a message that was sent before returns its
        earlier result. `model`: for this run; None for that of the run before, if it is among `models`. `actor`: the
        sender in the record; defaults to the user."""
        sender = actor or f"user:{user_id}"

        def work(transaction: Transaction) -> Posted:
            before = None if key is None else sent_before(transaction, user_id, project_id, key)
            if before is not None:
                return Posted(before["id"], before["session_id"], before["run_id"])
            run_id = new_id("run")
            with Ledger(transaction, project_id) as ledger:
                if session_id is None:
                    session = SessionRow(new_id("sess"), project_id, user_id, _title(content), "")
                    session = _create_session(transaction, ledger, session, sender)
                else:
                    session = load_session(transaction, session_id, user_id)
                    if session.project_id != project_id:
                        raise NotFound(f"No session {session_id!r} in this project.")
                message_id = add_message(
                    transaction, ledger, project_id, session.id, run_id, role="user", content=content
                )
                _add_run(transaction, ledger, session, run_id, content, mode, agent)
                chosen = model or _model_before(transaction, session.id, agent, models)
                if chosen is not None:
                    transaction.execute(
                        "INSERT INTO run_models (run_id, session_id, model) VALUES (:run_id, :session_id, :model)",
                        {"run_id": run_id, "session_id": session.id, "model": chosen},
                    )
                if key is not None:
                    remember(transaction, user_id, project_id, key, message_id)
                asked = {} if chosen is None else {"model": chosen}
                ledger.audit("message", sender, session=session.id, run=run_id, mode=mode.value, agent=agent, **asked)
            transaction.hints.append(Hint(RUNS_TOPIC))
            return Posted(message_id, session.id, run_id)

        return await self._database.write(work)


def load_session(transaction: Transaction, session_id: str, user_id: str | None) -> SessionRow:
    row = transaction.execute(
        f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = :id AND {NOT_DELETED}",  # noqa: S608 - column names are ours
        {"id": session_id},
    ).fetchone()
    if row is None or user_id not in (None, row["user_id"]):
        raise NotFound(f"No session {session_id!r}.", hint="Leave session_id out to open a new one.")
    return session_row(row)


def _position(transaction: Transaction, session_id: str, message_id: str) -> int:
    row = transaction.execute(
        "SELECT position FROM messages WHERE id = :id AND session_id = :session_id",
        {"id": message_id, "session_id": session_id},
    ).fetchone()
    if row is None:
        raise NotFound(f"No message {message_id!r} in this session.", hint="Leave `before` out for the newest.")
    return row["position"]


def add_message(
    transaction: Transaction,
    ledger: Ledger,
    project_id: str,
    session_id: str,
    run_id: str,
    *,
    role: str,
    content: str,
) -> str:
    """Store a message and tell the feed."""
    message_id = new_id("msg")
    row = transaction.execute(
        "INSERT INTO messages (id, project_id, session_id, run_id, role, content, position, created_at) VALUES "
        "(:id, :project_id, :session_id, :run_id, :role, :content, "
        "(SELECT coalesce(max(position), 0) + 1 FROM messages WHERE session_id = :session_id), :now) RETURNING *",
        {
            "id": message_id,
            "project_id": project_id,
            "session_id": session_id,
            "run_id": run_id,
            "role": role,
            "content": content,
            "now": transaction.now,
        },
    ).fetchone()
    if row is not None:
        ledger.kept("messages", row)
    ledger.event(
        ChatMessage(
            timestamp=transaction.now,
            message_id=message_id,
            session_id=session_id,
            run_id=run_id,
            role="user" if role == "user" else "agent",
            content=content,
        )
    )
    return message_id


def _title(content: str) -> str:
    """The first words of a message, cut between words unless they are very long."""
    words = " ".join(content[: 10 * TITLE_CHARACTERS].split()) or "Untitled"
    if len(words) <= TITLE_CHARACTERS:
        return words
    cut = words[: TITLE_CHARACTERS - 1]
    whole = cut.rpartition(" ")[0]
    return f"{whole if len(whole) > TITLE_CHARACTERS // 2 else cut}…"


def _projects(transaction: Transaction, user_id: str) -> list[ProjectRow]:
    """Oldest first."""
    rows = transaction.execute(
        f"SELECT {PROJECT_COLUMNS} FROM projects WHERE user_id = :user_id ORDER BY created_at, id",  # noqa: S608 - column names are ours
        {"user_id": user_id},
    ).fetchall()
    return [project_row(row) for row in rows]


def _create_session(transaction: Transaction, ledger: Ledger, session: SessionRow, actor: str) -> SessionRow:
    """Insert a session that begins now, unless one with its id exists; an agent's own that was deleted begins again."""
    session = session._replace(created_at=transaction.now)
    values = session._asdict()
    if transaction.storable is not None:
        values = transaction.storable(values)
    if transaction.execute(f"INSERT INTO sessions {placeholders(values)} ON CONFLICT (id) DO NOTHING", values).rowcount:
        ledger.kept("sessions", values)
        ledger.audit("session_created", actor, session=session.id)
        return session
    of_it = {"id": session.id, "user_id": session.user_id}
    if transaction.execute(
        "DELETE FROM deleted_sessions WHERE session_id = :id "
        "AND EXISTS (SELECT 1 FROM sessions WHERE id = :id AND user_id = :user_id)",
        of_it,
    ).rowcount:
        ledger.update(
            "sessions",
            "UPDATE sessions SET title = :title, created_at = :created_at WHERE id = :id RETURNING *",
            {"id": session.id, "title": values["title"], "created_at": values["created_at"]},
        )
        ledger.audit("session_created", actor, session=session.id)
    return session


def _model_before(transaction: Transaction, session_id: str, agent: str, models: Collection[str]) -> str | None:
    """The model of this agent's run before in a session, if it is still allowed."""
    row = transaction.execute(
        "SELECT m.model FROM runs AS r LEFT JOIN run_models AS m ON m.run_id = r.id WHERE r.session_id = :session_id "
        "AND r.agent = :agent ORDER BY r.position DESC LIMIT 1 OFFSET 1",
        {"session_id": session_id, "agent": agent},
    ).fetchone()
    return row["model"] if row is not None and row["model"] in models else None


def _add_run(
    transaction: Transaction,
    ledger: Ledger,
    session: SessionRow,
    run_id: str,
    prompt: str,
    mode: AgentMode,
    agent: str,
) -> None:
    row = transaction.execute(
        "INSERT INTO runs (id, project_id, session_id, user_id, agent, mode, state, prompt, fence, attempts, position, "
        "created_at, updated_at) VALUES "
        "(:id, :project_id, :session_id, :user_id, :agent, :mode, :state, :prompt, 0, 0, "
        "(SELECT coalesce(max(position), 0) + 1 FROM runs WHERE session_id = :session_id), :now, :now) RETURNING *",
        {
            "id": run_id,
            "project_id": session.project_id,
            "session_id": session.id,
            "user_id": session.user_id,
            "agent": agent,
            "mode": mode.value,
            "state": RunState.READY.name,
            "prompt": prompt,
            "now": transaction.now,
        },
    ).fetchone()
    if row is not None:
        ledger.kept("runs", row)
    ledger.event(RunChanged(timestamp=transaction.now, session_id=session.id, run_id=run_id, state=RunState.READY))


def workspace_of(transaction: Transaction, project_id: str) -> str | None:
    """The directory of a project's last client."""
    row = transaction.execute("SELECT workspace FROM projects WHERE id = :id", {"id": project_id}).fetchone()
    return row["workspace"] if row else None


def projects_in_same_workspace(transaction: Transaction, user_id: str, project_id: str) -> list[tuple[str, str | None]]:
    """Ids and workspaces of the project and of the user's others whose last client was in the same directory."""
    rows = transaction.execute(
        "SELECT id, workspace FROM projects WHERE user_id = :user_id AND (id = :project_id OR workspace = "
        "(SELECT workspace FROM projects WHERE id = :project_id)) ORDER BY id",
        {"user_id": user_id, "project_id": project_id},
    ).fetchall()
    return [(row["id"], row["workspace"]) for row in rows]
