"""The iScheduler Helper: what users import, and what the command line renders."""
