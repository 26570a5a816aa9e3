"""Telemetry that the service fetches itself, where no client pushes it.

Comes in: files that grow, and pages of metrics of others. Goes out: batches to the session, like those of any
client. Start at `feeder.py`, which brings them; `tail.py` and `scrape.py` find them, `rows.py` reads lines.
"""
