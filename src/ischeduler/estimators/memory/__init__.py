"""GPU and host memory of a training step: traced on fake tensors in a subprocess, replayed in an allocator model."""
