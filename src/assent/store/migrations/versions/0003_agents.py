"""Which of the agents works on a run."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("agent", sa.String(length=64), nullable=False, server_default="chat"))


def downgrade() -> None:
    op.drop_column("runs", "agent")
