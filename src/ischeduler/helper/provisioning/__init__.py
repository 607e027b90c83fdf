"""Training and judging provisioners on a trace: ``isched provisioner train`` and ``python -m benchmarks.provisioning``."""
