"""The centre's service: HTTP API, sign-in and rights, event ingest, dashboard, metrics."""
