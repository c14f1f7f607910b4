"""Add the texts that writes would replace, and an index of a session's refusals."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "replaced_texts",
        sa.Column("approval_id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=24), nullable=False),
        sa.PrimaryKeyConstraint("approval_id", name="pk_replaced_texts"),
    )
    op.create_index("ix_replaced_texts_user", "replaced_texts", ["user_id", "size"])
    op.create_index("ix_replaced_texts_created", "replaced_texts", ["created_at"])
    where = sa.text("status = 'rejected'")
    op.create_index("ix_approvals_rejected", "approvals", ["session_id"], sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    op.drop_index("ix_approvals_rejected", "approvals")
    op.drop_table("replaced_texts")
