"""Tapis v3: jobs, files, systems and apps of a tenant, through tapipy."""
