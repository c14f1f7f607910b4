"""Add what a server kept in memory about people: sign-in links, and undo requests with their reports."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TABLES = (
    """CREATE TABLE IF NOT EXISTS sign_in_links (
        digest VARCHAR(64) NOT NULL PRIMARY KEY,
        user_id VARCHAR(200) NOT NULL,
        scopes VARCHAR(200) NOT NULL,
        led_by TEXT NOT NULL,
        session_until VARCHAR(24),
        created_at VARCHAR(24) NOT NULL,
        good_until VARCHAR(24) NOT NULL,
        used_at VARCHAR(24)
    )""",
    "CREATE INDEX IF NOT EXISTS ix_sign_in_links_user ON sign_in_links (user_id, created_at)",
    "CREATE INDEX IF NOT EXISTS ix_sign_in_links_good_until ON sign_in_links (good_until)",
    """CREATE TABLE IF NOT EXISTS undo_reports (
        request_id VARCHAR(64) NOT NULL PRIMARY KEY,
        execution_id VARCHAR(64) NOT NULL,
        user_id VARCHAR(200) NOT NULL,
        awaited_until VARCHAR(24) NOT NULL,
        begun_until VARCHAR(24),
        report TEXT
    )""",
)


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE IF EXISTS undo_reports")
    op.execute("DROP TABLE IF EXISTS sign_in_links")
