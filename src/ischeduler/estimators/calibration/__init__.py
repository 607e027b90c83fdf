"""Calibration: what a device really reaches, measured or fitted, kept as records with their provenance."""
