"""Pure planning: what could be done, what it would take, what cannot be and why, and which option is best for a goal."""
