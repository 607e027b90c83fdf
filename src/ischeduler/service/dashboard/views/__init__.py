"""What pages and ``isched top`` show, as plain values: pure functions of the core's objects and of ``now``."""
