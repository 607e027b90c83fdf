"""Adapters to batch systems: a user's own Slurm commands, and one machine without any."""
