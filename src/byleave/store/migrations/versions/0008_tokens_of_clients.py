"""The tokens each client has connected with, so that only it reports what it was told to do."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "client_tokens",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("client_id", sa.String(length=64), nullable=False),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("seen_at", sa.String(length=24), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_client_tokens_project_id"),
        sa.PrimaryKeyConstraint("project_id", "client_id", "token", name="pk_client_tokens"),
    )


def downgrade() -> None:
    op.drop_table("client_tokens")
