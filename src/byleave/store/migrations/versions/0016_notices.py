"""Add the devices that get push messages, and which questions people were told about elsewhere."""

from alembic import op

revision = "0016"
down_revision = "0015"

TABLES = (
    """CREATE TABLE IF NOT EXISTS push_devices (
        id VARCHAR(64) NOT NULL PRIMARY KEY,
        user_id VARCHAR(200) NOT NULL,
        endpoint TEXT NOT NULL,
        endpoint_digest VARCHAR(64) NOT NULL UNIQUE,
        p256dh VARCHAR(100) NOT NULL,
        auth VARCHAR(40) NOT NULL,
        name VARCHAR(100) NOT NULL,
        sign_ins TEXT NOT NULL,
        created_at VARCHAR(24) NOT NULL,
        sent_at VARCHAR(24)
    )""",
    "CREATE INDEX IF NOT EXISTS ix_push_devices_user ON push_devices (user_id, created_at)",
    """CREATE TABLE IF NOT EXISTS notices (
        approval_id VARCHAR(64) NOT NULL PRIMARY KEY,
        user_id VARCHAR(200) NOT NULL,
        claimed_at VARCHAR(24) NOT NULL,
        sent_at VARCHAR(24)
    )""",
    "CREATE INDEX IF NOT EXISTS ix_notices_user ON notices (user_id, claimed_at)",
    "CREATE INDEX IF NOT EXISTS ix_notices_claimed_at ON notices (claimed_at)",
)


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)
