"""Seal the heads of all chains together. The tables stay; who holds the secret seals what is there after this."""

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
