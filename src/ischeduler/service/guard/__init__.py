"""The submit-time guard: what the service says about a job in the moment before it is submitted."""
