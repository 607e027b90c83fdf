"""The central service: one house for many users."""
