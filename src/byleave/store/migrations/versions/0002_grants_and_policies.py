"""Add grants, the rules machines declare, and the files an approval is bound to."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

OPEN = "status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING')"
OPEN_BEFORE = "status IN ('AWAITING_APPROVAL', 'APPROVED', 'EXECUTING')"

PARTIAL = (
    ("ix_approvals_shown", "approvals", ["project_id", "created_at"], "unseen IS NOT NULL"),
    (
        "ix_tool_executions_changes",
        "tool_executions",
        ["project_id", "tool_name", "approved_at"],
        "risk_level <> 'LOW'",
    ),
)


def upgrade() -> None:
    op.create_table(
        "grants",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=200), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=20), nullable=False),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("in_chat", sa.Boolean(), nullable=False),
        sa.Column("approval_id", sa.String(length=64), nullable=True),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("max_uses", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.String(length=24), nullable=False),
        sa.Column("created_by", sa.String(length=250), nullable=False),
        sa.Column("expires_at", sa.String(length=24), nullable=False),
        sa.Column("revoked_at", sa.String(length=24), nullable=True),
        sa.Column("revoked_by", sa.String(length=250), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_grants_project_id")),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_grants_session_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
    )
    op.create_index("ix_grants_user", "grants", ["user_id", "created_at"])
    op.create_index(
        "ix_grants_session",
        "grants",
        ["session_id"],
        sqlite_where=sa.text("revoked_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NULL"),
    )
    op.create_table(
        "machines",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("client_id", sa.String(length=64), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("declared_at", sa.String(length=24), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_machines_project_id")),
        sa.PrimaryKeyConstraint("project_id", "client_id", name=op.f("pk_machines")),
    )
    # Added in place: copying a large record into a new table would take long.
    op.add_column("approvals", sa.Column("inspection", sa.Text(), nullable=True))
    op.add_column("approvals", sa.Column("suggestions", sa.Text(), nullable=True))
    op.add_column("approvals", sa.Column("unseen", sa.Text(), nullable=True))
    op.add_column("approvals", sa.Column("grant_id", sa.String(length=64), nullable=True))
    op.add_column("tool_executions", sa.Column("request_digest", sa.String(length=64), nullable=True))
    op.add_column("tool_executions", sa.Column("bound", sa.Text(), nullable=True))
    for name, table, columns, condition in PARTIAL:
        where = sa.text(condition)
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
    _open_indexes(OPEN)


def downgrade() -> None:
    _open_indexes(OPEN_BEFORE)
    for name, table, _, _ in PARTIAL:
        op.drop_index(name, table)
    for name in ("bound", "request_digest"):
        op.drop_column("tool_executions", name)
    for name in ("grant_id", "unseen", "suggestions", "inspection"):
        op.drop_column("approvals", name)
    op.drop_table("machines")
    op.drop_table("grants")


def _open_indexes(condition: str) -> None:
    where = sa.text(condition)
    for name, columns in (
        ("ix_tool_executions_deadline", ["deadline"]),
        ("ix_tool_executions_open", ["project_id", "status"]),
    ):
        op.drop_index(name, "tool_executions")
        op.create_index(name, "tool_executions", columns, sqlite_where=where, postgresql_where=where)
