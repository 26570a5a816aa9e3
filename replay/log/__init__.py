"""The event log of a run: durable, hash-chained segments of typed events, and folds over them.

Comes in: events (type, payload, simulated time). Goes out: Parquet segments with manifests, the events read
back, digests, findings of verification, and whatever folds compute. `events.py` and `payloads.py` define the
events, `fold.py` passes them to handlers by type, `segment.py`, `tail.py`, `recovery.py`, `compaction.py` and
`verification.py` keep the files whole. Start at `run_log.py`.
"""
