"""Alembic's steps from each version of the tables to the next."""
