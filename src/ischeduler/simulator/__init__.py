"""A trace-driven cluster on a simulated clock: trace readers, the compiled scheduling kernel and its readable twin."""
