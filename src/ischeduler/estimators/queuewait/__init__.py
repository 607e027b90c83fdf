"""Queue wait: what this user's jobs waited before, and what the queue looks like now."""
