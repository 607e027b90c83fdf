"""Live pools: the round engine, pure, around the very policies and round mechanism that the simulator runs, and its loop."""
