"""The faithful simulated cluster: a discrete-event batch system with Slurm's own behaviour, on a simulated clock."""
