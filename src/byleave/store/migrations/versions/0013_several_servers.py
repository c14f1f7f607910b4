"""Servers that share a record, the clients connected to each, and which start of a client is the latest.

And the size of a call's live output.
"""

from alembic import op
from sqlalchemy import inspect

revision = "0013"
down_revision = "0012"

TABLES = (
    """CREATE TABLE IF NOT EXISTS servers (
        id VARCHAR(64) NOT NULL PRIMARY KEY,
        place VARCHAR(300) NOT NULL,
        commits BIGINT NOT NULL,
        until VARCHAR(24) NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS connections (
        server_id VARCHAR(64) NOT NULL,
        number BIGINT NOT NULL,
        project_id VARCHAR(64) NOT NULL,
        client_id VARCHAR(64) NOT NULL,
        declared BOOLEAN NOT NULL,
        workspace TEXT,
        isolation VARCHAR(40),
        looks BOOLEAN NOT NULL,
        editor VARCHAR(20),
        generation VARCHAR(48),
        since VARCHAR(24) NOT NULL,
        PRIMARY KEY (server_id, number)
    )""",
    "CREATE INDEX IF NOT EXISTS ix_connections_project ON connections (project_id)",
)
STARTS = ("generation BIGINT", "instance VARCHAR(32)", "displaces BOOLEAN NOT NULL DEFAULT FALSE")
"""Columns of `client_tokens`."""


def upgrade() -> None:
    for table in TABLES:
        op.execute(table)
    columns = {column["name"] for column in inspect(op.get_bind()).get_columns("tool_executions")}
    if "output_size" not in columns:
        op.execute("ALTER TABLE tool_executions ADD COLUMN output_size INTEGER NOT NULL DEFAULT 0")
    known = {column["name"] for column in inspect(op.get_bind()).get_columns("client_tokens")}
    for column in STARTS:
        if column.split()[0] not in known:
            op.execute(f"ALTER TABLE client_tokens ADD COLUMN {column}")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("INSERT INTO servers (id, place, commits, until) VALUES ('all', '', 0, '')")
        op.execute("DROP TABLE IF EXISTS server_lease")
