"""The HTTP API under ``/v1``: one module a resource."""
