"""Add the agent of a run, and indexes that find the next run without reading ended ones."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INDEXES = (
    ("ix_runs_ready", ["created_at", "id"], "state = 'READY'"),
    ("ix_runs_order", ["session_id", "position"], "state IN ('READY', 'RUNNING', 'WAITING')"),
)


def upgrade() -> None:
    op.add_column("runs", sa.Column("agent", sa.String(length=64), nullable=False, server_default="chat"))
    for name, columns, condition in INDEXES:
        where = sa.text(condition)
        op.create_index(name, "runs", columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    for name, _, _ in INDEXES:
        op.drop_index(name, "runs")
    op.drop_column("runs", "agent")
