"""Readers of measured training iterations: traces of operations, logs, throughput tables.

Published traces and results come in; rows of `step_times` and `op_times` go out. Start at
`training_trace.py`.
"""
