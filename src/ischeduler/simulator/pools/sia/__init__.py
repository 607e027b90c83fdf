"""Sia's own simulation, reproduced: elastic jobs, goodput, measured steps and gradient noise."""
