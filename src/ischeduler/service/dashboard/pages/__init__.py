"""Requests to pages: one module a part of the dashboard. They read, ask the backend, and render; what is shown is decided in views."""
