"""Add seals of the audit chains' heads, and indexes of a project's rows for verification."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TABLES = ("tool_executions", "approvals", "messages")


def upgrade() -> None:
    op.create_table(
        "seals",
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("value", sa.String(length=64), nullable=False),
        sa.Column("seal", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_seals"),
    )
    op.add_column("feeds", sa.Column("audit_seal", sa.String(length=64), nullable=False, server_default=""))
    for table in TABLES:
        op.create_index(f"ix_{table}_project", table, ["project_id", "id"])


def downgrade() -> None:
    for table in TABLES:
        op.drop_index(f"ix_{table}_project", table)
    op.drop_column("feeds", "audit_seal")
    op.drop_table("seals")
