"""Allocation policies: which of many runs gets which accelerator type for what share of time. Pure."""
