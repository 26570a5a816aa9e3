"""Foundations of all floors: errors, units, typed configuration, plugins, durable files, progress.

Imports nothing of the project. Files come in as checked `Config` objects and go out through `durable`, whole
or not at all; every failure a user can meet is a `TwinError`. Start at `errors.py`.
"""
