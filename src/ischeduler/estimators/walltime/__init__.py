"""Walltime: start-up + steps x step time + evaluation + checkpoints, or the rate of finished runs."""
