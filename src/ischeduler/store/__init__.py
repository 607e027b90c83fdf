"""Where runs, events, leases and history live: SQLite in the user's own folder, or a centre's PostgreSQL."""
