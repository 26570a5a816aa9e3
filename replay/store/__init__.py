"""Runs and checkpoints of a store: headers, lookup, codecs of decisions, sinks of events.

Comes in: logs and checkpoint files. Goes out: `Header`s, run ids, views and decisions as JSON and back, the
active checkpoint, and the scenario of a logged run, prepared again. Start at `run_index.py` (names of runs),
then `run_header.py` (inputs of a run).
"""
