"""Index what is looked at for each question, so that a long record asks as quickly as a short one."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

NEW = (
    "CREATE INDEX ix_approvals_rejected ON approvals (session_id, decided_at) WHERE status = 'rejected'",
    "CREATE INDEX ix_approvals_shown ON approvals (project_id, created_at) "
    "WHERE unseen IS NOT NULL AND status = 'approved'",
    "CREATE INDEX ix_tool_executions_unasked ON tool_executions (project_id, tool_name, approved_at) "
    "WHERE risk_level <> 'LOW' AND substr(approved_by, 1, 7) <> 'person:'",
)
OLD = (
    "CREATE INDEX ix_approvals_rejected ON approvals (session_id) WHERE status = 'rejected'",
    "CREATE INDEX ix_approvals_shown ON approvals (project_id, created_at) WHERE unseen IS NOT NULL",
)


def upgrade() -> None:
    op.execute("DROP INDEX ix_approvals_rejected")
    op.execute("DROP INDEX ix_approvals_shown")
    for statement in NEW:
        op.execute(statement)


def downgrade() -> None:
    for name in ("ix_approvals_rejected", "ix_approvals_shown", "ix_tool_executions_unasked"):
        op.execute(f"DROP INDEX {name}")
    for statement in OLD:
        op.execute(statement)
