"""Keep what a person changed in a call before they allowed it, and find grants of a project.

The audit chain covers these rows, and a grant may now hold for a project: an older server knows neither.
"""

from alembic import op
from sqlalchemy import inspect

revision = "0015"
down_revision = "0014"

COLUMNS = {"approvals": ("edit",), "tool_executions": ("edit", "asked_params")}


def upgrade() -> None:
    for table, names in COLUMNS.items():
        known = {column["name"] for column in inspect(op.get_bind()).get_columns(table)}
        for name in names:
            if name not in known:
                op.execute(f"ALTER TABLE {table} ADD COLUMN {name} TEXT")
    op.execute(
        "CREATE INDEX IF NOT EXISTS ix_grants_project ON grants (project_id) "
        "WHERE revoked_at IS NULL AND scope = 'project'"
    )
