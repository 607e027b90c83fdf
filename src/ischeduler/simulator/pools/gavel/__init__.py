"""Gavel's own simulator, reproduced: its rounds, its priorities, and the defects that its published figures rest on."""
