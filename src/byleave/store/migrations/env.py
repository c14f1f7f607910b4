"""What Alembic runs. The connection comes from `upgrade`; there is no ini file and no offline mode."""

from alembic import context

from byleave.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
