"""The tables, as SQLAlchemy Core metadata: what migrations are made from and checked against.

Times are text (`2026-11-15T12:00:00.000Z`): readable in any shell, sortable, and hashed as they stand. JSON is
text too, so that both dialects store the same bytes. Queries live beside what they serve, not here.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

projects = Table(
    "projects",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("user_id", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    # What the last client said of its machine, so that absolute paths can be judged while none is connected.
    Column("workspace", Text),
    Column("isolation", String(40)),
    Column("created_at", String(24), nullable=False),
    Index("ix_projects_user_id", "user_id", "created_at"),
)

feeds = Table(
    "feeds",
    metadata,
    # One row a project, locked by whoever writes: commit order is sequence order, so that a reader who has seen N
    # can never miss an event that commits later with a smaller number.
    Column("project_id", String(64), ForeignKey("projects.id"), primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("audit_seq", BigInteger, nullable=False),
    Column("audit_hash", String(64), nullable=False),
    # Number and hash of the last record, under a key of the server's.
    Column("audit_seal", String(64), nullable=False, server_default=""),
)

seals = Table(
    "seals",
    metadata,
    # Which projects there are, under a key of the server's: one that is gone leaves no chain to miss it in.
    Column("name", String(20), primary_key=True),
    Column("value", String(64), nullable=False),
    Column("seal", String(64), nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("project_id", String(64), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("kind", String(40), nullable=False),
    Column("target", String(64)),  # the one client it is for; null: everybody who watches
    Column("ref", String(64)),  # the execution a signal carries; its parameters are joined in on delivery
    Column("payload", Text, nullable=False),
    Column("created_at", String(24), nullable=False),
    PrimaryKeyConstraint("project_id", "seq"),
)

audit = Table(
    "audit",
    metadata,
    Column("project_id", String(64), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at", String(24), nullable=False),
    Column("actor", String(250), nullable=False),
    Column("action", String(40), nullable=False),
    Column("execution_id", String(64)),
    Column("approval_id", String(64)),
    Column("detail", Text, nullable=False),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    PrimaryKeyConstraint("project_id", "seq"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("project_id", String(64), ForeignKey("projects.id"), nullable=False),
    Column("user_id", String(200), nullable=False),
    Column("title", String(200), nullable=False),
    Column("created_at", String(24), nullable=False),
    Index("ix_sessions_project_id", "project_id", "created_at"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("project_id", String(64), nullable=False),
    Column("session_id", String(64), ForeignKey("sessions.id"), nullable=False),
    Column("user_id", String(200), nullable=False),
    Column("agent", String(64), nullable=False, server_default="chat"),
    Column("mode", String(10), nullable=False),
    Column("state", String(10), nullable=False),
    Column("prompt", Text, nullable=False),
    Column("history", Text),  # what the agent's framework needs to go on; null before the first step
    Column("owner", String(64)),
    Column("lease_until", String(24)),
    Column("fence", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text),
    Column("position", BigInteger, nullable=False),  # order within the session
    Column("created_at", String(24), nullable=False),
    Column("updated_at", String(24), nullable=False),
    UniqueConstraint("session_id", "position"),
    Index(
        "ix_runs_open",
        "state",
        "lease_until",
        sqlite_where=text("state IN ('READY', 'RUNNING', 'WAITING')"),
        postgresql_where=text("state IN ('READY', 'RUNNING', 'WAITING')"),
    ),
    # Which one is next, and whether one of its session is before it: asked each time a worker looks.
    Index(
        "ix_runs_ready",
        "created_at",
        "id",
        sqlite_where=text("state = 'READY'"),
        postgresql_where=text("state = 'READY'"),
    ),
    Index(
        "ix_runs_order",
        "session_id",
        "position",
        sqlite_where=text("state IN ('READY', 'RUNNING', 'WAITING')"),
        postgresql_where=text("state IN ('READY', 'RUNNING', 'WAITING')"),
    ),
)

messages = Table(
    "messages",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("project_id", String(64), nullable=False),
    Column("session_id", String(64), ForeignKey("sessions.id"), nullable=False),
    Column("run_id", String(64)),
    Column("role", String(10), nullable=False),
    Column("content", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("created_at", String(24), nullable=False),
    UniqueConstraint("session_id", "position"),
    Index("ix_messages_project", "project_id", "id"),
)

message_keys = Table(
    "message_keys",
    metadata,
    # What a sender calls its message, so that one whose answer was lost is not kept twice.
    Column("project_id", String(64), nullable=False),
    Column("user_id", String(200), nullable=False),
    Column("client_key", String(64), nullable=False),
    Column("digest", String(64), nullable=False),  # of what was sent
    Column("session_id", String(64)),  # as it was sent; null asked for a new one
    Column("message_id", String(64), ForeignKey("messages.id"), nullable=False),
    PrimaryKeyConstraint("project_id", "user_id", "client_key"),
)

ended_sign_ins = Table(
    "ended_sign_ins",
    metadata,
    # Somebody signed out: its cookies are good no more, also a copy of one.
    Column("id", String(64), primary_key=True),
    Column("user_id", String(200), nullable=False),
    Column("ended_at", String(24), nullable=False),
    Column("good_until", String(24), nullable=False),  # when the last of its cookies ends by itself
    Index("ix_ended_sign_ins_good_until", "good_until"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("user_id", String(200), nullable=False),
    Column("project_id", String(64), nullable=False),
    Column("session_id", String(64)),
    Column("agent_id", String(64)),
    Column("tool_name", String(100), nullable=False),
    Column("tool_params", Text, nullable=False),  # as shown
    Column("digest", String(64), nullable=False),
    Column("risk_level", String(10), nullable=False),
    Column("findings", Text, nullable=False),
    Column("network", Boolean, nullable=False),
    Column("description", Text, nullable=False),
    Column("status", String(10), nullable=False),
    Column("timeout_seconds", Integer, nullable=False),
    Column("created_at", String(24), nullable=False),
    Column("deadline", String(24), nullable=False),
    Column("decided_at", String(24)),
    Column("decided_by", String(250)),
    Column("reason", Text),
    Column("scope", String(20)),
    Column("inspection", Text),  # what would run or be replaced, as the machine saw it
    Column("suggestions", Text),  # rules an answer could save
    Column("unseen", Text),  # what it said had changed unseen; null where no code of the workspace would run
    Column("grant_id", String(64)),  # saved with the answer, or what answered
    Column("decided_from", String(10)),  # where a person answered
    Index(
        "ix_approvals_pending",
        "user_id",
        "created_at",
        sqlite_where=text("status = 'pending'"),
        postgresql_where=text("status = 'pending'"),
    ),
    Index("ix_approvals_project", "project_id", "id"),
    Index("ix_approvals_session_digest", "session_id", "digest"),
    # What a person refused in a session: few, and looked through for each call that would ask.
    Index(
        "ix_approvals_rejected",
        "session_id",
        sqlite_where=text("status = 'rejected'"),
        postgresql_where=text("status = 'rejected'"),
    ),
    Index(
        "ix_approvals_shown",
        "project_id",
        "created_at",
        sqlite_where=text("unseen IS NOT NULL"),
        postgresql_where=text("unseen IS NOT NULL"),
    ),
)

replaced_texts = Table(
    "replaced_texts",
    metadata,
    Column("approval_id", String(64), primary_key=True),
    Column("user_id", String(200), nullable=False),
    Column("size", Integer, nullable=False),
    Column("text", Text, nullable=False),  # what the write would replace, secrets masked
    Column("created_at", String(24), nullable=False),
    Index("ix_replaced_texts_user", "user_id", "size"),
    Index("ix_replaced_texts_created", "created_at"),
)

tool_executions = Table(
    "tool_executions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("user_id", String(200), nullable=False),
    Column("project_id", String(64), nullable=False),
    Column("session_id", String(64), nullable=False),
    Column("run_id", String(64)),
    Column("agent_id", String(64)),
    Column("mode", String(10), nullable=False),
    Column("approval_id", String(64)),
    Column("client_id", String(64)),
    Column("tool_name", String(100), nullable=False),
    Column("tool_params", Text, nullable=False),  # secrets masked
    Column("true_params", Text),  # what the client gets; dropped when the execution ends
    Column("digest", String(64), nullable=False),  # what is approved: the call, and the files it is bound to
    Column("request_digest", String(64)),  # the call alone; null where nothing is bound
    Column("bound", Text),
    Column("result", Text),
    Column("result_hash", String(64)),
    Column("risk_level", String(10), nullable=False),
    Column("requires_approval", Boolean, nullable=False),
    Column("findings", Text, nullable=False),
    Column("network", Boolean, nullable=False),
    Column("approved_by", String(250)),
    Column("status", String(20), nullable=False),
    Column("error", String(1000)),
    Column("error_type", String(30)),
    Column("execution_time_ms", BigInteger),
    Column("timeout_seconds", Integer, nullable=False),
    Column("deadline", String(24)),
    Column("output_seq", Integer, nullable=False),
    Column("cancel_requested", Boolean, nullable=False),
    Column("created_at", String(24), nullable=False),
    Column("approved_at", String(24)),
    Column("started_at", String(24)),
    Column("completed_at", String(24)),
    Index("ix_tool_executions_project", "project_id", "id"),
    Index("ix_tool_executions_user", "user_id", "created_at", "id"),
    Index("ix_tool_executions_approval", "approval_id"),
    Index("ix_tool_executions_run", "run_id"),
    # What may have changed something; reads are many, and not in it.
    Index(
        "ix_tool_executions_changes",
        "project_id",
        "tool_name",
        "approved_at",
        sqlite_where=text("risk_level <> 'LOW'"),
        postgresql_where=text("risk_level <> 'LOW'"),
    ),
    Index(
        "ix_tool_executions_deadline",
        "deadline",
        sqlite_where=text("status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING')"),
        postgresql_where=text("status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING')"),
    ),
    Index(
        "ix_tool_executions_open",
        "project_id",
        "status",
        sqlite_where=text("status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING')"),
        postgresql_where=text("status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING')"),
    ),
)

grants = Table(
    "grants",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("user_id", String(200), nullable=False),
    Column("project_id", String(64), ForeignKey("projects.id"), nullable=False),
    Column("session_id", String(64), ForeignKey("sessions.id"), nullable=False),
    Column("scope", String(20), nullable=False),
    Column("rule", Text),  # null: everything in the session
    Column("text", Text, nullable=False),  # as it was shown
    # Whether the chat's own agent asked: a call from elsewhere that names the session is another agent's.
    Column("in_chat", Boolean, nullable=False),
    Column("approval_id", String(64)),
    Column("uses", Integer, nullable=False),
    Column("max_uses", Integer),
    Column("created_at", String(24), nullable=False),
    Column("created_by", String(250), nullable=False),
    Column("expires_at", String(24), nullable=False),
    Column("revoked_at", String(24)),
    Column("revoked_by", String(250)),
    Index("ix_grants_user", "user_id", "created_at"),
    Index(
        "ix_grants_session",
        "session_id",
        sqlite_where=text("revoked_at IS NULL"),
        postgresql_where=text("revoked_at IS NULL"),
    ),
)

machines = Table(
    "machines",
    metadata,
    # The rules a machine's owner wrote, as its client declared them last.
    Column("project_id", String(64), ForeignKey("projects.id"), nullable=False),
    Column("client_id", String(64), nullable=False),
    Column("policy", Text, nullable=False),
    Column("declared_at", String(24), nullable=False),
    PrimaryKeyConstraint("project_id", "client_id"),
)

client_tokens = Table(
    "client_tokens",
    metadata,
    # The tokens each client has connected with: what it reports is taken from no other.
    Column("project_id", String(64), ForeignKey("projects.id"), nullable=False),
    Column("client_id", String(64), nullable=False),
    Column("token", String(64), nullable=False),  # its digest
    Column("seen_at", String(24), nullable=False),
    PrimaryKeyConstraint("project_id", "client_id", "token"),
)
