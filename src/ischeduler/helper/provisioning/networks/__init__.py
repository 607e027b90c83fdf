"""Mirage's networks and reinforcement learners as provisioners of the table; torch, gymnasium and stable-baselines3 on demand."""
