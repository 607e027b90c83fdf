"""Pools of trainings over several types of accelerators, simulated: Gavel's own rounds to the digit, and this project's."""
