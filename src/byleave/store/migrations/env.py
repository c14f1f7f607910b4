"""Alembic runs this. The connection comes from `upgrade`; there is no ini file and no offline mode."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
