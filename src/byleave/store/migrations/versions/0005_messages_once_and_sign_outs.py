"""Add the keys of messages, to recognize one sent again, and the list of ended sign-ins."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "message_keys",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("client_key", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("session_id", sa.String(length=64)),
        sa.Column("message_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"], name="fk_message_keys_message_id"),
        sa.PrimaryKeyConstraint("project_id", "user_id", "client_key", name="pk_message_keys"),
    )
    op.create_table(
        "ended_sign_ins",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("ended_at", sa.String(length=24), nullable=False),
        sa.Column("good_until", sa.String(length=24), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ended_sign_ins"),
    )
    op.create_index("ix_ended_sign_ins_good_until", "ended_sign_ins", ["good_until"])


def downgrade() -> None:
    op.drop_table("ended_sign_ins")
    op.drop_table("message_keys")
