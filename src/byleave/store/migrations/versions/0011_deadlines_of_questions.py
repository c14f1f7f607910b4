"""Index the deadlines of open questions: with very many of them, each look for the next held up the server."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX IF NOT EXISTS ix_approvals_deadline ON approvals (deadline) WHERE status = 'pending'")


def downgrade() -> None:
    op.execute("DROP INDEX IF EXISTS ix_approvals_deadline")
