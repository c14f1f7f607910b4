"""Deleted conversations, the model each run was asked for, and an index of calls that may have changed something."""

from alembic import op

revision = "0014"
down_revision = "0013"

TABLES = (
    """CREATE TABLE IF NOT EXISTS deleted_sessions (
        session_id VARCHAR(64) NOT NULL PRIMARY KEY REFERENCES sessions (id),
        deleted_at VARCHAR(24) NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS run_models (
        run_id VARCHAR(64) NOT NULL PRIMARY KEY,
        session_id VARCHAR(64) NOT NULL,
        model VARCHAR(300) NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS ix_run_models_session ON run_models (session_id)",
    "CREATE INDEX IF NOT EXISTS ix_tool_executions_session ON tool_executions (session_id, created_at, id) "
    "WHERE risk_level <> 'LOW'",
)


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)
