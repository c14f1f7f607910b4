"""Add the tokens each client has connected with; write the states of older events in lower case."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

STATES = {
    "status": ("COMPLETED", "REJECTED", "TIMEOUT", "FAILED"),
    "state": ("READY", "RUNNING", "WAITING", "DONE", "FAILED"),
}
KINDS = {"status": ("tool.finished", "tool.result_ack"), "state": ("chat.run",)}


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
    for field, states in STATES.items():
        for state in states:
            op.execute(
                sa.text(
                    "UPDATE events SET payload = replace(payload, :old, :new) WHERE kind IN (:one, :other) "
                    "AND payload LIKE :like"
                ).bindparams(
                    old=f'"{field}":"{state}"',
                    new=f'"{field}":"{state.lower()}"',
                    one=KINDS[field][0],
                    other=KINDS[field][-1],
                    like=f'%"{field}":"{state}"%',
                )
            )


def downgrade() -> None:
    op.drop_table("client_tokens")
