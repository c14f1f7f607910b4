"""Add the place of an answer: the page or a program."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("approvals", sa.Column("decided_from", sa.String(length=10)))


def downgrade() -> None:
    op.drop_column("approvals", "decided_from")
