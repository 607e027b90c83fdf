"""Randomised faults on real parts: ``python -m tests.chaos --episodes N --seed S``."""
