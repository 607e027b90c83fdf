"""Alembic's entry: runs the steps on the connection it is handed (:func:`ischeduler.store.migrate.migrate`), inside its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True, transaction_per_migration=False)
context.run_migrations()
