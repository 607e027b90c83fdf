"""Alembic's entry: runs the steps on the connection that :func:`ischeduler.store.migrate.migrate` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True, transaction_per_migration=False)
context.run_migrations()
